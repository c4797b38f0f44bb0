"""Waiting for the end of a task: was it processed?"""

from __future__ import annotations

import os
import signal
import threading

import pytest

import xq
from tests.factories import task
from tests.inside.steps import sleeps
from tests.steps import PATIENCE, Work, another_process, eventually, waiter
from tests.support import fallback
from tests.support.wait import waited_for
from xq.runtime import waiters
from xq.runtime.threads import threads
from xq.runtime.waiters import Deadline

no_fallback = fallback.no_fallback

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


def test_a_put_that_is_refused_leaves_nobody_waiting(make):
    Task = make({"limit": 1})
    Task.put(task())
    with pytest.raises(xq.Full):
        Task.xq.put(task(), wait=1)
    with pytest.raises(xq.BadType):
        Task.xq.put(task(), wait=1, bogus=1)
    assert Task.xq.waiting() == []
    assert not Task.xq._waiting.anybody


def test_an_end_of_which_nobody_told_counts_when_the_time_runs_out(make_live, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(Deadline, "left", property(lambda self: 0.0 if over.is_set() else float(PATIENCE)))
    monkeypatch.setattr(waiters, "_sleep", lambda awake, seconds: over.wait(seconds) and False)
    Task = make_live()
    db = Task._meta.database
    put = Task.put(task())

    def acks():
        yield "begun"
        Task.take().ack()
        yield "done"

    with another_process(db, acks) as other:
        assert next(other) == "begun"
        waits = waiter(Task, lambda: Task.wait(put, timeout=PATIENCE))
        eventually(lambda: db in threads())
        deaf = threads()[db]
        deaf.end()
        deaf.thread.join(PATIENCE)
        assert next(other) == "done"
        assert waits.goes_on
        over.set()
        assert waits.result() == (put, True)


def test_a_wait_that_is_interrupted_leaves_nobody_waiting(make_live):
    Task = make_live()
    put = Task.put(task())
    mine = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

    def interrupt() -> None:
        eventually(lambda: waited_for(Task) and sleeps(mine))
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = Work(Task._meta.database, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            Task.wait(put, timeout=PATIENCE)
        interrupter.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert waited_for(Task) == []
    assert not Task.xq._waiting.anybody
