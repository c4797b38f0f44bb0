"""What the admin says of one task above its form: its state and times, its owner, and its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import xq
from xq.adapters.django.admin.labels import (
    chip,
    first_line,
    letter_of,
    moment,
    seconds_since_1970,
)
from xq.core.machine import TAKEN
from xq.core.words import lasting, name_of
from xq.engine import search
from xq.handle import Queue

STEPS: Final = 50  # transitions that a timeline shows
MANY: Final = 1_000_000  # transitions of a queue above which its history is read on demand only: it has no index


@dataclass(frozen=True)
class Step:
    """A transition of a task, and the time that the task then spent in the entered state."""

    at: datetime
    event: str
    state: Any  # as HTML
    lasted: str  # "" if the row was deleted
    is_open: bool  # whether the task is still in this state
    session: str
    attempt: int | None


@dataclass
class Panel:
    """What the page of a task shows."""

    state: Any  # as HTML
    facts: list[tuple[str, Any]] = field(default_factory=list)  # names and values; the values may be times
    why: list[str] = field(default_factory=list)
    error: str = ""
    problem: str = ""  # why the queue does not answer
    has_history: bool = False
    is_postponed: bool = False  # the history is long, and was not asked for
    transitions: int = 0  # of the queue, in its history
    steps: list[Step] = field(default_factory=list)  # newest last
    earlier: int = 0  # transitions before those


def panel_of(queue: Queue[Any], task: Any, words: dict[str, str], error_field: str | None, asked: bool) -> Panel:
    """Return what a page shows of a task. `asked` reads also a long history."""
    letter = letter_of(queue, task)
    if letter is None:
        return Panel(getattr(task, queue.roles["status"]), why=["it is no task: the queue does not know its status"])
    found = Panel(chip(letter, words[letter], f"{name_of(letter)} ({letter})"))
    found.error = first_line(getattr(task, error_field, "")) if error_field else ""
    try:
        found.why = queue.why(task.pk)
        if any(found.error.rstrip("…") in reason for reason in found.why):
            found.error = ""  # once is enough
        _read_history(queue, task, words, letter, asked, found)
        found.facts = list(_facts(queue, task, words, letter, found.steps))
    except xq.NotFound:
        found.problem = "The task was deleted meanwhile."
    except xq.Error as error:
        found.problem = str(error)
    return found


def _facts(
    queue: Queue[Any], task: Any, words: dict[str, str], letter: str, steps: Sequence[Step]
) -> Iterator[tuple[str, Any]]:
    owner = queue.adapter.inspection.owner(task.pk) if letter == TAKEN else None
    if owner is not None:
        if owner.process:
            yield "held by", owner.process
        yield "taken by the session", owner.session
        if owner.since is not None:
            yield "taken since", moment(owner.since)
    if steps and steps[-1].is_open and letter != TAKEN:
        yield f"{words[letter]} since", steps[-1].at
    for role in ("runat", "deadline"):
        timer = queue.machine.timer(letter, role)
        at = seconds_since_1970(getattr(task, queue.roles[role])) if timer is not None else None
        if timer is not None and at is not None:
            yield f"{words.get(timer.target, name_of(timer.target))} at ({timer.option})", moment(at)
    for role in ("attempts", "tube", "utube", "priority"):
        if role in queue.roles and getattr(task, queue.roles[role]) is not None:
            yield role, getattr(task, queue.roles[role])


def _read_history(queue: Queue[Any], task: Any, words: dict[str, str], letter: str, asked: bool, found: Panel) -> None:
    found.has_history = queue.machine.settings.history is not None
    if not found.has_history:
        return
    found.transitions = queue.adapter.inspection.newest()
    found.is_postponed = found.transitions > MANY and not asked
    if not found.is_postponed:
        steps = queue.timeline(task.pk)
        found.earlier = max(0, len(steps) - STEPS)
        found.steps = [_step(step, words, letter) for step in steps[-STEPS:]]


def _step(step: search.Step, words: dict[str, str], letter: str) -> Step:
    return Step(
        moment(step.at),
        step.event or "",
        chip(step.target, words.get(step.target, name_of(step.target)), name_of(step.target)),
        "" if step.seconds is None else lasting(max(0.0, step.seconds)),
        step.open and step.target == letter,
        step.session or "",
        step.attempt,
    )
