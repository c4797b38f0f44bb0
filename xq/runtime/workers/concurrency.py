"""Slots: at most so many functions run at a time, in all programs that use one name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xq.core.errors import ConfigurationError, shown
from xq.engine.pauses import LONGEST
from xq.engine.unit import Database

MOST = 10_000  # slots of one name
ASK = 0.2  # seconds until the database is asked again for a free slot, unless this process frees one


@dataclass(frozen=True)
class Concurrency:
    """At most `n` functions run at a time in all workers, of whatever queues and programs, that use this name.

    The slots are rows in the database, so the queues must be in one. All programs give the same `n`. The slots of a
    process that has died are free as soon as its session is reaped. Raises ConfigurationError.
    """

    name: str
    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= LONGEST:
            raise ConfigurationError(f"Concurrency has a name of 1 to {LONGEST} characters, not {shown(self.name)}")
        if isinstance(self.n, bool) or not isinstance(self.n, int) or not 0 < self.n <= MOST:
            raise ConfigurationError(f"Concurrency has a number of 1 to {MOST:,} functions, not {shown(self.n)}")


class Slots:
    """The slots of one Concurrency, for one worker of this process."""

    def __init__(self, concurrency: Concurrency, database: Database) -> None:
        self._concurrency = concurrency
        self._database = database
        self._added = False
        self._turn = threading.Lock()  # one thread of the worker asks for a free slot, and the others wait for it
        self._freed = threading.Event()  # set when this worker frees a slot in this process

    def take(self) -> int | None:
        """Take a slot for the current session, and return its number; None if none is free."""
        if not self._added:
            self._add()
        return self._database.unit(self._take, transaction=True)

    def _add(self) -> None:
        for slot in range(1, self._concurrency.n + 1):
            self._run(self._database.dialect.add_slot, slot=slot)
        self._added = True

    def _take(self) -> int | None:
        self._database.begin_writing()
        free = self._run(self._database.dialect.free_slot, n=self._concurrency.n)
        if not free:
            return None
        ((slot,),) = free
        self._run(self._database.dialect.take_slot, slot=slot, uuid=self._database.open().sessions.to_take().uuid)
        return int(slot)

    def leave(self, slot: int) -> None:
        """Free a slot, unless another session has it by now."""
        self._run(self._database.dialect.leave_slot, slot=slot, uuid=self._database.open().sessions.to_take().uuid)
        self._freed.set()

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self._database.execute(sql, {"name": self._concurrency.name, **values})

    def wait_for(self, take: Callable[[], int | None], gives_up: Callable[[], bool]) -> int | None:
        """Return what `take` returns at last, or None when the caller gives up."""
        with self._turn:
            while not gives_up():
                self._freed.clear()
                if (slot := take()) is not None:
                    return slot
                self._freed.wait(ASK)
        return None
