"""Waiting for the end of a task: was it processed?"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import PATIENCE, Work, another_process, bring, eventually, in_threads, row, waiter
from tests.support import wait as support
from tests.support.wait import SOON, waited_for

no_fallback = support.no_fallback

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


# how a task ends, and whether it was processed


def within_a_transaction(*calls: str) -> Any:
    """Take the task, and make these calls of its key, before anybody can see it."""

    def end(Task: Any, key: Any) -> None:
        with Task._meta.database.atomic():
            Task.take()
            for call in calls:
                getattr(Task.xq, call)(key)

    return end


def set_by_plain_sql(Task: Any, key: Any, **fields: Any) -> None:
    Task.update(**fields).where(Task._meta.primary_key == key).execute()


# what happens: features, how it comes about, the answer
ENDS: dict[str, tuple[dict[str, Any], Any, bool]] = {
    "acked": ({}, lambda Task, key: Task.take().ack(), True),
    "acked among many": ({}, lambda Task, key: Task.xq.ack_many([Task.take()]), True),
    "acked and kept": ({"keep": True}, lambda Task, key: Task.take().ack(), True),
    "acked, and a zombie for a moment": ({"zombie": True}, lambda Task, key: Task.take().ack(delay=0), True),
    "acked and restarted at once": ({"keep": True}, within_a_transaction("ack", "restart"), True),
    "switched to done": ({"keep": True}, lambda Task, key: Task.xq.switch(key, "D"), True),
    "done by plain SQL": ({"keep": True}, lambda Task, key: set_by_plain_sql(Task, key, status="D"), True),
    "buried": ({"buried": True}, lambda Task, key: Task.take().bury(), False),
    "buried and dug up at once": ({"buried": True}, within_a_transaction("bury", "dig"), False),
    "killed": ({}, lambda Task, key: Task.kill(key), False),
    "truncated": ({}, lambda Task, key: Task.xq.truncate(), False),
    "dropped after its ttl": ({"ttl": True}, lambda Task, key: Task.take().release(ttl=SOON), False),
    "dropped after its lifetime": (
        {"lifetime": True},
        lambda Task, key: set_by_plain_sql(Task, key, deadline=time.time()),
        False,
    ),
    "deleted by plain SQL": ({}, lambda Task, key: Task.delete().execute(), False),
    "under another key": ({}, lambda Task, key: set_by_plain_sql(Task, key, id=key + 1000), False),
    "not the queue's any more": ({}, lambda Task, key: set_by_plain_sql(Task, key, status="?"), False),
}


@pytest.mark.parametrize("how", ENDS)
def test_who_waits_is_told_when_a_task_is(make_live, how):
    features, end, answer = ENDS[how]
    Task = make_live(features)
    put = Task.put(task())
    waits = [waiter(Task, lambda: Task.wait(put.id, timeout=PATIENCE)) for _ in range(2)]
    end(Task, put.id)
    for found, processed in (each.result() for each in waits):
        assert (found.id, processed) == (put.id, answer)
        now = row(Task, found)
        assert now is None or now.status == "?" or found.__data__ == now.__data__
    assert waited_for(Task) == []


def test_a_task_that_may_yet_be_taken_has_not_ended(make_live):
    Task = make_live({"delayed": True})
    put = Task.put(task())
    waits = waiter(Task, lambda: Task.wait(put, timeout=PATIENCE))
    Task.take().release()
    Task.take().release(delay=PATIENCE)
    assert Task.wait(put, timeout=0.01) == (put, False)
    assert waits.goes_on
    Task.kill(put)
    assert waits.result() == (put, False)


def test_an_end_is_told_of_after_its_commit_and_was_none_where_it_is_rolled_back(make_live):
    Task, db = make_live({"buried": True, "keep": True}), make_live.db
    put = Task.put(task())
    waits = waiter(Task, lambda: Task.wait(put, timeout=PATIENCE))
    with db.atomic() as transaction:
        Task.kill(put)
        transaction.rollback()
    with db.atomic():
        with db.atomic() as savepoint:
            Task.xq.bury(Task.take())
            savepoint.rollback()
        Task.take().ack()
        assert Task.wait(put, timeout=0)[1]
        assert waits.goes_on
    assert waits.result()[1]


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_a_wait_for_what_a_transaction_has_locked_keeps_to_its_time_and_is_in_no_others_way(make_live):
    Task = make_live()
    locked, other = Task.xq.put_many(tasks(2))
    db = Task._meta.database
    with db.atomic():
        assert Task.take() == locked
        waits = Work(db, lambda: Task.wait(locked, timeout=PATIENCE))
        assert Work(db, lambda: Task.wait(locked, timeout=0.05)).result() == (locked, False)
        assert Work(db, lambda: Task.wait(other, timeout=0.05)).result() == (other, False)
        assert waits.goes_on
    eventually(lambda: waited_for(Task) == [locked.id])
    Task.ack(locked)
    assert waits.result()[1]


# when it ended before


@pytest.mark.parametrize(
    ("letter", "features", "answer"),
    [("B", {"buried": True}, False), ("D", {"keep": True}, True), ("Z", {"zombie": 60}, True)],
)
def test_a_task_that_has_ended_is_not_waited_for(make, letter, features, answer):
    Task = make(features)
    ended = bring(Task, letter)
    for timeout in (None, 0, PATIENCE):
        assert Task.wait(ended.id, timeout=timeout) == ended.wait(timeout=timeout) == (ended, answer)
    set_by_plain_sql(Task, ended.id, status="R")
    assert Task.wait(ended.id, timeout=0) == (ended, False)


def test_a_task_that_is_gone_is_not_found(make):
    Task = make()
    gone = bring(Task, "T").ack()
    for key in (gone, gone.id, Task.create(status="?")):
        for timeout in (None, 0, 5):
            with pytest.raises(xq.NotFound):
                Task.wait(key, timeout=timeout)


def test_a_put_that_finds_its_task_there_and_ended_does_not_wait(make):
    Task = make({"buried": True, "unique": "WRTB"}, roles=("runat", "unique"))
    buried = bring(Task, "B", task(job="j"))
    assert Task.xq.put(task(job="j"), on_conflict="skip", wait=None) == (buried, False)


# how long


def calls(Task: Any, key: Any, seconds: Any) -> list[Any]:
    """The calls that may wait, each with the name of its method."""
    return [
        ("take", partial(Task.take, timeout=seconds)),
        ("take", partial(Task.xq.take_many, 1, timeout=seconds)),
        ("put", partial(Task.put, {}, timeout=seconds)),
        ("put", partial(Task.put, {}, wait=seconds)),
        ("wait", partial(Task.wait, key, timeout=seconds)),
    ]


@pytest.mark.parametrize("seconds", [-1, math.nan, -math.inf, "1", True])
def test_a_time_that_means_nothing_is_refused(make, seconds):
    Task = make({"limit": 5})
    put = Task.put(task())
    for _, call in calls(Task, put, seconds):
        with pytest.raises((xq.BadValue, xq.BadType), match="timeout|wait"):
            call()
    assert Task.xq.count() == Task.xq.count("R") == 1


@pytest.mark.parametrize("seconds", [1, None, math.inf])
def test_nobody_waits_within_a_transaction(make, seconds):
    Task = make({"limit": 5})
    with make.db.atomic():
        put = Task.put(task())
        for name, call in calls(Task, put, seconds):
            with pytest.raises(xq.InTransaction, match=name):
                call()
        assert Task.wait(put, timeout=0) == (put, False)
        assert Task.take(timeout=0) == put
        assert Task.put(task(), timeout=0).status == "R"
        assert Task.put(task(), wait=0)[1] is False


def test_a_wait_ends_when_its_time_runs_out(make):
    Task = make()
    put = Task.put(task())
    for timeout in (0, 0.0, 0.01):
        assert Task.wait(put, timeout=timeout) == (put, False)
        late, processed = Task.xq.put(task(), wait=timeout)
        assert (late.status, processed) == ("R", False)
    assert Task.wait(Task.take(), timeout=0.01)[0].status == "T"
    assert Task.xq.waiting() == []


def test_each_waits_for_its_own_task_where_keys_have_several_parts(make_live):
    key = {
        "shop": pw.CharField(),
        "number": pw.IntegerField(),
        "meta": {"primary_key": pw.CompositeKey("shop", "number")},
    }
    Task = make_live(attributes=key)
    keys = [("a", 1), ("b", 1), ("a", 2)]
    Task.xq.put_many([task(shop=shop, number=number) for shop, number in keys])
    waits = [waiter(Task, partial(Task.wait, key, timeout=PATIENCE)) for key in keys]
    assert waited_for(Task) == keys
    Task.xq.kill(keys[1])
    assert waits[1].result()[1] is False
    assert waited_for(Task) == [keys[0], keys[2]]
    Task.xq.ack_many(Task.xq.take_many(2))
    assert [each.result()[1] for each in waits] == [True, False, True]


# many, and those that die


def test_a_put_that_waits_misses_no_end(make_live):
    Task = make_live()

    def worker():
        yield "begun"
        while Task.take(timeout=PATIENCE).ack().name != "the end":
            pass

    with another_process(make_live.db, worker) as other:
        assert next(other) == "begun"
        other.post(None)
        assert [Task.xq.put(task(), wait=PATIENCE)[1] for _ in range(300)] == [True] * 300
        assert Task.xq.put(task(name="the end"), wait=PATIENCE)[1]


@pytest.mark.parametrize("what", ["a task", "its end"])
def test_of_a_process_that_is_killed_while_it_waits_no_row_is_left(make_live, what):
    Task = make_live()
    db = Task._meta.database
    put = Task.put(task())
    assert Task.take()

    def rows() -> dict[str, list[Any]]:
        """Who waits, who lives, and which sessions there are."""
        columns = {"task_xq_wait": "session", "xq_alive": "uuid, process", "xq_session": "uuid, queue"}
        there = [table for table in columns if db.table_exists(table)]
        return {table: sorted(db.execute_sql(f"SELECT {columns[table]} FROM {table}").fetchall()) for table in there}

    def waits():
        yield Task.take()
        if what == "a task":
            Task.take(timeout=PATIENCE)
        else:
            Task.wait(put, timeout=PATIENCE)

    before = rows()
    with another_process(db, waits) as other:
        assert next(other) is None
        other.post(None)
        eventually(lambda: what == "a task" or waited_for(Task))
        assert all(len(now) > len(before[table]) for table, now in rows().items() if now)
        other.kill()
        eventually(lambda: rows() == before)


# what is returned of a task that is gone, and who waits


def asked_and_taken(Task: Any) -> Any:
    """The task of one who puts it and waits, once it has begun to wait."""
    return eventually(lambda: waited_for(Task) and Task.take())


def put_and_wait(Task: Any) -> Any:
    return Task.put(task(name="asked"), wait=PATIENCE)


@pytest.mark.parametrize(
    ("features", "status"),
    [({}, "T"), ({"keep": True}, "D")],
    ids=["as it was taken", "as done where it was kept and then deleted"],
)
def test_another_process_returns_a_task_that_is_gone(make_live, features, status):
    Task = make_live(features, roles=("owner", "attempts"))

    def child():
        yield
        found, processed = put_and_wait(Task)
        yield found.status, processed

    with another_process(make_live.db, child) as other:
        next(other)
        other.post(None)
        taken = asked_and_taken(Task)
        with make_live.db.atomic():
            taken.ack()
            Task.delete().execute()
        assert other.hear() == (status, True)


def test_the_process_that_acked_a_task_returns_it_as_it_was_acked_though_another_has_its_key_since(make_live):
    Task = make_live(roles=("owner", "attempts"))

    def work() -> Any:
        taken = asked_and_taken(Task)
        with make_live.db.atomic():
            acked = taken.ack(update={"name": "answered"})
            Task.put({**task(name="another"), "id": acked.id})  # as SQLite itself chooses it, without AUTOINCREMENT
        Task.kill(Task.take())
        return acked

    for _ in range(20):  # the maintenance thread may see the write before the acking thread has recorded it
        (found, processed), acked = in_threads(make_live.db, lambda: put_and_wait(Task), work)
        assert processed
        assert found.__data__ == acked.__data__
        assert (found.name, found.status, found.attempts) == ("answered", "T", 1)


def test_a_queue_tells_who_waits_for_what(make_live):
    Task = make_live()
    first, second = Task.xq.put_many(tasks(2))
    begun = time.time()
    waits = [waiter(Task, partial(Task.wait, put, timeout=PATIENCE)) for put in (first, first, second)]
    keys, sessions, since = zip(*Task.xq.waiting(), strict=True)
    assert keys == (first.id, first.id, second.id)
    assert all(begun - 1 < at < time.time() + 1 for at in since)
    taken = Task.xq.take_many(2)
    assert {session for _, session, _ in Task.xq.taken()} == {*sessions}
    takes = waiter(Task, lambda: Task.take(timeout=PATIENCE))
    assert [key for key, _, _ in Task.xq.waiting()] == [first.id, first.id, second.id, None]
    Task.xq.ack_many(taken)
    assert all(each.result()[1] for each in waits)
    Task.put(task())
    assert takes.result()
    assert Task.xq.waiting() == []
