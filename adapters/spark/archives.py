"""An archive of a queue: its done tasks and old history as Parquet files, read together with the database.

OUT/tasks/xq_run=RUN/day=2026-11-21/*.parquet       a run (an export batch); its folder is complete or missing
OUT/history/xq_run=RUN/day=2026-11-21/*.parquet
OUT/_queue.json                                     identifies the queue; other queues are refused
OUT/_xq/                                            incomplete runs

To archive, xq moves done tasks into the staging table of the queue, writes them under `_xq`, renames that folder to its
place, and deletes the tasks from the staging table. To restore, it fills the staging table while the folder is in its
place, renames the folder away, and moves the tasks from the staging table into the application's table.

So the archive has a run if its folder is in its place; else the staging table has it, whenever a process is killed.
The next call completes what a killed one has begun.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import xq
from xq.adapters.spark.files import Folder, literally
from xq.adapters.spark.packed import SignedSource, packed, secrets_of, signed
from xq.adapters.spark.queues import check_session, queue_of
from xq.adapters.spark.spark_session import offer
from xq.core.errors import ConfigurationError, Error
from xq.core.machine import ABSENT
from xq.pipeline.archives import Archives
from xq.pipeline.loading import Loading
from xq.pipeline.scan import Extract, quoted
from xq.pipeline.spans import Watermark

RUN = "xq_run"
SINCE = "xq_at_us"
A_DAY = 86_400_000_000  # microseconds
TASKS, HISTORY, INCOMPLETE = "tasks", "history", "_xq"
OWNER = "_queue.json"  # identifies the queue of the archive
MANIFEST = "_manifest.json"  # Spark ignores files whose names begin like this
WATERMARK = "past"  # the name of the watermark in the manifests of the history
RESTORED = "restored-"
PARTS = 8  # partitions in which the history is read, if the database allows it


class Archived(NamedTuple):
    """The result of `archive`: how many tasks and rows of history were moved.

    `stayed` counts the tasks that the database refused to delete, or that other processes changed meanwhile.
    """

    tasks: int
    history: int
    stayed: int


def archive(spark: SparkSession, queue: object, out: str, before: float | datetime | date | None = None) -> Archived:
    """Move done tasks and old history of a queue to Parquet in `out`, by day, and delete them from the database.

    `before` is a moment: seconds since 1970, a datetime (UTC unless it has a time zone), or a date; None: all. The call
    moves the tasks that were done before it, and those whose time the history does not show. It moves the rows of
    history from before it, also those of unfinished tasks, up to the time at which the first task that stays was done.
    A task belongs to the day, in UTC, of its last transition into D. Archiving counts as D-X with the event `archive`.
    The next call moves the history of this one.

    The call may be killed and repeated at any time, and other processes may use the queue meanwhile: a task that one of
    them restarts in time stays. If SQLite numbers the tasks, the one with the highest number stays, since SQLite would
    use the number again. `out` is a path of a Hadoop file system that renames folders atomically.

    Raises FeatureOff (it needs keep and history), ArchiveBusy, BadType, BadValue; ConfigurationError for a table with
    columns that the model lacks, and for the folder of another queue; and Error if Spark cannot read a task: then the
    tasks are in the table again.
    """
    place = _Archive(spark, queue, out, "archive")
    before_us = place.archives.moment("before", before)
    with place.alone():
        place.archives.prepare()
        run = place.new_run()
        moved = place.archives.stage(run, before_us)
        if moved.moved:
            place.write_out(run)
        return Archived(moved.moved, place.write_history(run, moved.watermark), moved.stayed)


def restore(spark: SparkSession, queue: object, out: str) -> int:
    """Move all tasks of an archive back into the table, as D. Returns how many. It counts as X-D.

    The history stays in the archive, where `history` reads it. The call may be killed and repeated, as `archive`.

    Raises ConfigurationError if there is no archive. Raises Error, after the other tasks are back, if tasks must stay
    since the table has their keys or other unique values again. Other errors as in `archive`.
    """
    place = _Archive(spark, queue, out, "restore")
    with place.alone():
        place.archives.prepare()
        restored, refused = 0, None
        for run in place.runs(TASKS):
            try:
                restored += place.restore_run(run)
            except Error as error:  # of this run; the other runs can still be restored
                refused = refused or error
        if refused:
            raise refused
        return restored


def tasks(spark: SparkSession, queue: object, archive: str) -> DataFrame:
    """Return the tasks of a queue, those in the table and those in an archive, as one DataFrame.

    It has the columns of `options(queue)`, and `day`, on which an archived task was done (`xq_day` if the model has a
    field `day`). Each task appears once, even during an archive or restore. The table is read when the DataFrame is
    used, which raises Error if an archive or restore has run since it was made.
    """
    place = _Archive(spark, queue, archive, "tasks")
    generation, runs = place.archives.generation, place.runs(TASKS)
    current = place.with_day(place.frame(place.archives.extract_tasks(runs, generation)))
    return place.with_archive(current, TASKS, runs).drop(RUN)


def history(spark: SparkSession, queue: object, archive: str) -> DataFrame:
    """Return the history of a queue, in the database and in an archive, as one DataFrame.

    It has the columns of `options(queue, "history")`, `day` (UTC), and `dur_us`, the microseconds that the task spent
    in the state it moved. Each row appears once, as in `tasks`.
    """
    place = _Archive(spark, queue, archive, "history")
    generation, runs = place.archives.generation, place.runs(HISTORY)
    watermark = place.manifest(runs[-1])[WATERMARK] if runs else None
    current = place.frame(place.archives.extract_history(watermark, generation)).withColumn("day", _day(f.col("at_us")))
    live = f"s-{place.owner}-"  # sorts after all runs
    rows = place.with_archive(current.withColumn(RUN, f.lit(live)), HISTORY, runs)
    # A new installation starts the ids again, so there the order is that of the runs; else it is that of the ids.
    restarts = [run for last, run in pairwise([*runs, live]) if last.split("-")[1] != run.split("-")[1]]
    order = [*(f.col(RUN) >= run for run in restarts), f.col("id")]
    before = f.lag("at_us").over(Window.partitionBy("key").orderBy(*order))
    spent = f.when(f.col("source") != ABSENT, f.col("at_us") - before)
    return rows.withColumn("dur_us", spent).drop(RUN)


def _day(at_us: Any) -> Any:
    return f.date_add(f.lit("1970-01-01").cast("date"), f.floor(at_us / A_DAY).cast("int"))


class _Archive:
    """The archive of one queue: its folder, and the steps of archiving and restoring."""

    def __init__(self, spark: SparkSession, queue: object, out: str, what: str) -> None:
        self.spark = spark
        self.queue: xq.Queue[Any] = queue_of(queue)
        self.archives: Archives = self.queue.pipeline.archives
        self.archives.check(what)
        check_session(spark, self.queue)
        self.folder = Folder(spark, out)
        if what != "archive" and not self.folder.exists(""):
            raise ConfigurationError(
                f"there is no archive at {self.folder.path}: give the folder that `archive` was called "
                "with, or create it empty if nothing was archived"
            )
        self.check_owner()
        self.parts = PARTS if self.archives.old.is_read_in_parts else 1
        names = {field.name.lower() for field in self.queue.adapter.store.fields}
        self.day = "xq_day" if "day" in names else "day"

    def check_owner(self) -> None:
        """Raise ConfigurationError if the archive belongs to another queue."""
        if not self.folder.exists(OWNER):
            return
        stored, own = json.loads(self.folder.read(OWNER)), self.archives.identity
        if stored != own:
            raise ConfigurationError(
                f"{self.folder.path} has the archive of {stored['queue']} of the database {stored['database']}, "
                f"which is not {own['queue']} of {own['database']}: give each queue a folder of its own. If it is the "
                f"same queue, moved or reinstalled, delete {OWNER} there"
            )

    @cached_property
    def owner(self) -> str:
        """The part of the names of runs that identifies this queue and folder. Needs a call of `alone` before."""
        return hashlib.sha256(f"{self.archives.identity['number']} {self.folder.path}".encode()).hexdigest()[:8]

    def move(self, old: str, new: str) -> None:
        """Rename a folder, unless another call has got the lock meanwhile."""
        self.check_owner()
        self.archives.check_alone()
        self.folder.move(old, new)

    def new_run(self) -> str:
        """Return a new name of a run that sorts after all earlier ones."""
        last = max((run[1:17] for what in (TASKS, HISTORY) for run in self.runs(what)), default="0")
        number = max(int(last) + 1, self.archives.now_us)  # also if the clock was set back
        return f"r{number:016d}-{self.owner}-{secrets.token_hex(4)}"

    def runs(self, what: str) -> list[str]:
        """Return the runs that are in their place, in order."""
        return [name.removeprefix(f"{RUN}=") for name in self.folder.names(what) if name.startswith(f"{RUN}=")]

    @staticmethod
    def of(what: str, run: str) -> str:
        return f"{what}/{RUN}={run}"

    def manifest(self, run: str, what: str = HISTORY) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.folder.read(f"{self.of(what, run)}/{MANIFEST}"))
        return found

    def frame(self, extract: Extract, partitions: int = 1) -> DataFrame:
        reader = self.spark.read.format("xq").options(**packed(extract=extract))
        return reader.options(partitions=partitions).load()

    def with_day(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn(self.day, _day(f.col(SINCE))).drop(SINCE)

    def stored(self, what: str, runs: Iterable[str]) -> DataFrame:
        """Return the rows of some runs that are in their place, with the name of the run."""
        reader = self.spark.read.options(basePath=self.folder.at(what), mergeSchema=True)
        return reader.parquet(*(literally(self.folder.at(self.of(what, run))) for run in runs))

    def with_archive(self, current: DataFrame, what: str, runs: list[str]) -> DataFrame:
        if not runs:
            return current
        stored = self.stored(what, runs)
        day = "day" if what == HISTORY else self.day
        return current.unionByName(stored.withColumn(day, f.col(day).cast("date")), allowMissingColumns=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the archive, and first complete what killed calls have begun."""
        with self.archives.alone():
            if not self.folder.exists(OWNER):
                away = f"{INCOMPLETE}/{secrets.token_hex(8)}"
                self.folder.write(away, json.dumps(self.archives.identity))
                self.folder.move(away, OWNER)  # the rename makes the complete file appear at once
            self.check_owner()
            self.archives.fits()
            self.finish()
            yield

    def finish(self) -> None:
        """Complete what killed calls have begun."""
        for name in self.folder.names(INCOMPLETE):
            if not name.startswith(RESTORED):
                self.folder.delete(f"{INCOMPLETE}/{name}")
        in_place, waiting = set(self.runs(TASKS)), self.archives.runs()
        for run in waiting:
            if run in in_place:
                self.archives.retire(run)
            elif self.archives.is_loading(run):
                self.archives.forget(run)
            elif self.folder.exists(f"{INCOMPLETE}/{RESTORED}{run}"):
                continue
            elif f"-{self.owner}-" in run:
                self.write_out(run)
        for name in self.folder.names(INCOMPLETE):
            self.put_back(name.removeprefix(RESTORED))
        if runs := self.runs(HISTORY):
            self.archives.old.forget(self.manifest(runs[-1])[WATERMARK])

    def write_out(self, run: str) -> None:
        """Write a run of the staging table into its place."""
        try:
            away, rows = self._write(self.with_day(self.frame(self.archives.extract_run(run))), self.day)
        except PySparkException as error:
            stayed = self.archives.put_back(run).stayed
            where = (
                f"{stayed} of them wait in {self.archives.staging_table}" if stayed else "they are in the table again"
            )
            why = re.search(r"BadValue: (.+)", str(error))
            raise Error(
                f"tasks of {self.queue.name} cannot be written, and {where}. Correct there, by plain SQL, "
                f"what Spark could not read, and call again: {why[1] if why else 'see above'}"
            ) from error
        self._commit(away, TASKS, run, rows, self.archives.count(run) == rows, {})
        self.archives.retire(run)

    def write_history(self, run: str, watermark: Watermark | None) -> int:
        """Write rows of the history into their place and delete them from the database. Returns how many."""
        if watermark is None or not self.archives.old.is_there(watermark):
            return 0
        frame = self.frame(self.archives.extract_old_history(watermark), self.parts).withColumn(
            "day", _day(f.col("at_us"))
        )
        away, rows = self._write(frame, "day")
        # The database may have fewer rows by now: the queue has deleted expired ones.
        self._commit(away, HISTORY, run, rows, self.archives.old.count(watermark) <= rows, {WATERMARK: dict(watermark)})
        self.archives.old.forget(watermark)
        return rows

    def _write(self, frame: DataFrame, day: str) -> tuple[str, int]:
        """Write rows into a temporary folder. Returns its name, and how many rows it has."""
        away = f"{INCOMPLETE}/{secrets.token_hex(8)}"
        frame.write.partitionBy(day).parquet(self.folder.at(away))
        return away, self.spark.read.parquet(literally(self.folder.at(away))).count()

    def _commit(self, away: str, what: str, run: str, rows: int, is_complete: bool, more: Mapping[str, Any]) -> None:
        """Rename the temporary folder to its place, if it is complete."""
        if not is_complete:
            raise Error(f"{rows} rows of the {what} of {self.queue.name} were written, but there are more: try again")
        self.folder.write(f"{away}/{MANIFEST}", json.dumps({"rows": rows, **more}))
        self.move(away, self.of(what, run))

    def restore_run(self, run: str) -> int:
        """Move a run from its place into the staging table, and from there into the table. Returns how many tasks."""
        frame = self.stored(TASKS, [run]).drop(RUN)
        names = self.fields_of(run, frame.columns)
        loading = self.archives.loading(names)
        offer(self.spark, Filling)
        fields = frame.select(*map(quoted, names))
        fields.write.format(Filling.name()).options(**Filling.packed(loading)).mode("append").save()
        self.archives.loaded(loading, run, self.manifest(run, TASKS)["rows"])
        if keys := self.archives.in_the_way(run):
            self.archives.forget(run)
            raise Error(
                f"{self.queue.name} already has tasks with keys of the archive, {', '.join(map(repr, keys))}: "
                f"kill them first; {run} was not restored"
            )
        self.move(self.of(TASKS, run), f"{INCOMPLETE}/{RESTORED}{run}")
        return self.put_back(run)

    def fields_of(self, run: str, columns: Sequence[str]) -> list[str]:
        """Return the fields that a run has. Raises ConfigurationError if the model lacks one of them."""
        own = {f"xq_{name}" if f"xq_{name}" in columns else name for name in ("day", "state")}
        found = [
            field.name for field in self.queue.adapter.store.fields if field.name in columns and field.name not in own
        ]
        if lost := sorted({*columns} - own - {*found}):
            raise ConfigurationError(
                f"the archive has columns that {self.queue.name} has no fields for any more ({', '.join(lost)}), "
                f"so their values would be lost: add the fields and columns, and call again. {run} was not restored"
            )
        return found

    def put_back(self, run: str) -> int:
        """Move a run from the staging table into the table. If tasks must stay, archive them again and raise Error."""
        moved = self.archives.put_back(run)
        self.folder.delete(f"{INCOMPLETE}/{RESTORED}{run}")
        if moved.stayed:
            self.write_out(run)
            raise Error(
                f"{moved.moved} tasks of {self.queue.name} were restored, and {moved.stayed} stay in the "
                "archive: the table has their keys, or other unique values of theirs, again"
            )
        return moved.moved


@dataclass
class Filled(WriterCommitMessage):
    part: int


class Filling(SignedSource):
    """A sink of Spark's that fills the staging table of a queue."""

    @classmethod
    def name(cls) -> str:
        return "xq_staging"

    @staticmethod
    def packed(loading: Loading) -> dict[str, str]:
        bulk = loading.job.bulk
        nowhere = replace(bulk, address=bulk.address.shown)
        bare = replace(loading, job=replace(loading.job, bulk=nowhere))
        return signed("loading", bare) | secrets_of(bulk.address)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        bare: Loading = self.sent("loading")
        bulk = bare.job.bulk
        reachable = replace(bulk, address=self.complete(bulk.address))
        return Filler(replace(bare, job=replace(bare.job, bulk=reachable)))


class Filler(DataSourceArrowWriter):
    """Writes each attempt as a part of its own; the driver keeps the parts of successful attempts."""

    def __init__(self, loading: Loading) -> None:
        self.loading = loading

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Filled:
        context = TaskContext.get()
        assert context is not None
        part = context.taskAttemptId()
        self.loading.load(([column.to_pylist() for column in batch.columns] for batch in iterator), part)
        return Filled(part)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.loading.keep([message.part for message in messages if isinstance(message, Filled)])
