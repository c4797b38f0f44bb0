"""Executors are killed in the middle of each thing that Spark does with a queue: nothing is lost, nothing is twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from pyspark.sql import functions as F

import xq
from tests.conftest import live
from tests.factories import tasks
from tests.spark.cluster import Cluster
from tests.spark.drivers import driver
from tests.spark.sinks import Sink, stream, told
from tests.steps import is_exact, transitions
from xq.pipeline.scan import What

FEATURES = {"keep": True, "buried": True, "history": True}
TASKS = 1000


@pytest.fixture
def Task(make_live):
    return make_live(FEATURES)


@pytest.fixture
def run(workers, make_live, tmp_path):
    """What a function of this module tells, run by a driver of the cluster."""

    def run(script: Any) -> Any:
        with driver(make_live.db, script, workers, str(tmp_path)) as process:
            found = [json.loads(text) for text in iter(process.told, None) if text != "the end"]
        return found[0] if found else None

    return run


def done(Task: Any, n: int) -> None:
    """Have so many tasks done, each by a put, a take and an ack."""
    Task.xq.put_many(tasks(n))
    Task.xq.ack_many(Task.xq.take_many(n))


def test_a_read_has_each_row_once(Task, run):
    Task.xq.put_many(tasks(TASKS))
    assert run(reads) == [[*range(1, TASKS + 1)]] * 2


def reads(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()
    found, keys = [], {"tasks": "id", "history": "CAST(key AS BIGINT)"}
    what: What
    for what in ("tasks", "history"):
        frame = spark.read.format("xq").options(**xq.spark.options(Task, what), partitions=4).load()
        with workers.losing_executors(spark, 0):
            found.append(sorted(key for (key,) in frame.selectExpr(keys[what]).collect()))
    tell(json.dumps(found))


@pytest.mark.parametrize("job", ["named", ""])
def test_a_write_puts_each_row_once(Task, run, job):
    run({"named": writes_a_job, "": writes}[job])
    assert sorted(task.size for task in Task.select()) == [*range(4 * TASKS)]
    assert transitions(Task) == {"X-R": 4 * TASKS}
    assert is_exact(Task)
    assert told(Task) == sorted((row.id, row.key, "X", "R") for row in Task.xq.history())
    stage = Task.xq.pipeline.bulk().dialect.staging.stage
    assert Task._meta.database.execute_sql(f"SELECT COUNT(*) FROM {stage}").fetchone()[0] == 0


def writes_a_job(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    writes(db, tell, workers, folder, job="named")


def writes(db: pw.Database, tell: Any, workers: Cluster, folder: str, **options: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()
    frame = spark.range(0, 4 * TASKS, 1, 4).selectExpr("'a' AS name", "CAST(id AS INT) AS size")
    with workers.losing_executors(spark, 0):
        frame.write.format("xq").options(**xq.spark.options(Task), **options).mode("append").save()
    if options:
        frame.write.format("xq").options(**xq.spark.options(Task), **options).mode("append").save()


def test_consume_works_off_each_task_once(Task, run):
    Task.xq.put_many(tasks(TASKS))
    assert run(consumes) == {"ack": TASKS}
    assert {task.name for task in Task.select()} == {"worked"}
    assert transitions(Task) == {"X-R": TASKS, "R-T": TASKS, "T-D": TASKS}
    assert is_exact(Task)


def consumes(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()

    worked = F.udf(lambda name: "worked", "string")

    def work(frame: Any) -> Any:
        return frame.select("id", worked("name").alias("name"))

    with workers.losing_executors(spark, 0):
        tell(json.dumps(xq.spark.consume(spark, Task, work, batch=TASKS // 4)))


def test_a_report_is_that_of_executors_that_live(Task, run):
    done(Task, TASKS)
    Task.xq.put_many(tasks(10))
    without, killed = run(reports)
    assert without == killed
    assert sum(row["n"] for row in map(json.loads, killed["transitions"])) == 3 * TASKS + 10


def reports(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()
    until = Task.xq.History.select(pw.fn.MAX(Task.xq.History.at_us)).scalar() / 1e6 + 1

    def report(name: str) -> Any:
        made = xq.spark.report(spark, Task, until=until, out=f"{folder}/{name}").tables
        return {name: sorted(table.toJSON().collect()) for name, table in made.items() if name != "stuck"}

    without = report("without")
    with workers.losing_executors(spark, 0, 3):
        killed = report("killed")
    tell(json.dumps([without, killed]))


def test_an_archive_and_its_restore_have_each_task_once(Task, run, tmp_path):
    done(Task, TASKS)
    history = told(Task)
    found = run(archives)
    assert found["archived"] == [TASKS, 3 * TASKS - 1, 0]
    assert found["tasks"] == found["restored"] == [*range(1, TASKS + 1)]
    assert [tuple(row) for row in found["history"][: 3 * TASKS]] == history
    assert transitions(Task) == {"X-R": TASKS, "R-T": TASKS, "T-D": TASKS, "D-X": TASKS, "X-D": TASKS}
    assert is_exact(Task)
    assert Task.select().count() == TASKS


def archives(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark, out = live(db)(FEATURES), workers.session(), f"{folder}/archive"

    def keys(frame: Any) -> list[int]:
        return sorted(row.id for row in frame.select("id").collect())

    found: dict[str, Any] = {}
    with workers.losing_executors(spark, 0, 1):
        found["archived"] = xq.spark.archive(spark, Task, out)
    with workers.losing_executors(spark, 0):
        found["tasks"] = keys(xq.spark.tasks(spark, Task, out))
    history = xq.spark.history(spark, Task, out).select("id", "key", "source", "target")
    found["history"] = sorted([*row] for row in history.collect())
    with workers.losing_executors(spark, 0):
        xq.spark.restore(spark, Task, out)
    found["restored"] = keys(xq.spark.tasks(spark, Task, out))
    tell(json.dumps(found))


def test_a_stream_has_each_row_once(Task, run, tmp_path):
    done(Task, TASKS)
    run(streams)
    assert Sink(tmp_path / "sink").rows() == told(Task)
    counted = Task._meta.database.execute_sql("SELECT source, target, SUM(n) FROM activity GROUP BY source, target")
    assert {f"{source}-{target}": n for source, target, n in counted.fetchall()} == transitions(Task)


def streams(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()
    sink = Sink(Path(folder, "sink"))
    with workers.losing_executors(spark, 0):
        stream(spark, xq.spark.options(Task, "history"), sink, maxRows=TASKS).start().awaitTermination()
    with workers.losing_executors(spark, 0):
        xq.spark.stream(spark, Task, "activity", f"{folder}/checkpoint", available_now=True).awaitTermination()
