"""What the handler of a signal may raise: at any place of the main thread, and of no other."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

R = TypeVar("R")


def to_the_end(call: Callable[[], R]) -> R:
    """What a call returns or raises, done to its end: what the handler of a signal raises meanwhile is raised then.

    The main thread has another one do it, which costs it some 0.1 ms; any other does it itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: list[R] = []
    failure: list[BaseException] = []
    interrupts: list[BaseException] = []
    claim = _thread.allocate_lock()
    over: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        if not claim.acquire(blocking=False):
            return  # it is not wanted any more
        try:
            outcome.append(call())
        except BaseException as error:
            failure.append(error)
        finally:
            over.put(None)

    try:
        # Not threading.Thread, whose start waits for an event, see xq.wait.Alarm.
        _thread.start_new_thread(work, ())
    except BaseException as error:
        if claim.acquire(blocking=False):
            if isinstance(error, RuntimeError) and error.__traceback__ is not None and not error.__traceback__.tb_next:
                return call()  # no thread can be started, as when the interpreter is about to end
            raise
        interrupts.append(error)
    while not outcome and not failure:
        try:
            over.get()
        except BaseException as error:
            interrupts.append(error)
    try:
        if interrupts:
            raise interrupts[0]
        if failure:
            raise failure[0]
        return outcome[0]
    finally:
        failure.clear()  # with its traceback, which knows this frame
        interrupts.clear()
