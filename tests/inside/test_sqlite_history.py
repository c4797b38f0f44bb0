"""The history in SQLite: what its triggers ask of a connection, and attached databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.factories import task
from tests.support import sqlite_history as support
from tests.support.history import ALL, told
from xq.adapters.databases.sqlite import dialect as sqlite

db, shared_db = support.db, support.shared_db

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


def test_what_a_new_connection_asks_does_not_begin_to_read(make_shared):
    Task = make_shared(ALL)
    make_shared.db.close()
    with make_shared.db.atomic():
        Task.xq.adapter.store.execute("SELECT 1")  # as the first thing on this connection
        with closing(sqlite3.connect(make_shared.db.database)) as other, other:
            other.execute("INSERT INTO task (status, size, attempts) VALUES ('R', 0, 0)")
        Task.put(task())
    assert told(Task) == ["X-R write", "X-R put"]


def test_an_interrupt_while_a_trigger_asks_for_the_event_is_an_interrupt(make, monkeypatch):
    Task = make({"history": True})

    def interrupted(told: object) -> int:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite, "_now_us", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Task.put(task())
    assert told(Task) == ["X-R put"], "it was over when the statement was"
