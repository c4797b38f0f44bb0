"""Time passes by itself: what falls due is moved by any process that has taken or waits, once, and on time."""

from __future__ import annotations

from typing import Any

from tests.steps import (
    eventually,
    transitions,
)

LATE = 3600


def seen(Task: Any, transition: str, n: int = 1) -> Any:
    """Have a transition come about, while this thread does nothing but look."""
    return eventually(lambda: transitions(Task)[transition] == n)
