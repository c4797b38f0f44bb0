"""A clock for the tests of programs that use xq."""

from __future__ import annotations


class Clock:
    """A clock that a test sets: `xq.upgrade(..., clock=Clock(1_700_000_000))`, in seconds since 1970.

    The queue uses it for all times. No thread expires timers: `Page.xq.sweep()` moves the due tasks.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = float(now)

    def tick(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self.now += seconds
