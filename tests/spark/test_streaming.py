"""The history as a stream: nothing lost and nothing doubled, whoever writes meanwhile and whatever is killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import xq
from tests.factories import task, tasks
from tests.steps import eventually, put_late

COLUMNS = "id, key, source, target"


class Sink:
    """A file that keeps each batch once, as often as that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("CREATE TABLE IF NOT EXISTS row (batch, id, key, source, target, dur_us)")

    def write(self, df: Any, batch: int) -> None:
        columns = ["id", "key", "source", "target", *(["dur_us"] if "dur_us" in df.columns else [])]
        rows = [(batch, *row) for row in df.select(*columns).collect()]
        with closing(sqlite3.connect(self.path)) as file, file:
            file.execute("DELETE FROM row WHERE batch = ?", (batch,))
            marks = ", ".join("?" for _ in range(len(columns) + 1))
            file.executemany(f"INSERT INTO row (batch, {', '.join(columns)}) VALUES ({marks})", rows)

    def rows(self, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as file:
            return file.execute(f"SELECT {columns} FROM row ORDER BY id").fetchall()

    def sizes(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as file:
            return [n for (n,) in file.execute("SELECT COUNT(*) FROM row GROUP BY batch ORDER BY batch")]


def stream(spark: Any, options: dict[str, str], sink: Sink, **more: Any) -> Any:
    read = spark.readStream.format("xq").options(**options).options(**more).load()
    write = read.writeStream.option("checkpointLocation", str(sink.path) + ".checkpoint")
    return write.trigger(availableNow=True).foreachBatch(sink.write)


def drain(spark: Any, queue: Any, sink: Sink, **more: Any) -> None:
    """All that is there now."""
    query = stream(spark, xq.spark.options(queue, "history"), sink, **more).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def told(queue: Any) -> list[tuple[Any, ...]]:
    return sorted((row.id, row.key, row.source, row.target) for row in queue.xq.history())


def has_all(spark: Any, queue: Any, sink: Sink) -> bool:
    """Whether each row was read once. On MariaDB a number that no row has may be of one to come, for two seconds."""
    drain(spark, queue, sink)
    return sink.rows() == told(queue)


def test_batches_have_as_many_rows_as_they_may_and_each_row_once(spark, make_shared, tmp_path):
    Task = make_shared({"history": True})
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


def test_what_is_committed_late_is_read_all_the_same(spark, make_shared, tmp_path):
    Task = make_shared({"history": True})
    sink = Sink(tmp_path / "sink")
    Task.put(task())
    with put_late(Task):
        if make_shared.db.__class__.__name__ != "SqliteDatabase":  # where nobody else writes meanwhile
            Task.xq.put_many(tasks(3))
        drain(spark, Task, sink)
    eventually(lambda: has_all(spark, Task, sink))
    assert len({row[0] for row in sink.rows()}) == len(sink.rows())


def test_writers_at_once_lose_nothing(spark, make_shared, tmp_path):
    Task = make_shared({"history": True})
    Task.xq.install()
    sink = Sink(tmp_path / "sink")

    def write(n: int) -> None:
        for i in range(15):
            with make_shared.db.atomic() as transaction:
                Task.xq.put_many(tasks(3))
                Task.take()
                if i % 5 == n:
                    transaction.rollback()
        make_shared.db.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        drain(spark, Task, sink, maxRows=40)
    for thread in threads:
        thread.join()
    eventually(lambda: has_all(spark, Task, sink))


DRIVER = """
import os, signal, sys, threading
from pathlib import Path
import xq
from tests.spark.test_streaming import Sink, stream

class Killed(Sink):
    "Stops in its second batch, before that is written or after it."

    def write(self, df, batch):
        if batch == 1 and self.path.name == "before":
            both.wait()
        super().write(df, batch)
        if batch == 1:
            both.wait()

both = threading.Barrier(3)
extract, folder, *password = sys.argv[1:]
options = {"extract": extract, **({"password": password[0]} if password else {})}
spark = xq.spark.session(master="local[2]", driver_memory="512m", sql_shuffle_partitions=1)
for name in ("before", "after"):
    stream(spark, options, Killed(Path(folder, name)), maxRows=4).start()
both.wait()
os.killpg(0, signal.SIGKILL)
"""


def test_a_driver_that_is_killed_before_or_after_it_wrote_a_batch_loses_and_doubles_nothing(
    spark, make_shared, tmp_path, monkeypatch
):
    Task = make_shared({"history": True})
    Task.xq.put_many(tasks(10))
    with monkeypatch.context() as shared:
        shared.setenv("XQ_SPARK_KEY", "of this test and the driver")
        options = xq.spark.options(Task, "history")
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, options["extract"], str(tmp_path)], start_new_session=True, timeout=120
        )
    assert driver.returncode == -signal.SIGKILL
    before, after = Sink(tmp_path / "before"), Sink(tmp_path / "after")
    assert (before.sizes(), after.sizes()) == ([4], [4, 4])
    Task.xq.ack_many([taken.id for taken in Task.xq.take_many(10)])
    for sink in (before, after):
        drain(spark, Task, sink, maxRows=7)
        assert sink.rows() == told(Task)


@pytest.mark.parametrize("n", [1, 9])
def test_a_stream_of_a_history_that_began_anew_stops_with_an_error_or_reads_all_of_it(spark, make_shared, tmp_path, n):
    Task = make_shared({"history": True})
    Task.xq.put_many(tasks(3))
    sink = Sink(tmp_path / "sink")
    eventually(lambda: has_all(spark, Task, sink))
    Task.xq.uninstall()
    Task.xq.install()
    Task.xq.put_many(tasks(n))
    if "Postgres" in make_shared.db.__class__.__name__:
        drain(spark, Task, sink)
        assert sink.sizes() == [3, n]
        return
    with pytest.raises(PySparkException, match="begun anew"):
        drain(spark, Task, sink)
    assert sink.sizes() == [3]


def test_only_the_history_is_a_stream(spark, make_shared, tmp_path):
    read = spark.readStream.format("xq").options(**xq.spark.options(make_shared())).load()
    with pytest.raises(PySparkException, match="a stream of its history, .*, not of its "):
        read.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
