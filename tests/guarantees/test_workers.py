"""Worker processes do each task, also when one of them is killed, and finish what they have when a signal ends them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import Any

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import PATIENCE, STUCK, eventually, forked, is_exact, note, noted, of_kind, row, state, transitions
from xq.workers.processes import Child


def test_worker_processes_do_each_task_once(make_live, tmp_path):
    Task, done = make_live(), tmp_path / "done"

    @Task.xq.worker(workers=3, kind="process")
    def work(found):
        note(done, f"{os.getpid()} {found.id}")

    Task.xq.put_many(tasks(30))
    Task.xq.run(until_empty=True)
    lines = [line.split() for line in noted(done)]
    assert sorted(int(key) for _, key in lines) == [*range(1, 31)]
    assert f"{os.getpid()}" not in {pid for pid, _ in lines}
    assert transitions(Task) == {"X-R": 30, "R-T": 30, "T-X": 30}
    assert is_exact(Task)


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_what_a_worker_has_reserved_and_does_not_find_another_takes(make_live, kind):
    Task = make_live({"keep": True}, roles=("tube",))

    def work(found: Any) -> None:
        if found.name == "0" and found.tube == "b":  # all that may still be taken is reserved for the tube a by then
            eventually(lambda: state(Task, first.id) == "D" and Task.xq.waiting())

    first, *_ = Task.xq.put_many([task(tube="a"), task(tube="b", name="0"), task(tube="b", name="1")])
    Task.xq.worker(of_kind(kind, work))
    Task.xq.run(max_tasks=3, tubes=["a", "b"])
    assert Task.xq.count("D") == 3


def test_the_task_of_a_worker_process_that_is_killed_is_done_by_another(make_live, tmp_path):
    Task, begun = make_live({"keep": True}), tmp_path / "begun"

    @Task.xq.worker(kind="process")
    def work(found):
        note(begun, os.getpid())
        if len(noted(begun)) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    put = Task.put(task())
    eventually(lambda: Task.xq.run(until_empty=True) or state(Task, put) == "D")  # once its session is reaped
    assert len({*noted(begun)}) == 2


def test_the_task_of_a_dead_worker_process_comes_back_if_its_parent_cannot_connect(make_live, monkeypatch, tmp_path):
    Task, begun, clean_up = make_live({"keep": True}), tmp_path / "begun", Child._clean_up

    def fails_once(child: Child) -> None:
        monkeypatch.setattr(Child, "_clean_up", clean_up)
        raise ConnectionError("the server restarts")

    @Task.xq.worker(kind="process")
    def work(found):
        note(begun, os.getpid())
        if len(noted(begun)) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Child, "_clean_up", fails_once)
    put = Task.put(task())
    eventually(lambda: Task.xq.run(until_empty=True) or state(Task, put) == "D")
    assert Child._clean_up is clean_up


@pytest.mark.parametrize("hook", ["on_failure", "on_buried"])
def test_a_task_whose_function_raised_is_not_done_though_what_is_called_then_kills_its_process(make_live, hook):
    Task, parent, seen = make_live({"buried": True, "keep": True}, roles=("attempts",)), os.getpid(), list[str]()

    @Task.xq.worker(kind="process", max_attempts=1)
    def work(found):
        raise ValueError

    def kill(found: Any, error: BaseException) -> None:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(type(error).__name__)

    getattr(work, hook)(kill, in_transaction=hook == "on_buried")
    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    assert (seen, transitions(Task)["T-B"], Task.xq.count("D")) == (["ProcessDied"] * 3, 3, 0)


@pytest.mark.parametrize("killed", [True, False])
def test_what_runs_when_a_signal_ends_the_program_counts_only_if_it_fails_by_itself(make_live, tmp_path, killed):
    Task = make_live({"buried": True, "delayed": True}, roles=("runat", "attempts"))
    begun, go_on = tmp_path / "begun", tmp_path / "go on"

    @Task.xq.worker(max_attempts=5)
    def work(found):
        note(begun, found.id)
        eventually(go_on.exists)
        raise ValueError

    put = Task.put(task())
    running = forked(make_live.db, Task.xq.run)
    try:
        eventually(lambda: noted(begun))
        running.terminate()
        eventually(lambda: row(Task, put).attempts == 0)
        if killed:
            running.kill()
        go_on.touch()
        running.join(PATIENCE)
    finally:
        running.kill()
    if killed:
        taken = eventually(Task.take)
        assert (taken.id, taken.attempts) == (put.id, 1)
    else:
        assert (state(Task, put), row(Task, put).attempts) == ("W", 1)


@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_workers_finish_their_tasks(make_live, tmp_path, number, kind):
    Task, begun, go_on, log = make_live({"keep": True}), tmp_path / "begun", tmp_path / "go on", tmp_path / "log"

    @Task.xq.worker(workers=2, kind=kind)
    def work(found):
        note(begun, found.id)
        eventually(go_on.exists)

    def program():
        logging.basicConfig(filename=log, force=True, level=logging.INFO)
        Task.xq.run()

    Task.xq.put_many(tasks(5))
    running = forked(make_live.db, program)
    try:
        eventually(lambda: len(noted(begun)) == 2)
        for _ in range(2 if number == signal.SIGHUP else 1):  # a terminal that closes may send several
            os.kill(running.pid, number)
            told = 2 if kind == "process" else 1  # each process says so
            eventually(lambda: log.read_text().count("finish their tasks") == told)  # noqa: B023
        go_on.touch()
        running.join(PATIENCE)
        assert running.exitcode == 0
    finally:
        running.kill()
    assert (Task.xq.count("D"), Task.xq.count("R")) == (2, 3)


def test_workers_that_were_started_finish_their_tasks_when_they_are_stopped(make_live):
    Task, begun, go_on = make_live({"keep": True}), threading.Event(), threading.Event()

    @Task.xq.worker
    def work(found):
        begun.set()
        assert go_on.wait(STUCK)

    running = Task.xq.start()
    Task.xq.put_many(tasks(2))
    assert begun.wait(STUCK)
    assert not running.join(0)
    running.stop()
    go_on.set()
    assert running.join(STUCK)
    assert (Task.xq.count("D"), Task.xq.count("R")) == (1, 1)


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_workers_that_wait_for_a_task_end_at_once_when_they_are_stopped(make_live, monkeypatch, kind):
    monkeypatch.setattr("xq.workers.pool.WAIT", PATIENCE)  # they do not look by themselves in time
    Task = make_live()

    async def coroutine(found):
        pass

    Task.xq.worker(coroutine if kind == "asyncio" else print)
    running = Task.xq.start()
    eventually(Task.xq.waiting)
    running.stop()
    assert running.join(STUCK)


def test_an_error_that_ends_a_started_worker_is_raised_by_join(make_live):
    Task = make_live()
    Task.xq.worker(print)
    Task.xq.uninstall()
    with pytest.raises(xq.NotInstalled):
        Task.xq.start().join(STUCK)


@pytest.mark.parametrize("again", [False, True])
def test_a_cancelled_run_finishes_its_tasks_and_releases_them_if_it_is_cancelled_again(make_live, again):
    Task, loops = make_live({"keep": True}), list[asyncio.AbstractEventLoop]()

    async def program() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        @Task.xq.worker(workers=2)
        async def work(found):
            loops.append(asyncio.get_running_loop())
            begun.set()
            await go_on.wait()

        run = asyncio.create_task(Task.xq.aio.run())
        await begun.wait()
        run.cancel()
        await asyncio.sleep(0)  # so that it hears of each
        if again:
            run.cancel()
        else:
            go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert loops == [asyncio.get_running_loop()] * 2

    Task.xq.put_many(tasks(3))
    asyncio.run(program())
    eventually(lambda: Task.stats().counts == {"T": 0, **({"R": 3, "D": 0} if again else {"R": 1, "D": 2})})


def test_a_run_of_coroutines_ends_when_no_task_is_ready(make_live):
    Task, done = make_live(), list[int]()

    @Task.xq.worker
    async def work(found):
        done.append(found.id)

    Task.xq.put_many(tasks(3))
    asyncio.run(Task.xq.aio.run(until_empty=True))
    assert done == [1, 2, 3]
    with pytest.raises(xq.ConfigurationError, match="max_tasks"):
        asyncio.run(Task.xq.aio.run(max_tasks=0))
