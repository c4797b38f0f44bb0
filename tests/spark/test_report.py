"""The report: each of its numbers is what plain Python reckons from the same history; its page needs nothing else.

Random histories are the same each time; XQ_HYPOTHESIS_EXAMPLES=200 makes so many others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import date
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import peewee as pw
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tests.conftest import Maker
from tests.factories import task
from tests.spark.histories import BEFORE, BEGIN, EVIL, KEYS, SECOND, WAYS, a_history
from tests.spark.reckoning import Reckoning, Row, moment
from tests.steps import eventually
from xq.adapters.spark.archives import archive
from xq.adapters.spark.files import Folder
from xq.adapters.spark.last import Last
from xq.adapters.spark.moves import HISTORY
from xq.adapters.spark.report import ERRORS, LIVE, Report, report, write_report
from xq.adapters.spark.spans import Span
from xq.adapters.spark.tables import TABLES
from xq.core.errors import BadType, BadValue, FeatureOff
from xq.pipeline.checkpoints import UNITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NO_SPARK: Any = None
NUMBERS = ("id", "at_us", "attempt")
TIMES = "n p50 p90 p99 max"
COLUMNS = {
    name: columns.split()
    for name, columns in {
        "throughput": "queue tube unit bucket put taken done buried killed expired",
        "states": f"queue tube state {TIMES}",
        "lives": f"queue tube {TIMES}",
        "overall": f"queue measure {TIMES}",
        "retries": "queue tube attempts n",
        "shares": "queue tube done buried expired killed",
        "backlog": "queue tube bucket arrived departed backlog ready",
        "stuck": "queue key state since seconds",
        "failures": "queue tube error n latest",
        "transitions": "queue tube source target event n",
    }.items()
}


def frame(spark: SparkSession, rows: Iterable[Row], columns: Iterable[str]) -> DataFrame:
    types = ", ".join(f"{name} {'BIGINT' if name in NUMBERS else 'STRING'}" for name in columns)
    return spark.createDataFrame([tuple(row[name] for name in columns) for row in rows], types)


def numbers(table: DataFrame) -> set[tuple[Any, ...]]:
    """The rows of a table. Python's times come by way of the time zone of this machine: here by that of none."""
    times = [name for name, kind in table.dtypes if kind == "timestamp"]
    rows = table.withColumns({name: F.unix_micros(name) for name in times}).collect() if times else table.collect()
    places = [table.columns.index(name) for name in times]
    return {tuple(moment(v) if i in places and v is not None else v for i, v in enumerate(row)) for row in rows}


def check(found: Report, reckoning: Reckoning) -> None:
    for name in TABLES:
        assert found.tables[name].columns == COLUMNS[name]
        expected, got = getattr(reckoning, name)(), numbers(found.tables[name])
        assert got == expected, name


# of any history

TOGETHER = 15  # histories in one report, since each costs jobs of Spark


def of_a_row(rows: Iterable[Row], at_us: int) -> int:
    """The moment of the nearest row: what happens as a span begins is in it, what happens as it ends is not."""
    return min((row["at_us"] for row in rows), key=lambda of_row: abs(of_row - at_us), default=at_us)


@settings(
    max_examples=-(-int(os.environ.get("XQ_HYPOTHESIS_EXAMPLES", 2 * TOGETHER)) // TOGETHER),
    deadline=None,
    derandomize="XQ_HYPOTHESIS_EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.generate],
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(st.integers(0, 2**64))
def test_every_number_is_what_the_history_says_of_any_history(spark, tmp_path_factory, seed):
    chance = Random(seed)  # what Hypothesis draws by itself is empty at first, and small then

    def drawn() -> tuple[int, list[int], int]:
        return (
            chance.randrange(BEFORE),
            [chance.randrange(WAYS) for _ in range(chance.randrange(46))],
            chance.randrange(10),
        )

    since, length, later = chance.randrange(60_000), chance.randrange(1, 200_000), chance.randrange(10**6)
    made = [a_history(f"queue {i} {EVIL}", *history) for i, history in enumerate(drawn() for _ in range(TOGETHER))]
    rows, live = [row for history, _ in made for row in history], [row for _, there in made for row in there]
    begin = of_a_row(rows, BEGIN + since * SECOND)
    end = max(begin + 1, of_a_row(rows, begin + length * SECOND))
    span = begin, end, end + later * SECOND
    folder = Folder(spark, tmp_path_factory.getbasetemp() / "report of any history")
    names = [f"queue {i} {EVIL}" for i in range(TOGETHER)]
    ended = {(row["queue"], row["key"]): row for row in rows if row["target"] == "B"}
    errors = {"1": "Lost: no way\n  at once", "2": " \n"}
    buried = [{"queue": queue, "key": key, "error": errors.get(key)} for queue, key in ended]
    frames = frame(spark, rows, HISTORY), frame(spark, live, LIVE)
    found = write_report(folder, names, *frames, *span[:2], now=span[2], buried=frame(spark, buried, ERRORS))
    check(found, Reckoning(rows, live, *span, buried))


COUNTING = ("throughput", "retries", "shares", "backlog", "failures", "transitions")


def test_reports_that_go_on_from_the_last_count_as_one_of_the_whole_history(spark, tmp_path):
    chance = Random(7)
    names = [f"queue {i}" for i in range(TOGETHER)]
    parts: list[list[Row]] = [[], [], []]
    everything: list[Row] = []
    silent: list[Row] = []
    for name in names:
        steps = [chance.randrange(WAYS) for _ in range(60)]
        rows, there = a_history(name, chance.randrange(BEFORE), steps, chance.randrange(5))
        everything += rows
        silent += [row for row in there if row["key"] == "silent"]
        seen = max(next((i for i, row in enumerate(rows) if row["key"] == key), 0) for key in KEYS) + 1
        cuts = [0, *sorted(chance.randrange(seen, len(rows) + 1) for _ in range(2)), len(rows)]
        for part, (first, end) in zip(parts, pairwise(cuts), strict=True):  # a few rows are read again
            part += [{**row, "ahead": first + i >= end} for i, row in enumerate(rows[first : end + 3])]
    moments = sorted(row["at_us"] for row in everything)
    folder, last, found = Folder(spark, tmp_path), None, None
    n: Counter[tuple[str, str]] = Counter()
    live: list[Row] = []
    buried: list[Row] = []
    for i, part in enumerate(parts):
        until = moments[len(moments) * (i + 1) // 3] if i < 2 else moments[-1] + 1
        known = {(row["queue"], row["key"]): row for each in parts[: i + 1] for row in each}
        live = [*silent, *({**row, "state": row["target"]} for row in known.values() if row["target"] in "RTW")]
        buried = [{**row, "error": row["key"]} for row in known.values() if row["target"] == "B"]
        history = frame(spark, part, HISTORY)
        flags = [(row["queue"], row["id"], row["ahead"]) for row in part]
        is_ahead = spark.createDataFrame(flags, "queue string, id long, ahead boolean")
        history = history.join(is_ahead, ["queue", "id"])
        more: Any = {"now": until, "buried": frame(spark, buried, ERRORS), "checkpoints": dict.fromkeys(names, ())}
        found = write_report(folder, names, history, frame(spark, live, LIVE), None, until, last=last, **more)
        last = Last.of(folder, names)
        for row in found.tables["overall"].collect():
            n[row.queue, row.measure] += row.n
    assert found
    assert last
    whole = Reckoning(everything, live, last.since, last.until, last.until, buried)
    for name in COUNTING:
        assert numbers(found.tables[name]) == getattr(whole, name)(), name
    finished = ("Done", "Zombie")  # a stay in them that began before the last report is not known
    expected = {row[:2]: row[2] for row in whole.overall() if row[1] not in finished}
    assert {place: many for place, many in n.items() if place[1] not in finished} == expected
    with pytest.raises(BadValue, match="this one of another"):
        Last.of(folder, ["another"])


def test_a_span_has_buckets_of_which_there_are_not_too_many():
    lengths = {1: "second", 600: "second", 601: "minute", 36_000: "minute", 36_001: "hour", 2_160_000: "hour"}
    for seconds, unit in {**lengths, 2_160_001: "day", 10**9: "day"}.items():
        assert Span(BEGIN, BEGIN + seconds * SECOND, BEGIN).unit == unit
    assert list(UNITS) == ["second", "minute", "hour", "day"]


# of real queues


class Page(HTMLParser):
    """A page of a report: what it holds, and what it would fetch from elsewhere."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: dict[str, str] = {}
        self._script = ""
        self.feed(Path(path).read_text(encoding="utf-8"))
        self.close()
        self.data: Any = json.loads(self.texts["data"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            f"{name}={value}" for name, value in attrs if name in ("src", "href", "action", "srcset", "onclick")
        ]
        self._script = dict(attrs).get("id") or f"script {len(self.tags)}" if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.texts[self._script] = self.texts.get(self._script, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._script = ""

    @property
    def span(self) -> tuple[int, int, int]:
        since, until, now = (round(self.data[name] * 1e6) for name in ("since", "until", "now"))
        return since, until, now


def history_of(name: str, queue: Any) -> list[Row]:
    """What the queue itself tells."""
    columns = HISTORY[1:]
    return [{"queue": name, **{column: getattr(row, column) for column in columns}} for row in queue.history()]


def live_of(name: str, model: Any) -> list[Row]:
    alive = model.select().where(model.status.in_(["R", "T", "W"]))
    return [dict(zip(LIVE, (name, str(row.id), row.tube, row.status), strict=True)) for row in alive]


def buried_of(name: str, model: Any) -> list[Row]:
    buried = model.select().where(model.status == "B")
    return [{"queue": name, "key": str(row.id), "error": getattr(row, "error", None)} for row in buried]


def worked(make: Maker) -> Any:
    """A queue to whose tasks much has happened, on a real database and by its clock."""
    features = {"delayed": True, "buried": True, "keep": True, "ttr": 600, "ttl": 600, "history": True}
    error = {"error": pw.TextField(null=True)}
    Task = make(features, roles=("runat", "tube", "attempts", "error"), attributes=error)
    Task.xq.put_many([task(tube=tube) for tube in ("a", "b", EVIL) for _ in range(4)])
    Task.put(task(tube="a"), delay=600)
    Task.create(name="of another program", tube="b")
    for found in Task.xq.take_many(9):
        {0: found.ack, 1: found.release, 2: found.bury}[found.id % 3]()
    Task.update(error=f"{EVIL}: no\nTraceback").where(Task.status == "B").execute()
    for found in Task.xq.take_many(3):
        found.release(delay=600)
    Task.xq.dig(n=1)
    Task.xq.take_many(2)
    done = Task.get(Task.status == "D")
    Task.xq.restart(done.id)
    Task.kill(Task.get(Task.status == "B").id)
    Task.update(tube="b").where(Task.status == "R").execute()  # of which no row tells
    Task.delete().where(Task.status == "W", Task.tube == EVIL).execute()
    forgotten = Task.get(Task.status == "W")
    Task.xq.History.delete().where(Task.xq.History.key == str(forgotten.id)).execute()
    History, history = Task.xq.History, Task.xq.pipeline.extract("history")
    newest = History.select(pw.fn.MAX(History.id)).scalar()
    # For two seconds MariaDB's rows behind a missing one may have a row before them that is still to be committed.
    eventually(lambda: (history.bounds() or (0, 0))[1] == newest)
    return Task


def test_a_report_of_a_real_queue_is_what_its_history_says(spark, make_live, tmp_path):
    Task, later, folder = worked(make_live), time.time() + 3600, tmp_path / "a [new] folder"
    found = report(spark, {EVIL: Task}, until=later, out=folder)
    rows, live, page = history_of(EVIL, Task.xq), live_of(EVIL, Task), Page(found.html)
    assert page.span[:2] == (min(row["at_us"] for row in rows), round(later * 1e6))
    reckoning = Reckoning(rows, live, *page.span, buried_of(EVIL, Task))
    check(found, reckoning)
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {*TABLES, "index.html"}
    # The page shows the same, nothing that a name says is markup, and nothing comes from elsewhere.
    (queue,) = page.data["queues"]
    backlog, ready = (sum(row["state"] in states for row in live) for states in ("RW", "R"))
    assert sum(row[1] for row in queue["throughput"]) == sum(row["source"] == "X" for row in rows)
    assert queue["levels"]["base"] + sum(row[1] - row[2] for row in queue["backlog"]) == backlog
    assert queue["levels"]["backlog"] == backlog
    assert sum(row[3] for row in queue["backlog"]) == sum(row[4] for row in queue["waits"]) == ready
    assert queue["levels"]["ready"] == ready
    assert [row[1] for row in queue["failures"]] == [f"{EVIL}: no"]
    ended: Counter[str] = Counter()
    for _, tube, _, n in reckoning.retries():
        ended[tube] += n
    missed = {tube: round(ended[tube] * (1 - done)) for _, tube, done, *_ in reckoning.shares() if done < 1}
    assert {tube: round(n) for tube, _, n, _ in queue["failed"] if n} == missed
    assert (queue["name"], EVIL in [row[0] for row in queue["busiest"]]) == (EVIL, True)
    assert (page.tags.count("script"), page.tags.count("b"), page.tags.count("link"), page.links) == (3, 0, 0, [])
    assert "default-src 'none'" in Path(found.html).read_text(encoding="utf-8")[:1000]


def test_a_report_of_what_is_archived_says_what_it_said_before(spark, make_live, tmp_path):
    Task, out = worked(make_live), tmp_path / "archive"
    rows, live, buried = history_of("one", Task.xq), live_of("one", Task), buried_of("one", Task)
    until = (max(row["at_us"] for row in rows) + 1) / 1e6
    assert archive(spark, Task, str(out)).history > 1
    assert not {row["id"] for row in rows[:-1]} & {row["id"] for row in history_of("one", Task.xq)}
    found = report(spark, {"one": Task}, until=until, out=tmp_path / "report", archive={"one": out})
    check(found, Reckoning(rows, live, *Page(found.html).span, buried))


def test_a_report_that_goes_on_from_the_last_reads_only_what_is_new(spark, make_live, tmp_path):
    Task, out = worked(make_live), tmp_path / "report"
    with pytest.raises(BadValue, match="no report to go on from"):
        report(spark, Task, "last", out=out)
    report(spark, {"one": Task}, out=out)
    taken = Task.xq.take_many(3)
    Task.ack(taken[0])
    Task.bury(taken[1])
    Task.xq.put_many([task(tube="a"), task(tube="c")])
    newest = Task.xq.History.select(pw.fn.MAX(Task.xq.History.id)).scalar()
    eventually(lambda: (Task.xq.pipeline.extract("history").bounds() or (0, 0))[1] == newest)
    until = time.time() + 3600
    found = report(spark, {"one": Task}, "last", until, out=out)
    rows, live, page = history_of("one", Task.xq), live_of("one", Task), Page(found.html)
    whole = Reckoning(rows, live, *page.span, buried_of("one", Task))
    for name in COUNTING:
        assert numbers(found.tables[name]) == getattr(whole, name)(), name
    new = {row.state: row.n for row in found.tables["overall"].select(F.col("measure").alias("state"), "n").collect()}
    assert (new["Ready"], new["Taken"]) == (3, 2)  # those from before the last report began in it
    assert (page.data["timed"] > page.data["since"], page.data["compared"]) == (True, False)
    with pytest.raises(BadValue, match="ends at"):
        report(spark, {"one": Task}, "last", 5, out=out)
    with pytest.raises(BadValue, match="this one of two"):
        report(spark, {"two": Task}, "last", out=out)
    with pytest.raises(BadValue, match="archive="):
        report(spark, {"one": Task}, "last", out=out, archive=out)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_report_is_at_most_20_jobs_and_shows_its_progress_on_a_terminal_only(
    spark, make_live, tmp_path, monkeypatch, capsys
):
    Task = make_live({"history": True, "buried": True}, roles=("tube",))
    Task.xq.put_many([task(tube=tube) for tube in "ab"])
    Task.xq.take_many(2)
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        spark.sparkContext.setJobGroup(str(tmp_path), "")  # a name of its own: the session is that of other tests, too
        try:
            report(spark, Task, since=1, out=tmp_path / "report")
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(tmp_path))
    assert 0 < len(jobs) <= 20
    assert "reading the history" in terminal.getvalue()
    capsys.readouterr()
    report(spark, Task, out=tmp_path / "report")
    assert capsys.readouterr() == ("", "")


def test_what_is_no_queue_no_span_and_no_history_is_refused(spark, make_live, tmp_path):
    Task, Other = make_live({"history": True}), make_live(attributes={"table_name": "other"})
    Kept = make_live({"history": True, "keep": True}, attributes={"table_name": "kept"})
    Task.put(task())
    ahead, nan = date(2100, 1, 1), float("nan")
    spans = [(2, 1), (1, 1), (9e10, None), (ahead, None), (1e12, None), (nan, None), (None, -1e12)]
    two: Any = {"a": Task, "b": Task}
    no_queues: list[Any] = [None, 5, "Task", [Task, None], {"a": 5}, object()]
    other_queues: list[Any] = [[], {}, [Task, Other]]
    archives: list[Any] = [{"task": "a"}, {"Task": "a", "of another": "b"}]
    refused: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (FeatureOff, "history", (spark, Other), {}),
        *((BadType, "", (spark, queues), {}) for queues in no_queues),
        *((BadValue, "", (spark, queues), {}) for queues in other_queues),
        *((BadValue, "the report is of Task", (spark, Task), {"archive": each}) for each in archives),
        (BadValue, "a mapping", (spark, two), {"archive": "archive"}),
        *((BadValue, "", (spark, Task, *span), {}) for span in spans),
        (BadType, "", (NO_SPARK, Task), {}),
        *((BadType, "", (spark, Task), {"out": out}) for out in (None, 5)),
        (BadType, "", (spark, Kept), {"archive": 5}),
        *((BadType, "", (spark, Task, since), {}) for since in ("yesterday", True, b"")),
    ]
    for error, words, arguments, options in refused:
        print("refused:", arguments, options)  # a failure shows which one was not
        with pytest.raises(error, match=words or None):
            report(*arguments, **{"out": tmp_path, **options})
    assert list(tmp_path.glob("index.html")) == []
