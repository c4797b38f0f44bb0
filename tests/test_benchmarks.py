"""The benchmarks run: each section with the least that it can do. What they measure is no test's business."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import bench, machine, profile, report, storm
from benchmarks.report import SMOKE, Effort, Section, Table

SECTIONS = [*bench.SECTIONS, *profile.SECTIONS]  # without the peers, which need packages of their own


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_section_fills_its_table(section, tmp_path):
    table = section.measure(SMOKE, tmp_path)
    assert table.rows
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_every_section_has_its_place_in_the_results():
    assert {section.name for section in SECTIONS} <= set(report.ORDER)


def test_the_machine_is_described(tmp_path):
    assert re.search(r", \d+ cores, \d+ GiB, files on .+; .+, Python 3\..+, SQLite 3\..+", machine.describe(tmp_path))


def section(name: str, result: str) -> Section:
    def measure(effort: Effort, folder: Path) -> Table:
        return Table(["what", "how fast"], [[name, result]])

    return Section(name, f"The title of {name}", "Some text.", measure)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    return tmp_path / "RESULTS.md"


def test_a_command_writes_its_sections_anew_and_keeps_the_others(results, capsys):
    report.run([section("threads", "slow"), section("single", "slow")], "make bench", [])
    report.run([section("peers", "slow")], "make bench-peers", [])
    report.run([section("threads", "fast"), section("single", "fast")], "make bench", ["threads"])
    text = results.read_text()
    found = [text.index(row) for row in ("| single | slow |", "| threads | fast |", "| peers | slow |")]
    assert found == sorted(found)
    assert "| threads | slow |" not in text
    assert "`make bench ARGS=threads`" in text
    assert "`make bench-peers`" in text


def test_a_quick_run_is_printed_and_not_written(results, capsys):
    report.run([section("single", "fast")], "make bench", ["--quick"])
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
