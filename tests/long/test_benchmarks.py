"""The benchmarks run: each section with the least that it can do. What they measure is no test's business."""

from __future__ import annotations

import gc
import os
import re
from dataclasses import replace

import pytest

from benchmarks import bench, long, on_django, profile, report, spark, storm
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


def test_the_machine_is_described(home):
    described = re.escape(home.title) + r" \d+\."
    assert re.search(rf", \d+ cores, \d+ GiB, files on .+; .+, Python 3\..+, {described}", home.describe())


def section(name: str, result: str) -> Section:
    def measure(effort: Effort, home: Home) -> Table:
        return Table(["what", "how fast"], [[name, f"{result} on {home.engine}"]])

    return Section(name, f"The title of {name}", "Some text.", measure, ("sqlite", "postgres"))


class Pretended:
    """A database of which only the title is asked."""

    pace = 1

    def __init__(self, engine: str) -> None:
        self.engine = self.title = engine

    def __call__(self) -> Pretended:
        return self

    def missing(self) -> str | None:
        return None

    def describe(self) -> str:
        return "A machine"

    def close(self) -> None: ...


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


def test_what_takes_long_has_its_turn_when_the_rest_was_measured_on_every_database(results, capsys, monkeypatch):
    for engine in ("sqlite", "postgres"):
        monkeypatch.setitem(HOMES, engine, Pretended(engine))
    report.run([replace(section("pipeline", "slow"), turn=1), section("single", "fast")], "make bench-spark", [])
    told = re.findall("measuring (\\w+) on (\\w+)", capsys.readouterr().out)
    assert told == [(name, engine) for name in ("single", "pipeline") for engine in ("sqlite", "postgres")]


def test_a_section_whose_name_has_a_hyphen_is_written_once(results, capsys):
    for name, how in (("fused", "fast"), ("fused-full", "slow"), ("fused-full", "fast")):
        report.run([section(name, how)], "make profile", ["--db", "sqlite"])
    assert results.read_text().count("## The title of fused-full") == 1
    assert "slow" not in results.read_text()


def test_a_section_has_a_table_for_each_database_that_it_was_measured_on(results, capsys, monkeypatch):
    for engine in ("postgres", "sqlite", "postgres"):
        monkeypatch.setitem(HOMES, engine, Pretended(engine))
        report.run([section("threads", "fast")], "make bench", ["--db", engine])
    text = results.read_text()
    assert re.findall("^#+ .*", text, re.MULTILINE)[1:] == ["## The title of threads", "### sqlite", "### postgres"]


def test_a_number_of_the_effort_can_be_another_one(results, capsys):
    def measure(effort: Effort, home: Home) -> Table:
        return Table(["held", "millions"], [[str(effort.held), str(effort.millions)]])

    asked = ["--db", "sqlite", "--effort", "held=7", "--effort", "millions=1,2"]
    report.run([Section("held", "Held", "Some text.", measure)], "make bench-long", asked)
    assert "| 7.0 | (1, 2) |" in results.read_text()
    assert "`make bench-long DB=sqlite ARGS='--effort held=7 --effort millions=1,2'`" in results.read_text()


def test_a_quick_run_is_printed_and_not_written(results, capsys):
    report.run([section("single", "fast")], "make bench", ["--quick", "--db", "sqlite"])
    assert not results.exists()
    assert "fast" in capsys.readouterr().out


def test_a_section_that_does_not_exist_is_refused_with_the_names_of_those_that_do(results, capsys):
    with pytest.raises(SystemExit):
        report.run([section("single", "fast")], "make bench", ["double"])
    assert "no section double: they are single" in capsys.readouterr().err


def test_a_storm_is_reported_with_its_seed_and_a_seed_alone_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(storm, "RESULTS", tmp_path / "STORM.md")
    monkeypatch.setattr(storm, "ROUNDS", tmp_path / "storm.jsonl")
    small = ["--processes", "2", "--tasks", "40", "--kills", "1", "--stops", "0", "--dir", str(tmp_path)]
    small += ["--database", "sqlite"]
    assert storm.main(["--seed", "1", *small]) == 0
    assert not storm.RESULTS.exists()
    assert storm.main(["--rounds", "1", *small]) == 0
    assert re.search(r"1 rounds, .* 0 violations", storm.RESULTS.read_text())
    assert storm.main(["--rounds", "1", "--resume", *small]) == 0
    assert re.search(r"2 rounds, .* 0 violations", storm.RESULTS.read_text())
    assert sorted(tmp_path.iterdir()) == [storm.RESULTS, storm.ROUNDS], "the databases are gone"
