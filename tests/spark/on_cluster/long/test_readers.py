"""Each reader on a cluster: what it finds is what the table and its history hold."""

from __future__ import annotations

import json
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import live
from tests.factories import tasks
from tests.spark.cluster import Cluster
from tests.spark.drivers import driver

FEATURES = {"keep": True, "buried": True, "history": True}
TASKS = 100


@pytest.fixture
def found(workers, make_live):
    """What each reader finds: the numbers of its rows."""
    queue = make_live(FEATURES)
    queue.xq.put_many(tasks(TASKS))
    queue.xq.ack_many(queue.xq.take_many(10))
    with driver(make_live.db, reads, workers) as process:
        return json.loads(process.told() or "null")


def test_each_reader_finds_what_is_there(found):
    assert found == {
        "tasks": TASKS,
        "where": 5,
        "history": TASKS + 2 * 10,
        "dur_us": 2 * 10,
        "stats": 3,
        "live": TASKS - 10,
        "buried": 0,
        "snapshot": TASKS,
        "jdbc": TASKS,
        "jdbc history": TASKS + 2 * 10,
    }


def reads(db: pw.Database, tell: Any, workers: Cluster) -> None:
    """What the driver does."""
    Task, spark = live(db)(FEATURES), workers.session()
    of = xq.spark.options

    def n(options: dict[str, str], **more: Any) -> int:
        return spark.read.format("xq").options(**options, **more).load().count()

    history = spark.read.format("xq").options(**of(Task, "history"), dur_us="true", partitions=4).load()
    with xq.spark.snapshot(Task) as moment:
        snapshot = n(of(Task, snapshot=moment), partitions=4 if moment else 1)
    found = {
        "tasks": n(of(Task)),
        "where": n(of(Task, where=[("id", "<=", 5)])),
        "history": n(of(Task, "history"), partitions=4),
        "dur_us": history.where("dur_us IS NOT NULL").count(),
        "stats": spark.read.format("xq").options(**of(Task, "stats")).load().where("n > 0").count(),
        "live": n(of(Task, "live")),
        "buried": n(of(Task, "buried")),
        "snapshot": snapshot,
        "jdbc": xq.spark.jdbc(spark, Task).count(),
        "jdbc history": xq.spark.jdbc(spark, Task, "history", partitions=4).count(),
    }
    tell(json.dumps(found))
