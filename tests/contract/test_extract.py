"""What a queue holds, as other programs read it: in parts of which each has other rows."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.support.extract import rows, unpickled


def test_ranges_have_each_row_once(make_shared):
    Task = make_shared({"history": True})
    extract = unpickled(Task, "history")
    assert len(extract.ranges(4)) == 1
    Task.xq.put_many(tasks(10))
    found = extract.ranges(4)
    assert len(found) == 4
    Task.xq.put_many(tasks(10))  # which are in none of them
    read = [row for part in found for row in extract.read(["id"], part)]
    assert sorted(read) == rows(extract, "id")[:10]
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


def buried(Task: Any) -> set[tuple[Any, ...]]:
    return set(unpickled(Task, "buried").read())


def test_buried_tasks_are_told_by_the_keys_of_the_history_with_their_error(make_shared):
    features = {"buried": True, "history": True}
    Task = make_shared(features, roles=("error",), attributes={"error": pw.TextField(null=True)})
    Bare = make_shared(features, attributes={"table_name": "bare"})
    for model in (Task, Bare):
        model.xq.put_many([task(name=f"n{i}") for i in range(3)])
    first, second, _ = Task.xq.take_many(3)
    Task.xq.bury_many([first], error="Lost: it's gone\nTraceback ü🦆")
    Task.xq.bury_many([second])
    Bare.take().bury()
    keys = [row.key for row in Task.xq.history() if row.event == "bury"]
    assert buried(Task) == {(keys[0], "Lost: it's gone\nTraceback ü🦆"), (keys[1], None)}
    assert {error for _, error in buried(Bare)} == {None}
    with pytest.raises(xq.FeatureOff, match="'buried'"):
        make_shared({"history": True}, attributes={"table_name": "other"}).xq.pipeline.extract("buried")
