"""worker(concurrency=): at most so many tasks are taken at a time by all workers, queues and programs of one name."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import PATIENCE, eventually, is_exact, note, noted, of_kind, transitions, waiter


def most_taken(Task: Any) -> int:
    """Return how many tasks were taken at a time at most, as the history has it."""
    changes: list[int] = [(each.target == "T") - (each.source == "T") for each in Task.xq.history()]
    return max(itertools.accumulate(changes), default=0)


@pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])
def test_the_workers_of_several_queues_share_the_slots_of_a_name_and_use_them_all(make_live, tmp_path, kind):
    queues = make_live({"history": True}), make_live({"history": True}, attributes={"table_name": "other"})
    log, smtp = tmp_path / "log", xq.Concurrency("it's ü", 3)

    def work(found: Any) -> None:
        note(log, "+")
        # The first three wait for each other, so that all slots are used.
        eventually(lambda: noted(log).count("+") >= 3)
        note(log, "-")

    workers = [each.xq.worker(of_kind(kind, work), kind=kind, workers=4, concurrency=smtp) for each in queues]
    for each in queues:
        each.xq.put_many(tasks(10))
    xq.run(*workers, until_empty=True)
    running = list(itertools.accumulate(1 if each == "+" else -1 for each in noted(log)))
    assert (len(running), max(running)) == (40, 3)
    for each in queues:
        assert most_taken(each) <= 3
        assert transitions(each) == {"X-R": 10, "R-T": 10, "T-X": 10}
        assert is_exact(each)


def test_a_task_without_a_slot_stays_ready_for_others_and_an_idle_worker_has_no_slot(make_live):
    Task, idle, ends = make_live(), make_live(attributes={"table_name": "other"}), threading.Event()
    for each in (idle, Task):
        each.xq.worker(lambda found: ends.wait(PATIENCE), workers=2, concurrency=xq.Concurrency("smtp", 1))
    running = idle.xq.start(), Task.xq.start()
    Task.put(task())
    eventually(lambda: Task.xq.count("T"))
    other = waiter(Task, lambda: Task.take(timeout=PATIENCE))
    Task.put(task())
    assert other.result().id == 2
    ends.set()
    for each in running:
        each.stop()
        assert each.join(PATIENCE)


@pytest.mark.parametrize(
    "options", [{"kind": "thread"}, {"kind": "asyncio"}, {"prefetch": 3}, {"batch": 3}, {"kind": "asyncio", "batch": 2}]
)
@pytest.mark.parametrize("error", [ValueError, xq.Retry, xq.Discard, None])
def test_each_end_of_a_task_frees_its_slot(make_shared, options, error):
    Task = make_shared({"buried": True, "history": True}, roles=("attempts",))

    def work(found: Any) -> None:
        if error:
            raise error("no")

    async def awork(found: Any) -> None:
        work(found)

    function = awork if options.get("kind") == "asyncio" else work
    Task.xq.worker(function, workers=2, max_attempts=1, concurrency=xq.Concurrency("smtp", 2), **options)
    Task.xq.put_many(tasks(7))
    Task.xq.run(until_empty=True)
    assert (most_taken(Task) <= 2, Task.xq.count("R"), Task.xq.count("T")) == (True, 0, 0)


@pytest.mark.parametrize(("name", "n"), [("", 1), ("a" * 256, 1), (7, 1), ("a", 0), ("a", True), ("a", None)])
def test_a_concurrency_has_a_name_and_a_number(name, n):
    with pytest.raises(xq.ConfigurationError, match="Concurrency has a"):
        xq.Concurrency(name, n)
