"""A queue on a partitioned table of PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import ON_POSTGRES, database_on
from tests.servers import Postgres
from tests.steps import is_exact, transitions
from xq.testing import Clock

pytestmark = ON_POSTGRES

FEATURES = {"id": "required", "buried": True, "delayed": True, "keep": True, "ttr": 60, "history": True}
COLUMNS = "id bigint NOT NULL, day date NOT NULL, name text, status text NOT NULL, runat float8, tube text"

YEARS = {f"task_{year}": f"FOR VALUES FROM ('{year}-01-01') TO ('{year + 1}-01-01')" for year in (2024, 2025)}
PARTS = {f"task_{i}": f"FOR VALUES WITH (MODULUS 3, REMAINDER {i})" for i in range(3)}
# how a table is partitioned -> its key, by what, and the values of its partitions
WAYS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "by hash of the key": ("PRIMARY KEY (id)", "HASH (id)", PARTS),
    "by range of days": ("PRIMARY KEY (id, day)", "RANGE (day)", YEARS | {"task_later": "DEFAULT"}),
    "by the name": ("CHECK (id >= 0)", "HASH (name)", PARTS),
}


@pytest.fixture
def db() -> Iterator[pw.Database]:
    with database_on(Postgres) as (server, name), closing(server.peewee(name)) as database:
        yield database


def queue_on(database: pw.Database, way: str, features: Any = FEATURES, **roles: str) -> Any:
    """A queue on a table that is partitioned in one of these ways."""
    key, by, parts = WAYS[way]
    database.execute_sql(f"CREATE TABLE task ({COLUMNS}, {key}) PARTITION BY {by}")
    for part, values in parts.items():
        database.execute_sql(f"CREATE TABLE {part} PARTITION OF task {values}")
    fields = {
        "id": pw.BigIntegerField(primary_key=True),
        "day": pw.DateField(default="2024-06-01"),
        "name": pw.TextField(null=True),
        "status": pw.TextField(default="R"),
        "runat": pw.DoubleField(null=True),
        "tube": pw.TextField(null=True),
    }
    Task: Any = type("Task", (pw.Model,), {**fields, "Meta": type("Meta", (), {"database": database})})
    xq.upgrade(
        Task, {role: role for role in ("status", "runat", "tube")} | roles, features, clock=Clock(), tube_stats=["a"]
    )
    return Task


def homes(database: pw.Database) -> Counter[str]:
    """How many rows each partition has."""
    found = database.execute_sql("SELECT CAST(tableoid::regclass AS text), COUNT(*) FROM task GROUP BY 1").fetchall()
    return Counter(dict(found))


@pytest.mark.parametrize("way", ["by hash of the key", "by range of days"])
def test_a_queue_on_a_partitioned_table_is_exact(db, way):
    Task = queue_on(db, way)
    Task.xq.install()
    Task.xq.put_many([{"id": i, "day": f"{2024 + i % 3}-06-01", "tube": "ab"[i % 2]} for i in range(1, 31)])
    assert len(homes(db)) == 3
    assert [Task.take().id for _ in range(4)] == [1, 2, 3, 4], "in order, whatever partition they are in"
    assert Task.take(tube="a").id == 6
    Task.ack(1, update={"name": "done"})
    Task.release(2, delay=5)
    Task.bury(3)
    Task.xq.clock.tick(5)
    assert Task.xq.sweep() == 1
    Task.xq.clock.tick(60)
    assert Task.xq.sweep() == 2, "the ttr of 4 and 6"
    assert [task.id for task in Task.xq.take_many(3)] == [2, 4, 5]
    assert Task.xq.release_all() == 3
    assert [row.event for row in Task.xq.history(2)] == ["put", "take", "release", "delay", "take", "release"]
    assert is_exact(Task)
    assert Task.xq.truncate() == 30
    assert is_exact(Task)
    Task.xq.install()
    Task.xq.uninstall()


def test_rows_that_move_to_other_partitions_are_counted_and_told(db):
    Task = queue_on(db, "by range of days")
    # Its columns stand at other places than those of the table.
    columns = "name text, tube text, status text NOT NULL, runat float8, id bigint NOT NULL, day date NOT NULL"
    db.execute_sql(f"CREATE TABLE old ({columns})")
    db.execute_sql("ALTER TABLE task ATTACH PARTITION old FOR VALUES FROM ('2000-01-01') TO ('2024-01-01')")
    Task.xq.install()
    Task.xq.put_many([{"id": i, "tube": "a"} for i in range(1, 9)])
    assert Task.xq.ack(Task.take(), update={"day": "2001-01-01"}).status == "D"
    Task.update(day="2025-06-01", status="B", tube="b").where(Task.id << [2, 3]).execute()
    Task.update(status="B").where(Task.id == 4).execute()
    Task.update(day="2030-01-01").where(Task.id == 5).execute()
    assert homes(db) == {"old": 1, "task_2024": 4, "task_2025": 2, "task_later": 1}
    assert transitions(Task) == {"X-R": 8, "R-T": 1, "T-D": 1, "R-B": 3}
    assert Task.stats().tube["a"].transition == {"X-R": 8, "R-T": 1, "T-D": 1, "R-S": 2, "R-B": 1}
    told = [[row.event for row in Task.xq.history(key)] for key in (1, 2, 5)]
    assert told == [["put", "take", "ack"], ["put", "write"], ["put"]]
    assert is_exact(Task)


def test_what_is_written_to_a_partition_itself_is_found_and_repaired(db):
    """Triggers of a table's statements hear of no statement that names one of its partitions."""
    Task = queue_on(db, "by range of days")
    Task.xq.install()
    db.execute_sql("INSERT INTO task_2024 (id, day, status) VALUES (1, '2024-01-01', 'R')")
    assert Task.xq.check() == ["1 tasks in all that are ready (R) were written uncounted: recount() repairs it"]
    Task.xq.recount()
    assert is_exact(Task)
    assert Task.take().id == 1, "it is a task nevertheless"
    db.execute_sql("ALTER TABLE task DETACH PARTITION task_2024")
    assert Task.xq.check() == ["1 tasks in all that are taken (T) were removed uncounted: recount() repairs it"]
    Task.xq.recount()
    assert is_exact(Task)


def test_unique_needs_partitions_by_its_own_role(db):
    unique = {"id": "required", "unique": True}
    with pytest.raises(xq.ConfigurationError, match="(?s)is partitioned.*partition it by the role 'unique' alone"):
        queue_on(db, "by hash of the key", unique, unique="name").xq.install()
    db.execute_sql("DROP TABLE task")
    Task = queue_on(db, "by the name", unique, unique="name")
    Task.xq.install()
    Task.xq.put_many([{"id": i, "name": str(i)} for i in range(9)])
    with pytest.raises(xq.Duplicate):
        Task.put({"id": 9, "name": "3"})
    assert is_exact(Task)
