"""The maintenance of one queue: its due tasks, its sessions, and its maintenance thread."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import ref

from xq.core.errors import UnknownSession
from xq.core.ports import Row
from xq.engine.finish import Finish
from xq.engine.take import NONE, Takes
from xq.engine.unit import Database
from xq.runtime.maintenance import LOOK, RETRY, MaintenanceThread
from xq.runtime.maintenance_threads import queues, thread_of
from xq.runtime.schedules import Schedules
from xq.runtime.waiters import Waiting
from xq.sessions import session as sessions
from xq.sessions.liveness import Liveness
from xq.sessions.process import process_name, this_process
from xq.sessions.session import Session, Sessions

RECHECK = 5.0  # seconds between two checks of a queue that is not installed


class QueueMaintenance:
    """The maintenance of one queue. For sessions, any queue of a database acts for all of its queues."""

    def __init__(
        self,
        database: Database,
        takes: Takes[Any],
        finish: Finish[Any],
        waiting: Waiting[Any],
        schedules: Schedules[Any],
    ) -> None:
        self.database = database
        self.schedules = schedules
        self.takes = takes
        self.finish = finish
        self.timers = takes.timers
        self.machine = takes.machine
        self.waiting = waiting
        self._thread: MaintenanceThread | None = None
        self._expire_at = 0.0  # the monotonic time of the next move of due tasks
        self._absent: tuple[ref[object] | None, float] = (None, 0.0)  # database without it, and next check
        waiting.listen = self.listen
        takes.maintain = self.maintain
        queues.add(self)
        sessions.queues.add(self)

    @property
    def maintained(self) -> object:
        """Returns the binding that has a maintenance thread or cannot have one; None before that is known."""
        return self.takes.maintained

    @maintained.setter
    def maintained(self, binding: object) -> None:
        self.takes.maintained = binding

    def stop_maintenance(self) -> None:
        """End the maintenance by this object: the program only installs the queue."""
        self.maintained = None
        queues.discard(self)
        sessions.queues.discard(self)
        self.database.close()
        self.waiting.wake_all()

    def leave(self) -> None:
        """Drop the thread and the binding."""
        self.maintained = self._thread = None
        self.database.observers.count()
        self.database.close()

    def forked(self) -> None:
        """Reset in a forked child, which has neither the threads nor the connections of its parent."""
        self.maintained = None
        self.waiting.forget()
        self.takes.pauses.forked()
        self.schedules.beginning = threading.Lock()  # a thread of the parent may hold the other one
        self.database.observers.forked()
        self.database.store.forked()

    def maintain(self) -> bool:
        """Start the maintenance thread if necessary. Return False if there can be none. Raises NotInstalled."""
        opened = self.database.open()
        if self not in queues:
            return False
        if self.maintained is not opened:
            self.takes.pauses.read()  # this process may have looked long ago
            self._thread = thread_of(self)
            self.maintained = opened
            self.database.observers.count()
            if self._thread is not None:
                self._thread.call_for(self._thread.expire)  # not earlier: a cycle skips queues that are not attended
        return self._thread is not None

    @property
    def is_maintained(self) -> bool:
        """Whether `maintain` was called for the model's current database."""
        return self.maintained is not None and self.maintained is self.database.bound

    @property
    def anybody(self) -> bool:
        """Whether to notify the thread of this process's own changes, because the notifier does not report them."""
        return self._thread is not None and not self._thread.reports_own

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Wake the thread if this process has committed a transition into a state with a timer."""
        if target in self.machine.timers and self._thread is not None:
            self._thread.call_for(self._thread.expire)

    def scheduled(self) -> None:
        """Wake the thread to look at the schedules, since this process has committed one."""
        if self._thread is not None:
            self._thread.call_for(self._thread.read_records)

    def listen(self) -> bool:
        """Start the thread, and notifications for a caller that waits. Return False if there can be no thread."""
        there = self.maintain()
        if self._thread is not None:
            self._thread.expect()
            self.database.observers.count()
        return there

    def more_have_died(self, than: int) -> bool:
        """Reap a batch, at most every LOOK seconds. Return whether more than `than` sessions were reaped so far."""
        self._reap(time.monotonic() - LOOK)
        return self.reaped > than

    def reap(self) -> None:
        """Reap all orphaned tasks. Does nothing within a transaction."""
        while self._reap():
            pass

    def _reap(self, unless_since: float = math.inf) -> bool:
        """Reap a batch, unless that was done since this monotonic time. Return whether there are more."""
        mine = self.sessions
        if not mine or self.database.clock is not None or self.database.store.in_transaction():
            return False
        mine.reaper.reap(unless_since)
        return mine.reaper.more

    @property
    def reaped(self) -> int:
        """The number of sessions of other processes that this process has ended."""
        mine = self.sessions
        return mine.reaper.reaped if mine else 0

    @property
    def installed(self) -> bool:
        """Whether the queue is installed in its database. If it is not, that is checked every RECHECK seconds."""
        absent, until = self._absent
        database = self.database.store.database
        if absent is not None and absent() is database and time.monotonic() < until:
            return self.database.bound is not None
        there = self.database.is_installed()
        self._absent = (None, 0.0) if there or database is None else (ref(database), time.monotonic() + RECHECK)
        return there

    @property
    def maintains(self) -> bool:
        """Whether this process expires and reaps: not under a test's clock."""
        return self.database.clock is None

    def expire(self, seconds: float | None) -> float | None:
        """Move a batch of due tasks. Return the seconds until the next one; None if there is none.

        `seconds`: as just read.
        """
        now = time.monotonic()
        if seconds is None or seconds > 0:
            return seconds
        if now >= self._expire_at:
            swept = self.timers.sweep_if_any()
            # A constraint may reject every move. After a batch, other writers get as much time as it took.
            in_vain = swept.due and not (swept.moved or swept.forgotten or swept.refreshed)
            then = time.monotonic()
            self._expire_at = now + RETRY if in_vain else 2 * then - now
            seconds, now = self.timers.seconds(), then
        return seconds if seconds is None or seconds > 0 else self._expire_at - now

    # sessions

    @property
    def name(self) -> str:
        """The name of the queue in its database."""
        return self.database.bind().dialect.source_name

    @property
    def sessions(self) -> Sessions | None:
        """Returns the sessions of this process in the model's current database; None if the model has none."""
        return self.database.sessions

    def session(self, name: str | None) -> Session:
        """Return a new session, or join the one of this uuid. Raises UnknownSession if it has ended."""
        mine = self.database.open().sessions
        session = mine.new() if name is None else mine.named(name)
        if name is None:
            self.database.register_session(self.database.open(), session)
        elif not mine.rejoin(session):
            raise UnknownSession(name)
        return session

    def current_session(self) -> Session:
        """Register the current session in the database, and return it."""
        self.database.begin()
        opened = self.database.open()
        session = opened.sessions.to_take()
        self.database.register_session(opened, session)
        return session

    def _run(self, sql: str, **values: Any) -> list[Any]:
        return self.database.execute(sql, values)

    def orphans(self, queues: Sequence[QueueMaintenance]) -> set[str]:
        """Return the sessions that own tasks of these queues and are not registered."""
        dialects = [queue.database.dialect for queue in queues]
        return {uuid for _, uuid in self._run(dialects[0].orphans_of(dialects))}

    def listed(self) -> list[tuple[str, str, float | None, str]]:
        """Return the sessions of the database: uuid, a queue in which it may own tasks, seconds until it expires.

        A session has a row per queue. The seconds are None while it lives. The last column is its process, as "pid 4711
        on host web-3 (xq worker)"; "" if its row has none.
        """
        rows = self._run(self.database.dialect.sessions_listed)
        return [(uuid, queue, ends, process_name(*process)) for uuid, queue, ends, *process in rows]

    def liveness(self) -> Liveness | None:
        """Return the liveness locks of the database; None if no other process can access it."""
        return self.database.dialect.liveness(self.database.store)

    def rejoin(self, uuid: str) -> bool:
        """Keep an expiring session alive. Return False if no session of this uuid is registered."""
        dialect, sessions = self.database.dialect, self.database.sessions
        lease = sessions.lease if sessions else None
        values = {"uuid": uuid, "lease": lease, **this_process()}
        return bool(self._whole(dialect.rejoin_session, dialect.session_rejoined, values=values))

    def is_there(self, uuid: str) -> bool:
        """Return whether a session is registered and has not ended."""
        opened = self.database.open()
        sql, values = opened.dialect.session_is_there, {**self.database.values(), "uuid": uuid}
        rows = opened.sessions.on_own_connection(sql, values)
        return bool(self.database.execute(sql, values) if rows is None else rows)

    def expire_later(self, uuids: Sequence[str]) -> set[str]:
        """Make sessions expire after session_ttr seconds. Return them without those that must end at once."""
        dialect = self.database.dialect
        return self._whole(dialect.expire_session_later, dialect.session_ends, uuids=uuids)

    def have_expired(self, uuids: Sequence[str]) -> set[str]:
        """Return those of these sessions that have expired. Lock them: no process can rejoin one before the commit."""
        return self._whole(self.database.dialect.session_over, uuids=uuids)

    def _whole(self, *texts: str, uuids: Sequence[str] = (), values: Mapping[str, Any] = NONE) -> set[Any]:
        """Run these statements in one transaction that writes. Return the first column of the last one."""

        def run() -> set[Any]:
            self.database.begin_writing()
            return {row[0] for row in [self._of(uuids, sql, **values) for sql in texts][-1]}

        return self.database.unit(run, transaction=True)

    def _of(self, uuids: Sequence[str], sql: str, **values: Any) -> list[Any]:
        """Run a statement for these sessions."""
        text, names = self.database.dialect.of_sessions(sql, uuids) if uuids else (sql, {})
        return self._run(text, **names, **values)

    def forget_waits(self, uuids: Sequence[str]) -> None:
        """Delete the waits that the processes of these sessions have registered."""
        self._of(uuids, self.database.dialect.forget_waits)

    def deregister(self, uuids: Sequence[str]) -> None:
        """Delete sessions from the database. They cannot be joined any more."""
        self._of(uuids, self.database.dialect.deregister_session, queue="")

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release the tasks of sessions, recorded as `event`, and deregister them from this queue."""

        def over(work: Callable[[Sequence[str], str], None] | None = None) -> None:
            self.database.begin_writing()
            if work:
                work(uuids, event)
            if event == "died":
                self.forget_waits(uuids)
            dialect = self.database.dialect
            self._of(uuids, dialect.deregister_session, queue=dialect.source_name)

        work = self.finish.give_back if self.machine.settings.reaped else None
        try:
            self.database.unit(partial(over, work), transaction=True, caught=True)
        except Exception as error:
            if not work or not self.finish.batches.is_refused(error):
                raise
            # The reaper finds the rejected tasks later: their session is not registered any more.
            for uuid in uuids:
                self.finish.give_back_except_rejected(uuid, event)
            self.database.unit(over, transaction=True)
        self.waiting.committed_elsewhere()  # notifications before the commit woke waiters that could not see the change
