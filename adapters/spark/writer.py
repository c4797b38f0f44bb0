"""df.write.format("xq"): rows of a frame are put as tasks, once for each job."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from xq import BadValue
from xq.bulk import Bulk, Job, Staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


def written(bulk: Bulk) -> str:
    """A bulk put as an option; its password is none of it."""
    return base64.b64encode(pickle.dumps(replace(bulk, address=replace(bulk.address, password=None)))).decode()


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """Raises BadValue, FeatureOff and NotInstalled before anything is staged."""
    if overwrite:
        raise BadValue("format('xq') puts tasks, and overwrites none: write with mode('append')")
    bulk: Bulk = pickle.loads(base64.b64decode(options["bulk"]))
    bulk = replace(bulk, address=replace(bulk.address, password=options.get("password")))
    return Writer(bulk.begin(schema.names, options.get("job") or None))


@dataclass
class Message(WriterCommitMessage):
    staged: Staged


class Writer(DataSourceArrowWriter):
    """Made once for a job on the driver's machine; `write` runs in each task, on a copy."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> Message:
        task = TaskContext.get()
        parts = ([column.to_pylist() for column in batch.columns] for batch in iterator)
        return Message(self.job.stage(parts, order=task.partitionId() if task else 0))

    def commit(self, messages: Sequence[Any]) -> None:
        self.job.commit([message.staged for message in messages if message])

    def abort(self, messages: Sequence[Any]) -> None:
        self.job.abort()
