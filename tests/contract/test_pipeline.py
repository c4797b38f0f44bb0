"""A queue as other programs read it, in parts of which each has other rows, and as they fill it, by jobs put once."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import install_anew
from tests.support.pipeline import elsewhere, extract, put, rows


def test_ranges_have_each_row_once(make_shared):
    Task = make_shared({"history": True})
    history = extract(Task, "history")
    assert len(history.ranges(4)) == 1
    Task.xq.put_many(tasks(10))
    found = history.ranges(4)
    assert len(found) == 4
    Task.xq.put_many(tasks(10))  # which are in none of them
    read = [row for part in found for row in history.read(["id"], part)]
    assert sorted(read) == rows(history, "id")[:10]
    assert len(read) == 10
    present = extract(Task)
    found = present.ranges(4)
    assert len(found) == 4
    assert sorted(row for part in found for row in present.read(["id"], part)) == rows(present, "id")


def test_checkpoints_cut_the_history_where_they_are_told_to(make_shared):
    Task = make_shared({"history": True})
    history = extract(Task, "history")
    assert history.checkpoint() == ()
    Task.xq.put_many(tasks(5))
    Task.xq.put_many(tasks(5))
    checkpoint: tuple[int, ...] = ()
    read: list[tuple[Any, ...]] = []
    while (until := history.checkpoint(checkpoint, 3)) != checkpoint:
        part = rows(history, "id", after=checkpoint, until=until)
        assert 0 < len(part) <= 3
        read += part
        checkpoint = until
    assert sorted(read) == rows(history, "id")
    assert checkpoint == history.checkpoint()
    assert rows(history, "id", after=checkpoint) == []


def test_buried_tasks_are_told_by_the_keys_of_the_history_with_their_error(make_shared):
    features, error = {"buried": True, "history": True}, "Lost: it's gone\nTraceback ü🦆"
    Task = make_shared(features, roles=("error",), attributes={"error": pw.TextField(null=True)})
    Task.xq.put_many([task(name=f"n{i}") for i in range(3)])
    first, second, _ = Task.xq.take_many(3)
    Task.xq.bury_many([first], error=error)
    Task.xq.bury_many([second])
    keys = [row.key for row in Task.xq.history() if row.event == "bury"]
    assert set(extract(Task, "tasks", "B").read(["xq_key", "error"])) == {(keys[0], error), (keys[1], None)}


def test_a_job_that_was_begun_before_another_definition_was_installed_puts_nothing(make_shared):
    Task = make_shared({"keep": True})
    job = elsewhere(Task.xq.pipeline.bulk().begin(["name"]))
    assert job.put(0, [[["a"]]]) == 1
    install_anew(Task, {"keep": True, "delayed": True})
    with pytest.raises(xq.NotInstalled, match="feature 'delayed'"):
        job.put(1, [[["b"]]])
    assert Task.xq.count() == 1


def test_a_job_with_a_name_is_put_once_however_often_it_is_run(make_shared, caplog):
    Task = make_shared()
    assert [put(Task, ["name"], ("a",), ("b",), job="tonight") for _ in range(3)] == [2, 0, 0]
    assert caplog.messages == ["the job tonight was put before: none of its rows is put again"] * 2
    assert put(Task, ["name"], ("a",), job="tomorrow") == 1
    assert Task.select().count() == 3
