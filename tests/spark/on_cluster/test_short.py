"""What a pipeline does, once, on a cluster whose workers have no xq, and whose executors are killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee as pw

import xq
from tests.conftest import live
from tests.spark.cluster import Cluster
from tests.spark.drivers import driver
from tests.steps import is_exact, transitions

FEATURES = {"keep": True, "buried": True, "history": True}
TASKS = 1000


def test_tasks_go_through_a_cluster_that_loses_its_executors(workers, make_live):
    Task = make_live(FEATURES)
    with driver(make_live.db, goes_through, workers) as process:
        told = [json.loads(text) for text in iter(process.told, None) if text != "the end"]
    where, done, read = told
    assert subprocess.run([workers.python, "-c", "import pyarrow, xq"], cwd="/", capture_output=True).returncode == 1
    assert all(place.startswith("./xq-") for place in where), (
        "it is in the folder of the executor: the session has sent it"
    )
    assert done == {"ack": TASKS - 1, "bury": 1}
    assert read == sorted([f"n{i}!", "Done" if i else "Buried"] for i in range(TASKS))
    assert transitions(Task) == {"X-R": TASKS, "R-T": TASKS, "T-D": TASKS - 1, "T-B": 1}
    assert is_exact(Task)


def goes_through(db: pw.Database, tell: Any, workers: Cluster) -> None:
    """What the driver does."""
    Task = live(db)(FEATURES)
    spark = workers.session()

    def has_xq(_: int) -> Any:
        from importlib.util import find_spec

        found = find_spec("xq")
        return found and found.origin

    def work(df: Any) -> Any:
        return df.selectExpr("id", "concat(name, '!') AS name", "IF(size = 0, 'ValueError: none', NULL) AS xq_error")

    killed = Path(workers.folder, "killed")

    def waits(batches: Iterator[Any]) -> Iterator[Any]:  # so that no task is over before it is lost
        import os
        import time

        while not os.path.exists(flag):
            time.sleep(0.02)
        yield from batches

    flag = str(killed)
    with workers.losing_executors(spark, 0, then=killed.touch):
        rows = spark.range(0, TASKS, 1, 2).mapInArrow(waits, "id LONG")
        rows = rows.selectExpr("concat('n', id) AS name", "CAST(id AS INT) AS size")
        rows.write.format("xq").options(**xq.spark.options(Task), job="once").mode("append").save()
    tell(json.dumps(spark.sparkContext.parallelize([1, 2], 2).map(has_xq).collect()))
    tell(json.dumps(xq.spark.consume(spark, Task, work)))
    read = spark.read.format("xq").options(**xq.spark.options(Task)).load()
    tell(json.dumps(sorted([row.name, row.state] for row in read.collect())))
    spark.stop()
