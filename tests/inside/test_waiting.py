"""Takes that wait for a task, and puts that wait for room."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

import xq
from tests.factories import task, tasks
from tests.inside.steps import sleeps
from tests.steps import (
    PATIENCE,
    Work,
    another_process,
    eventually,
    is_exact,
    row,
    waiter,
    waiters,
)
from tests.support import wait as support
from tests.support.wait import FEATURES, SOON, take, taken
from xq.engine import unit
from xq.runtime import waiters as runtime
from xq.runtime.threads import threads
from xq.runtime.waiters import Deadline

shared, full = support.shared, support.full

no_fallback = support.no_fallback


def test_a_take_does_not_sleep_on_when_another_process_reconfigures_its_queue(shared, monkeypatch):
    monkeypatch.setattr(unit, "REVIEW", -1.0)  # the queue is looked at again at any time

    def reconfigures():
        yield "begun"
        shared.xq.reconfigure({**FEATURES, "keep": True})
        with shared._meta.database.atomic():  # others are told, and find nothing
            shared.put(task()).kill()
        yield "done"

    with another_process(shared._meta.database, reconfigures) as other:
        assert next(other) == "begun"
        waits = waiter(shared, take(shared))
        assert next(other) == "done"
        with pytest.raises(xq.NotInstalled):
            waits.result()


# several


def looks(Task: Any, monkeypatch: Any) -> Counter[int]:
    """How many statements that take each thread runs from now on."""
    counted: Counter[int] = Counter()
    kind = type(Task.xq.adapter.store.ready())
    execute = kind.execute

    def counting(self: Any, sql: str, values: Any = ()) -> Any:
        # A statement that takes, or the lock that is the first half of one.
        if ("'T'" in sql and sql.startswith(("WITH", "UPDATE"))) or sql.endswith("LIMIT 1 FOR UPDATE SKIP LOCKED"):
            counted[threading.get_ident()] += 1
        return execute(self, sql, values)

    monkeypatch.setattr(kind, "execute", counting)
    return counted


def test_one_put_wakes_one_waiter(shared, monkeypatch):
    counted = looks(shared, monkeypatch)
    waits = waiters(shared, take(shared), 6)
    eventually(lambda: all(sleeps(each) for each in waits))  # each looks once more when it has its place
    counted.clear()
    for _ in range(3):
        shared.put(task())
    eventually(lambda: sum(not each.goes_on for each in waits) == 3)
    assert len(counted) <= 4  # the three, and the next in the line, which may look whether there is more
    shared.xq.put_many(tasks(3))
    assert all(each.result() for each in waits)


def woken_and_gone(Task: Any, put: threading.Event, kind: type[BaseException] | None) -> None:
    """A waiter that is woken for what was put, and ends before it has looked."""
    with suppress(*[kind] if kind else []), Task.xq._waiting.takers.enter() as first:
        assert put.wait(PATIENCE)
        eventually(lambda: first.woken)
        if kind:
            first.sleep(PATIENCE)
            raise kind


@pytest.mark.parametrize("kind", [None, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("tube", [None, "a"])
def test_a_waiter_that_ends_before_it_has_looked_wakes_the_next(shared, kind, tube):
    done = threading.Event()
    first = waiter(shared, lambda: woken_and_gone(shared, done, kind))
    second = waiter(shared, take(shared, tube=tube))
    put = shared.put(task(tube="a"))
    done.set()
    first.result()
    assert second.result() == put


@pytest.mark.parametrize("what", ["a take", "a wait"])
def test_who_waits_can_be_interrupted_from_the_keyboard_and_leaves_nobody_waiting(shared, what):
    put = shared.put(task())
    if what == "a take":
        shared.take()
    mine = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

    def interrupt() -> None:
        # Not before it sleeps: Peewee forgets a transaction that it is interrupted in beginning.
        eventually(lambda: shared.xq.waiting() and sleeps(mine))
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = Work(shared._meta.database, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            shared.take(timeout=PATIENCE) if what == "a take" else shared.wait(put, timeout=PATIENCE)
        interrupter.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert shared.xq.waiting() == []
    assert not shared.xq._waiting.anybody
    put = shared.put(task())
    assert shared.take(timeout=PATIENCE) is not None


def test_a_child_does_not_call_the_waiters_of_its_parent(shared):
    def child():
        yield "begun"
        yield shared.take(timeout=PATIENCE).id

    # It only holds the place: SQLite itself does not bear a fork while another thread is within it.
    with shared.xq._waiting.takers.enter(), another_process(shared._meta.database, child) as other:
        assert next(other) == "begun"
        other.post(None)
        put = shared.put(task())
        assert other.hear() == put.id


ROOM = {
    "an ack": lambda Task: Task.ack(taken(Task).id),
    "a kill": lambda Task: Task.kill(taken(Task).id),
    "the death of one that is buried": lambda Task: Task.kill(Task.xq.by_state("B")[0].id),
    "plain SQL": lambda Task: Task.delete().where(Task.status == "B").execute(),
    "an expiry": lambda Task: Task.release(taken(Task).id, ttl=SOON),
}


@pytest.mark.parametrize("make_room", ROOM)
def test_a_put_that_waits_finds_room_after(full, make_room):
    waits = Work(full._meta.database, lambda: full.put(task(name="late"), timeout=PATIENCE))
    eventually(lambda: full.xq._waiting.putters)
    ROOM[make_room](full)
    assert row(full, waits.result()).name == "late"
    assert is_exact(full)


def test_as_many_puts_as_there_is_room_for_wake(full):
    puts = [Work(full._meta.database, lambda: full.put(task(), timeout=PATIENCE)) for _ in range(4)]
    eventually(lambda: len(full.xq._waiting.putters.waiters) == 4)
    full.xq.truncate()
    eventually(lambda: sum(not put.goes_on for put in puts) == 2)
    full.xq.truncate()
    assert [put.result().status for put in puts] == ["R"] * 4
    assert full.xq.count() == 2


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_a_put_that_may_wait_for_room_listens_before_it_looks(make_shared, timeout):
    looked: list[bool] = []

    def key(task: Any) -> int:
        looked.append(Task.xq.adapter.maintenance.is_maintained)
        return len(looked)

    Task = make_shared({"limit": 1, "id": key})
    assert Task.put(task(), timeout=0).id == 1
    with pytest.raises(xq.Full):
        Task.put(task(), timeout=timeout)
    assert looked[:2] == [False, timeout > 0]


# waits for the end of a task


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
    monkeypatch.setattr(runtime, "_sleep", lambda awake, seconds: over.wait(seconds) and False)
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
