"""Batch transitions without a caller: expired timers and orphaned tasks. Also the deletion of old history.

If a constraint or a trigger of the application rejects the move of one row, the others still move.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from xq.core import time
from xq.core.compile import EVERYWHERE, Fence, Lost, Selector, Window
from xq.core.errors import BadValue, shown
from xq.core.kinds import PERMANENT
from xq.core.machine import DIRTY_HEADS, OLD_HISTORY, PLUS_ONE, READY, SETTLE, TAKEN, UNTIMED, Transition, duty_of
from xq.core.tokens import OUTAGE, lock_of
from xq.core.values import Key, named
from xq.core.words import never_finished
from xq.engine.executor import Begun
from xq.engine.floors import Floors
from xq.engine.statements import PER_MOVE, Statements
from xq.sql.queries import LATE

PAUSE_IN_VAIN = 0.5  # seconds that the maintenance thread pauses after a batch that moved nothing
ROUNDED = 0.001  # seconds by which a moment read from the database may differ: SQLite's julianday() is exact to 40 us
LOSSES: Final = ("died", OUTAGE, "ttr")  # the events by which a take ends that nobody has ended
NAMED: Final = 5  # tasks that the log names
READ_ALL: Final = 0.9  # seconds between two looks at all timers, where the others read only the times around now
SWEEP_AFTER = 0.05  # seconds between two sweeps of a process that takes continuously


Look = tuple[object, ...]  # a selector, and its values if it selects owned tasks


class Moved(NamedTuple):
    """The number of moved tasks, and of tasks that the database rejected."""

    moved: int
    refused: int = 0


class UnattendedMoves:
    """Batch transitions of one queue."""

    def __init__(self, statements: Statements) -> None:
        self.executor = statements.executor
        self.store = statements.store
        self.machine = statements.machine
        self.tasks = statements.tasks
        self.statements = statements
        self.log = logging.getLogger(f"xq.{self.store.name}")
        # Keys of the tasks whose rejected move was logged, by selector and values.
        self._stuck: dict[Look, set[Any]] = {}

    def give_back(self, ranges: Sequence[tuple[str, str]], event: str) -> None:
        """Release, recorded as `event`, all tasks with tokens in these ranges, each from a first to before an end.

        Raises if the database rejects one.
        """
        which, release, values = self._owned(ranges)
        for name, lost, row in self._losses(event, release):
            some = which._replace(lost=lost)
            while self._run(name, some, row, {**values, "n": PER_MOVE}, caught=True) == PER_MOVE:
                pass

    def give_back_except_rejected(self, first: str, end: str, event: str, fence: Fence = "session") -> int:
        """Release as `give_back`, except the tasks that the database rejects. Return their number."""
        which, release, values = self._owned([(first, end)])
        values |= {"session": first, "token": first}
        if fence == "take":
            release, values = self.machine.undone, values | self.machine.brought(first)
        while (found := self.move(event, which, Selector("key", TAKEN, fence), release, values)).moved:
            pass
        return found.refused

    def undo_take(self, token: str) -> int:
        """Release the tasks of a take that has returned none. Return the number of those that the database rejects."""
        # The tokens from `token` to `token!` are this one alone: no longer one continues with ! or less.
        return self.give_back_except_rejected(token, f"{token}!", "release", "take")

    def _owned(self, ranges: Sequence[tuple[str, str]]) -> tuple[Selector, Transition, dict[str, Any]]:
        release, values = self.tasks.options.choose(TAKEN, "release", {}), dict[str, Any]()
        for i, (first, end) in enumerate(ranges):
            values |= {f"first{i}": first, f"end{i}": end}
        return Selector("owned", TAKEN, ranges=len(ranges)), release, values

    def _losses(self, event: str, row: Transition) -> list[tuple[str, Lost, Transition]]:
        """Return the moves of tasks whose takes end by `event`: each an event, the takes that it is for, and its row.

        They are two if the feature max_takes counts it: of tasks whose last take it was, and of the others.
        """
        last = self.machine.last_take
        if last is None or event not in LOSSES or (row.source, row.target) != (last.source, READY):
            return [(event, "", row)]
        return [(last.event, "last", last), (event, "earlier", replace(row, writes=(("lost", PLUS_ONE),)))]

    def move(
        self, event: str, which: Selector, one: Selector, transition: Transition, values: Mapping[str, Any]
    ) -> Moved:
        """Move a batch of the tasks that `which` selects; `one` selects one of them by its key."""
        ways = self._losses(event, transition)
        moved = [
            self._move(event, which._replace(lost=lost), one._replace(lost=lost), row, values)
            for event, lost, row in ways
        ]
        return Moved(*map(sum, zip(*moved, strict=True)))

    def _move(
        self, event: str, which: Selector, one: Selector, transition: Transition, values: Mapping[str, Any]
    ) -> Moved:
        """Move a batch as `move`, by one row of the machine.

        If the database rejects the batch, it is halved, again and again, and the rejected tasks are logged.
        """
        look = which, *(values.values() if which.mode == "owned" else ())
        try:
            moved = Moved(self._run(event, which, transition, {**values, "n": PER_MOVE}, caught=True))
            if moved.moved < PER_MOVE:
                self._stuck.pop(look, None)
        except Exception as error:
            if not self.is_refused(error):
                raise
            moved = self._in_parts(event, which, one, transition, values, look)
        if moved.moved:
            self.log.debug("%s: %d tasks %s-%s", event, moved.moved, transition.source, transition.target)
        return moved

    def is_refused(self, error: Exception) -> bool:
        """Return whether the database rejects the move of a single task: by a constraint, a trigger, or a value's type.

        A missing right is no such error: it concerns all tasks, and is raised to the caller.
        """
        return isinstance(error, BadValue) or self.store.classify(error) in PERMANENT

    def _run(
        self, event: str, which: Selector, transition: Transition, values: Mapping[str, Any], caught: bool = False
    ) -> int:
        begun = self.executor.begin()
        compiled = self.statements.move(begun[1], event, which, transition)
        rows = self.executor.run(compiled, {**self.executor.values(), **values}, begun, caught=caught)
        if rows and transition.loses:
            keys = ", ".join(shown(self.tasks.app_key_of(row)) for row in rows[:NAMED])
            told = f"{keys}{' ...' * (len(rows) > NAMED)} {'were' if len(rows) > 1 else 'was'}"
            self.log.error("task %s %s", told, never_finished(transition.loses))
        return len(rows)

    def _in_parts(
        self, event: str, which: Selector, one: Selector, transition: Transition, values: Mapping[str, Any], look: Look
    ) -> Moved:
        moved, n, refused, logged = 0, PER_MOVE, dict[Key, Exception](), self._stuck.get(look, set())
        listing = self.executor.dialect.moves.listing(which)

        def move(keys: Sequence[Key]) -> int:
            return sum(self._run(event, one, transition, {**values, **named(parts)}) for parts in keys)

        while True:
            listed = [tuple(parts) for parts in self.executor.run(listing, {**values, "n": n})]
            moved, more = self.executor.in_parts(move, [key for key in listed if key not in refused], self.is_refused)
            refused.update(more)
            if moved or len(listed) < n:
                break
            n = 2 * n  # look behind the rejected tasks
        stuck = {self.tasks.app_key(parts): error for parts, error in refused.items()}
        for key, error in stuck.items():
            level = logging.DEBUG if key in logged else logging.WARNING  # each sweep retries it
            self.log.log(level, "%s cannot move task %r: %s", event, key, error)
        # If all tasks were listed, forget the rejected ones that were not among them.
        self._stuck[look] = {*stuck} if len(listed) < n else {*stuck, *logged}
        return Moved(moved, len(refused))


class Swept(NamedTuple):
    """The result of a sweep."""

    due: bool  # whether anything was due, or a group was dirty
    moved: int = 0  # tasks
    forgotten: int = 0  # deleted rows of the history
    refused: int = 0  # tasks that the database rejected
    refreshed: int = 0  # group heads
    readied: int = 0  # the moved tasks that are ready now, and what was settled, which may have put some


class Timers:
    """The due tasks of one queue, and its history that is older than the feature keeps it."""

    def __init__(self, unattended: UnattendedMoves) -> None:
        self.executor = unattended.executor
        self.store = unattended.store
        self.unattended = unattended
        self.machine = unattended.machine
        self.settling = unattended.statements.settling
        self.floors = Floors(self.executor)
        self.swept_at = 0.0  # when it last swept, on the monotonic clock
        self._next_at = 0.0  # when the maintenance thread may do its next batch, on that clock
        self._read_all_at = -READ_ALL  # when `raise_floors` last looked at all timers, on that clock
        self._timers = {duty_of(timer): timer for timer in self.machine.due}
        self._readying = {DIRTY_HEADS, *(duty for duty, timer in self._timers.items() if timer.target == READY)}
        self._refused = False  # whether the database has refused a change of `_time_unowned`

    def left(self, window: Window = EVERYWHERE) -> dict[str, float]:
        """Return the seconds until each duty in sight: negative if it is late."""
        asked = self.executor.dialect.queries.next_due(window)
        rows = self.executor.run(asked) if asked else ()
        return {duty: float(seconds) for duty, seconds in rows if seconds is not None}

    def raise_floors(self) -> bool:
        """Raise the floors, and look at all timers, also those that are late. Return whether takes use floors."""
        any_floors = self.floors.look()
        if self.floors.held and time.monotonic() - self._read_all_at > READ_ALL:
            self._read_all_at, left = time.monotonic(), self.left()
            self.executor.window = self.executor.window._replace(due=min(left.values(), default=0.0) > -LATE)
            self.expire(left)
        return any_floors

    def _due(self) -> list[str]:
        return [duty for duty, seconds in self.left(self.executor.window).items() if seconds <= ROUNDED]

    def expire(self, left: Mapping[str, float]) -> float:
        """Do a batch for each duty that is due, as just read. Return the seconds until the next run.

        After a batch the next run reads that again.
        """
        if SETTLE not in left:
            return self._expire(left)
        seconds = self._expire({duty: left[duty] for duty in left if duty != SETTLE})
        self.settling.look()  # after the timers, which an error must not hold up
        return min(seconds, max(0.0, self.settling.next_at - time.monotonic()))

    def _expire(self, left: Mapping[str, float]) -> float:
        now = time.monotonic()
        due = [duty for duty, seconds in left.items() if seconds <= 0]
        if not due:
            return min(left.values(), default=math.inf)
        if now >= self._next_at:
            self._next_at = now + PAUSE_IN_VAIN  # the database may deny the move
            swept, then = self._sweep_batch(due), time.monotonic()
            # A constraint may reject every move. After a batch, other writers get as much time as it took.
            if swept.moved or swept.forgotten or swept.refreshed:
                self._next_at = 2 * then - now
            self.swept_at = now = then
        return self._next_at - now

    def sweep_if_any(self) -> Swept:
        """Do a batch for each duty that is due."""
        with self.store.bookkeeping():  # the maintenance thread does it as well, so it depends on the time
            swept = self._sweep_batch(self._due())
        self.swept_at = time.monotonic()
        return swept

    def sweep(self, within: bool = False) -> int:
        """Move the due tasks until none is left, and delete old history. Return the number of moves.

        `within`: settle groups in the open transaction, too. A take does not: it would lock them until the commit.
        """
        moves, swept, self.settling.next_at = 0, None, 0.0
        while swept is None or swept.moved or swept.refreshed or swept.forgotten == PER_MOVE:
            swept = self._sweep_batch([*self._due(), OLD_HISTORY], within)
            moves += swept.moved
        return moves

    def ready_batch(self, only_heads: bool = False) -> Swept:
        """Move a batch for each timer whose tasks become ready, and refresh a batch of group heads."""
        return self._sweep_batch({DIRTY_HEADS} if only_heads else self._readying)

    def _sweep_batch(self, due: Collection[str], within: bool = False) -> Swept:
        """Do a batch for each of these duties, and refresh the groups whose tasks it moves."""
        _, binding = begun = self.executor.begin_look()
        moved, refused, readied = 0, 0, 0
        if UNTIMED in due:
            self._time_unowned(begun)
        for timer in [timer for duty, timer in self._timers.items() if duty in due]:
            which, one = [Selector(mode, timer.source, column=timer.due) for mode in ("due", "key")]
            of_sessions = binding.dialect.is_local and (timer.source, timer.due) == (TAKEN, "runat")
            unheld = self._unheld(begun) if of_sessions else {}
            if unheld is not None:
                batch = self.unattended.move(timer.event, which, one, timer, unheld)
                moved, refused = moved + batch.moved, refused + batch.refused
                readied += batch.moved if timer.target == READY else 0
        forgotten = self._forget(begun) if OLD_HISTORY in due else 0
        is_dirty = DIRTY_HEADS in due or (moved and binding.dialect.moves.has_dirty_heads)
        refreshed = self.refresh_heads() if is_dirty else 0
        readied += self.settling.look(within) if SETTLE in due else 0
        return Swept(bool(due), moved, forgotten, refused, refreshed, readied)

    def _unheld(self, begun: Begun) -> dict[str, Any] | None:
        """Return the values that name the sessions whose tasks may expire; None without any.

        Of a file alone: there a heartbeat cannot write while the function's own transaction does, and its session has
        a lock instead. A task that is touched after this look has a later time, so it does not move.
        """
        binding = begun[1]
        rows = self.executor.run(binding.dialect.queries.expired, {"n": PER_MOVE}, begun)
        liveness, locks = self.executor.database.find_liveness(), {lock_of(row[0]): row[0] for row in rows}
        free = locks if liveness is None else liveness.gone([*locks])
        return {"expired": json.dumps([locks[lock] for lock in free]), "asked": rows[0][1]} if free else None

    def any_to_ready(self) -> bool:
        """Return whether a due task would become ready, or a group is dirty: another connection may be at it."""
        return not self._readying.isdisjoint(self._due())

    def _time_unowned(self, begun: Begun) -> None:
        """Start the ttr of the queue for the tasks that another program has made taken."""
        try:
            self.executor.run(begun[1].dialect.queries.times_unowned, begun=begun, caught=True)
        except Exception as error:
            if not self.unattended.is_refused(error):
                raise
            level = logging.DEBUG if self._refused else logging.WARNING  # each sweep retries it
            self.unattended.log.log(level, "ttr cannot begin for taken tasks without an owner: %s", error)
            self._refused = True

    def refresh_heads(self, mine: bool = False) -> int:
        """Refresh a batch of dirty group heads, with `mine` those of the open transaction. Return their number."""
        return heads.refresh(self.executor, mine) if (heads := self.executor.dialect.heads) else 0

    def _forget(self, begun: Begun) -> int:
        """Delete a batch of the history that is older than the feature keeps it. Return the number of rows."""
        binding = begun[1]
        queries, values = binding.dialect.queries, {**self.executor.values(), "n": PER_MOVE}
        if not queries.expired_history or not (expired := self.executor.run(queries.expired_history, values, begun)):
            return 0
        forget = queries.forget_rows([row[0] for row in expired])
        ((forgotten,),) = self.executor.run(binding.changes(self.store, forget), values)
        return int(forgotten)
