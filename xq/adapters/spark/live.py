"""Count queues' transitions in a table in their database, by streaming their history."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from xq.adapters.spark.queues import check_session, context_of, named, not_connected
from xq.adapters.spark.source import options
from xq.api import queue_of
from xq.core.errors import BadType, BadValue, is_integer, is_number, shown
from xq.pipeline.rollup import UNITS, Counted

NAME = 160  # characters in a queue's name in the table
STREAM = "sql.streaming.queryId"  # where Spark stores the id of a batch's stream


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
    """Keep a table that counts how often each transition occurred per time unit, from queues' history in one database.

    `table` is created in that database. Its columns are queue, tube ("" for none), unit, bucket (its start, in seconds
    since 1970), source, target (state letters), event and n; all but n are its key. The view `table`_throughput has
    queue, tube, unit, bucket, put, taken, done, buried, killed, expired, as in a report.

    `queues` is a model or tube with the feature history, several such, or a mapping from the names in the column
    queue. `unit` is second, minute, hour or day. The stream looks for new rows every `every` seconds; with
    `available_now` it ends after counting the present rows. It reads up to `max_rows` from each history at once.

    Each transition is counted once, even if processes are killed, as long as the stream keeps its `checkpoint` (not an
    older copy) and the history is not deleted before it is read. Other queues need another table and another
    checkpoint. A table without its checkpoint, or a checkpoint without its table, raises BadValue: drop both.

    Returns the running query. Raises FeatureOff, BadType, BadValue, and ConfigurationError for an in-memory database,
    for an existing table with other columns, and with Spark Connect.
    """
    several = named(queues)
    _check(several, checkpoint, unit, every, max_rows)
    handles = [queue_of(queue) for queue in several.values()]
    check_session(spark, *handles)
    if context_of(spark) is None:
        raise not_connected("streams into a table")
    if any(handle.parts.store.address() != handles[0].parts.store.address() for handle in handles):
        raise BadValue("the queues are in several databases: start a stream for each of them")
    rollup = handles[0].pipeline.rollup(table)
    length = UNITS[unit]
    bucket = F.expr(f"at_us div {length * 1_000_000} * {length}").alias("bucket")

    def history(name: str, queue: object) -> DataFrame:
        rows = spark.readStream.format("xq").options(**options(queue, "history"), maxRows=str(max_rows)).load()
        tube = F.coalesce("tube", F.lit("")).alias("tube")
        return rows.select(
            F.lit(name).alias("queue"), tube, F.lit(unit).alias("unit"), bucket, "source", "target", "event"
        )

    def count(frame: DataFrame, number: int) -> None:
        rows = frame.groupBy(*Counted._fields[:-1]).count().collect()
        stream = str(frame.sparkSession.sparkContext.getLocalProperty(STREAM))
        rollup.add(stream, number, [Counted(*row) for row in rows], whose)

    # Sorted: a checkpoint assigns its offsets to the queues by their order.
    whose = repr([(name, queue_of(several[name]).pipeline.extract("history").relation) for name in sorted(several)])
    rows = reduce(DataFrame.unionAll, (history(name, several[name]) for name in sorted(several)))
    rollup.install(whose)
    writer = rows.writeStream.foreachBatch(count).option("checkpointLocation", os.fspath(checkpoint))
    when: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": f"{every:.6f} seconds"}
    return writer.trigger(**when).start()


def _check(several: Mapping[str, object], checkpoint: object, unit: object, every: object, max_rows: object) -> None:
    if long := next((name for name in several if len(name) > NAME), None):
        raise BadValue(f"a queue is named by up to {NAME} characters, not by {shown(long)}: give a mapping of names")
    if not isinstance(checkpoint, (str, os.PathLike)):
        raise BadType(f"checkpoint is the path of a folder, not {shown(checkpoint)}")
    if not isinstance(unit, str) or unit not in UNITS:
        raise BadValue(f"unit is {', '.join(UNITS)}, not {shown(unit)}")
    if not is_number(every) or not 0 < every < 1e9:
        raise BadValue(f"every is a number of seconds above 0, not {shown(every)}")
    if not is_integer(max_rows) or not 0 < max_rows < 2**63:
        raise BadValue(f"max_rows is a whole number above 0, not {shown(max_rows)}")
