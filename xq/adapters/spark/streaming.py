"""Stream the history of a queue: each row once, in batches that a restart repeats unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from xq.adapters.spark.arrow import batches
from xq.core.errors import BadValue
from xq.pipeline.scan import Checkpoint, Extract, Part, parted


class HistoryStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a history up to its watermark.

    An offset is a checkpoint, by the names of its columns. The database stores nothing and needs no commit: Spark's
    checkpoint says where reading continues.
    """

    def __init__(self, extract: Extract, schema: StructType, most: int, parts: int) -> None:
        if not extract.order:
            raise BadValue(f"a queue has a stream of its history, options(Page, 'history'), not of its {extract.what}")
        self.extract = extract
        self.schema = schema
        self.most = most
        self.parts = parts
        self.end: Checkpoint | None = None

    def initialOffset(self) -> dict[str, int]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.most) if self.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.end = self.extract.checkpoint()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, int]:
        after = self._checkpoint(start)
        until = self.extract.checkpoint(after, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        until = until if self.end is None else max(after, min(until, self.end))
        return dict(zip(self.extract.checkpoint_columns, until, strict=True)) if until else {}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        after, until = self._checkpoint(start), self._checkpoint(end)
        if after == until:
            return []
        if len(self.extract.order) > 1:
            return [InputPartition(Part("", after, until))]
        first, last = after[0] if after else 0, until[0]
        return [InputPartition(Part("", (low - 1,), (high,))) for low, high in parted((first + 1, last), self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        return batches(self.extract, schema, partition.value)

    def commit(self, end: Mapping[str, Any]) -> None:
        pass

    def _checkpoint(self, offset: Mapping[str, Any]) -> Checkpoint:
        return tuple(int(offset[name]) for name in self.extract.checkpoint_columns) if offset else ()
