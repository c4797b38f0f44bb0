"""The history in SQLite: what its triggers ask of a connection, and attached databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.factories import task
from tests.support import sqlite_history as support
from tests.support.history import ALL, transitions

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
    assert transitions(Task) == ["X-R write", "X-R put"]


def test_printf_is_what_it_was_on_connections_of_xq(make):
    Task = make(ALL)
    Task.put(task())
    database = Task._meta.database
    for value in ["plain", "100%%", "%d %s", "", 66, 67.5, -1, None, b"bytes", "write", "owner", "clock", "xq"]:
        with closing(sqlite3.connect(":memory:")) as other:
            plain = other.execute("SELECT COALESCE(NULLIF(printf(?), 'owner'), 'clock')", (value,)).fetchone()
        mine = database.execute_sql("SELECT COALESCE(NULLIF(printf(?), 'owner'), 'clock')", (value,)).fetchone()
        assert mine == plain
    database.execute_sql("CREATE INDEX odd ON task (printf(size))")


def test_a_call_within_a_statement_of_another_leaves_that_its_event(make):
    Task, Other = make(ALL), make({"history": True}, model=make.model(table_name="other"))
    Task.put(task())
    Other.put(task())
    connection = Task._meta.database.connection()
    connection.create_function("puts_another", 0, lambda: Other.put(task()).id)
    # SQLite fires the trigger that was made last first.
    connection.execute("CREATE TRIGGER app AFTER UPDATE ON task BEGIN SELECT puts_another(); END")
    Task.take()
    assert transitions(Task) == ["X-R put", "R-T take"]
    assert transitions(Other) == ["X-R put", "X-R put"]
    Task._meta.database.execute_sql("UPDATE other SET status = 'T'")
    assert transitions(Other)[2:] == ["R-T write", "R-T write"]


def test_queues_on_a_connection_that_is_set_up_twice_share_their_events(make):
    Task = make(ALL)
    with Task._meta.database.atomic():
        Other = make({"history": True}, model=make.model(table_name="other"))
        Other.put(task())
    for _ in range(2):  # the first is after the transaction in which the connection was set up
        Task.put(task())
        Other.put(task())
    assert {*transitions(Task), *transitions(Other)} == {"X-R put"}
