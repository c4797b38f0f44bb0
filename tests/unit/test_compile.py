"""The SQL of a few queues, statement by statement, as the files in tests/golden say."""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from itertools import product
from typing import Any

import peewee as pw
import pytest

from tests.golden.regenerate import DATABASES, FOLDER, GOLDEN, QUEUES, dialect, entries, laid_out, path, render
from xq.adapters.databases.named import by_position
from xq.core.compile import After, Given, Own, Selector, Statements, change


@pytest.mark.parametrize("database", DATABASES, ids=lambda name: name or "sqlite")
@pytest.mark.parametrize("name", GOLDEN)
def test_the_sql_is_what_the_golden_file_says(name, database):
    there = path(name, database)
    written = there.read_text(encoding="utf-8") if there.exists() else ""
    now = render(name, database)
    if now != written:
        lines = difflib.unified_diff(written.splitlines(), now.splitlines(), str(there), "now", lineterm="", n=4)
        pytest.fail(
            "\n".join([*lines, "", "If this is meant: python tests/golden/regenerate.py, and read the diff"]),
            pytrace=False,
        )


def test_every_golden_file_belongs_to_a_queue():
    assert set(FOLDER.rglob("*.sql")) == {path(name, database) for name in GOLDEN for database in DATABASES}


@pytest.mark.parametrize("name", QUEUES)
def test_the_database_understands_every_statement(name):
    with closing(pw.SqliteDatabase(":memory:")) as db:
        queue = QUEUES[name](db)
        db.create_tables([queue.model])
        db.execute_sql(dialect(queue).savepoints)
        for entry in entries(queue):
            if entry.title.startswith("install: the trigger") and entry.sql.startswith("CREATE"):
                continue  # understood when the table was made, and refused now that it is there
            for sql in entry.texts:
                db.connection().execute(f"EXPLAIN {sql}", defaultdict(lambda: None))


@pytest.mark.parametrize("database", DATABASES, ids=lambda name: name or "sqlite")
@pytest.mark.parametrize("name", QUEUES)
def test_a_status_stands_in_the_sql_and_never_comes_as_a_value(name, database):
    # A planner that does not see it cannot use a partial index.
    queue = QUEUES[name](DATABASES[database]())
    for entry in entries(queue):
        if entry.source:
            of_table = f"{dialect(queue).table}."
            assert entry.status.replace(of_table, "") in (entry.first or entry.sql).replace(of_table, "")
        assert not re.search(r":status\b", entry.sql)


def test_laying_out_changes_white_space_only():
    for name, database in product(QUEUES, DATABASES):
        for entry in entries(QUEUES[name](DATABASES[database]())):
            assert "".join(laid_out(entry.sql).split()) == "".join(entry.sql.split())


class Recorded(sqlite3.Connection):
    """A connection that remembers what it was asked."""

    asked: list[str]

    def cursor(self, *args: Any) -> Any:
        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, *values: Any) -> Any:
                Recorded.asked.append(sql)
                return super().execute(sql, *values)

        return super().cursor(Cursor)


def test_what_a_queue_runs_is_what_the_golden_file_has():
    Recorded.asked = []
    db = pw.SqliteDatabase(":memory:", factory=Recorded)
    Page = QUEUES["readme"](db).model
    db.create_tables([Page])
    written = [sql for entry in entries(Page.xq) for sql in entry.texts]
    known = {by_position(sql, "?")[0] for sql in written}
    Recorded.asked = []
    page = {"url": "a", "title": None}
    Page.xq.put_many([page] * 2)
    Page.put(page, delay=5)
    Page.xq.clock.tick(5)
    Page.take().ack()
    Page.take(ttr=5).release()
    Page.xq.release_many([task.id for task in Page.xq.take_many(2)])
    Page.xq.bury_many(Page.xq.take_many(3))
    Page.plow(1)
    task = Page.take().touch(5)
    Page.release(task.id, delay=1)
    Page.xq.switch(task, "D")
    Page.xq.restart(task, delay=5)
    Page.take()
    with Page.xq.session():
        Page.take()
    Page.xq.release_all()
    Page.xq.count()
    Page.xq.by_state("B")
    Page.xq.taken()
    Page.xq.recount()
    Page.kill(task)
    Page.xq.truncate()
    db.close()
    asked = {
        sql
        for sql in Recorded.asked
        if not re.match(
            "BEGIN|COMMIT|SAVEPOINT|RELEASE|PRAGMA|SELECT name, type|SELECT name.* FROM pragma",
            sql,
        )
    }
    assert len(asked) > 20
    assert asked - known == set()


# what a row writes follows from the state that it enters


def written(name: str, event: str, source: str, given: tuple[str, ...] = ()) -> Any:
    machine = QUEUES[name](pw.SqliteDatabase(":memory:")).machine
    return change(machine, machine.choose(source, event, given), frozenset(given)).roles


def test_a_road_to_a_state_writes_what_any_other_road_to_it_writes():
    machine = QUEUES["tubes"](pw.SqliteDatabase(":memory:")).machine
    for target in machine.states:
        # all but put: what is yet to be put has no seconds of its own
        roads = [row for row in machine.rows if row.target == target and row.enters and row.source != "X"]
        least = [change(machine, row, frozenset(filter(None, [row.given]))).roles for row in roads]
        assert all(roles == least[0] for roles in least), target


def test_a_buried_task_has_no_timer_and_no_owner_left():
    assert written("tubes", "bury", "T") == {"status": "B", "runat": None, "owner": None}


def test_a_given_time_comes_before_the_tasks_own_and_that_before_the_default():
    assert written("tubes", "take", "R", ("ttr",))["runat"] == After(("now",), (Given("ttr"),))
    assert written("tubes", "take", "R")["runat"] == After(("now",), (Own("ttr", 60.0),))
    assert written("readme", "take", "R")["runat"] == After(("now",), (Own("", 60.0),))


def test_touch_prolongs_and_enters_nothing():
    assert written("moments", "touch", "T", ("increment",)) == {
        "deadline": After(("deadline",), (Given("increment"),)),
        "runat": After(("runat", "now"), (Given("increment"),)),
    }


def test_a_deadline_starts_with_the_task_and_runs_on():
    assert written("moments", "put", "X")["deadline"] == After(("now",), (Own("", 300.0),))
    assert written("moments", "put", "X", ("delay", "ttl"))["deadline"] == After(
        ("now",), (Given("delay"), Given("ttl"))
    )
    assert "deadline" not in written("moments", "take", "R")
    assert "deadline" not in written("moments", "release", "T")
    assert written("moments", "release", "T", ("delay",))["deadline"] == After(("deadline",), (Given("delay"),))


def test_a_step_is_compiled_once():
    queue = QUEUES["readme"](pw.SqliteDatabase(":memory:"))
    binding, steps = queue._database.bind(), queue._steps
    row = queue.machine.choose("T", "ack", ())
    first = steps.move(binding, "ack", Selector("key", "T", "take"), row)
    assert steps.move(binding, "ack", Selector("key", "T", "take"), row) is first
    assert steps.move(binding, "ack", Selector("key", "T", "session"), row) is not first
    updated = steps.move(binding, "ack", Selector("key", "T", "take"), row, update=("url",))
    assert updated.statement.sql != first.statement.sql


def test_events_that_write_the_same_have_the_same_statement():
    queue = QUEUES["words"](pw.SqliteDatabase(":memory:"))
    statements = Statements(queue.machine, dialect(queue))
    release, snatch = (queue.machine.choose("T", event, ()) for event in ("release", "snatch"))
    assert statements.move(Selector("key", "T"), release) == statements.move(Selector("key", "T"), snatch)
