"""The tables of a report on queues, each a function of the history, and the page that shows them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import reduce
from importlib.util import find_spec
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from xq.adapters.spark.archives import history as archived
from xq.adapters.spark.files import Folder, literally
from xq.adapters.spark.moves import BACKLOG, COUNTED, HISTORY, OPEN, OUTCOMES, READY, UNITS, is_, moves, took
from xq.adapters.spark.page import KINDS, page
from xq.adapters.spark.queues import check_session, named, queue_of
from xq.adapters.spark.ranks import ranks
from xq.adapters.spark.source import options
from xq.adapters.spark.verdicts import checked
from xq.core.errors import BadValue, ConfigurationError, shown
from xq.core.machine import NAMES
from xq.core.values import microseconds

SECOND = 1_000_000  # µs
BUCKETS = 600  # the largest number of buckets in a span, unless they are days
STUCK = 3  # a task is stuck in a state for longer than this many times the p99 of the state

WORK = ".report"  # the folder of an unfinished report
PAGE = "index.html"
MARK = ".made-by-xq"  # a file that marks the folder of a report

QUEUE = ["queue", "tube"]
LIVE = ("queue", "key", "tube", "state")
ERRORS = ("queue", "key", "error")
LINE = 300  # characters that distinguish errors


@dataclass(frozen=True)
class Span:
    """The time of a report: from `since`, before `until`, seen at `now`; µs since 1970."""

    since: int
    until: int
    now: int

    @property
    def unit(self) -> str:
        """The unit of the buckets: the shortest that does not give too many."""
        length = self.until - self.since
        return next((unit for unit, seconds in UNITS.items() if length <= BUCKETS * seconds * SECOND), "day")

    def has(self) -> Column:
        return (F.col("at_us") >= self.since) & (F.col("at_us") < self.until)

    def bucket(self, at_us: Column) -> Column:
        """Return the start of the bucket of a moment. Days are in UTC."""
        return F.timestamp_micros(at_us - F.pmod(at_us, F.lit(UNITS[self.unit] * SECOND)))


@dataclass(frozen=True)
class Past:
    """The input of the tables.

    moves   the history, as `moves` returns it: complete, also from before and after the span
    there   the present tasks in R, T and W: queue, key, tube, state (a letter)
    silent  those of them without a row in the history
    buried  the present tasks in B: queue, key, error (its first line, or null)
    begun   the time of the earliest row of each queue, in µs since 1970: queue, at_us
    """

    moves: DataFrame
    there: DataFrame
    silent: DataFrame
    buried: DataFrame
    begun: DataFrame
    span: Span
    made: dict[str, DataFrame] = field(default_factory=dict)  # tables that are written already

    @property
    def within(self) -> DataFrame:
        return self.moves.where(self.span.has())


def throughput(past: Past) -> DataFrame:
    """Return how many tasks were put and taken, and how many ended and how, in each unit of time with such an event.

    queue, tube, unit (second, minute, hour or day: by the length of the span), bucket (when it begins, UTC), put,
    taken, done, buried, killed, expired. A task is put when it enters the queue unfinished. It is done when it was
    acked, or became D or Z otherwise; expired when its ttl or lifetime passed; killed when it left in any other way. A
    task in D or Z does not end again.
    """
    bucket = past.span.bucket(F.col("at_us")).alias("bucket")
    counts, any_ = _counts(), F.greatest(*map(F.col, COUNTED)) > 0
    table = past.within.groupBy(*QUEUE, F.lit(past.span.unit).alias("unit"), bucket).agg(*counts).where(any_)
    return table.select(*QUEUE, "unit", "bucket", *COUNTED)


def states(past: Past) -> DataFrame:
    """Return how long tasks were in each state, in seconds, of the stays that ended in the span.

    Stays whose beginning is not known are left out.

    queue, tube (at the end of the stay), state (Ready, Taken ...), n, p50, p90, p99, max.
    """
    return ranks(_stays(past), [*QUEUE, "state"], "stay")


def lives(past: Past) -> DataFrame:
    """Return the time from put to done, of the tasks that were done in the span and whose put is known, in seconds.

    queue, tube (when it was done), n, p50, p90, p99, max. Delays, retries and the time Buried count. A restart of a
    finished task begins a new life, as a put does, also of a key that is used again.
    """
    return ranks(past.within.where("outcome = 'done'"), QUEUE, "lived")


def overall(past: Past) -> DataFrame:
    """Return the tables states and lives over all tubes of a queue, since percentiles of parts cannot be added.

    queue, measure (Ready, Taken ..., or "put to done"), n, p50, p90, p99, max, in seconds.
    """
    lived = past.within.where("outcome = 'done'").select(
        "queue", F.lit(LIFE).alias("state"), F.col("lived").alias("stay")
    )
    stays = _stays(past).select("queue", "state", "stay").unionByName(lived)
    return ranks(stays.withColumnRenamed("state", "measure"), ["queue", "measure"], "stay")


def retries(past: Past) -> DataFrame:
    """Return how often the tasks that ended in the span had been taken by then.

    queue, tube, attempts (takes in this life), n. If the history does not show the put of a task: its known takes, or
    the role attempts if that is higher.
    """
    return _ended(past).groupBy(*QUEUE, F.col("takes").alias("attempts")).agg(F.count("*").alias("n"))


def shares(past: Past) -> DataFrame:
    """Return how the tasks that ended in the span ended, as fractions of 1.

    queue, tube, done, buried, expired, killed. A task counts once in each of its lives, by its last end in the span:
    one that was buried, dug and done is done.
    """
    parts = [F.avg((F.col("outcome") == name).cast("double")).alias(name) for name in KINDS]
    return _ended(past).groupBy(*QUEUE).agg(*parts)


def backlog(past: Past) -> DataFrame:
    """Return how many tasks entered the backlog (Ready or Waiting), left it, and were in it at the end of each bucket.

    queue, tube, bucket (as in throughput), arrived, departed, backlog, ready (those of the backlog that are Ready).
    Every entry counts as an arrival, also a release. backlog is that of the previous bucket plus arrived minus
    departed. A bucket without changes has no row, except the first of the span if there was a backlog. For the
    beginning of the history, the backlog follows from the source state in each task's first row, or from the table for
    a task without one.
    """
    since = past.span.since
    changes = _changes(past).where(F.col("at_us") < past.span.until)
    inside, bucket = F.col("at_us") >= since, past.span.bucket(F.greatest("at_us", F.lit(since)))
    counts = {"arrived": inside & (F.col("n") > 0), "departed": inside & (F.col("n") < 0)}
    table = changes.groupBy(*QUEUE, bucket.alias("bucket")).agg(
        *(F.count_if(condition).alias(name) for name, condition in counts.items()),
        *(F.sum(name).alias(name) for name in ("n", "ready")),
    )
    so_far = Window.partitionBy(*QUEUE).orderBy("bucket")
    levels = {"backlog": F.sum("n").over(so_far), "ready": F.sum("ready").over(so_far)}
    rows = table.select(*QUEUE, "bucket", *counts, *(level.alias(name) for name, level in levels.items()))
    return rows.where("arrived > 0 OR departed > 0 OR backlog <> 0")


def stuck(past: Past) -> DataFrame:
    """Return the tasks that are Ready or Taken now, for longer than three times the p99 of that state in the span.

    queue, key (as in the history), state (Ready, Taken), since (UTC), seconds. The p99 is that of the tube, or of the
    queue if no stay of the tube ended in the span; without either, nothing is stuck. Now is when the report was made. A
    task that left without a row in the history (TRUNCATE) is not stuck. One from before the history has no `since`, and
    its `seconds`, those since the earliest row of the history, are a lower bound.
    """
    last = past.moves.where(F.col("last") & is_("target", ("R", "T"))).select(
        *QUEUE, "key", F.col("target").alias("state"), F.timestamp_micros("at_us").alias("since"), "at_us"
    )
    there = last.join(past.there.select("queue", "key"), ["queue", "key"], "left_semi").select(last.columns)
    silent = past.silent.where(is_("state", ("R", "T"))).join(past.begun, "queue")
    now = there.unionByName(
        silent.select(*QUEUE, "key", "state", F.lit(None).cast("timestamp").alias("since"), "at_us")
    )
    of_tube = past.made["states"].select(*QUEUE, "state", F.col("p99").alias("of_tube"))
    of_queue = past.made["overall"].select("queue", F.col("measure").alias("state"), F.col("p99").alias("of_queue"))
    seconds = (F.lit(past.span.now) - F.col("at_us")) / 1e6
    same_tube = (F.col("a.queue") == F.col("b.queue")) & (F.col("a.state") == F.col("b.state"))
    same_tube &= F.col("a.tube").eqNullSafe(F.col("b.tube"))
    limited = _named(now).withColumn("seconds", seconds).alias("a").join(of_tube.alias("b"), same_tube, "left")
    limited = limited.select("a.*", "of_tube").join(of_queue, ["queue", "state"], "left")
    limit = F.coalesce("of_tube", "of_queue") * STUCK
    return limited.where(F.col("seconds") > limit).select("queue", "key", "state", "since", "seconds")


def failures(past: Past) -> DataFrame:
    """Return why tasks were buried in the span and are still Buried, counted by the first line of their error.

    queue, tube, error (of the role error; null if there is none), n, latest (when the last of them was buried, UTC).
    """
    last = past.within.where(F.col("last") & (F.col("target") == "B"))
    latest_rows = last.select(*QUEUE, "key", "at_us").join(past.buried, ["queue", "key"])
    latest = F.timestamp_micros(F.max("at_us")).alias("latest")
    return latest_rows.groupBy(*QUEUE, "error").agg(F.count("*").alias("n"), latest)


def transitions(past: Past) -> DataFrame:
    """Return how often tasks went from one state to another in the span, and by which event.

    queue, tube, source, target (letters; X means not in the table), event, n.
    """
    return past.within.groupBy(*QUEUE, "source", "target", "event").agg(F.count("*").alias("n"))


LIFE = "put to done"


class Table(NamedTuple):
    """A table of a report."""

    rows: Callable[[Past], DataFrame]
    meaning: str  # the explanation on the page


# In the order of computation: stuck needs earlier tables.
TABLES: Mapping[str, Table] = {
    "throughput": Table(
        throughput,
        "Tasks put, taken and ended in each second, minute, hour or day, by tube. Done: acked. Buried: put aside after "
        "a failure. Expired: its ttl or lifetime passed. Killed: deleted otherwise. A finished task ends no more.",
    ),
    "states": Table(
        states,
        "How long tasks stayed in each state, by tube, of the stays that ended in the span. A pN is a real value: N % "
        "of the stays were as long or shorter.",
    ),
    "lives": Table(
        lives,
        "How long tasks took from put to done, by tube, including delays, retries and the time Buried. The restart of "
        "a finished task begins a new life.",
    ),
    "overall": Table(overall, "The same times over all tubes of a queue, since percentiles of parts cannot be added."),
    "retries": Table(
        retries, "How often the tasks that ended in the span had been taken by then: once means no retry."
    ),
    "shares": Table(
        shares,
        "The fractions done, buried, expired and killed of the tasks that ended in the span, each by its last end. "
        "One that was buried, dug and done is done.",
    ),
    "backlog": Table(
        backlog,
        "How many tasks entered the backlog (Ready, or Waiting for their time) in each bucket, for example by put or "
        "release, how many left it, and how many were in it at the end; ready: those of them that were Ready. Buckets "
        "without changes have no row.",
    ),
    "stuck": Table(
        stuck,
        "Tasks Ready or Taken when the report was made, for longer than three times the p99 of that state in the span, "
        "of its tube, or of its queue if the tube has none. For a task from before the history, the time is a lower "
        "bound.",
    ),
    "failures": Table(
        failures,
        "Why tasks were buried in the span and are still Buried, by the first line of the role error: how many, and "
        "when the last one was buried.",
    ),
    "transitions": Table(transitions, "How often tasks went from one state to another, and by which event."),
}


def _named(table: DataFrame) -> DataFrame:
    names = F.create_map(*(F.lit(word) for pair in NAMES.items() for word in pair))
    return table.withColumn("state", F.coalesce(names[F.col("state")], "state"))


def _stays(past: Past) -> DataFrame:
    return _named(past.within.where("stay IS NOT NULL").select(*QUEUE, F.col("source").alias("state"), "stay"))


def _ended(past: Past) -> DataFrame:
    """Return the last end in the span of each life: tube, outcome, takes."""
    ends = past.within.where("outcome IS NOT NULL")
    last = ends.groupBy("queue", "key", "life").agg(F.max_by(F.struct("tube", "outcome", "takes"), "id").alias("end"))
    return last.select("queue", "end.*")


def _changes(past: Past) -> DataFrame:
    """Return every change of the backlog: queue, tube, at_us, n (1, -1 or 0), ready (the same for R alone).

    Tasks from before the history arrive before any span.
    """

    def change(backlog: Column, ready: Column, n: int, tube: str, at_us: Column) -> Column:
        both = {"n": backlog, "ready": ready}
        counts = [F.when(rows, n).otherwise(0).alias(name) for name, rows in both.items()]
        fields = F.col(tube).alias("tube"), at_us.alias("at_us"), *counts
        return F.when(backlog | ready, F.struct(*fields))

    at_us, early, first = F.col("at_us"), F.lit(-(2**62)), F.col("first")
    explicit = F.array(
        change(F.col("arrives"), F.col("readied"), 1, "tube", at_us),
        change(F.col("departs"), F.col("unreadied"), -1, "was_tube", at_us),
        change(first & is_("was", BACKLOG), first & is_("was", READY), 1, "tube", early),
    )
    silent = change(is_("state", BACKLOG), is_("state", READY), 1, "tube", early)
    changes = past.moves.select("queue", F.explode(explicit).alias("change")).unionByName(
        past.silent.select("queue", silent.alias("change"))
    )
    return changes.where("change IS NOT NULL").select("queue", "change.*")


def _counts() -> list[Column]:
    """Return columns that count the puts, the takes, and each kind of end: COUNTED."""
    what = {"put": (F.col("source") == "X") & is_("target", OPEN), "taken": took()}
    what |= {name: F.col("outcome") == name for name in OUTCOMES}
    return [F.count_if(condition).alias(name) for name, condition in what.items()]


# Further tables for the page.


def levels(past: Past) -> DataFrame:
    """Return the backlog of each tube at the beginning and the end of the span.

    queue, tube, base, backlog (R and W at the beginning, and at the end), ready_base, ready (R alone), readied (how
    many became Ready in the span).
    """
    span, at_us = past.span, F.col("at_us")

    def level(name: str, until: int) -> Column:
        return F.sum(F.when(at_us < until, F.col(name)).otherwise(0))

    found = {f"{base}base": level(name, span.since) for base, name in (("", "n"), ("ready_", "ready"))}
    found |= {"backlog": level("n", span.until), "ready": level("ready", span.until)}
    found["readied"] = F.count_if(span.has() & (F.col("ready") > 0))
    names = ("base", "backlog", "ready_base", "ready", "readied")
    return _changes(past).groupBy(*QUEUE).agg(*(found[name].alias(name) for name in names))


def oldest(past: Past) -> DataFrame:
    """Return for how many seconds, at least, the oldest Ready task of each tube has been so at the end of the span."""
    before = past.moves.where(F.col("at_us") < past.span.until).groupBy("queue", "key")
    last = before.agg(F.max_by(F.struct("tube", "target", "at_us"), "id").alias("last")).select("queue", "last.*")
    ready = last.where(is_("target", READY)).select(*QUEUE, "at_us")
    silent = past.silent.where(is_("state", READY)).join(past.begun, "queue").select(*QUEUE, "at_us")
    seconds = (F.lit(past.span.until) - F.min("at_us")) / 1e6
    return ready.unionByName(silent).groupBy(*QUEUE).agg(F.greatest(seconds, F.lit(0.0)).alias("oldest"))


def figures(past: Past) -> DataFrame:
    """Return the figures of a whole queue in one row, to compare the previous span with this one."""
    sums = past.within.groupBy("queue").agg(*_counts())
    bad = F.count_if(F.col("outcome") != "done").alias("missed")
    ends = (
        _ended(past)
        .groupBy("queue")
        .agg(F.count("*").alias("ended"), bad, F.count_if(F.col("takes") > 1).alias("again"))
    )
    names = ("base", "backlog", "ready_base", "ready", "readied")
    held = levels(past).groupBy("queue").agg(*(F.sum(name).alias(name) for name in names))

    def rank(measure: str, name: str) -> Column:
        return F.max(F.when(F.col("measure") == measure, F.col(name)))

    found = {"lived": rank(LIFE, "p50"), "lived_p99": rank(LIFE, "p99"), "ready_p90": rank("Ready", "p90")}
    times = overall(past).groupBy("queue").agg(*(column.alias(name) for name, column in found.items()))
    return reduce(lambda one, other: one.join(other, "queue", "full"), [sums, ends, held, times])


@dataclass(frozen=True)
class Report:
    """The tables of a report by name, read from its files, and the path of its page."""

    tables: Mapping[str, DataFrame]
    html: str


def report(
    spark: SparkSession,
    queues: Any,
    since: float | date | None = None,
    until: float | date | None = None,
    *,
    out: str | os.PathLike[str],
    archive: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Write tables and a page that show what happened in queues from `since` on and before `until`.

    `queues` is a queue (a model, its handle, or a tube), several, a mapping that names them, or all tubes (`xq.Tubes`).
    Each needs the feature history. `since` and `until` are seconds since 1970, a datetime (UTC unless it has a time
    zone), or a date (its beginning); None means the beginning of the history, and now.

    `out` is a folder or its URI. Each table of TABLES, whose functions document it, is written to out/NAME/*.parquet,
    the page to out/index.html. They replace an earlier report. A non-empty folder without a report raises BadValue.

    The page judges each queue by `thresholds`, a mapping of names to numbers: a figure above its threshold is red.

    ready_growth  0.1, fraction of 1: the growth of Ready over the span, of the tasks that became Ready
    not_done      0.05, fraction of 1: tasks buried, expired or killed, of those that ended
    ready_p90     3600, seconds: the p90 of the time Ready
    stuck         0, tasks
    tube_tasks    20, tasks: a tube with fewer is judged only within its queue

    The page compares each figure with that of the previous span of the same length, if `since` is given and the history
    goes back far enough.

    `archive` is the folder to which `xq.spark.archive` moved the history of the queue, or a mapping from names of
    queues to such folders: the report then includes it. Without it a report covers the database only. An archive or
    restore during the report raises Error.

    Memory is bounded; a copy of the history is in out/.report meanwhile. Raises FeatureOff, BadType, BadValue, and
    ConfigurationError without plotly, or in a session of Spark Connect.
    """
    if find_spec("plotly") is None:
        raise ConfigurationError("the page of a report needs plotly: pip install 'xq-tables[spark]'")
    check_session(spark)
    names = named(queues)
    folders = _folders(names, archive)
    limits = checked(thresholds)
    first, end = (None if at is None else microseconds(name, at) for name, at in (("since", since), ("until", until)))
    now = time.time_ns() // 1000
    if first is not None and first >= (now if end is None else end):
        raise BadValue(f"since is before until, but {since!r} is not before {'now' if end is None else repr(until)}")
    folder = Folder(spark, out)  # first, since it raises for a session of Spark Connect

    def read(queue: Any, what: Any, columns: Sequence[str]) -> DataFrame:
        asked = {"columns": ",".join(columns[1:]), "partitions": str(spark.sparkContext.defaultParallelism)}
        return spark.read.format("xq").options(**options(queue, what), **asked).load()

    def past(name: str, queue: Any) -> DataFrame:
        return archived(spark, queue, folders[name]) if name in folders else read(queue, "history", HISTORY)

    history = _union(names, HISTORY, past)
    live = _union(names, LIVE, lambda _, queue: read(queue, "live", LIVE))
    burying = {name: queue for name, queue in names.items() if "B" in queue_of(queue).machine.states}
    buried = _union(burying, ERRORS, lambda _, queue: read(queue, "buried", ERRORS)) if burying else None
    # The queues without errors, and the reason.
    silent = dict.fromkeys(names.keys() - burying.keys(), "buried")
    silent |= {name: "error" for name, queue in burying.items() if "error" not in queue_of(queue).roles}
    return write_report(
        folder, list(names), history, live, first, end, now=now, buried=buried, silent=silent, thresholds=limits
    )


def _union(queues: Mapping[str, Any], columns: Sequence[str], of: Callable[[str, Any], DataFrame]) -> DataFrame:
    rows = (of(name, queue).select(F.lit(name).alias("queue"), *columns[1:]) for name, queue in queues.items())
    return reduce(DataFrame.unionByName, rows)


def _folders(names: Mapping[str, Any], archive: Any) -> Mapping[str, Any]:
    """Return the archive folders of the queues that have one. Raises BadValue."""
    if archive is None:
        return {}
    if not isinstance(archive, Mapping):
        if len(names) > 1:
            raise BadValue("each queue has an archive of its own: give a mapping of the queues' names to the folders")
        return dict.fromkeys(names, archive)
    if strange := [name for name in archive if name not in names]:
        raise BadValue(f"archive names {shown(strange[0])}, and the report is of {', '.join(names)}")
    return archive


def write_report(
    folder: Folder,
    names: Sequence[str],
    history: DataFrame,
    live: DataFrame,
    since: int | None = None,
    until: int | None = None,
    *,
    now: int,
    buried: DataFrame | None = None,
    silent: Mapping[str, str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Write the report of a history (columns HISTORY) and of the present tasks (columns LIVE; state: a letter).

    `buried` are the tasks in B with their errors (columns ERRORS). `silent` has the queues without them, since they
    lack the feature "buried" or the role "error". Times are µs since 1970. An earlier report is replaced only after
    everything has been computed, so a failing report keeps it.
    """
    others = () if folder.exists(MARK) else (name for name in folder.names("") if name != WORK)
    if strange := next(iter(others), None):
        raise BadValue(
            f"{folder.at(strange)} does not belong to a report: give a new or empty folder, or that of a report"
        )
    folder.delete(WORK)  # of a killed report
    try:
        past = _past(folder, history, live, buried, since, until, now)
        for name, table in TABLES.items():
            past.made[name] = _staged(folder, name, table.rows(past))
        made = {name: past.made[name] for name in TABLES}
        made |= {rows.__name__: _staged(folder, rows.__name__, rows(past)) for rows in (levels, oldest)}
        made["begun"] = past.begun
        if since is not None:
            before = Span(2 * since - past.span.until, since, since)
            made["figures"] = _staged(folder, "figures", figures(replace(past, span=before)))
        meanings = {name: table.meaning for name, table in TABLES.items()}
        span = past.span.since, past.span.until, past.span.now
        text = page(names, made, span, past.span.unit, meanings, checked(thresholds), silent or {})
        folder.write(f"{WORK}/{PAGE}", text)
        folder.write(MARK, "")
        for name in (*TABLES, PAGE):
            folder.delete(name)
            folder.move(f"{WORK}/{name}", name)
    finally:
        folder.delete(WORK)
    tables = {name: _read(folder, name, table) for name, table in past.made.items()}
    return Report(tables, re.sub("^file:/+", "/", folder.at(PAGE)))


def _staged(folder: Folder, name: str, table: DataFrame) -> DataFrame:
    """Write a table, and return it as read from its files."""
    table.write.parquet(folder.at(WORK, name))
    return _read(folder, f"{WORK}/{name}", table)


def _read(folder: Folder, name: str, like: DataFrame) -> DataFrame:
    return like.sparkSession.read.schema(like.schema).parquet(literally(folder.at(name)))


def _past(
    folder: Folder,
    history: DataFrame,
    live: DataFrame,
    buried: DataFrame | None,
    since: int | None,
    until: int | None,
    now: int,
) -> Past:
    # The tasks first: the history read later then shows tasks without a row so far that move meanwhile.
    there = _staged(folder, "live", live)
    buried = live.select("queue", "key", F.lit("").alias("error")).limit(0) if buried is None else buried
    line = F.substring(F.regexp_extract(F.coalesce("error", F.lit("")), r"^\s*([^\r\n]*)", 1), 1, LINE)
    errors = _staged(folder, "buried", buried.withColumn("error", F.nullif(F.rtrim(line), F.lit(""))))
    all_moves = _staged(folder, "moves", moves(history))
    ends = all_moves.groupBy("queue").agg(F.min("at_us").alias("at_us"))
    begun = _staged(folder, "begun", ends)
    recorded = all_moves.where("first").select("queue", "key")
    silent = _staged(folder, "silent", there.join(recorded, ["queue", "key"], "left_anti"))
    until = now if until is None else until
    first = begun.agg(F.min("at_us")).first()
    earliest = first[0] if first and first[0] is not None else until
    return Past(
        all_moves, there, silent, errors, begun, Span(min(earliest, until) if since is None else since, until, now)
    )
