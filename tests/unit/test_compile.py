"""The SQL of a few queues, statement by statement, as the files in tests/golden say."""

from __future__ import annotations

import difflib
import re

import peewee as pw
import pytest

from tests.golden.regenerate import DATABASES, GOLDEN, QUEUES, dialect, entries, path, render
from xq.core.compile import change
from xq.sql.language import SHARED_TEXTS
from xq.sql.records import TEXTS, Records
from xq.sql.shared import SharedSql, Sql
from xq.sql.sql_file import texts


@pytest.mark.parametrize("database", DATABASES, ids=lambda name: name or "sqlite")
@pytest.mark.parametrize("name", GOLDEN)
def test_the_sql_is_what_the_golden_file_says(name, database):
    there = path(name, database)
    written = there.read_text(encoding="utf-8") if there.exists() else ""
    now = render(name, database)
    if now != written:
        lines = difflib.unified_diff(written.splitlines(), now.splitlines(), str(there), "now", lineterm="", n=4)
        pytest.fail(
            "\n".join([*lines, "", "If this is meant: python tests/golden/regenerate.py, and read the diff"]),
            pytrace=False,
        )


@pytest.mark.parametrize("database", DATABASES, ids=lambda name: name or "sqlite")
def test_the_texts_about_the_tables_of_xq_are_those_that_records_names(database):
    own = texts(dialect(QUEUES["readme"](DATABASES[database]())).shared_file)
    shared, mine = ({k for k, found in vars(kind).items() if isinstance(found, Sql)} for kind in (SharedSql, Records))
    assert mine | {"recorded", "forget_in"} == texts(TEXTS).keys()
    assert shared == texts(SHARED_TEXTS).keys() >= own.keys()


@pytest.mark.parametrize("database", DATABASES, ids=lambda name: name or "sqlite")
@pytest.mark.parametrize("name", QUEUES)
def test_a_status_stands_in_the_sql_and_never_comes_as_a_value(name, database):
    # A planner that does not see it cannot use a partial index.
    queue = QUEUES[name](DATABASES[database]())
    for entry in entries(queue):
        if entry.source:
            sql, its = dialect(queue), entry.statement
            by_key = sql.is_state(entry.source, sql.not_by_index(sql.roles["status"]))
            text = (its.lock or its.admitted or its.sql).replace(f"{sql.table}.", "")
            assert by_key in text or entry.status.replace(f"{sql.table}.", "") in text
        assert not re.search(r":status\b", entry.text)


def test_a_road_to_a_state_writes_what_any_other_road_to_it_writes():
    machine = QUEUES["tubes"](pw.SqliteDatabase(":memory:")).machine
    for target in machine.states:
        # all but put: what is yet to be put has no seconds of its own
        roads = [row for row in machine.rows if row.target == target and row.follows and row.source != "X"]
        least = [change(machine, row, frozenset(filter(None, [row.given]))).roles for row in roads]
        assert all(roles == least[0] for roles in least), target
