"""A queue on a partitioned table, a queue in each of several databases, and what the copies of a database can do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import ON_POSTGRES, database_on
from tests.servers import Postgres
from tests.steps import PATIENCE, eventually, is_exact, transitions
from tests.support.servers_fail import Standby
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
    "twice": (
        "id, day",
        [
            "PARTITION BY RANGE (day)",
            "CREATE TABLE task_2024 PARTITION OF task FOR VALUES FROM ('2024-01-01') TO ('2025-01-01') "
            "PARTITION BY HASH (id)",
            "CREATE TABLE task_2024_0 PARTITION OF task_2024 FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
            "CREATE TABLE task_2024_1 PARTITION OF task_2024 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
            "CREATE TABLE task_later PARTITION OF task DEFAULT",
        ],
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

    def consume() -> list[int]:
        done = []
        with db.connection_context():
            while task := Task.take():
                done.append(task.ack().id)
        return done

    with ThreadPoolExecutor(4) as threads:
        done = [key for each in [threads.submit(consume) for _ in range(4)] for key in each.result(PATIENCE)]
    assert sorted(done) == list(range(100))
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


def test_a_take_reads_no_more_of_the_partitions_than_their_first_rows(db):
    partitioned(db, "by hash of the key")
    Task = queue_on(db)
    Task.xq.install()
    Task.xq.put_many([{"id": i} for i in range(3000)])
    db.execute_sql("ANALYZE task")
    sql = "SELECT id FROM task WHERE status = 'R' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    plan = "\n".join(line for (line,) in db.execute_sql(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}").fetchall())
    assert "Merge Append" in plan
    plan = plan.replace(".00 loops", " loops")  # as PostgreSQL 18 writes it
    assert plan.count("rows=1 loops=1)") >= 3 + 3  # of each partition one, and so upwards
    assert "rows=1000 loops" not in plan


# several databases, each with a queue of its own


def test_an_application_may_spread_its_tasks_over_several_databases():
    with database_on(Postgres) as one, database_on(Postgres) as two:
        databases = [server.peewee(name) for server, name in (one, two)]
        queues = [queue_on(database) for database in databases]
        for database, Task in zip(databases, queues, strict=True):
            database.create_tables([Task])

        def shard(key: int) -> Any:
            return queues[hash(key) % len(queues)]

        for key in range(10):
            shard(key).put({"id": key})
        done = []
        for Task in random.sample(queues, len(queues)):  # a consumer begins anywhere, lest one be left behind
            while task := Task.take():
                done.append(shard(task.id).ack(task.id).id)
        assert sorted(done) == list(range(10))
        total: Counter[str] = sum((transitions(Task) for Task in queues), Counter())
        assert total == {"X-R": 10, "R-T": 10, "T-D": 10}
        assert all(map(is_exact, queues))
        for database in databases:
            database.close()


# copies of a database


@contextmanager
def replicated(**settings: Any) -> Iterator[tuple[Postgres, pw.Database]]:
    if reason := Postgres.missing():
        pytest.skip(reason)
    with Postgres(**settings) as server:
        server.create("app")
        database = server.peewee("app")
        yield server, database
        database.close()


def test_what_was_taken_before_a_standby_was_promoted_is_ready_there():
    with replicated() as (server, database), Standby(server) as standby:
        Task = queue_on(database)
        database.create_tables([Task])
        Task.xq.put_many([{"id": i} for i in range(3)])
        held = Task.take(timeout=5)
        there = standby.peewee("app")
        copy = queue_on(there)

        def arrived() -> bool:
            with suppress(xq.NotInstalled, pw.PeeweeException):  # a part of it only
                return bool(copy.stats() == Task.stats())
            return False

        eventually(arrived)
        server.stop("immediate")
        standby.run("SELECT pg_promote()")
        eventually(lambda: standby.run("SELECT NOT pg_is_in_recovery()") == [(True,)])
        # What is held comes back before the first take, or after it: its process has its link on the other server.
        done = [copy.take(timeout=PATIENCE).ack().id for _ in range(3)]
        assert held.id in done
        assert sorted(done) == [0, 1, 2]
        assert is_exact(copy)
        there.close()


def test_a_subscriber_has_the_rows_and_no_numbers_until_it_is_installed_and_recounted():
    """The triggers of a subscriber do not fire for what arrives, so nothing there counts, and nothing wakes."""
    with replicated(wal_level="logical") as (server, database):
        Task = queue_on(database)
        database.create_tables([Task])
        server.create("copy")
        there = server.peewee("copy")
        Copy = queue_on(there)
        there.create_tables([Copy])
        server.run("CREATE PUBLICATION tasks FOR TABLE task", "app")
        server.run("SELECT pg_create_logical_replication_slot('tasks', 'pgoutput')", "app")
        where = f"host={server.host} port={server.port} dbname=app user={server.ADMINISTRATOR[0]}"
        server.run(
            f"CREATE SUBSCRIPTION tasks CONNECTION '{where}' PUBLICATION tasks "
            "WITH (create_slot = false, slot_name = 'tasks', copy_data = false)",
            "copy",
        )
        Task.put({"id": 1, "name": "a"})
        Task.put({"id": 2})
        Task.take().ack()
        eventually(lambda: Copy.select().where(Copy.status == "D").count() == 1 and Copy.select().count() == 2)
        assert (transitions(Copy), Copy.xq.history()) == ({}, [])
        assert Copy.xq.check() == [
            "1 tasks in all that are done (D) were written uncounted: recount() repairs it",
            "1 tasks in all that are ready (R) were written uncounted: recount() repairs it",
        ]
        server.run("ALTER SUBSCRIPTION tasks DISABLE", "copy")
        Copy.xq.recount()  # as when it shall take over
        assert Copy.stats().counts == Task.stats().counts
        assert Copy.take().ack().id == 2
        assert is_exact(Copy)
        server.run("ALTER SUBSCRIPTION tasks SET (slot_name = NONE)", "copy")
        server.run("DROP SUBSCRIPTION tasks", "copy")
        server.run("SELECT pg_drop_replication_slot('tasks')", "app")
        there.close()
