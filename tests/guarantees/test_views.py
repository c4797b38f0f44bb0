"""A reader of a history's view that goes on from the last position has each row, however late it is committed."""

from __future__ import annotations

import peewee as pw

from tests.conftest import fresh
from tests.factories import task
from tests.steps import eventually, put_late

shared_db = fresh(["sqlite", "postgres"])  # MariaDB's views have no position


def test_a_read_on_from_the_last_position_has_each_row_once_however_late_it_is_committed(make_live):
    Task = make_live({"history": True})
    Task.xq.install(views=True)
    seen, last = list[int](), 0

    def rows(sql: str) -> list[tuple[int, ...]]:
        return [tuple(row) for row in make_live.db.execute_sql(sql).fetchall()]

    def read() -> int:
        nonlocal last
        new = rows(f"SELECT id, position FROM task_xq_events WHERE position > {last} ORDER BY position, id")
        seen.extend(id for id, _ in new)
        last = max([last, *(position for _, position in new)])
        return len(new)

    Task.put(task())
    assert eventually(read)
    if not isinstance(make_live.db, pw.SqliteDatabase):  # which has one writer
        with put_late(Task) as commit:
            Task.put(task())
            assert read() == 0
            commit()
    Task.put(task())
    assert eventually(lambda: read() >= 0 and len(seen) == Task.select().count())
    assert sorted(seen) == [id for (id,) in rows("SELECT id FROM task_xq_events ORDER BY id")]
