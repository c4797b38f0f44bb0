"""A table that counts transitions is right, although the driver is killed, and after a random history."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from pyspark.sql import SparkSession

import xq
from tests.conftest import live
from tests.spark.counts import FEATURES, busy, count, counted, is_current
from tests.spark.drivers import driver
from tests.spark.histories import BEFORE, WAYS, a_history
from tests.steps import PATIENCE, eventually
from xq.pipeline.checkpoints import Rollup


@pytest.fixture
def queue(make_live):
    return make_live(FEATURES, roles=("tube",))


def test_a_table_counts_what_a_report_counts_whatever_happens(spark, queue, tmp_path):
    chance = random.Random(1)
    rows, _ = a_history("Task", chance.randrange(BEFORE), [chance.randrange(WAYS) for _ in range(400)], 0)
    History = queue.xq.History
    columns = ("at_us", "key", "tube", "source", "target", "event", "attempt")
    History.insert_many([{name: row[name] for name in columns} for row in rows]).execute()
    span = {"since": min(row["at_us"] for row in rows) / 1e6, "until": max(row["at_us"] for row in rows) / 1e6 + 1e-6}
    made = xq.spark.report(spark, queue, **span, out=tmp_path / "report").tables["throughput"]
    what = [name for name in made.columns if name not in ("queue", "tube", "unit", "bucket")]
    found = made.selectExpr("queue", "coalesce(tube, '')", "unit", "unix_seconds(bucket)", *what).collect()
    assert all(sum(row[name] for row in found) for name in what)
    eventually(lambda: sum_of_stream(spark, queue, tmp_path, found[0].unit) == len(rows), PATIENCE)
    sql = f"SELECT queue, tube, unit, bucket, {', '.join(what)} FROM told_throughput"
    told = queue._meta.database.execute_sql(sql).fetchall()
    assert sorted(map(tuple, found)) == sorted((*row[:3], *map(int, row[3:])) for row in told if any(row[4:]))


def sum_of_stream(spark: SparkSession, Task: Any, folder: Path, unit: str) -> int:
    count(spark, Task, folder, unit=unit)
    return sum(counted(Task).values())


def is_killed_as_it_counts(db: pw.Database, tell: Any, folder: str) -> None:
    """What the driver does that is killed: its second batch is in the table, and Spark has not heard of that."""
    Task: Any = live(db)(FEATURES, roles=("tube",))
    add = Rollup.add

    def killed(tally: Rollup, stream: str, batch: int, *counted: Any) -> bool:
        found = add(tally, stream, batch, *counted)
        if batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Rollup.add = killed  # type: ignore[assignment,method-assign]
    spark = xq.spark.session(master="local[1]", driver_memory="512m", sql_shuffle_partitions=1)
    xq.spark.stream(spark, Task, "told", str(Path(folder, "checkpoint")), max_rows=4, every=0.1).awaitTermination()


def test_a_stream_whose_driver_is_killed_counts_each_transition_once(spark, queue, tmp_path):
    busy(queue)
    with driver(queue._meta.database, is_killed_as_it_counts, str(tmp_path)) as process:
        assert process.join() == -signal.SIGKILL
    assert 4 < sum(counted(queue).values()) < len(queue.xq.history())
    busy(queue)
    eventually(lambda: is_current(spark, queue, tmp_path), PATIENCE)
