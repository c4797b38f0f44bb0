"""worker(concurrency=): at most so many functions run at a time in all workers, queues and programs of one name."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
from typing import Any

import pytest

import xq
from tests.factories import tasks
from tests.steps import PATIENCE, eventually, is_exact, note, noted, transitions


@pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])
def test_the_workers_of_several_queues_share_the_slots_of_a_name_and_use_them_all(make_live, tmp_path, kind):
    queues = make_live(), make_live(attributes={"table_name": "other"})
    log, smtp = tmp_path / "log", xq.Concurrency("it's ü", 3)

    def work(found: Any) -> None:
        note(log, "+")
        # The first three wait for each other, so that all slots are used.
        eventually(lambda: noted(log).count("+") >= 3)
        note(log, "-")

    async def awork(found: Any) -> None:
        await asyncio.to_thread(work, found)

    function = awork if kind == "asyncio" else work
    workers = [each.xq.worker(function, kind=kind, workers=4, concurrency=smtp) for each in queues]
    for each in queues:
        each.xq.put_many(tasks(10))
    xq.run(*workers, until_empty=True)
    running = list(itertools.accumulate(1 if each == "+" else -1 for each in noted(log)))
    assert (len(running), max(running)) == (40, 3)
    for each in queues:
        assert transitions(each) == {"X-R": 10, "R-T": 10, "T-X": 10}
        assert is_exact(each)


def test_the_slot_of_a_killed_process_is_free_again(make_live):
    Task, dies = make_live(), True

    @Task.xq.worker(concurrency=xq.Concurrency("smtp", 1))
    def work(found: Any) -> None:
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    Task.xq.put_many(tasks(2))
    child = multiprocessing.get_context("fork").Process(target=Task.xq.run)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == -signal.SIGKILL
    dies = False
    eventually(lambda: Task.xq.run(until_empty=True) or Task.xq.count() == 0)


def test_a_function_that_fails_frees_its_slot(make_shared):
    Task = make_shared({"buried": True}, roles=("attempts",))

    @Task.xq.worker(workers=2, max_attempts=1, concurrency=xq.Concurrency("smtp", 1))
    def work(found: Any) -> None:
        raise ValueError("no")

    Task.xq.put_many(tasks(4))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 4, "R-T": 4, "T-B": 4}


@pytest.mark.parametrize(("name", "n"), [("", 1), ("a" * 256, 1), (7, 1), ("a", 0), ("a", True), ("a", None)])
def test_a_concurrency_has_a_name_and_a_number(name, n):
    with pytest.raises(xq.ConfigurationError, match="Concurrency has a"):
        xq.Concurrency(name, n)
