"""A report on queues: the folder with its tables, and with the page that shows them."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial, reduce
from importlib.util import find_spec
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from xq.adapters.spark.archive import history as archived
from xq.adapters.spark.facts import Past, facts, ranks
from xq.adapters.spark.files import Folder, literally
from xq.adapters.spark.moves import HISTORY, OPEN, Span, is_, moves
from xq.adapters.spark.packed import packed
from xq.adapters.spark.page import SHOWN, ReportPage
from xq.adapters.spark.queues import check_session, named
from xq.adapters.spark.tables import STUCK, TABLES, Fact, TubeFacts
from xq.adapters.spark.verdicts import checked
from xq.adapters.spark.written import written
from xq.api import queue_of
from xq.core.clock import microseconds
from xq.core.errors import BadValue, ConfigurationError, shown
from xq.core.machine import NAMES
from xq.pipeline.scan import Extract, quoted

WORK = ".report"  # an unfinished report's folder
PAGE = "index.html"
MARK = ".made-by-xq"  # a file that marks a report's folder

THERE = ("queue", "key", "tube", "state", "error")
LINE = 300  # characters that distinguish errors
FIRST_LINE = rf"nullif(rtrim(substring(regexp_extract(error, r'^\s*([^\r\n]*)', 1), 1, {LINE})), '')"
BEGINNING = -(2**62)  # µs: before any moment


@dataclass(frozen=True)
class Report:
    """A report's tables by name, read from its files, and the path of its page."""

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
    zone), or a date (its beginning); None means the history's beginning, and now.

    `out` is a folder or its URI. Each table (see docs/spark.md) is written to out/NAME/*.parquet, the page to
    out/index.html. They replace an earlier report. A non-empty folder without a report raises BadValue.

    The page judges each queue by `thresholds`, a mapping from names to numbers: a figure above its threshold is red.
    docs/spark.md has their names and defaults.

    The page compares each figure with the one for the previous, equally long span, if `since` is given and the history
    goes back far enough.

    `archive` is the folder to which `xq.spark.archive` moved the queue's history, or a mapping from queue names to such
    folders: the report then includes it. Without it a report covers the database only. A report lacks what an archive
    moves while it runs.

    Memory grows with the tubes, their buckets and their errors, not with the history: its copy is in out/.report
    meanwhile. Raises FeatureOff, BadType, BadValue, and ConfigurationError without plotly, or with Spark Connect.
    """
    if find_spec("plotly") is None:
        raise ConfigurationError("the page of a report needs plotly: pip install '.[spark]' in the checkout of xq")
    names = named(queues)
    check_session(spark, *map(queue_of, names.values()))
    folders = _folders(names, archive)
    limits = checked(thresholds)
    moments = {"since": since, "until": until}
    first, end = (None if at is None else microseconds(name, at) for name, at in moments.items())
    now = time.time_ns() // 1000
    if first is not None and first >= (now if end is None else end):
        raise BadValue(f"since is before until, but {since!r} is not before {'now' if end is None else repr(until)}")
    folder = Folder(spark, out)  # first, since it raises with Spark Connect

    def read(extract: Extract, columns: Sequence[str]) -> DataFrame:
        asked = {"columns": ",".join(columns), "partitions": str(spark.sparkContext.defaultParallelism)}
        return spark.read.format("xq").options(**packed(extract=extract), **asked).load()

    def past(name: str, queue: Any) -> DataFrame:
        if name in folders:
            return archived(spark, queue, folders[name])
        return read(queue_of(queue).pipeline.extract("history"), HISTORY[1:])

    def present(queue: Any) -> DataFrame:
        """Return the unfinished tasks: their key as in the history, their state (a letter), tube and error."""
        handle = queue_of(queue)
        extract = handle.pipeline.extract("tasks", "".join(OPEN))
        *_, state = extract.chosen()
        fields = {role: handle.roles.get(role) for role in ("tube", "error")}
        found = read(extract, ["xq_key", state.name, *filter(None, fields.values())])
        letter = _looked_up({name: letter for letter, name in NAMES.items()}, state.name)
        values = {role: F.col(quoted(field)) if field else F.lit(None) for role, field in fields.items()}
        own = (value.cast("string").alias(role) for role, value in values.items())
        return found.select(F.col("xq_key").alias("key"), letter.alias("state"), *own)

    handles = {name: queue_of(queue) for name, queue in names.items()}
    silent = {name: "error" for name, handle in handles.items() if "error" not in handle.roles}
    silent |= {name: "buried" for name, handle in handles.items() if "B" not in handle.machine.states}
    history = _union(names, HISTORY, past)
    there = _union(names, THERE, lambda _, queue: present(queue))
    return write_report(folder, list(names), history, there, first, end, now, silent, limits)


def _union(queues: Mapping[str, Any], columns: Sequence[str], of: Callable[[str, Any], DataFrame]) -> DataFrame:
    rows = (of(name, queue).select(F.lit(name).alias("queue"), *columns[1:]) for name, queue in queues.items())
    return reduce(DataFrame.unionByName, rows)


def _folders(names: Mapping[str, Any], archive: Any) -> Mapping[str, Any]:
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
    there: DataFrame,
    since: int | None,
    until: int | None,
    now: int,
    silent: Mapping[str, str],
    thresholds: Mapping[str, float],
) -> Report:
    """Write the report on a history (columns HISTORY) and on the present unfinished tasks (columns THERE).

    `silent` has the queues that have no errors, and what they lack: the feature "buried" or the role "error". Times are
    µs since 1970. An earlier report is replaced only after everything has been computed, so a failing report keeps it.
    """
    others = () if folder.exists(MARK) else (name for name in folder.names("") if name != WORK)
    if strange := next(iter(others), None):
        raise BadValue(
            f"{folder.at(strange)} does not belong to a report: give a new or empty folder, or that of a report"
        )
    folder.delete(WORK)  # a killed report's
    read = partial(_read, folder, history.sparkSession)

    def staged(name: str, table: DataFrame) -> DataFrame:
        """Write a table, and return it as read from its files."""
        table.write.parquet(folder.at(f"{WORK}/{name}"))
        return read(f"{WORK}/{name}", table.schema)

    try:
        # The tasks first: the history read later then shows tasks without a row so far that move meanwhile.
        tasks = staged("there", there.withColumn("error", F.expr(f"IF(state = 'B', {FIRST_LINE}, NULL)")))
        end = Span(BEGINNING if since is None else since, now if until is None else until, now)
        before = None if since is None else end.before
        rows = staged("moves", moves(history, tasks, end, before))
        begun: dict[str, int] = dict(rows.where("at_us IS NOT NULL").groupBy("queue").agg(F.min("at_us")).collect())
        span = replace(end, since=min([*begun.values(), end.until])) if since is None else end
        past = Past(rows, span, before)
        sums = staged("facts", facts(past))
        ranked = staged("ranks", _ranked(past, sums))
        stuck = staged("stuck", _stuck(past, ranked, begun))
        page = ReportPage(names, thresholds, begun)
        with written(folder, WORK) as tables_of:
            for tube in _tubes(sums, ranked, stuck, span):
                page.add(tube, tables_of(tube))
        folder.write(f"{WORK}/{PAGE}", page.html(span, before, silent))
        folder.write(MARK, "")
        for name in (*TABLES, PAGE):
            folder.delete(name)
            folder.move(f"{WORK}/{name}", name)
    finally:
        folder.delete(WORK)
    found = {name: read(name, table.schema) for name, table in TABLES.items()}
    return Report(found, re.sub("^file:/+", "/", folder.at(PAGE)))


def _read(folder: Folder, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
    return spark.read.schema(schema).parquet(literally(folder.at(name)))


def _ranked(past: Past, sums: DataFrame) -> DataFrame:
    """Return the percentiles for each tube and each whole queue, in seconds."""
    bins = sums.where("kind = 'lasted'")
    bins = bins.selectExpr("queue", "tube", "era", "source", "number AS bin", "n AS here", "us AS most")
    found = ranks(past.timed, bins, ["queue", "era", "source"], "tube")
    seconds = "array(p50 / 1e6D, p90 / 1e6D, p99 / 1e6D, most / 1e6D) AS ranks"
    return found.selectExpr("queue", "tube", "IF(whole, 'overall', 'ranks') AS kind", "era", "source", "n", seconds)


def _stuck(past: Past, ranked: DataFrame, begun: Mapping[str, int]) -> DataFrame:
    """Return the stuck tasks: queue, key (as in the history), state (Ready, Taken), since (UTC), seconds.

    The p99 is the tube's, or the queue's if no stay in the tube ended in the span; without either, nothing is stuck. A
    task that left without a row in the history (TRUNCATE) is not stuck. One from before the history has no `since`, and
    its `seconds`, counted from the history's earliest row, are a lower bound.
    """
    now = past.moves.where(f"(silent OR last AND live) AND {is_('target', ('R', 'T'))}")
    limits = ranked.where("era = 'now'").selectExpr(
        "queue AS of_queue", "tube AS of_tube", "source AS of_state", "kind", f"ranks[2] * {STUCK} AS p99"
    )
    same, same_tube = "queue = of_queue AND target = of_state", "tube <=> of_tube"
    for kind, on in {"ranks": f"{same} AND {same_tube}", "overall": same}.items():
        limit = limits.where(f"kind = '{kind}'").withColumnRenamed("p99", kind).drop("kind")
        now = now.join(limit, F.expr(on), "left").drop("of_queue", "of_tube", "of_state")
    since = F.coalesce("at_us", _looked_up({"": None, **begun}, "queue").cast("bigint"))
    limited = now.withColumn("seconds", (F.lit(past.span.now) - since) / 1e6).where(
        "seconds > coalesce(ranks, overall)"
    )
    state = F.coalesce(_looked_up(NAMES, "target"), "target").alias("state")
    return limited.select("queue", "key", state, F.timestamp_micros("at_us").alias("since"), "seconds")


def _looked_up(found: Mapping[str, Any], name: str) -> Column:
    return F.create_map(*(F.lit(word) for pair in found.items() for word in pair))[F.col(name)]


def _tubes(sums: DataFrame, ranked: DataFrame, stuck: DataFrame, span: Span) -> Iterator[TubeFacts]:
    """Yield the tubes one by one, with the rows that the driver needs. Stuck tasks belong to the tube None."""
    first = stuck.coalesce(1).selectExpr(
        *("queue", "'stuck' AS kind", "key AS source", "state AS target", "unix_micros(since) AS us"),
        "array(seconds) AS ranks",
        "count(*) OVER (PARTITION BY queue) AS n",
        "row_number() OVER (PARTITION BY queue ORDER BY seconds DESC, key) AS place",
    )
    rows = sums.where("kind <> 'lasted'")
    for more in (ranked, first.where(f"place <= {SHOWN['stuck']}").drop("place")):
        rows = rows.unionByName(more, allowMissingColumns=True)
    ordered = rows.select(*Fact._fields).coalesce(1).sortWithinPartitions("queue", "tube")
    for (queue, tube), some in groupby(map(Fact._make, ordered.toLocalIterator()), key=lambda fact: fact[:2]):
        of: dict[str, list[Fact]] = defaultdict(list)
        for fact in some:
            of[fact.kind].append(fact)
        yield TubeFacts(queue, tube, of, span)
