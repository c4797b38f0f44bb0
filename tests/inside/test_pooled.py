"""Behind PgBouncer in transaction mode: no connection stays with a process, and sessions live by lease."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import pytest

import xq
from tests import servers
from tests.conftest import Maker, database_on, live
from tests.guarantees.test_locks import LOCKED, goes_on, locked
from tests.steps import PATIENCE, another_process, eventually, in_threads, is_exact, processes, waiter
from xq.sql import session_connection

FEATURES = {"keep": True, "delayed": True, "history": True}
LEASE = 7.0  # seconds, for the tests: longer than a busy machine keeps a process from renewing it


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Makes queues on a database behind a pooler."""
    if reason := servers.Postgres.missing() or servers.PgBouncer.missing():
        pytest.skip(reason)
    monkeypatch.setattr(session_connection, "LEASE", LEASE)
    monkeypatch.setattr(session_connection, "RENEWED", LEASE / 5)
    with (
        database_on(servers.Postgres) as (server, name),
        servers.PgBouncer(server, pool_mode="transaction", default_pool_size=4) as pooler,
        closing(pooler.peewee(name, prepare_threshold=None)) as db,
    ):
        yield live(db)


def test_tasks_are_put_waited_for_taken_and_acked_by_many_threads(make):
    Task = make(FEATURES)
    waiting = waiter(Task, lambda: Task.take(timeout=PATIENCE))
    Task.put({}, delay=0.1)
    assert waiting.result().ack().id == 1

    def work() -> None:
        for _ in range(20):
            Task.put({})
            task = Task.take()
            if task is not None:
                task.ack()

    in_threads(make.db, *[work] * 8)
    assert Task.xq.count("D") == Task.xq.stats().transition["T-D"]
    assert {row.event for row in Task.xq.history()} == {"put", "delay", "take", "ack"}
    assert is_exact(Task)


def test_a_process_keeps_its_tasks_beyond_the_lease_unless_it_is_killed_or_stands_still(make):
    Task = make(FEATURES)
    Task.xq.put_many([{}] * 3)

    def holds() -> Generator[Any, Any, None]:
        task = Task.take()
        yield task.id
        try:
            yield task.ack().status
        except xq.Error as error:
            yield type(error).__name__

    with processes(make.db, holds, holds) as (lives, dies), another_process(make.db, holds) as stands:
        assert {next(lives), next(dies), next(stands)} == {1, 2, 3}
        assert Task.take() is None  # so somebody looks
        dies.kill()
        stands.stop()
        eventually(lambda: Task.xq.count("R") == 2)
        until = time.monotonic() + LEASE + 1
        eventually(lambda: time.monotonic() > until)
        assert Task.xq.count("T") == 1
        stands.go_on()
        assert (next(lives), next(stands)) == ("D", "SessionLost")


def test_a_lock_on_the_table_of_one_queue_holds_up_no_other_one_of_its_program(make, caplog):
    Task, Other = (make(FEATURES, roles=("runat",), model=make.model(table_name=name)) for name in ("task", "other"))
    for queue in (Task, Other):
        queue.put({})
        assert queue.take().id == 1  # this program maintains both from now on
    with locked(make.db):
        goes_on(Other)
        until = time.monotonic() + LEASE + 1
        eventually(lambda: time.monotonic() > until)
        goes_on(Other)
    assert Task.xq.sessions() == Other.xq.sessions() != []  # the maintenance has renewed the lease meanwhile
    assert f"task {LOCKED}" in caplog.text
    eventually(lambda: Task.take() is None)  # it answers again
