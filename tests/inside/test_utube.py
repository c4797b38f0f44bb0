"""The feature utube: tasks that come one after the other, beside others."""

from __future__ import annotations

import pytest

from tests.conftest import DATABASES, live
from tests.steps import (
    is_exact,
)
from tests.support import utube as support
from tests.support.utube import all_heard, put, taken
from xq.adapters.databases.dirty_groups import OPEN, DirtyGroup

make_server = support.make_server


def test_a_group_stays_dirty_until_a_refresh_that_begins_after_it_became_dirty(make_server):
    Task = make_server({"utube": True}, roles=("utube", "owner"))
    utubes, store = Task.xq._database.open().dialect.groups, Task.xq.adapter.store

    def dirty() -> list[DirtyGroup]:
        return [
            DirtyGroup(id, utube, OPEN) for id, utube in store.execute("SELECT id, utube FROM task_xq_dirty_groups")
        ]

    Task.xq.kill(put(Task, "a0")[0])
    read = dirty()
    all_heard(Task)
    put(Task, "a1")
    with store.atomic():
        utubes.refresh_heads(store, [*dirty(), *read])  # as one does that begins before, and comes to it later
    assert taken(Task, 2) == ["a1"]
    assert is_exact(Task)


@pytest.mark.parametrize("n", [10, 500])
def test_on_postgresql_an_update_of_many_rows_writes_each_head_and_each_dirty_group_once(tmp_path, n):
    with DATABASES["postgres"](tmp_path) as db:
        Task = live(db)({"utube": 1_000}, roles=("utube", "owner"))
        Task.xq.put_many([{"name": str(i), "utube": "ab"[i % 2]} for i in range(n)])
        all_heard(Task)
        tables = "WHERE relname IN ('task_xq_utube_1000', 'task_xq_dirty_groups')"
        writes = f"SELECT SUM(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables {tables}"
        for change in ("status = 'T'", "utube = 'c'", "status = 'R'"):
            with db.atomic():
                ((before,),) = db.execute_sql(writes).fetchall()
                db.execute_sql(f"UPDATE task SET {change}")
                ((after,),) = db.execute_sql(writes).fetchall()
            assert 0 < after - (before or 0) <= 6  # two tables, three groups
            all_heard(Task)
        assert is_exact(Task)
