"""Moving many tasks for nobody in particular: what is due, and what is held by who is gone.

A row that the database keeps where it is, since a constraint or a trigger of the application's says so, stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from xq.core.compile import Fence, Rows
from xq.core.errors import BadValue
from xq.core.machine import TAKEN, Transition
from xq.core.values import Parts, named
from xq.engine.transitions import BATCH, Call, Transitions


class Moved(NamedTuple):
    """How many tasks have moved, and how many the database does not let go."""

    moved: int
    refused: int = 0


class Batches:
    """Of one queue."""

    def __init__(self, transitions: Transitions) -> None:
        self.database = transitions.database
        self.store = transitions.store
        self.machine = transitions.machine
        self.transitions = transitions
        self.log = logging.getLogger(f"xq.{self.store.name}")
        # Keys of tasks that could not be moved, and were told of.
        self._stuck: dict[tuple[object, ...], set[Any]] = {}

    def give_back(self, first: str, end: str, event: str) -> None:
        """Release, as the event `event`, what is held by marks from one on, and before another: all, or it raises."""
        which, release, values = self._held(first, end)
        while self._batch(Call(event), which, release, values):
            pass

    def give_back_what_goes(self, first: str, end: str, event: str, fence: Fence) -> int:
        """The same, but for what the database does not let go. Returns how many tasks that are."""
        which, release, values = self._held(first, end)
        one = Rows("key", TAKEN, fence)
        while (found := self.move(Call(event), which, one, release, values)).moved:
            pass
        return found.refused

    def _held(self, first: str, end: str) -> tuple[Rows, Transition, dict[str, Any]]:
        release = self.transitions.choose(TAKEN, Call("release"))
        return Rows("held", TAKEN), release, {"session": first, "session_end": end, "mark": first}

    def move_due(self, timer: Transition) -> Moved:
        """Move a batch of what a timer makes due."""
        which, one = (Rows(way, timer.source, column=timer.due) for way in ("due", "key"))
        return self.move(Call(timer.event), which, one, timer, {})

    def move(self, call: Call, which: Rows, one: Rows, transition: Transition, values: Mapping[str, Any]) -> Moved:
        """Have a batch of these tasks make a transition; `one` is any of them by its key, if it still is of these."""
        look = (which, *values.values())
        try:
            moved = Moved(self._batch(call, which, transition, values))
            if moved.moved < BATCH:
                self._stuck.pop(look, None)
        except Exception as error:
            if not self.is_refused(error):
                raise
            moved = self._singly(call, which, one, transition, values, look)
        if moved.moved:
            self.log.debug("%s: %d tasks %s-%s", call.event, moved.moved, transition.source, transition.target)
        return moved

    def is_refused(self, error: Exception) -> bool:
        """Whether the database keeps a task where it is, or has no place for what it holds where it would come.

        Not where it would let none go, for want of a right: that is told to who asks for the move.
        """
        store = self.store
        if isinstance(error, BadValue):
            return True
        return store.is_failure(error) and not store.may_pass(error) and not store.is_denied(error)

    def _batch(self, call: Call, which: Rows, transition: Transition, values: Mapping[str, Any]) -> int:
        run = partial(self.transitions.run, self.database.open(), call, which, transition, {**values, "n": BATCH})
        return len(self.database.guarded(run))

    def _singly(
        self,
        call: Call,
        which: Rows,
        one: Rows,
        transition: Transition,
        values: Mapping[str, Any],
        look: tuple[object, ...],
    ) -> Moved:
        moved, refused, n = 0, 0, BATCH
        tried, stuck, told = set[Parts](), set[Any](), self._stuck.get(look, set())
        listing = self.database.dialect.listing(which)
        while True:
            listed = [tuple(parts) for parts in self.database.execute(listing, {**values, "n": n})]
            for parts in listed:
                if parts in tried:
                    continue
                tried.add(parts)
                try:
                    found = {**values, **named(parts)}
                    run = partial(self.transitions.run, self.database.open(), call, one, transition, found)
                    # A transaction for each: a constraint may be looked at only as that ends.
                    moved += len(self.database.whole(run))
                except Exception as error:
                    if not self.is_refused(error):
                        raise
                    key = self.transitions.tasks.app_key(parts)
                    level = logging.DEBUG if key in told else logging.WARNING  # it is tried again and again
                    self.log.log(level, "%s cannot move task %r: %s", call.event, key, error)
                    stuck.add(key)
                    refused += 1
            if moved or len(listed) < n:
                break
            n = 2 * n  # behind those that cannot be moved
        # Those that are found no more are forgotten, where this has seen all that are.
        self._stuck[look] = stuck if len(listed) < n else stuck | told
        return Moved(moved, refused)
