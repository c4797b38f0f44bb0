"""Faults that were found once: what happens now, on every database."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.factories import task, tasks
from tests.steps import bring, in_threads, state

HUGE = 10**5000  # so long that Python refuses to write it down


def test_a_session_left_in_another_thread_than_it_was_entered_in_is_closed(make_live):
    Task = make_live()
    put = Task.put(task())
    session = Task.xq.session()

    def work():
        with session:
            yield Task.take()

    running = work()
    assert next(running).id == put.id
    in_threads(make_live.db, running.close)
    assert session.closed
    assert state(Task, put) == "R"
    assert Task.xq.taken() == []


def test_any_number_of_tasks_may_be_asked_for(make):
    Task = make({"buried": True})
    Task.xq.put_many(tasks(2))
    assert len(Task.xq.take_many(HUGE)) == 2
    assert Task.dig(n=HUGE) == []
    assert len(Task.xq.by_state("T", HUGE)) == 2


def test_what_the_table_refuses_is_no_duplicate(make):
    attributes = {"jobs": pw.IntegerField(default=0)}  # the name begins as that of the role
    Task = make({"unique": True, "buried": True}, roles=("runat", "unique"), attributes=attributes)
    buried = bring(Task, "B", task(job="a"))
    with pytest.raises(pw.IntegrityError):
        Task.put(task(job="b", jobs=None))
    with pytest.raises(pw.IntegrityError):
        Task.dig(buried.id, update={"jobs": None})
    assert (Task.xq.count(), state(Task, buried)) == (1, "B")
