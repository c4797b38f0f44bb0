"""SQLite's REPLACE, and triggers of the application's that end in their own table."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.conftest import Maker, live
from tests.factories import task

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


@pytest.fixture
def make(sqlite_db: pw.Database) -> Maker:
    return live(sqlite_db)


def test_a_trigger_made_beside_a_queue_in_use_updates_its_own_table(make):
    db, Task = make.db, make({"keep": True})
    Task.put(task())
    Task.take().ack()  # xq has set the connection up
    db.execute_sql("CREATE TABLE page (id INTEGER PRIMARY KEY, size INTEGER)")
    db.execute_sql("INSERT INTO page VALUES (1, 0)")
    db.execute_sql("CREATE TRIGGER grow AFTER UPDATE ON page BEGIN UPDATE page SET size = NEW.size + 1; END")
    db.execute_sql("UPDATE page SET size = 5")
    assert db.execute_sql("SELECT size FROM page").fetchone() == (6,)


def test_replace_counts_as_the_pragma_of_the_application_has_it(make):
    db, Task = make.db, make()
    put = Task.put(task())
    Task.replace(id=put.id, name="again", status="R").execute()
    assert [line.partition(" tasks")[0] for line in Task.xq.check()] == ["1"], "the deleted row is not counted"
    Task.xq.recount()
    assert Task.xq.check() == []
    db.execute_sql("PRAGMA recursive_triggers = 1")
    Task.replace(id=put.id, name="once more", status="R").execute()
    assert Task.xq.check() == []
    assert Task.take().name == "once more"


@pytest.mark.parametrize("sqlite_db", ["sqlite"], indirect=True)
def test_check_finds_the_history_well_on_a_new_connection(make):
    Task = make({"history": True})
    make.db.close()
    assert Task.xq.check() == []
