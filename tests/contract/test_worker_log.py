"""What workers say of tasks that fail: in the log, and in the role error."""

from __future__ import annotations

import logging
from typing import Any

import peewee as pw
import pytest

from tests.conftest import Maker
from xq.testing import Clock

ROLES = ("runat", "attempts", "error")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, bool]]:
    """The level of each line about a task, the line, and whether a traceback follows it."""
    found = [(r.levelname, r.getMessage(), bool(r.exc_info)) for r in caplog.records if r.name == "xq.Task"]
    return [each for each in found if each[1].startswith("task ")]


def test_a_failed_attempt_is_a_warning_of_one_line_until_the_task_is_given_up(shared_db, caplog):
    Task = Maker(shared_db, Clock())(
        {"buried": True, "delayed": True}, roles=ROLES, attributes={"error": pw.TextField(null=True)}
    )
    put = Task.put({})

    @Task.xq.worker(max_attempts=2, backoff=[1])
    def work(found: Any) -> None:
        raise ValueError("no price\nin the order")

    caplog.set_level(logging.DEBUG, "xq")
    Task.xq.run(until_empty=True)
    assert said(caplog) == [
        ("DEBUG", f"task {put.id} failed", True),
        ("WARNING", f"task {put.id} failed (attempt 1 of 2; next in 1 s): ValueError: no price", False),
    ]
    caplog.clear()
    caplog.set_level(logging.WARNING, "xq")
    Task.xq.clock.tick(2)
    Task.xq.run(until_empty=True)
    ((level, line, has_traceback),) = said(caplog)
    assert (level, line.splitlines()[0], has_traceback) == (
        "ERROR",
        f"task {put.id} is buried: ValueError: no price",
        True,
    )
    first, second, third, *_ = Task.xq.peek(put.id).error.splitlines()
    assert (first, second) == ("ValueError: no price", "in the order"), "so that reports can group tasks by it"
    assert third.startswith("Traceback")


def test_a_short_field_holds_the_error_before_any_of_its_traceback(make_shared):
    Task = make_shared({"buried": True}, roles=ROLES, attributes={"error": pw.CharField(max_length=80, null=True)})
    put = Task.put({})

    @Task.xq.worker(max_attempts=1)
    def work(found: Any) -> None:
        raise ValueError("an order without a price")

    Task.xq.run(until_empty=True)
    written = Task.xq.peek(put.id).error
    assert written.startswith("ValueError: an order without a price\nTraceback")
    assert len(written) == 80
