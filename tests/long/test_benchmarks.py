"""The benchmarks run: each section with the least that it can do. What they measure is no test's business."""

from __future__ import annotations

import gc
import os

import pytest

from benchmarks import bench, long, on_django, profile, report, spark
from benchmarks.databases import HOMES, Home
from benchmarks.report import SMOKE, Effort, Section, Table
from tests.support.homes import home_of

SECTIONS = [
    *bench.SECTIONS,
    *long.SECTIONS,
    *profile.SECTIONS,
    *on_django.SECTIONS,
]  # without the peers, which need packages of their own


@pytest.fixture(scope="module", params=[name for name in HOMES if name.startswith(os.environ.get("XQ_TEST_DB", ""))])
def home(request):
    with home_of(request.param) as home:
        yield home


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pymysql's, of a thread that ended
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_section_fills_its_table(section, home):
    if home.engine in section.on:
        table = section.measure(SMOKE, home)
        gc.collect()  # with the queues end the threads that look after them
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.head)}


def test_every_section_has_its_place_in_the_results():
    assert {section.name for section in [*SECTIONS, *spark.SECTIONS]} <= set(report.ORDER)


def section(name: str, result: str) -> Section:
    def measure(effort: Effort, home: Home) -> Table:
        return Table(["what", "how fast"], [[name, f"{result} on {home.engine}"]])

    return Section(name, f"The title of {name}", "Some text.", measure, ("sqlite", "postgres"))


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.delenv("XQ_TEST_DB", raising=False)
    return tmp_path / "RESULTS.md"


def test_a_command_writes_its_tables_anew_and_keeps_the_others(results, capsys):
    one = ["--db", "sqlite"]
    report.run([section("threads", "slow"), section("single", "slow")], "make bench", one)
    report.run([section("peers", "slow")], "make bench-peers", one)
    report.run([section("threads", "fast"), section("single", "fast")], "make bench", ["threads", *one])
    text = results.read_text()
    rows = ["| single | slow on sqlite |", "| threads | fast on sqlite |", "| peers | slow on sqlite |"]
    found = [text.index(row) for row in rows]
    assert found == sorted(found)
    assert "| threads | slow" not in text
    assert "`make bench DB=sqlite ARGS=threads`" in text
    assert "`make bench-peers DB=sqlite`" in text
