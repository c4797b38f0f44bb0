"""What the handler of a signal may raise: at any place of the main thread, and of no other."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

PATIENCE = 5.0  # seconds after which an interrupt stops what goes on for so long


def to_the_end(call: Callable[[], R], stop: Callable[[], None] = lambda: None) -> R:
    """What a call returns or raises, done to its end: what the handler of a signal raises meanwhile is raised then.

    The main thread has another one do it, which costs it some tenths of a millisecond; any other does it itself. `stop`
    shall make a call fail which does not come to its end, as when a server does not answer.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: list[R] = []
    failure: list[BaseException] = []
    interrupts: list[BaseException] = []
    claim, over = _thread.allocate_lock(), _thread.allocate_lock()
    over.acquire()

    def work() -> None:
        if not claim.acquire(blocking=False):
            return  # it is not wanted any more
        try:
            outcome.append(call())
        except BaseException as error:
            failure.append(error)
        finally:
            over.release()

    try:
        # Not threading.Thread, whose start waits for an event, see xq.runtime.waiters.Alarm.
        _thread.start_new_thread(work, ())
    except BaseException as error:
        if claim.acquire(blocking=False):
            if isinstance(error, RuntimeError) and error.__traceback__ is not None and not error.__traceback__.tb_next:
                return call()  # no thread can be started, as when the interpreter is about to end
            raise
        interrupts.append(error)
    stopped = False
    while not outcome and not failure:
        try:
            if not over.acquire(timeout=PATIENCE if interrupts and not stopped else -1):
                stopped = True
                stop()
        except BaseException as error:
            interrupts.append(error)
    try:
        if interrupts:
            raise interrupts[0]
        if failure:
            raise failure[0]
        return outcome[0]
    finally:
        failure.clear()  # whose traceback knows this frame
        interrupts.clear()
