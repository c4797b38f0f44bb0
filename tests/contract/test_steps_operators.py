"""What operators see of tasks with steps: why they wait, by which filter they are found, which step has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import peewee as pw
import pytest

import xq

FEATURES: xq.Features = {"delayed": True, "buried": True, "keep": True, "history": True, "steps": True}
ROLES = ("runat", "attempts", "error")
PLAN = "plan", "sources"


@pytest.fixture
def orders(make_shared: Any) -> Any:
    """A queue whose worker calls two steps, and then what the test gives."""
    Task = make_shared(FEATURES, roles=ROLES, attributes={"error": pw.TextField(null=True)})

    def work(task: Any) -> None:
        for name in PLAN:
            xq.step(name, str, name)
        Task.then(task)

    Task.xq.worker(max_attempts=2, backoff=[30])(work)
    return Task


def run(Task: Any, then: Callable[..., Any]) -> Any:
    """Put a task, and run its function once, which goes on with `then`; return the key."""
    Task.then = staticmethod(then)
    put = Task.put({})
    Task.xq.run(until_empty=True)
    return put.id


def refused(task: Any) -> None:
    raise ValueError(f"no price {task.id}")


def charged(task: Any) -> None:
    xq.step("charge", refused, task)


WAITS: dict[str, tuple[Callable[..., Any], str]] = {
    "a wait": (
        lambda task: xq.wait_for("approved", timeout=60),
        "it waits for the signal 'approved' until 2023-11-14 22:14:20 UTC, 2 steps done: plan, sources",
    ),
    "a wait for ever": (
        lambda task: xq.wait_for("approved"),
        "it waits for the signal 'approved', 2 steps done: plan, sources",
    ),
    "a sleep": (
        lambda task: xq.sleep("cool off", 60),
        "it sleeps, 'cool off', until 2023-11-14 22:14:20 UTC, 2 steps done: plan, sources",
    ),
}


@pytest.mark.parametrize(("then", "why"), WAITS.values(), ids=WAITS)
def test_why_says_for_what_a_suspended_task_waits_and_what_it_has_done(orders, then, why):
    key = run(orders, then)
    assert orders.xq.why(key) == [why]
    orders.xq.signal(key, "another")
    assert orders.xq.why(key) == [why], "a signal that it does not wait for changes nothing"


def test_why_tells_a_retry_and_a_burial_as_ever_and_then_what_is_done(orders):
    key, done = run(orders, refused), "2 steps done: plan, sources"
    pause = "it is waiting (W) until 2023-11-14 22:13:50 UTC, and becomes ready (R) in 30 s"
    assert orders.xq.why(key) == [pause, done]
    orders.xq.clock.tick(30)
    orders.xq.run(until_empty=True)
    again = "dig(again='sources') does this step again, and an earlier one with all after it"
    told = [f"it is buried (B): ValueError: no price {key}", "dig returns it to the queue", done, again]
    assert orders.xq.why(key) == told
    orders.xq.dig(key, again="sources")
    assert orders.xq.why(key)[-1] == "1 step done: plan", "of a ready task"
    assert orders.xq.take().id == key
    assert (orders.xq.why(key)[0][:11], orders.xq.why(key)[-1]) == ("it is taken", "1 step done: plan")


def test_a_pause_after_a_sleep_that_is_over_is_no_sleep(orders):
    def then(task: Any) -> None:
        if orders.xq.clock.now < 1_700_000_060:
            xq.sleep("cool off", 60)
        refused(task)

    key = run(orders, then)
    orders.xq.clock.tick(60)
    orders.xq.run(until_empty=True)
    pause = "it is waiting (W) until 2023-11-14 22:14:50 UTC, and becomes ready (R) in 30 s"
    assert orders.xq.why(key) == [pause, "2 steps done: plan, sources"]


def test_why_names_the_last_ten_steps_in_one_line(orders):
    def then(task: Any) -> None:
        for n in range(30):
            xq.step(f"mail\n{n}", int)
        xq.wait_for("approved")

    (why,) = orders.xq.why(run(orders, then))
    listed = ", ".join(f"mail\\n{n}" for n in range(20, 30))
    assert why == f"it waits for the signal 'approved', 32 steps done, the last 10: {listed}"


def test_tasks_are_found_by_the_signal_that_they_await_one_without_a_timeout_too(orders):
    waits = (("approved", 60), ("approved",), ("approve",))
    timed, forever, other = [run(orders, lambda task, args=args: xq.wait_for(*args)) for args in waits]
    orders.put({})

    def found(filter: str) -> list[Any]:
        return sorted(task.id for task in orders.xq.find(filter).tasks)

    assert found("awaits:approved") == [timed, forever], "the whole name"
    assert found("awaits:APPROVED") == []
    assert found("awaits:approved,approve") == found("state:waiting") == [timed, forever, other]
    assert found("-awaits:approved state:W") == [other]
    assert found('-awaits:""') == [timed, forever, other]
    assert found('awaits:""') == [other + 1], "empty"
    assert found("""steps:'"sources"'""") == [timed, forever, other]
    orders.xq.signal(forever, "approved")
    assert found("awaits:approved") == [timed]
    assert [each.event for each in orders.xq.timeline(forever)][-2:] == ["wait", "signal"]


def test_a_step_that_fails_is_named_in_the_log_and_failures_are_one_group(orders, caplog):
    caplog.set_level(logging.INFO)
    keys = [run(orders, charged) for _ in range(2)]
    told = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    attempt = "failed (attempt 1 of 2; in the step 'charge'; next in 30 s)"
    assert told == [f"task {key} {attempt}: ValueError: no price {key}" for key in keys]
    orders.xq.clock.tick(30)
    orders.xq.run(until_empty=True)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    attempt = "is buried (attempt 2 of 2; in the step 'charge')"
    assert told == [f"task {key} {attempt}: ValueError: no price {key}" for key in keys]
    (group,) = orders.xq.failures()
    assert (group.title, group.count) == ("ValueError: no price <n>", 2)
    lines = orders.xq.peek(keys[0]).error.splitlines()
    assert (lines[0], lines[-1]) == (f"ValueError: no price {keys[0]}", "in the step 'charge'")


def test_a_burial_that_a_step_asks_for_names_it_below_the_reason(orders):
    def bury(task: Any) -> None:
        raise xq.Bury("no such customer")

    key = run(orders, lambda task: xq.step("charge", bury, task))
    assert orders.xq.peek(key).error == "no such customer\nin the step 'charge'"
