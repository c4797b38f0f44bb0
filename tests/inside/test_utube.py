"""The feature utube: tasks that come one after the other, beside others."""

from __future__ import annotations

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
        return [DirtyGroup(id, utube, OPEN) for id, utube in store.execute("SELECT id, utube FROM task_xq_utube_news")]

    Task.xq.kill(put(Task, "a0")[0])
    read = dirty()
    all_heard(Task)
    put(Task, "a1")
    with store.atomic():
        utubes.refresh_heads(store, [*dirty(), *read])  # as one does that begins before, and comes to it later
    assert taken(Task, 2) == ["a1"]
    assert is_exact(Task)
