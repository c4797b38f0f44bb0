"""`format("xq")`: read a queue's tasks, history and statistics without JDBC, and put tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from xq.adapters.spark.arrow import batches
from xq.adapters.spark.packed import SignedSource, packed
from xq.adapters.spark.queues import extract_of
from xq.api import queue_of
from xq.core.clock import microseconds
from xq.core.errors import BadValue, Error, shown
from xq.core.kinds import REFUSALS, ErrorKind
from xq.drivers import DRIVERS
from xq.pipeline.bulk import Bulk, Job
from xq.pipeline.scan import STATE, Checkpoint, Extract, Part, What, parted


def options(queue: object, what: What = "tasks", read_from: str | None = None) -> dict[str, str]:
    """Return the options with which `spark.read`, `spark.readStream` and `df.write` reach a model or a tube.

    `spark.read.format("xq").options(**xq.spark.options(Page, "history")).load()`. Spark applies a DataFrame's filters,
    and the database applies these options.

    Further options for a reader:

    - `columns`: names, comma-separated.
    - `dur_us`: "true" adds the history's column dur_us, which is otherwise read only if `columns` names it.
    - `partitions`: how many parallel readers. In the history they read id ranges, and see the rows that existed when
    the DataFrame was first used. In the tasks they read key ranges, if the key is one integer, each at its own moment.
    - `after`: only the history rows after a checkpoint.
    - `since`, `until`: only the history rows from a moment on, and before one: seconds since 1970, or ISO text.
    - `states`: only the tasks in these states: names, comma-separated.
    - `maxRows`: rows in one batch of a stream.

    `read_from` is the URL of a replica of the database, which is read instead: a history of PostgreSQL up to the oldest
    transaction that is open there.

    Options for a writer: `job`, a name with which repeated runs put once, with `partitions`, the frame's number of
    them (`xq.spark.put` sets both), `on_done` ("skip" or "raise"), and `on_conflict` ("raise" or "skip") with the
    feature unique. The frame's columns are fields, or put's options (delay, ttl, ttr). Each partition is put as a whole
    or not at all. The password is a separate option, which Spark does not show.

    Raises BadType, FeatureOff, BadValue, and ConfigurationError if no other process can reach the database.
    """
    pipeline = queue_of(queue).pipeline
    extract = extract_of(queue, what, read_from)
    if what != "tasks" or read_from is not None:  # a replica's password may be another one
        return packed(extract=extract)
    return packed(extract=extract, bulk=pipeline.bulk())


DUR_US = "dur_us"  # a history's expensive column, read only on request; also the name of that option


class Xq(SignedSource):
    @classmethod
    def name(cls) -> str:
        return "xq"

    @cached_property
    def extract(self) -> Extract:
        """The extract to read. Raises ConfigurationError."""
        found: Extract = self.sent("extract")
        return replace(found, address=self.complete(found.address))

    def number(self, option: str) -> int:
        """Return an option that is an integer above 0; 0 if it is not given. Raises BadValue."""
        given = self.options.get(option)
        if given is None:
            return 0
        if not given.isascii() or not given.isdigit() or not int(given):
            raise BadValue(f"the option {option} is a whole number above 0, not {shown(given)}")
        return int(given)

    def flag(self, option: str) -> bool:
        """Return an option that is "true" or "false", the default. Raises BadValue."""
        given = self.options.get(option, "false")
        if given.lower() not in ("true", "false"):
            raise BadValue(f"the option {option} is 'true' or 'false', not {shown(given)}")
        return given.lower() == "true"

    def schema(self) -> str:
        named = self.options.get("columns")
        columns = self.extract.chosen(None if named is None else [name.strip() for name in named.split(",")])
        dur_us = [self.extract.column(DUR_US)] if self.flag(DUR_US) else []
        return ", ".join(column.declared for column in dict.fromkeys([*columns, *dur_us]))

    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        if "bulk" not in self.options:
            what = self.extract.what if self.extract.what != "tasks" else "a replica"
            raise BadValue(f"{what} is read only; for tasks use options(Page)")
        if overwrite:
            raise BadValue("format('xq') puts tasks and overwrites none: write with mode('append')")
        bulk: Bulk = self.sent("bulk")
        on_conflict = self.options.get("on_conflict", bulk.on_conflict)
        bulk = replace(bulk, address=self.complete(bulk.address), on_conflict=on_conflict)
        job, parts = self.options.get("job"), self.number("partitions") or None
        return Writer(bulk.begin(schema.names, job, parts, self.options.get("on_done", "skip")))  # type: ignore[arg-type]

    def reader(self, schema: StructType) -> spark.DataSourceReader:
        after = tuple(map(int, self.options["after"].split(","))) if self.options.get("after") else ()
        sql = " AND ".join(filter(None, [self.in_time(), self.in_states()]))
        return BatchReader(self.extract, schema, self.number("partitions"), Part(sql, after))

    def in_time(self) -> str:
        """Return the condition of the options since and until. Raises BadValue."""
        signs = {"since": ">=", "until": "<"}
        found = {option: self.options[option] for option in signs if self.options.get(option)}
        if found and not self.extract.order:
            raise BadValue(f"{' and '.join(found)} are options of the history: {self.extract.what} have no moment")
        moments = {option: microseconds(option, _moment(option, text)) for option, text in found.items()}
        return " AND ".join(self.extract.condition("at_us", signs[option], us) for option, us in moments.items())

    def in_states(self) -> str:
        """Return the condition of the option states. Raises BadValue."""
        if not (names := [name.strip() for name in self.options.get("states", "").split(",") if name.strip()]):
            return ""
        if self.extract.what != "tasks":
            raise BadValue(f"states is an option of the tasks: filter the {self.extract.what} by a column")
        if strange := [name for name in names if name not in (known := self.extract.column(STATE).words)]:
            raise BadValue(f"there is no state {shown(strange[0])}: they are {', '.join(known)}")
        return self.extract.condition(STATE, "IN", *names)

    def streamReader(self, schema: StructType) -> HistoryStream:
        if self.in_time() or self.in_states():
            raise BadValue("a stream has no since and until: filter its rows by at")
        return HistoryStream(self.extract, schema, self.number("maxRows"), self.number("partitions"))


def _moment(option: str, text: str) -> float | datetime:
    with suppress(ValueError):
        return float(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(
            f"the option {option} is a moment, in seconds since 1970 or as ISO text, not {shown(text)}"
        ) from None


@dataclass
class Reading:
    """Reads an extract's parts in the workers."""

    extract: Extract
    schema: StructType

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self.extract, to_arrow_schema(self.schema, timezone="UTC"), partition.value)


@dataclass
class BatchReader(Reading, spark.DataSourceReader):
    parts: int
    part: Part

    # No pushFilters: Spark 4.3 keeps what it has pushed for the DataFrame's later queries, which would lack rows.

    def partitions(self) -> list[spark.InputPartition]:
        return [spark.InputPartition(part) for part in self.extract.ranges(self.parts, self.part)]


@dataclass
class HistoryStream(Reading, spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a history up to its watermark: each row once, in batches that a restart repeats unchanged.

    An offset is a checkpoint, by its column names. The database stores nothing and needs no commit: Spark's
    checkpoint says where reading continues.
    """

    most: int
    parts: int
    end: Checkpoint | None = None

    def __post_init__(self) -> None:
        if not self.extract.order:
            what = self.extract.what
            raise BadValue(f"a queue has a stream of its history, options(Page, 'history'), not of its {what}")

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

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[spark.InputPartition]:
        after, until = self._checkpoint(start), self._checkpoint(end)
        if after == until:
            return []
        if len(self.extract.order) > 1:
            return [spark.InputPartition(Part("", after, until))]
        ranges = parted((after[0] + 1 if after else 1, until[0]), self.parts)
        return [spark.InputPartition(Part("", (low - 1,), (high,))) for low, high in ranges]

    def commit(self, end: Mapping[str, Any]) -> None:
        pass

    def _checkpoint(self, offset: Mapping[str, Any]) -> Checkpoint:
        return tuple(int(offset[name]) for name in self.extract.checkpoint_columns) if offset else ()


@dataclass(frozen=True)
class BatchRows:
    """A partition's rows, to iterate as often as it takes to put them."""

    batches: Sequence[pa.RecordBatch]

    def __iter__(self) -> Iterator[list[list[Any]]]:
        for batch in self.batches:
            yield [column.to_pylist() for column in batch.columns]


@dataclass
class Writer(spark.DataSourceArrowWriter):
    """Puts each partition in one worker transaction, and records in the driver that all were put."""

    job: Job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> spark.WriterCommitMessage:
        task: Any = TaskContext.get()
        part, bulk, of_a_row = task.partitionId(), self.job.bulk, {*REFUSALS, ErrorKind.BAD_TYPE, ErrorKind.BAD_VALUE}
        try:
            self.job.put_blocks(part, BatchRows(list(iterator)))
        except Exception as error:
            if isinstance(error, Error) or DRIVERS[bulk.address.engine].classify(error) not in of_a_row:
                raise
            why = str(error.args[-1] if error.args else error).partition("\n")[0]  # MariaDB has a number before it
            raise BadValue(
                f"the table of {bulk.name} refuses a row of partition {part}, so none of the partition was put: {why}"
            ) from error
        return spark.WriterCommitMessage()

    def commit(self, messages: Sequence[Any]) -> None:
        self.job.commit(len(messages) if self.job.parts is None else None)
