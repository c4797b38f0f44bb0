"""Connections that the application pools, opens itself or shares, and those of xq's own."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any

import peewee as pw
import pytest
from playhouse import pool

import xq
from tests.conftest import SERVERS, database_on, live
from tests.factories import task
from tests.steps import PATIENCE, another_process, another_program, eventually

# pools


# Peewee's class, how the server lists the connections to this database but the one that asks, and the number of that.
POOLS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "postgres": (
        pool.PooledPostgresqlDatabase,
        {"prefer_psycopg3": True},
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'",
        "SELECT pg_backend_pid()",
    ),
    "mariadb": (
        pool.PooledMySQLDatabase,
        {"ssl_disabled": True},
        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
        "SELECT CONNECTION_ID()",
    ),
}


@pytest.mark.parametrize("kind", POOLS)
def test_to_close_all_connections_of_a_pool_closes_none_of_the_maintenance_thread(kind):
    pooled, options, listing, number = POOLS[kind]
    with database_on(SERVERS[kind]) as (server, name):
        db = pooled(name, host=server.host, port=server.port, user=server.USER, **options)
        looks = server.peewee(name)
        Task = live(db)({"keep": True, "delayed": True}, roles=("runat",))

        def connections() -> set[int]:
            return {found for (found,) in looks.execute_sql(listing).fetchall()}

        Task.put({})
        Task.take().ack()  # from here on there is a maintenance thread
        Task.put({}, delay=0.1)
        eventually(lambda: Task.xq.count("R"))  # which that thread has moved, so it is connected
        before, mine = connections(), db.execute_sql(number).fetchone()[0]
        assert len(before) == 3  # this thread's, the maintenance thread's, and the one that proves that it lives
        db.close_all()
        eventually(lambda: mine not in connections())
        assert connections() == before - {mine}
        assert Task.take().ack().status == "D"
        db.close_all()
        looks.close()


# autoconnect=False


def test_a_call_on_a_closed_connection_raises_and_opens_none(make_shared):
    db, Task = make_shared.db, make_shared({"ttr": 60})
    put = Task.put(task())
    db.close()
    db.autoconnect = False
    calls = {
        "take": Task.take,
        "take(timeout)": lambda: Task.take(timeout=PATIENCE),
        "put": lambda: Task.put(task()),
        "wait": lambda: Task.wait(put.id, timeout=PATIENCE),
        "stats": Task.stats,
        "install": Task.xq.install,
        "check": Task.xq.check,
    }
    for name, call in calls.items():
        with pytest.raises(pw.InterfaceError, match="autoconnect=False"):
            call()
        assert db.is_closed(), name
    with db.connection_context():
        assert Task.take().id == put.id
        db.connection().close()  # as when a server cuts it: the application has not closed it
        assert Task.xq.count("T") == 1
        assert Task.xq.check() == []


def test_a_worker_opens_the_connection_of_its_thread(make_shared):
    db, Task = make_shared.db, make_shared({"keep": True})
    Task.xq.put_many([task(), task()])

    @Task.xq.worker
    def work(found: Any) -> None:
        db.close()

    db.close()
    db.autoconnect = False
    with db.connection_context():
        Task.xq.run(until_empty=True)
        assert Task.xq.count("D") == 2


def test_a_process_that_ends_gives_its_tasks_back(make_live):
    db, Task = make_live.db, make_live({"history": True})
    db.autoconnect = False
    with db.connection_context():
        put = Task.put(task())

    def child() -> Generator[int, Any, None]:
        with db.connection_context():
            taken = Task.take().id
        yield taken

    with another_process(db, child) as other:
        assert next(other) == put.id
    with db.connection_context():
        assert [row.event for row in Task.xq.history(put.id)] == ["put", "take", "release"]


# thread_safe=False


def test_where_threads_share_a_connection_one_waits_and_others_are_refused(tmp_path):
    shared: dict[str, Any] = {"thread_safe": False, "check_same_thread": False, "timeout": 20}
    with closing(pw.SqliteDatabase(str(tmp_path / "app.db"), **shared)) as db:
        Task = live(db)({"keep": True, "limit": 2}, roles=("runat",))
        Other = live(db)({"keep": True}, model=live(db).model(table_name="other"), roles=("runat",))
        # Python's sqlite3 may hang where two threads use one connection at once: what the main thread calls while the
        # other waits is to run no SQL, and so it opens the other queue before.
        assert Other.xq.count() == 0
        waits = threading.Event()
        Task.xq.adapter.waiting.woken = waits.set
        taken: list[Any] = []
        thread = threading.Thread(target=lambda: taken.append(Task.take(timeout=PATIENCE)))
        thread.start()
        assert waits.wait(PATIENCE)
        refused = [
            lambda: Task.take(timeout=1),
            lambda: Other.take(timeout=1),
            lambda: Task.put({}, timeout=1),
            lambda: Task.put({}, wait=1),
            lambda: Task.xq.wait(1, timeout=1),
        ]
        for wait in refused:
            with pytest.raises(xq.ConfigurationError, match="thread_safe=False"):
                wait()
        another_program(db, "INSERT INTO task (size, status, attempts) VALUES (0, 'R', 0)")
        thread.join(PATIENCE)
        assert taken[0].ack().status == "D"
        assert Task.take(timeout=0.01) is None  # nobody else waits any more


def test_workers_that_share_a_connection_are_refused_but_for_one():
    with closing(pw.SqliteDatabase(":memory:", thread_safe=False, check_same_thread=False)) as db:
        Task = live(db)({"keep": True}, roles=("tube",), worker=lambda task: None)
        put = Task.put({})
        for several in ({"workers": 2}, {"workers": 1, "tubes": ["a", "b"]}):
            with pytest.raises(xq.ConfigurationError, match="2 threads of Task cannot work on one connection"):
                Task.xq.run(until_empty=True, **several)
        Task.xq.run(until_empty=True, workers=1)
        assert Task.xq.peek(put).status == "D"


# xq closes what it opens: Python 3.13 warns of each connection to SQLite that is freed while it is open


class Seen(sqlite3.Connection):
    """A connection that is in the list while it is open."""

    now_open: list[Seen] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.now_open.append(self)

    def close(self) -> None:
        super().close()
        self.now_open.remove(self)


def used(path: str) -> Any:
    """A queue that the maintenance thread has looked after, with a taken task. This thread's connection is closed."""
    db = pw.SqliteDatabase(path, timeout=20, factory=Seen)
    fields = {"status": pw.CharField(default="R"), "runat": pw.DoubleField(null=True), "owner": pw.TextField(null=True)}
    Task: Any = type("Task", (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": db})})
    xq.upgrade(Task, {name: name for name in fields}, {"ttr": 60})
    db.create_tables([Task])
    Task.put({})
    assert Task.take()
    assert Task.take(timeout=0.01) is None
    eventually(lambda: len(Seen.now_open) == 2)  # the maintenance thread's is the other
    db.close()
    return Task


def test_the_maintenance_thread_closes_its_connection_when_the_database_object_is_freed(tmp_path):
    def all_closed() -> bool:
        gc.collect()
        return not Seen.now_open

    used(str(tmp_path / "app.db"))
    eventually(all_closed)  # the thread itself has the database object while it works


PROCESS = """
import atexit, sys
atexit.register(lambda: print(len(Seen.now_open)))  # registered before that of xq, so it is called after it
from tests.contract.test_connections import Seen, used
Task = used(sys.argv[1])
"""


def test_a_process_that_closed_its_connections_has_none_open_at_its_end(tmp_path):
    path = str(tmp_path / "app.db")
    ended = subprocess.run([sys.executable, "-c", PROCESS, path], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("0\n", "")
