"""A driver of Spark is killed in the midst of what it does, and nothing is lost or twice."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import peewee as pw
import pytest
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import xq
from tests import conftest
from tests.conftest import live
from tests.factories import tasks
from tests.spark.archives import FEATURES, done, ids, told
from tests.spark.drivers import driver
from tests.spark.sinks import Sink, drain, stream
from tests.spark.sinks import told as in_history
from tests.steps import eventually, is_exact, state, transitions
from xq.adapters.spark.archive import archive, history, restore
from xq.adapters.spark.archive import tasks as all_tasks
from xq.adapters.spark.source import Writer, Xq
from xq.adapters.spark.spark_session import offer
from xq.pipeline import archive as module

shared_db = conftest.shared_db  # on the servers as well

ON_SQLITE = pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)


def session(master: str = "local[2]") -> SparkSession:
    return xq.spark.session(master=master, driver_memory="512m", sql_shuffle_partitions=1)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# archives

# What an archive does, in this order, and after which of it a process may be killed: what it is of, its name, and
# at which of its calls, before (False) or after it (True).
ARCHIVE, FOLDER = "xq.pipeline.archive:Archive", "xq.adapters.spark.files:Folder"
ARCHIVING: list[tuple[Any, ...]] = [
    (FOLDER, "move", 1, False),  # the tasks are written
    (FOLDER, "move", 1, True),
    (ARCHIVE, "_forget", 1, True),  # within a transaction
    (ARCHIVE, "_in_parts", 1, True),  # some tasks are deleted, and others not yet
    (ARCHIVE, "forget_done", 1, True),
    (FOLDER, "move", 2, False),  # the history is written
    (FOLDER, "move", 2, True),
    ("xq.sql.queries:Queries", "forget_rows", 2, False),  # some rows are deleted
    (ARCHIVE, "forget_archived", 1, True),
]
RESTORING: list[tuple[Any, ...]] = [
    (ARCHIVE, "put_back", 1, False),
    (ARCHIVE, "_put_back", 1, True),
    (ARCHIVE, "_in_parts", 1, True),
    (ARCHIVE, "_in_parts", 2, True),
    (ARCHIVE, "put_back", 1, True),
]


def some(points: list[tuple[Any, ...]], db: pw.Database) -> list[tuple[str, int]]:
    """Those of the points that are tried on this database: each on one, as a process costs seconds."""
    kinds = (pw.SqliteDatabase, pw.PostgresqlDatabase, pw.MySQLDatabase)
    return points[next(i for i, kind in enumerate(kinds) if isinstance(db, kind)) :: len(kinds)]


def killed(spark: SparkSession, Task: Any, what: str, out: str, point: tuple[Any, ...]) -> None:
    """Have another process archive or restore, and be killed in the midst of it."""
    gateway: Any = spark.sparkContext._gateway
    java = gateway.gateway_parameters
    with driver(Task._meta.database, archives_and_dies, str(java.port), java.auth_token, what, out, point) as process:
        assert process.join() == -signal.SIGKILL, f"{point} was not reached"


def archives_and_dies(db: pw.Database, tell: Any, port: str, secret: str, what: str, out: str, point: Any) -> None:
    """What the driver does, on the Java of the tests: to start another takes ten times as long."""
    Task = live(db)(FEATURES)
    of, name, at, after = point
    owner = resolve_name(of)
    method, calls = getattr(owner, name), iter(range(1, sys.maxsize))

    def dies(*args: Any, **named: Any) -> Any:
        call = next(calls)
        if call == at and not after:
            die()
        found = method(*args, **named)
        if call == at:
            die()
        return found

    setattr(owner, name, dies)
    module.PER_TRANSACTION = module.ROWS = 2
    os.environ |= {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret, "PYSPARK_PYTHON": sys.executable}
    gateway = launch_gateway()
    SparkContext._ensure_initialized(gateway=gateway)
    java: Any = gateway.jvm.org.apache.spark
    running = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=running, conf=SparkConf(_jconf=running.getConf()))
    spark = SparkSession(context).newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    getattr(xq.spark, what)(xq.spark.register(spark), Task, out)


def test_whoever_archives_is_killed_and_nothing_is_lost_or_twice(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = done(Task)
    archive(spark, Task, out)
    for point in some(ARCHIVING, make_live.db):
        keys += done(Task, 5)
        before = {(found.id, found.key) for found in history(spark, Task, out).collect()}
        killed(spark, Task, "archive", out, point)
        assert [key for key in ids(all_tasks(spark, Task, out)) if key in keys] == keys, point
        now = [(found.id, found.key) for found in history(spark, Task, out).collect()]
        assert len(now) == len(set(now)), point
        assert before <= set(now), point
        assert is_exact(Task)
    archive(spark, Task, out)
    assert {state(Task, key) for key in keys} == {"X"}
    assert [key for key in ids(all_tasks(spark, Task, out)) if key in keys] == keys


def test_whoever_restores_is_killed_and_nothing_is_lost_or_twice(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = done(Task, 5)
    before = told(all_tasks(spark, Task, out))
    for point in some(RESTORING, make_live.db):
        archive(spark, Task, out)
        killed(spark, Task, "restore", out, point)
        assert told(all_tasks(spark, Task, out)) == before, point
        assert is_exact(Task)
    restore(spark, Task, out)
    assert told(all_tasks(spark, Task, out)) == before
    assert {state(Task, key) for key in keys} == {"D"}


# consume

EATEN = {"keep": True, "buried": True, "history": True}
TASKS, BATCH, HELD = 40, 10, 25  # the work on the task HELD waits: two batches are done, the third is being worked on


def consumes(db: pw.Database, tell: Any, folder: str) -> None:
    """Tell the pid of Java, and consume: the worker with the task HELD writes a file and waits for another."""
    spark, reached, go = session(), Path(folder, "reached"), Path(folder, "go")
    gateway: Any = spark.sparkContext._gateway
    tell(str(gateway.proc.pid))

    def worked(key):
        while key == HELD and not go.exists():
            reached.touch()
            time.sleep(0.01)
        return "worked"

    def work(frame: Any) -> Any:
        return frame.select("id", F.udf(worked)("id").alias("name"))

    xq.spark.consume(spark, live(db)(EATEN), work, batch=BATCH)


@pytest.mark.parametrize("who", ["python", "java"])
def test_tasks_whose_driver_or_its_java_is_killed_are_ready_again_and_each_is_acked_once(
    spark, make_live, tmp_path, who
):
    Task = make_live(EATEN)
    Task.xq.put_many(tasks(TASKS))
    with driver(make_live.db, consumes, str(tmp_path)) as process:
        java = int(process.told() or 0)
        eventually(Path(tmp_path, "reached").exists, 120)
        assert (Task.xq.count("D"), Task.xq.count("T")) == (2 * BATCH, BATCH)
        os.kill(process.process.pid if who == "python" else java, signal.SIGKILL)
        assert process.join() == (-signal.SIGKILL if who == "python" else 1), "without its Java it raises"
        Path(tmp_path, "go").touch()
        Task.xq.current_session()  # a process that takes reaps
        eventually(lambda: Task.xq.count("R") == TASKS - 2 * BATCH, 60)
    assert xq.spark.consume(spark, Task, lambda frame: frame.select("id"), batch=BATCH) == {"ack": TASKS - 2 * BATCH}
    assert transitions(Task) == {"X-R": TASKS, "R-T": TASKS + BATCH, "T-R": BATCH, "T-D": TASKS}
    acked = [row.key for row in Task.xq.history() if row.event == "ack"]
    assert len(acked) == len(set(acked)) == TASKS
    assert is_exact(Task)


# writes

ROWS = 100


class DyingWriter(Writer):
    """Its driver is killed when all partitions were put, before the job is committed."""

    driver: int

    def commit(self, messages: Any) -> None:
        parent = os.getppid()
        os.kill(self.driver, signal.SIGKILL)
        eventually(lambda: os.getppid() != parent)  # Java has ended with the driver


class Dying(Xq):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        found = DyingWriter(super().writer(schema, overwrite).job)  # type: ignore[attr-defined]
        found.driver = int(self.options["driver"])
        return found


def write(spark: SparkSession, Task: Any, source: str, parts: int = 2, **options: Any) -> None:
    frame = spark.createDataFrame([("killed", size) for size in range(ROWS)], "name STRING, size INT")
    given = xq.spark.options(Task) | {"job": "killed", "partitions": str(parts)}
    frame.repartition(parts, "size").write.format(source).options(**given, **options).mode("append").save()


def writes(db: pw.Database, tell: Any) -> None:
    spark = session("local[2]")
    offer(spark, Dying)
    write(spark, live(db)(), "dying", driver=os.getpid())


def test_a_job_whose_driver_is_killed_is_put_once_though_it_is_run_again(spark, make_live):
    Task = make_live()
    with driver(make_live.db, writes) as process:
        assert process.join() == -signal.SIGKILL
    with pytest.raises(PySparkException) as raised:
        write(spark, Task, "xq", parts=3)
    assert "begun with 2 partitions, and this run has 3" in str(xq.spark.error(raised.value))
    for _ in range(2):
        write(spark, Task, "xq")
        assert transitions(Task) == {"X-R": ROWS}
    assert sorted(task.size for task in Task.select()) == [*range(ROWS)]
    assert is_exact(Task)


# streams


class Killed(Sink):
    """Kills its driver in its second batch, before that is written or after it, which its name says."""

    def write(self, df: Any, batch: int) -> None:
        if batch == 1 and self.path.name == "before":
            die()
        super().write(df, batch)
        if batch == 1:
            die()


def streams(db: pw.Database, tell: Any, path: str) -> None:
    options = xq.spark.options(live(db)({"history": True}), "history")
    stream(session(), options, Killed(Path(path)), maxRows=4).start().awaitTermination()


@ON_SQLITE
@pytest.mark.parametrize(("name", "sizes"), [("before", [4]), ("after", [4, 4])])
def test_a_stream_whose_driver_is_killed_around_a_batch_loses_and_doubles_nothing(
    spark, make_live, tmp_path, name, sizes
):
    Task, path = make_live({"history": True}), tmp_path / name
    Task.xq.put_many(tasks(10))
    with driver(make_live.db, streams, str(path)) as process:
        assert process.join() == -signal.SIGKILL
    sink = Sink(path)
    assert sink.sizes() == sizes
    Task.xq.ack_many([taken.id for taken in Task.xq.take_many(10)])
    drain(spark, Task, sink, maxRows=7)
    assert sink.rows() == in_history(Task)
