"""Streams into the database of a queue, each batch once; and one that counts what queues do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from xq.adapters.spark.moves import UNITS
from xq.adapters.spark.queues import check_session, named, queue_of
from xq.adapters.spark.source import options
from xq.core.errors import BadType, BadValue, shown
from xq.pipeline.checkpoints import Counted

NAME = 160  # characters of the name of a queue, for which the table has room
STREAM = "sql.streaming.queryId"  # where Spark tells whose batch it is


def write_batch(
    queue: object,
    sink: str,
    write: Callable[[Any], object],
    read: Callable[[DataFrame], Any] = DataFrame.collect,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes each batch once, whatever is killed when.

    `df.writeStream.foreachBatch(xq.spark.write_batch(Page, "totals", write))`, with the option "checkpointLocation".
    `write(read(batch))` writes into the database of the queue, by this thread's connection of the ORM: what it writes
    is one transaction with a note that `sink` has the batch, and a batch that is noted is passed by. `read` runs before
    the transaction, so Spark works there; it has all rows collected, unless you make less of them. `write` is called
    again after a deadlock.

    What the batches of another checkpoint would do twice is refused (BadValue): give a sink that begins anew another
    name. So do where a checkpoint was restored from a backup: the numbers of its next batches are those of batches that
    the sink has, whatever is in them now. Raises BadType, and ConfigurationError for a database in memory.
    """
    handle = queue_of(queue)
    handle.adapter.store.address()  # a batch comes in a thread of its own, which has another database in memory
    for name, function in {"write": write, "read": read}.items():
        if not callable(function):
            raise BadType(f"{name} is a function, not {shown(function)}")

    def batch(frame: DataFrame, number: int) -> None:
        found = read(frame)
        handle.pipeline.write_batch(sink, _stream(frame), number, lambda: write(found))

    return batch


def _stream(frame: DataFrame) -> str:
    """The id of the stream that a batch is of: that of its checkpoint."""
    found = frame.sparkSession.sparkContext.getLocalProperty(STREAM)
    if found is None:
        raise BadValue("a batch is of a stream: call this by foreachBatch")
    return str(found)


def stream(
    spark: SparkSession,
    queues: object,
    table: str,
    checkpoint: str | os.PathLike[str],
    *,
    unit: str = "minute",
    every: float = 1.0,
    available_now: bool = False,
    max_rows: int = 100_000,
) -> StreamingQuery:
    """Keep in a table how often each transition was in each unit of time, from the history of queues of one database.

    `table` is made in that database, where it is not there: queue, tube ("" for none), unit, bucket (when it begins, in
    seconds since 1970), source, target (letters of states), event, n; all but n are its key. `table`_throughput is a
    view of it: queue, tube, unit, bucket, put, taken, done, buried, killed, expired, as a report has them.

    `queues` are models or tubes, one or several, with the feature history; or a mapping, whose keys are what the column
    queue says. `unit` is second, minute, hour or day. It is looked for news `every` so many seconds; with
    `available_now` the stream ends when it has counted what is there. `max_rows` of the history, of each queue, are
    read at once.

    Each transition is counted once, whatever is killed when, as long as the stream goes on with its `checkpoint` (not
    with a copy of before) and the history is not forgotten before it is read. Other queues need another table, and
    another checkpoint. A table without its checkpoint, or the other way round, is refused (BadValue): drop the table as
    well. Returns the running query. Raises FeatureOff, BadType, BadValue, and ConfigurationError for a database in
    memory, and for a table that is there and is no such one.
    """
    check_session(spark)
    several = named(queues)
    _check(several, checkpoint, unit, every, max_rows)
    handles = [queue_of(queue) for queue in several.values()]
    if any(handle.adapter.store.address() != handles[0].adapter.store.address() for handle in handles):
        raise BadValue("the queues are in several databases: start a stream for each of them")
    rollup = handles[0].pipeline.rollup(table)
    length = UNITS[unit]
    bucket = F.expr(f"at_us div {length * 1_000_000} * {length}").alias("bucket")

    def history(name: str, queue: object) -> DataFrame:
        told = spark.readStream.format("xq").options(**options(queue, "history"), maxRows=str(max_rows)).load()
        tube = F.coalesce("tube", F.lit("")).alias("tube")
        return told.select(
            F.lit(name).alias("queue"), tube, F.lit(unit).alias("unit"), bucket, "source", "target", "event"
        )

    def count(frame: DataFrame, number: int) -> None:
        rows = frame.groupBy(*Counted._fields[:-1]).count().collect()
        rollup.add(_stream(frame), number, [Counted(*row) for row in rows], whose)

    # In one order: by it a checkpoint knows which offsets are whose, and would give those of a queue to another.
    whose = repr([(name, queue_of(several[name]).pipeline.extract("history").relation) for name in sorted(several)])
    whole = reduce(DataFrame.unionAll, (history(name, several[name]) for name in sorted(several)))
    rollup.install(whose)
    writer = whole.writeStream.foreachBatch(count).option("checkpointLocation", os.fspath(checkpoint))
    when: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": f"{every:.6f} seconds"}
    return writer.trigger(**when).start()


def _check(several: Mapping[str, object], checkpoint: object, unit: object, every: object, max_rows: object) -> None:
    """Raise what is wrong with a stream, before anything is made."""
    if long := next((name for name in several if len(name) > NAME), None):
        raise BadValue(f"a queue is named by up to {NAME} characters, not by {shown(long)}: give a mapping of names")
    if not isinstance(checkpoint, (str, os.PathLike)):
        raise BadType(f"checkpoint is the path of a folder, not {shown(checkpoint)}")
    if not isinstance(unit, str) or unit not in UNITS:
        raise BadValue(f"unit is {', '.join(UNITS)}, not {shown(unit)}")
    if isinstance(every, bool) or not isinstance(every, (int, float)) or not 0 < every < 1e9:
        raise BadValue(f"every is a number of seconds above 0, not {shown(every)}")
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or not 0 < max_rows < 2**63:
        raise BadValue(f"max_rows is a whole number above 0, not {shown(max_rows)}")
