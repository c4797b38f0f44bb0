"""What the admin does with tasks: the table of its actions, and one move of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import models

import xq
from xq.adapters.django.admin.labels import letter_of, moment, now_of
from xq.adapters.django.lookup import alias_of
from xq.core.machine import READY
from xq.handle import Queue

IN_MEMORY: Final = 100  # tasks in memory at once
SELECTED: Final = "selected %(verbose_name_plural)s"


def by_event(event: str) -> Callable[[Queue[Any], Any], object]:
    """Return a move of a task by a method of its queue."""
    return lambda queue, task: getattr(queue, event)(task.pk)


def put_draft(queue: Queue[Any], task: Any) -> None:
    """Make a draft a ready task: a row whose status is none of the queue's. Raises WrongState if it is a task."""
    letter = letter_of(queue, task)
    if letter is not None:
        raise xq.WrongState("put", task.pk, letter, ())
    status, rows = queue.roles["status"], queue.model._base_manager.using(alias_of(queue))
    same = rows.filter(**{"pk": task.pk, status: getattr(task, status)})
    if not same.update(**{status: queue.statuses[READY]}, **_begun(queue, task)):
        raise xq.NotFound(queue.name, task.pk, ": its status has changed meanwhile")


def _begun(queue: Queue[Any], task: Any) -> dict[str, Any]:
    """Return the values that a put gives to the fields which only the queue writes."""
    values: dict[str, Any] = {"runat": None, "deadline": None, "owner": None, "attempts": 0}
    for role in ("runat", "deadline"):
        timer = queue.machine.timer(READY, role)
        if timer is not None and role in queue.roles:
            own = getattr(task, queue.roles[timer.option], None) if timer.option in queue.roles else None
            seconds = timer.default if own is None else own
            values[role] = None if seconds is None else _stored(queue, role, now_of(queue) + seconds)
    return {queue.roles[role]: value for role, value in values.items() if role in queue.roles}


def _stored(queue: Queue[Any], role: str, at: float) -> Any:
    field = queue.model._meta.get_field(queue.roles[role])
    if isinstance(field, models.DateTimeField):
        return moment(at)
    return int(at) if isinstance(field, models.BigIntegerField) else at


@dataclass(frozen=True)
class Action:
    """An action of the admin. A queue without the event does not have it."""

    label: str  # of the button on the page of a task
    offer: str  # in the list of actions
    done: str  # "3 orders were ..."
    move: Callable[[Queue[Any], Any], object]
    event: str = ""  # of the machine; "": it moves drafts
    warning: str = ""  # the question of the confirmation page

    def question(self, what: str) -> str:
        """Return the title of the confirmation page: "Kill 2 orders?"."""
        return f"{self.offer.replace(SELECTED, what)}?"

    def moves(self, queue: Queue[Any], letter: str | None) -> bool:
        """Return whether it moves tasks in this state (None: drafts)."""
        return letter in queue.machine.sources(self.event) if self.event else letter is None


def _by(event: str, label: str, done: str, warning: str = "") -> Action:
    return Action(label, f"{label} {SELECTED}", done, by_event(event), event, warning)


ACTIONS: Final[Mapping[str, Action]] = {
    "dig": _by("dig", "Dig out", "dug out"),
    "release": _by("snatch", "Release", "released", "They are taken away from their owners, and are ready at once."),
    "restart": _by("restart", "Restart", "restarted"),
    "put": Action(
        "Put into the queue",
        f"Put {SELECTED} into the queue",
        "put into the queue",
        put_draft,
        warning="Those that are no tasks yet become ready tasks, and workers take them.",
    ),
    "kill": _by("kill", "Kill", "killed", "They are deleted, whatever their state and their owners."),
}


def offered(queue: Queue[Any]) -> list[str]:
    """Return the names of the actions that a queue has."""
    return [name for name, action in ACTIONS.items() if not action.event or queue.machine.sources(action.event)]


def batchwise(queryset: Any) -> Iterator[Any]:
    """Yield each row of a queryset once, in the order of keys, also if rows stop matching meanwhile.

    An open cursor would not do: on SQLite it may return moved rows again.
    """
    queryset = queryset.order_by("pk")
    rows = list(queryset[:IN_MEMORY])
    while rows:
        yield from rows
        rows = list(queryset.filter(pk__gt=rows[-1].pk)[:IN_MEMORY])
