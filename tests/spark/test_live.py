"""Streams into the database of a queue: each batch once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import xq
from tests.conftest import live
from tests.factories import task
from tests.spark.counts import FEATURES, busy, count, counted, is_current, of_history
from tests.steps import PATIENCE, eventually
from tests.support.console import consoles, visitor  # noqa: F401
from xq import serve


def files(folder: Path, n: int) -> None:
    """So many files of one line each: 0, 1, 2 ..."""
    folder.mkdir(exist_ok=True)
    for i in range(n):
        folder.joinpath(f"{i}.txt").write_text(f"{i}\n")
        os.utime(folder / f"{i}.txt", (i, i))


def one_by_one(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream with a batch for each file."""
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def run(batches: DataFrame, function: Any, checkpoint: Path) -> None:
    """Run a stream over what is there."""
    writer = batches.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def names(Task: Any) -> list[str]:
    return sorted(found.name for found in Task.select())


def test_each_batch_is_written_once(spark, make_live, tmp_path):
    Task = make_live()
    files(tmp_path / "in", 2)
    seen: list[int] = []

    def write(rows: Any) -> None:
        seen.append(len(rows))
        Task.xq.put_many([task(name=row["value"]) for row in rows])
        if fails:
            raise ZeroDivisionError

    sink = xq.spark.write_batch(Task, "names", write)

    def twice(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        sink(batch, number)

    fails = True
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        run(one_by_one(spark, tmp_path / "in"), twice, tmp_path / "checkpoint")
    assert names(Task) == []
    fails = False
    run(one_by_one(spark, tmp_path / "in"), twice, tmp_path / "checkpoint")
    assert (names(Task), seen) == (["0", "1"], [1, 1, 1])
    with pytest.raises(StreamingQueryException, match="another checkpoint"):
        run(one_by_one(spark, tmp_path / "in"), sink, tmp_path / "another")
    assert names(Task) == ["0", "1"]


def test_what_is_read_is_read_before_the_transaction(spark, make_live, tmp_path):
    Task = make_live()
    files(tmp_path / "in", 1)

    def read(batch: DataFrame) -> int:
        assert not Task.xq.adapter.store.in_transaction()
        return batch.count()

    def write(n: int) -> None:
        assert Task.xq.adapter.store.in_transaction()
        Task.xq.put(task(name=str(n)))

    run(one_by_one(spark, tmp_path / "in"), xq.spark.write_batch(Task, "names", write, read), tmp_path / "checkpoint")
    assert names(Task) == ["1"]


def test_a_batch_is_of_a_stream(spark, make_live):
    Task = make_live()
    with pytest.raises(xq.BadValue, match="foreachBatch"):
        xq.spark.write_batch(Task, "names", print)(spark.range(1), 0)
    for write, read in ((None, print), (print, 5)):
        with pytest.raises(xq.BadType):
            xq.spark.write_batch(Task, "names", write, read)  # type: ignore[arg-type]


def test_what_is_in_memory_is_no_sink():
    Task = live(pw.SqliteDatabase(":memory:"))()
    with pytest.raises(xq.ConfigurationError, match="in memory"):
        xq.spark.write_batch(Task, "names", print)
    Task._meta.database.close()


# what queues do


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


def test_the_console_shows_what_a_stream_has_counted(spark, queue, tmp_path):
    busy(queue)
    eventually(lambda: is_current(spark, queue, tmp_path), PATIENCE)
    page = visitor(serve.app([queue], activity="told")).get("/q/Task/activity").text
    shown = re.findall(r"<b>(\d+)</b><span>(put|done|buried|killed|expired)</span><svg", page)
    assert shown == [("5", "put"), ("1", "done"), ("1", "buried"), ("1", "killed"), ("0", "expired")]


def test_several_queues_are_counted_in_one_table(spark, make_live, tmp_path):
    one = make_live(FEATURES, roles=("tube",))
    two = make_live({"history": True}, model=make_live.model(table_name="another"))
    busy(one)
    two.put(task())
    put = ("second", "second", "X", "R", "put")

    def is_there() -> bool:
        count(spark, {"first": one, "second": two.xq}, tmp_path, unit="second")
        return counted(one, "queue, unit, source, target, event").get(put) == 1

    eventually(is_there, PATIENCE)
    assert {name for (name,) in counted(one, "queue")} == {"first", "second"}


def test_a_stream_goes_on_until_it_is_stopped(spark, queue, tmp_path):
    query = xq.spark.stream(spark, queue, "told", str(tmp_path), every=0.1)
    try:
        for _ in range(2):
            busy(queue)
            eventually(lambda: query.exception() is not None or counted(queue) == of_history(queue), PATIENCE)
        assert query.exception() is None
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"queues": []}, xq.BadValue),
        ({"queues": 5}, xq.BadType),
        ({"table": ""}, xq.BadValue),
        ({"queues": {"q" * 161: "it"}}, xq.BadValue),
        ({"spark": None}, xq.BadType),
        ({"checkpoint": None}, xq.BadType),
        ({"unit": "week"}, xq.BadValue),
        ({"unit": []}, xq.BadValue),
        ({"every": 0}, xq.BadValue),
        ({"every": float("inf")}, xq.BadValue),
        ({"max_rows": 1e5}, xq.BadValue),
        ({"max_rows": True}, xq.BadValue),
    ],
)
def test_a_stream_that_cannot_be_is_refused(spark, queue, tmp_path, wrong, error):
    given: dict[str, Any] = {"spark": spark, "queues": queue, "table": "told", "checkpoint": str(tmp_path), **wrong}
    if isinstance(given["queues"], dict):
        given["queues"] = dict.fromkeys(given["queues"], queue)
    with pytest.raises(error):
        xq.spark.stream(**given)
    assert not {"told", "xq_sink"} & {*queue._meta.database.get_tables()}


def test_a_table_of_something_else_is_refused_before_a_stream_begins(spark, queue, tmp_path):
    queue.put(task())
    with pytest.raises(xq.ConfigurationError, match="task is there, and no table of stream"):
        xq.spark.stream(spark, queue, "task", str(tmp_path / "checkpoint"))
    assert not spark.streams.active
    assert not (tmp_path / "checkpoint").exists()


def test_what_a_stream_cannot_read_is_refused(spark, make_live, tmp_path, another_database):
    Task = make_live()
    with pytest.raises(xq.FeatureOff):
        xq.spark.stream(spark, Task, "told", str(tmp_path))
    one = make_live({"history": True}, model=make_live.model(table_name="one"))
    with another_database() as elsewhere:
        two = live(elsewhere)({"history": True})
        with pytest.raises(xq.BadValue, match="several databases"):
            xq.spark.stream(spark, {"one": one, "two": two}, "told", str(tmp_path))


def test_a_stream_of_other_queues_is_refused_before_it_begins(spark, make_live, tmp_path):
    one, two, three = (
        make_live({"history": True}, model=make_live.model(table_name=name)) for name in ("one", "two", "three")
    )
    one.put(task())

    def is_there(n: int) -> bool:
        count(spark, {"two": two, "one": one}, tmp_path)
        return sum(counted(one).values()) == n

    assert eventually(lambda: is_there(1), PATIENCE)
    for queues in ({"one": one, "three": three}, {"one": one, "two": three}, one):
        with pytest.raises(xq.BadValue, match="counts other queues"):
            xq.spark.stream(spark, queues, "told", str(tmp_path / "checkpoint"))
    two.put(task())
    assert eventually(lambda: is_there(2), PATIENCE)
