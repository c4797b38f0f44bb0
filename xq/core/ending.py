"""How long a process that ends may wait for its databases, and calls that must have an answer in time."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from xq.core import time

GRACE = 4.0  # seconds for all last calls of a process, so that it ends within five
AGAIN = 0.2  # seconds until a block that does not end is interrupted again, as in a rollback

_over_at = -math.inf  # the monotonic time at which GRACE is over


class Late(BaseException):
    """A database has not answered in time. No Exception: nothing retries, or goes on, after it."""


def left() -> float:
    """Return for how many seconds a last call may wait."""
    there = _over_at - time.monotonic()
    return GRACE if there < -GRACE else max(0.0, there)  # a program that had ended once has gone on


def ends() -> float:
    """Note that this process ends now, if that is not noted. Return the seconds that are left."""
    global _over_at
    _over_at = time.monotonic() + left()
    return left()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Late in the block after so many seconds. Only in the main thread: no other one can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> NoReturn:
        raise Late(f"it does not answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
