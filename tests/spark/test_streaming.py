"""The history as a stream: nothing lost and nothing doubled, whoever writes meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.errors import PySparkException

import xq
from tests.factories import task, tasks
from tests.spark.sinks import Sink, drain, told
from tests.steps import eventually, put_late


def has_all(spark: Any, queue: Any, sink: Sink) -> bool:
    """Whether each row was read once. On MariaDB a number that no row has may be of one to come, for two seconds."""
    drain(spark, queue, sink)
    return sink.rows() == told(queue)


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


def test_what_is_committed_late_is_read_all_the_same(spark, make_live, tmp_path):
    Task = make_live({"history": True})
    sink = Sink(tmp_path / "sink")
    Task.put(task())
    with put_late(Task):
        if make_live.db.__class__.__name__ != "SqliteDatabase":  # where nobody else writes meanwhile
            Task.xq.put_many(tasks(3))
        drain(spark, Task, sink)
    eventually(lambda: has_all(spark, Task, sink))
    assert len({row[0] for row in sink.rows()}) == len(sink.rows())


def test_writers_at_once_lose_nothing(spark, make_live, tmp_path):
    Task = make_live({"history": True})
    Task.xq.install()
    sink = Sink(tmp_path / "sink")

    def write(n: int) -> None:
        for i in range(15):
            with make_live.db.atomic() as transaction:
                Task.xq.put_many(tasks(3))
                Task.take()
                if i % 5 == n:
                    transaction.rollback()
        make_live.db.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        drain(spark, Task, sink, maxRows=40)
    for thread in threads:
        thread.join()
    eventually(lambda: has_all(spark, Task, sink))


@pytest.mark.parametrize("n", [1, 9])
def test_a_stream_of_a_history_that_began_anew_stops_with_an_error_or_reads_all_of_it(spark, make_live, tmp_path, n):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(3))
    sink = Sink(tmp_path / "sink")
    eventually(lambda: has_all(spark, Task, sink))
    Task.xq.uninstall()
    Task.xq.install()
    Task.xq.put_many(tasks(n))
    if "Postgres" in make_live.db.__class__.__name__:
        drain(spark, Task, sink)
        assert sink.sizes() == [3, n]
        return
    with pytest.raises(PySparkException, match="begun anew"):
        drain(spark, Task, sink)
    assert sink.sizes() == [3]


def test_only_the_history_is_a_stream(spark, make_live, tmp_path):
    read = spark.readStream.format("xq").options(**xq.spark.options(make_live())).load()
    with pytest.raises(PySparkException, match="a stream of its history, .*, not of its "):
        read.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
