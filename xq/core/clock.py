"""Whose time it is: the database's own, or a test's."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A clock that is told the time."""

    now: float  # seconds since 1970
