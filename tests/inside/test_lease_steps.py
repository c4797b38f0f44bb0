"""What the heartbeat, the expiry and the ack of a worker do, step by step, beside a transaction of its function."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import make_impatient, row, state, transitions
from xq.runtime.lease import Lease
from xq.runtime.workers.attempts import Attempts
from xq.runtime.workers.pool import Program

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
        self.leases = self.attempts.begin(Task.xq.take_many(n))
        for lease in self.leases:
            lease.start()

    @property
    def lease(self) -> Lease:
        return self.leases[0]

    def beat(self) -> None:
        """The heartbeat touches the tasks, as after a third of their ttr."""
        self.Task.xq.clock.tick(20)
        for lease in self.leases:
            lease.touch_at = 0.0
        self.attempts.heart._touch_due()


@contextmanager
def another_session(Task: Any) -> Iterator[Any]:
    """A connection that xq does not know, with an open transaction, which may write a row."""
    with closing(Task._meta.database._connect()) as connection:
        connection.isolation_level = None if hasattr(connection, "isolation_level") else 0
        connection.cursor().execute("BEGIN")
        yield connection
        connection.cursor().execute("COMMIT")


def write(connection: Any, sql: str) -> None:
    connection.cursor().execute(sql)


def test_a_transaction_that_has_the_row_for_longer_than_the_ttr_loses_no_task(make_shared, caplog):
    Task = make_shared(FEATURES)
    worker = Worker(Task)
    with another_session(Task) as session:
        write(session, f"UPDATE task SET name = 'at work' WHERE id = {worker.lease.task.id}")
        for _ in range(5):
            worker.beat()
        assert Task.xq.clock.now > row(Task, worker.lease.task.id).runat
    Task.xq.sweep()  # of another process, after the commit and before the ack
    assert state(Task, worker.lease.task.id) == "T"
    worker.attempts.ack(worker.leases)
    assert transitions(Task) == {"X-R": 1, "R-T": 1, "T-D": 1}
