"""Behind PgBouncer in transaction mode: no connection stays with a process, and sessions live by lease."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests import servers
from tests.conformance.steps import PATIENCE, another_process, eventually, in_threads, is_exact, waiter
from tests.conftest import Maker, chosen, database_on
from xq.adapters.databases import links

FEATURES = {"keep": True, "delayed": True, "history": True}
LEASE = 1.0  # seconds, for the tests
SETTINGS = """
[databases]
* = host={server.host} port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
max_client_conn = 200
default_pool_size = 4
unix_socket_dir =
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextmanager
def pooler(server: servers.Server, folder: Path) -> Iterator[int]:
    """PgBouncer in front of a server; its port."""
    port = servers._free_port("127.0.0.1")
    (folder / "users").write_text('"xq" ""\n')
    (folder / "settings").write_text(SETTINGS.format(server=server, port=port, folder=folder))
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    process = subprocess.Popen([str(program), "-q", folder / "settings"], cwd=folder, **servers._as_nobody())
    try:
        db = server.peewee("postgres", port=port)
        eventually(lambda: answers(db))
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answers(db: pw.Database) -> bool:
    try:
        with db.connection_context():
            return True
    except pw.OperationalError:
        return False


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Makes queues on a database behind a pooler."""
    if not chosen(["postgres"]) or servers.Postgres.missing():
        pytest.skip(servers.Postgres.missing() or "PostgreSQL is not chosen")
    if not shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("there is no pgbouncer here: install it (Debian: apt install pgbouncer)")
    monkeypatch.setattr(links, "LEASE", LEASE)
    monkeypatch.setattr(links, "RENEWED", LEASE / 5)
    with servers.folder() as folder, database_on(servers.Postgres) as (server, name), pooler(server, folder) as port:
        db = server.peewee(name, port=port, prepare_threshold=None)
        try:
            yield Maker(db, None)
        finally:
            db.close()


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
    assert {(told.source, told.target): told.event for told in Task.xq.history()} == {
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


def test_who_waits_for_the_end_of_a_task_hears_of_it(make):
    Task = make(FEATURES)
    Task.put({})
    waiting = waiter(Task, lambda: Task.wait(1, PATIENCE))
    assert Task.take().ack().id == 1
    assert waiting.result()[1]


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


def test_what_transactions_change_is_told_of_whichever_connection_is_there_after_the_commit(make):
    Task = make(FEATURES)
    told = []
    Task.xq.on_change(lambda task, event, source, target: told.append((task.id, event)))

    def work() -> None:
        for _ in range(20):
            with make.db.atomic():
                Task.put({})
                with suppress(KeyError), make.db.atomic():
                    Task.put({})
                    raise KeyError

    in_threads(make.db, *[work] * 4)
    assert sorted(told) == [(task.id, "put") for task in Task.select().order_by(Task.id)]


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
        until = time.monotonic() + 2 * LEASE
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
