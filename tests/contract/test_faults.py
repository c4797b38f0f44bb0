"""Faults that were found once: what happens now, on every database."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import PATIENCE, another_process, bring, in_threads, is_exact, state

HUGE = 10**5000  # so long that Python refuses to write it down


# sessions


def test_a_child_forked_within_a_session_is_in_no_session_of_its_parents(make_live):
    Task = make_live({"keep": True})
    Task.xq.put_many(tasks(2))
    with ExitStack() as stack:
        session = stack.enter_context(Task.xq.session())
        taken = Task.take()

        def child():
            other = Task.take()
            holders = {key: holder for key, holder, _ in Task.xq.taken()}
            with pytest.raises(xq.NotOwner):
                Task.ack(taken.id)
            stack.close()
            yield holders[other.id], holders[taken.id], Task.xq.stats().counts["T"]

        with another_process(make_live.db, child) as other:
            theirs, mine, held = next(other)
        assert theirs != session.uuid
        assert (mine, held) == (session.uuid, 2)
        assert session.uuid in dict(Task.xq.sessions())
        assert Task.ack(taken).status == "D"


def test_a_session_that_threads_enter_together_is_closed_when_the_last_leaves(make_live):
    Task = make_live()
    several = [Task.xq.session() for _ in range(20)]
    threads = 6
    together = threading.Barrier(threads)

    def work():
        found = []
        for session in several:
            together.wait(PATIENCE)
            with session:
                found.append(session.closed)
                together.wait(PATIENCE)
                found.append(session.closed)
            together.wait(PATIENCE)
            found.append(not session.closed)
        return found

    assert not any(any(found) for found in in_threads(make_live.db, *[work] * threads))
    assert not {session.uuid for session in several} & {uuid for uuid, _ in Task.xq.sessions()}


def test_a_session_whose_close_was_rolled_back_may_be_closed_again(make):
    Task = make()
    put = Task.put(task())
    with ExitStack() as stack:
        session = stack.enter_context(Task.xq.session())
        Task.take()
        with make.db.atomic() as transaction:
            session.close()
            assert state(Task, put) == "R"
            transaction.rollback()
        assert state(Task, put) == "T"
        session.close()
        assert state(Task, put) == "R"
    assert session.uuid not in dict(Task.xq.sessions())


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


# keys


class Moment(pw.DateTimeField):
    """A date and a time to the microsecond, which MariaDB has if it is declared so."""

    def ddl_datatype(self, ctx: Any) -> Any:
        found = super().ddl_datatype(ctx)
        return pw.SQL("DATETIME(6)") if found.sql == "DATETIME" else found


KEYS: dict[str, tuple[Any, list[Any]]] = {
    "date": (lambda: pw.DateField(primary_key=True), [date(2024, 2, day) for day in (29, 1, 15)]),
    "date-time": (
        lambda: Moment(primary_key=True),
        [datetime(2024, 2, 29, 23), datetime(2024, 2, 1, 0, 0, 0, 5), datetime(2024, 2, 15)],
    ),
    "decimal": (
        lambda: pw.DecimalField(max_digits=8, decimal_places=3, primary_key=True),
        [Decimal("10.500"), Decimal("9.125"), Decimal("10")],
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_batch_of_tasks_with_a_key_of_any_kind_keeps_its_order(make, kind):
    field, keys = KEYS[kind]
    Task = make({"keep": True}, key=field())
    put = Task.xq.put_many([task(id=key) for key in keys])
    assert [each.id for each in put] == keys
    assert {taken.id for taken in Task.xq.take_many(3)} == set(keys)
    assert {key for key, _, _ in Task.xq.taken()} == set(keys)
    assert [(each.id, each.status) for each in Task.xq.ack_many(keys)] == [(key, "D") for key in keys]
    assert is_exact(Task)


# values


def test_any_number_of_tasks_may_be_asked_for(make):
    Task = make({"buried": True})
    Task.xq.put_many(tasks(2))
    assert len(Task.xq.take_many(HUGE)) == 2
    assert Task.dig(n=HUGE) == []
    assert Task.xq.by_state("T", HUGE)


# the feature unique

BACK = [
    ("B", lambda Task, key: Task.dig(key)),
    ("D", lambda Task, key: Task.xq.restart(key)),
    ("D", lambda Task, key: Task.xq.switch(key, "R")),
]


def test_a_move_that_meets_a_duplicate_is_given_no_advice_about_put(make):
    for came_from, again in BACK:
        Task = make({"unique": True, "buried": True, "keep": True}, roles=("runat", "unique"))
        first = bring(Task, came_from, task(job="a"))
        Task.put(task(job="a"))
        with pytest.raises(xq.Duplicate) as refused:
            again(Task, first.id)
        assert (refused.value.value, refused.value.key) == (None, None)
        assert "on_conflict" not in str(refused.value)
        assert state(Task, first) == came_from
        Task.xq.truncate()


def test_what_the_table_refuses_is_no_duplicate(make):
    attributes = {"jobs": pw.IntegerField(default=0)}  # the name begins as that of the role
    Task = make({"unique": True, "buried": True}, roles=("runat", "unique"), attributes=attributes)
    buried = bring(Task, "B", task(job="a"))
    with pytest.raises(pw.IntegrityError):
        Task.put(task(job="b", jobs=None))
    with pytest.raises(pw.IntegrityError):
        Task.dig(buried.id, update={"jobs": None})
    assert (Task.xq.count(), state(Task, buried)) == (1, "B")


def test_a_task_that_is_replaced_forgets_its_own_time_to_live(make):
    Task = make({"unique": True, "ttl": 10}, roles=("runat", "unique", "ttl"))
    first = Task.put(task(job="a"), ttl=100)
    assert first.runat == Task.xq.clock.now + 100
    again = Task.put(task(job="a"), on_conflict="replace")
    assert (again.id, again.ttl, again.runat) == (first.id, None, Task.xq.clock.now + 10)
    Task.xq.clock.tick(11)
    assert Task.take() is None
