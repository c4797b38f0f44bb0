"""How long a call may wait for a database that does not answer, and how long all last calls of a process."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from xq.core import time

GRACE = 3.0  # seconds for all last calls of a process, so that it ends within five
AGAIN = 0.2  # seconds until a block that does not end is interrupted again, as in a rollback
_over_at = -math.inf  # the monotonic time at which GRACE is over


class Late(BaseException):
    """A database has not answered in time. No Exception: nothing is tried again after it."""


def left(ends: bool = False) -> float:
    """Return for how many seconds a last call may wait; `ends`: of GRACE from now on, if that has not begun."""
    global _over_at
    seconds = _over_at - time.monotonic()
    seconds = GRACE if seconds < -GRACE else max(0.0, seconds)  # a program may go on after an end
    if ends:
        _over_at = time.monotonic() + seconds
    return seconds


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Late in the block after so many seconds, if it runs in the main thread: no other can be interrupted."""

    def late(*_: object) -> NoReturn:
        raise Late(f"it does not answer within {seconds:g} s")

    try:
        before = signal.signal(signal.SIGALRM, late)
    except ValueError:  # another thread, or an interpreter within another one
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
