"""A queue's archive: its done tasks and old history as Parquet files, read together with the database.

OUT/tasks/xq_run=RUN/day=2026-11-21/*.parquet       from one call; its folder is complete or missing
OUT/history/xq_run=RUN/day=2026-11-21/*.parquet
OUT/_queue.json                                     identifies the queue; other queues are refused
OUT/_xq/                                            files that are being written

To archive, xq writes tasks or history under `_xq`, renames that folder to its place, and deletes from the database
what the files have, if it is still in D and has not come there again. If a process is killed in between, a row is in
both places: readers then take the table's, and the next call writes it once more. Files are only added, never changed
or deleted, so concurrent calls do no harm. If a task has several versions, the newest counts: the one from its last
transition into D.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, TimestampType

import xq
from xq.adapters.spark.files import Folder, literally
from xq.adapters.spark.packed import packed
from xq.adapters.spark.queues import check_session, settings
from xq.api import queue_of
from xq.core.errors import ConfigurationError, Error
from xq.core.machine import ABSENT
from xq.pipeline.archive import Archive, Written
from xq.pipeline.scan import STATE, Checkpoint, Extract, quoted

RUN, KEY, SINCE = "xq_run", "xq_key", "xq_at_us"  # own columns: the key as in the history, and the time of done
LAST = "xq_last"
LONGEST_KEY = 255  # key characters that the history has on every database
A_DAY = 86_400_000_000  # microseconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TASKS, HISTORY, INCOMPLETE = "tasks", "history", "_xq"
OWNER = "_queue.json"  # identifies the archive's queue
PARTS = 8  # partitions in which the history is read, if the database allows it
# Spark's own default, INT96, does not say that a moment is in UTC: other programs would read it in their time zones.
FORMAT = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",  # also before 1900
}


class Archived(NamedTuple):
    """The result of `archive`: how many tasks and history rows were moved.

    `stayed` counts the tasks that are still there: the database refused to delete them, or other processes changed
    them meanwhile.
    """

    tasks: int
    history: int
    stayed: int


def archive(spark: SparkSession, queue: object, out: str, before: float | datetime | date | None = None) -> Archived:
    """Move a queue's done tasks and old history to Parquet in `out`, by day, and delete them from the database.

    `before` is a moment: seconds since 1970, a datetime (UTC unless it has a time zone), or a date; None: all. The call
    moves the tasks that were done before it, or at an unknown time. It moves the history rows from before it, also for
    unfinished tasks, until the first task that stays was done.
    A task belongs to the day, in UTC, when it last entered D. Archiving counts as D-X with the event `archive`. The
    next call moves this call's history.

    The call may be killed and repeated at any time, and other processes may use the queue meanwhile: a task that one of
    them moves in time stays. If SQLite numbers the tasks, the one with the highest number stays, since SQLite would
    use the number again. `out` is a path in a Hadoop file system that renames folders atomically.

    An UPDATE to a done task is lost if it is committed between the writing and the deletion.

    Raises FeatureOff (it needs keep and history), BadType, BadValue; ConfigurationError within a transaction, for a
    table with columns that the model lacks, for another queue's folder, for a column whose earlier values would not
    fit its type any more, and if the call takes longer than the history is kept; and Spark's error, with all tasks in
    the table, if Spark cannot read one.
    """
    place = _Archive(spark, queue, out, "archive")
    before_us = place.table.moment("before", before)
    place.table.check_changes()
    place.check_types()
    place.own()
    begun_us = place.table.executor.time_us()
    extract = place.queue.pipeline.extract("history")
    until = extract.checkpoint()  # no row will be inserted before it
    history = place.frame(extract, partitions=PARTS).withColumn("late", f.expr(beyond(extract.order, until)))
    written, moved, refused = place.move_tasks(extract, until, begun_us, history, before_us)
    before_us = min([before_us, *(task.at_us for task in refused if task.at_us is not None)])
    # The checkpoint's row stays: the newest one must, so that the database does not use its id again.
    newest = until[extract.order.index("id")] if until else 0
    old = history.where(f"NOT late AND id <> {newest} AND at_us < {before_us}")
    return Archived(moved, place.move_history(old.drop("late")), written - moved)


def restore(spark: SparkSession, queue: object, out: str) -> int:
    """Put an archive's tasks back into the table, as D, unless they are in it. Returns how many. It counts as X-D.

    The files stay, and `tasks` reads the table's rows. So the next call puts back a task that is killed later. The
    history stays in the archive, where `history` reads it. The call may be killed and repeated, as `archive`.

    Raises ConfigurationError if there is no archive, within a transaction, and for tasks with fields that the model
    lacks. Raises Error, after the other tasks are back, if the table refuses some, for their unique values, say.
    """
    place = _Archive(spark, queue, out, "restore")
    place.table.check_changes()
    if not (runs := place.runs(TASKS)):
        return 0
    stored = place.newest(place.typed(place.queue.pipeline.extract("tasks"), TASKS, runs))
    names, key = place.fields_of(stored.columns), place.table.key
    there = place.frame(place.queue.pipeline.extract("tasks"), key)
    missing = stored.join(there, key, "left_anti")
    restored, refused = place.table.put_back(names, _values(missing, names))
    if refused:
        raise Error(
            f"{restored} tasks of {place.queue.name} were restored, and {refused} stay in the archive: the table "
            "refuses them, as the log says"
        )
    return restored


def tasks(spark: SparkSession, queue: object, archive: str) -> DataFrame:
    """Return a queue's tasks, in the table and in an archive, as one DataFrame.

    It has the columns of `options(queue)`, and `day`, on which an archived task was done (`xq_day` if the model has a
    field `day`). Each task appears once; if it is in both, the table's row. The table is read when the DataFrame
    is used. It has the files that were there when it was made: make it again after an archive.
    """
    place = _Archive(spark, queue, archive, "tasks")
    extract = place.queue.pipeline.extract("tasks")
    current = place.frame(extract).withColumn(place.day, f.lit(None).cast("date"))
    if runs := place.runs(TASKS):
        stored = place.typed(extract, TASKS, runs).withColumn(place.day, f.col(place.day).cast("date"))
        current = place.newest(current.unionByName(stored, allowMissingColumns=True))
        if place.has_state:
            current = current.withColumn(STATE, f.col("state"))
    return current.drop(RUN, KEY, SINCE)


def history(spark: SparkSession, queue: object, archive: str) -> DataFrame:
    """Return a queue's history, in the database and in an archive, as one DataFrame.

    It has the columns of `options(queue, "history")`, `day` (UTC), and `dur_us`, the microseconds that the task spent
    in the state it moved. Each row appears once. Make it again after an archive, as `tasks`.
    """
    place = _Archive(spark, queue, archive, "history")
    extract = place.queue.pipeline.extract("history")
    rows = place.frame(extract).withColumn("day", _day(f.col("at_us")))
    if runs := place.runs(HISTORY):
        stored = place.typed(extract, HISTORY, runs).withColumn("day", f.col("day").cast("date"))
        rows = rows.unionByName(stored.drop(RUN), allowMissingColumns=True)
        rows = rows.repartition("key").dropDuplicates(["key", "id", "at_us"])
    # By the time, and not by the id alone: after a new installation the ids begin again.
    before = f.lag("at_us").over(Window.partitionBy("key").orderBy("at_us", "id"))
    return rows.withColumn("dur_us", f.when(f.col("source") != ABSENT, f.col("at_us") - before))


def beyond(order: Sequence[str], checkpoint: Checkpoint) -> str:
    """Return the test whether a history row comes after a checkpoint."""
    if not checkpoint:
        return "true"
    ways = []
    for i, column in enumerate(order):
        same = [f"{name} = {value}L" for name, value in zip(order[:i], checkpoint, strict=False)]
        ways.append(" AND ".join([*same, f"{column} > {checkpoint[i]}L"]))
    return " OR ".join(f"({way})" for way in ways)


def _day(at_us: Any) -> Any:
    return f.date_add(f.lit("1970-01-01").cast("date"), f.floor(at_us / A_DAY).cast("int"))


def _fits(of: str, into: str) -> bool:
    """Return whether each value of a type is one of another type as well, or is its text there."""
    if into == "string":
        return of in ("bigint", "date") or of.startswith("decimal")
    if into == "double":
        return of == "bigint"
    if not into.startswith("decimal") or not of.startswith(("decimal", "bigint")):
        return False
    (whole, places), (less, fewer) = map(_digits, (into, of))
    return whole >= less and places >= fewer


def _digits(kind: str) -> tuple[int, int]:
    """Return how many digits a type of numbers has before and after the point."""
    digits, places = map(int, re.findall(r"\d+", kind)) if "(" in kind else (19, 0)
    return digits - places, places


def _values(frame: DataFrame, names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield rows as values, with moments in UTC: Spark's own would be in this machine's time zone."""

    def sent(name: str) -> Column:
        column, kind = f.col(quoted(name)), frame.schema[name].dataType
        if isinstance(kind, ArrayType) and isinstance(kind.elementType, TimestampType):
            return f.transform(column, f.unix_micros)
        return f.unix_micros(column) if isinstance(kind, TimestampType) else column

    def moment(us: Any) -> Any:
        return [*map(moment, us)] if isinstance(us, list) else us if us is None else EPOCH + timedelta(microseconds=us)

    reads = [moment if "timestamp" in frame.schema[name].dataType.simpleString() else None for name in names]
    for row in frame.select(*map(sent, names)).toLocalIterator():
        yield [value if made is None else made(value) for value, made in zip(row, reads, strict=True)]


class _Archive:
    def __init__(self, spark: SparkSession, queue: object, out: str, what: str) -> None:
        self.spark = spark
        self.queue: xq.Queue[Any] = queue_of(queue)
        self.table: Archive = self.queue.pipeline.archive
        self.table.check(what)
        check_session(spark, self.queue)
        self.folder = Folder(spark, out)
        if what != "archive" and not self.folder.exists(""):
            raise ConfigurationError(
                f"there is no archive at {self.folder.path}: give the folder that `archive` was called "
                "with, or create it empty if nothing was archived"
            )
        self.check_owner()
        names = {field.name.lower() for field in self.queue.parts.store.fields}
        self.day = "xq_day" if "day" in names else "day"
        self.has_state = not {"state", STATE} & names  # whether there is `state` beside xq_state

    def check_owner(self) -> None:
        if not self.folder.exists(OWNER):
            return
        stored, own = json.loads(self.folder.read(OWNER)), self.table.identity
        if {name: stored.get(name) for name in own} != own:
            raise ConfigurationError(
                f"{self.folder.path} has the archive of {stored['queue']} of the database {stored['database']}, "
                f"which is not {own['queue']} of {own['database']}: give each queue a folder of its own. If it is the "
                f"same queue, moved, delete {OWNER} there"
            )

    def own(self) -> None:
        """Make the archive this queue's."""
        if not self.folder.exists(OWNER):
            away = f"{INCOMPLETE}/{secrets.token_hex(8)}"
            self.folder.write(away, json.dumps(self.table.identity))
            self.folder.move(away, OWNER)  # the rename makes the complete file appear at once
        self.check_owner()

    def runs(self, what: str) -> list[str]:
        """Return the runs that are in their place."""
        return [name for name in self.folder.names(what) if name.startswith(f"{RUN}=")]

    def frame(self, extract: Extract, columns: Iterable[str] = (), partitions: int = 1) -> DataFrame:
        """Return these columns from an extract; without names all but the expensive ones. Raises BadValue."""
        for column in extract.chosen([*columns] or None):
            _ = column.declared
        names = {"columns": ",".join(columns)} if columns else {}
        reader = self.spark.read.format("xq").options(**packed(extract=extract), **names)
        return reader.options(partitions=partitions).load()

    def stored(self, what: str, runs: Sequence[str]) -> DataFrame:
        """Return the rows from some runs that are in their place, with the run's name."""
        reader = self.spark.read.options(basePath=self.folder.at(what), mergeSchema=True)
        return reader.parquet(*(literally(self.folder.at(what, run)) for run in runs))

    def typed(self, extract: Extract, what: str, runs: Sequence[str]) -> DataFrame:
        """Return `stored` in an extract's types. Raises ConfigurationError for a column whose values would not fit."""
        try:
            frames = [self.stored(what, runs)]
        except Exception as error:  # Java's
            if "CANNOT_MERGE_SCHEMAS" not in str(error):
                raise
            alike = defaultdict[str, list[str]](list)
            for run in runs:
                alike[self.stored(what, [run]).schema.json()].append(run)
            frames = [self.stored(what, some) for some in alike.values()]
        same = [frame.withColumns(self.casts(extract, frame)) for frame in frames]
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), same)

    def casts(self, extract: Extract, frame: DataFrame) -> dict[str, Column]:
        """Return a frame's columns that have other types than in an extract, in its types."""
        types = {column.name: column.type.lower() for column in extract.chosen()}
        found = {}
        for name in types.keys() & {*frame.columns}:
            is_, of = types[name], frame.schema[name].dataType.simpleString()
            if is_ != of and not _fits(of, is_):
                raise ConfigurationError(
                    f"{name} of {self.queue.name} is {is_} now, and {of} in {self.folder.path}: its values there would "
                    "not fit. Restore the archive before the type changes, or give the queue another folder"
                )
            if is_ != of:
                found[name] = f.col(quoted(name)).cast(is_)
        return found

    def check_types(self) -> None:
        """Raise ConfigurationError if the latest run's tasks could not be restored into the table as it is now."""
        if runs := self.runs(TASKS):
            self.typed(self.queue.pipeline.extract("tasks"), TASKS, runs[-1:])

    def newest(self, rows: DataFrame) -> DataFrame:
        """Return one row for each task: the table's, which has no run, else the last one done."""
        known = f.col(SINCE) if SINCE in rows.columns else f.lit(None)
        done = f.coalesce(known, f.substring(RUN, 2, 16).cast("bigint"))  # if not known: before the run
        order = Window.partitionBy(*map(quoted, self.table.key)).orderBy(
            f.col(RUN).isNotNull(), f.desc(done), f.desc(RUN)
        )
        return rows.withColumn(LAST, f.row_number().over(order)).where(f"{LAST} = 1").drop(LAST)

    def move_tasks(
        self, past: Extract, until: Checkpoint, begun_us: int, history: DataFrame, before_us: int
    ) -> tuple[int, int, Sequence[Written]]:
        """Write and delete the done tasks. Returns both numbers, and the rows that the database refused."""
        last = f.max_by(f.struct("at_us", "late"), "id").alias(LAST)
        came = history.where("target = 'D'").groupBy(f.col("key").alias(KEY)).agg(last)
        extract = self.queue.pipeline.extract("tasks", states="D")
        fields = [field.name for field in self.queue.parts.store.fields]
        columns = dict.fromkeys([*fields, *(column.name for column in extract.chosen()), KEY])
        if self.has_state:
            del columns[STATE]  # in the files it is `state` alone
        done = self.frame(extract, columns).join(came, KEY, "left").where(f"length({KEY}) <= {LONGEST_KEY}")
        done = done.where(f"{LAST} IS NULL OR (NOT {LAST}.late AND {LAST}.at_us < {before_us})")
        done = done.withColumn(SINCE, f.col(f"{LAST}.at_us")).drop(LAST)
        run = self.write(done.withColumn(self.day, _day(f.col(SINCE))), TASKS, self.day)
        if not run:
            return 0, 0, []
        written, *key = 0, *self.table.key

        def rows() -> Iterator[Written]:
            nonlocal written
            for *parts, text, at_us in _values(self.stored(TASKS, [run]), [*key, KEY, SINCE]):
                written += 1
                yield Written(parts, text, at_us)

        moved, refused = self.table.forget_done(rows(), past, until, begun_us)
        return written, moved, refused

    def move_history(self, rows: DataFrame) -> int:
        """Write history rows, and delete them. Returns how many."""
        run = self.write(rows.withColumn("day", _day(f.col("at_us"))), HISTORY, "day")
        if not run:
            return 0
        return self.table.forget_archived(id for (id,) in _values(self.stored(HISTORY, [run]), ["id"]))

    def write(self, rows: DataFrame, what: str, day: str) -> str:
        """Write rows as a new run, which appears at once and complete. Returns its name; "" if there are no rows."""
        name, run = secrets.token_hex(8), f"{RUN}=r{time.time_ns() // 1000:016d}-"
        away = f"{INCOMPLETE}/{name}"
        with settings(self.spark, FORMAT):
            rows.write.partitionBy(day).parquet(self.folder.at(away))
        if not any(found.startswith(f"{day}=") for found in self.folder.names(away)):
            self.folder.delete(away)
            return ""
        self.folder.move(away, f"{what}/{run}{name}")
        return f"{run}{name}"

    def fields_of(self, columns: Sequence[str]) -> list[str]:
        """Return the fields that an archive has. Raises ConfigurationError if the model lacks one."""
        own = {RUN, KEY, SINCE, *(f"xq_{name}" if f"xq_{name}" in columns else name for name in ("day", "state"))}
        found = [
            field.name for field in self.queue.parts.store.fields if field.name in columns and field.name not in own
        ]
        if lost := sorted({*columns} - own - {*found}):
            raise ConfigurationError(
                f"the archive has columns that {self.queue.name} has no fields for any more ({', '.join(lost)}), "
                "so their values would be lost: add the fields and columns, and call again"
            )
        return found
