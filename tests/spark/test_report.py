"""The report: the tables of a known history, what its page judges and compares, and the reports of real queues."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.factories import task
from xq.adapters.spark.archive import archive
from xq.adapters.spark.files import Folder
from xq.adapters.spark.moves import HISTORY
from xq.adapters.spark.report import MARK, THERE, report, write_report
from xq.adapters.spark.tables import TABLES
from xq.adapters.spark.verdicts import checked, verdicts
from xq.core.errors import BadType, BadValue, FeatureOff

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR, DAY = 3600, 86_400
SECOND = 1_000_000
NO_SPARK: Any = None
EVIL = '</script><b onclick="x">&amp; :now %s \\u003c ü🦆'


def frame(spark: SparkSession, rows: Iterable[Any], columns: Iterable[str]) -> DataFrame:
    types = ", ".join(f"{name} {'BIGINT' if name in ('id', 'at_us', 'attempt') else 'STRING'}" for name in columns)
    return spark.createDataFrame(list(rows), types)


def rows(table: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a table, with its times as seconds."""
    times = [name for name, kind in table.dtypes if kind == "timestamp"]
    selected = [f"unix_seconds({name}) AS {name}" if name in times else name for name in table.columns]
    return sorted(map(tuple, table.selectExpr(*selected).collect()), key=repr)


def page(html: str) -> Any:
    """The data of a page."""
    (found,) = re.findall(r'<script[^>]* id="?data"?[^>]*>(.*?)</script>', Path(html).read_text(), re.DOTALL)
    return json.loads(found)


# of a known history

PUT, TAKE, ACK, BURY = ("put", "R"), ("take", "T"), ("ack", "D"), ("bury", "B")
# queue, key, tube, the day on which it begins; then each event, the state after it, and the seconds before it
HAPPENED: list[tuple[Any, ...]] = [
    ("old", "0", "a", 0.5, [(*PUT, 0)]),
    *[("old", key, "a", 1.5, [(*PUT, 0), (*TAKE, 0), (*ACK, 0)]) for key in "12"],
    ("old", "3", "a", 1.5, [(*PUT, 0), (*TAKE, 0), (*BURY, 0)]),
    ("old", "4", "a", 2.5, [(*PUT, 0)]),
    ("old", "5", "a", 2.625, [("put", "W", 0)]),
    ("old", "6", "a", 2.75, [(*PUT, 0), (*TAKE, 10), (*BURY, 20)]),
    ("old", "7", "b", 2.25, [(*PUT, 0), (*TAKE, 100), ("release", "R", 50), (*TAKE, 10), (*ACK, 40)]),
    ("old", "8", "b", 2.25, [(*PUT, 0), ("ttl", "X", HOUR)]),
    ("old", "9", "b", 2.25, [(*PUT, 0), (*TAKE, 5), (*BURY, 5), ("dig", "R", 90), (*TAKE, 5), (*ACK, 45)]),
    ("new", "1", None, 2.25, [(*PUT, 0), (*TAKE, 1), (*ACK, 2)]),
]
LEFT = [("old", key, "a", state, "Retried: not told") for key, state in zip("045", "RRW")]
LEFT += [("old", key, "a", "B", "Lost: gone\nTraceback") for key in "36"]
TOLD = {
    "throughput": [
        ("a", "hour", 216000, 1, 0, 0, 0, 0, 0),
        ("a", "hour", 226800, 1, 0, 0, 0, 0, 0),
        ("a", "hour", 237600, 1, 1, 0, 1, 0, 0),
        ("b", "hour", 194400, 3, 4, 2, 1, 0, 0),
        ("b", "hour", 198000, 0, 0, 0, 0, 0, 1),
    ],
    "states": [
        ("a", "Ready", 1, 10.0, 10.0, 10.0, 10.0),
        ("a", "Taken", 1, 20.0, 20.0, 20.0, 20.0),
        ("b", "Buried", 1, 90.0, 90.0, 90.0, 90.0),
        ("b", "Ready", 5, 10.0, 3600.0, 3600.0, 3600.0),
        ("b", "Taken", 4, 40.0, 50.0, 50.0, 50.0),
    ],
    "lives": [("b", 2, 150.0, 200.0, 200.0, 200.0)],
    "overall": [
        ("Buried", 1, 90.0, 90.0, 90.0, 90.0),
        ("Ready", 6, 10.0, 3600.0, 3600.0, 3600.0),
        ("Taken", 5, 40.0, 50.0, 50.0, 50.0),
        ("put to done", 2, 150.0, 200.0, 200.0, 200.0),
    ],
    "retries": [("a", 1, 1), ("b", 0, 1), ("b", 2, 2)],
    "shares": [("a", 0.0, 1.0, 0.0, 0.0), ("b", 2 / 3, 0.0, 1 / 3, 0.0)],
    "backlog": [
        ("a", 172800, 0, 0, 1, 1),
        ("a", 216000, 1, 0, 2, 2),
        ("a", 226800, 1, 0, 3, 2),
        ("a", 237600, 1, 1, 3, 2),
        ("b", 194400, 5, 4, 1, 1),
        ("b", 198000, 0, 1, 0, 0),
    ],
    "stuck": [("0", "Ready", 43200, 216000.0), ("4", "Ready", 216000, 43200.0)],
    "failures": [("a", "Lost: gone", 1, 237630)],
}


def happened() -> list[tuple[Any, ...]]:
    """The rows of the history, in time."""
    found = []
    for queue, key, tube, day, steps in HAPPENED:
        at, source = day * DAY, "X"
        for event, target, seconds in steps:
            at += seconds
            found.append((int(at * SECOND), key, tube, source, target, event, 1, queue))
            source = target
    return [(queue, i, *row) for i, (*row, queue) in enumerate(sorted(found, key=lambda row: row[0]), 1)]


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """A report of the last of three days."""
    folder = Folder(spark, tmp_path_factory.mktemp("report"))
    history, there = frame(spark, happened(), HISTORY), frame(spark, LEFT, THERE)
    since, until = (day * DAY * SECOND for day in (2, 3))
    silent, limits = {"new": "error"}, checked({"stuck": 9})
    return write_report(folder, ["old", "new"], lambda: history, there, since, until, until, silent, limits)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_the_history_says(made, name):
    in_the_span = [row[4:8] for row in happened() if row[0] == "old" and row[2] >= 2 * DAY * SECOND]
    counted = [(*move, n) for move, n in sorted(Counter(in_the_span).items())]
    assert rows(made.tables[name].where("queue = 'old'").drop("queue")) == (TOLD | {"transitions": counted})[name]


def test_a_page_compares_with_the_span_before_and_says_why_where_it_cannot(made, browser):
    told = page(made.html)
    old, new = told["queues"]
    before = {"put": 3, "taken": 3, "done": 2, "buried": 1, "ended": 3, "missed": 1, "again": 0, "lived": 0}
    before |= {"base": 1, "backlog": 1, "ready_base": 1, "ready": 1, "readied": 3, "ready_p90": 0}
    assert {name: old["before"][name] for name in before} == before
    assert old["levels"] == {"base": 1, "backlog": 3, "ready_base": 1, "ready": 2, "readied": 7}
    assert old["failures"] == [["a", "Lost: gone", 1, 237630]], "the other was buried before"
    assert old["verdicts"] == {"backlog": True, "failures": True, "waits": False, "stuck": False}
    assert (new["before"], new["begun"], new["silent"]) == (None, 2.25 * DAY, "error")
    assert told["thresholds"]["stuck"][:2] == [9, "tasks"]
    assert {path.name for path in Path(made.html).parent.iterdir() if path.name[0] != "."} == {*TABLES, "index.html"}

    browser.open(Path(made.html).as_uri())
    assert browser.one("#verdict h2").text == "1 of 2 queues needs attention"
    assert browser.texts("#verdict li") == ["old the backlog grows, tasks fail"]
    assert "previous period: 33.3 %" in browser.text()
    assert "stuck: 9" in browser.one("#thresholds").get_attribute("textContent")
    browser.one("#queue option[value=new]").click()
    assert "No comparison" in browser.text()


def test_of_many_stuck_tasks_the_page_shows_the_first_and_the_table_has_all(spark, tmp_path):
    done = [(i, i * SECOND, "done", None, *move, 1) for i, move in enumerate((("X", "R", "put"), ("R", "D", "ack")), 1)]
    keys = [str(key) for key in range(60)]
    put = [(i, SECOND, key, None, "X", "R", "put", 1) for i, key in enumerate(keys, 3)]
    history = frame(spark, [("q", *row) for row in [*done, *put]], HISTORY)
    there = frame(spark, [("q", key, None, "R", None) for key in keys], THERE)
    told = write_report(
        Folder(spark, tmp_path), ["q"], lambda: history, there, None, None, DAY * SECOND, {}, checked(None)
    )
    assert {row[0] for row in told.tables["stuck"].select("key").collect()} == {*keys}
    shown = told.figures["q"]["stuck"]
    assert (shown["n"], len(shown["rows"])) == (60, 50)


# what is red


def ended(n: int, missed: float, **more: Any) -> dict[str, Any]:
    """So many tasks ended, and some of them not by being done."""
    return {"retries": [[1, n]], "shares": [1 - missed / n], **more}


def ready(n: int) -> dict[str, Any]:
    return {"levels": {"base": 0, "backlog": 1000, "ready_base": 5, "readied": 100, "ready": n}}


def p90(state: str, seconds: float) -> dict[str, Any]:
    return {"overall": [[state, 9, 1.0, seconds, 1.0, 1.0]]}


FEW = {"tube_tasks": 1, "not_done": 0.5}
# the figures of a queue, thresholds other than the usual ones; what is red
JUDGED: list[tuple[dict[str, Any], dict[str, float], set[str]]] = [
    ({}, {}, set()),
    (ended(1000, 50), {}, set()),
    (ended(1000, 51), {}, {"failures"}),
    (ended(1000, 3, failed=[["a", 3, 3.0, 0]]), {}, set()),
    (ended(1000, 3, failed=[["a", 3, 3.0, 0]]), FEW, {"failures"}),
    (ended(1000, 20, failed=[["a", 20, 19.999999, 0]]), {}, {"failures"}),
    (ready(15), {}, set()),
    (ready(16), {}, {"backlog"}),
    (ready(105), {"ready_growth": 1}, set()),
    (p90("Taken", 9 * HOUR), {}, set()),
    (p90("Ready", HOUR + 1), {}, {"waits"}),
    ({"waits": [["a", 1.0, 2 * HOUR, 9 * HOUR, 0, 0, 19, None]]}, {}, set()),
    ({"waits": [["a", 1.0, 2 * HOUR, 9 * HOUR, 0, 0, 20, None]]}, {}, {"waits"}),
    ({"waits": [["a", 1.0, 2 * HOUR, 9 * HOUR, 0, 0, 20, None]]}, {"ready_p90": 8000}, set()),
    ({"waits": [["nothing was taken", None, None, None, 1, 1, 0, HOUR + 1]]}, {}, {"waits"}),
    ({"stuck": {"n": 1}}, {}, {"stuck"}),
    ({"stuck": {"n": 1}}, {"stuck": 1}, set()),
]


@pytest.mark.parametrize(("figures", "limits", "red"), JUDGED)
def test_a_queue_is_red_where_more_than_a_threshold_is_so(figures, limits, red):
    levels = {"ready_base": 0, "ready": 0, "readied": 0}
    queue = {
        "levels": levels,
        "retries": [],
        "shares": [1],
        "failed": [],
        "overall": [],
        "waits": [],
        "stuck": {"n": 0},
    }
    assert {name for name, is_red in verdicts(queue | figures, checked(limits)).items() if is_red} == red


# of real queues


def counts(found: Any) -> dict[tuple[str, str, str], int]:
    total = Counter[tuple[str, str, str]]()
    for row in found.tables["transitions"].collect():
        total[row.source, row.target, row.event] += row.n
    return total


def of_history(history: Iterable[Any]) -> dict[tuple[str, str, str], int]:
    return Counter((row.source, row.target, row.event) for row in history)


def test_a_report_of_what_is_archived_says_what_it_said_before(spark, make_live, tmp_path):
    Task = make_live({"buried": True, "keep": True, "ttr": 600, "history": True}, roles=("runat", "tube", "attempts"))
    Task.xq.put_many([task(tube=tube) for tube in ("a", "b", EVIL) for _ in range(4)])
    for n, taken in enumerate(Task.xq.take_many(9)):
        (taken.ack, taken.release, taken.bury)[n % 3]()
    until, out, folder = (
        max(row.at_us for row in Task.xq.history()) / 1e6 + 1,
        tmp_path / "archive",
        tmp_path / "a [new] folder",
    )
    before = report(spark, {EVIL: Task}, until=until, out=folder)
    assert counts(before) == of_history(Task.xq.history())
    text = Path(before.html).read_text()
    assert "<b onclick" not in text
    assert "default-src 'none'" in text[:1000], "nothing comes from elsewhere"

    assert archive(spark, Task, str(out)).history > 1
    after = report(spark, {EVIL: Task}, until=until, out=tmp_path / "after", archive={EVIL: out})
    for name in set(TABLES) - {"stuck"}:
        assert rows(after.tables[name]) == rows(before.tables[name]), name
    assert after.figures[EVIL]["lacking"] is False
    last = report(spark, {EVIL: Task}, "last", out=folder)
    assert last.figures[EVIL]["lacking"] is True, "its archive is not given"
    assert page(last.html)["since"] < until, "it goes on where the other was made, since until was to come"


def test_a_report_goes_on_where_the_one_before_ended(spark, make_live, tmp_path):
    Task = make_live({"buried": True, "keep": True, "ttr": 600, "history": True}, roles=("runat", "tube", "attempts"))
    Task.xq.put_many([task(tube=tube) for tube in "ab" for _ in range(3)])
    taken = Task.xq.take_many(4)
    first = report(spark, Task, "last", out=tmp_path / "on")
    ended = page(first.html)["until"]
    assert counts(first) == of_history(Task.xq.history()), "there was none before, so it is of all"
    for n, each in enumerate(taken):
        (each.ack, each.release, each.bury)[n % 3]()
    until = max(row.at_us for row in Task.xq.history()) / 1e6 + 1
    on, full = (
        report(spark, Task, since, until, out=tmp_path / name)  # type: ignore[arg-type]
        for name, since in (("on", "last"), ("other", ended))
    )
    for name in set(TABLES) - {"stuck"}:
        assert rows(on.tables[name]) == rows(full.tables[name]), name
    assert counts(on) == of_history(row for row in Task.xq.history() if row.at_us >= ended * 1e6)
    (tmp_path / "on" / MARK).write_text("")  # as by an earlier version
    with pytest.raises(BadValue, match="does not say where it ended: give a moment as since="):
        report(spark, Task, "last", out=tmp_path / "on")


def test_what_is_no_queue_no_span_and_no_history_is_refused(spark, make_live, tmp_path):
    Task, Other = make_live({"history": True}), make_live(attributes={"table_name": "other"})
    Kept = make_live({"history": True, "keep": True}, attributes={"table_name": "kept"})
    Task.put(task())
    two: Any = {"a": Task, "b": Task}
    none: list[Any] = [[], {}, [Task, Other]]
    spans = [(2, 1), (1, 1), (9e10,), (date(2100, 1, 1),), (float("nan"),), (None, -1e12)]
    refused: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (FeatureOff, "history", (spark, Other), {}),
        *((BadType, "", (spark, queues), {}) for queues in (None, 5, "Task", [Task, None], {"a": 5})),
        *((BadValue, "", (spark, queues), {}) for queues in none),
        *((BadValue, "", (spark, Task, *span), {}) for span in spans),
        *((BadType, "", (spark, Task, since), {}) for since in ("yesterday", True, b"")),
        (BadType, "", (NO_SPARK, Task), {}),
        (BadType, "", (spark, Task), {"out": None}),
        (BadType, "", (spark, Kept), {"archive": 5}),
        (BadValue, "the report is of Task", (spark, Task), {"archive": {"task": "a"}}),
        (BadValue, "a mapping", (spark, two), {"archive": "archive"}),
        (BadValue, "there is no threshold 'slow': there are ready_growth", (spark, Task), {"thresholds": {"slow": 1}}),
        (BadValue, "threshold not_done is a number from 0 to 1", (spark, Task), {"thresholds": {"not_done": 1.1}}),
        (BadType, "the threshold stuck is a number", (spark, Task), {"thresholds": {"stuck": "1"}}),
    ]
    others = tmp_path / "of others" / "notes.txt"
    others.parent.mkdir()
    others.write_text("mine")
    for error, words, arguments, options in refused:
        print("refused:", arguments, options)  # a failure shows which one was not
        with pytest.raises(error, match=words or None):
            report(*arguments, **{"out": tmp_path / "report", **options})
    with pytest.raises(BadValue, match="notes.txt does not belong to a report: give a new or empty folder"):
        report(spark, Task, out=others.parent)
    assert ([*others.parent.iterdir()], (tmp_path / "report").exists()) == ([others], False)
