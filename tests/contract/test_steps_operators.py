"""What operators see of tasks with steps: why they wait, by which filter they are found, which step has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import peewee as pw
import pytest

import xq

FEATURES: xq.Features = {"delayed": True, "buried": True, "keep": True, "history": True, "steps": True}
DONE = "2 steps done: plan, sources"


@pytest.fixture
def orders(make_shared: Any) -> Any:
    """A queue whose worker calls two steps, and then what the test gives."""
    roles = ("runat", "attempts", "error")
    Task = make_shared(FEATURES, roles=roles, attributes={"error": pw.TextField(null=True)})

    def work(task: Any) -> None:
        for name in ("plan", "sources"):
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


def sleeps(task: Any) -> None:
    xq.sleep("cool off", 60)
    refused(task)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (lambda _: xq.wait_for("paid", timeout=60), "it waits for the signal 'paid' until 2023-11-14 22:14:20 UTC"),
        (lambda _: xq.wait_for("paid"), "it waits for the signal 'paid'"),
        (sleeps, "it sleeps, 'cool off', until 2023-11-14 22:14:20 UTC"),
    ],
)
def test_why_says_for_what_a_suspended_task_waits_and_what_it_has_done(orders, then, why):
    key = run(orders, then)
    assert orders.xq.why(key) == [f"{why}, {DONE}"]
    orders.xq.signal(key, "another")
    assert orders.xq.why(key) == [f"{why}, {DONE}"], "a signal that it does not wait for changes nothing"


def test_why_tells_a_retry_after_a_sleep_and_a_burial_as_ever_and_then_what_is_done(orders):
    key = run(orders, sleeps)
    orders.xq.clock.tick(60)
    orders.xq.run(until_empty=True)
    pause = "it is waiting (W) until 2023-11-14 22:14:50 UTC, and becomes ready (R) in 30 s"
    assert orders.xq.why(key) == [pause, DONE]
    orders.xq.clock.tick(30)
    orders.xq.run(until_empty=True)
    buried = [f"it is buried (B): ValueError: no price {key}", "dig returns it to the queue", DONE]
    assert orders.xq.why(key) == [
        *buried,
        "dig(again='cool off') does this sleep again, and an earlier one with all after it",
    ]
    orders.xq.dig(key, again="sources")
    assert orders.xq.why(key)[-1] == "1 step done: plan", "of a ready task"
    assert orders.xq.take().id == key
    assert (orders.xq.why(key)[0][:11], orders.xq.why(key)[-1]) == ("it is taken", "1 step done: plan")


def test_why_names_the_last_ten_steps_in_one_line(orders):
    key = run(orders, lambda _: [xq.step(f"mail\n{n}", int) for n in range(30)] and xq.wait_for("paid"))
    listed = ", ".join(f"mail\\n{n}" for n in range(20, 30))
    assert orders.xq.why(key) == [f"it waits for the signal 'paid', 32 steps done, the last 10: {listed}"]


def test_tasks_are_found_by_the_signal_that_they_await_one_without_a_timeout_too(orders):
    waits = (("paid", 60), ("paid",), ("pai",))
    timed, forever, other = every = [run(orders, lambda _, args=args: xq.wait_for(*args)) for args in waits]
    orders.put({})
    wanted = {
        "awaits:paid": [timed, forever],
        "awaits:PAID": [],
        "awaits:paid,pai": every,
        "state:waiting": every,
        "-awaits:paid state:W": [other],
        '-awaits:""': every,
        'awaits:""': [other + 1],
        """steps:'"sources"'""": every,
    }
    found = {filter: sorted(task.id for task in orders.xq.find(filter).tasks) for filter in wanted}
    assert found == wanted
    orders.xq.signal(forever, "paid")
    assert [task.id for task in orders.xq.find("awaits:paid").tasks] == [timed]
    assert [each.event for each in orders.xq.timeline(forever)][-2:] == ["wait", "signal"]


def test_a_step_that_fails_is_named_in_the_log_and_below_the_error_so_that_failures_are_one_group(orders, caplog):
    caplog.set_level(logging.WARNING)
    keys = [run(orders, lambda task: xq.step("charge", refused, task)) for _ in range(2)]
    orders.xq.clock.tick(30)
    orders.xq.run(until_empty=True)
    ends = (
        "failed (attempt 1 of 2; in the step 'charge'; next in 30 s)",
        "is buried (attempt 2 of 2; in the step 'charge')",
    )
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("task")]
    assert told == [f"task {key} {end}: ValueError: no price {key}" for end in ends for key in keys]
    (group,) = orders.xq.failures()
    assert (group.title, group.count) == ("ValueError: no price <n>", 2)
    assert orders.xq.peek(keys[0]).error.splitlines()[-1] == "in the step 'charge'"

    def bury() -> None:
        raise xq.Bury("no such customer")

    key = run(orders, lambda _: xq.step("charge", bury))
    assert orders.xq.peek(key).error == "no such customer\nin the step 'charge'"
