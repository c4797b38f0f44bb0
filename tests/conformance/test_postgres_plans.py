"""How PostgreSQL plans the statements of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

from tests.conftest import DATABASES, Maker
from xq.adapters import drivers


@pytest.fixture
def db(tmp_path: Path) -> Iterator[pw.Database]:
    with DATABASES["postgres"](tmp_path) as db:
        yield db


def plan_of_take(connection: Any) -> str:
    """As this connection has prepared it, whatever the values."""
    ((name, values),) = connection.execute(
        "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements WHERE statement LIKE '%SKIP LOCKED%'"
    ).fetchall()
    connection.execute("SET plan_cache_mode = force_generic_plan")
    lines = connection.execute(f"EXPLAIN EXECUTE {name} ({', '.join(['NULL'] * values)})").fetchall()
    return "\n".join(line for (line,) in lines)


def test_many_tasks_that_come_at_once_are_taken_by_the_index_though_the_table_was_empty(db, monkeypatch):
    Task: Any = Maker(db, None)()
    monkeypatch.setattr(drivers, "PLANNED", float("inf"))
    Task.take()
    connection = db.connection()
    connection.execute(f"VACUUM {Task._meta.table_name}")  # from here on it takes the table for an empty one
    Task.take()
    assert "Seq Scan" in plan_of_take(connection)
    Task.xq.put_many([{}] * 10_000)
    assert "Seq Scan" in plan_of_take(connection), "a plan is kept"
    monkeypatch.setattr(drivers, "PLANNED", 0.0)
    Task.take()
    assert "Seq Scan" not in plan_of_take(connection)
