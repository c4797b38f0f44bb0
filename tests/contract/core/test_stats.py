"""The statistics are exact also where plain SQL empties the table."""

from __future__ import annotations

import pytest

from tests.factories import tasks
from tests.steps import is_exact, transitions

# The fastest statement that each database counts. MariaDB's TRUNCATE calls no trigger.
EMPTY = {"sqlite": "DELETE FROM task", "postgres": "TRUNCATE TABLE task", "mariadb": "DELETE FROM task"}


@pytest.mark.parametrize(("db", "sql"), EMPTY.items(), ids=EMPTY, indirect=["db"])
def test_a_table_that_plain_sql_empties_is_counted_as_empty(make, sql):
    Task = make({"buried": True})
    Task.xq.put_many(tasks(3))
    Task.take().bury()
    make.db.execute_sql(sql)
    assert Task.stats().counts == {"R": 0, "T": 0, "B": 0}
    assert transitions(Task) == {"X-R": 3, "R-T": 1, "T-B": 1, "R-X": 2, "B-X": 1}
    assert is_exact(Task)
