"""A report on queues: the folder of its tables, and of the page that shows them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from xq.adapters.spark.archives import history as archived
from xq.adapters.spark.files import Folder, literally
from xq.adapters.spark.moves import HISTORY, moves
from xq.adapters.spark.page import page
from xq.adapters.spark.queues import check_session, named, queue_of
from xq.adapters.spark.source import options
from xq.adapters.spark.tables import TABLES, Past, Span, figures, levels, oldest
from xq.adapters.spark.verdicts import checked
from xq.core.errors import BadValue, ConfigurationError, shown
from xq.core.values import microseconds

WORK = ".report"  # the folder of an unfinished report
PAGE = "index.html"
MARK = ".made-by-xq"  # a file that marks the folder of a report

LIVE = ("queue", "key", "tube", "state")
ERRORS = ("queue", "key", "error")
LINE = 300  # characters that distinguish errors


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
