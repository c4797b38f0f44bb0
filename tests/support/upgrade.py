"""upgrade: what it asks of a model, what it leaves alone, and what it refuses."""

from __future__ import annotations

FIELDS = {"status": "status", "runat": "runat"}
VERBS = {"put", "take", "ack", "release", "bury", "dig", "kick", "plow", "kill", "touch", "stats", "queue_stats"}
