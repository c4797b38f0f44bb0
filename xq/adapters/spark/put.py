"""Put a DataFrame's rows as tasks, by a job whose number of partitions is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from xq.adapters.spark.errors import raised_as_xq
from xq.adapters.spark.queues import check_session, context_of, not_connected
from xq.adapters.spark.source import options
from xq.api import queue_of
from xq.core.errors import BadValue, shown
from xq.pipeline.bulk import Recorded


def put(
    spark: SparkSession,
    queue: object,
    frame: DataFrame,
    job: str | None = None,
    partitions: int | None = None,
    on_conflict: Literal["raise", "skip"] = "raise",
    on_done: Literal["skip", "raise"] = "skip",
    by: Sequence[str] = (),
) -> Recorded | None:
    """Put each row of a frame as a task, as `format("xq")` does.

    A job with a name is put once, however often it runs: each run puts the partitions that are missing. They are the
    frame's; with `partitions` the rows are spread over so many by their values, the same in each run on any cluster:
    by those of the columns `by`, else of all. So a mended row stays in its partition if `by` names its key.
    A run with another number is refused before it puts a row. If the job is complete, nothing is put, and the log says
    so at WARNING; with on_done="raise" that is an Error.

    Returns the record of a named job. Raises the errors of `Page.xq.pipeline.bulk().begin` and of its `put`, and
    BadValue for rows that the table refuses.
    """
    handle, by = queue_of(queue), [by] if isinstance(by, str) else [*by]
    if by and (not partitions or not {*by} <= {*frame.columns}):
        raise BadValue(f"by= has columns of the frame, {shown(frame.columns)}, and needs partitions=: not {shown(by)}")
    check_session(spark, handle)
    given, pipeline = options(queue) | {"on_conflict": on_conflict}, handle.pipeline
    if partitions:
        frame = frame.repartition(partitions, *(f"`{name.replace('`', '``')}`" for name in by or frame.columns))
    if job is not None:
        before = pipeline.job(job)
        if not partitions and not (before and before.complete):
            if context_of(spark) is None:
                raise not_connected("jobs with a name, without partitions=,")
            partitions = frame.rdd.getNumPartitions() or 1
        begun = pipeline.bulk(on_conflict=on_conflict).begin(frame.columns, job, partitions, on_done)
        if before and before.complete:
            return before
        given |= {"job": job, "partitions": str(partitions)}
    with raised_as_xq():
        frame.write.format("xq").options(**given).mode("append").save()
    if job is None:
        return None
    begun.log.info("%s", found := pipeline.job(job))
    return found


def read(spark: SparkSession, queue: object, file: str, format: str, given: Mapping[str, str]) -> DataFrame:
    """Return a file as a frame. That of CSV gets the types of the queue's fields, and numbers for put's options."""
    frame = spark.read.format(format).options(**{"header": "true", **given}).load(file)
    if format != "csv":
        return frame
    fields = spark.read.format("xq").options(**options(queue)).load().schema.fields
    types: dict[str, Any] = {field.name: field.dataType for field in fields}
    return frame.withColumns({name: frame[name].cast(types.get(name, "double")) for name in frame.columns})
