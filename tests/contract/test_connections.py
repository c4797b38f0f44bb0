"""Connections that the application pools, opens itself or shares, and those of xq's own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from contextvars import ContextVar
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import live
from tests.factories import task, tasks
from tests.steps import PATIENCE, another_process, eventually

# autoconnect=False


@pytest.mark.of_peewee("how Peewee keeps connections")
def test_a_call_on_a_closed_connection_raises_and_opens_none_and_a_worker_opens_that_of_its_thread(make_shared):
    db, Task = make_shared.db, make_shared({"keep": True, "ttr": 60})
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
        Task.xq.put_many(tasks(2))
        Task.xq.worker(lambda found: db.close())
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


def test_workers_that_share_a_connection_are_refused_but_for_one():
    with closing(pw.SqliteDatabase(":memory:", thread_safe=False, check_same_thread=False)) as db:
        Task = live(db)({"keep": True}, roles=("tube",), worker=lambda task: None)
        put = Task.put({})
        for several in ({"workers": 2}, {"workers": 1, "tubes": ["a", "b"]}):
            with pytest.raises(xq.ConfigurationError, match="2 threads of Task cannot work on one connection"):
                Task.xq.run(until_empty=True, **several)
        Task.xq.run(until_empty=True, workers=1)
        assert Task.xq.peek(put).status == "D"


class StateOfContext(pw._ConnectionState):
    """The state of connections as FastAPI's documentation has it: new threads get the default, which is one object."""

    values: ContextVar[dict[str, Any]] = ContextVar("values", default={})  # noqa: B039

    def __setattr__(self, name: str, value: Any) -> None:
        self.values.get()[name] = value

    def __getattr__(self, name: str) -> Any:
        return self.values.get()[name]


@pytest.mark.of_peewee("how Peewee keeps connections")
def test_a_state_of_connections_that_new_threads_share_is_refused_at_the_first_take_or_run(make_shared):
    Task = make_shared({"keep": True})
    db, own = make_shared.db, make_shared.db._state
    db.close()
    db._state = StateOfContext()
    Task.put(task())
    for call in (Task.take, lambda: Task.take(timeout=1), lambda: Task.xq.worker(print).run(until_empty=True)):
        with pytest.raises(xq.ConfigurationError, match="replaced database._state by a StateOfContext"):
            call()
    assert Task.xq.count("R") == 1
    db.close()
    db._state = own


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
    Task = live(db)({"ttr": 60})
    assert Task.put({}).take()
    assert Task.take(timeout=0.01) is None
    eventually(lambda: len(Seen.now_open) == 2)  # the maintenance thread's is the other
    db.close()
    return Task


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
