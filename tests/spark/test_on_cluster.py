"""A cluster whose workers have no xq, before databases on servers. Its executors are killed in the middle of each thing
that Spark does with a queue: nothing is lost, nothing is twice.

The drivers are processes of their own: in one process Spark has one master.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
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
from tests.steps import eventually, is_exact, transitions
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


def test_tasks_whose_driver_on_the_cluster_is_killed_are_acked_once(Task, run, workers, make_live, tmp_path):
    Task.xq.put_many(tasks(TASKS))
    with driver(make_live.db, waits, workers, str(tmp_path)) as process:
        eventually(Path(tmp_path, "reached").exists, 120)
        process.kill()
        Path(tmp_path, "go").touch()
    Task.xq.current_session()  # a process that takes reaps
    eventually(lambda: Task.xq.count("T") == 0, 60)
    assert (Task.xq.count("D"), Task.xq.count("R")) == (TASKS // 2, TASKS // 2)
    assert run(consumes) == {"ack": TASKS // 2}
    assert transitions(Task) == {"X-R": TASKS, "R-T": TASKS * 3 // 2, "T-R": TASKS // 2, "T-D": TASKS}
    acked = [row.key for row in Task.xq.history() if row.event == "ack"]
    assert len(acked) == len(set(acked)) == TASKS
    assert is_exact(Task)


def waits(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    """Consume two batches. The worker with the last task writes a file, and waits for another."""
    Task, spark, reached, go = live(db)(FEATURES), workers.session(), Path(folder, "reached"), Path(folder, "go")

    def worked(key):
        while key == TASKS and not go.exists():
            reached.touch()
            time.sleep(0.01)
        return "worked"

    def work(frame: Any) -> Any:
        return frame.select("id", F.udf(worked)("id").alias("name"))

    xq.spark.consume(spark, Task, work, batch=TASKS // 2)


def test_a_task_that_ends_its_executors_is_a_lost_take_of_its_batch(make_live, run):
    Task = make_live(FEATURES | LOST, roles=("runat", "lost"), attributes={"lost": pw.IntegerField(default=0)})
    Task.xq.put_many(tasks(4))
    assert run(ends) is True
    assert [(task.status, task.lost) for task in Task.select().order_by(Task.id)] == [("R", 1)] * 4
    assert transitions(Task) == {"X-R": 4, "R-T": 4, "T-R": 4}
    assert is_exact(Task)


LOST = {"max_takes": 2}


def ends(db: pw.Database, tell: Any, workers: Cluster, folder: str) -> None:
    attributes = {"lost": pw.IntegerField(default=0)}
    Task = live(db)(FEATURES | LOST, roles=("runat", "lost"), attributes=attributes)
    spark, reached = workers.session(task_maxFailures=1), Path(folder, "reached")

    def worked(key):
        while key == 3:
            reached.touch()
            time.sleep(0.01)
        return "worked"

    def kill() -> None:
        eventually(reached.exists, 120)
        workers.kill_executors()

    threading.Thread(target=kill).start()

    def work(frame: Any) -> Any:
        return frame.select("id", F.udf(worked)("id").alias("name"))

    try:
        xq.spark.consume(spark, Task, work)
    except Exception as error:
        tell(json.dumps("ExecutorLostFailure" in str(error) or str(error)))


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
