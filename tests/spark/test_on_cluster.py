"""A cluster whose workers have no xq, before databases on servers. Its executors are killed in the middle of each thing
that Spark does with a queue: nothing is lost, nothing is twice.

The drivers are processes of their own: in one process Spark has one master.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee as pw
import pyspark
import pytest
from pyspark.sql import functions as F

import xq
from tests.conftest import SERVERS, database_on, fresh, live
from tests.factories import tasks
from tests.spark.cluster import HOST, Cluster, cluster, without_xq
from tests.spark.drivers import HOME, driver
from tests.steps import is_exact, transitions
from xq.adapters.spark.spark_session import _java_home, _zipped

FEATURES = {"keep": True, "buried": True, "history": True}
TASKS = 1000


shared_db = fresh(SERVERS)  # that other machines can open


@pytest.fixture(scope="module")
def workers() -> Iterator[Cluster]:
    """One cluster for all tests."""
    with cluster() as found:
        yield found


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


def test_a_read_has_each_row_once_and_workers_have_the_xq_that_the_session_has_sent(Task, run, workers):
    Task.xq.put_many(tasks(TASKS))
    places, *found = run(reads)
    assert found == [[*range(1, TASKS + 1)]] * 2
    assert all(place.startswith("./xq-") for place in places), "in the folder of the executor"
    assert subprocess.run([workers.python, "-c", "import pyarrow, xq"], cwd="/", capture_output=True).returncode == 1


def reads(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()

    def has_xq(_: int) -> Any:
        from importlib.util import find_spec

        found = find_spec("xq")
        return found and found.origin

    found = [spark.sparkContext.parallelize([1, 2], 2).map(has_xq).collect()]
    of: Any
    for of, key in (("tasks", "id"), ("history", "CAST(key AS BIGINT)")):
        frame = spark.read.format("xq").options(**xq.spark.options(Task, of), partitions=4).load()
        with workers.losing_executors(spark):
            found.append(sorted(key for (key,) in frame.selectExpr(key).collect()))
    tell(json.dumps(found))


def test_a_write_puts_each_row_once(Task, run):
    run(writes)
    assert sorted(task.size for task in Task.select()) == [*range(4 * TASKS)]
    assert transitions(Task) == {"X-R": 4 * TASKS}
    assert is_exact(Task)


def writes(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark = live(db)(FEATURES), workers.session()
    frame = spark.range(0, 4 * TASKS, 1, 4).selectExpr("'a' AS name", "CAST(id AS INT) AS size")
    with workers.losing_executors(spark):
        frame.write.format("xq").options(**xq.spark.options(Task)).mode("append").save()


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

    with workers.losing_executors(spark):
        tell(json.dumps(xq.spark.consume(spark, Task, work, batch=TASKS // 4)))


def test_an_archive_and_its_restore_have_each_task_once(Task, run):
    Task.xq.put_many(tasks(TASKS))
    Task.xq.ack_many(Task.xq.take_many(TASKS))
    found = run(archives)
    assert found["archived"] == [TASKS, 3 * TASKS - 1, 0]
    assert found["tasks"] == found["restored"] == [*range(1, TASKS + 1)]
    assert found["history"][: 3 * TASKS] == [*range(1, 3 * TASKS + 1)]
    assert transitions(Task) == {"X-R": TASKS, "R-T": TASKS, "T-D": TASKS, "D-X": TASKS, "X-D": TASKS}
    assert is_exact(Task)


def archives(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    Task, spark, out = live(db)(FEATURES), workers.session(), f"{folder}/archive"
    found: dict[str, Any] = {}

    def keys(frame: Any) -> list[int]:
        return sorted(row.id for row in frame.select("id").collect())

    with workers.losing_executors(spark):
        found["archived"] = xq.spark.archive(spark, Task, out)
    with workers.losing_executors(spark):
        found["tasks"] = keys(xq.spark.tasks(spark, Task, out))
    found["history"] = keys(xq.spark.history(spark, Task, out))
    with workers.losing_executors(spark):
        xq.spark.restore(spark, Task, out)
    found["restored"] = keys(xq.spark.tasks(spark, Task, out))
    tell(json.dumps(found))


@pytest.mark.parametrize("kind", SERVERS)
def test_spark_submit_runs_the_example_and_xq_comes_by_py_files_to_the_driver_and_its_workers(workers, tmp_path, kind):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": workers.python, "SPARK_LOCAL_IP": HOST, "JAVA_HOME": _java_home() or ""}
    environment["PYSPARK_DRIVER_PYTHON"] = without_xq(tmp_path / "driver", "peewee", "apscheduler", "plotly")
    submit = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", workers.url]
    submit += ["--executor-memory", "512m", "--py-files", str(_zipped()), HOME / "examples" / "spark.py"]
    with database_on(SERVERS[kind]) as (server, name):
        command = [*submit, server.url(name)]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "{'ack': 1999, 'bury': 1}\nBuried: 0 has no factors\nPrimes: 303\nThe report" in ran.stdout, ran.stderr
