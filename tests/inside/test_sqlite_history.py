"""The history in SQLite: its rows are the counters until they are added up, and its triggers ask the connection."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.support.history import ALL, transitions
from xq.adapters.databases.sqlite import objects

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

ROLES = ("runat", "tube")


@pytest.fixture
def db(sqlite_db):
    return sqlite_db


MARKED = "SELECT n FROM task_xq_count WHERE target = ''"


def numbers(Task: Any) -> Any:
    """The counts, and the transitions that are not zero; in all and by tube."""
    found = Task.stats()
    each = {"": found, **found.tube}
    return {name: (of.counts, {move: n for move, n in of.transition.items() if n}) for name, of in each.items()}


def written(rnd: random.Random) -> tuple[str, list[Any]]:
    """A statement of another program, for the table {t}."""
    key, status, tube = rnd.randint(1, 30), rnd.choice(["R", "T", "B", "draft"]), rnd.choice(["a", "b", "c", None])
    found: list[tuple[str, list[Any]]] = [
        ("INSERT OR IGNORE INTO {t} (id, status, tube, size) VALUES (?, ?, ?, 0)", [key, status, tube]),
        ("INSERT OR IGNORE INTO {t} (status, tube, size) VALUES (?, ?, 0)", [status, tube]),
        ("UPDATE {t} SET status = ? WHERE id % 5 = ?", [status, key % 5]),
        ("UPDATE {t} SET tube = ? WHERE id % 5 = ?", [tube, key % 5]),
        ("UPDATE OR IGNORE {t} SET id = ? WHERE id = ?", [rnd.randint(1, 30), key]),
        ("UPDATE OR IGNORE {t} SET id = ?, tube = ?, status = ? WHERE id = ?", [key + 1, tube, status, key]),
        ("DELETE FROM {t} WHERE id % 7 = ?", [key % 7]),
    ]
    return rnd.choice(found)


PRUNED = [
    "DELETE FROM task_xq_history WHERE id % 2 = 0",
    "DELETE FROM task_xq_history WHERE id > (SELECT MAX(id) FROM task_xq_history) - 3",
    "DELETE FROM task_xq_history",
]


@pytest.mark.parametrize("seed", range(2))
def test_the_history_counts_what_any_program_writes_as_counters_do(make, monkeypatch, seed):
    monkeypatch.setattr(objects, "ADD_UP", 3)
    rnd = random.Random(seed)
    Task = make({"buried": True, "history": True}, roles=ROLES, tube_stats=["a", "b"])
    Other = make({"buried": True}, model=make.model(table_name="other"), roles=ROLES, tube_stats=["a", "b"])
    make.db.pragma("recursive_triggers", seed % 2)
    for _ in range(60):
        with make.db.atomic() as transaction:
            for _ in range(rnd.randint(1, 8)):
                sql, values = written(rnd)
                for table in ("task", "other"):
                    make.db.execute_sql(sql.replace("{t}", table), values)
                if rnd.random() < 0.2:
                    make.db.execute_sql(rnd.choice(PRUNED))
            if rnd.random() < 0.3:
                transaction.rollback()
        if rnd.random() < 0.1:
            Task.xq.reset()
            Other.xq.reset()
        assert numbers(Task) == numbers(Other)
    assert Task.xq.check() == []


def test_of_a_long_history_few_rows_are_read(make):
    Task = make({"history": True})
    for _ in range(5):
        Task.xq.put_many(tasks(700))
    ((marked,),) = make.db.execute_sql(MARKED)
    assert marked == 3_000
    assert Task.stats().transition == {"X-R": 3_500}


def test_rows_that_are_pruned_stay_in_the_numbers(make):
    Task = make({"history": 10})
    Task.xq.put_many(tasks(3))
    Task.take().ack()
    before = numbers(Task)
    Task.xq.clock.tick(100)
    Task.xq.sweep()
    assert Task.xq.History.select().count() == 1
    assert numbers(Task) == before
    Task.xq.History.delete().execute()  # the ids begin at 1 again
    Task.put(task())
    assert [row.id for row in Task.xq.History.select()] == [1]
    assert Task.stats().transition == {"X-R": 4, "R-T": 1, "T-X": 1}
    assert Task.xq.check() == []


def test_numbers_stay_when_the_history_is_switched_off_and_on(make):
    Task = make({"buried": True, "history": True}, roles=ROLES, tube_stats=["a"])
    Task.xq.put_many(tasks(3, tube="a"))
    Task.take()
    before = numbers(Task)
    for more in ({}, {"history": True}, {"history": True, "limit": 9}):
        Task.xq.reconfigure({"buried": True, **more})
        assert numbers(Task) == before
        assert Task.xq.check() == []
    Task.xq.reconfigure({"buried": True, "history": True})
    Task.put(task(tube="a"))
    assert numbers(Task)["a"][1] == numbers(Task)[""][1] == {"X-R": 4, "R-T": 1}


def test_tasks_that_reconfigure_moves_count_once(make):
    Task = make({"zombie": 5, "history": True})
    Task.put(task())
    Task.take().ack()
    Task.xq.reconfigure({"keep": True, "history": True}, move={"Z": "D"})
    assert Task.stats().transition == {"X-R": 1, "R-T": 1, "T-Z": 1, "Z-D": 1}
    assert Task.stats().counts == {"R": 0, "T": 0, "D": 1}


def test_install_counts_the_history_of_an_older_version_once(make):
    Task = make({"buried": True, "history": True}, roles=ROLES, tube_stats=["a"])
    Task.xq.put_many(tasks(3, tube="a"))
    Task.take()
    before = numbers(Task)
    as_of_old(make.db)
    fresh = make.model()
    xq.upgrade(
        fresh,
        {"status": "status", "runat": "runat", "tube": "tube"},
        {"buried": True, "history": True},
        tube_stats=["a"],
        clock=make.clock,
    )
    with pytest.raises(xq.NotInstalled, match="layout 8"):
        fresh.put(task(tube="a"))
    fresh.xq.install()
    assert fresh.xq.check() == []
    assert numbers(fresh) == before
    fresh.put(task(tube="a"))
    assert numbers(fresh)["a"][1] == {"X-R": 4, "R-T": 1}


def as_of_old(db: pw.Database) -> None:
    """Leave what version 8 of the layout had: counters of all transitions, and none of the history's own triggers."""
    db.execute_sql("UPDATE task_xq_count SET n = (SELECT MAX(id) FROM task_xq_history) WHERE target = ''")
    db.execute_sql("DELETE FROM task_xq_count WHERE target = ''")
    for name in ("add_up", "noted", "pruned", "update_task"):
        db.execute_sql(f"DROP TRIGGER task_xq_{name}")
    db.execute_sql("UPDATE xq_queue SET version = '8'")


def test_a_queue_with_a_limit_has_counters_beside_its_history(make):
    Task = make({"history": True, "limit": 2})
    Task.xq.put_many(tasks(2))
    with pytest.raises(xq.Full):
        Task.put(task())
    assert make.db.execute_sql("SELECT source, target, n FROM task_xq_count").fetchall() == [("X", "R", 2)]


# what the triggers ask of a connection


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_what_a_new_connection_asks_does_not_begin_to_read(make_shared):
    Task = make_shared(ALL)
    make_shared.db.close()
    with make_shared.db.atomic():
        Task.xq.adapter.store.execute("SELECT 1")  # as the first thing on this connection
        with closing(sqlite3.connect(make_shared.db.database)) as other, other:
            other.execute("INSERT INTO task (status, size, attempts) VALUES ('R', 0, 0)")
        Task.put(task())
    assert transitions(Task) == ["X-R write", "X-R put"]


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
