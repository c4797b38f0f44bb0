"""What the heartbeat, the expiry and the ack of a worker do, step by step, beside a transaction of its function."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SERVERS
from tests.factories import task
from tests.steps import make_impatient, row, state, transitions
from xq.workers.attempt import WorkerJob
from xq.workers.attempts import Attempts
from xq.workers.pool import Program

FEATURES = {"ttr": 60, "keep": True, "buried": True, "delayed": True}


class Worker:
    """A worker whose function is a block of the test. It has taken one task."""

    def __init__(self, Task: Any, n: int = 1) -> None:
        self.Task = Task
        if isinstance(Task._meta.database, pw.SqliteDatabase):
            make_impatient(Task._meta.database, 0)
        Task.xq.worker(lambda task: None)
        Task.xq.put_many([task() for _ in range(n)])
        self.attempts: Attempts[Any] = Attempts(Task.xq.handlers[None], Program().stop)
        self.attempts.heart._wakes_at = -math.inf  # no thread beats beside the test
        self.leases = self.attempts.begin(Task.xq.take_many(n))
        for lease in self.leases:
            lease.start()

    @property
    def lease(self) -> WorkerJob:
        return self.leases[0]

    def beat(self) -> None:
        """The heartbeat touches the tasks, as after a third of their ttr."""
        self.Task.xq.clock.tick(20)
        for lease in self.leases:
            lease.touch_at = 0.0
        self.attempts.heart._touch_due()


@contextmanager
def another_session(Task: Any, end: str = "COMMIT") -> Iterator[Any]:
    """A cursor of a connection that xq does not know, in a transaction."""
    with closing(Task._meta.database._connect()) as connection:
        connection.isolation_level = None  # of SQLite
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        yield cursor
        cursor.execute(end)


def test_a_transaction_that_has_the_row_for_longer_than_the_ttr_loses_no_task(make_shared, caplog):
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    worker = Worker(Task)
    with another_session(Task) as session:
        session.execute(f"UPDATE task SET name = 'at work' WHERE id = {worker.lease.task.id}")
        for _ in range(5):
            worker.beat()
        assert Task.xq.clock.now > row(Task, worker.lease.task.id).runat
    Task.xq.sweep()  # of another process, after the commit and before the ack
    assert state(Task, worker.lease.task.id) == "T"
    worker.attempts.ack(worker.leases)
    assert transitions(Task) == {"X-R": 1, "R-T": 1, "T-D": 1}


def finished_by_sql(Task: Any, lease: WorkerJob, status: str) -> str:
    """An UPDATE that finishes the task of a lease in another session, and proves it by the token of its take."""
    token = row(Task, lease.task.id).owner
    return (
        f"UPDATE task SET status = '{status}', runat = NULL, owner = '-{token}' "
        f"WHERE id = {lease.task.id} AND status = 'T' AND owner = '{token}'"
    )


@pytest.mark.parametrize(("status", "told"), [("D", "is done"), ("B", "failed for good"), ("R", "is released")])
def test_a_task_that_its_function_finishes_by_another_connection_is_not_lost(make_shared, caplog, status, told):
    caplog.set_level(logging.INFO)
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    worker = Worker(Task)
    with another_session(Task) as session:
        session.execute(finished_by_sql(Task, worker.lease, status))
    worker.beat()
    if status == "R":
        assert Task.take(), "another take has it"
    worker.beat()
    assert not worker.lease.lost.is_set()
    worker.attempts.ack(worker.leases)
    assert told in caplog.messages[-1]
    assert {each.levelno for each in caplog.records} == {logging.ERROR if status == "B" else logging.INFO}


@pytest.mark.parametrize("beats", [True, False])
def test_a_task_that_another_takes_away_is_lost_with_a_warning(make_shared, caplog, beats):
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    worker = Worker(Task)
    Task.xq.snatch(worker.lease.task.id)
    if beats:
        worker.beat()
    assert worker.lease.lost.is_set() is beats
    worker.attempts.ack(worker.leases)
    assert state(Task, worker.lease.task.id) == "R"
    (told,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert "its task is lost" in told


def test_the_ack_of_a_process_that_stood_still_for_longer_than_the_ttr_is_lost_where_another_has_done_the_task(
    make_shared, caplog
):
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    worker = Worker(Task)
    Task.xq.clock.tick(61)
    Task.take().ack()  # by another worker
    worker.lease.touched_at -= 61
    worker.attempts.ack(worker.leases)
    (told,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert "its task is lost" in told
    assert transitions(Task) == {"X-R": 1, "R-T": 2, "T-R": 1, "T-D": 1}


@pytest.mark.parametrize("ends", [False, True], ids=["", "the program ends"])
@pytest.mark.parametrize("shared_db", list(SERVERS), indirect=True)
def test_an_ack_whose_row_is_locked_lets_the_others_pass_and_says_who_has_it(make_shared, caplog, monkeypatch, ends):
    monkeypatch.setattr("xq.engine.named.WARNED", 0.0)
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    worker = Worker(Task, 3)
    if ends:
        worker.attempts.calls.stop.set()
    with another_session(Task) as session:
        session.execute(f"UPDATE task SET name = 'at work' WHERE id = {worker.lease.task.id}")
        unacked, _ = worker.attempts.ack_and_take(worker.leases)
        assert [worker.attempts.end(lease) for lease in unacked] == [False, True, True]
        assert [state(Task, lease.task.id) for lease in worker.leases] == ["T", "D", "D"]
    assert worker.attempts.end(worker.lease)
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-D": 3}
    assert any("ack of task 1 waits: another transaction has had its row" in told for told in caplog.messages)


@pytest.mark.parametrize("shared_db", list(SERVERS), indirect=True)
def test_a_program_that_ends_leaves_a_task_whose_row_is_locked_and_warns_of_it_once(make_shared, caplog):
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    worker = Worker(Task, 3)
    with another_session(Task) as session:
        session.execute("UPDATE task SET name = 'at work' WHERE id IN (1, 2)")
        worker.attempts.calls.stop.set()
        worker.attempts.release_all()
    (told,) = [each.message for each in caplog.records if "released task" not in each.message and each.levelno >= 30]
    assert "the program ends while the database fails" in told
    assert [state(Task, lease.task.id) for lease in worker.leases] == ["T", "T", "R"]


def test_the_ack_of_a_cancelled_coroutine_is_not_applied_when_its_transaction_is_rolled_back(make_shared):
    Task = make_shared(FEATURES, roles=("runat", "owner"))
    tasks = [lease.task for lease in Worker(Task, 3).leases]

    async def work() -> None:
        with another_session(Task, "ROLLBACK") as session:
            session.execute(f"UPDATE task SET name = 'at work' WHERE id = {tasks[0].id}")
            acks = [asyncio.ensure_future(Task.xq.aio.ack(task)) for task in tasks]
            await asyncio.wait(acks if "sqlite" in Task.xq.parts.store.engine else acks[1:])
            acks[0].cancel()
            await asyncio.wait(acks)

    asyncio.run(work())
    assert state(Task, tasks[0].id) == "T"
