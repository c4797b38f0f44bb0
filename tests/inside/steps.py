"""Steps that need xq's internals."""

from __future__ import annotations

import sys
import threading
from typing import Any

import peewee as pw

from tests.steps import Work, eventually
from xq.adapters.peewee.connections import database_of
from xq.runtime import sleep


def look(db: pw.Database) -> None:
    """Check which sessions live, as the maintenance thread of each process does twice a second."""
    mine = database_of(db)
    liveness = mine.liveness
    assert liveness is not None, "this process has taken nothing"
    eventually(liveness.renew)  # a new lock file proves no death yet
    mine.reaper.reap()


def sleeps(waiting: Work) -> bool:
    """Return whether a thread sleeps until it is woken, and is not on its way there: drivers have a `wait`, too."""
    frame, above = sys._current_frames().get(waiting.thread or 0), list[Any]()
    while frame is not None and len(above) < 3:  # threading.Condition.wait, threading.Event.wait
        above.append(frame.f_code)
        frame = frame.f_back
    return above[:1] == [threading.Condition.wait.__code__] and above[2:] == [sleep._sleep.__code__]
