"""A queue on a partitioned table, a queue in each of several databases, and what the copies of a database can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import ON_POSTGRES, database_on
from tests.servers import Postgres
from tests.steps import is_exact, transitions
from xq import ConfigurationError
from xq.testing import Clock

pytestmark = ON_POSTGRES

FEATURES = {"id": "required", "buried": True, "delayed": True, "keep": True, "ttr": 60, "history": True}
COLUMNS = "id bigint NOT NULL, day date NOT NULL, name text, status text NOT NULL, runat float8, tube text"

# how a table is partitioned -> its key, and the statements that make it, of the columns
WAYS: Mapping[str, tuple[str, list[str]]] = {
    "by hash of the key": (
        "id",
        ["PARTITION BY HASH (id)"]
        + [f"CREATE TABLE task_{i} PARTITION OF task FOR VALUES WITH (MODULUS 3, REMAINDER {i})" for i in range(3)],
    ),
    "by range of days": (
        "id, day",
        ["PARTITION BY RANGE (day)"]
        + [
            f"CREATE TABLE task_{year} PARTITION OF task FOR VALUES FROM ('{year}-01-01') TO ('{year + 1}-01-01')"
            for year in (2024, 2025)
        ]
        + ["CREATE TABLE task_later PARTITION OF task DEFAULT"],
    ),
}


@pytest.fixture
def db() -> Iterator[pw.Database]:
    with database_on(Postgres) as (server, name):
        database = server.peewee(name)
        yield database
        database.close()


def model(database: pw.Database) -> type[pw.Model]:
    meta = type("Meta", (), {"database": database, "table_name": "task"})
    fields = {
        "id": pw.BigIntegerField(primary_key=True),
        "day": pw.DateField(default="2024-06-01"),
        "name": pw.TextField(null=True),
        "status": pw.TextField(default="R"),
        "runat": pw.DoubleField(null=True),
        "tube": pw.TextField(null=True),
    }
    return type("Task", (pw.Model,), {**fields, "Meta": meta})


def queue_on(database: pw.Database, features: Any = FEATURES, clock: Clock | None = None, **roles: str) -> Any:
    Task = model(database)
    roles = {role: role for role in ("status", "runat", "tube")} | roles
    xq.upgrade(Task, roles, features, clock=clock, tube_stats=["a"])
    return Task


def partitioned(database: pw.Database, way: str, dropped: str = "") -> None:
    key, (by, *parts) = WAYS[way]
    database.execute_sql(f"CREATE TABLE task ({dropped}{COLUMNS}, PRIMARY KEY ({key})) {by}")
    for sql in parts:
        database.execute_sql(sql)


def homes(database: pw.Database) -> Counter[str]:
    """How many rows each partition has."""
    found = database.execute_sql("SELECT CAST(tableoid::regclass AS text), COUNT(*) FROM task GROUP BY 1").fetchall()
    return Counter(dict(found))


# partitions


@pytest.mark.parametrize("way", WAYS)
def test_a_queue_on_a_partitioned_table_is_exact(db, way):
    partitioned(db, way)
    clock = Clock()
    Task = queue_on(db, clock=clock)
    Task.xq.install()
    Task.xq.put_many([{"id": i, "day": f"{2024 + i % 3}-06-01", "tube": "ab"[i % 2]} for i in range(1, 31)])
    assert len(homes(db)) == 3
    assert [Task.take().id for _ in range(4)] == [1, 2, 3, 4], "in order, whatever partition they are in"
    assert Task.take(tube="a").id == 6
    Task.ack(1, update={"name": "done"})
    Task.release(2, delay=5)
    Task.bury(3)
    clock.tick(5)
    assert Task.xq.sweep() == 1
    clock.tick(60)
    assert Task.xq.sweep() == 2, "the ttr of 4 and 6"
    assert Task.kill(4).id == 4
    assert [task.id for task in Task.xq.take_many(3)] == [2, 5, 6]
    assert Task.xq.release_all() == 3
    assert [row.event for row in Task.xq.history(2)] == ["put", "take", "release", "delay", "take", "release"]
    assert is_exact(Task)
    assert Task.xq.truncate() == 29
    assert is_exact(Task)
    Task.xq.install()
    Task.xq.uninstall()


def test_rows_that_move_to_other_partitions_are_counted_and_told(db):
    partitioned(db, "by range of days", dropped="gone int, ")
    db.execute_sql("ALTER TABLE task DROP gone")  # so that the partitions have other columns at its place
    db.execute_sql(
        "CREATE TABLE old (name text, tube text, status text NOT NULL, runat float8, "
        "id bigint NOT NULL, day date NOT NULL)"
    )
    db.execute_sql("ALTER TABLE task ATTACH PARTITION old FOR VALUES FROM ('2000-01-01') TO ('2024-01-01')")
    Task = queue_on(db)
    Task.xq.install()
    Task.xq.put_many([{"id": i, "tube": "a"} for i in range(1, 9)])
    taken = Task.take()
    assert Task.xq.ack(taken, update={"day": "2001-01-01"}).status == "D"
    moved = Task.update(day="2025-06-01", status="B", tube="b").where(Task.id << [2, 3]).execute()
    stayed = Task.update(status="B").where(Task.id == 4).execute()
    assert (moved, stayed) == (2, 1)
    Task.update(day="2030-01-01").where(Task.id == 5).execute()
    assert homes(db) == {"old": 1, "task_2024": 4, "task_2025": 2, "task_later": 1}
    assert transitions(Task) == {"X-R": 8, "R-T": 1, "T-D": 1, "R-B": 3}
    assert Task.stats().tube["a"].transition == {"X-R": 8, "R-T": 1, "T-D": 1, "R-S": 2, "R-B": 1}
    assert [row.event for row in Task.xq.history(1)] == ["put", "take", "ack"]
    assert [(row.source, row.target, row.event) for row in Task.xq.history(2)][1:] == [("R", "B", "write")]
    assert len(Task.xq.history(5)) == 1
    assert Task.xq.taken() == []
    assert is_exact(Task)


def test_the_status_may_be_what_partitions_are_chosen_by_so_that_each_move_is_one_to_another_partition(db):
    db.execute_sql(f"CREATE TABLE task ({COLUMNS}) PARTITION BY LIST (status)")  # a key would have to have the status
    db.execute_sql("CREATE TABLE task_done PARTITION OF task FOR VALUES IN ('D')")
    db.execute_sql("CREATE TABLE task_not_done PARTITION OF task DEFAULT")
    Task = queue_on(db)
    Task.xq.install()
    Task.xq.put_many([{"id": i} for i in range(100)])

    assert [Task.take().ack().id for _ in range(100)] == list(range(100))
    assert homes(db) == {"task_done": 100}
    assert transitions(Task) == {"X-R": 100, "R-T": 100, "T-D": 100}
    assert is_exact(Task)


def test_a_task_whose_key_moves_it_to_another_partition_has_ended_and_another_begins(db):
    partitioned(db, "by hash of the key")
    Task = queue_on(db)
    Task.xq.install()
    Task.put({"id": 1})
    Task.take()
    for key in range(2, 12):
        Task.update(id=key).where(Task.id == key - 1).execute()
    assert [(row.source, row.target) for row in Task.xq.history(1)][2:] == [("T", "X")]
    assert [(row.source, row.target) for row in Task.xq.history(11)] == [("X", "T")]
    assert is_exact(Task)


def test_what_is_written_to_a_partition_itself_is_found_and_repaired(db):
    """Triggers of a table's statements hear of no statement that names one of its partitions."""
    partitioned(db, "by range of days")
    Task = queue_on(db)
    Task.xq.install()
    db.execute_sql("INSERT INTO task_2024 (id, day, status) VALUES (1, '2024-01-01', 'R')")
    assert Task.xq.check() == ["1 tasks in all that are ready (R) were written uncounted: recount() repairs it"]
    Task.xq.recount()
    assert is_exact(Task)
    assert Task.take().id == 1, "it is a task nevertheless"
    db.execute_sql("UPDATE task_2024 SET status = 'B'")
    assert len(Task.xq.check()) == 2
    Task.xq.recount()
    assert is_exact(Task)
    db.execute_sql("ALTER TABLE task DETACH PARTITION task_2024")
    assert Task.xq.check() == ["1 tasks in all that are buried (B) were removed uncounted: recount() repairs it"]
    Task.xq.recount()
    assert is_exact(Task)


def test_unique_needs_partitions_by_its_own_role(db):
    db.execute_sql(f"CREATE TABLE task ({COLUMNS}) PARTITION BY HASH (id)")
    db.execute_sql("CREATE TABLE task_0 PARTITION OF task FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    Task = queue_on(db, {"id": "required", "unique": True}, unique="name")
    with pytest.raises(ConfigurationError, match="(?s)is partitioned.*partition it by the role 'unique' alone"):
        Task.xq.install()
    db.execute_sql("DROP TABLE task")
    db.execute_sql(f"CREATE TABLE task ({COLUMNS}) PARTITION BY HASH (name)")
    for i in range(2):
        db.execute_sql(f"CREATE TABLE task_{i} PARTITION OF task FOR VALUES WITH (MODULUS 2, REMAINDER {i})")
    Task.xq.install()
    Task.xq.put_many([{"id": i, "name": str(i)} for i in range(9)])
    with pytest.raises(xq.Duplicate):
        Task.put({"id": 9, "name": "3"})
    assert is_exact(Task)
