"""An archive of a queue: its done tasks and its old history as Parquet, read together with what the database has.

    OUT/tasks/xq_run=RUN/day=2026-11-21/*.parquet       each folder of a run is there as a whole or not at all
    OUT/history/xq_run=RUN/day=2026-11-21/*.parquet
    OUT/_queue.json                                     whose it is: no other queue gets in
    OUT/_xq/                                            what is on its way

A run gathers done tasks in the outbox of the queue (a table beside its own), writes them under `_xq`, and renames that
folder into its place: from then on they are in the archive. Then they are deleted from the outbox. To restore goes
the other way: the outbox is filled while the folder is in its place still, then the folder is renamed away, and then
tasks go back from the outbox into the table. So a run that is in its place counts there, and any other counts in the
outbox, whenever a process is killed; and the next call finishes what one that was killed has begun.
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
from xq.adapters.spark.packed import Source, packed, secrets_of, signed, with_secrets
from xq.adapters.spark.queues import queue_of
from xq.adapters.spark.session import offer
from xq.core.errors import ConfigurationError, Error
from xq.pipeline.archives import Archives
from xq.pipeline.loading import Loading
from xq.pipeline.scan import Extract, quoted
from xq.pipeline.spans import Past

RUN = "xq_run"
SINCE = "xq_at_us"
A_DAY = 86_400_000_000  # microseconds
TASKS, HISTORY, AWAY = "tasks", "history", "_xq"
WHOSE = "_queue.json"  # what tells which queue the archive is of
MANIFEST = "_manifest.json"  # names that begin so Spark does not take for data
RESTORED = "restored-"
PARTS = 8  # in which the history is read, where that can be


class Archived(NamedTuple):
    """What an archive has got: so many tasks and rows of history. `stayed` tasks could not go, or were changed."""

    tasks: int
    history: int
    stayed: int


def archive(spark: SparkSession, queue: object, out: str, before: float | datetime | date | None = None) -> Archived:
    """Move done tasks and old history of a queue to Parquet in `out`, by day, and delete them from the database.

    Those tasks that came to D before a moment (seconds since 1970, a datetime, by UTC unless it says otherwise, or a
    date; None: all), and those of which the history does not tell it; and the rows of history from before, up to where
    the first of those came to D that had to stay; also those of tasks that are not done. The day of a task is that of
    its last transition into D, by UTC. It counts as D-X, and the event is `archive`. What happens from the call on,
    this included, is of the history that the next call takes.

    It may be killed and called again at any time, and others may work with the queue meanwhile: who restarts a task in
    time keeps it. Of a table on SQLite that numbers its tasks itself the one of the highest number stays, since SQLite
    would give it to the next one. `out` is any path of Hadoop's whose file system renames a folder in one step.

    Raises FeatureOff (it needs keep and history), ArchiveBusy, BadType, BadValue, and ConfigurationError, for a table
    with columns that the model does not have, say, which would be lost, or for the folder of another queue; Error where
    Spark cannot read a task, and all that were to leave are in the table again.
    """
    place = _Place(spark, queue, out, "archive")
    before_us = place.archives.moment("before", before)
    with place.alone():
        place.archives.prepare()
        run = place.new_run()
        left = place.archives.stage(run, before_us)
        if left.moved:
            place.write_out(run)
        return Archived(left.moved, place.write_history(run, left.past), left.stayed)


def restore(spark: SparkSession, queue: object, out: str) -> int:
    """Move all tasks of an archive back into the table, as D. Returns how many. It counts as X-D.

    The history stays where it is, where `history` reads it. May be killed and called again, as `archive`. Raises
    ConfigurationError where there is no archive; Error where tasks stay in it, when all others are back, since the
    table has their keys again, or other values that must be there once; and as `archive`.
    """
    place = _Place(spark, queue, out, "restore")
    with place.alone():
        place.archives.prepare()
        restored, refused = 0, None
        for run in place.runs(TASKS):
            try:
                restored += place.bring_back(run)
            except Error as error:  # of this run: it is no reason for the others to stay
                refused = refused or error
        if refused:
            raise refused
        return restored


def tasks(spark: SparkSession, queue: object, archive: str) -> DataFrame:
    """The tasks of a queue, those in the table and those in an archive, as one DataFrame.

    The columns of `options(queue)`, and `day`, on which a task came to D, if it is in the archive (`xq_day` where a
    field is called so). Each task is there once, whatever an archive or restore is in the midst of. What has become of
    the table is told when the DataFrame is used; if an archive or restore has come by since it was made, that raises.
    """
    place = _Place(spark, queue, archive, "tasks")
    generation, runs = place.archives.generation, place.runs(TASKS)
    mine = place.with_day(place.frame(place.archives.extract_tasks(runs, generation)))
    return place.with_archive(mine, TASKS, runs).drop(RUN)


def history(spark: SparkSession, queue: object, archive: str) -> DataFrame:
    """The history of a queue, what of it is in the database and what in an archive, as one DataFrame.

    The columns of `options(queue, "history")`, and `day` (by UTC) and `dur_us`, the microseconds that the task had been
    in the state it left. Each row is there once, as in `tasks`.
    """
    place = _Place(spark, queue, archive, "history")
    generation, runs = place.archives.generation, place.runs(HISTORY)
    past = place.manifest(runs[-1])["past"] if runs else None
    mine = place.frame(place.archives.extract_history(past, generation)).withColumn("day", _day(f.col("at_us")))
    live = f"s-{place.mine}-"  # comes after all runs
    whole = place.with_archive(mine.withColumn(RUN, f.lit(live)), HISTORY, runs)
    # Where a queue is installed anew, its ids begin anew; else they tell the order, and runs may not.
    anew = [run for last, run in pairwise([*runs, live]) if last.split("-")[1] != run.split("-")[1]]
    order = [*(f.col(RUN) >= run for run in anew), f.col("id")]
    before = f.lag("at_us").over(Window.partitionBy("key").orderBy(*order))
    return whole.withColumn("dur_us", f.col("at_us") - before).drop(RUN)


def _day(at_us: Any) -> Any:
    return f.date_add(f.lit("1970-01-01").cast("date"), f.floor(at_us / A_DAY).cast("int"))


class _Place:
    """Where the archive of one queue is, and what is done there."""

    def __init__(self, spark: SparkSession, queue: object, out: str, what: str) -> None:
        self.spark = spark
        self.queue: xq.Queue[Any] = queue_of(queue)
        self.archives: Archives = self.queue.pipeline.archives
        self.archives.check(what)
        self.folder = Folder(spark, out)
        if what != "archive" and not self.folder.exists(""):
            raise ConfigurationError(
                f"there is no archive at {self.folder.path}: is that the folder that `archive` was given? If it was "
                "never called, make an empty one"
            )
        self.check_whose()
        self.parts = PARTS if self.archives.old.is_read_in_parts else 1
        names = {field.name.lower() for field in self.queue.adapter.store.fields}
        self.day = "xq_day" if "day" in names else "day"

    def check_whose(self) -> None:
        """Raise ConfigurationError where the archive is of another queue."""
        if not self.folder.exists(WHOSE):
            return
        whose, mine = json.loads(self.folder.read(WHOSE)), self.archives.identity
        if whose != mine:
            raise ConfigurationError(
                f"{self.folder.path} has the archive of {whose['queue']} of the database {whose['database']}, and this "
                f"is {mine['queue']} of {mine['database']}, or another one of that name: each queue needs a folder of "
                f"its own. If it is the same one, moved or installed anew, delete {WHOSE} there"
            )

    @cached_property
    def mine(self) -> str:
        """Whose run it is, by its name; known once this queue has been `alone`."""
        return hashlib.sha256(f"{self.archives.identity['number']} {self.folder.path}".encode()).hexdigest()[:8]

    def move(self, old: str, new: str) -> None:
        """Rename a folder, unless others have begun to work here."""
        self.check_whose()
        self.archives.check_alone()
        self.folder.move(old, new)

    # runs

    def new_run(self) -> str:
        """The name of a run, after those of all before it."""
        last = max((run[1:17] for what in (TASKS, HISTORY) for run in self.runs(what)), default="0")
        number = max(int(last) + 1, self.archives.now_us)  # wherever the clock was set to
        return f"r{number:016d}-{self.mine}-{secrets.token_hex(4)}"

    def runs(self, what: str) -> list[str]:
        """The runs that are in their place, in their order."""
        return [name.removeprefix(f"{RUN}=") for name in self.folder.names(what) if name.startswith(f"{RUN}=")]

    @staticmethod
    def of(what: str, run: str) -> str:
        return f"{what}/{RUN}={run}"

    def manifest(self, run: str, what: str = HISTORY) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.folder.read(f"{self.of(what, run)}/{MANIFEST}"))
        return found

    # reading

    def frame(self, extract: Extract, partitions: int = 1) -> DataFrame:
        reader = self.spark.read.format("xq").options(**packed(extract=extract))
        return reader.options(partitions=partitions).load()

    def with_day(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn(self.day, _day(f.col(SINCE))).drop(SINCE)

    def stored(self, what: str, runs: Iterable[str]) -> DataFrame:
        """The rows of some runs that are in their place, each with its run."""
        reader = self.spark.read.options(basePath=self.folder.at(what), mergeSchema=True)
        return reader.parquet(*(literally(self.folder.at(self.of(what, run))) for run in runs))

    def with_archive(self, mine: DataFrame, what: str, runs: list[str]) -> DataFrame:
        if not runs:
            return mine
        stored = self.stored(what, runs)
        day = "day" if what == HISTORY else self.day
        return mine.unionByName(stored.withColumn(day, f.col(day).cast("date")), allowMissingColumns=True)

    # what was begun

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process archives or restores; and what such have left undone is done."""
        with self.archives.alone():
            if not self.folder.exists(WHOSE):
                away = f"{AWAY}/{secrets.token_hex(8)}"
                self.folder.write(away, json.dumps(self.archives.identity))
                self.folder.move(away, WHOSE)  # where it is, it is whole
            self.check_whose()
            self.archives.fits()
            self.finish()
            yield

    def finish(self) -> None:
        """Finish what calls that were killed have begun."""
        for name in self.folder.names(AWAY):
            if not name.startswith(RESTORED):
                self.folder.delete(f"{AWAY}/{name}")
        in_place, waiting = set(self.runs(TASKS)), self.archives.runs()
        for run in waiting:
            if run in in_place:
                self.archives.retire(run)
            elif self.archives.is_loading(run):
                self.archives.forget(run)
            elif self.folder.exists(f"{AWAY}/{RESTORED}{run}"):
                continue
            elif f"-{self.mine}-" in run:
                self.write_out(run)
        for name in self.folder.names(AWAY):
            self.put_back(name.removeprefix(RESTORED))
        if runs := self.runs(HISTORY):
            self.archives.old.forget(self.manifest(runs[-1])["past"])

    # out

    def write_out(self, run: str) -> None:
        """Put a run that is in the outbox into its place."""
        try:
            away, rows = self._write(self.with_day(self.frame(self.archives.extract_run(run))), self.day)
        except PySparkException as error:
            stayed = self.archives.put_back(run).stayed
            where = f"{stayed} of them wait in {self.archives.outbox}" if stayed else "they are in the table again"
            why = re.search(r"BadValue: (.+)", str(error))
            raise Error(
                f"tasks of {self.queue.name} cannot be written, and {where}. Mend there, by plain SQL, what "
                f"Spark could not read, and call again: {why[1] if why else 'see above'}"
            ) from error
        self._commit(away, TASKS, run, rows, self.archives.count(run) == rows, {})
        self.archives.retire(run)

    def write_history(self, run: str, past: Past | None) -> int:
        """Put rows of the history into their place, and delete them in the database. Returns how many."""
        if past is None or not self.archives.old.is_there(past):
            return 0
        frame = self.frame(self.archives.extract_past(past), self.parts).withColumn("day", _day(f.col("at_us")))
        away, rows = self._write(frame, "day")
        # Less there than here: its time was over, and the queue has forgotten it.
        self._commit(away, HISTORY, run, rows, self.archives.old.count(past) <= rows, {"past": dict(past)})
        self.archives.old.forget(past)
        return rows

    def _write(self, frame: DataFrame, day: str) -> tuple[str, int]:
        """Write rows where they count for nothing yet. Returns where, and how many there are by now."""
        away = f"{AWAY}/{secrets.token_hex(8)}"
        frame.write.partitionBy(day).parquet(self.folder.at(away))
        return away, self.spark.read.parquet(literally(self.folder.at(away))).count()

    def _commit(self, away: str, what: str, run: str, rows: int, is_whole: bool, more: Mapping[str, Any]) -> None:
        """Rename what was written into its place, if all is there."""
        if not is_whole:
            raise Error(f"{rows} rows of the {what} of {self.queue.name} were written, and more are there: try again")
        self.folder.write(f"{away}/{MANIFEST}", json.dumps({"rows": rows, **more}))
        self.move(away, self.of(what, run))

    # back

    def bring_back(self, run: str) -> int:
        """Move a run from its place into the outbox, and from there into the table. Returns how many tasks came."""
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
                f"{self.queue.name} has tasks again whose keys are in the archive, {', '.join(map(repr, keys))}: "
                "kill them first; of this run nothing was restored"
            )
        self.move(self.of(TASKS, run), f"{AWAY}/{RESTORED}{run}")
        return self.put_back(run)

    def fields_of(self, run: str, columns: Sequence[str]) -> list[str]:
        """The fields that a run has. Raises ConfigurationError where the model has not all of them."""
        own = {f"xq_{name}" if f"xq_{name}" in columns else name for name in ("day", "state")}
        found = [
            field.name for field in self.queue.adapter.store.fields if field.name in columns and field.name not in own
        ]
        if lost := sorted({*columns} - own - {*found}):
            raise ConfigurationError(
                f"the archive has what {self.queue.name} has no fields for any more ({', '.join(lost)}), and it "
                f"would be lost: add them, with the columns of the table, and call again. {run} was not restored"
            )
        return found

    def put_back(self, run: str) -> int:
        """Move a run that is in the outbox into the table. Raises Error where some stay, which are archived again."""
        left = self.archives.put_back(run)
        self.folder.delete(f"{AWAY}/{RESTORED}{run}")
        if left.stayed:
            self.write_out(run)
            raise Error(
                f"{left.moved} tasks of {self.queue.name} came back, and {left.stayed} stay in the archive: the "
                "table has their keys again, or what must be there once"
            )
        return left.moved


@dataclass
class Filled(WriterCommitMessage):
    part: int


class Filling(Source):
    """The outbox of a queue, as Spark fills it."""

    @classmethod
    def name(cls) -> str:
        return "xq_outbox"

    @staticmethod
    def packed(loading: Loading) -> dict[str, str]:
        bulk = loading.job.bulk
        nowhere = replace(bulk, address=bulk.address.shown)
        bare = replace(loading, job=replace(loading.job, bulk=nowhere))
        return signed("loading", bare) | secrets_of(bulk.address)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        bare: Loading = self.sent("loading")
        bulk = bare.job.bulk
        there = replace(bulk, address=with_secrets(bulk.address, self.options))
        return Filler(replace(bare, job=replace(bare.job, bulk=there)))


class Filler(DataSourceArrowWriter):
    """Each attempt fills a part of its own; those count that the driver has heard of."""

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
