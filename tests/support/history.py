"""The feature history: each transition a row that tells its event, written with the change, pruned by the sweep."""

from __future__ import annotations

from typing import Any

ALL = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "ttl": 100, "history": True}


def transitions(Task: Any, key: Any = None, **when: Any) -> list[str]:
    """The transitions, as "R-T take"."""
    return [f"{row.source}-{row.target} {row.event}" for row in Task.xq.history(key, **when)]
