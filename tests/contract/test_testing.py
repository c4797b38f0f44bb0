"""What xq offers to the tests of programs that use it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import state
from xq import testing

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

ROLES = ("runat", "attempts", "error")
ERROR = {"error": pw.TextField(null=True)}


@pytest.mark.of_peewee("the block binds Peewee's models")
def test_models_are_on_a_database_in_memory_for_the_block_and_back_on_their_own_after_it(make):
    Task = make({"delayed": True}, roles=("runat",))
    own = Task.put(task())
    with testing.memory(Task) as clock:
        assert Task.take() is None
        Task.put(task(), delay=60)
        assert Task.take() is None
        clock.tick(60)
        Task.take().ack()
        assert Task._meta.database.database == ":memory:"
    assert Task.take().id == own.id


def test_pending_tasks_are_worked_on_in_this_thread_with_the_retries_of_the_worker(make):
    Task, seen = make({"delayed": True, "buried": True}, roles=ROLES, attributes=ERROR), list[int]()
    put = Task.put(task())
    with testing.clock(Task) as clock:

        @Task.xq.worker(max_attempts=2, backoff=[60], kind="process", workers=4)
        def work(found: Any) -> None:
            seen.append(xq.current().attempt)
            raise ValueError("no price")

        assert testing.run_pending(work) == 1
        assert testing.run_pending(Task) == 0
        clock.tick(60)
        with pytest.raises(ValueError, match="no price"):
            testing.run_pending(work, raises=True)
        assert (state(Task, put), seen) == ("B", [1, 2])


def test_pending_tasks_of_an_async_def_and_of_batches_are_worked_on(make):
    Task, seen = make(), list[Any]()

    @Task.xq.worker
    async def one(found: Any) -> None:
        await asyncio.sleep(0)
        seen.append(found.id)

    Task.xq.put_many(tasks(2))
    assert testing.run_pending(one) == 2
    Task.xq.handlers.clear()

    @Task.xq.worker(batch=2)
    def several(batch: Any) -> None:
        seen.append(len(batch))

    Task.xq.put_many(tasks(3))
    assert testing.run_pending(several) == 2
    assert seen == [1, 2, 2, 1]
    assert Task.xq.stats().counts["R"] == 0


def test_pending_tasks_are_worked_on_in_the_transaction_of_the_test(make, db):
    Task = make()
    Task.xq.worker(lambda found: None)
    with db.atomic() as transaction:
        Task.put(task())
        assert testing.run_pending(Task) == 1
        transaction.rollback()
    assert Task.xq.stats().transition == {}


@pytest.mark.parametrize("way", ["memory", "clock", "run_pending"])
def test_declared_schedules_are_stored_and_a_sweep_fires_them(make, way):
    Task = make(schedules={"nightly": ("@daily", {"name": "report"})}, worker=lambda found: None)
    given = getattr(testing, way)(Task)
    with nullcontext(Task.xq.clock) if way == "run_pending" else given as clock:
        clock.tick(86_400)
        assert (Task.xq.sweep(), testing.run_pending(Task)) == (1, 1)


def test_what_was_put_is_asserted_by_its_fields(make):
    Task = make()
    Task.put(task(name="a"))
    Task.put(task(name="b"))
    (found,) = testing.assert_put(Task, {"name": "a"})
    assert found.name == "a"
    assert len(testing.assert_put(Task.xq, count=2)) == 2
    testing.assert_put(Task, {"name": "c"}, count=0)
    with pytest.raises(AssertionError, match="has 0 tasks with {'name': 'c'}, not 1"):
        testing.assert_put(Task, {"name": "c"})


def test_what_is_no_queue_and_has_no_worker_is_refused(make):
    with pytest.raises(xq.BadType):
        testing.run_pending(5)
    with (
        pytest.raises(xq.BadType, match="of Peewee, not 5: for Django use xq_clock, for SQLAlchemy"),
        testing.memory(5),
    ):
        pass
    with pytest.raises(xq.ConfigurationError, match="worker"):
        testing.run_pending(make())


def test_a_task_that_fails_and_is_ready_at_once_is_tried_once(make):
    Task, seen = make(), list[int]()

    @Task.xq.worker
    def work(found: Any) -> None:
        seen.append(found.id)
        if found.id == 1:
            raise ValueError("no")

    Task.xq.put_many(tasks(3))
    assert testing.run_pending(work) == 3
    assert testing.run_pending(work) == 1
    assert seen == [1, 2, 3, 1]
    assert state(Task, 1) == "R"
    assert Task.xq.count() == 1


STEPS = {"steps": True, "delayed": True, "buried": True, "keep": True}


def ships(Task: Any, seen: list[Any], is_async: bool) -> Any:
    """A worker that charges, sleeps for three days, waits for an approval, and ships: each once."""

    def did(what: str) -> str:
        seen.append(what)
        return what

    def ship(found: Any) -> None:
        xq.step("charge", did, "charged")
        xq.sleep("cool off", 3 * 86_400)
        try:
            seen.append(xq.wait_for("approved", timeout=60))
        except TimeoutError:
            seen.append("late")
        xq.step("ship", did, "shipped")

    async def aship(found: Any) -> None:
        await xq.step("charge", did, "charged")
        await xq.sleep("cool off", 3 * 86_400)
        try:
            seen.append(await xq.wait_for("approved", timeout=60))
        except TimeoutError:
            seen.append("late")
        await xq.step("ship", did, "shipped")

    return Task.xq.worker(aship if is_async else ship)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_the_clock_of_a_test_wakes_what_sleeps_and_pending_tasks_go_on_after_their_steps(make, db, within, is_async):
    Task, seen = make(STEPS, roles=("runat", "attempts")), list[Any]()
    ship = ships(Task, seen, is_async)
    with testing.clock(Task) as clock, db.atomic() if within else nullcontext() as transaction:
        signalled, late = (Task.put(task()) for _ in range(2))
        assert testing.run_pending(ship, raises=True) == 2
        assert (testing.run_pending(ship), seen) == (0, ["charged", "charged"])
        clock.tick(3 * 86_400)
        assert testing.run_pending(ship, raises=True) == 2
        assert Task.xq.signal(signalled.id, "approved", "yes")
        assert testing.run_pending(ship) == 1
        clock.tick(60)
        assert testing.run_pending(ship) == 1
        assert seen[2:] == ["yes", "shipped", "late", "shipped"]
        assert (state(Task, signalled), state(Task, late)) == ("D", "D")
        if transaction is not None:
            transaction.rollback()
    assert Task.xq.count("D") == (0 if within else 2)


@pytest.mark.of_peewee("the block binds Peewee's models")
def test_steps_are_recorded_in_a_database_in_memory(make):
    Task, seen = make(STEPS, roles=("runat",)), list[Any]()
    for is_async in (False, True):
        ship = ships(Task, seen, is_async)
        with testing.memory(Task) as clock:
            put = Task.put(task())
            assert Task.xq.signal(put.id, "approved", "yes")
            assert testing.run_pending(ship) == 1
            clock.tick(3 * 86_400)
            assert testing.run_pending(ship) == 1
        Task.xq.handlers.clear()
    assert seen == ["charged", "yes", "shipped"] * 2
