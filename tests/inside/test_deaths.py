"""Tasks whose worker process died: when they are tried again, and when no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import tasks
from tests.steps import PATIENCE, eventually, row, state
from xq.runtime.workers.attempts import Attempts
from xq.runtime.workers.pool import Program

ROLES = ("runat", "attempts", "error")
ERROR = {"error": pw.TextField(null=True)}
SEGV = "the worker process was killed by SIGSEGV at attempt "


def deaths_of(Task: Any, worker: Any) -> Callable[[str], Any]:
    """A call that takes a task, lets its process die by a cause, and returns the task."""
    attempts = Attempts(worker, Program().stop)

    def die(cause: str) -> Any:
        attempts.failures.died(attempts._attempt(found := Task.take()), cause)
        return found

    return die


def test_a_task_whose_process_died_waits_and_is_buried_at_its_last_attempt_and_the_history_says_why(make, caplog):
    Task, seen = make({"buried": True, "delayed": True, "history": True}, roles=ROLES, attributes=ERROR), list[Any]()
    worker = Task.xq.worker(print, max_attempts=3, backoff=[5])
    worker.on_failure(lambda found, error: seen.append(error))
    worker.on_buried(lambda found, error: seen.append(error))
    Task.put({})
    die, buried = deaths_of(Task, worker), f"ProcessDied: {SEGV}3"
    for cause in ("ended with exit code 3", "killed by SIGSEGV"):
        die(cause)
        assert (state(Task, 1), Task.xq.take(timeout=0)) == ("W", None)
        Task.xq.clock.tick(6)
    die("killed by SIGSEGV")
    assert (state(Task, 1), row(Task, 1).attempts, row(Task, 1).error) == ("B", 3, buried)
    told = [step.reason for step in Task.xq.timeline(1) if step.source == "T"]
    assert told == ["the worker process ended with exit code 3 at attempt 1", f"{SEGV}2", f"{SEGV}3"]
    assert [*map(str, seen)] == [*told, told[-1]] and {*map(type, seen)} == {xq.ProcessDied}
    assert f"task 1 failed (attempt 2 of 3; next in 5 s): ProcessDied: {SEGV}2" in caplog.text
    assert f"task 1 is buried: {buried}" in caplog.text


@pytest.mark.parametrize("features", [{"buried": True}, {}], ids=["buried", "passed over"])
def test_without_max_attempts_a_task_is_tried_no_more_after_ten_deaths(make, caplog, features):
    Task = make(features, roles=ROLES, attributes=ERROR)
    Task.xq.put_many(tasks(2))
    die = deaths_of(Task, Task.xq.worker(print))
    assert [die("killed by SIGSEGV").id for _ in range(10)] == [1] * 10
    assert Task.take().id == 2
    assert (state(Task, 1), Task.xq.take(timeout=0)) == ("B" if features else "R", None)
    does = "task 1 is buried: ProcessDied:" if features else "takes pass over task 1 from now on:"
    assert f"{does} {SEGV}10, the last of 10 deaths" in caplog.text


def test_the_log_warns_of_endless_attempts_and_names_a_task_that_still_runs_at_the_end(make_live, monkeypatch, caplog):
    monkeypatch.setattr("xq.runtime.workers.attempts.LONG", 0.0)
    Task = make_live()

    @Task.xq.worker
    def work(found: Any) -> None:
        running.stop()
        eventually(lambda: "task 1 still runs after" in caplog.text)

    running = Task.xq.start()
    Task.put({})
    assert running.join(PATIENCE)
    assert (state(Task, 1), caplog.text.count("<worker work of Task> retries a failing task for ever")) == ("X", 1)
