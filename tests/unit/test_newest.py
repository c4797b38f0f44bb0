"""docs/tested.md: what a run of `make test-newest` writes."""

from __future__ import annotations

from tests import newest
from tests.servers import Postgres


def test_a_run_has_a_row_in_place_of_the_last_one_with_the_same_python():
    found = dict.fromkeys(newest.COLUMNS, "1.0")
    page = ""
    for python, passed in (("3.9.1", "1"), ("3.14.0", "2"), ("3.13.5", "3"), ("3.14.10", "4")):
        page = newest.written(page, {**found, "Python": python, "passed": passed})
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| 3.")]
    assert [(row[0], row[-1]) for row in rows] == [("| 3.14.10", "4 |"), ("| 3.13.5", "3 |"), ("| 3.9.1", "1 |")]


def test_the_newest_server_is_by_its_number(tmp_path):
    for number in ("9.6", "17.12", "18.6", "15.18"):
        (program := tmp_path / number / "postgres").parent.mkdir()
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {number} (Debian {number}-1)'")
        program.chmod(0o755)
    folders = [*map(str, sorted(tmp_path.iterdir())), "/nowhere"]
    assert newest.newest(Postgres, folders) == (str(tmp_path / "18.6"), "18.6")
    assert newest.newest(Postgres, ["/nowhere"]) == ("", "")
