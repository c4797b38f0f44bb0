"""What other programs read of buried tasks."""

from __future__ import annotations

import pickle
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task


def read(Task: Any) -> set[tuple[Any, ...]]:
    return set(pickle.loads(pickle.dumps(Task.xq.pipeline.extract("buried"))).read())


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
    assert read(Task) == {(keys[0], "Lost: it's gone\nTraceback ü🦆"), (keys[1], None)}
    assert {error for _, error in read(Bare)} == {None}
    with pytest.raises(xq.FeatureOff, match="'buried'"):
        make_shared({"history": True}, attributes={"table_name": "other"}).xq.pipeline.extract("buried")
