"""Pauses: a queue, or one of its tubes, from which no process takes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from xq.core.acting import By
from xq.core.errors import BadValue
from xq.engine.binding import Binding
from xq.engine.executor import Executor

LONGEST_NAME: Final = 255  # characters in a paused tube's or a schedule's name: both are keys in the database


class Paused(NamedTuple):
    """What is paused in one queue."""

    queue: bool  # the whole queue
    tubes: tuple[str, ...]  # in name order, so that equal pauses have one compiled take

    def stops(self, tube: str | None) -> bool:
        """Return whether a take from this tube (None: from any) finds nothing."""
        return self.queue or tube in self.tubes


class Pause(NamedTuple):
    """A pause of a queue, or of one of its tubes."""

    tube: str | None  # None: the whole queue
    since: float  # seconds since 1970
    actor: str | None
    reason: str | None


class Pauses:
    """One queue's pauses. A take reads them in memory, so it costs no statement.

    They are read from the database when a process begins to take, after its own calls, and by its maintenance thread.
    """

    def __init__(self, executor: Executor, resumed: Callable[[], None]) -> None:
        self.executor = executor
        self.paused: Paused | None = None  # as last read; None if nothing is paused
        self.binding: Binding | None = None  # the one for which it was read
        self.uncommitted: set[int] = set()  # the threads whose open transactions have paused or resumed
        self._resumed = resumed  # wakes the waiters
        self._begun = itertools.count(1)
        self._last = 0  # the number of the last read to begin, among those that have ended
        self._lock = threading.Lock()

    def change(self, event: str, tube: str | None, by: By) -> None:
        """Pause or resume (`event`) the queue, or a tube. Does nothing if that is so already."""
        if event == "pause" and tube is not None and len(tube) > LONGEST_NAME:
            raise BadValue(f"a tube to pause has a name of at most {LONGEST_NAME} characters, not {len(tube)}")
        self.executor.begin()
        records = self.executor.dialect.records
        sql = records.pause if event == "pause" else records.resume
        self.executor.run(sql, {"whole": int(tube is None), "tube": tube or "", **by._asdict()})
        if self.executor.store.in_transaction():
            self.uncommitted.add(threading.get_ident())
        self.executor.store.after_commit(self._read_after_commit)

    def _read_after_commit(self) -> None:
        self.uncommitted.discard(threading.get_ident())
        try:  # to read: the transaction may have been rolled back to a savepoint
            self.read()
        except Exception:  # the pause is committed
            self.binding = None  # the next take reads it

    def listed(self) -> list[str | None]:
        """Return the paused tubes, as the database has them; None for the whole queue comes first."""
        return [pause.tube for pause in self.all()]

    def all(self) -> list[Pause]:
        """Return the pauses, as the database has them; the whole queue's comes first."""
        with self.executor.store.bookkeeping():
            rows = self.executor.run(self.executor.dialect.records.pauses)
        found = [
            Pause(None if whole else tube, since / 1_000_000, actor, reason)
            for tube, whole, since, actor, reason in rows
        ]
        return sorted(found, key=lambda pause: (pause.tube is not None, pause.tube or ""))

    def look(self) -> Paused | None:
        """Return the pauses for a take in this thread, whose open transaction may have paused or resumed."""
        if threading.get_ident() in self.uncommitted:
            if self.executor.store.in_transaction():
                return self._paused(self.listed())
            self.uncommitted.discard(threading.get_ident())  # it was rolled back
        if self.binding is not self.executor.open():
            self.read()
        return self.paused

    def read(self) -> None:
        self.end(self.begin(), self.listed())

    def begin(self) -> int:
        """Return the number for a read that begins now."""
        return next(self._begun)

    def end(self, began: int, names: Collection[str | None]) -> None:
        """Use a read's result, as `listed` returns it, unless a newer one has ended before."""
        binding, paused = self.executor.open(), self._paused(names)
        with self._lock:
            if began < self._last:
                return
            before, self._last = self.paused, began
            self.binding, self.paused = binding, paused
        if before is not None and before != paused:
            self._resumed()

    def _paused(self, names: Collection[str | None]) -> Paused | None:
        has_tubes = "tube" in self.executor.definition.machine.roles  # else they were paused under another definition
        paused = Paused(None in names, tuple(sorted(name for name in names if name is not None and has_tubes)))
        return paused if any(paused) else None

    def forked(self) -> None:
        """Replace the lock in a forked child: one of the parent's threads may have held it."""
        self._lock = threading.Lock()
        self.uncommitted.clear()
