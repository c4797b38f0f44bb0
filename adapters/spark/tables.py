"""The tables of a report on queues: each is a function of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from xq.adapters.spark.moves import BACKLOG, COUNTED, OPEN, OUTCOMES, READY, UNITS, is_, took
from xq.adapters.spark.page import KINDS
from xq.adapters.spark.ranks import ranks
from xq.core.machine import NAMES

SECOND = 1_000_000  # µs
BUCKETS = 600  # the largest number of buckets in a span, unless they are days
STUCK = 3  # a task is stuck in a state for longer than this many times the p99 of the state
QUEUE = ["queue", "tube"]
LEVELS = ("base", "backlog", "ready_base", "ready", "readied")
LIFE = "put to done"


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


class ReportTable(NamedTuple):
    """A table of a report."""

    rows: Callable[[Past], DataFrame]
    meaning: str  # the explanation on the page


# In the order of computation: stuck needs earlier tables.
TABLES: Mapping[str, ReportTable] = {
    "throughput": ReportTable(
        throughput,
        "Tasks put, taken and ended in each second, minute, hour or day, by tube. Done: acked. Buried: put aside after "
        "a failure. Expired: its ttl or lifetime passed. Killed: deleted otherwise. A task that "
        "has ended is not counted again when its row is deleted.",
    ),
    "states": ReportTable(
        states,
        "How long tasks stayed in each state, by tube, of the stays that ended in the span. A pN is a real value: N % "
        "of the stays were as long or shorter.",
    ),
    "lives": ReportTable(
        lives,
        "How long tasks took from put to done, by tube, including delays, retries and the time Buried. The restart of "
        "a finished task begins a new life.",
    ),
    "overall": ReportTable(
        overall, "The same times over all tubes of a queue, since percentiles of parts cannot be added."
    ),
    "retries": ReportTable(
        retries, "How often the tasks that ended in the span had been taken by then: once means no retry."
    ),
    "shares": ReportTable(
        shares,
        "The fractions done, buried, expired and killed of the tasks that ended in the span, each by its last end. "
        "One that was buried, dug and done is done.",
    ),
    "backlog": ReportTable(
        backlog,
        "How many tasks entered the backlog (Ready, or Waiting for their time) in each bucket, for example by put or "
        "release, how many left it, and how many were in it at the end; ready: those of them that were Ready. Buckets "
        "without changes have no row.",
    ),
    "stuck": ReportTable(
        stuck,
        "Tasks Ready or Taken when the report was made, for longer than three times the p99 of that state in the span, "
        "of its tube, or of its queue if the tube has none. For a task from before the history, the time is a lower "
        "bound.",
    ),
    "failures": ReportTable(
        failures,
        "Why tasks were buried in the span and are still Buried, by the first line of the role error: how many, and "
        "when the last one was buried.",
    ),
    "transitions": ReportTable(transitions, "How often tasks went from one state to another, and by which event."),
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
    return _changes(past).groupBy(*QUEUE).agg(*(found[name].alias(name) for name in LEVELS))


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
    summed = levels(past).groupBy("queue").agg(*(F.sum(name).alias(name) for name in LEVELS))

    def rank(measure: str, name: str) -> Column:
        return F.max(F.when(F.col("measure") == measure, F.col(name)))

    found = {"lived": rank(LIFE, "p50"), "lived_p99": rank(LIFE, "p99"), "ready_p90": rank("Ready", "p90")}
    times = overall(past).groupBy("queue").agg(*(column.alias(name) for name, column in found.items()))
    return reduce(lambda one, other: one.join(other, "queue", "full"), [sums, ends, summed, times])
