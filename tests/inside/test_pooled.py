"""Behind PgBouncer in transaction mode: no connection stays with a process, and sessions live by lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

import xq
from tests import servers
from tests.conftest import Maker, database_on, live
from tests.steps import PATIENCE, another_process, eventually, in_threads, is_exact, waiter
from xq.adapters.databases import session_connection

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


def test_tasks_are_put_taken_and_acked_by_many_threads(make):
    Task = make(FEATURES)

    def work() -> None:
        for _ in range(20):
            Task.put({})
            task = Task.take()
            if task is not None:
                task.ack()

    in_threads(make.db, *[work] * 8)
    assert Task.xq.count("D") == Task.xq.stats().transition["T-D"]
    assert {(row.source, row.target): row.event for row in Task.xq.history()} == {
        ("X", "R"): "put",
        ("R", "T"): "take",
        ("T", "D"): "ack",
    }
    assert is_exact(Task)


def test_who_waits_is_given_what_is_put(make):
    Task = make(FEATURES)
    waiting = waiter(Task, lambda: Task.take(timeout=PATIENCE))
    Task.put({}, delay=0.1)
    assert waiting.result().id == 1


def test_the_applications_transaction_is_one(make):
    Task = make(FEATURES)
    told = []
    Task.xq.on_change(lambda task, event, source, target: told.append((task.id, event)))
    with suppress(KeyError), make.db.atomic():
        Task.put({})
        raise KeyError
    with make.db.atomic():
        Task.put({})
        with suppress(KeyError), make.db.atomic():
            Task.put({})
            raise KeyError
        task = Task.take()
    task.ack()
    assert told == [(task.id, "put"), (task.id, "take"), (task.id, "ack")]
    assert Task.xq.stats().transition == {"X-R": 1, "R-T": 1, "T-D": 1}


def holds(Task: Any) -> Callable[[], Generator[Any, Any, None]]:
    def script() -> Generator[Any, Any, None]:
        task = Task.take()
        yield task.id
        try:
            yield task.ack().status
        except xq.Error as error:
            yield type(error).__name__

    return script


def test_a_live_process_keeps_its_tasks_beyond_the_lease_and_a_killed_one_until_it_ends(make):
    Task = make(FEATURES)
    Task.xq.put_many([{}] * 2)
    with another_process(make.db, holds(Task)) as lives, another_process(make.db, holds(Task)) as dies:
        assert {next(lives), next(dies)} == {1, 2}
        assert Task.take() is None  # so somebody looks
        dies.kill()
        eventually(lambda: Task.xq.count("R") == 1)
        until = time.monotonic() + LEASE + 1
        eventually(lambda: time.monotonic() > until)
        assert Task.xq.count("T") == 1
        assert next(lives) == "D"


def test_a_process_that_stood_still_for_longer_than_its_lease_is_told_that_its_tasks_are_lost(make):
    Task = make(FEATURES)
    Task.put({})
    with another_process(make.db, holds(Task)) as other:
        assert next(other) == 1
        assert Task.take() is None
        other.stop()
        eventually(lambda: Task.xq.count("R") == 1)
        other.go_on()
        assert next(other) == "SessionLost"
