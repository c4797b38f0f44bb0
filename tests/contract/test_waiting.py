"""Takes that wait for a task, and puts that wait for room."""

from __future__ import annotations

import math
import os
import random
import threading
import time
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
from tests.support import fallback
from tests.support import waiting as support
from tests.support.waiting import FEATURES, SOON, take, taken

no_fallback, shared, full = fallback.no_fallback, support.shared, support.full

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


# how long


def test_what_is_ready_is_taken_at_once_however_long_one_would_wait(make):
    Task = make()
    first, second, third = Task.xq.put_many(tasks(3))
    assert Task.take(timeout=None) == first
    assert Task.take(timeout=math.inf) == second
    assert Task.take(timeout=PATIENCE) == third


@pytest.mark.parametrize("timeout", [0, 0.0, 0.01, 0.2])
def test_nothing_is_taken_when_nothing_comes(make, timeout):
    Task = make()
    assert Task.take(timeout=timeout) is None
    assert Task.xq.take_many(5, timeout=timeout) == []
    assert Task.xq.waiting() == []


@pytest.mark.parametrize("timeout", [None, math.inf, PATIENCE])
def test_a_take_may_wait_for_ever(shared, timeout):
    waits = waiter(shared, lambda: shared.take(timeout=timeout))
    put = shared.put(task())
    assert waits.result() == put


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, xq.BadValue), (math.nan, xq.BadValue), (-math.inf, xq.BadValue), ("1", xq.BadType), (True, xq.BadType)],
)
def test_a_time_that_means_nothing_is_refused(make, timeout, error):
    Task = make({"limit": 5})
    put = Task.put(task())
    with pytest.raises(error, match="timeout"):
        Task.take(timeout=timeout)
    with pytest.raises(error, match="timeout"):
        Task.xq.take_many(2, timeout=timeout)
    with pytest.raises(error, match="timeout"):
        Task.put(task(), timeout=timeout)
    assert [found.id for found in Task.xq.by_state("R")] == [put.id]


def test_nobody_waits_within_a_transaction(make):
    Task = make({"limit": 5})
    with Task._meta.database.atomic():
        Task.put(task())
        for wait in (1, None, math.inf):
            with pytest.raises(xq.InTransaction, match="take"):
                Task.take(timeout=wait)
            with pytest.raises(xq.InTransaction, match="take"):
                Task.xq.take_many(1, timeout=wait)
            with pytest.raises(xq.InTransaction, match="put"):
                Task.put(task(), timeout=wait)
        assert Task.xq.count("R") == 1
        assert Task.take(timeout=0) is not None
        assert Task.take(timeout=0) is None
        assert Task.put(task(), timeout=0).status == "R"


def test_none_of_many_is_not_waited_for(make):
    assert make().xq.take_many(0, timeout=None) == []


# who wakes a take


def by_plain_sql(Task: Any) -> None:
    row = "INSERT INTO task (size, status, priority, attempts) VALUES (1, 'R', 0, 0)"
    another_program(Task._meta.database, row)


def by_a_transaction(Task: Any) -> None:
    with Task._meta.database.atomic():
        Task.put(task())
        Task.put(task())


WAKERS = {
    "a put": lambda Task: Task.put(task()),
    "many puts": lambda Task: Task.xq.put_many(tasks(300)),
    "a row that the application creates": lambda Task: Task.create(),
    "a row of another program": by_plain_sql,
    "a transaction that commits": by_a_transaction,
    "a delay that passes": lambda Task: Task.put(task(), delay=SOON),
    "a delay that has passed when it is heard of": lambda Task: Task.create(status="W", runat=time.time() - 1),
}


@pytest.mark.parametrize("wake", WAKERS)
def test_a_take_wakes_by(shared, wake):
    waits = waiter(shared, take(shared))
    WAKERS[wake](shared)
    assert waits.result().status == "T"


@pytest.mark.parametrize("wake", WAKERS)
def test_a_take_of_another_process_wakes_by(shared, wake):
    def waits():
        yield "begun"
        yield shared.take(timeout=PATIENCE).status

    with another_process(shared._meta.database, waits) as other:
        assert next(other) == "begun"
        other.post(None)
        WAKERS[wake](shared)
        assert other.hear() == "T"


BROUGHT_BACK = {
    "a release": lambda Task, held: Task.release(held),
    "a release with a delay": lambda Task, held: Task.release(held, delay=SOON),
    "a dig": lambda Task, held: Task.dig(Task.bury(held).id),
    "a snatch": lambda Task, held: Task.xq.snatch(held.id),
    "a plain update": lambda Task, held: Task.update(status="R").execute(),
    "the end of a session": lambda Task, held: None,
}


@pytest.mark.parametrize("wake", BROUGHT_BACK)
def test_a_take_wakes_when_a_task_comes_back_by(shared, wake):
    with shared.xq.session():
        held = bring(shared, "T")
        waits = waiter(shared, take(shared))
        BROUGHT_BACK[wake](shared, held)
    assert waits.result().id == held.id


def test_a_take_wakes_when_a_ttr_passes(shared):
    with shared.xq.session():
        shared.put(task())
        held = shared.take(ttr=SOON)
        assert waiter(shared, take(shared)).result().id == held.id


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


def test_take_many_returns_as_soon_as_there_is_one(shared):
    waits = waiter(shared, lambda: shared.xq.take_many(10, timeout=PATIENCE))
    put = shared.xq.put_many(tasks(3))
    assert waits.result() == put


@pytest.mark.parametrize("n", [2, 7])
def test_many_puts_wake_as_many_waiters_as_there_are_tasks(shared, n):
    waits = waiters(shared, take(shared), 7)
    put = shared.xq.put_many(tasks(n))
    eventually(lambda: sum(not each.goes_on for each in waits) == n)
    assert state(shared, put[-1]) == "T"
    assert len(shared.xq.waiting()) == 7 - n
    rest = shared.xq.put_many(tasks(7 - n)) if n < 7 else []
    assert {each.result().id for each in waits} == {found.id for found in [*put, *rest]}


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


def test_tasks_of_one_tube_leave_calls_for_the_others(shared):
    first = waiter(shared, take(shared, tube="a"))
    second = waiter(shared, take(shared, tube="b"))
    shared.xq.put_many([task(tube=tube) for tube in "aaab"])
    assert (first.result().tube, second.result().tube) == ("a", "b")


def test_a_task_of_no_tube_is_left_to_those_who_want_any(shared):
    mine = waiter(shared, take(shared, tube="a"))
    anything = waiter(shared, take(shared))
    put = shared.put(task())
    assert anything.result() == put
    assert mine.goes_on
    shared.put(task(tube="a"))
    assert mine.result().tube == "a"


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


def test_a_put_of_another_process_finds_room(full):
    def putter():
        yield "begun"
        yield full.put(task(name="late"), timeout=None).id

    with another_process(full._meta.database, putter) as other:
        assert next(other) == "begun"
        other.post(None)
        full.ack(taken(full).id)
        assert row(full, other.hear()).name == "late"


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_a_put_gives_up_when_no_room_comes(make, timeout):
    Task = make({"limit": 1})
    Task.put(task(), timeout=timeout)
    with pytest.raises(xq.Full) as full:
        Task.put(task(), timeout=timeout)
    assert full.value.limit == 1
    assert Task.xq.count() == 1


def test_a_put_waits_for_room_only_where_there_is_a_limit(make):
    Task = make()
    with pytest.raises((xq.FeatureOff, xq.BadType), match="timeout"):
        Task.put(task(), timeout=1)
    assert Task.xq.count() == 0


def test_a_put_waits_for_room_or_for_the_end(make):
    with pytest.raises(xq.BadValue, match="not for both"):
        make({"limit": 1}).put(task(), timeout=1, wait=1)
