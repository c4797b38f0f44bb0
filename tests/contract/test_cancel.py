"""A cancelled task: it ends at once, its function is asked to stop, and nothing of it is tried again."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import PATIENCE, STUCK, another_process, elsewhere, eventually, state, transitions

FEATURES = {"buried": True, "keep": True, "events": True, "history": True}


@pytest.mark.parametrize("to", [None, "B"])
def test_a_cancelled_task_is_counted_and_in_the_history_and_its_late_ack_raises(make, to):
    Task = make(FEATURES)
    Task.put(task())
    taken = Task.take()
    with Task.xq.session(), Task.xq.acting("ann", reason="too late"):
        Task.cancel(taken.id, to)
    gone, (last,) = to or "X", Task.xq.history(taken)[-1:]
    assert (last.source, last.target, last.event, last.actor) == ("T", gone, "cancel", "ann")
    assert transitions(Task) == {"X-R": 1, "R-T": 1, f"T-{gone}": 1}
    assert Task.xq.stats().events["cancel"] == 1
    for late in (taken.ack, taken.release, taken.cancel):
        with pytest.raises(xq.WrongState if to else xq.NotFound):
            late()


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_a_function_is_asked_to_stop_by_another_process_and_has_not_failed(make_live, kind, caplog):
    Task, ended, failed = make_live(FEATURES, roles=("attempts",)), threading.Event(), list[Any]()
    put = Task.put(task())

    def cancels() -> Any:
        yield
        yield Task.xq.cancel(put.id).status

    async def awaits(found: Any) -> None:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            assert xq.current().lost.is_set()
            ended.set()
            raise

    def sees(found: Any) -> None:
        assert xq.current().lost.wait(PATIENCE)
        assert xq.current().cancelled
        ended.set()
        raise ValueError("stopped")

    worker = Task.xq.worker(awaits if kind == "asyncio" else sees, max_attempts=1)
    worker.on_failure(lambda found, error: failed.append(error))
    with caplog.at_level(logging.INFO, "xq"), another_process(make_live.db, cancels) as other:
        next(other)
        running = Task.xq.start()
        eventually(lambda: state(Task, put) == "T")
        next(other)
        assert ended.wait(STUCK)
        running.stop()
        assert running.join(PATIENCE)
    assert (state(Task, put), failed) == ("X", [])
    (told,) = [each for each in caplog.messages if each.startswith("task 1 ")]
    assert told.startswith("task 1 was cancelled after ")
    assert transitions(Task) == {"X-R": 1, "R-T": 1, "T-X": 1}


def test_a_cancelled_task_of_a_batch_is_left_out_of_the_ack(make_live):
    Task = make_live(FEATURES)
    first, second = Task.xq.put_many(tasks(2))

    @Task.xq.worker(batch=2)
    def work(found: Any) -> None:
        elsewhere(make_live.db, lambda: Task.xq.cancel(first, "B"))
        assert not xq.current().cancelled

    Task.xq.run(until_empty=True)
    assert (state(Task, first), state(Task, second)) == ("B", "D")
