"""Takes that wait for a task, and puts that wait for room."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

import xq
from tests.conftest import live
from tests.factories import task, tasks
from tests.steps import PATIENCE, another_process, another_program, bring, eventually, state, waiter, waiters
from tests.support import wait as support
from tests.support.wait import FEATURES, SOON, take

no_fallback, shared = support.no_fallback, support.shared

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


def test_a_take_waits_no_longer_than_it_may(make):
    Task = make()
    first, second, third = Task.xq.put_many(tasks(3))
    assert [Task.take(timeout=timeout) for timeout in (None, math.inf, PATIENCE)] == [first, second, third]
    for timeout in (0, 0.01):
        assert Task.take(timeout=timeout) is None
        assert Task.xq.take_many(5, timeout=timeout) == []
    assert Task.xq.take_many(0, timeout=None) == []
    assert Task.xq.waiting() == []


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
    another_program(Task._meta.database, "INSERT INTO task (size, status, attempts) VALUES (1, 'R', 0)")


# whether a task is held before -> what wakes who waits
WAKERS: dict[str, tuple[bool, Any]] = {
    "a put": (False, lambda Task, _: Task.put(task())),
    "a row that the application creates": (False, lambda Task, _: Task.create()),
    "a row of another program": (False, by_plain_sql),
    "a delay that passes": (False, lambda Task, _: Task.put(task(), delay=SOON)),
    "a delay that has passed": (False, lambda Task, _: Task.create(status="W", runat=time.time() - 1)),
    "a release": (True, lambda Task, held: Task.release(held)),
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


def test_a_task_is_not_taken_before_its_transaction_commits(shared):
    waits = waiter(shared, take(shared))
    with shared._meta.database.atomic() as transaction:
        shared.put(task())
        transaction.rollback()
        last = shared.put(task(name="last"))
        assert waits.goes_on
    assert waits.result() == last


@pytest.mark.parametrize("n", [2, 7])
def test_many_puts_wake_as_many_waiters_as_there_are_tasks(shared, n):
    waits = waiters(shared, take(shared), 7)
    put = shared.xq.put_many(tasks(n))
    eventually(lambda: sum(not each.goes_on for each in waits) == n)
    assert len(shared.xq.waiting()) == 7 - n
    put += shared.xq.put_many(tasks(7 - n))
    assert {each.result().id for each in waits} == {each.id for each in put}


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


def test_who_waits_alone_moves_what_falls_due(db):
    Task = live(db)({"delayed": True, "ttr": True, "ttl": True, "limit": 1})
    put = Task.put(task(), delay=SOON)
    assert Task.take(timeout=PATIENCE, ttr=SOON).id == put.id
    with Task.xq.session():
        assert Task.take(timeout=PATIENCE).release(ttl=SOON).id == put.id
        assert Task.put(task(name="second"), timeout=PATIENCE).status == "R"
    assert [found.name for found in Task.select()] == ["second"]


@pytest.mark.parametrize("what", ["a take", "a wait"])
def test_who_waits_does_not_sleep_on_when_another_process_installs_other_features(shared, what):
    put = shared.put(task(tube="a"))
    wait = {"a take": take(shared, tube="b"), "a wait": lambda: shared.wait(put, timeout=PATIENCE)}[what]
    waits = waiter(shared, wait)
    live(shared._meta.database)({**FEATURES, "keep": True}, roles=("runat", "priority", "tube"))
    with pytest.raises(xq.NotInstalled):
        waits.result()


def test_a_take_that_waits_in_a_session_raises_when_another_process_closes_it(shared):
    def closes() -> Any:
        uuid = yield "begun"
        with shared.xq.session(uuid) as joined:
            joined.close()
        yield "closed"

    with another_process(shared._meta.database, closes) as other, shared.xq.session() as session:
        assert next(other) == "begun"

        def waits() -> None:
            with session:
                shared.take(timeout=PATIENCE)

        waiting = waiter(shared, waits)
        assert other.send(session.uuid) == "closed"
        with pytest.raises(xq.UnknownSession):
            waiting.result()
