"""xq closes what it opens: Python 3.13 warns of each connection to SQLite that is freed while it is open."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
from typing import Any

import peewee as pw

import xq
from tests.steps import eventually


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
from tests.contract.test_connections_closed import Seen, used
Task = used(sys.argv[1])
"""


def test_a_process_that_closed_its_connections_has_none_open_at_its_end(tmp_path):
    path = str(tmp_path / "app.db")
    ended = subprocess.run([sys.executable, "-c", PROCESS, path], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("0\n", "")
