"""What a queue holds, as other programs read it: in parts of which each has other rows."""

from __future__ import annotations

from typing import Any

from tests.factories import tasks
from tests.support.extract import rows, unpickled


def test_ranges_have_each_row_once(make_shared):
    Task = make_shared({"history": True})
    extract = unpickled(Task, "history")
    assert len(extract.ranges(4)) == 1
    Task.xq.put_many(tasks(10))
    found = extract.ranges(4)
    assert len(found) == 4
    read = [row for part in found for row in extract.read(["id"], part)]
    assert sorted(read) == rows(extract, "id")
    assert len(read) == 10
    assert len(unpickled(Task).ranges(4)) == 1


def test_checkpoints_cut_the_history_where_they_are_told_to(make_shared):
    Task = make_shared({"history": True})
    extract = unpickled(Task, "history")
    assert extract.checkpoint() == ()
    Task.xq.put_many(tasks(5))
    Task.xq.put_many(tasks(5))
    whole = rows(extract, "id")
    checkpoint: tuple[int, ...] = ()
    read: list[tuple[Any, ...]] = []
    while (until := extract.checkpoint(checkpoint, 3)) != checkpoint:
        part = rows(extract, "id", after=checkpoint, until=until)
        assert 0 < len(part) <= 3
        read += part
        checkpoint = until
    assert sorted(read) == whole
    assert checkpoint == extract.checkpoint()
    assert rows(extract, "id", after=checkpoint) == []
