"""The queues that a console shows, their names in URLs, and calls on them with a connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Final

from starlette.exceptions import HTTPException

from xq.api import Queue, queue_of
from xq.core import errors
from xq.core.errors import BadType, BadValue, Error, shown
from xq.core.kinds import NUMBERS, ErrorKind, R, fits_a_column
from xq.operators.acts import ACTS
from xq.operators.inspection import Locked
from xq.operators.keys import key_as_text, key_in_text

STATUSES: Final = {  # that answer xq's errors; 400 answers all others
    **dict.fromkeys((errors.WrongState, errors.NotOwner), 409),
    **dict.fromkeys((errors.NotRunning, errors.NotInstalled, errors.ConfigurationError, Locked), 503),
    errors.NotFound: 404,
    errors.FeatureOff: 400,
}
COLUMNS: Final = 6  # the application's fields in a list
LISTED: Final = ("error", "attempts", "awaits", "tube", "utube", "priority")  # roles that a list shows first, in order


@dataclass(frozen=True)
class ConsoleQueue:
    """One queue in the console. `slug` is its name in URLs: tube names may have slashes and quotes."""

    slug: str
    name: str
    queue: Queue[Any]
    is_tube: bool

    @cached_property
    def roles(self) -> dict[str, str]:
        """The roles by field."""
        return {field: role for role, field in self.queue.roles.items()}

    @property
    def keeps_history(self) -> bool:
        return self.queue.machine.settings.history is not None

    def rows(self, tasks: Iterable[Any]) -> list[dict[str, Any]]:
        """Return tasks' fields by name, whatever form the feature retval gives the tasks."""
        return [dict(self.queue.parts.tasks.data(task)) for task in tasks]

    def state(self, row: dict[str, Any]) -> str | None:
        """Return the letter for the state that a row's status means; None if the row is no task."""
        return self.queue.parts.definition.state_of(row.get(self.queue.roles["status"]))

    def records(self, row: dict[str, Any]) -> list[Any]:
        """Return what a task has recorded by the feature steps, and its signals."""
        from xq.features.steps.records import records

        return records(self.queue.parts, row) if "steps" in self.queue.roles else []

    def drawn(self, group: str) -> dict[str, Any]:
        """Return the members of a group as boxes and lines: each task below its parents."""
        graph = self.queue.parts.groups.graph(group)
        places = {key: (160 * x, 80 * y) for y, keys in enumerate(graph.layers()) for x, key in enumerate(keys)}
        boxes = [(*place, self.key_text(key), *graph.nodes[key]) for key, place in places.items()]
        lines = [(*places[parent], *places[dependant]) for parent, dependant in graph.links]
        size = [max((place[axis] for place in places.values()), default=0) + 160 for axis in (0, 1)]
        return {"boxes": boxes, "lines": lines, "width": size[0], "height": size[1] - 120, "more": graph.more}

    def key(self, text: str) -> Any:
        """Return a key as the application has it. Raises HTTPException."""
        try:
            return key_in_text(self.queue.parts.tasks, text)
        except BadValue as error:
            raise HTTPException(404, f"{error}.") from error

    def key_text(self, key: Any) -> str:
        """Return a key, or the one among a task's fields, as text for `key`."""
        parts = [key[name] for name in self.queue.parts.store.key] if isinstance(key, dict) else key
        return key_as_text(parts if isinstance(parts, (list, tuple)) else [parts])

    def offers(self, may: frozenset[str], states: Iterable[str]) -> list[str]:
        """Return the permitted verbs that move tasks in at least one given state."""
        return [act.name for act in ACTS.values() if act.name in may and act.moves(self.queue.machine, states)]

    def columns(self, rows: list[dict[str, Any]]) -> dict[str, str]:
        """Return the fields that any task fills, with their titles. A number's title begins with #."""
        used = [name for name in (rows[0] if rows else ()) if any(row[name] not in (None, "", 0) for row in rows)]
        shown = [name for role in LISTED if (name := self.queue.roles.get(role)) in used]
        others = {*self.roles, *self.queue.parts.store.key}
        shown += [name for name in used if name not in others and not name.startswith("xq_")][:COLUMNS]
        numbers = {field.name for field in self.queue.parts.tasks.table.fields if field.kind in NUMBERS}
        return {name: "#" * (name in numbers) + name for name in shown}

    def in_order(self, row: dict[str, Any]) -> list[str]:
        """Return the field names: first the application's, then the queue's, then the empty ones."""
        names = [name for name in row if name not in self.roles or row[name] is not None]
        return sorted(names, key=lambda name: (row[name] is None, name in self.roles))


def entries_of(given: object) -> tuple[ConsoleQueue, ...]:
    """Return the queues for models, handles and tubes, or for a mapping by name. Raises BadType and BadValue."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        given = [given]
    found: dict[str, ConsoleQueue] = {}
    for called, each in given.items() if isinstance(given, Mapping) else ((None, each) for each in given):
        if called is not None and (not isinstance(called, str) or not called or not fits_a_column(called)):
            raise BadType(f"a queue is named by text, not by {shown(called)}")
        queue = queue_of(each)
        is_tube = each is not queue and getattr(each, "xq", None) is not queue
        name = called or str(getattr(each, "name", queue.name) if is_tube else queue.name)
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:80] or "queue"
        slug = next(slug for n in count(1) if (slug := plain if n == 1 else f"{plain}-{n}") not in found)
        if all(queue is not other.queue for other in found.values()):
            found[slug] = ConsoleQueue(slug, name, queue, is_tube)
    if not found:
        raise BadValue("a console shows at least one queue: xq.serve.app([Page])")
    return tuple(found.values())


def on(entry: ConsoleQueue | None, call: Callable[[], R], kept: ExitStack | None = None) -> R:
    """Make a call with this thread's connection to a queue's database. Raises HTTPException if that fails.

    With `kept` the connection closes when that does, so the thread's further calls on this database use it too.
    """
    if entry is None:
        return call()
    store, failed = entry.queue.parts.store, "gives no connection"
    try:
        with ExitStack() as closing:
            (closing if kept is None else kept).enter_context(store.briefly_connected())
            failed = "does not answer"
            entry.queue.parts.doctor.check_lock()
            return call()
    except (Error, HTTPException):
        raise
    except Exception as error:
        kind = store.classify(error)
        if kind is ErrorKind.NOT_DATABASE and failed == "does not answer":  # else a pool has none
            raise
        why = "only reads, so nothing was changed" if kind is ErrorKind.READ_ONLY else f"{failed}: {error}"
        raise HTTPException(503, f"The database of {entry.name} {why}") from error


def status_of(error: Error) -> int:
    """Return the status that answers an error from xq. Its message is already a sentence for its user."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 400)
