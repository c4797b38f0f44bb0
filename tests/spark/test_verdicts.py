"""What a report judges, what it compares, and where it is written."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_report import Page, frame
from xq.adapters.spark.files import Folder
from xq.adapters.spark.moves import HISTORY
from xq.adapters.spark.report import ERRORS, LIVE, report, write_report
from xq.adapters.spark.tables import TABLES
from xq.adapters.spark.verdicts import THRESHOLDS, checked, verdicts
from xq.core.errors import BadType, BadValue

HOUR = 3600.0
DAY = 86_400_000_000


def judged(**limits: float) -> Any:
    """What is red of a queue with these numbers, by its name in the page's data."""

    def of(ended: int = 0, missed: int = 0, **more: Any) -> set[str]:
        queue = {
            "levels": {"ready_base": 0, "ready": 0, "readied": 0},
            "retries": [[1, ended]],
            "shares": [1 - missed / ended if ended else 0],
            "failed": [],
            "overall": [],
            "waits": [],
            "stuck": {"n": 0},
        }
        return {name for name, red in verdicts(queue | more, checked(limits)).items() if red}

    return of


def test_a_queue_is_red_where_more_than_a_threshold_is_so():
    of = judged()
    assert of() == set()
    # One in a million, and a tube with few tasks, are not red; a share of all is, and one of a tube with enough.
    assert of(10**6, 1) == set()
    assert of(1000, 3, failed=[["a", 3, 3.0, 0]]) == set()
    assert of(1000, 50) == set()
    assert of(1000, 51) == of(2, 1) == of(1000, 20, failed=[["a", 20, 19.999999, 0]]) == {"failures"}
    assert judged(not_done=0.5, tube_tasks=1)(1000, 3, failed=[["a", 3, 3.0, 0]]) == {"failures"}
    # How many are Ready counts; the others of a backlog are not judged.
    grown = {"base": 0, "backlog": 1000, "ready_base": 5, "readied": 100}
    assert of(levels=grown | {"ready": 15}) == set()
    assert of(levels=grown | {"ready": 16}) == {"backlog"}
    assert judged(ready_growth=1)(levels=grown | {"ready": 105}) == set()
    # The p90 of all, of a tube with enough stays, and the oldest task of one from which nothing was taken.
    assert (
        of(overall=[["Taken", 9, 1.0, 9 * HOUR, 1.0, 1.0]]) == of(overall=[["Ready", 9, 1.0, HOUR, 1.0, 1.0]]) == set()
    )
    assert of(overall=[["Ready", 9, 1.0, 72 * HOUR, 1.0, 1.0]]) == {"waits"}
    tube = ["a", 1.0, 2 * HOUR, 9 * HOUR, 0, 0]
    assert of(waits=[[*tube, 19, None]]) == set()
    assert of(waits=[[*tube, 20, None]]) == {"waits"}
    assert judged(ready_p90=8000)(waits=[[*tube, 20, None]]) == set()
    starved = ["a", None, None, None, 1, 1, 0]
    assert of(waits=[[*starved, HOUR]]) == set()
    assert of(waits=[[*starved, HOUR + 1]]) == {"waits"}
    assert of(stuck={"n": 1}) == {"stuck"}
    assert judged(stuck=1)(stuck={"n": 1}) == set()


def test_thresholds_that_mean_nothing_are_refused():
    assert checked({"stuck": 3}) == {**{name: each.default for name, each in THRESHOLDS.items()}, "stuck": 3}
    wrong: Any
    for wrong in ({"failed": 0.1}, {5: 1}, {"not_done": 1.1}, {"stuck": -1}, {"ready_p90": float("inf")}):
        with pytest.raises(BadValue, match=r"not_done \(part of 1\)|the threshold"):
            checked(wrong)
    for wrong in (0.1, [("stuck", 1)], {"stuck": "1"}, {"stuck": True}, {"stuck": None}):
        with pytest.raises(BadType, match="threshold"):
            checked(wrong)


def test_a_report_refuses_its_thresholds_before_it_reads(spark, make_live, tmp_path):
    with pytest.raises(BadValue, match="there is no threshold 'slow': there are ready_growth"):
        report(spark, make_live({"history": True}), out=tmp_path / "report", thresholds={"slow": 1})
    assert not (tmp_path / "report").exists()


def test_a_folder_that_holds_other_things_is_refused(spark, tmp_path):
    (tmp_path / "of files").mkdir()
    (tmp_path / "of files" / "notes.txt").write_text("mine")
    (tmp_path / "of folders" / "states").mkdir(parents=True)
    for folder, name in (("of files", "notes.txt"), ("of folders", "states")):
        to = Folder(spark, tmp_path / folder)
        with pytest.raises(BadValue, match=f"{name} does not belong to a report: give a new or empty folder"):
            write_report(to, ["a"], frame(spark, [], HISTORY), frame(spark, [], LIVE), now=1)
        assert [path.name for path in (tmp_path / folder).iterdir()] == [name]


def test_a_page_compares_with_the_span_before_and_says_why_where_it_cannot(spark, tmp_path, browser):
    rows: list[dict[str, Any]] = []

    def happens(queue: str, at_us: float, key: str, *states: str) -> None:
        for source, target in pairwise(states):
            event = {"D": "ack", "T": "take", "B": "bury"}.get(target, "put")
            values = queue, len(rows), int(at_us), key, "a", source, target, event, 1
            rows.append(dict(zip(HISTORY, values, strict=True)))

    happens("old", 0.5 * DAY, "0", "X", "R")  # before the span before
    for i in range(1, 4):
        happens("old", 1.5 * DAY, f"{i}", "X", "R", "T", "D" if i < 3 else "B")
    happens("old", 2.5 * DAY, "4", "X", "R")
    happens("old", 2.625 * DAY, "5", "X", "W")
    happens("old", 2.75 * DAY, "6", "X", "R", "T", "B")
    happens("new", 2.25 * DAY, "1", "X", "R", "T", "D")
    live = [dict(zip(LIVE, ("old", key, "a", state), strict=True)) for key, state in zip("045", "RRW", strict=True)]
    buried = [dict(zip(ERRORS, ("old", key, "Lost: gone\nTraceback"), strict=True)) for key in "36"]
    frames = frame(spark, rows, HISTORY), frame(spark, live, LIVE)
    folder, more = Folder(spark, tmp_path), {"now": 3 * DAY, "silent": {"new": "error"}, "thresholds": {"stuck": 9}}
    errors = frame(spark, buried, ERRORS)
    made = write_report(folder, ["old", "new"], *frames, 2 * DAY, 3 * DAY, buried=errors, **more)  # type: ignore[arg-type]
    page = Page(made.html)
    old, new = page.data["queues"]
    before = old["before"]
    wanted = {"put": 3, "taken": 3, "done": 2, "buried": 1, "ended": 3, "missed": 1, "again": 0}
    assert {name: before[name] for name in wanted} == wanted
    assert [before[name] for name in ("base", "backlog", "ready_base", "ready", "readied")] == [1, 1, 1, 1, 3]
    assert before["ready_p90"] == before["lived"] == 0
    assert list(old["levels"].values()) == [1, 3, 1, 2, 2]
    assert old["failures"] == [["a", "Lost: gone", 1, int(2.75 * 86400)]]  # the other was buried before
    assert old["waits"][0][-1] == 2.5 * 86400  # for which the oldest is Ready
    assert old["verdicts"] == {"backlog": True, "failures": True, "waits": False, "stuck": False}
    assert (new["before"], new["begun"], new["silent"]) == (None, 2.25 * 86400, "error")
    assert page.data["thresholds"]["stuck"][:2] == [9, "tasks"]
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {*TABLES, "index.html"}

    browser.open(Path(made.html).as_uri())
    assert browser.one("#verdict h2").text == "1 of 2 queues needs attention"
    assert browser.texts("#verdict li") == ["old the backlog grows, tasks fail"]
    assert "before: 33.3 %" in browser.text()
    assert "stuck: 9" in browser.one("#thresholds").get_attribute("textContent")
    browser.one("#queue option[value=new]").click()
    assert "These figures are compared with nothing" in browser.text()
