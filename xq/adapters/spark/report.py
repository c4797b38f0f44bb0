"""A report on queues: the folder with its tables, and with the page that shows them."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from functools import partial, reduce
from importlib.util import find_spec
from itertools import chain, groupby, starmap
from typing import Any, Literal

import pyarrow as pa
from pyarrow import compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from xq.adapters.spark.archive import history as archived
from xq.adapters.spark.facts import Bin, CheckedCall, Past, added, facts, places, values
from xq.adapters.spark.files import Folder, literally
from xq.adapters.spark.jdbc import by_jdbc
from xq.adapters.spark.moves import HISTORY, OPEN, Span, is_, moves
from xq.adapters.spark.packed import packed
from xq.adapters.spark.page import SHOWN, ReportPage
from xq.adapters.spark.queues import LOCAL, check_session, extract_of, master_of, named, settings
from xq.adapters.spark.tables import STUCK, TABLES, Fact, TubeFacts
from xq.adapters.spark.verdicts import checked
from xq.adapters.spark.written import CHUNK, written
from xq.api import queue_of
from xq.core.clock import microseconds
from xq.core.errors import BadValue, ConfigurationError, shown
from xq.core.machine import NAMES
from xq.pipeline.scan import Extract, quoted

log = logging.getLogger("xq")

WORK = ".report"  # an unfinished report's folder
PAGE = "index.html"
MARK = ".made-by-xq"  # a file that marks a report's folder

THERE = ("queue", "key", "tube", "state", "error")
LINE = 300  # characters that distinguish errors
FIRST_LINE = rf"nullif(rtrim(substring(regexp_extract(error, r'^\s*([^\r\n]*)', 1), 1, {LINE})), '')"
BEGINNING = -(2**62)  # µs: before any moment
EMPTY = pa.table({name: pa.array([], pa.string()) for name in Fact._fields[:-1]})
LIMITS = pa.schema({**dict.fromkeys(("of_queue", "of_tube", "of_state", "kind"), pa.string()), "p99": pa.float64()})
SHUFFLED, PER_CORE = "spark.sql.shuffle.partitions", 4  # at most so many partitions


@dataclass(frozen=True)
class Report:
    """A report's tables by name, read from its files, the path of its page, and what the page shows of each queue.

    `figures["Page"]["verdicts"]` has a red answer as True: backlog, failures, waits, stuck. The page shows 30 queues.
    `span` is its beginning and its end, in seconds since 1970. With since="last" the next report begins at this end.
    """

    tables: Mapping[str, DataFrame]
    html: str
    figures: Mapping[str, Mapping[str, Any]]
    span: tuple[float, float]


def report(
    spark: SparkSession,
    queues: Any,
    since: float | date | Literal["last"] | None = None,
    until: float | date | None = None,
    *,
    out: str | os.PathLike[str],
    archive: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    thresholds: Mapping[str, float] | None = None,
    read_from: str | None = None,
) -> Report:
    """Write tables and a page that show what happened in queues from `since` on and before `until`.

    `queues` is a queue (a model, its handle, or a tube), several, a mapping that names them, or all tubes (`xq.Tubes`).
    Each needs the feature history. `since` and `until` are seconds since 1970, a datetime (UTC unless it has a time
    zone), or a date (its beginning); None means the history's beginning, and now. With "last" the span begins where
    that of the report in `out` ended; with the history, if there is no report.

    `out` is a folder or its URI. Each table (see docs/spark.md) is written to out/NAME/*.parquet, the page to
    out/index.html. They replace an earlier report. A non-empty folder without a report raises BadValue.

    The page judges each queue by `thresholds`, a mapping from names to numbers: a figure above its threshold is red.
    docs/spark.md has their names and defaults.

    The page compares each figure with the one for the previous, equally long span, if `since` is given and the history
    goes back far enough.

    `archive` is the folder to which `xq.spark.archive` moved the queue's history, or a mapping from queue names to such
    folders: the report then includes it. Without it a report covers the database only. A report lacks what an archive
    moves while it runs.

    `read_from` is the URL of a replica of the queues' database, which is read instead; an archive's queue is not.

    Memory grows with the tubes, their buckets and their errors, not with the history: Spark keeps a copy of that, on
    disk where memory is short, and on a cluster in out/.report. Raises FeatureOff, BadType, BadValue, and
    ConfigurationError without plotly, or with Spark Connect.
    """
    if find_spec("plotly") is None:
        raise ConfigurationError("the page of a report needs plotly: pip install '.[spark]' in the checkout of xq")
    names = named(queues)
    check_session(spark, *map(queue_of, names.values()))
    folders = _folders(names, archive)
    limits = checked(thresholds)
    goes_on = isinstance(since, str) and since == "last"
    moments = {"since": None if goes_on else since, "until": until}
    first, end = (None if at is None else microseconds(name, at) for name, at in moments.items())
    if goes_on:
        first = _ended(Folder(spark, out))
    now = time.time_ns() // 1000
    if first is not None and first >= (now if end is None else end):
        raise BadValue(f"since is before until, but {since!r} is not before {'now' if end is None else repr(until)}")
    folder = Folder(spark, out)  # first, since it raises with Spark Connect

    def read(extract: Extract, columns: Sequence[str]) -> DataFrame:
        parts = spark.sparkContext.defaultParallelism
        try:  # it needs the least of the processors, which the report needs itself
            return by_jdbc(spark, extract, columns, parts if extract.order else 1)
        except Exception as error:  # no jar, a socket, a way to log in that Java does not know
            log.debug("a report reads %s by format('xq'), not by JDBC: %s", extract.name, error)
        asked = {"columns": ",".join(columns), "partitions": str(parts)}
        return spark.read.format("xq").options(**packed(extract=extract), **asked).load()

    def past(name: str, queue: Any) -> DataFrame:
        if name in folders:
            return archived(spark, queue, folders[name])
        return read(extract_of(queue, "history", read_from), HISTORY[1:])

    def present(queue: Any) -> DataFrame:
        """Return the unfinished tasks: their key as in the history, their state (a letter), tube and error."""
        handle = queue_of(queue)
        extract = extract_of(handle, "tasks", read_from, "".join(OPEN))
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
    history = partial(_union, names, HISTORY, past)
    there = _union(names, THERE, lambda _, queue: present(queue))
    return write_report(folder, list(names), history, there, first, end, now, silent, limits, folders)


def _ended(folder: Folder) -> int | None:
    """Return where the span of the report in a folder ended; None if there is no report. Raises BadValue."""
    if not folder.exists(MARK):
        return None
    if not (text := folder.read(MARK)):
        raise BadValue(f"the report at {folder.path} does not say where it ended: give a moment as since=, this once")
    return int(json.loads(text)["until"])


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
    history: Callable[[], DataFrame],
    there: DataFrame,
    since: int | None,
    until: int | None,
    now: int,
    silent: Mapping[str, str],
    thresholds: Mapping[str, float],
    archives: Container[str] = (),
) -> Report:
    """Write the report on a history (columns HISTORY) and on the present unfinished tasks (columns THERE).

    `history` is called once the tasks are read. `silent` has the queues that have no errors, and what they lack: the
    feature "buried" or the role "error". `archives` has those whose history is with that of their archive. Times are µs
    since 1970. An earlier report is replaced only after everything has been computed, so a failing report keeps it.
    """
    others = () if folder.exists(MARK) else (name for name in folder.names("") if name != WORK)
    if strange := next(iter(others), None):
        raise BadValue(
            f"{folder.at(strange)} does not belong to a report: give a new or empty folder, or that of a report"
        )
    spark = there.sparkSession
    read = partial(_read, folder, spark)
    with ExitStack() as ending:
        folder.delete(WORK)  # a killed report's
        ending.callback(folder.delete, WORK)
        # Each plan is made once: for a small history Spark needs most of its time to plan and to compile.
        most = min(int(str(spark.conf.get(SHUFFLED))), PER_CORE * spark.sparkContext.defaultParallelism)
        ending.enter_context(settings(spark, {"spark.sql.adaptive.enabled": "false", SHUFFLED: str(most)}))

        def staged(name: str, table: DataFrame) -> DataFrame:
            """Compute a table once. A lost executor of a cluster would compute it again, from a later moment."""
            if master_of(spark).startswith(LOCAL):
                ending.callback(table.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
                return table
            table.write.parquet(folder.at(f"{WORK}/{name}"))
            return read(f"{WORK}/{name}", table.schema)

        # The tasks first: the history read later then shows tasks without a row so far that move meanwhile.
        tasks = staged("there", there.withColumn("error", F.expr(f"IF(state = 'B', {FIRST_LINE}, NULL)")))
        tasks.count()
        end = Span(BEGINNING if since is None else since, now if until is None else until, now)
        before = None if since is None else end.before
        rows = staged("moves", moves(history(), tasks, end, before))
        known = rows.groupBy("queue").agg(F.min("at_us"), F.expr("bool_or(event = 'archive')")).collect()
        begun = {queue: first for queue, first, _ in known if first is not None}
        lacking = {queue for queue, _, is_archived in known if is_archived and queue not in archives}
        span = replace(end, since=min([*begun.values(), end.until])) if since is None else end
        past = Past(rows, span, before)
        sums = _sums(facts(past)) if known else EMPTY
        ranked = _ranked(past, sums)
        stuck = _stuck(past, ranked, begun)
        first = _first(stuck) if ranked else []
        page = ReportPage(names, thresholds, begun)
        with written(folder, WORK) as tables_of:
            for tube in _tubes(sums, [*ranked, *first], span):
                page.add(tube, tables_of(tube))
        if any(fact.n > SHOWN["stuck"] for fact in first):  # the driver has only the first ones
            folder.delete(f"{WORK}/stuck")
            stuck.write.parquet(folder.at(f"{WORK}/stuck"))
        figures = page.figures(before, silent, lacking)
        folder.write(f"{WORK}/{PAGE}", page.html(span, before, figures))
        if not folder.exists(MARK):
            folder.write(MARK, "")
        for name in (*TABLES, PAGE):
            folder.delete(name)
            folder.move(f"{WORK}/{name}", name)
        folder.write(MARK, json.dumps({"until": min(span.until, span.now)}))  # last: a killed report is made again
    found = {name: read(name, table.schema) for name, table in TABLES.items()}
    shown = {queue["name"]: queue for queue in figures}
    seconds = span.since / 1e6, min(span.until, span.now) / 1e6
    return Report(found, re.sub("^file:/+", "/", folder.at(PAGE)), shown, seconds)


def _read(folder: Folder, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
    return spark.read.schema(schema).parquet(literally(folder.at(name)))


def _sums(found: DataFrame) -> pa.Table:
    return found.select(*Fact._fields[:-1]).toArrow().sort_by([("queue", "ascending"), ("tube", "ascending")])


def _by_tube(sums: pa.Table) -> Iterator[tuple[tuple[str, str | None], Iterator[Fact]]]:
    """Yield the facts of each tube, by its queue and its name."""
    batches = (zip(*(column.to_pylist() for column in batch.columns)) for batch in sums.to_batches(CHUNK))
    return groupby(starmap(Fact, chain.from_iterable(batches)), key=lambda fact: fact[:2])


def _ranked(past: Past, sums: pa.Table) -> list[Fact]:
    """Return the percentiles of each tube ("ranks") and of each whole queue ("overall"), in seconds."""
    asked, found = list[CheckedCall](), list[tuple[Fact, list[int]]]()

    def add(queue: str, tube: str | None, kind: str, bins: Mapping[tuple[str, str], Mapping[int, Bin]]) -> None:
        for (era, source), some in bins.items():
            us = list[int]()
            for known, number, rank in places(some):
                us.append(~len(asked) if known is None else known)  # a value is 0 or more: else the number asked
                if known is None:
                    asked.append(CheckedCall(len(asked), queue, tube, kind == "overall", era, source, number, rank))
            us.append(max(most for _, _, most in some.values()))
            n = sum(here for here, _, _ in some.values())
            found.append((Fact(queue, tube, kind, era, source, n=n), us))

    overall: dict[str, Any] = defaultdict(lambda: defaultdict(dict))
    for (queue, tube), facts_ in _by_tube(sums.filter(pc.equal(sums["kind"], "lasted"))):
        own: dict[Any, dict[int, Bin]] = defaultdict(dict)
        for fact in facts_:
            for bins in (own, overall[queue]):
                added(bins[fact.era, fact.source], fact.number, (fact.n, fact.least, fact.us or 0))
        add(queue, tube, "ranks", own)
    for queue, bins in overall.items():
        add(queue, None, "overall", bins)
    told = values(past.timed, asked) if asked else {}
    return [fact._replace(ranks=[(told[~one] if one < 0 else one) / 1e6 for one in us]) for fact, us in found]


def _stuck(past: Past, ranked: Iterable[Fact], begun: Mapping[str, int]) -> DataFrame:
    """Return the stuck tasks: queue, key (as in the history), state (Ready, Taken), since (UTC), seconds.

    The p99 is the tube's, or the queue's if no stay in the tube ended in the span; without either, nothing is stuck. A
    task that left without a row in the history (TRUNCATE) is not stuck. One from before the history has no `since`, and
    its `seconds`, counted from the history's earliest row, are a lower bound.
    """
    now = past.moves.where(f"(silent OR last AND live) AND {is_('target', ('R', 'T'))}")
    limits = [
        (fact.queue, fact.tube, fact.source, fact.kind, fact.ranks[2] * STUCK) for fact in ranked if fact.era == "now"
    ]
    names = ("of_queue", "of_tube", "of_state", "kind", "p99")
    found = now.sparkSession.createDataFrame(
        pa.Table.from_pylist([dict(zip(names, limit)) for limit in limits], schema=LIMITS)
    )
    same, same_tube = "queue = of_queue AND target = of_state", "tube <=> of_tube"
    for kind, on in {"ranks": f"{same} AND {same_tube}", "overall": same}.items():
        limit = F.broadcast(found.where(f"kind = '{kind}'").withColumnRenamed("p99", kind).drop("kind"))
        now = now.join(limit, F.expr(on), "left").drop("of_queue", "of_tube", "of_state")
    since = F.coalesce("at_us", _looked_up({"": None, **begun}, "queue").cast("bigint"))
    limited = now.withColumn("seconds", (F.lit(past.span.now) - since) / 1e6).where(
        "seconds > coalesce(ranks, overall)"
    )
    state = F.coalesce(_looked_up(NAMES, "target"), "target").alias("state")
    return limited.select("queue", "key", state, F.timestamp_micros("at_us").alias("since"), "seconds")


def _looked_up(found: Mapping[str, Any], name: str) -> Column:
    return F.create_map(*(F.lit(word) for pair in found.items() for word in pair))[F.col(name)]


def _first(stuck: DataFrame) -> list[Fact]:
    """Return the tasks that are stuck for longest, with the number of all of their queue. They belong to no tube."""
    found = stuck.selectExpr(
        *("queue", "key", "state", "unix_micros(since) AS us", "seconds"),
        "count(*) OVER (PARTITION BY queue) AS n",
        "row_number() OVER (PARTITION BY queue ORDER BY seconds DESC, key) AS place",
    ).where(f"place <= {SHOWN['stuck']}")
    return [
        Fact(queue, None, "stuck", source=key, target=state, us=us, n=n, ranks=[seconds])
        for queue, key, state, us, seconds, n, _ in found.collect()
    ]


def _tubes(sums: pa.Table, more: Iterable[Fact], span: Span) -> Iterator[TubeFacts]:
    """Yield the tubes one by one, with their facts, and with more that are not among the sums."""
    others: dict[Any, list[Fact]] = defaultdict(list)
    for fact in more:
        others[fact[:2]].append(fact)
    rest = sums.filter(pc.not_equal(sums["kind"], "lasted"))
    for place, some in chain(_by_tube(rest), ((place, ()) for _ in "1" for place in list(others))):
        of: dict[str, list[Fact]] = defaultdict(list)
        for fact in chain(some, others.pop(place, ())):
            of[fact.kind].append(fact)
        yield TubeFacts(place[0], place[1], of, span)
