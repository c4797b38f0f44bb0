"""Pauses: a queue, or one of its tubes or groups, from which no process takes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from xq.core.acting import By
from xq.core.compile import SKIPS
from xq.core.errors import BadValue
from xq.engine.binding import Binding
from xq.engine.executor import Executor

GROUP: Final = 2  # what `whole` is in a group's pause; 1 in the whole queue's, 0 in a tube's
LONGEST_NAME: Final = 255  # characters in a paused tube's or a schedule's name: both are keys in the database


class Paused(NamedTuple):
    """What is paused in one queue."""

    queue: bool  # the whole queue
    tubes: tuple[str, ...]  # in name order, so that equal pauses are equal
    groups: tuple[str, ...]

    def stops(self, tube: str | None) -> bool:
        """Return whether a take from this tube (None: from any) finds nothing."""
        return self.queue or tube in self.tubes


class Skips(NamedTuple):
    """The names that a take skips; for the roles in SKIPS."""

    tubes: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def values(self) -> dict[str, str]:
        return {f"{name}{i}": each for name, of in zip(SKIPS.values(), self) for i, each in enumerate(of)}


class Pause(NamedTuple):
    """A pause of a queue, or of one of its tubes or groups."""

    tube: str | None  # None: the whole queue, or a group
    since: float  # seconds since 1970
    actor: str | None
    reason: str | None

    @property
    def group(self) -> str | None:
        """The name of the group; None if it is the pause of a queue or a tube."""
        return None

    @property
    def row(self) -> tuple[str, int]:
        """Its name and its `whole`, as the database has them."""
        return (self.tube or "", int(self.tube is None)) if self.group is None else (self.group, GROUP)


class GroupPause(Pause):
    """The pause of a group, whose name is its first item."""

    __slots__ = ()

    @property
    def tube(self) -> None:
        return None

    @property
    def group(self) -> str:
        return str(self[0])


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

    def change(self, event: str, tube: str | None, by: By, group: str | None = None) -> None:
        """Pause or resume (`event`) the queue, a tube or a group. Does nothing if that is so already."""
        if event == "pause" and tube is not None and len(tube) > LONGEST_NAME:
            raise BadValue(f"a tube to pause has a name of at most {LONGEST_NAME} characters, not {len(tube)}")
        self.executor.begin()
        records = self.executor.dialect.records
        sql = records.pause if event == "pause" else records.resume
        name, whole = (tube or "", int(tube is None)) if group is None else (group, GROUP)
        self.executor.run(sql, {"whole": whole, "tube": name, **by._asdict()})
        if self.executor.store.in_transaction():
            self.uncommitted.add(threading.get_ident())
        self.executor.store.after_commit(self.read_after_commit)

    def read_after_commit(self) -> None:
        self.uncommitted.discard(threading.get_ident())
        try:  # to read: the transaction may have been rolled back to a savepoint
            self.read()
        except Exception:  # the pause is committed
            self.binding = None  # the next take reads it

    def listed(self) -> list[str | None]:
        """Return the paused tubes, as the database has them; None for the whole queue comes first."""
        return [pause.tube for pause in self.all() if pause.group is None]

    def all(self) -> list[Pause]:
        """Return the pauses, as the database has them; the whole queue's comes first, and those of groups last."""
        with self.executor.store.bookkeeping():
            rows = self.executor.run(self.executor.dialect.records.pauses)
        found = [
            GroupPause(name, since / 1_000_000, actor, reason)
            if whole == GROUP
            else Pause(None if whole else name, since / 1_000_000, actor, reason)
            for name, whole, since, actor, reason in rows
        ]
        return sorted(found, key=lambda pause: (pause.group or "", pause.tube is not None, pause.tube or ""))

    def look(self) -> Paused | None:
        """Return the pauses for a take in this thread, whose open transaction may have paused or resumed."""
        if threading.get_ident() in self.uncommitted:
            if self.executor.store.in_transaction():
                return self.of(pause.row for pause in self.all())
            self.uncommitted.discard(threading.get_ident())  # it was rolled back
        if self.binding is not self.executor.open():
            self.read()
        return self.paused

    def read(self) -> None:
        self.end(self.begin(), (pause.row for pause in self.all()))

    def begin(self) -> int:
        """Return the number for a read that begins now."""
        return next(self._begun)

    def end(self, began: int, rows: Iterable[tuple[str, int]]) -> None:
        """Use a read's result, each `Pause.row`, unless a newer one has ended before."""
        binding, paused = self.executor.open(), self.of(rows)
        with self._lock:
            if began < self._last:
                return
            before, self._last = self.paused, began
            self.binding, self.paused = binding, paused
        if before is not None and before != paused:
            self._resumed()

    def of(self, rows: Iterable[tuple[str, int]]) -> Paused | None:
        """Return what these pauses stop; None for nothing."""
        names, machine = sorted(rows), self.executor.definition.machine
        of = [tuple(name for name, whole in names if whole == kind) for kind in (1, 0, GROUP)]
        # Without the role, or the feature, they were paused under another definition.
        paused = Paused(bool(of[0]), of[1] * ("tube" in machine.roles), of[2] * machine.settings.groups)
        return paused if any(paused) else None

    def forked(self) -> None:
        """Replace the lock in a forked child: one of the parent's threads may have held it."""
        self._lock = threading.Lock()
        self.uncommitted.clear()
