"""How a call that waits sleeps, in a thread or in a coroutine.

Such a call is a generator (`Wait`): it yields where it sleeps. A thread runs it to its end. A coroutine sleeps on its
event loop, and needs a thread only between two sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from xq.core import time
from xq.core.kinds import R

LONGEST_SLEEP = 3600.0  # seconds: the longest sleep, since a lock's timeout is limited
UNATTENDED = 0.05  # seconds between two looks without a maintenance thread: a database in memory, a test's clock


class Deadline:
    """The time at which a wait ends, by the monotonic clock. Without seconds (None) it never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The longest sleep in seconds; zero or negative after the deadline."""
        return LONGEST_SLEEP if self._at is None else min(LONGEST_SLEEP, self._at - time.monotonic())


class Awake(threading.Event):
    """The event that wakes a waiter."""

    # Called when it is set: a coroutine waits for that, not for the event. Returns False if its event loop is closed.
    call: Callable[[], bool] | None = None

    def set(self) -> None:
        self.reach()

    def reach(self) -> bool:
        """Set it, and return whether a caller can be woken."""
        super().set()
        return self.call is None or self.call()


class Sleep(NamedTuple):
    """A waiting call's request: sleep until `awake` is set, clear it, and send whether it was set in time."""

    awake: Awake
    seconds: float


LOOK_NOW = None  # a request of a take that waits: look for tasks, and send them
Wait = Generator[Sleep | None, Any, R]


def _sleep(awake: Awake, seconds: float) -> bool:
    """Sleep until an event is set, and clear it. Return False if it was not set within `seconds`."""
    if not awake.wait(max(0.0, seconds)):
        return False
    awake.clear()
    return True


def run_wait(wait: Wait[R], look: Callable[[], object] = lambda: None) -> R:
    """Run a call that waits in this thread, to its end."""
    try:
        request = next(wait)
        while True:
            try:
                answer = look() if request is LOOK_NOW else _sleep(*request)
            except BaseException as error:
                request = wait.throw(error)
            else:
                request = wait.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        wait.close()
