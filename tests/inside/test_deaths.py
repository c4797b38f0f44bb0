"""Tasks whose worker process died: when they are tried again, and when no more."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS
from tests.contract.test_workers import program_of
from tests.factories import task, tasks
from tests.steps import PATIENCE, eventually, in_threads, note, noted, row, state
from xq.core.values import Taken
from xq.database.sessions import Session
from xq.workers.attempt import Attempt
from xq.workers.attempts import Attempts
from xq.workers.child import LOST, InHand
from xq.workers.pool import Program

ROLES = ("runat", "attempts", "error")
SEGV = "the worker process was killed by SIGSEGV at attempt "


def dying(make: Any, features: dict[str, Any], n: int = 1, **options: Any) -> tuple[Any, Any, Any]:
    """A queue with `n` tasks, its worker, and a call by which the process of a taken task dies."""
    Task = make(features, roles=ROLES, attributes={"error": pw.TextField(null=True)})
    Task.xq.put_many(tasks(n))
    attempts = Attempts(worker := Task.xq.worker(print, **options), Program().stop)
    identify = Task.xq.parts.named.tasks.identify

    def die(found: Any, cause: str) -> None:
        attempts.failures.died(Attempt(found, Taken(*identify(found)), found.attempts), cause)

    return Task, worker, die


def test_a_task_whose_process_died_waits_and_is_buried_at_its_last_attempt_and_the_history_says_why(make):
    features, seen = {"buried": True, "delayed": True, "history": True}, list[Any]()
    Task, worker, die = dying(make, features, max_attempts=3, backoff=[5])
    worker.on_failure(lambda found, error: seen.append(error))
    worker.on_buried(lambda found, error: seen.append(error))
    for cause, becomes in (("ended with exit code 3", "W"), ("killed by SIGSEGV", "W"), ("killed by SIGSEGV", "B")):
        die(Task.take(), cause)
        assert (state(Task, 1), Task.xq.take(timeout=0)) == (becomes, None)
        Task.xq.clock.tick(6)
    assert (row(Task, 1).attempts, row(Task, 1).error) == (3, f"ProcessDied: {SEGV}3")
    told = [entry.reason for entry in Task.xq.timeline(1) if entry.source == "T"]
    assert told == ["the worker process ended with exit code 3 at attempt 1", f"{SEGV}2", f"{SEGV}3"]
    assert [(type(error), str(error)) for error in seen] == [(xq.ProcessDied, why) for why in [*told, told[-1]]]


@pytest.mark.parametrize("features", [{"buried": True}, {}], ids=["buried", "passed over"])
def test_without_max_attempts_a_task_is_tried_no_more_after_ten_deaths(make, caplog, features):
    Task, _, die = dying(make, features, 2)
    for _ in range(10):
        die(Task.take(), "killed by SIGSEGV")
    assert (Task.take().id, state(Task, 1)) == (2, "B" if features else "R")
    does = "task 1 is buried (attempt 10): ProcessDied:" if features else "takes pass over task 1 from now on:"
    assert f"{does} {SEGV}10, the last of 10 deaths" in caplog.text


@pytest.mark.parametrize("to", "BX")
def test_the_feature_max_takes_counts_the_deaths_of_worker_processes_too(make, caplog, to):
    Task, _, die = dying(
        make, {"max_takes": {"n": 3, "to": to}, "buried": True, "delayed": True, "ttr": 60}, backoff=[5]
    )
    for ends in ("death", "ttr", "retry", "death"):
        assert state(Task, 1) == "R"
        found = Task.take()
        if ends == "death":
            die(found, "killed by SIGSEGV")
        elif ends == "retry":
            found.release()
        Task.xq.clock.tick(61)
        Task.xq.sweep()
    assert state(Task, 1) == to
    assert f"{SEGV}4: it was taken 3 times and never finished" in caplog.text


@pytest.mark.parametrize("shared_db", list(SERVERS), indirect=True)
def test_a_death_waits_for_no_row_that_a_transaction_has_locked(make_shared):
    Task, _, die = dying(make_shared, {"buried": True}, max_attempts=1)
    found = Task.take()
    with Task._meta.database.atomic():
        Task.update(size=5).execute()
        in_threads(Task._meta.database, lambda: die(found, "killed by SIGKILL"))
    assert (state(Task, 1), row(Task, 1).size) == ("T", 5), "its session's end releases it"


def test_the_log_warns_of_endless_attempts_and_names_a_task_that_still_runs_at_the_end(make_live, monkeypatch, caplog):
    monkeypatch.setattr("xq.workers.attempts.LONG", 0.0)
    Task = make_live()
    Task.xq.worker(lambda found: running.stop() or eventually(lambda: "task 1 still runs after" in caplog.text))
    running: Any = Task.xq.start()
    Task.put({})
    assert running.join(PATIENCE)
    assert (state(Task, 1), caplog.text.count("<worker <lambda> of Task> retries a failing task for ever")) == ("X", 1)


def test_what_has_run_past_its_timeout_when_the_program_is_to_end_counts_as_an_attempt(make_shared):
    Task = make_shared({"buried": True}, roles=ROLES[:2])
    Task.xq.put_many(tasks(2))

    async def work(found: Any) -> None: ...

    attempts = Attempts(Task.xq.worker(work, timeout=60), Program().stop)
    late, early = attempts.begin([Task.take(), Task.take()])
    for job in (late, early):
        job.start()
    late.started_at -= 61
    attempts.uncount()
    assert [row(Task, job.task).attempts for job in (late, early)] == [1, 0]
    early.started_at -= 61
    attempts.count_late()
    assert row(Task, early.task).attempts == 1, "it hangs, and a supervisor will kill it"


def left_open(found: Any) -> None:
    found._meta.database.begin()


def returned(found: Any) -> None: ...


def released(found: Any) -> None:
    if found.attempts == 1:
        found.release()


@pytest.mark.parametrize(
    ("ends", "becomes"),
    [(xq.Retry(), "B"), (xq.Bury(), "B"), (xq.Next("b"), "B"), (left_open, "B"), (returned, "D"), (released, "B")],
    ids=["retry", "bury", "next", "left open", "returned", "released"],
)
def test_what_a_process_has_not_committed_at_its_death_is_done_only_if_the_function_is_known_to_have_returned(
    make_live, monkeypatch, ends, becomes
):
    Task, parent = make_live({"buried": True, "keep": True}, roles=("tube", "attempts")), os.getpid()

    @Task.xq.worker(kind="process", max_attempts=1)
    def work(found: Any) -> None:
        if isinstance(ends, Exception):
            raise ends
        ends(found)

    for name in ("end", "ack_and_take"):
        usual = getattr(Attempts, name)

        def ended(attempts: Any, jobs: Any, *given: Any, usual: Any = usual) -> Any:
            if os.getpid() != parent and jobs:
                os.kill(os.getpid(), signal.SIGKILL)
            return usual(attempts, jobs, *given)

        monkeypatch.setattr(Attempts, name, ended)
    put = Task.put(task(tube="a"))
    eventually(lambda: Task.xq.run(until_empty=True) or state(Task, put) in "BD")
    assert state(Task, put) == becomes


def test_a_process_that_dies_after_its_ack_while_its_parent_begins_to_hold_its_session_leaves_no_session(
    make_live, tmp_path, monkeypatch
):
    Task, begins, died, log = make_live({"keep": True}), tmp_path / "begins", tmp_path / "died", tmp_path / "log"
    acquire, release, join, remove = Session.acquire, Session.release, threading.Thread.join, InHand.remove
    ends, held = threading.Event(), threading.Event()  # the parent ends the session, and holds it

    def acquires(session: Session) -> None:
        if beside := threading.current_thread().name == "xq children":
            begins.touch()
            ends.wait(PATIENCE)
        acquire(session)
        if beside:
            held.set()

    def releases(session: Session) -> None:
        release(session)
        if threading.current_thread().name == "xq children":
            ends.set()
            held.wait(PATIENCE)

    def joins(thread: threading.Thread, timeout: float | None = None) -> None:
        ends.set()
        join(thread, timeout)

    def dies(heart: InHand, *leases: Any) -> None:
        if leases and not noted(died):
            eventually(begins.exists)
            note(died, os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        remove(heart, *leases)

    monkeypatch.setattr(Session, "acquire", acquires)
    monkeypatch.setattr(Session, "release", releases)
    monkeypatch.setattr(threading.Thread, "join", joins)
    monkeypatch.setattr(InHand, "remove", dies)
    Task.xq.worker(kind="process")(lambda found: None)
    put = Task.put(task())
    with program_of(Task, log):
        pid = int(eventually(lambda: noted(died))[0])
        eventually(lambda: pid not in [each.pid for each in Task.xq.processes()])
    assert (state(Task, put), f"task {put.id} is done after" in log.read_text()) == ("D", True)


def test_the_log_says_that_processes_wait_to_be_forked_while_on_failure_does_not_return(make_live, monkeypatch, caplog):
    monkeypatch.setattr("xq.workers.processes.GRACE", 0.2)
    Task = make_live({"buried": True, "keep": True}, roles=("attempts",))

    @Task.xq.worker(kind="process", max_attempts=1)
    def work(found):
        if found.id == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def waiting() -> list[str]:
        return [each for each in caplog.messages if "wait to be forked" in each]

    work.on_failure(lambda found, error: eventually(waiting))
    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    (line,) = waiting()
    assert line.startswith("worker processes that wait to be forked: 1. ")
    assert (state(Task, 1), state(Task, 2)) == ("B", "D"), "it was started after that"


def test_a_process_whose_session_was_lost_is_replaced_without_an_error(make_live, caplog):
    Task = make_live({"buried": True, "keep": True}, roles=("attempts",))

    @Task.xq.worker(kind="process", max_attempts=2)
    def work(found):
        if found.attempts == 1:
            os._exit(LOST)

    Task.put(task())
    Task.xq.run(until_empty=True)
    (record,) = [each for each in caplog.records if "is replaced" in each.getMessage()]
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith("is replaced: ended as its session was lost; it had begun task 1")
    assert (state(Task, 1), [each for each in caplog.messages if "exit code" in each]) == ("D", [])
