"""Statuses in the application's own words, and rows that are not the queue's."""

from __future__ import annotations

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttl": 10, "ttr": 20}
