"""Slots: at most so many tasks are taken at a time, in all programs that use one name.

A slot is a row of the database. A worker that has seen a ready task takes slots, then at most as many tasks, and frees
the slots without a task. It frees the others when their tasks are acked, released, buried or deleted. So an
idle worker has no slot, and a task without a slot stays ready: the worker leaves the wait queue before it waits for a
slot, which wakes the next waiter. A slot belongs to a session: once that is reaped, its tasks and its slots are free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from xq.core.errors import ConfigurationError, is_integer, shown
from xq.engine.executor import Executor
from xq.engine.pauses import LONGEST_NAME

if TYPE_CHECKING:
    from xq.database.sessions import Session

MOST_SLOTS = 10_000  # that one name has
SLOT_PAUSE = 0.2  # seconds until the database is asked again for a free slot, unless this process frees one


@dataclass(frozen=True)
class Concurrency:
    """At most `n` tasks are taken at a time by all workers, of whatever queues and programs, that use this name.

    The slots are rows in the database, so the queues must be in one. All programs give the same `n`. A worker takes a
    slot before it knows the task: limits by a task's value are those of the feature utube, with `of`. The slots of a
    process that has died are free as soon as its session is reaped. Raises ConfigurationError.
    """

    name: str
    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= LONGEST_NAME:
            raise ConfigurationError(
                f"Concurrency has a name of 1 to {LONGEST_NAME} characters, not {shown(self.name)}"
            )
        if not is_integer(self.n) or not 0 < self.n <= MOST_SLOTS:
            raise ConfigurationError(f"Concurrency has a number of 1 to {MOST_SLOTS:,} tasks, not {shown(self.n)}")


class NoSlot(Exception):
    """A task is ready, and no slot is free."""


@dataclass(frozen=True, eq=False)
class TakenSlot:
    """A slot that a session takes. The take may have failed: then another one of the session may get the slot."""

    number: int
    session: Session


class Slots:
    """The slots that one worker takes of a Concurrency in this process."""

    def __init__(self, concurrency: Concurrency, executor: Executor) -> None:
        self._concurrency = concurrency
        self._executor = executor
        self._added = False
        self._taken = deque[TakenSlot]()
        self._turn = threading.Lock()  # one thread of the worker waits for a free slot, and the others wait for it
        self._freed = threading.Event()  # set when this worker frees a slot in this process

    def take(self, n: int, leave: Callable[[int], None]) -> int:
        """Take up to `n` slots for the current session, and return their number. Raises NoSlot if none is free.

        If the take fails, it may have been committed all the same: `leave` frees so many of the slots.
        """
        binding = self._executor.open()
        session = binding.sessions.to_take()
        session.register(self._executor)  # else its slots would count as those of an ended one
        if not self._added:
            for slot in range(1, self._concurrency.n + 1):
                self._run(binding.dialect.shared.add_slot, slot=slot)
            self._added = True
        taken: list[TakenSlot] = []
        try:
            self._executor.transaction(partial(self._take, n, session, taken))
        except BaseException:
            self._taken.extend(taken)
            leave(len(taken))
            raise
        if not taken:
            raise NoSlot
        self._taken.extend(taken)
        return len(taken)

    def _take(self, n: int, session: Session, taken: list[TakenSlot]) -> None:
        free = self._run(self._executor.dialect.shared.free_slots, most=self._concurrency.n, n=n)
        taken[:] = [TakenSlot(slot, session) for (slot,) in free]
        for each in taken:
            self._run(self._executor.dialect.shared.take_slot, slot=each.number, uuid=session.uuid)
            session.slots[self._concurrency.name, each.number] = each

    def leave(self) -> None:
        """Free one of these slots, unless another session, or another take of this one, has it by now."""
        if self._taken:  # not within run_pending, which takes none
            taken = self._taken.popleft()
            try:
                if taken.session.slots.get((self._concurrency.name, taken.number)) is taken:
                    self._run(self._executor.dialect.shared.leave_slot, slot=taken.number, uuid=taken.session.uuid)
            except BaseException:
                self._taken.appendleft(taken)
                raise
            self._freed.set()

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self._executor.run(sql, {"name": self._concurrency.name, **values})

    def wait(self, stop: threading.Event) -> None:
        """Wait until this process frees a slot, or for SLOT_PAUSE seconds, but not after `stop`."""
        with self._turn:
            if not stop.is_set() and self._freed.wait(SLOT_PAUSE):
                self._freed.clear()
