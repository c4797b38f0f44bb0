"""Tubes: several tasks at once, and workers; each task is the named tuple that `take` returns."""

from __future__ import annotations

import peewee as pw
import pytest

import xq


def test_tasks_are_taken_and_acked_many_at_a_time(db: pw.Database):
    tube = xq.Tubes(db).create_tube("tube", "fifo")
    for data in ({"url": "a"}, b"b", None):
        tube.put(data)
    taken = tube.take_many(2, timeout=0)
    assert taken == [(1, "t", {"url": "a"}), (2, "t", b"b")]
    with pytest.raises(xq.NotFound):
        tube.ack_many([*taken, 77])
    with pytest.raises(xq.BadType):
        tube.ack_many(taken[0])
    assert tube.peek(1).state == "t", "all of them, or none"
    assert tube.ack_many([taken[0], 2]) == [(1, "-", {"url": "a"}), (2, "-", b"b")]
    assert tube.take_many(5, timeout=0) == [(3, "t", None)]
    assert tube.take_many(5, timeout=0) == []


def test_a_worker_of_a_tube_is_called_with_its_tasks(shared_db: pw.Database):
    tube = xq.Tubes(shared_db).create_tube("tube", "fifottl")
    found: list[object] = []

    @tube.worker
    def work(task):
        found.append(task)

    tube.put({"url": "a"})
    tube.run(until_empty=True)
    assert found == [(1, "t", {"url": "a"})]

    @tube.worker(workers=1, finishes=True)
    def finishes(task, finish):
        found.append(finish("bury") if task.data == "bad" else finish())

    tube.put("good")
    tube.put("bad")
    tube.run(until_empty=True)
    assert found[1:] == [(2, "-", "good"), (3, "!", "bad")]
    with pytest.raises(xq.ConfigurationError, match="function"):
        tube.worker("no function")
