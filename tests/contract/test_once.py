"""Batches of streams are written once each, with what is made of them."""

from __future__ import annotations

import pytest

from tests.factories import task


def test_each_batch_is_written_once_with_what_is_made_of_it(make):
    Task = make()
    written = [
        Task.xq.pipeline.write_batch("names", "stream", n, lambda n=n: Task.put(task(name=f"batch {n}")))
        for n in (0, 1, 1, 0, 2)
    ]
    assert written == [True, True, False, False, True]
    assert [found.name for found in Task.select().order_by(Task.id)] == ["batch 0", "batch 1", "batch 2"]


def test_what_fails_is_not_written_and_may_be_again(make):
    Task = make()

    def fails() -> None:
        Task.put(task())
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            Task.xq.pipeline.write_batch("names", "stream", 0, fails)
    assert Task.select().count() == 0
    assert Task.xq.pipeline.write_batch("names", "stream", 0, lambda: Task.put(task()))
    assert Task.select().count() == 1


def test_checkpoints_know_nothing_of_each_other(make):
    Task = make()
    assert all(
        Task.xq.pipeline.write_batch(sink, "stream", 0, lambda: None) for sink in ("one", "ONE", "one ", "an'other")
    )
