"""This process's waiters: callers that wait for a ready task, for room in a full queue, or for a task's end.

A waiter sleeps in a wait queue until it is woken, and then looks at the database. One notification wakes one waiter.
A waiter that found something wakes the next one if there is more. `waiting` has the calls that wait.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xq.core import time
from xq.core.errors import Error
from xq.core.kinds import ErrorKind, Row
from xq.core.machine import ABSENT, READY, TAKEN
from xq.core.values import Key, Tasks, named
from xq.database.sessions import Session
from xq.engine.executor import Executor
from xq.runtime.sleep import Awake, Sleep, Wait


@dataclass(eq=False)
class Waiter:
    """A caller that waits for a task or for room."""

    tube: str | None  # the only one to take from; None for any that is not in `but`
    session: Session | None  # by which it takes; None for a put
    but: tuple[str, ...] = ()
    woken: bool = False
    _awake: Awake = field(default_factory=Awake)

    def wake(self) -> bool:
        """Wake it, and return whether it will look: a coroutine's event loop may be closed."""
        self.woken = True
        return self._awake.reach()

    def sleep(self, seconds: float) -> Wait[bool]:
        """Sleep until `wake`, for up to `seconds`. Return whether it was woken."""
        woken: bool = yield Sleep(self._awake, seconds)
        self.woken &= not woken  # one that came after `seconds` is passed on if the waiter does not look
        return woken


class WaitQueue:
    """A wait queue: first come, first woken. Each task, or each free place, is for one waiter.

    No wake-up is lost: a woken waiter looks, and if it leaves before its look ends, others are woken.
    """

    def __init__(self, counted: Callable[[], None] = lambda: None) -> None:
        self._counted = counted  # called whenever a waiter is added or removed
        self.forget()

    def forget(self) -> None:
        """Start without waiters, and with a lock that no other thread holds."""
        self.waiters: dict[Waiter, float] = {}  # -> since when, in seconds since 1970
        self._lock = threading.Lock()

    @property
    def since(self) -> list[float]:
        """The times at which the waiters came, in seconds since 1970."""
        return list(self.waiters.values())

    @contextmanager
    def enter(
        self, tube: str | None = None, session: Session | None = None, but: tuple[str, ...] = ()
    ) -> Iterator[Waiter]:
        """Wait in the queue for the block."""
        waiter = Waiter(tube, session, but)
        with self._lock:
            self.waiters[waiter] = time.time()
        try:
            self._counted()
            yield waiter
        except BaseException:
            waiter.woken = True  # it may have been woken, and its look did not end
            raise
        finally:
            with self._lock:  # after this it cannot be woken
                self.waiters.pop(waiter, None)
            self._counted()
            if waiter.woken:  # and leaves without a look: others must look, in any tube
                self.wake_first()

    def wake(self, tube: str | None) -> None:
        """Wake the first waiter that may take from this tube (None: a task without a tube)."""
        with self._lock:
            for waiter in list(self.waiters):
                may_take = waiter.tube in (None, tube) and tube not in waiter.but
                if may_take and not waiter.woken and waiter.wake():
                    return

    def wake_all(self, *, closed: bool = False) -> None:
        """Wake all waiters; with `closed` only those with a closed session."""
        with self._lock:
            for waiter in list(self.waiters):
                if not closed or (waiter.session is not None and waiter.session.closed):
                    waiter.wake()

    def wake_first(self) -> None:
        """Wake the first waiter for each tube, and the first for any tube."""
        with self._lock:
            first = {(waiter.tube, waiter.but): waiter for waiter in reversed(self.waiters)}
            for waiter in first.values():
                waiter.wake()


@dataclass(eq=False)
class EndWaiter:
    """A caller that waits for a task's end."""

    waiter: str  # its name in the database
    parts: Key = ()  # the task's key, once the database may hold a row for this wait
    awake: Awake = field(default_factory=Awake)
    lost: bool = False  # whether the session that registered the wait was lost
    row: Row = ()  # the task's, as this process saw it last
    here: bool = False  # whether a session in this process owns the task, as far as it has seen
    gone: bool = False  # whether this process has deleted the row; `row` is its last state
    event: str | None = None  # that ended the task
    target: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The names for its row in the database."""
        return {**named(self.parts), "waiter": self.waiter}

    def end(self, event: str, target: str) -> None:
        self.event, self.target = event, target
        self.awake.set()


class Waiters:
    """This process's waiters in one queue, and what wakes them."""

    def __init__(self, executor: Executor, tasks: Tasks[Any]) -> None:
        self.executor = executor
        self.tasks = tasks
        self.machine = tasks.machine
        self._limit = self.machine.room
        self.takers = WaitQueue(executor.observers.count)
        self.putters = WaitQueue(executor.observers.count)
        self.forget()

    def forget(self) -> None:
        """Start without waiters. In a forked child there are none: threads are not copied."""
        self.takers.forget()
        self.putters.forget()
        self.ends: dict[str, EndWaiter] = {}  # by their names in the database
        # One thread at a time registers a wait or ends it: SQLite's lock is not fair.
        self.writing = threading.Lock()
        self.undeleted = set[EndWaiter]()  # ended waits whose rows are still to be deleted

    @property
    def anybody(self) -> bool:
        return bool(self.takers.waiters or self.putters.waiters or self.ends)

    def waited_for(self) -> list[tuple[Any, str, float]]:
        """Return the waits as (task's key, session's uuid, since when in seconds since 1970).

        The key is None for a caller in this process that waits in take.
        """
        rows = self.executor.run(self.executor.dialect.records.waiting)
        own = self.executor.open().sessions.own().uuid
        return [
            *((self.tasks.app_key(tuple(key)), session, since) for *key, session, since in rows),
            *((None, own, since) for since in self.takers.since),
        ]

    # for a task's end

    def begin(self, caller: EndWaiter, parts: Key) -> None:
        """Register the wait for a task's end, within the transaction that has looked at the task."""
        opened = self.executor.open()
        session = opened.sessions.own()
        session.register(self.executor)
        caller.parts = parts
        self.ends[caller.waiter] = caller  # before the commit: a notification must find it
        self.executor.observers.count()
        self.executor.run(opened.dialect.records.begin_wait, {**caller.values, "uuid": session.uuid})

    def drop(self, caller: EndWaiter) -> None:
        """Forget a wait that has no row in the database."""
        self.ends.pop(caller.waiter, None)
        self.executor.observers.count()

    def end(self, caller: EndWaiter) -> None:
        """End a wait. Ignore database errors: the caller must get the result, and its row is deleted later."""
        self.drop(caller)
        try:
            with self.writing:
                self.end_in_database(caller)
        except BaseException as error:
            if not isinstance(error, Error):  # an error from xq means that there is no table
                self.undeleted.add(caller)
            if self.executor.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise

    def end_in_database(self, caller: EndWaiter) -> None:
        """Delete a wait's row, and record an end that was not notified yet."""
        for event, target in self.executor.run(self.executor.dialect.records.end_wait, caller.values):
            if event is not None:
                caller.end(event, target)

    def session_lost(self) -> None:
        """Wake the callers that wait for an end: the database deleted their waits with the lost session."""
        for caller in list(self.ends.values()):
            caller.lost = True
            caller.awake.set()

    # notifications

    def committed_elsewhere(self, ready: bool | None = None) -> bool:
        """Wake the waiters that may find something, after another process has committed an unknown change.

        `ready`: whether a take would find a task, if that is known. Returns whether a waiter was woken, other than one
        for room.
        """
        # A query first: a take that finds nothing would lock out writers.
        if ready is None:
            ready = bool(
                self.takers.waiters and self.executor.run(self.executor.dialect.queries.any_ready(self.executor.window))
            )
        if ready:
            self.takers.wake_first()
        self.putters.wake_first()
        ended = self.collect() > 0
        self.look_at_taken()
        return ended or ready

    def wake_all(self) -> None:
        """Wake all waiters: the queue was uninstalled or has other features, or became read-only."""
        self.takers.wake_all()
        self.putters.wake_all()
        for caller in list(self.ends.values()):
            caller.awake.set()

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Wake waiters after this process has committed a transition."""
        if self.ends and source != ABSENT:  # the row is known after a put, and another thread may have moved it
            self._keep(target, {self.tasks.key_of(row): row for row in rows})
        if target != READY and self.machine.frees(source, target):
            self.takers.wake_first()
        if target == READY and self.takers.waiters:
            tube = self.tasks.table.roles.get("tube")
            place = None if tube is None else self.tasks.table.fields.index(tube)
            # With one writer at a time, threads that take at once wait long for its lock: one wakes the next.
            at_once = 1 if self.executor.dialect.is_local else len(self.takers.waiters)
            for tube_of_rows, n in Counter(
                None if place is None else self.tasks.tube_of(row[place]) for row in rows
            ).items():
                for _ in range(min(n, at_once)):
                    self.takers.wake(tube_of_rows)
        if self._limit and source in self._limit.states and target not in self._limit.states:
            self.putters.wake_first()
        if source in self.machine.pending and target not in self.machine.pending:
            self.collect()

    def _keep(self, target: str, rows: Mapping[Key, Row]) -> None:
        """Record the rows (by key) that this process has moved, for callers waiting for these tasks to end."""
        for caller in list(self.ends.values()):
            # After the end, the key may belong to another task. The deletion may be recorded after its event.
            over = caller.gone or (caller.event is not None and target != ABSENT)
            if not over and (row := rows.get(caller.parts)) is not None:
                caller.row, caller.here, caller.gone = row, target == TAKEN, target == ABSENT
                if caller.event is not None:  # another thread has recorded the end already
                    caller.awake.set()

    def look_at_taken(self) -> None:
        """Record the rows of taken tasks for which callers wait: at the end they may be deleted."""
        if not self.ends:
            return
        opened = self.executor.open()
        mine = {"uuid": opened.sessions.own().uuid}
        for name, *row in self.executor.run(opened.dialect.records.taken_and_awaited, mine):
            if (caller := self.ends.get(name)) is not None and not caller.gone:
                caller.row = row

    def collect(self) -> int:
        """Wake the callers whose tasks have ended. Return their number."""
        ends = self.executor.run(self.executor.dialect.records.ends) if self.ends else []
        mine = [(caller, *end) for name, *end in ends if (caller := self.ends.get(name)) is not None]
        for caller, event, target in mine:
            caller.end(event, target)
        for caller in list(self.undeleted):
            self.end_in_database(caller)
            self.undeleted.discard(caller)
        return len(mine)
