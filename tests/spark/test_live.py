"""Streams into the database of a queue: each batch once, whatever is killed when."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import peewee as pw
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import xq
from tests.conftest import Maker
from tests.factories import task
from tests.spark.drivers import driver

FEATURES = {"keep": True, "buried": True, "history": True}


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


def test_each_batch_is_written_once(spark, make_shared, tmp_path):
    Task = make_shared()
    files(tmp_path / "in", 2)
    seen: list[int] = []

    def write(rows: Any) -> None:
        seen.append(len(rows))
        Task.xq.put_many([task(name=row["value"]) for row in rows])
        if fails:
            raise ZeroDivisionError

    sink = xq.spark.once(Task, "names", write)

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


def test_what_is_read_is_read_before_the_transaction(spark, make_shared, tmp_path):
    Task = make_shared()
    files(tmp_path / "in", 1)

    def read(batch: DataFrame) -> int:
        assert not Task.xq.store.in_transaction()
        return batch.count()

    def write(n: int) -> None:
        assert Task.xq.store.in_transaction()
        Task.xq.put(task(name=str(n)))

    run(one_by_one(spark, tmp_path / "in"), xq.spark.once(Task, "names", write, read), tmp_path / "checkpoint")
    assert names(Task) == ["1"]


def test_a_batch_is_of_a_stream(spark, make_shared):
    Task = make_shared()
    with pytest.raises(xq.BadValue, match="foreachBatch"):
        xq.spark.once(Task, "names", print)(spark.range(1), 0)
    for write, read in ((None, print), (print, 5)):
        with pytest.raises(xq.BadType):
            xq.spark.once(Task, "names", write, read)  # type: ignore[arg-type]


def is_killed_after_its_second_commit(db: pw.Database, tell: Any, folder: str) -> None:
    """What the driver does that is killed: what it has written is known to the database, and not to Spark."""
    Task: Any = Maker(db, None)()
    sink = xq.spark.once(Task, "names", lambda rows: Task.xq.put_many([task(name=row["value"]) for row in rows]))

    def killed(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = xq.spark.session(master="local[1]", driver_memory="512m")
    run(one_by_one(spark, Path(folder, "in")), killed, Path(folder, "checkpoint"))


def test_a_driver_that_is_killed_has_written_its_batches_once(spark, make_shared, tmp_path):
    Task = make_shared()
    files(tmp_path / "in", 3)
    with driver(make_shared.db, is_killed_after_its_second_commit, str(tmp_path)) as process:
        assert process.join() == -signal.SIGKILL
    assert names(Task) == ["0", "1"]
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()

    def write(rows: Any) -> None:
        Task.xq.put_many([task(name=row["value"]) for row in rows])

    run(one_by_one(spark, tmp_path / "in"), xq.spark.once(Task, "names", write), tmp_path / "checkpoint")
    assert names(Task) == ["0", "1", "2"]
