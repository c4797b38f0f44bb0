"""df.write.format("xq"): put the rows of a frame as tasks, each partition in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from xq.core.errors import BadValue
from xq.pipeline.bulk import Bulk, Job

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


def writer(bulk: Bulk, options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """Return the writer. Raises the errors of invalid options and columns before anything is put."""
    if overwrite:
        raise BadValue("format('xq') puts tasks and overwrites none: write with mode('append')")
    bulk = replace(bulk, on_conflict=options.get("on_conflict", bulk.on_conflict))
    return Writer(bulk.begin(schema.names, options.get("job")))


@dataclass(frozen=True)
class Rows:
    """The rows of a partition, to iterate as often as it takes to put them."""

    batches: Sequence[RecordBatch]

    def __iter__(self) -> Iterator[list[list[Any]]]:
        for batch in self.batches:
            yield [column.to_pylist() for column in batch.columns]


@dataclass
class Writer(DataSourceArrowWriter):
    """Puts the partitions in the workers, and records in the driver process that all of them were put."""

    job: Job

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        task: Any = TaskContext.get()
        self.job.put(task.partitionId(), Rows(list(iterator)))
        return WriterCommitMessage()

    def commit(self, messages: Sequence[Any]) -> None:
        self.job.commit()
