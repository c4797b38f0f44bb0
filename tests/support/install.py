"""Bringing a queue into a database, looking whether it is there, changing it, and taking it away."""

from __future__ import annotations

FEATURES = {"buried": True, "delayed": True, "zombie": 30}
