"""Takes that wait for a task, and puts that wait for room."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

import xq
from tests.conftest import Maker, live
from tests.factories import task, tasks
from tests.steps import (
    PATIENCE,
    Work,
    another_process,
    another_program,
    bring,
    eventually,
    processes,
    row,
    state,
    waiter,
    waiters,
)
from tests.support import wait as support
from tests.support.wait import FEATURES, SOON, take, taken

no_fallback, shared, full = support.no_fallback, support.shared, support.full

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


# how long


# who wakes a take


def test_a_take_waits_no_longer_than_it_may(make):
    Task = make()
    first, second, third = Task.xq.put_many(tasks(3))
    assert [Task.take(timeout=timeout) for timeout in (None, math.inf, PATIENCE)] == [first, second, third]
    for timeout in (0, 0.01):
        assert Task.take(timeout=timeout) is None
        assert Task.xq.take_many(5, timeout=timeout) == []
    assert Task.xq.take_many(0, timeout=None) == []
    assert Task.xq.waiting() == []


def calls(Task: Any, timeout: Any) -> list[Any]:
    """The calls that may wait, each with the name of its method."""
    return [
        ("take", partial(Task.take, timeout=timeout)),
        ("take", partial(Task.xq.take_many, 1, timeout=timeout)),
        ("put", partial(Task.put, {}, timeout=timeout)),
    ]


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, xq.BadValue), (math.nan, xq.BadValue), (-math.inf, xq.BadValue), ("1", xq.BadType), (True, xq.BadType)],
)
def test_a_time_that_means_nothing_is_refused(make, timeout, error):
    Task = make({"limit": 5})
    for _, call in calls(Task, timeout):
        with pytest.raises(error, match="timeout"):
            call()
    assert Task.xq.count() == 0


def test_nobody_waits_within_a_transaction(make):
    Task = make({"limit": 5})
    with Task._meta.database.atomic():
        Task.put(task())
        for timeout in (1, None, math.inf):
            for name, call in calls(Task, timeout):
                with pytest.raises(xq.InTransaction, match=name):
                    call()
        assert [Task.take(timeout=0) is None for _ in range(2)] == [False, True]
        assert Task.put(task(), timeout=0).status == "R"


def test_a_put_waits_for_room_only_where_there_is_a_limit_and_not_for_the_end_as_well(make):
    Task = make()
    with pytest.raises((xq.FeatureOff, xq.BadType), match="timeout"):
        Task.put(task(), timeout=1)
    Limited = make({"limit": 1}, model=make.model(table_name="limited"))
    with pytest.raises(xq.BadValue, match="not for both"):
        Limited.put(task(), timeout=1, wait=1)
    Limited.put(task(), timeout=0)
    for timeout in (0, 0.1):
        with pytest.raises(xq.Full) as full:
            Limited.put(task(), timeout=timeout)
        assert full.value.limit == 1
    assert (Task.xq.count(), Limited.xq.count()) == (0, 1)


def by_plain_sql(Task: Any, _: Any) -> None:
    row = "INSERT INTO task (size, status, priority, attempts) VALUES (1, 'R', 0, 0)"
    another_program(Task._meta.database, row)


def by_a_transaction(Task: Any, _: Any) -> None:
    with Task._meta.database.atomic():
        Task.put(task())
        Task.put(task())


# whether a task is held before -> what wakes who waits
WAKERS: dict[str, tuple[bool, Any]] = {
    "a put": (False, lambda Task, _: Task.put(task())),
    "many puts": (False, lambda Task, _: Task.xq.put_many(tasks(300))),
    "a row that the application creates": (False, lambda Task, _: Task.create()),
    "a row of another program": (False, by_plain_sql),
    "a transaction that commits": (False, by_a_transaction),
    "a delay that passes": (False, lambda Task, _: Task.put(task(), delay=SOON)),
    "a delay that has passed when it is heard of": (
        False,
        lambda Task, _: Task.create(status="W", runat=time.time() - 1),
    ),
    "a release": (True, lambda Task, held: Task.release(held)),
    "a release with a delay": (True, lambda Task, held: Task.release(held, delay=SOON)),
    "a ttr that passes": (True, lambda Task, held: Task.update(runat=time.time() + SOON).execute()),
    "a dig": (True, lambda Task, held: Task.dig(Task.bury(held).id)),
    "a snatch": (True, lambda Task, held: Task.xq.snatch(held.id)),
    "a plain update": (True, lambda Task, held: Task.update(status="R").execute()),
    "the end of a session": (True, lambda Task, held: None),
}


@pytest.mark.parametrize("wake", WAKERS)
def test_a_take_wakes_by(shared, wake):
    is_held, wakes = WAKERS[wake]
    with shared.xq.session():
        held = bring(shared, "T") if is_held else None
        waits = waiter(shared, take(shared))
        wakes(shared, held)
    found = waits.result()
    assert (found.status, held is None or found.id == held.id) == ("T", True)


@pytest.mark.parametrize("wake", ["a row that the application creates", "a row of another program"])
def test_a_take_of_another_process_wakes_by(shared, wake):
    def waits():
        yield "begun"
        yield shared.take(timeout=PATIENCE).status

    with another_process(shared._meta.database, waits) as other:
        assert next(other) == "begun"
        other.post(None)
        WAKERS[wake][1](shared, None)
        assert other.hear() == "T"


def test_a_take_wakes_when_the_process_that_held_the_task_is_killed(shared):
    def holder():
        shared.put(task())
        shared.take()
        yield "begun"

    with another_process(shared._meta.database, holder) as other:
        next(other)
        waits = waiter(shared, take(shared))
        other.kill()
        assert waits.result().status == "T"


def test_a_task_is_not_taken_before_its_transaction_commits(shared):
    waits = waiter(shared, take(shared))
    with shared._meta.database.atomic() as transaction:
        shared.put(task())
        transaction.rollback()
        last = shared.put(task(name="last"))
        assert waits.goes_on
    assert waits.result() == last


def test_a_take_does_not_sleep_on_when_its_queue_is_reconfigured(shared):
    waits = waiter(shared, take(shared))
    shared.xq.reconfigure({**FEATURES, "keep": True})
    with pytest.raises(xq.NotInstalled):
        waits.result()


def test_what_other_queues_do_wakes_no_take(shared):
    Other = live(shared._meta.database)(model=live(shared._meta.database).model(table_name="other"))
    waits = waiter(shared, take(shared))
    for _ in range(20):
        Other.put(task())
        Other.take(timeout=PATIENCE).ack()
    assert waits.goes_on
    shared.put(task())
    assert waits.result() is not None


@pytest.mark.parametrize("n", [2, 7])
def test_many_puts_wake_as_many_waiters_as_there_are_tasks(shared, n):
    waits = waiters(shared, take(shared), 7)
    put = shared.xq.put_many(tasks(n))
    eventually(lambda: sum(not each.goes_on for each in waits) == n)
    assert state(shared, put[-1]) == "T"
    assert len(shared.xq.waiting()) == 7 - n
    rest = shared.xq.put_many(tasks(7 - n)) if n < 7 else []
    assert {each.result().id for each in waits} == {found.id for found in [*put, *rest]}


def test_waiters_for_tubes_and_for_any_get_each_its_own(shared):
    first, second = (waiter(shared, take(shared, tube=tube)) for tube in "ab")
    put = shared.put(task())
    assert waiter(shared, take(shared)).result() == put
    assert first.goes_on
    shared.xq.put_many([task(tube=tube) for tube in "aaab"])
    assert (first.result().tube, second.result().tube) == ("a", "b")


def test_a_waiter_for_a_tube_is_not_kept_from_its_task_by_others(shared):
    others = waiters(shared, take(shared, tube="b"), 3)
    mine = waiter(shared, take(shared, tube="a"))
    anything = waiter(shared, take(shared))
    put = shared.put(task(tube="a"))
    shared.put(task(tube="a"))
    assert {mine.result().tube, anything.result().tube} == {"a"}
    assert state(shared, put) == "T"
    assert all(each.goes_on for each in others)
    shared.xq.put_many(tasks(3, tube="b"))
    assert [each.result().tube for each in others] == ["b"] * 3


def test_every_task_goes_to_one_waiter_and_no_waiter_sleeps_on(shared):
    db, n = shared._meta.database, 250

    def consumer(found: list[str]) -> None:
        while (taken := shared.take(timeout=PATIENCE)).name != "the end":
            if random.random() < 0.3:
                taken.release(delay=0.001)
            else:
                found.append(taken.ack().name)

    def consumers():
        found: list[str] = []
        works = [Work(db, lambda: consumer(found)) for _ in range(4)]
        yield "begun"
        for work in works:
            work.result()
        yield found

    def producer():
        yield "begun"
        put = []
        for i in range(n):
            put.append(shared.put(task(name=f"{os.getpid()}-{i}")).name)  # keys are used again
            if i % 3 == 0:
                threading.Event().wait(random.expovariate(500))
        yield put

    with processes(db, consumers, consumers, producer, producer) as others:
        for other in others:
            next(other)
        for other in others:
            other.post(None)
        put = [name for other in others[2:] for name in other.hear()]
        eventually(lambda: shared.xq.count() == 0)
        shared.xq.put_many(tasks(8, name="the end"))
        taken = [name for other in others[:2] for name in other.hear()]
    assert sorted(taken) == sorted(put)
    assert len(set(put)) == 2 * n


# alone


@pytest.fixture
def alone(db):
    """A queue by the real clock, in memory too."""
    return live(db)({"delayed": True, "ttr": True, "ttl": True, "limit": 1})


def test_a_waiting_take_moves_what_falls_due(alone):
    put = alone.put(task(), delay=SOON)
    assert alone.take(timeout=PATIENCE, ttr=SOON).id == put.id
    with alone.xq.session():
        assert alone.take(timeout=PATIENCE).id == put.id


def test_a_waiting_put_moves_what_falls_due(alone):
    alone.put(task(name="first"), ttl=SOON)
    assert alone.put(task(name="second"), timeout=PATIENCE).status == "R"
    assert [found.name for found in alone.select()] == ["second"]


def test_a_waiting_take_finds_what_a_tick_of_the_clock_made_due(shared_db):
    clock = xq.testing.Clock()
    Task = Maker(shared_db, clock)({"delayed": True})
    put = Task.put(task(), delay=1000)
    waits = waiter(Task, take(Task))
    clock.tick(999)
    assert Task.take() is None
    assert waits.goes_on
    clock.tick(1)
    assert waits.result().id == put.id


def test_another_process_finds_room(full):
    def putter():
        yield "begun"
        yield full.put(task(name="late"), timeout=None).id

    with another_process(full._meta.database, putter) as other:
        assert next(other) == "begun"
        other.post(None)
        full.ack(taken(full).id)
        assert row(full, other.hear()).name == "late"


@pytest.mark.parametrize("by", ["a thread", "a process"])
def test_a_take_that_waits_in_a_session_raises_when_it_is_closed_by(shared, by):
    session = shared.xq.session()

    def close() -> Any:
        yield "begun"
        with shared.xq.session(session.uuid) as joined:
            joined.close()
        yield "closed"

    def waits() -> None:
        with session:
            shared.take(timeout=PATIENCE)

    with another_process(shared._meta.database, close) if by == "a process" else nullcontext(close()) as other:
        assert next(other) == "begun"
        waiting = waiter(shared, waits)
        if by == "a process":
            assert next(other) == "closed"
        else:
            session.close()
    with pytest.raises(xq.UnknownSession):
        waiting.result()
