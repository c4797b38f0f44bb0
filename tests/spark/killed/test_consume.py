"""The tasks of a driver that is killed while it works are ready again."""

from __future__ import annotations

import sys
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import live
from tests.factories import tasks
from tests.spark.drivers import driver
from tests.steps import eventually, transitions

QUEUE: dict[str, Any] = {
    "features": {"keep": True, "buried": True},
    "roles": ("runat", "error"),
    "attributes": {"error": pw.TextField(null=True)},
}


@pytest.fixture
def queue(make_live):
    return make_live(**QUEUE)


def test_a_driver_that_is_killed_has_all_given_back(queue):
    assert queue.take() is None  # from here on this process looks who lives
    queue.xq.put_many(tasks(10))
    with driver(queue._meta.database, works_for_ever) as process:
        assert process.told() == "working"
        assert queue.xq.count("T") == 10
        process.kill()
        eventually(lambda: queue.xq.count("R") == 10)
    assert transitions(queue) == {"X-R": 10, "R-T": 10, "T-R": 10}


def works_for_ever(db: pw.Database, tell: Any) -> None:
    """What the driver does that is killed."""
    Task = live(db)(**QUEUE)

    def work(df: Any) -> Any:
        tell("working")
        sys.stdin.read()

    spark = xq.spark.session(master="local[1]", driver_memory="512m", sql_shuffle_partitions=1)
    xq.spark.consume(spark, Task, work)
