"""Workers of each kind: what becomes of a task, what is taken together, and how programs of workers end."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import task, tasks
from tests.steps import (
    PATIENCE,
    STUCK,
    another_process,
    elsewhere,
    eventually,
    fail_for,
    forked,
    is_exact,
    note,
    noted,
    of_kind,
    row,
    state,
    transitions,
)
from xq.testing import run_pending

ROLES = ("runat", "attempts", "error")
ERROR = {"error": pw.TextField(null=True)}
RETRIES = {"buried": True, "delayed": True}
KEPT = {**RETRIES, "keep": True}
KINDS = pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])


class Failed(Exception):
    pass


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function counts as quick: a thread with prefetch takes two tasks, then four, and so on."""
    monkeypatch.setattr("xq.workers.threads.QUICK", math.inf)


def with_errors(make: Maker, features: dict[str, Any] | None = None) -> Any:
    return make(features or KEPT, roles=ROLES, attributes=ERROR)


def test_in_a_process_that_is_forked_after_start_there_are_no_workers_to_stop_or_to_wait_for(make_live):
    Task = make_live()
    Task.xq.worker(print)
    running = Task.xq.start()

    def child() -> None:
        running.stop()
        for join in (running.join, lambda: asyncio.run(running.joined())):
            with pytest.raises(xq.ConfigurationError, match=f"run in process {os.getppid()}: call start"):
                join()

    program = forked(make_live.db, child)
    program.join(PATIENCE)
    assert (program.exitcode, running.join(0), running.stop(), running.join(PATIENCE)) == (0, False, None, True)


def test_a_process_that_the_function_of_a_worker_forks_ends_by_a_signal(make_live):
    Task, programs = make_live(), list[Any]()
    Task.xq.worker(lambda found: programs.append(forked(make_live.db, lambda: signal.raise_signal(signal.SIGTERM))))
    Task.put(task())
    Task.xq.run(until_empty=True)
    programs[0].join(PATIENCE)
    assert programs[0].exitcode == -signal.SIGTERM


def test_a_process_that_the_function_of_a_worker_process_forks_has_its_own_signals(make_live, tmp_path):
    Task, codes = make_live(), tmp_path / "codes"

    @Task.xq.worker(kind="process")
    def work(found: Any) -> None:
        program = forked(make_live.db, lambda: time.sleep(PATIENCE))
        program.terminate()  # at once: it may not have begun to run
        program.join(PATIENCE)
        note(codes, f"{os.getpid()} {program.exitcode}")

    Task.xq.put_many(tasks(5))
    Task.xq.run(until_empty=True)
    assert len(set(noted(codes))) == 1
    assert [line.split()[1] for line in noted(codes)] == [f"{-signal.SIGTERM}"] * 5


# what becomes of a task


def raises(error: BaseException) -> Callable[..., None]:
    def work(*given: Any) -> None:
        raise error

    return work


def leave_open(begin: Callable[[pw.Database], Any]) -> Callable[..., None]:
    def work(Task: Any, found: Any) -> None:
        begin(Task._meta.database)
        Task.update(name="written").where(Task.id == found.id).execute()

    return work


def kill_and_touch(Task: Any, found: Any) -> None:
    Task.kill(found)
    assert xq.current().heartbeat() is False


def ack_and_fail(Task: Any, found: Any) -> None:
    Task.xq.ack(found)
    raise Failed


async def has_not_run(Task: Any, found: Any) -> None:
    Task.xq.kill(found)


def generator(Task: Any, found: Any) -> Iterator[None]:
    Task.xq.kill(found)
    yield


class End(NamedTuple):
    """What a function does with a task, the state and the error that this has then, and its name."""

    work: Callable[..., Any]
    becomes: str
    error: str = ""
    name: str = "first"
    options: dict[str, Any] = {}
    marks: Any = ()


OF_PEEWEE = pytest.mark.of_peewee("the connection is Peewee's")
ENDS = {
    "returns": End(lambda Task, found: None, "D"),
    "raises": End(raises(Failed("as it must")), "B", "Failed: as it must"),
    "raises what has no text": End(raises(Untold()), "B", "Untold"),
    "raises CancelledError": End(raises(asyncio.CancelledError("cancelled")), "B", "CancelledError"),
    "asks for another attempt": End(raises(xq.Retry(delay=30)), "W", options={"max_attempts": 2}),
    "asks for another attempt in vain": End(raises(xq.Retry(delay=30)), "B", "Retry"),
    "has it buried": End(raises(xq.Bury("no such page")), "B", "no such page"),
    "goes on, without the role tube": End(raises(xq.Next("upload")), "B", "FeatureOff: release(tube=) needs the role"),
    "goes on to no tube": End(lambda Task, found: raises(xq.Next(found.size))(), "B", "BadType: xq.Next names"),
    "discards it": End(raises(xq.Discard()), "X"),
    "returns a coroutine": End(lambda Task, found: has_not_run(Task, found), "B", "which has not run: decorate"),
    "returns a generator": End(generator, "B", "which has not run: decorate"),
    "acks it itself": End(lambda Task, found: found.ack(), "D"),
    "releases it itself": End(lambda Task, found: found.release(delay=60), "W"),
    "buries it itself": End(lambda Task, found: found.bury(), "B"),
    "kills it, and touches it": End(kill_and_touch, "X"),
    "acks it, and raises": End(ack_and_fail, "D"),
    "acks it, and writes": End(lambda Task, found: found.ack(update={"name": "written"}), "D", "", "written"),
    "acks it, and writes a field that is not": End(
        lambda Task, found: found.ack(update={"nmae": "z"}), "B", "BadValue"
    ),
    "closes the connection behind the ORM": End(
        lambda Task, found: Task._meta.database.connection().close(), "D", marks=OF_PEEWEE
    ),
    "leaves a block open": End(leave_open(lambda db: db.atomic().__enter__()), "B", "LeftOpen:", marks=OF_PEEWEE),
    "leaves a transaction open": End(leave_open(lambda db: db.execute_sql("BEGIN")), "B", "LeftOpen:", marks=OF_PEEWEE),
}


@pytest.mark.parametrize("end", [pytest.param(end, id=what, marks=end.marks) for what, end in ENDS.items()])
def test_whatever_a_function_does_its_task_ends_and_the_next_one_is_done(make_shared, shared_db, end):
    Task, told = with_errors(make_shared), list[int]()
    first, second = Task.xq.put_many([task(name="first"), task(name="second")])

    @Task.xq.worker(**{"max_attempts": 1, **end.options})
    def work(found: Any) -> Any:
        if found.name == "first":
            return end.work(Task, found)
        with shared_db.atomic():  # what the first one has left is not in its way
            Task.update(size=7).where(Task.id == found.id).execute()
        return None

    work.on_buried(lambda found, error: told.append(found.id))
    Task.xq.run(until_empty=True)
    found, other = row(Task, first), row(Task, second)
    if end.becomes == "X":
        assert found is None
    else:
        assert (found.status, found.name) == (end.becomes, end.name)
        assert end.error in (found.error or "").partition("\n")[0]
        assert bool(found.error) == bool(end.error)
    assert (other.status, other.size) == ("D", 7)
    assert (len(told) == 1) == bool(end.error), "what is told of a burial has happened"
    assert is_exact(Task)


def test_a_decorator_names_the_worker_which_may_be_called_as_the_function_was(make_shared):
    Task = make_shared({"keep": True})

    @Task.xq.worker
    def work(found: Any) -> Any:
        """Return the status."""
        return found.status

    put = Task.put(task())
    assert isinstance(work, xq.Worker)
    assert (work(put), work.__name__, work.__doc__) == ("R", "work", "Return the status.")
    Task.xq.run(until_empty=True)
    assert state(Task, put) == "D"


def test_current_is_the_lease_of_the_task_that_a_function_works_on(make_shared):
    Task, found = make_shared({"keep": True, "ttr": 60}, roles=("runat", "attempts")), list[Any]()

    @Task.xq.worker(workers=2)
    def work(task: Any) -> None:
        lease = xq.current()
        found.append((lease.task is task, lease.attempt, lease.heartbeat(), lease.lost.is_set()))

    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    assert found == [(True, 1, True, False)] * 3
    with pytest.raises(xq.ConfigurationError, match="in the worker's function"):
        xq.current()


def within(ends: str, work: Callable[..., Any], *, savepoint: bool = False) -> Callable[..., None]:
    def ended(Task: Any, found: Any) -> None:
        with ExitStack() as blocks:
            for _ in range(1 + savepoint):
                block = blocks.enter_context(Task._meta.database.atomic())
            work(Task, found)
            getattr(block, ends)()

    return ended


def ack_the_next(Task: Any, found: Any) -> None:
    if (other := Task.xq.take()) is not None:
        Task.xq.ack(other)


def bury_by_key(Task: Any, found: Any) -> None:
    Task.xq.bury(found["id"] if isinstance(found, dict) else found.id)


def release(Task: Any, found: Any) -> None:
    Task.xq.release(found, delay=60)


def ack(Task: Any, found: Any) -> None:
    Task.xq.ack(found)


# How a function ends its task itself -> the event of which the log says so, and the state of each task then.
ITSELF: dict[str, tuple[Callable[..., Any], str, str]] = {
    "by ack": (ack, "ack", "D"),
    "by its key": (bury_by_key, "bury", "B"),
    "by release": (release, "release", "W"),
    "by one of a list": (lambda Task, found: Task.xq.release_many([found], delay=60), "release", "W"),
    "in a transaction": (within("commit", release), "release", "W"),
    "in a transaction that is rolled back": (within("rollback", release), "ack", "D"),
    "in a savepoint that is rolled back": (within("rollback", ack, savepoint=True), "ack", "D"),
    "but another one": (ack_the_next, "ack", "D"),
}


@pytest.mark.parametrize("given", ["task", "dict", "batch", "coroutine"])
@pytest.mark.parametrize(("work", "event", "becomes"), ITSELF.values(), ids=ITSELF)
def test_what_a_function_ends_itself_is_not_acked_again(make_shared, caplog, given, work, event, becomes):
    caplog.set_level(logging.INFO)
    Task = make_shared({**KEPT, **({"retval": "dict"} if given == "dict" else {})}, roles=ROLES, attributes=ERROR)

    def function(found: Any) -> None:
        for each in found if given == "batch" else [found]:
            work(Task, each)

    async def coroutine(found: Any) -> None:
        function(found)

    Task.xq.worker(**{"batch": 1} if given == "batch" else {})(coroutine if given == "coroutine" else function)
    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    logged = [record.event for record in caplog.records if hasattr(record, "event")]
    assert logged == [event] * (1 if work is ack_the_next else 2)
    assert Task.xq.count(becomes) == 2
    assert is_exact(Task)


def test_a_task_that_another_process_ends_while_the_function_runs_is_left_as_it_is(make_live):
    Task = make_live({"buried": True, "keep": True})
    Task.xq.worker(lambda found: forked(make_live.db, lambda: Task.xq.kill(found.id)).join(PATIENCE))
    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 2, "R-T": 2, "T-X": 2}


def test_a_coroutine_that_awaits_the_ack_of_its_task_is_acked_once(make_shared, caplog):
    Task = make_shared({"buried": True, "keep": True})
    caplog.set_level(logging.INFO)

    @Task.xq.worker(workers=4)
    async def work(found: Any) -> None:
        await (Task.xq.aio.ack if found.id % 2 else Task.xq.aio.bury)(found)

    Task.xq.put_many(tasks(8))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 8, "R-T": 8, "T-D": 4, "T-B": 4}
    logged = [record.event for record in caplog.records if hasattr(record, "event")]
    assert sorted(logged) == ["ack"] * 4 + ["bury"] * 4


def test_what_a_function_gave_back_in_a_transaction_may_be_in_anothers_hand_by_then(make_live, shared_db):
    Task, again = make_live({"keep": True}), list[Any]()
    Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        if again:
            return
        with shared_db.atomic():
            Task.xq.release(found)
        again.append(elsewhere(shared_db, Task.xq.take))

    Task.xq.run(until_empty=True)
    assert Task.xq.count("T") == 1
    Task.xq.ack(again[0])
    assert transitions(Task)["R-T"] == 2


@pytest.mark.parametrize("limit", [{"max_tasks": 3}, {"until_empty": True}])
def test_what_one_coroutine_has_done_is_acked_before_its_program_ends(make_shared, limit):
    Task, done = make_shared({"keep": True}), list[int]()

    @Task.xq.worker
    async def work(found: Any) -> None:
        done.append(found.id)

    Task.xq.put_many(tasks(5))
    Task.xq.run(**limit)
    assert transitions(Task)["T-D"] == len(done) == limit.get("max_tasks", 5)
    assert Task.xq.count("T") == 0


def test_a_task_that_others_own_by_now_is_not_discarded(make_shared):
    Task, seen = make_shared(), list[str]()
    put = Task.put(task())

    @Task.xq.worker
    def work(found: Any) -> None:
        if not seen:
            Task.xq.snatch(put)
        seen.append(state(Task, put))
        raise xq.Discard

    Task.xq.run(until_empty=True)
    assert seen == ["R", "T"], "the first Discard left the task to its next owner"


# what fails


# What a worker is given as its backoff, and the delays after the first attempts.
BACKOFFS: dict[str, tuple[Any, list[float]]] = {
    "as usual": (None, [1, 2, 4]),
    "a list": ([5, 60], [5, 60, 60]),
    "a number": (10, [10, 10, 10]),
    "a function": (lambda found, error: 7 if isinstance(error, Failed) else 1, [7, 7, 7]),
    "a function that fails": (lambda found, error: "soon", [1, 2, 4]),
}


@pytest.mark.parametrize(("backoff", "delays"), BACKOFFS.values(), ids=BACKOFFS)
def test_what_fails_is_released_with_a_delay_that_grows_or_that_its_backoff_says(make_shared, backoff, delays):
    Task = with_errors(make_shared)
    put = Task.put(task())
    Task.xq.worker(**({"backoff": backoff} if backoff else {}))(raises(Failed("as it must")))
    seen = []
    for _ in delays:
        Task.xq.run(until_empty=True)
        found = Task.xq.peek(put)
        assert found.status == "W"
        seen.append(found.runat - Task.xq.clock.now)
        Task.xq.restart(put)
    usual = delays[1] == 2  # with some chance in it
    assert seen == [pytest.approx(delay, rel=0.1 if usual else 1e-9) for delay in delays]


def test_a_failed_attempt_is_a_warning_until_the_task_is_buried_with_its_error(make_shared, caplog):
    Task = with_errors(make_shared)
    put = Task.put({})
    Task.xq.worker(max_attempts=2, backoff=[1])(raises(ValueError("no price\nin the order")))
    for level, becomes in (("WARNING", "W"), ("ERROR", "B")):
        caplog.clear()
        Task.xq.run(until_empty=True)
        assert [r.levelname for r in caplog.records if "ValueError: no price" in r.getMessage()] == [level]
        assert state(Task, put) == becomes
        Task.xq.clock.tick(2)
    written = Task.xq.peek(put).error
    assert written.startswith("ValueError: no price\nin the order\nTraceback"), "so that reports group"
    assert __file__ in written.partition("File")[2].partition("\n")[0], "it begins in the function"


@pytest.mark.parametrize("length", [80, None])
def test_an_error_that_no_field_holds_is_written_down_as_far_as_it_goes(make_shared, length):
    field = pw.CharField(max_length=length, null=True) if length else pw.TextField(null=True)
    Task = make_shared({"buried": True}, roles=ROLES, attributes={"error": field})
    put = Task.put(task())
    Task.xq.worker(max_attempts=1)(raises(Failed("\0 and \ud800, " + "and so on " * 20_000)))
    Task.xq.run(until_empty=True)
    written = Task.xq.peek(put).error
    assert length is None or len(written) <= length
    assert written.startswith("Failed: \\x00 and \\ud800, and so on a")


@pytest.mark.parametrize("holds", ["error NOT LIKE '%%\u2603%%'", "error IS NULL", "no role"])
def test_an_error_with_a_character_that_the_column_lacks_is_escaped_and_a_dug_task_is_tried_once_more(make, holds):
    has_role = holds != "no role"
    error = pw.TextField(null=True, constraints=[pw.Check(holds)] if has_role else [])
    Task = make({"buried": True}, roles=ROLES if has_role else ROLES[:-1], attributes={"error": error})
    Task.put(task())
    Task.xq.worker(max_attempts=2)(raises(ValueError("no \u2603")))
    run_pending(Task), run_pending(Task)
    for _ in range(2):
        assert state(Task, 1) == "B"
        assert (row(Task, 1).error or "ValueError: no \\u2603").startswith("ValueError: no \\u2603")
        Task.xq.dig(1)
        assert run_pending(Task) == 1


def test_a_queue_that_cannot_bury_tries_the_task_again(make_shared):
    Task = make_shared({"delayed": True}, roles=("runat",))
    put = Task.put(task())
    Task.xq.worker(raises(xq.Bury("no such page")))
    Task.xq.run(until_empty=True)
    assert state(Task, put) == "W"


# What a trigger lets become of the bad task, what the function does, and the state in which that stays.
STUBBORN: dict[str, tuple[str, dict[str, Any], str]] = {
    "an ack that fails": ("<> 'D'", {"max_attempts": 1}, "B"),
    "its own ack that fails": ("<> 'D'", {"max_attempts": 1, "batch": 1}, "B"),
    "an ack that fails, and so does all else": ("= 'T'", {}, "T"),
    "a coroutine's ack that fails": ("<> 'D'", {"max_attempts": 1, "kind": "asyncio"}, "B"),
    "a coroutine's ack that fails, and so does all else": ("= 'T'", {"kind": "asyncio"}, "T"),
}


@pytest.mark.parametrize(("may_be", "options", "stays"), STUBBORN.values(), ids=STUBBORN)
def test_what_fails_for_one_task_is_not_asked_of_the_database_for_ever(make_shared, may_be, options, stays):
    Task = with_errors(make_shared)
    bad, good = Task.put(task(name="bad")), Task.put(task(name="good"))
    fail_for(Task, f"NEW.name = 'bad' AND NOT NEW.status {may_be}")

    def work(found: Any) -> None:
        for each in found if isinstance(found, list) else ():
            each.ack(update={"size": 5})

    Task.xq.worker(of_kind(options.get("kind", "thread"), work), **options)
    Task.xq.run(until_empty=True)
    assert (state(Task, bad), state(Task, good)) == (stays, "D")
    assert bool(row(Task, bad).error) == (stays == "B")


def test_a_task_that_kills_its_workers_is_buried_when_it_was_taken_too_often(make_live):
    Task = with_errors(make_live, {"buried": True, "ttr": 60})
    Task.put({})

    @Task.xq.worker(max_attempts=3)
    def work(found: Any) -> None:
        Task.update(size=Task.size + 1).execute()
        os.kill(os.getpid(), signal.SIGKILL)

    def one_more() -> bool:
        forked(make_live.db, lambda: Task.xq.run(until_empty=True)).join(PATIENCE)
        return state(Task, 1) == "B"

    for size, attempts in ((3, 3), (4, 4)):
        eventually(one_more)
        found = row(Task, 1)
        assert (found.size, found.attempts) == (size, attempts)
        assert found.error.startswith(f"it was taken {size} times, and max_attempts allows no more: ")
        Task.xq.dig(1)  # by somebody who thinks that it is worth another try
    assert is_exact(Task)


@KINDS
def test_workers_of_each_kind_do_each_task_once_and_as_many_at_a_time_as_run_is_told(make_live, tmp_path, kind):
    Task, done = make_live({"keep": True}), tmp_path / "done"

    def work(found: Any) -> None:
        note(done, found.id)
        if found.id <= 3:
            eventually(lambda: {"1", "2", "3"} <= set(noted(done)))

    Task.xq.worker(of_kind(kind, work), kind=kind)
    Task.xq.put_many(tasks(20))
    Task.xq.run(workers=3, max_tasks=6)
    taken = 18 if kind == "process" else 6  # each process counts its own
    assert transitions(Task) == {"X-R": 20, "R-T": taken, "T-D": taken}
    Task.xq.run(until_empty=True)
    assert sorted(map(int, noted(done))) == list(range(1, 21))
    assert transitions(Task) == {"X-R": 20, "R-T": 20, "T-D": 20}
    assert is_exact(Task)


@pytest.mark.parametrize("kind", ["process", "asyncio"])
def test_a_function_that_fails_or_runs_past_its_timeout_has_failed(make_live, tmp_path, kind):
    Task = with_errors(make_live, {"buried": True, "keep": True, "ttr": 3600})
    pids, failures = tmp_path / "pids", tmp_path / "failures"

    def work(found: Any) -> None:
        note(pids, os.getpid())
        assert xq.current().task.id == found.id
        if found.id == 1:
            raise Failed("no price")
        if found.id == 2:
            hang(found)

    async def awork(found: Any) -> None:
        if found.id == 2:
            await asyncio.Event().wait()
        work(found)

    made = Task.xq.worker(awork if kind == "asyncio" else work, kind=kind, timeout=0.2, max_attempts=1)
    made.on_failure(lambda found, error: note(failures, f"{found.id} {type(error).__name__}"))
    Task.xq.put_many(tasks(3))
    eventually(lambda: Task.xq.run(until_empty=True) or Task.xq.count("R") + Task.xq.count("T") == 0)
    assert sorted(noted(failures)) == ["1 Failed", "2 TimeoutError"]
    failed, late = [Task.xq.peek(key).error.splitlines() for key in (1, 2)]
    assert failed[0] == "Failed: no price"
    assert "TimeoutError: the function runs for longer than 0.2 s" in late
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-B": 2, "T-D": 1}
    assert len(set(noted(pids))) == (2 if kind == "process" else 1), "a process whose function is overdue is replaced"


def test_a_coroutine_is_cancelled_when_its_task_is_lost(make_live):
    Task, seen = make_live({"ttr": 0.9, "keep": True}, roles=("runat",)), list[str]()

    def snatch(key: Any) -> None:
        with make_live.db.connection_context():
            Task.xq.snatch(key)

    @Task.xq.worker
    async def work(found: Any) -> None:
        seen.append("called")
        if len(seen) > 1:
            return
        await asyncio.to_thread(snatch, found.id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    put = Task.put(task())
    Task.xq.run(until_empty=True)
    Task.xq.run(until_empty=True)
    assert seen == ["called", "cancelled", "called"]
    assert state(Task, put) == "D"


def test_the_function_of_a_process_learns_that_its_task_is_lost(make_live, tmp_path):
    Task, seen = make_live({"ttr": 2, "keep": True}, roles=("runat",)), tmp_path / "seen"

    @Task.xq.worker(kind="process")
    def work(found: Any) -> None:
        note(seen, "called")
        if len(noted(seen)) == 1:
            assert xq.current().lost.wait(PATIENCE)
            note(seen, "lost")

    put = Task.put(task())
    with program_of(Task, log := tmp_path / "log"):
        eventually(lambda: noted(seen))
        Task.xq.snatch(put.id)
        eventually(lambda: state(Task, put) == "D")
    assert noted(seen) == ["called", "lost", "called"]
    assert "its task is lost" in log.read_text()
    assert Task.xq.processes() == []


@pytest.mark.parametrize("end", [os._exit, sys.exit])
def test_a_function_that_ends_its_process_has_failed(make_live, end):
    Task = with_errors(make_live, RETRIES)
    Task.xq.worker(lambda found: end(3), kind="process", workers=2, max_attempts=1)
    Task.xq.put_many(tasks(12))
    Task.xq.run(until_empty=True)
    died = "ProcessDied: the worker process ended with exit code 3 at attempt 1"
    assert [found.error for found in Task.xq.by_state("B")] == [died] * 12


def test_what_is_called_after_a_death_holds_up_no_other_process(make_live):
    Task, seen = with_errors(make_live, RETRIES), list[int]()

    @Task.xq.worker(kind="process", workers=2, timeout=1, max_attempts=1)
    def work(found: Any) -> None:
        os._exit(3) if found.id == 1 else hang(found)

    @work.on_failure
    def wait_for_the_other(found: Any, error: BaseException) -> None:
        if found.id == 1:
            eventually(lambda: Task.xq.count("B"))
            seen.append(Task.xq.count("B"))

    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    assert (seen, Task.xq.count("B")) == ([1], 2)


def test_processes_that_crash_again_and_again_without_a_task_end_the_program(make_live, monkeypatch):
    Task = make_live()
    Task.xq.worker(print, kind="process", workers=2)
    monkeypatch.setattr("xq.workers.program._log_sessions", lambda assignments: os._exit(3))  # in each process
    with pytest.raises(xq.Error, match="crashed 10 times"):
        Task.xq.run()


def hang(found: Any) -> None:
    """Run C code that keeps the GIL: no other thread of the process runs. No signal interrupts it for good."""
    while ctypes.PyDLL(None).sleep(PATIENCE):
        pass


def test_worker_processes_end_when_their_parent_is_killed(make_live, tmp_path):
    Task, pids = make_live(), tmp_path / "pids"

    @Task.xq.worker(kind="process", workers=2)
    def work(found: Any) -> None:
        note(pids, os.getpid())
        hang(found)

    Task.xq.put_many(tasks(2))
    reader, writer = os.pipe()  # at its end when the last process that has the writer is gone
    parent = forked(make_live.db, Task.xq.run)
    os.close(writer)
    try:
        eventually(lambda: len(set(noted(pids))) == 2)
        parent.kill()
        parent.join()
        assert select.select([reader], [], [], PATIENCE)[0]
    finally:
        os.close(reader)
        for pid in set(noted(pids)):
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    assert len(eventually(lambda: len(found := Task.xq.take_many(2)) == 2 and found)) == 2


@pytest.mark.parametrize("ends", ["timeout", "cancel", "exit", "kill of the parent"])
def test_the_programs_that_a_function_has_started_end_with_its_process(make_live, tmp_path, ends):
    Task, pids = make_live({"buried": True}), tmp_path / "pids"
    reader, writer = os.pipe()  # at its end when the last process that has the writer is gone

    @Task.xq.worker(kind="process", timeout=1 if ends == "timeout" else None)
    def work(found: Any) -> None:
        subprocess.Popen(["sleep", str(PATIENCE)], pass_fds=[writer])
        note(pids, os.getpid())
        if ends == "exit":
            os._exit(1)
        hang(found)

    Task.put(task())
    parent = forked(make_live.db, Task.xq.run)
    os.close(writer)
    try:
        eventually(lambda: noted(pids))
        if ends == "cancel":
            Task.xq.cancel(1)
        if ends != "kill of the parent":
            eventually(lambda: Task.xq.count("T") == 0)
        parent.kill()
        assert select.select([reader], [], [], STUCK)[0]
    finally:
        parent.kill()
        os.close(reader)


def test_the_function_of_a_process_may_handle_signals(make_live, tmp_path):
    Task, seen = make_live({"keep": True, "buried": True}), tmp_path / "seen"

    @Task.xq.worker(kind="process")
    def work(found: Any) -> None:
        signal.signal(signal.SIGALRM, lambda *_: note(seen, found.id))
        signal.raise_signal(signal.SIGALRM)

    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    assert (noted(seen), Task.xq.count("D")) == (["1", "2"], 2)


@contextmanager
def program_of(Task: Any, log: Any) -> Iterator[Any]:
    """A program that runs its workers. After the block a signal ends it, with the status 0."""

    def run() -> None:
        logging.basicConfig(filename=log, force=True, level=logging.INFO)
        Task.xq.run()

    program = forked(Task._meta.database, run)
    try:
        yield program
        program.terminate()
        program.join(PATIENCE)
        assert program.exitcode == 0
    finally:
        program.kill()


@pytest.mark.parametrize("keeps_the_gil", [True, False])
def test_a_second_signal_to_a_process_that_hangs_releases_its_task_to_the_one_in_its_place(
    make_live, tmp_path, keeps_the_gil
):
    Task, pids = with_errors(make_live), tmp_path / "pids"

    @Task.xq.worker(kind="process", max_attempts=1)
    def work(found: Any) -> None:
        note(pids, os.getpid())
        if len(noted(pids)) == 1:
            hang(found) if keeps_the_gil else time.sleep(PATIENCE)

    Task.put(task())
    with program_of(Task, tmp_path / "log") as program:
        first = int(eventually(lambda: noted(pids))[0])
        os.kill(first, signal.SIGTERM)
        told = f"worker of pid {program.pid}, ending"
        eventually(lambda: [told in each.program for each in Task.xq.processes() if each.pid == first] == [True])
        os.kill(first, signal.SIGTERM)
        eventually(lambda: state(Task, 1) == "D")
    assert (transitions(Task)["T-R"], row(Task, 1).attempts, len(set(noted(pids)))) == (1, 1, 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_without_a_task_that_a_signal_ends_is_replaced(make_live, tmp_path, number):
    Task, pids = make_live({"keep": True}), tmp_path / "pids"

    @Task.xq.worker(kind="process")
    def work(found: Any) -> None:
        note(pids, os.getpid())

    with program_of(Task, log := tmp_path / "log"):
        for n in (1, 2):
            put = Task.put(task())
            eventually(lambda: state(Task, put) == "D" and len(noted(pids)) == n)  # noqa: B023
            os.kill(pid := int(noted(pids)[-1]), number)
            eventually(lambda: pid not in [each.pid for each in Task.xq.processes()])
    assert len(set(noted(pids))) == 2
    assert "the workers have ended: SIGTERM" in log.read_text()


def test_a_process_that_is_stopped_keeps_its_task_and_hinders_no_other(make_live, tmp_path):
    Task, pids = make_live({"ttr": 2, "keep": True}, roles=("runat",)), tmp_path / "pids"

    @Task.xq.worker(kind="process", workers=2)
    def work(found: Any) -> None:
        if found.id == 1:
            note(pids, os.getpid())
            eventually((tmp_path / "go on").exists)

    Task.put(task())
    with program_of(Task, tmp_path / "log"):
        stopped = int(eventually(lambda: noted(pids))[0])
        os.kill(stopped, signal.SIGSTOP)
        try:
            for _ in range(3):  # heartbeats of the parent, a third of the ttr each: it has passed then
                before = row(Task, 1).runat
                eventually(lambda: row(Task, 1).runat > before)  # noqa: B023
                put = Task.put(task())
                eventually(lambda: state(Task, put) == "D")  # noqa: B023
        finally:
            os.kill(stopped, signal.SIGCONT)
        (tmp_path / "go on").touch()
        eventually(lambda: state(Task, 1) == "D")
    assert len(noted(pids)) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("again", [False, True])
def test_a_signal_to_the_whole_group_lets_processes_finish_their_tasks_and_a_second_one_releases_them(
    make_live, tmp_path, number, again
):
    Task, begun, go_on, log = make_live({"keep": True}), tmp_path / "begun", tmp_path / "go on", tmp_path / "log"

    @Task.xq.worker(kind="process", workers=2)
    def work(found: Any) -> None:
        note(begun, found.id)
        eventually(go_on.exists)

    def run() -> None:
        os.setsid()
        logging.basicConfig(filename=log, force=True, level=logging.INFO)
        Task.xq.run()

    Task.xq.put_many(tasks(2))
    program = forked(make_live.db, run)
    eventually(lambda: len(noted(begun)) == 2)
    os.killpg(program.pid, number)
    eventually(lambda: log.read_text().count("finish their tasks") == 2)
    if not again:
        go_on.touch()

    def has_ended() -> bool:  # the parent may not have handled the first one: then a second one is none of its own
        if again:
            os.killpg(program.pid, number)
        program.join(0.1)
        return program.exitcode is not None

    eventually(has_ended)
    assert program.exitcode == 0
    assert Task.xq.stats().counts["R" if again else "D"] == 2
    assert ("T-R" in transitions(Task)) == again


def test_what_is_around_a_handler_sees_it_begin_and_end_the_first_one_outermost(make_shared):
    Task, seen = make_shared({"delayed": True}, roles=("runat",)), list[str]()

    def seeing(name: str) -> Callable[[Any], Iterator[None]]:
        def around(found: Any) -> Iterator[None]:
            seen.append(f"{name} {found.id}")
            try:
                yield
            except Failed:
                seen.append(f"{name} failed")
                raise

        return around

    @Task.xq.worker(around=seeing("outer"))
    def work(found: Any) -> None:
        seen.append("work")
        raise Failed

    work.around(seeing("inner"))
    put = Task.put(task())
    Task.xq.run(until_empty=True)
    assert seen == ["outer 1", "inner 1", "work", "inner failed", "outer failed"]
    assert state(Task, put) == "W"


def test_what_fails_around_the_function_has_failed_the_attempt(make_shared):
    Task = with_errors(make_shared)
    Task.put(task())
    Task.xq.worker(print, around=lambda found: 1 / 0, max_attempts=1)
    Task.xq.run(until_empty=True)
    assert [found.error.splitlines()[0] for found in Task.xq.by_state("B")] == ["ZeroDivisionError: division by zero"]


def test_the_processes_of_a_worker_have_what_stands_around_its_function(make_live, tmp_path):
    Task, pids = make_live(), tmp_path / "pids"

    @contextmanager
    def around(found: Any) -> Iterator[None]:
        note(pids, os.getpid())
        yield

    Task.xq.worker(print, kind="process", around=around)
    Task.put(task())
    Task.xq.run(until_empty=True)
    assert set(noted(pids)) - {str(os.getpid())}


def test_an_asynchronous_manager_is_around_a_coroutine(make_shared):
    Task, seen = make_shared(), list[str]()

    @Task.xq.worker
    async def work(found: Any) -> None:
        seen.append("work")

    @work.around
    @asynccontextmanager
    async def around(found: Any) -> Any:
        seen.append("begin")
        yield
        seen.append("end")

    Task.put(task())
    Task.xq.run(until_empty=True)
    assert seen == ["begin", "work", "end"]


def test_failures_and_burials_are_reported_and_a_report_that_fails_changes_nothing(make_shared, caplog):
    Task, seen = with_errors(make_shared), list[tuple[str, int, str]]()

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        raise Failed("no price") if found.id == 1 else xq.Discard()

    @work.on_failure
    def failed(found: Any, error: BaseException) -> None:
        seen.append(("failed", found.id, str(error)))
        raise ValueError("the report fails")

    work.on_buried(lambda found, error: seen.append(("buried", found.id, str(error))))
    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    assert seen == [("failed", 1, "no price"), ("buried", 1, "no price")]
    assert state(Task, 1) == "B"
    assert "the report fails" in caplog.text


@pytest.mark.parametrize(
    ("event", "most", "becomes"), [("buried", 1, "WWB"), ("failure", 1, "WWB"), ("failure", None, "WWW")]
)
def test_what_is_put_in_the_transaction_of_a_failure_is_there_once_and_an_error_undoes_both(
    make_shared, caplog, event, most, becomes
):
    Task, wrong = with_errors(make_shared), [xq.NotFound("Task", 9), pw.OperationalError("no such table"), None]

    @Task.xq.worker(max_attempts=most, backoff=[5])
    def work(found: Any) -> None:
        if found.name == "first":
            raise Failed

    @getattr(work, f"on_{event}")(in_transaction=True)
    def report(found: Any, error: BaseException) -> None:
        Task.put(task(name=f"report of {found.name}: {error!r}"))
        if (mistake := wrong.pop(0)) is not None:
            raise mistake

    put = Task.put(task(name="first"))
    for there in becomes:
        Task.xq.run(until_empty=True)
        assert state(Task, put) == there
        Task.xq.clock.tick(6)
    assert [found.name for found in Task.select() if found.id != put.id] == ["report of first: Failed()"]
    assert caplog.text.count(f"task {put.id} is undone, and it is tried again: a function in the transaction") == 2
    assert is_exact(Task)


# stages


@pytest.mark.parametrize("batch", [None, 2])
def test_next_moves_a_task_to_another_tube_with_fresh_attempts_and_is_no_failure(make_shared, caplog, batch):
    caplog.set_level(logging.INFO)
    Task = make_shared(KEPT, roles=(*ROLES, "tube"), attributes=ERROR, tube_stats=["resize", "upload"])
    seen, told = list[tuple[str, int]](), list[str]()

    def stage(found: Any) -> None:
        seen.append((found.tube, found.attempts))
        if found.tube == "resize":
            raise Failed if found.attempts == 1 else xq.Next("upload", update={"name": "small"})

    def stages(several: Any) -> None:
        for found in several:
            try:
                stage(found)
            except Exception as error:
                several.fail(found, error)

    work = Task.xq.worker(stages if batch else stage, max_attempts=2, backoff=[5], batch=batch)
    work.on_failure(lambda found, error: told.append(repr(error)))
    put = Task.put(task(tube="resize"))
    for _ in range(2):
        Task.xq.run(until_empty=True)
        Task.xq.clock.tick(6)
    found, tubes = row(Task, put), Task.stats().tube
    assert (seen, told) == ([("resize", 1), ("resize", 2), ("upload", 1)], ["Failed()"])
    assert (found.status, found.tube, found.name, found.attempts) == ("D", "upload", "small", 1)
    assert tubes["resize"].transition == {"X-R": 1, "R-T": 2, "T-W": 1, "W-R": 1, "T-S": 1}
    assert tubes["upload"].transition == {"S-R": 1, "R-T": 1, "T-D": 1}
    assert f"task {put.id} goes on in 'upload' after" in caplog.text
    assert is_exact(Task)


# taken together


def fail_each_fourth(Task: Any, found: Any) -> None:
    if found.id % 4 == 0:
        raise Failed


def fail_some(Task: Any, batch: Any) -> None:
    assert xq.current().task is batch
    for found in batch:
        if found.id in (2, 9):
            batch.fail(found, Failed(f"no {found.id}"))


async def fail_all(Task: Any, batch: Any) -> None:
    raise Failed


# What is given to a worker, how many tasks there are, what it does -> in what parts it is called, and all that moves.
TOGETHER: dict[str, tuple[dict[str, int], int, Callable[..., Any], list[int], dict[str, int]]] = {
    "a handler that raises loses no ack of a task taken with it": (
        {"prefetch": 5}, 12, fail_each_fourth, [1] * 12, {"R-T": 12, "T-D": 9, "T-B": 3},
    ),
    "a task that is lost before its ack takes no other with it": (
        {"prefetch": 3}, 7, lambda Task, found: found.id == 3 and Task.xq.kill(3),
        [1] * 7, {"R-T": 7, "T-D": 6, "T-X": 1},
    ),
    "a handler of batches names the tasks that failed": (
        {"batch": 4}, 10, fail_some, [4, 4, 2], {"R-T": 10, "T-D": 8, "T-B": 2},
    ),
    "a handler of batches that raises has failed for all": ({"batch": 3}, 5, fail_all, [3, 2], {"R-T": 5, "T-B": 5}),
    "a task of a batch that others own by now keeps no other from its ack": (
        {"batch": 3, "max_attempts": 2}, 3, lambda Task, batch: len(batch) > 1 and Task.xq.snatch(2),
        [3, 1], {"R-T": 4, "T-R": 1, "T-D": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "n", "does", "parts", "moves"), TOGETHER.values(), ids=TOGETHER)
def test_what_is_taken_together_ends_each_for_itself(make_shared, options, n, does, parts, moves):
    Task, called = make_shared({"buried": True, "keep": True}, roles=ROLES, attributes=ERROR), list[int]()

    def work(given: Any) -> Any:
        called.append(len(given) if "batch" in options else 1)
        return does(Task, given)

    async def coroutine(given: Any) -> None:
        await work(given)

    Task.xq.worker(coroutine if does is fail_all else work, **{"max_attempts": 1, **options})
    Task.xq.put_many(tasks(n))
    Task.xq.run(until_empty=True)
    assert called == parts
    assert transitions(Task) == {"X-R": n, **moves}
    failed = {found.id: found.error.splitlines()[0] for found in Task.xq.by_state("B")}
    assert does is not fail_some or failed == {2: "Failed: no 2", 9: "Failed: no 9"}
    assert is_exact(Task)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_task_that_kills_its_process_takes_no_attempt_from_those_prefetched_with_it(make_live, tmp_path, kind):
    Task, called = with_errors(make_live, RETRIES), tmp_path / "called"
    Task.xq.put_many(tasks(5))

    @Task.xq.worker(kind=kind, prefetch=5, max_attempts=2, backoff=[0])
    def work(found: Any) -> None:
        note(called, found.id)
        if found.id == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def all_ended() -> bool:
        forked(make_live.db, lambda: Task.xq.run(until_empty=True)).join(PATIENCE)
        return not Task.xq.count("R") + Task.xq.count("T")

    eventually(all_ended)
    assert sorted(noted(called)) == ["1", "1", "2", "3", "4", "5"]
    assert (Task.xq.count("B"), state(Task, 1)) == (1, "B")


@pytest.mark.usefixtures("quick")
def test_a_process_whose_function_is_overdue_acks_nothing_and_another_does_what_it_has_prefetched(make_live):
    Task = with_errors(make_live)

    @Task.xq.worker(kind="process", prefetch=3, timeout=0.2, backoff=[3600])
    def work(found: Any) -> None:
        if found.id == 1:
            time.sleep(PATIENCE)

    Task.xq.put_many(tasks(3))
    eventually(lambda: Task.xq.run(until_empty=True) or Task.xq.count("R") + Task.xq.count("T") == 0)
    assert transitions(Task) == {"X-R": 3, "R-T": 4, "T-R": 1, "T-D": 2, "T-W": 1}


def test_a_process_past_its_timeout_releases_its_task_at_once_where_no_pause_can_be_stored(make_live, tmp_path):
    Task, called = make_live({"keep": True, "history": True}), tmp_path / "called"

    @Task.xq.worker(kind="process", timeout=0.2, backoff=[3600])
    def work(found: Any) -> None:
        note(called, found.id)
        if len(noted(called)) == 1:
            time.sleep(PATIENCE)

    Task.put(task())
    eventually(lambda: Task.xq.run(until_empty=True) or Task.xq.count("D") == 1)
    assert [row.event for row in Task.xq.history()] == ["put", "take", "release", "take", "ack"]


@pytest.mark.usefixtures("quick")
def test_a_task_that_a_worker_gives_back_uncalled_has_its_attempt_back(make_live):
    Task = with_errors(make_live)
    Task.xq.put_many(tasks(4))

    def child() -> Any:
        handled = threading.Event()
        # Of signals that are there at once, the one of the higher number is handled after the other.
        signal.signal(signal.SIGWINCH, lambda *_: handled.set())

        @Task.xq.worker(prefetch=4, max_attempts=3)
        def work(found: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGWINCH)
            assert handled.wait(PATIENCE)

        Task.xq.run()
        yield {found.id: found.attempts for found in Task.select() if found.status == "R"}

    with another_process(make_live.db, child) as other:
        assert next(other) == {2: 0, 3: 0, 4: 0}


def test_while_functions_are_slow_no_thread_has_a_second_task_and_all_have_one(make_shared, monkeypatch):
    monkeypatch.setattr("xq.workers.threads.QUICK", 0.0)
    Task, together = make_shared({"keep": True}), threading.Barrier(4)

    @Task.xq.worker(workers=4, prefetch=10)
    def work(found: Any) -> None:
        together.wait(PATIENCE)

    Task.xq.put_many(tasks(12))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 12, "R-T": 12, "T-D": 12}


@pytest.mark.usefixtures("quick")
def test_what_a_thread_has_not_begun_behind_a_slow_function_another_does(make_shared):
    Task = make_shared(KEPT, roles=ROLES, attributes=ERROR)
    together, second = threading.Barrier(2), threading.Event()

    def work(found: Any) -> None:  # one thread has taken 1 and 2, the other 3 and 4
        if found.id in (1, 3):
            together.wait(PATIENCE)
        if found.id == 1:
            assert second.wait(PATIENCE)
        if found.id == 2:
            second.set()

    Task.xq.worker(work, workers=2, prefetch=10)
    Task.xq.put_many(tasks(4))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 4, "R-T": 5, "T-R": 1, "T-D": 4}
    assert [row(Task, key).attempts for key in range(1, 5)] == [1] * 4


# programs


def test_workers_take_from_the_tubes_that_are_named(make_shared):
    done: list[Any] = []
    Task = make_shared(roles=("runat", "tube"), worker=lambda found: done.append(found.tube), workers=2)
    Task.xq.put_many([task(tube=tube) for tube in ("mail", "slow", "other") for _ in range(3)])
    Task.xq.run(until_empty=True, tubes=["mail"])
    assert done == ["mail"] * 3
    Task.xq.run(until_empty=True, tubes=["slow", "mail"])
    assert sorted(done) == ["mail"] * 3 + ["slow"] * 3
    for bad, error in (([1], xq.BadType), ("mail", xq.BadType), (5, xq.Error), ([], xq.Error)):
        with pytest.raises(error, match="tube"):
            Task.xq.run(until_empty=True, tubes=bad)


def test_each_function_gets_the_tasks_of_its_tube_and_one_those_of_all_others(make_shared):
    Task, done = make_shared({}, roles=("tube",)), list[Any]()

    @Task.xq.worker(tube="mail")
    def mail(found: Any) -> None:
        done.append(("mail", found.tube))

    @Task.xq.worker
    def rest(found: Any) -> None:
        done.append(("rest", found.tube))

    def put() -> None:
        done.clear()
        Task.xq.put_many([task(tube=tube) for tube in ("mail", "b", None)])

    both = [("mail", "mail"), ("rest", "b"), ("rest", None)]
    for run, then in (
        (lambda: Task.xq.run(max_tasks=3), both),
        (lambda: Task.xq.run(until_empty=True), both),
        (lambda: xq.run(rest, max_tasks=2), both[1:]),
        (lambda: xq.run(mail, max_tasks=1), both[:1]),
        (lambda: Task.xq.run(tubes=["b", "mail"], max_tasks=2), both[:2]),
        (lambda: run_pending(Task), both),
    ):
        put()
        run()
        assert sorted(done, key=str) == sorted(then, key=str)
        Task.xq.truncate()
    with pytest.raises(xq.ConfigurationError, match="'mail' already"):
        Task.xq.worker(rest, tube="mail")


def test_a_run_logs_its_start_each_task_and_its_end_and_shows_that_if_no_logging_is_set_up(
    make_shared, monkeypatch, capsys
):
    Task = make_shared({"keep": True, "delayed": True, "buried": True}, roles=("tube", "runat", "attempts"))

    @Task.xq.worker(max_attempts=5)
    def work(found: Any) -> None:
        if found.id == 2:
            Task.ack(found)  # by itself

    @Task.xq.worker(tube="a", batch=2, max_attempts=5)
    def batches(found: Any) -> None:
        pass

    Task.xq.put_many([task(tube=tube) for tube in (None, "b", "a", "a")])
    Task.put(task(), delay=60)
    monkeypatch.setattr(logging.root, "handlers", [])
    Task.xq.run(until_empty=True)
    log = logging.getLogger("xq")
    assert (log.handlers, log.level) == ([], logging.NOTSET), "as before"
    head, *done, end = [line.split(": ", 1)[1] for line in sorted(capsys.readouterr().err.splitlines())]
    engine = Task.xq.parts.store.database.product
    assert head.startswith(f"working on {Task.xq.name} with threads=1 ({engine}")
    assert done.pop(0).startswith(f"working on the tube 'a' of {Task.xq.name} with")
    assert sorted(re.sub(r"[\d.]+ m?s$", "", line) for line in done) == [
        f"task {n} is done after " for n in range(1, 5)
    ]
    assert end == "the workers have ended: no task is ready, and 1 wait for their time"


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_each_ended_attempt_has_a_line_or_is_in_a_sum(make_shared, caplog, kind):
    Task = make_shared(KEPT, roles=ROLES, attributes=ERROR)
    work = of_kind(kind, lambda found: found.name == "good" or dict[str, int]()["no"])
    Task.xq.worker(work, kind=kind, max_attempts=2, backoff=[0])
    Task.xq.put_many([task(name=name) for name in ("good", "bad") for _ in range(60)])
    caplog.set_level(logging.INFO, "xq")
    Task.xq.run(until_empty=True)
    ends = {" is done after ": "tasks are finished", " is buried (attempt 2 of 2): ": "tasks are buried: KeyError"}
    for line, ended in {**ends, " failed (attempt 1 of 2; next in 0 ms): ": "attempts failed: KeyError"}.items():
        sums = map(int, re.findall(rf"(\d+) more {ended}", caplog.text))
        assert caplog.text.count(line) + sum(sums) == 60, line


def test_a_run_beside_a_web_server_goes_on_when_its_queue_is_installed_again(make_live, monkeypatch, caplog):
    monkeypatch.setattr("xq.aio.REVIEW", 0.01)
    caplog.set_level("INFO", "xq")
    Task = make_live({"keep": True})
    Task.xq.worker(of_kind("asyncio", lambda found: None), workers=3)

    async def until(n: int, line: str) -> None:
        while caplog.text.count(line) < n:
            await asyncio.sleep(0.01)

    async def program() -> None:
        run = asyncio.create_task(Task.xq.aio.run())
        for n in (1, 2):
            await Task.xq.aio.put(task())
            await until(n, " is done after ")
            await Task.xq.aio.uninstall()
            await until(n, "aio.run() waits until")
            assert (await Task.xq.aio.health()).state == "error"
            await (Task.xq.aio.install() if n == 1 else asyncio.sleep(0))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert run.cancelled()

    asyncio.run(asyncio.wait_for(program(), STUCK))
    assert [each.levelname for each in caplog.records].count("ERROR") == 2


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("prefetch", [1, 5])
def test_an_exit_acks_what_is_finished_and_releases_the_rest(make_shared, prefetch):
    Task, seen = make_shared(), list[int]()

    @Task.xq.worker(prefetch=prefetch)
    def work(found: Any) -> None:
        seen.append(found.id)
        if found.id == 3:
            raise SystemExit

    Task.xq.put_many(tasks(6))
    with pytest.raises(SystemExit):
        Task.xq.run(until_empty=True)
    assert seen == [1, 2, 3]
    assert Task.xq.stats().counts == {"R": 4, "T": 0}
    assert is_exact(Task)


def test_a_second_signal_releases_a_task_and_no_other_worker_begins_it(make_live):
    Task = make_live({"keep": True})
    Task.put(task())

    def child() -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of those that come after the workers have ended
        started, released = list[int](), threading.Event()

        @Task.xq.worker(workers=3)
        def work(found: Any) -> None:
            started.append(found.id)
            while not released.wait(0.05):  # a signal that arrives while another is handled is none of its own
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(SystemExit):
            Task.xq.run()
        released.set()
        eventually(lambda: not any("_loop" in thread.name for thread in threading.enumerate()))
        yield len(started), Task.xq.stats().counts

    with another_process(make_live.db, child) as other:
        assert next(other) == (1, {"R": 1, "T": 0, "D": 0})


# Options that do not fit, and the option that is named then.
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"timeout": timeout}, "timeout is a number") for timeout in (0, "5", True, float("nan"), float("inf"))),
    ({"timeout": 5}, 'timeout= needs kind="process" or an async def'),
    *(({"workers": workers}, "workers") for workers in (0, True, "4")),
    *(({"backoff": backoff}, "backoff") for backoff in ([], "soon", [1, -1], -1, True)),
    *(({"kind": kind}, "kind") for kind in ("fiber", "asyncio")),
    *(({name: 0}, name) for name in ("prefetch", "batch")),
    ({"batch": 5, "prefetch": 2}, "batch"),
    ({"concurrency": 5}, "concurrency"),
    ({"around": 5}, "around takes a"),
]


def test_what_cannot_work_is_refused(subtests):
    make = Maker(pw.SqliteDatabase(None))
    make.INSTALLS = False
    Task = make({"buried": True, "delayed": True}, roles=("runat",))
    with pytest.raises(xq.ConfigurationError, match="worker"):
        Task.xq.run()
    for options, names in REFUSED:
        with subtests.test(f"{options}"), pytest.raises(xq.ConfigurationError, match=names):
            Task.xq.worker(print, **options)
    work = Task.xq.worker(print)
    for register in (work.around, work.on_failure, work.on_buried):
        for wrong in (5, has_not_run):
            with pytest.raises(xq.ConfigurationError, match="takes a"):
                register(wrong)
    for option in ("workers", "max_tasks"):
        with pytest.raises(xq.ConfigurationError, match=option):
            Task.xq.run(**{option: 0})
    with pytest.raises(xq.Error, match="worker"):
        xq.run()
    for function in (lambda: None, lambda a, b: None):
        with pytest.raises(xq.ConfigurationError, match="gets the task.* cannot be called so"):
            make({}).xq.worker(function)
    with pytest.raises(xq.FeatureOff, match="role 'tube'"):
        make({}).xq.worker(print, tube="mail")
    for given in ({"worker": 5}, {"worker": print, "workers": 0}):
        with pytest.raises(xq.ConfigurationError):
            make(roles=(), **given)
