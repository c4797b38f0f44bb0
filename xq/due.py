"""What time brings about in one queue: tasks that fall due, history that is forgotten, and news that takes need."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any, NamedTuple

from xq.compile import Rows, Statement
from xq.errors import BadValue
from xq.machine import Transition
from xq.tasks import Parts, named
from xq.transitions import BATCH, Call, Transitions

SWEEP_AFTER = 0.05  # seconds: a process that takes without end looks this often for what fell due


class Swept(NamedTuple):
    """What a sweep has found to do."""

    due: bool  # whether anything was due
    moved: int  # tasks
    forgotten: int  # rows of the history
    refused: int = 0  # tasks that the database does not let go
    news: int = 0  # of tasks that have become ready


class Due:
    """What is due in one queue."""

    def __init__(self, transitions: Transitions) -> None:
        self.database = transitions.database
        self.store = transitions.store
        self.transitions = transitions
        self.machine = transitions.machine
        self.log = logging.getLogger(f"xq.{self.store.name}")
        self._swept_at = 0.0  # the monotonic time
        # Keys of tasks that could not be moved, and were told of.
        self._stuck: dict[Transition, set[Any]] = {}

    def seconds(self) -> float | None:
        """In how many seconds something falls due: less than none for what is late, None for never."""
        asked = self.database.dialect.next_due
        ((seconds,),) = self.database.execute(asked) if asked else [(None,)]
        return None if seconds is None else float(seconds)

    @property
    def just_swept(self) -> bool:
        """Whether what fell due was moved a moment ago. Under a test's clock any time may have passed."""
        return self.database.clock is None and time.monotonic() - self._swept_at < SWEEP_AFTER

    def sweep_if_any(self) -> Swept:
        """As `sweep_batch`, if anything is due."""
        seconds = self.seconds()
        is_due = seconds is not None and seconds <= 0 and self.database.may_move
        swept = self.sweep_batch() if is_due else Swept(False, 0, 0)
        self._swept_at = time.monotonic()
        return swept

    def sweep(self) -> int:
        """Move what is due until nothing is, and forget what is history. Returns how many moves that were."""
        moves = 0
        while (swept := self.sweep_batch()).moved or swept.news or swept.forgotten == BATCH:
            moves += swept.moved
        return moves

    def sweep_batch(self) -> Swept:
        """Move a batch of what each timer makes due, and forget a batch of history."""
        self.database.begin_writing()
        swept = [self._sweep_batch(transition) for transition in self.machine.due]
        moved, refused = (sum(numbers) for numbers in zip(*swept, strict=True)) if swept else (0, 0)
        return Swept(True, moved, self._forget(), refused, self.hear_news())

    def hear_news(self, mine: bool = False) -> int:
        """Have takes find what they do not without, `mine` since the open transaction began. Returns how much."""
        database = self.database
        return database.open().dialect.hear(self.store, database.again, database.whole, mine)

    def _forget(self) -> int:
        """Delete a batch of the history that is older than the feature keeps it. Returns how many rows."""
        opened = self.database.open()
        forget = opened.dialect.forget_history
        values = self.database.values() | {"n": BATCH}
        return self.database.change(opened, Statement(forget), values) if forget else 0

    def _sweep_batch(self, transition: Transition) -> tuple[int, int]:
        """Move a batch of what one timer makes due. Returns how many that were, and how many were refused."""
        which, call = Rows("due", transition.source, column=transition.due), Call(transition.event)
        try:
            run = partial(self.transitions.run, self.database.open(), call, which, transition, {"n": BATCH})
            moved, refused = len(self.database.guarded(run)), 0
            if moved < BATCH:
                self._stuck.pop(transition, None)
        except Exception as error:
            if not self._is_refused(error):
                raise
            moved, refused = self._sweep_singly(call, which, transition)
        if moved:
            self.log.debug("%s: %d tasks %s-%s", transition.event, moved, transition.source, transition.target)
        return moved, refused

    def _is_refused(self, error: Exception) -> bool:
        """Whether the database keeps a task where it is, or has no place for what it holds where it would come.

        Not where it would let none go, for want of a right: that is told to who sweeps.
        """
        store = self.store
        if isinstance(error, BadValue):
            return True
        return store.is_failure(error) and not store.may_pass(error) and not store.is_denied(error)

    def _sweep_singly(self, call: Call, which: Rows, transition: Transition) -> tuple[int, int]:
        """Move what is due one by one: rows that the database keeps, since others refer to them, stop no others."""
        moved, refused, n = 0, 0, BATCH
        tried: set[Parts] = set()
        stuck, told = set[Any](), self._stuck.get(transition, set())
        one = Rows("key", transition.source)
        while True:
            due = [tuple(parts) for parts in self.database.execute(self.database.dialect.due(which), {"n": n})]
            for parts in due:
                if parts in tried:
                    continue
                tried.add(parts)
                try:
                    run = partial(self.transitions.run, self.database.open(), call, one, transition, named(parts))
                    moved += len(self.database.guarded(run))
                except Exception as error:
                    if not self._is_refused(error):
                        raise
                    key = self.transitions.tasks.app_key(parts)
                    level = logging.DEBUG if key in told else logging.WARNING  # it is tried again and again
                    self.log.log(level, "%s cannot move task %r: %s", transition.event, key, error)
                    stuck.add(key)
                    refused += 1
            if moved or len(due) < n:
                break
            n = 2 * n  # behind those that cannot be moved
        # Those that are due no more are forgotten, where this has seen all that are.
        self._stuck[transition] = stuck if len(due) < n else stuck | told
        return moved, refused
