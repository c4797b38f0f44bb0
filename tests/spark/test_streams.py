"""Streams of the history of queues: each row once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import xq
from tests.factories import task, tasks
from tests.spark.sinks import Sink, drain, told
from tests.steps import PATIENCE, eventually

# what queues do

FEATURES = {"keep": True, "buried": True, "history": True}


def count(spark: SparkSession, queues: Any, folder: Path, **options: Any) -> None:
    """Have the table told hold what the history tells now, or, on MariaDB, told two seconds ago."""
    query = xq.spark.stream(spark, queues, "told", str(folder / "checkpoint"), available_now=True, **options)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def counted(Task: Any, columns: str = "queue, tube, unit, source, target, event") -> dict[tuple[Any, ...], int]:
    found = Task._meta.database.execute_sql(f"SELECT {columns}, SUM(n) FROM told GROUP BY {columns}").fetchall()
    return {tuple(row[:-1]): int(row[-1]) for row in found}


def of_history(Task: Any) -> dict[tuple[Any, ...], int]:
    rows = Task.xq.history()
    return Counter(("Task", row.tube or "", "minute", row.source, row.target, row.event) for row in rows)


def is_current(spark: SparkSession, Task: Any, folder: Path, **options: Any) -> bool:
    count(spark, Task, folder, **options)
    return counted(Task) == of_history(Task)


def busy(Task: Any) -> None:
    """Each kind of transition that the queue has."""
    Task.xq.put_many([*tasks(3, tube="a"), task(tube="\U0001f986 'b'"), task()])
    done, buried, back, killed, _ = Task.xq.take_many(5)
    Task.ack(done)
    Task.bury(buried)
    Task.release(back)
    Task.kill(killed)


@pytest.fixture
def queue(make_live):
    return make_live(FEATURES, roles=("tube",))


def test_a_table_is_kept_of_what_a_queue_does(spark, queue, tmp_path):
    busy(queue)
    eventually(lambda: is_current(spark, queue, tmp_path, max_rows=4), PATIENCE)
    busy(queue)
    eventually(lambda: is_current(spark, queue, tmp_path), PATIENCE)
    assert sum(counted(queue).values()) == len(queue.xq.history()) > 20
    buckets = {bucket for (bucket,) in counted(queue, "bucket")}
    assert buckets == {row.at_us // 60_000_000 * 60 for row in queue.xq.history()}
    sums = "SUM(put), SUM(taken), SUM(done), SUM(buried), SUM(killed), SUM(expired)"
    throughput = queue._meta.database.execute_sql(f"SELECT {sums} FROM told_throughput").fetchone()
    assert [int(n) for n in throughput] == [10, 10, 2, 2, 2, 0]
    with pytest.raises(StreamingQueryException, match="another checkpoint"):
        count(spark, queue, tmp_path / "another")
    assert counted(queue) == of_history(queue)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"queues": []}, xq.BadValue),
        ({"queues": 5}, xq.BadType),
        ({"table": ""}, xq.BadValue),
        ({"spark": None}, xq.BadType),
        ({"checkpoint": None}, xq.BadType),
        ({"unit": "week"}, xq.BadValue),
        ({"every": 0}, xq.BadValue),
        ({"every": float("inf")}, xq.BadValue),
        ({"table": "task"}, xq.ConfigurationError),
        ({"max_rows": True}, xq.BadValue),
    ],
)
def test_a_stream_that_cannot_be_is_refused(spark, queue, tmp_path, wrong, error):
    given: dict[str, Any] = {"spark": spark, "queues": queue, "table": "told", "checkpoint": str(tmp_path), **wrong}
    with pytest.raises(error):
        xq.spark.stream(**given)
    assert "told" not in queue._meta.database.get_tables()
    assert not spark.streams.active


# the history as a stream: nothing lost and nothing doubled, whoever writes meanwhile


def test_batches_have_as_many_rows_as_they_may_and_each_row_once(spark, make_live, tmp_path):
    Task = make_live({"history": True})
    sink = Sink(tmp_path / "sink")
    drain(spark, Task, sink)
    assert sink.rows() == []
    Task.xq.put_many(tasks(5))  # as one transaction
    Task.ack(Task.take())
    drain(spark, Task, sink, maxRows=3, columns="id,key,source,target,dur_us")
    assert sink.sizes() == [3, 3, 1]
    Task.xq.put_many(tasks(2))
    drain(spark, Task, sink, partitions=2)
    assert sink.rows() == told(Task)
    timed = {row.id: row.dur_us for row in Task.xq.history()}
    assert dict(sink.rows("id, dur_us")[:7]) == dict(list(timed.items())[:7])


def test_only_the_history_is_a_stream(spark, make_live, tmp_path):
    read = spark.readStream.format("xq").options(**xq.spark.options(make_live())).load()
    with pytest.raises(PySparkException, match="a stream of its history, .*, not of its "):
        read.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
