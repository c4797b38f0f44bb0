"""Durable steps and kill -9: what was recorded is not done again, and no signal is lost beside its wait."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest

import xq
from tests.factories import task
from tests.steps import STUCK, another_process, eventually, is_exact, note, noted, processes, row, state
from tests.support.killed_steps import FEATURES, check, check_sessions


@pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])
def test_a_killed_process_has_done_its_recorded_steps_and_another_goes_on(make_live, tmp_path, kind):
    Task, seen = make_live(FEATURES, roles=("runat", "attempts")), tmp_path / "seen"

    def called(name: str) -> str:
        note(seen, name)
        if name == "c" and noted(seen).count("c") == 1:
            if kind == "process":
                os.kill(os.getpid(), signal.SIGKILL)
            eventually(lambda: False)
        return name.upper()

    def work(found: Any) -> None:
        note(seen, "".join(xq.step(name, called, name) for name in "abc"))

    async def awork(found: Any) -> None:
        note(seen, "".join([await xq.step(name, called, name) for name in "abc"]))

    Task.xq.worker(awork if kind == "asyncio" else work, kind=kind, backoff=0)
    Task.put(task())

    def works():
        if kind == "process":
            Task.xq.run(until_empty=True)
            yield "ended"
        Task.xq.start()
        yield eventually(lambda: "c" in noted(seen))

    with another_process(make_live.db, works) as program:
        next(program)
        program.kill()
    if kind != "process":
        running = Task.xq.start()
        eventually(lambda: state(Task, 1) == "D")
        running.stop()
        running.join()
    assert noted(seen) == ["a", "b", "c", "c", "ABC"]
    assert (state(Task, 1), row(Task, 1).xq_steps, is_exact(Task)) == ("D", None, True)


@pytest.mark.parametrize("in_transaction", [True, False], ids=["in atomic()", "plain"])
def test_effects_of_killed_steps(make_live, in_transaction):
    check(make_live, 15, in_transaction)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["session", "async session"])
def test_effects_of_killed_steps_in_sessions(make_live, asynchronous):
    check_sessions(make_live.db, 10, asynchronous)


def test_a_waiting_worker_wakes_by_a_signal_of_another_process(make_live, tmp_path):
    Task, seen = make_live(FEATURES, roles=("runat", "attempts")), tmp_path / "seen"
    Task.xq.worker(lambda found: note(seen, xq.wait_for("go")))
    Task.put(task())

    def works():
        Task.xq.start()
        yield eventually(lambda: state(Task, 1) == "W")
        yield eventually(lambda: state(Task, 1) == "D")

    with another_process(make_live.db, works) as program:
        next(program)
        assert Task.xq.signal(1, "go", "now") is True
        next(program)
    assert noted(seen) == ["now"]


def test_no_signal_is_lost_beside_its_wait(make_live):
    rounds(make_live, 60)


def rounds(make: Any, n: int) -> None:
    """Two processes whose workers wait for signals, two that send these: no wait reaches its timeout."""
    Task = make(FEATURES, roles=("runat", "attempts"))

    def waits(found: Any) -> None:
        xq.wait_for("go", timeout=STUCK)

    Task.xq.worker(waits, backoff=0)

    def works():
        running = Task.xq.start(workers=2)
        yield "begun"
        running.stop()
        yield running.join()

    def sends():
        first = yield "begun"
        while True:
            for key in range(first, n + 1, 2):
                eventually(partial(has_begun, key))
                Task.xq.signal(key, "go", key)
            first = yield "sent"

    def has_begun(key: int) -> bool:
        """Whether it was taken for the first time: it is about to wait, or waits."""
        return bool(Task.xq.peek(key).attempts)

    with processes(make.db, works, works, sends, sends) as (*workers, one, other):
        for each in (*workers, one, other):
            next(each)
        Task.xq.put_many([task() for _ in range(n)])
        one.post(1)
        other.post(2)
        assert [one.hear(), other.hear()] == ["sent"] * 2
        eventually(lambda: Task.xq.count("D") == n)
    assert is_exact(Task)
