"""The maintenance of one queue: its due tasks, its sessions, and its maintenance thread."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from xq.core import time
from xq.core.kinds import Row
from xq.core.machine import TAKEN
from xq.core.tokens import OUTAGE, in_full, tokens_of
from xq.database.database import Database
from xq.database.duties import REAP_EVERY, Duties
from xq.database.members import Awaited, Member, copied
from xq.database.records import of_sessions
from xq.database.sessions import Session
from xq.database.transactions import retried
from xq.engine.executor import Executor
from xq.engine.named import NamedMoves
from xq.engine.pauses import Pauses
from xq.engine.stats import counters, counts, roll_up_some, told_of, writes
from xq.engine.timers import Timers
from xq.runtime.schedules import Schedules
from xq.runtime.waiters import Waiters

log = logging.getLogger("xq")

RECHECK = 5.0  # seconds between two checks of a queue that is not installed


class QueueMaintenance(Member):
    """The maintenance of one queue, whose tasks sessions own."""

    executor: Executor

    def __init__(
        self, timers: Timers, named: NamedMoves[Any], pauses: Pauses, waiters: Waiters, schedules: Schedules[Any]
    ) -> None:
        self.executor = timers.executor
        self.timers = timers
        self.named = named
        self.pauses = pauses
        self.waiters = waiters
        self.schedules = schedules
        self.machine = named.machine
        self._duties: Duties | None = None  # None also if the binding that is maintained can have no thread
        self._writes: Counter[str] | None = None  # of other programs, at the last look
        self._recheck_at = 0.0  # the monotonic time of the next check whether it is installed
        self.executor.member = self
        if (database := self.database) is not None:
            database.join(self)

    def stop_maintenance(self) -> None:
        """End the maintenance by this object: the program only installs the queue."""
        self.executor.member = None
        if (database := self.database) is not None:
            database.joined.discard(self)
        self.leave()
        self.waiters.wake_all()

    def leave(self) -> None:
        self.maintained = self._duties = None
        self.count_observers()
        self.executor.close()

    def forked(self) -> None:
        self.maintained = self._duties = None
        self.named.workers.clear()
        self.waiters.forget()
        self.pauses.forked()
        self.schedules.forked()
        self.timers.floors.forked()
        self.executor.observers.forked()

    def attend(self) -> Duties | None:
        """Start the maintenance thread if necessary. Return None if there can be none. Raises NotInstalled."""
        if self.maintained is None or self.maintained is not self.executor.bound:
            self.executor.begin(locks=True)
            if self.executor.member is None:
                return None
            self.pauses.read()  # this process may have looked long ago
            self._duties = self.executor.database.start_duties()
            self.maintained = self.executor.open()
            self.count_observers()
            if self._duties is not None:  # not earlier: a cycle skips queues that are not attended
                self._duties.call_for(self._duties.expire)
        return self._duties

    def listen(self) -> bool:
        """Start the thread, and notifications for a caller that waits. Return False if there can be no thread."""
        if (thread := self.attend()) is not None:
            thread.expect()
            self.count_observers()
        return thread is not None

    # what the thread asks

    @property
    def awaited(self) -> Awaited | None:
        if not (self.waiters.anybody or self.waiters.undeleted):
            return None
        paused, bound, since, condition = self.pauses.paused, self.executor.bound, self.waiters.takers.since, ""
        a_task = bool(since) and not (paused and paused.queue)
        if bound is not None and not self.waiters.putters.waiters and not self.waiters.ends:
            condition = bound.dialect.queries.anything if a_task else "FALSE"
        return Awaited(a_task, bool(self.named.statements.opening and since), condition, since)

    def review(self, records: list[Row] | None, schemas: dict[str, Any]) -> None:
        self.executor.review(records, schemas)

    def count_observers(self) -> None:
        self.executor.observers.count()

    def begin_read(self) -> int:
        return self.pauses.begin()

    def end_read(self, begun: int, paused: Collection[tuple[str, int]], cancelled: Collection[str]) -> None:
        self.pauses.end(begun, paused)
        for worker in copied(self.named.workers) if cancelled else ():
            worker.see_cancelled(cancelled)
        self.log_writes()

    def fire(self, schedule: str) -> bool:
        return self.schedules.fire(schedule)

    def resolve(self) -> bool:
        pending = bool(self.named.in_doubt.pending)
        self.named.in_doubt.resolve()
        return pending

    def wake(self, ready: bool) -> bool:
        return self.waiters.committed_elsewhere(ready=ready)

    def wake_all(self) -> None:
        self.waiters.wake_all()

    def roll_up(self) -> bool:
        return roll_up_some(self.executor)

    def raise_floors(self) -> bool:
        return self.timers.raise_floors()

    def tidy(self) -> None:
        self.named.statements.tidy()

    @property
    def anybody(self) -> bool:
        """Whether to notify the thread of this process's own changes, because the notifier does not report them."""
        return self._duties is not None and not self._duties.reports_own

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Wake the thread if this process has committed a transition into a state with a timer."""
        if target in self.machine.timers and self._duties is not None:
            self._duties.call_for(self._duties.expire)

    def scheduled(self) -> None:
        """Wake the thread to look at the schedules, since this process has committed one."""
        if self._duties is not None:
            self._duties.call_for(self._duties.read_records)

    def reap(self, some: bool = False) -> int:
        """Reap all orphaned tasks; with `some` a batch, at most every REAP_EVERY seconds. Do nothing in a transaction.

        Return how many sessions of other processes this process has ended.
        """
        opened, reaper = self.executor.open(), self.executor.database.reaper
        if self.maintains and not self.executor.store.in_transaction():
            reaper.reap(time.monotonic() - REAP_EVERY if some else math.inf, of=self)
            while reaper.more and not some:
                reaper.reap(of=self)
        return opened.sessions.reaped

    def drop(self, drop: Callable[[], object]) -> int:
        """Call `drop`, which drops the table, unless tasks are taken. Return how many are.

        It is one step: it waits for calls of all processes that move tasks. Later calls wait for it and raise
        NotInstalled when the table is gone. Orphaned tasks are reaped first. Raises on MariaDB within a transaction.
        """
        if counts(self.executor)[TAKEN]:  # first without a lock
            self.reap()
            if taken := counts(self.executor)[TAKEN]:
                return taken
        return retried(self.executor.store, lambda: self.executor.open().installation.drop(drop))

    def installed_in(self, database: object) -> bool:
        """Return whether the queue is installed there. If it is not, that is checked every RECHECK seconds."""
        if (bound := self.executor.bound) is not None:
            return bound.database() is database
        if self.database is not database or time.monotonic() < self._recheck_at:
            return False
        there = self.executor.is_installed()
        self._recheck_at = 0.0 if there else time.monotonic() + RECHECK
        return there

    @property
    def maintains(self) -> bool:
        """Whether this process expires and reaps: not under a test's clock, nor for its parent."""
        return self.executor.clock is None and not self.executor.database.supervised

    def expire(self, left: Mapping[str, float]) -> float:
        return self.timers.expire(left)

    def log_writes(self) -> None:
        """Log, if the feature guard says so, what other programs have written since the last call."""
        if self.machine.settings.guard == "log":
            before, self._writes = self._writes, Counter(writes(counters(self.executor)))
            for line in told_of(self._writes - (self._writes if before is None else before)):
                log.warning("%s: %s (feature guard)", self.source_name, line)

    # sessions

    @property
    def database(self) -> Database | None:
        return cast("Database | None", self.executor.store.database)

    @property
    def schema(self) -> str:
        return self.executor.definition.table.schema

    @property
    def source_name(self) -> str:
        return self.executor.open(installed=False).dialect.source_name

    def session(self, name: str | None) -> Session:
        """Return a new session, or join the one of this uuid. Raises UnknownSession if it has ended."""
        _, binding = self.executor.begin()
        return binding.sessions.registered(name, self.executor)

    def current_session(self) -> Session:
        """Register the current session in the database, and return it."""
        _, binding = self.executor.begin()
        if self.maintains:
            self.attend()  # what it takes must come back, also of what is no queue
        session = binding.sessions.to_take()
        session.register(self.executor)
        return session

    def set_session_ttr(self, seconds: float) -> None:
        """Store for how long the tasks of a lost or closed session stay taken, in all queues of the database."""
        self.executor.begin()
        self.executor.run(self.executor.dialect.shared.set_setting, {"name": "session_ttr", "value": seconds})

    def session_closed(self, own_lost: bool) -> None:
        self.waiters.takers.wake_all(closed=True)
        if own_lost:
            self.waiters.session_lost()

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release the tasks of sessions, recorded as `event`, and deregister them from this queue."""
        reaped = self.machine.settings.reaped
        self.named.in_doubt.resolve()  # first: what this process's own sessions have in doubt has its attempts back
        try:
            self.executor.transaction(lambda: self._give_back(uuids, event, reaped), caught=True)
        except Exception as error:
            if not reaped or not self.timers.unattended.is_refused(error):
                raise
            # The reaper finds the rejected tasks later: their session is not registered any more.
            for uuid in uuids:
                self.timers.unattended.give_back_except_rejected(*tokens_of(uuid), event)
            self.executor.transaction(lambda: self._give_back(uuids, event, reaped=False))
        self.waiters.committed_elsewhere()  # notifications before the commit woke waiters that could not see the change

    def _give_back(self, uuids: Sequence[str], event: str, reaped: bool) -> None:
        shared, forget_waits = self.executor.dialect.shared, self.executor.dialect.records.forget_waits
        if reaped:
            self.timers.unattended.give_back([*map(tokens_of, in_full(uuids))], event)
        if event in ("died", OUTAGE):
            of_sessions(self.executor, shared, forget_waits, uuids)
        of_sessions(self.executor, shared, shared.deregister_session, uuids, queue=self.source_name)
