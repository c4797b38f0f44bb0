"""Bulk puts: rows staged by any process, and put all at once by one, without the model."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conftest import Maker
from xq.testing import Clock


def elsewhere(bulk: Any) -> Any:
    """A bulk put as another process has it."""
    return pickle.loads(pickle.dumps(bulk))


def put(Task: Any, columns: Sequence[str], *rows: Any, job: str | None = None, parts: int = 1, **options: Any) -> int:
    """Put rows by a job of so many partitions."""
    begun = elsewhere(elsewhere(Task.xq.pipeline.bulk(**options)).begin(columns, job))
    staged = [
        begun.stage([list(zip(*rows[part::parts], strict=True))] if rows[part::parts] else [], part)
        for part in range(parts)
    ]
    count: int = begun.commit(elsewhere(staged))
    return count


def names(Task: Any) -> list[str]:
    return [task.name for task in Task.select().order_by(Task._meta.primary_key)]


@pytest.fixture
def timed(shared_db):
    """Makes queues by a clock in the test's hand, which other processes can open."""
    return Maker(shared_db, Clock())


def staged_rows(Task: Any) -> int:
    """How many rows stand in the stage, of however many fields."""
    stage = Task.xq.pipeline.bulk().dialect.staging
    return int(Task._meta.database.execute_sql(f"SELECT COUNT(*) FROM {stage.stage}").fetchone()[0])
