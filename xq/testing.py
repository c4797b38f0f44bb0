"""For the tests of programs that use xq."""

from __future__ import annotations


class Clock:
    """A clock in the test's hand: `xq.upgrade(..., clock=Clock(1_700_000_000))`.

    Times in the queue follow it, and nothing moves by itself: `Page.xq.sweep()` moves what is due.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = float(now)

    def tick(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += seconds
