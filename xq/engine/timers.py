"""Batch transitions without a caller: expired timers, and orphaned tasks. And history that is no longer kept.

A row that the database keeps where it is, because of a constraint or a trigger of the application's, stops no other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from xq.core.compile import Fence, Selector, Statement
from xq.core.errors import BadValue
from xq.core.machine import TAKEN, Transition
from xq.core.ports import FAULTS
from xq.core.values import Parts, named
from xq.engine.steps import BATCH, Steps

SWEEP_AFTER = 0.05  # seconds: a process that takes without end looks this often for due tasks


class Moved(NamedTuple):
    """How many tasks have moved, and how many the database does not let go."""

    moved: int
    refused: int = 0


class Batches:
    """Batch transitions of one queue."""

    def __init__(self, steps: Steps) -> None:
        self.database = steps.database
        self.store = steps.store
        self.machine = steps.machine
        self.tasks = steps.tasks
        self.steps = steps
        self.log = logging.getLogger(f"xq.{self.store.name}")
        # Keys of tasks that could not be moved, and were told of.
        self._stuck: dict[tuple[object, ...], set[Any]] = {}

    def give_back(self, first: str, end: str, event: str) -> None:
        """Release, as the event `event`, what is held by marks from one on, and before another: all, or it raises."""
        which, release, values = self._held(first, end)
        while self._batch(event, which, release, values):
            pass

    def give_back_what_goes(self, first: str, end: str, event: str, fence: Fence) -> int:
        """The same, but for what the database does not let go. Returns how many tasks that are."""
        which, release, values = self._held(first, end)
        one = Selector("key", TAKEN, fence)
        while (found := self.move(event, which, one, release, values)).moved:
            pass
        return found.refused

    def _held(self, first: str, end: str) -> tuple[Selector, Transition, dict[str, Any]]:
        release = self.tasks.choose(TAKEN, "release", {})
        return Selector("held", TAKEN), release, {"session": first, "session_end": end, "mark": first}

    def move_due(self, timer: Transition) -> Moved:
        """Move a batch of what a timer makes due."""
        which, one = (Selector(way, timer.source, column=timer.due) for way in ("due", "key"))
        return self.move(timer.event, which, one, timer, {})

    def move(
        self, event: str, which: Selector, one: Selector, transition: Transition, values: Mapping[str, Any]
    ) -> Moved:
        """Have a batch of these tasks make a transition; `one` is any of them by its key, if it still is of these."""
        look = (which, *values.values())
        try:
            moved = Moved(self._batch(event, which, transition, values))
            if moved.moved < BATCH:
                self._stuck.pop(look, None)
        except Exception as error:
            if not self.is_refused(error):
                raise
            moved = self._singly(event, which, one, transition, values, look)
        if moved.moved:
            self.log.debug("%s: %d tasks %s-%s", event, moved.moved, transition.source, transition.target)
        return moved

    def is_refused(self, error: Exception) -> bool:
        """Whether the database keeps a task where it is, or has no place for what it holds where it would come.

        Not where it would let none go, for want of a right: that is told to who asks for the move.
        """
        return isinstance(error, BadValue) or self.store.classify(error) in FAULTS

    def _batch(self, event: str, which: Selector, transition: Transition, values: Mapping[str, Any]) -> int:
        return self._run(event, which, transition, {**values, "n": BATCH}, guarded=True)

    def _run(
        self, event: str, which: Selector, transition: Transition, values: Mapping[str, Any], guarded: bool = False
    ) -> int:
        connection = self.database.begin()
        binding = self.database.open()
        step = self.steps.move(binding, event, which, transition)
        run = partial(self.database.perform, step, connection, {**self.database.values(), **values})
        if guarded and connection.in_transaction and self.store.driver.errors_end_transactions:
            return len(self.database.unit(run, transaction=True))
        return len(run())

    def _singly(
        self,
        event: str,
        which: Selector,
        one: Selector,
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
                    run = partial(self._run, event, one, transition, found)
                    # A transaction for each: a constraint may be looked at only as that ends.
                    moved += self.database.unit(run, transaction=True)
                except Exception as error:
                    if not self.is_refused(error):
                        raise
                    key = self.tasks.app_key(parts)
                    level = logging.DEBUG if key in told else logging.WARNING  # it is tried again and again
                    self.log.log(level, "%s cannot move task %r: %s", event, key, error)
                    stuck.add(key)
                    refused += 1
            if moved or len(listed) < n:
                break
            n = 2 * n  # behind those that cannot be moved
        # Those that are found no more are forgotten, where this has seen all that are.
        self._stuck[look] = stuck if len(listed) < n else stuck | told
        return Moved(moved, refused)


class Swept(NamedTuple):
    """What a sweep has found to do."""

    due: bool  # whether anything was due
    moved: int  # tasks
    forgotten: int  # rows of the history
    refused: int = 0  # tasks that the database does not let go
    refreshed: int = 0  # of tasks that have become ready


class Timers:
    """Due tasks of one queue, and history that is no longer kept."""

    def __init__(self, batches: Batches) -> None:
        self.database = batches.database
        self.store = batches.store
        self.batches = batches
        self.machine = batches.machine
        self.swept_at = 0.0  # the monotonic time

    def seconds(self) -> float | None:
        """In how many seconds something falls due: less than none for what is late, None for never."""
        asked = self.database.dialect.next_due
        ((seconds,),) = self.database.execute(asked) if asked else [(None,)]
        return None if seconds is None else float(seconds)

    def sweep_if_any(self) -> Swept:
        """As `sweep_batch`, if anything is due."""
        seconds = self.seconds()
        is_due = seconds is not None and seconds <= 0 and self.database.may_move
        swept = self.sweep_batch() if is_due else Swept(False, 0, 0)
        self.swept_at = time.monotonic()
        return swept

    def sweep(self) -> int:
        """Move what is due until nothing is, and forget what is history. Returns how many moves that were."""
        moves = 0
        while (swept := self.sweep_batch()).moved or swept.refreshed or swept.forgotten == BATCH:
            moves += swept.moved
        return moves

    def sweep_batch(self) -> Swept:
        """Move a batch of what each timer makes due, and forget a batch of history."""
        self.database.begin_writing()
        swept = [self.batches.move_due(timer) for timer in self.machine.due]
        moved, refused = (sum(numbers) for numbers in zip(*swept, strict=True)) if swept else (0, 0)
        return Swept(True, moved, self._forget(), refused, self.refresh_groups())

    def refresh_groups(self, mine: bool = False) -> int:
        """Have takes find what they do not without, `mine` since the open transaction began. Returns how much."""
        database = self.database
        return database.open().dialect.refresh_groups(
            self.store, database.unit, partial(database.unit, transaction=True), mine
        )

    def _forget(self) -> int:
        """Delete a batch of the history that is older than the feature keeps it. Returns how many rows."""
        binding = self.database.open()
        forget = binding.dialect.forget_history
        values = self.database.values() | {"n": BATCH}
        return self.database.change(binding, Statement(forget), values) if forget else 0
