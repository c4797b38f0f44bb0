"""Faults that were found once: what happens now, on every database."""

from __future__ import annotations

FIELDS = {"status": "status", "runat": "runat"}
