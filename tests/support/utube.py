"""The feature utube: tasks that come one after the other, beside others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

from tests.conftest import DATABASES, SERVERS, Maker, live
from tests.steps import eventually


def put(Task: Any, *names: str, **options: Any) -> list[Any]:
    """Tasks called by their utube and their number in it, "a0"; one that begins with "-" has no utube."""
    rows = [{"name": name, "utube": None if name[0] == "-" else name[0]} for name in names]
    return [Task.put(row, **options) for row in rows]


def taken(Task: Any, n: int = 1) -> list[str]:
    """The names of the next tasks, taken one by one until none comes, or so many."""
    found = [Task.take() for _ in range(n)]
    return [one.name for one in found if one]


@pytest.fixture(params=SERVERS)
def make_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    """Makes queues on a server."""
    with DATABASES[request.param](tmp_path) as db:
        yield live(db)


def all_heard(Task: Any) -> None:
    """Wait until takes can find all that is ready."""
    if not isinstance(Task._meta.database, pw.SqliteDatabase):
        news = "SELECT COUNT(*) FROM task_xq_dirty_groups"
        eventually(lambda: Task.xq.sweep() == 0 == Task._meta.database.execute_sql(news).fetchone()[0])
