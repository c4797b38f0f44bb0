"""`format("xq")`: read the tasks, the history and the statistics of a queue without JDBC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from xq.adapters.spark.arrow import batches
from xq.adapters.spark.packed import Source, packed
from xq.adapters.spark.queues import queue_of
from xq.adapters.spark.streaming import HistoryStream
from xq.adapters.spark.writer import writer
from xq.core.errors import BadType, BadValue, shown
from xq.pipeline.bulk import Bulk
from xq.pipeline.scan import Checkpoint, Condition, Extract, Test, What


def options(
    queue: object, what: What = "tasks", where: Iterable[tuple[str, Test, Any]] = (), snapshot: str = ""
) -> dict[str, str]:
    """Return the options with which `spark.read`, `spark.readStream` and `df.write` reach a model or a tube.

    `spark.read.format("xq").options(**xq.spark.options(Page, "history")).load()`. The database filters by `where`, with
    the tests of `xq.pipeline.scan.Condition`: [("at", ">=", since), ("tube", "in", ["a", "b"])], where since is a
    datetime (UTC unless it has a time zone) or a date. Spark itself applies the filters of a DataFrame.

    Further options of a reader:

    - `columns`: names, comma-separated.
    - `dur_us`: "true" adds the column dur_us of the history, which is otherwise read only if `columns` names it.
    - `partitions`: how many parallel readers of the history, or of the tasks in an open `snapshot` of PostgreSQL. All
    see the rows that existed when the DataFrame was first used.
    - `maxRows`: rows in one batch of a stream.

    Options of a writer: `job`, a name with which repeated runs put once, and `on_conflict` ("raise" or "skip") with the
    feature unique. The columns of the frame are fields, or options of put (delay, ttl, ttr). A frame is put as a whole
    or not at all. The password is an option of its own, which Spark does not show.

    Raises BadType, FeatureOff, BadValue, also for a test that the database does not evaluate as Spark does, and
    ConfigurationError if no other process can reach the database.
    """
    found = queue_of(queue)
    extract = found.pipeline.extract(what, snapshot).only(_conditions(where))
    more = {PUSHDOWN: "true"} if MENDED and _pushes() else {}
    return more | (packed(extract=extract, bulk=found.pipeline.bulk()) if what == "tasks" else packed(extract=extract))


# Spark 4.3 keeps the filters of one query for the next one of the same DataFrame: after df.where("size = 1").count()
# df.count() would count the same rows. The change that added this method keeps them apart (SPARK-58551).
MENDED = hasattr(spark.DataSourceReader, "pushLimit")
PUSHDOWN = "pushdown"  # the option for a reader that takes the filters of DataFrames


def _pushes() -> bool:
    """Return whether the active session pushes filters into sources; if not, it refuses readers that take them."""
    session = SparkSession.getActiveSession()
    return session is not None and session.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"


def _conditions(where: Any) -> list[Condition]:
    """Return the conditions of `where`. Raises BadType."""
    tests = list(where) if isinstance(where, Iterable) else [where]
    for test in tests:
        if not isinstance(test, (tuple, list)) or len(test) not in (2, 3):
            raise BadType(f"where is a list of tests, as [('size', '>', 5), ('tube', 'null')], not of {shown(test)}")
    return [Condition(*test) for test in tests]


DUR_US = "dur_us"  # an expensive column of a history, read only on request; also the name of that option


class Xq(Source):
    """A queue as a data source of Spark."""

    @classmethod
    def name(cls) -> str:
        return "xq"

    @cached_property
    def extract(self) -> Extract:
        """Return the extract to read. Raises ConfigurationError."""
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
        """Return an option that is "true" or "false", which is the default. Raises BadValue."""
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
        if "bulk" not in self.options and self.extract.what != "tasks":
            raise BadValue(f"{self.extract.what} is read only; for tasks use options(Page)")
        bulk: Bulk = self.sent("bulk")
        bulk = replace(bulk, address=self.complete(bulk.address))
        return writer(bulk, self.options, schema, overwrite)

    def reader(self, schema: StructType) -> spark.DataSourceReader:
        after = tuple(map(int, self.options["after"].split(","))) if self.options.get("after") else ()
        kind = PushingReader if self.flag(PUSHDOWN) else QueueReader
        return kind(self.extract, schema, self.number("partitions"), after)

    def streamReader(self, schema: StructType) -> HistoryStream:
        return HistoryStream(self.extract, schema, self.number("maxRows"), self.number("partitions"))


class QueueReader(spark.DataSourceReader):
    """Reads a queue, and leaves the filters of DataFrames to Spark."""

    def __init__(self, extract: Extract, schema: StructType, parts: int, after: Checkpoint = ()) -> None:
        self.extract = extract
        self.schema = schema
        self.parts = parts
        self.after = after

    def partitions(self) -> list[spark.InputPartition]:
        return [spark.InputPartition(part._replace(after=self.after)) for part in self.extract.ranges(self.parts)]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        return batches(self.extract, schema, partition.value)


class PushingReader(QueueReader):
    """Reads a queue, and takes the filters that the database evaluates exactly as Spark does."""

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        left = []
        for each in filters:
            try:
                self.extract = self.extract.only([condition_of(each)])
            except (KeyError, BadValue):
                left.append(each)
        return left


PUSHED: Mapping[type[spark.Filter], Test] = {
    spark.EqualTo: "=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
    spark.IsNull: "null",
    spark.IsNotNull: "not null",
    spark.StringStartsWith: "starts",
}


def condition_of(of: Any) -> Condition:
    """Return a filter of Spark's as a condition. Raises KeyError if there is no such test."""
    test = PUSHED[type(of)]
    (name,) = of.attribute
    value: Any = getattr(of, "value", None)
    return Condition(name, test, [*value] if test == "in" else value)
