"""df.write.format("xq"): put the rows of a frame as tasks, all or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from xq.core.errors import BadValue
from xq.pipeline.bulk import Bulk, Job, Staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


def writer(bulk: Bulk, options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """Return the writer. Raises the errors of invalid options and columns before anything is staged."""
    if overwrite:
        raise BadValue("format('xq') puts tasks and overwrites none: write with mode('append')")
    bulk = replace(bulk, on_conflict=options.get("on_conflict", bulk.on_conflict))
    return Writer(bulk.begin(schema.names, options.get("job")))


@dataclass
class Message(WriterCommitMessage):
    """The message of a partition's attempt. Spark keeps that of one attempt of several."""

    staged: Staged


class Writer(DataSourceArrowWriter):
    """Stages the rows in the workers, and puts them in the driver process."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> Message:
        task = TaskContext.get()
        assert task is not None
        parts = ([column.to_pylist() for column in batch.columns] for batch in iterator)
        return Message(self.job.stage(parts, order=task.partitionId()))

    def commit(self, messages: Sequence[Any]) -> None:
        self.job.commit(message.staged for message in messages if message)

    def abort(self, messages: Sequence[Any]) -> None:
        self.job.abort()
