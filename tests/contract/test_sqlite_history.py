"""The history in SQLite: what its triggers ask of a connection, and attached databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.factories import task
from tests.steps import bring
from tests.support import sqlite_history as support
from tests.support.history import ALL, last, transitions

db, shared_db = support.db, support.shared_db

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


def test_char_is_what_it_was_on_connections_of_xq(make):
    Task = make(ALL)
    Task.put(task())
    database = Task._meta.database
    values = [(72, 101, 108, 108, 111), (0, 65, 0x1F986, -1, 0x110000), (None, "66", 67.9, "x", 0x10FFFF)]
    for codes in values:
        with closing(sqlite3.connect(":memory:")) as other:
            plain = other.execute("SELECT char(?, ?, ?, ?, ?)", codes).fetchone()
        assert database.execute_sql("SELECT char(?, ?, ?, ?, ?)", codes).fetchone() == plain
    database.execute_sql("CREATE INDEX odd ON task (char(65, 66, 67, 68, size))")
    assert database.execute_sql("SELECT char(119, 114, 105, 116, 101)").fetchone() == ("write",)


def test_a_connection_that_trusts_no_schema_writes_all_the_same(make_shared):
    Task = make_shared(ALL)
    make_shared.db.close()
    make_shared.db.connect()
    make_shared.db.execute_sql("PRAGMA trusted_schema = 0")
    Task.put(task())
    assert transitions(Task) == ["X-R write"]
    (what,) = Task.xq.check()
    assert "trusted_schema" in what


def test_the_history_of_a_table_in_an_attached_database_stands_beside_it(make):
    make.db.attach(":memory:", "side")
    Task = make({"zombie": 5, "history": 10}, model=make.model(meta={"schema": "side"}))
    bring(Task, "Z")
    assert [row.event for row in Task.xq.History.select()] == ["put", "take", "ack"]
    Task.xq.reconfigure({"keep": True, "history": 10}, move={"Z": "D"})
    assert last(Task) == "Z-D reconfigure"
    Task.xq.clock.tick(11)
    Task.xq.sweep()
    assert transitions(Task) == []
    assert Task.xq.check() == []
    Task.xq.uninstall()
    assert not [name for name in make.db.get_tables("side") if "xq" in name]
