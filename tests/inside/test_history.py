"""The feature history: each transition a row that tells its event, written with the change, pruned by the sweep."""

from __future__ import annotations

from tests.factories import task
from tests.support.history import transitions


def test_the_newest_row_stays_in_the_table_and_is_told_no_more(make):
    Task = make({"history": 10})
    Task.put(task())
    Task.take()
    Task.xq.clock.tick(100)
    Task.xq.sweep()
    assert transitions(Task) == []
    assert [row.id for row in Task.xq.History.select()] == [2]
    assert Task.xq._takes.timers.seconds() is None
