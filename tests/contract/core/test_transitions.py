"""Every row of the transition table, for queues that have every feature between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.steps import bring, empty, is_exact, row, state, transitions

DELAY = 7
INCREMENT = 3

# Each queue: what make is given, and how many seconds each state and each task lasts in it.
QUEUES: dict[str, dict[str, Any]] = {
    "core": {"make": {"features": {}, "roles": ("attempts",)}, "lasts": {}, "lifetime": None},
    "zombie": {
        "make": {
            "features": {"buried": True, "delayed": True, "zombie": 30, "ttl": 10, "ttr": 20, "retval": "model"},
            "roles": ("runat", "priority", "owner", "attempts", "ttl", "ttr"),
        },
        "lasts": {"R": 10, "T": 20, "Z": 30},
        "lifetime": None,
    },
    "keep": {
        "make": {
            "features": {
                "id": "auto_increment",
                "buried": "any",
                "delayed": True,
                "keep": True,
                "lifetime": 100,
                "ttr": 20,
                "not_check_session": True,
                "unique": True,
                "limit": 1000,
            },
            "roles": ("runat", "deadline", "priority", "tube", "attempts", "unique"),
            "tube_stats": ["a"],
        },
        "lasts": {"T": 20},
        "lifetime": 100,
    },
}


def _rows() -> list[Any]:
    """Every row of the tables of these queues, which need no database."""
    found = []
    for name, queue in QUEUES.items():
        arguments = dict(queue["make"])
        model = Maker(pw.SqliteDatabase(None)).model()
        roles = {role: "job" if role == "unique" else role for role in ("status", *arguments.pop("roles"))}
        machine = xq.upgrade(model, roles, **arguments).machine
        for line in machine.rows:
            label = f"{name}: {line.source} {line.event}{f'({line.given})' if line.given else ''} {line.target}"
            found.append((name, line, f"{label} {line.due}".strip()))
    return found


def lines_of(queue: str, *, due: bool) -> Iterator[tuple[xq.Transition, str]]:
    """The rows of a queue's table that time moves, or that a call moves, each with its label."""
    return ((line, label) for name, line, label in _rows() if name == queue and bool(line.due) == due)


def run(Task: Any, line: xq.Transition, task: Any) -> Any:
    """The call that a row of the table is about."""
    options = {line.given: DELAY} if line.given else {}
    if line.event in ("put", "take"):
        return getattr(Task.xq, line.event)(**options)
    if line.named:
        return getattr(Task.xq, line.event)(task, to=line.target, **options)
    if line.event == "touch":
        return Task.xq.touch(task, INCREMENT)
    return getattr(Task.xq, line.event)(task, **options)


def check_call(Task: Any, queue: str, line: xq.Transition) -> None:
    lasts, lifetime = QUEUES[queue]["lasts"], QUEUES[queue]["lifetime"]
    task = None if line.source == "X" else bring(Task, line.source)
    before: Any = row(Task, task) if task else None
    assert (state(Task, task) if task else "X") == line.source
    seen = transitions(Task)
    Task.xq.clock.tick(1)
    now = Task.xq.clock.now

    returned = run(Task, line, task)

    after = row(Task, returned)
    assert transitions(Task) - seen == (
        Counter() if line.source == line.target else {f"{line.source}-{line.target}": 1}
    )
    assert is_exact(Task)
    if line.target == "X":
        assert after is None
        assert returned.status == line.source
        return
    assert after.status == returned.status == line.target
    assert after.__data__ == returned.__data__
    assert after.attempts == (before.attempts if before else 0) + (line.event == "take")

    if line.event == "touch":
        assert after.runat == (None if before.runat is None else before.runat + INCREMENT)
        assert after.deadline == (None if before.deadline is None else before.deadline + INCREMENT)
        assert after.owner == before.owner
        return
    seconds = DELAY if line.target == "W" else lasts.get(line.target)
    assert after.runat == (None if seconds is None else now + seconds)
    assert (after.owner is not None) == (line.target == "T" and "owner" in QUEUES[queue]["make"]["roles"])
    waits = DELAY if line.given else 0
    if lifetime is None or line.target == "D":
        assert after.deadline is None
    elif line.source in "XD":
        assert after.deadline == now + waits + lifetime
    else:
        assert after.deadline == before.deadline + waits


def check_due(Task: Any, queue: str, line: xq.Transition) -> None:
    task = bring(Task, line.source)
    before = row(Task, task)
    Task.update(runat=None, deadline=None).execute()
    Task.xq.clock.tick(1)
    now = Task.xq.clock.now
    Task.update({line.due: now + 1}).execute()
    assert Task.xq.sweep() == 0
    assert state(Task, task) == line.source, "not before its time"
    Task.update({line.due: now}).execute()
    seen = transitions(Task)

    moves = Task.xq.sweep()

    moved = transitions(Task) - seen
    assert moved[f"{line.source}-{line.target}"] == 1
    assert moves == moved.total()
    assert is_exact(Task)
    if line.due == "deadline":
        assert state(Task, task) == "X"
        assert moves == (2 if line.source == "T" else 1)
        return
    assert moves == 1
    assert state(Task, task) == line.target
    if line.target != "X":
        after = row(Task, task)
        seconds = QUEUES[queue]["lasts"].get(line.target)
        assert after.runat == (None if seconds is None else now + seconds)
        assert after.owner is None
        assert after.attempts == before.attempts


@pytest.mark.parametrize(("due", "check"), [(False, check_call), (True, check_due)], ids=["its call", "the sweep"])
@pytest.mark.parametrize("queue", QUEUES)
def test_a_row_of_the_table_is_what_its_call_or_the_sweep_does(make, queue, due, check, subtests):
    Task = make(**QUEUES[queue]["make"])
    for line, label in lines_of(queue, due=due):
        with subtests.test(label):
            empty(Task)
            check(Task, queue, line)


@pytest.mark.parametrize("queue", QUEUES)
def test_an_event_moves_no_task_out_of_a_state_that_the_table_does_not_name(make, queue):
    Task = make(**QUEUES[queue]["make"])
    machine = Task.xq.machine
    for here in machine.states:
        task = bring(Task, here)
        Task.update(priority=1).execute()
        before = row(Task, task).__data__
        for event in machine.events:
            if event in ("put", "take") or here in machine.sources(event):
                continue
            line = next((line for line in machine.rows if line.event == event and not line.due), None)
            if line is None:  # a touch without a timer, which writes fields
                continue
            with pytest.raises(xq.WrongState) as refused:
                run(Task, line, task.get_id())
            assert (refused.value.key, refused.value.state) == (task.get_id(), here)
            assert refused.value.allowed == machine.sources(event)
        assert row(Task, task).__data__ == before
        Task.xq.kill(task)
