"""What a task's page shows above its form: its state and times, why it is not running, and its history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import xq
from xq.adapters.django.admin.words import chip, first_line, letter_of, moment
from xq.core.words import lasting, name_of
from xq.operators.inspection import TimelineEntry

MANY: Final = 1_000_000  # if a queue has more transitions, its history is read on demand only: it has no index
HISTORY: Final = "xq_history"  # the parameter by which a task's page asks for a long history


def panel_of(of_model: Any, request: Any, task: Any) -> dict[str, Any]:
    """Return the values for the template admin/xq/task.html."""
    queue, words, letter = of_model.queue, of_model.words, letter_of(of_model.queue, task)
    error = first_line(getattr(task, of_model.error_field or "", ""))
    actions = [a for a in of_model.queue_actions(request).values() if a.act.moves(queue.machine, letter or "")]
    shown: dict[str, Any] = {
        "state": chip(letter, words[letter]) if letter else getattr(task, queue.roles["status"]),
        "error": error,  # the reasons do not repeat it
        "buttons": [(each.name, each.label) for each in actions if each.may(of_model, request, task)],
        "times": list(_times(queue, task, words, letter)) if letter else [],
    }
    try:
        reasons = queue.parts.doctor.why(task.pk, moment)
        shown["why"] = [why for why in reasons if not error or not why.endswith(f": {error}")]
        if queue.machine.settings.history is not None:
            shown["transitions"] = queue.parts.doctor.newest()
            shown["is_postponed"] = shown["transitions"] > MANY and HISTORY not in request.GET
            timeline = [] if shown["is_postponed"] else queue.timeline(task.pk)
            shown["timeline"] = [_entry(entry, words) for entry in timeline]
    except xq.Error as problem:
        shown["problem"] = problem
    return shown


def _times(queue: Any, task: Any, words: dict[str, str], letter: str) -> Iterator[tuple[str, str]]:
    """Yield when a task moves by itself, and to which state."""
    for role in ("runat", "deadline"):
        timer = queue.machine.timer(letter, role)
        at = getattr(task, queue.roles[role]) if timer else None
        if at is not None:
            yield f"{words.get(timer.target, name_of(timer.target))} at ({timer.option})", moment(at)


def _entry(entry: TimelineEntry, words: dict[str, str]) -> tuple[Any, ...]:
    return (
        moment(entry.at),
        entry.event,
        chip(entry.target, words.get(entry.target), entry.event),
        "" if entry.seconds is None else f"{lasting(max(0.0, entry.seconds))}{' until now' * entry.open}",
        ": ".join(filter(None, (entry.actor, entry.reason))),
        entry.attempt or "",
        entry.session or "",
    )
