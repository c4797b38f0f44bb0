"""Spark runs a slow task a second time beside the first, and a write still puts each row once."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest
from pyspark.sql import functions as F

import xq
from tests.conftest import live
from tests.spark.cluster import Cluster
from tests.spark.drivers import driver
from tests.steps import STUCK, is_exact, transitions

ROWS, PARTS = 4000, 8
AGGRESSIVE = {
    "speculation": True,
    "speculation_interval": "50ms",
    "speculation_multiplier": 1.01,
    "speculation_quantile": 0.5,
    "speculation_efficiency_enabled": False,
    "speculation_minTaskRuntime": "0ms",
}


@pytest.mark.parametrize("job", ["named", None])
def test_of_two_attempts_at_once_the_rows_of_one_are_put(workers, make_live, tmp_path, job):
    Task = make_live({"history": True})
    with driver(make_live.db, writes_twice, workers, str(tmp_path), job) as process:
        assert process.told() == "the end"
    assert {path.name for path in tmp_path.glob("attempt-*")} == {"attempt-0", "attempt-1"}, "both staged their rows"
    assert sorted(task.size for task in Task.select()) == [*range(ROWS)]
    assert transitions(Task) == {"X-R": ROWS}
    assert is_exact(Task)


def writes_twice(db: pw.Database, tell: Any, workers: Cluster, folder: str, job: str | None) -> None:
    Task, spark = live(db)({"history": True}), workers.session(**AGGRESSIVE)

    def slowly(size: int) -> int:
        """Hand on a row of the last partition when its second attempt runs, too."""
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == PARTS - 1:
            Path(folder, f"attempt-{context.attemptNumber()}").touch()
            deadline = time.monotonic() + STUCK
            while not Path(folder, "attempt-1").exists():
                assert time.monotonic() < deadline, "there is no second attempt"
                time.sleep(0.01)
        return size

    size = F.udf(slowly, "int")(F.col("id").cast("int")).alias("size")
    frame = spark.range(0, ROWS, 1, PARTS).select(size, F.lit("a").alias("name"))
    options = xq.spark.options(Task) | ({"job": job} if job else {})
    frame.write.format("xq").options(**options).mode("append").save()
    spark.stop()
