"""Workers of each kind, what runs around their handlers, how they take and ack together, and how programs end."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, Maker, live
from tests.factories import task, tasks
from tests.steps import PATIENCE, another_process, eventually, is_exact, state, transitions

ROLES = ("runat", "attempts", "error")
ERROR = {"error": pw.TextField(null=True)}
RETRIES = {"delayed": True, "buried": True}
OVERDUE = "TimeoutError: the function runs for longer than 0.2 s"


class Failed(Exception):
    pass


def with_errors(make: Maker, features: dict[str, Any] | None = None) -> Any:
    return make(features or RETRIES, roles=ROLES, attributes=ERROR)


def note(path: Path, text: object) -> None:
    """Add a line to a file: by one write, so that processes may do so at once."""
    with path.open("a") as file:
        file.write(f"{text}\n")


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# of each kind


def of_kind(kind: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function as a worker of this kind calls it; a coroutine leaves what takes time to a thread."""
    if kind != "asyncio":
        return function

    async def coroutine(found: Any) -> None:
        await asyncio.to_thread(function, found)

    return coroutine


KINDS = pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])


@KINDS
def test_workers_of_each_kind_do_each_task_once_and_many_at_a_time(make_live, tmp_path, kind):
    Task, done = make_live({"keep": True}), tmp_path / "done"

    def work(found: Any) -> None:
        note(done, found.id)
        if found.id <= 3:
            eventually(lambda: {"1", "2", "3"} <= set(noted(done)))

    Task.xq.worker(of_kind(kind, work), workers=3, kind=kind)
    Task.xq.put_many(tasks(20))
    Task.xq.run(max_tasks=7)
    assert transitions(Task) == {"X-R": 20, "R-T": 7, "T-D": 7}
    Task.xq.run(until_empty=True)
    assert sorted(map(int, noted(done))) == list(range(1, 21))
    assert transitions(Task) == {"X-R": 20, "R-T": 20, "T-D": 20}
    assert is_exact(Task)


@KINDS
@pytest.mark.parametrize("ttr", [None, 3600], ids=["no ttr", "ttr"])
def test_a_function_of_each_kind_that_fails_or_runs_past_its_timeout_has_failed(make_live, tmp_path, kind, ttr):
    Task = with_errors(make_live, {"buried": True, "keep": True} | ({"ttr": ttr} if ttr else {}))
    over, pids, leases = threading.Event(), tmp_path / "pids", list[bool]()

    def work(found: Any) -> None:
        note(pids, os.getpid())
        leases.append(xq.current().task.id == found.id)
        if found.id == 1:
            raise Failed("no price")
        if found.id == 2:
            over.wait(PATIENCE)

    async def awork(found: Any) -> None:
        if found.id == 2:
            await asyncio.Event().wait()
        work(found)

    Task.xq.worker(awork if kind == "asyncio" else work, kind=kind, timeout=0.2, max_attempts=1)
    Task.xq.put_many(tasks(3))
    eventually(lambda: Task.xq.run(until_empty=True) or Task.xq.count("R") + Task.xq.count("T") == 0)
    over.set()
    failed, late = [Task.xq.peek(key).error.splitlines() for key in (1, 2)]
    assert failed[0] == "Failed: no price"
    assert OVERDUE in late
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-B": 2, "T-D": 1}
    assert all(leases)
    if kind == "asyncio":
        assert any("await asyncio.Event().wait()" in line for line in late)  # where the function stood
    assert len(set(noted(pids))) == (2 if kind == "process" else 1), "a process whose function is overdue is replaced"


@KINDS
def test_a_program_that_a_second_signal_aborts_exits_with_that_signal(make_live, tmp_path, kind):
    Task, begun = make_live({"keep": True}), tmp_path / "begun"

    async def awork(found: Any) -> None:
        begun.touch()
        await asyncio.sleep(PATIENCE)

    def run() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of those that come after the workers have ended
        Task.xq.run()

    Task.xq.worker(kind=kind)(awork if kind == "asyncio" else lambda found: asyncio.run(awork(found)))
    put = Task.put(task())
    make_live.db.close()
    program = multiprocessing.get_context("fork").Process(target=run)
    program.start()
    eventually(begun.exists)

    def has_ended() -> bool:  # a signal that arrives while another is handled cannot be distinguished from it
        os.kill(program.pid or 0, signal.SIGTERM)
        program.join(0.1)
        return program.exitcode is not None

    eventually(has_ended)
    assert program.exitcode == 128 + signal.SIGTERM
    assert state(Task, put) == "R"


def test_one_program_runs_the_workers_of_several_queues(make_shared):
    Task, Other = make_shared(), make_shared(attributes={"table_name": "other"})
    done: list[str] = []
    first = Task.xq.worker(lambda found: done.append("first"))

    @Other.xq.worker(workers=2)
    async def second(found: Any) -> None:
        done.append("second")

    Task.xq.put_many(tasks(3))
    Other.xq.put_many(tasks(4))
    xq.run(first, second, until_empty=True)
    assert sorted(done) == ["first"] * 3 + ["second"] * 4


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_what_a_worker_has_reserved_and_does_not_find_another_takes(make_live, kind):
    Task = make_live({"keep": True}, roles=("tube",))

    def work(found: Any) -> None:
        if found.name == "0" and found.tube == "b":  # all that may still be taken is reserved for the tube a by then
            eventually(lambda: state(Task, ids[0]) == "D" and Task.xq.waiting())

    ids = [each.id for each in Task.xq.put_many([task(tube="a"), task(tube="b", name="0"), task(tube="b", name="1")])]
    Task.xq.worker(of_kind(kind, work), kind=kind)
    Task.xq.run(max_tasks=3, tubes=["a", "b"])
    assert Task.xq.stats().counts["D"] == 3


# threads


def test_a_function_that_runs_past_its_timeout_has_failed_and_another_thread_goes_on(make_live):
    Task = make_live({"keep": True, "buried": True}, roles=ROLES, attributes=ERROR)
    returned, lost = threading.Event(), threading.Event()

    @Task.xq.worker(timeout=0.2, max_attempts=3)
    def work(found: Any) -> None:
        if found.attempts > 1:
            return
        assert xq.current().lost.wait(PATIENCE)
        lost.set()
        eventually(lambda: state(Task, found) == "D")
        returned.set()  # its ack, which comes late, does nothing

    Task.put(task())
    Task.xq.run(until_empty=True)
    assert lost.is_set()
    assert returned.wait(PATIENCE)
    assert transitions(Task) == {"X-R": 1, "R-T": 2, "T-R": 1, "T-D": 1}


# what runs around a handler


def test_what_is_around_a_handler_sees_it_begin_and_end_the_first_one_outermost(make_shared):
    Task, seen = make_shared({"delayed": True}, roles=("runat",)), list[str]()

    @Task.xq.worker
    def work(found: Any) -> None:
        seen.append("work")
        raise Failed

    @work.around
    def outer(found: Any) -> Iterator[None]:
        seen.append(f"outer {found.id}")
        try:
            yield
        except Failed:
            seen.append("outer failed")
            raise

    @work.around
    def inner(found: Any) -> Iterator[None]:
        seen.append("inner")
        try:
            yield
        finally:
            seen.append("inner ends")

    put = Task.put(task())
    Task.xq.run(until_empty=True)
    assert seen == [f"outer {put.id}", "inner", "work", "inner ends", "outer failed"]
    assert state(Task, put) == "W"


def test_an_asynchronous_manager_is_around_a_coroutine(make_shared):
    Task, seen = with_errors(make_shared), list[int]()

    @Task.xq.worker(workers=3, max_attempts=1)
    async def work(found: Any) -> None:
        if found.id == 1:
            raise Failed

    @work.around
    @asynccontextmanager
    async def around(found: Any) -> Any:
        yield
        seen.append(found.id)

    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    assert sorted(seen) == [2, 3]


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


# processes


def test_processes_that_crash_again_and_again_end_the_program(make_live):
    Task = make_live()

    @Task.xq.worker(kind="process", workers=2)
    def work(found: Any) -> None:
        os._exit(3)

    Task.xq.put_many(tasks(50))
    with pytest.raises(xq.Error, match="crashed"):
        Task.xq.run()


def test_a_process_whose_function_lets_no_other_thread_run_is_killed(make_live, caplog):
    Task = with_errors(make_live)

    @Task.xq.worker(kind="process", timeout=0.2, max_attempts=1)
    def work(found: Any) -> None:
        re.match("(a+)+$", "a" * 100 + "b")  # takes for ever, and keeps the lock of the interpreter

    put = Task.put(task())
    eventually(lambda: Task.xq.run(until_empty=True) or state(Task, put) == "B")  # once its session is reaped
    assert Task.xq.peek(put).error == "it was taken 1 times and never finished"
    assert "it is killed" in caplog.text


def test_worker_processes_end_when_their_parent_is_killed(make_live, tmp_path):
    Task, pids = make_live(), tmp_path / "pids"

    def workers() -> set[str]:
        return set(noted(pids))

    @Task.xq.worker(kind="process", workers=2)
    def work(found: Any) -> None:
        note(pids, os.getpid())
        eventually(lambda: len(workers()) == 2)

    Task.xq.put_many(tasks(2))
    make_live.db.close()
    reader, writer = os.pipe()  # at its end when the last process that has the writer is gone
    parent = multiprocessing.get_context("fork").Process(target=Task.xq.run)
    parent.start()
    os.close(writer)
    try:
        eventually(lambda: len(workers()) == 2)
        parent.kill()
        parent.join()
        assert select.select([reader], [], [], PATIENCE)[0]
    finally:
        os.close(reader)
        for pid in workers():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_to_the_whole_group_lets_processes_finish_their_tasks(make_live, tmp_path, number):
    Task, begun, go_on = make_live({"keep": True}), tmp_path / "begun", tmp_path / "go on"

    @Task.xq.worker(kind="process", workers=2)
    def work(found: Any) -> None:
        note(begun, found.id)
        eventually(go_on.exists)

    def run() -> None:
        os.setsid()
        logging.getLogger("xq").addHandler(logging.FileHandler(tmp_path / "log"))
        logging.getLogger("xq").setLevel(logging.INFO)
        Task.xq.run()

    Task.xq.put_many(tasks(2))
    make_live.db.close()
    program = multiprocessing.get_context("fork").Process(target=run)
    program.start()
    assert program.pid is not None
    eventually(lambda: len(noted(begun)) == 2)
    os.killpg(program.pid, number)
    eventually(lambda: (tmp_path / "log").read_text().count("finish their tasks") == 2)
    go_on.touch()
    program.join(PATIENCE)
    assert program.exitcode == 0
    assert "released" not in (tmp_path / "log").read_text()
    assert Task.xq.stats().counts["D"] == 2


@pytest.mark.parametrize("after", [0.0, 0.03])
def test_a_signal_while_the_processes_start_ends_the_program(make_live, after):
    Task = make_live()
    Task.xq.worker(lambda found: None, workers=8, kind="process")

    def child() -> None:
        pid = os.getpid()
        if os.fork() == 0:
            time.sleep(after)  # no wait for something: a signal at any moment of the start
            os.kill(pid, signal.SIGTERM)
            os._exit(0)
        Task.xq.run()

    signal_first = multiprocessing.get_context("fork").Process(target=child)
    signal_first.start()
    signal_first.join(PATIENCE)
    assert signal_first.exitcode in (0, -signal.SIGTERM)  # the latter before xq has taken the signals over


# asyncio


def test_coroutines_whose_tasks_wait_without_delays_keep_no_other_from_its_ack(make_shared):
    Task, tried = make_shared(), set[int]()

    @Task.xq.worker(workers=10, backoff=[0.5])
    async def work(found: Any) -> None:
        if found.id <= 8 and found.id not in tried:
            tried.add(found.id)
            raise Failed

    Task.xq.put_many(tasks(10))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 10, "R-T": 18, "T-R": 8, "T-X": 10}


def test_a_heartbeat_may_find_a_task_lost_after_the_end_of_its_event_loop(make_shared):
    Task, leases = make_shared(), []

    class Work:  # an object with such a call is a coroutine as well
        async def __call__(self, found: Any) -> None:
            leases.append(xq.current())

    assert Task.xq.worker(Work()).options.kind == "asyncio"
    Task.put(task())
    Task.xq.run(until_empty=True)
    leases[0].lose()  # as a heartbeat that was under way at the ack
    assert leases[0].lost.is_set()


def test_a_coroutine_is_cancelled_when_its_task_is_lost(make_live):
    Task, cancelled = make_live({"ttr": 0.9, "keep": True}, roles=("runat",)), list[int]()
    attempts = 0

    def snatch(key: Any) -> None:
        with Task.xq.adapter.store.briefly_connected():
            Task.xq.snatch(key)

    @Task.xq.worker
    async def work(found: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            return
        await asyncio.to_thread(snatch, found.id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(found.id)
            raise

    put = Task.put(task())
    Task.xq.run(until_empty=True)
    Task.xq.run(until_empty=True)
    assert cancelled == [put.id]
    assert (state(Task, put), attempts) == ("D", 2)


def test_a_timeout_within_a_coroutine_is_its_own(make_live):
    Task = with_errors(make_live)

    @Task.xq.worker(max_attempts=1)
    async def work(found: Any) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(PATIENCE)

    Task.put(task())
    Task.xq.run(until_empty=True)
    error = Task.xq.peek(1).error
    assert error.startswith("TimeoutError")
    assert "runs for longer" not in error
    assert "asyncio.timeout(0.01)" in error


# together


def fail_each_fourth(Task: Any, found: Any) -> None:
    if found.id % 4 == 0:
        raise Failed


def kill_the_third(Task: Any, found: Any) -> None:
    if found.id == 3:
        Task.xq.kill(3)


def fail_some(Task: Any, batch: Any) -> None:
    assert xq.current().task is batch
    for found in batch:
        if found.id in (2, 9):
            batch.fail(found, Failed(f"no {found.id}"))


def sort_and_fail_the_first(Task: Any, batch: Any) -> None:
    first = batch[0]
    batch.reverse()
    batch.pop()
    batch.fail(first, Failed("the first"))


async def fail_all(Task: Any, batch: Any) -> None:
    raise Failed


def lose_the_second(Task: Any, batch: Any) -> None:
    if len(batch) > 1:
        Task.xq.snatch(2)


# What is given to a worker, how many tasks there are, what it does -> in what parts it is called, and all that moves.
TOGETHER: dict[str, tuple[dict[str, int], int, Callable[..., Any], list[int], dict[str, int]]] = {
    "a handler that raises loses no ack of a task taken with it": (
        {"prefetch": 5}, 12, fail_each_fourth, [1] * 12, {"R-T": 12, "T-D": 9, "T-B": 3},
    ),
    "a task that is lost before its ack takes no other with it": (
        {"prefetch": 3}, 7, kill_the_third, [1] * 7, {"R-T": 7, "T-D": 6, "T-X": 1},
    ),
    "a handler of batches names the tasks that failed": (
        {"batch": 4}, 10, fail_some, [4, 4, 2], {"R-T": 10, "T-D": 8, "T-B": 2},
    ),
    "a batch may be sorted before a task of it fails": (
        {"batch": 4}, 4, sort_and_fail_the_first, [4], {"R-T": 4, "T-D": 3, "T-B": 1},
    ),
    "a handler of batches that raises has failed for all": ({"batch": 3}, 5, fail_all, [3, 2], {"R-T": 5, "T-B": 5}),
    "a task of a batch that others own by now keeps no other from its ack": (
        {"batch": 3, "max_attempts": 2}, 3, lose_the_second, [3, 1], {"R-T": 4, "T-R": 1, "T-D": 3},
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
    assert does is not sort_and_fail_the_first or failed == {1: "Failed: the first"}
    assert is_exact(Task)


def test_on_sqlite_the_ack_of_a_task_and_the_take_of_the_next_one_share_a_transaction(tmp_path):
    with DATABASES["sqlite"](tmp_path) as db:  # of the drivers, only sqlite3 lists its statements
        Task, seen = live(db)(), list[str]()

        @Task.xq.worker
        def work(found: Any) -> None:
            db.connection().set_trace_callback(seen.append)

        Task.xq.put_many(tasks(4))
        Task.xq.run(until_empty=True)
        course = [
            sql.split()[0] for sql in seen if sql.startswith(("BEGIN", "COMMIT", 'DELETE FROM "task" ', "UPDATE"))
        ]
        acks = [at for at, word in enumerate(course) if word == "DELETE"]
        # sqlite3 lists a statement again for each of its triggers. An ack alone has no BEGIN.
        assert acks
        assert all(course[at - 1] in ("BEGIN", "DELETE") for at in acks)


@pytest.mark.parametrize("prefetch", [1, 2])
@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
def test_on_postgresql_the_ack_of_a_task_and_the_take_of_the_next_are_one_transaction(make_shared, prefetch):
    Task = make_shared({"history": True})
    Task.xq.worker(lambda found: None, prefetch=prefetch)
    Task.xq.put_many(tasks(4))
    Task.xq.run(until_empty=True)
    sql = f'SELECT key, source, xid FROM "{Task._meta.table_name}_xq_history"'
    numbers = {(int(key), source): xid for key, source, xid in Task._meta.database.execute_sql(sql)}
    assert numbers[2, "T"] == numbers[3, "R"] != numbers[2, "R"]


@pytest.mark.parametrize("prefetch", [1, 2])
@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
def test_a_column_that_is_altered_between_two_pipelines_fails_no_attempt(make_shared, prefetch):
    Task = make_shared({"keep": True})

    @Task.xq.worker(prefetch=prefetch)
    def work(found: Any) -> None:
        if found.id % 2 == 0:
            kind = f"varchar({500 + found.id})"
            Task._meta.database.execute_sql(f'ALTER TABLE "{Task._meta.table_name}" ALTER COLUMN name TYPE {kind}')

    Task.xq.put_many(tasks(8))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 8, "R-T": 8, "T-D": 8}


def test_a_finished_task_is_acked_while_the_next_one_of_those_prefetched_goes_on(make_live):
    Task = make_live({"keep": True})

    @Task.xq.worker(prefetch=3)
    def work(found: Any) -> None:
        if found.id == 2:
            eventually(lambda: state(Task, 1) == "D")

    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-D": 3}


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_task_that_kills_its_process_takes_no_attempt_from_those_prefetched_with_it(make_live, tmp_path, kind):
    Task, called = with_errors(make_live), tmp_path / "called"
    Task.xq.put_many(tasks(5))

    @Task.xq.worker(kind=kind, prefetch=5, max_attempts=2)
    def work(found: Any) -> None:
        note(called, found.id)
        if found.id == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def all_ended() -> bool:
        make_live.db.close()
        program = multiprocessing.get_context("fork").Process(target=lambda: Task.xq.run(until_empty=True))
        program.start()
        program.join(PATIENCE)
        return not Task.xq.count("R") + Task.xq.count("T")

    eventually(all_ended)
    assert sorted(noted(called)) == ["1", "1", "2", "3", "4", "5"]
    assert (Task.xq.count("B"), state(Task, 1)) == (1, "B")


def test_a_thread_whose_function_is_overdue_leaves_what_it_has_prefetched_to_the_next(make_live):
    Task, seen, go_on = with_errors(make_live), list[int](), threading.Event()

    @Task.xq.worker(prefetch=3, timeout=0.2, backoff=[3600])
    def work(found: Any) -> None:
        seen.append(found.id)
        if found.id == 1:
            go_on.wait(PATIENCE)

    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    go_on.set()
    assert sorted(seen) == [1, 2, 3]
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-X": 2, "T-W": 1}


@pytest.mark.parametrize("signals", [1, 2])
def test_a_task_that_a_worker_gives_back_uncalled_has_its_attempt_back(make_live, signals):
    Task = with_errors(make_live, {**RETRIES, "keep": True})
    Task.xq.put_many(tasks(4))

    def child() -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of those that come after the workers have ended
        handled, released = threading.Event(), threading.Event()
        # Of signals that are there at once, the one of the higher number is handled after the other.
        signal.signal(signal.SIGWINCH, lambda *_: handled.set())

        @Task.xq.worker(prefetch=4, max_attempts=3)
        def work(found: Any) -> None:
            for _ in range(signals):
                handled.clear()
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGWINCH)
                assert handled.wait(PATIENCE) or released.is_set()
            if signals == 2:
                assert released.wait(PATIENCE)

        try:
            Task.xq.run()
        except SystemExit:
            released.set()
        yield Task.xq.stats().counts, sorted(found.attempts for found in Task.select())

    with another_process(make_live.db, child) as other:
        counts, attempts = next(other)
    assert attempts == [0, 0, 0, 1]
    assert counts["T"] == 0
    assert counts["R"] == (3 if signals == 1 else 4)


def test_a_task_dug_after_its_last_attempt_is_called_though_a_worker_gave_it_back_meanwhile(make_live):
    Task, called = with_errors(make_live), list[int]()
    fails = True

    @Task.xq.worker(prefetch=4, max_attempts=2, backoff=[0])
    def work(found: Any) -> None:
        called.append(found.id)
        if fails:
            raise Failed

    Task.xq.put_many(tasks(3))
    eventually(lambda: Task.xq.run(until_empty=True) or Task.xq.count("B") == 3)
    Task.xq.dig(n=3)
    fails = False
    called.clear()
    Task.xq.run(until_empty=True)
    assert (sorted(called), Task.xq.count("B"), Task.select().count()) == ([1, 2, 3], 0, 0)


# programs that end


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


def test_an_exit_of_one_coroutine_is_no_failure_of_the_others(make_live):
    Task, running = with_errors(make_live), list[int]()

    @Task.xq.worker(workers=4, max_attempts=1)
    async def work(found: Any) -> None:
        running.append(found.id)
        while len(running) < 4:
            await asyncio.sleep(0.01)
        if found.id == 4:
            raise SystemExit
        await asyncio.sleep(PATIENCE)

    Task.xq.put_many(tasks(4))
    with pytest.raises(SystemExit):
        Task.xq.run(until_empty=True)
    assert "T-B" not in transitions(Task)
    assert transitions(Task)["T-R"] >= 3  # the end of the session may release the one that raised
