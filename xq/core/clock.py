"""The clock of a queue: the database's own, or one that a test sets."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A clock that a test sets."""

    now: float  # seconds since 1970
