"""Reap the orphaned tasks of one database: end the sessions whose processes are gone, and those that have expired."""

from __future__ import annotations

import logging
import math
import random
import threading
import uuid
from collections.abc import Sequence
from typing import Any
from weakref import ref

from xq.core import time
from xq.core.connections import Runs
from xq.core.errors import NotInstalled
from xq.core.kinds import ErrorKind, Row
from xq.core.tokens import REAPED
from xq.database.base import BaseDatabase
from xq.database.members import Member
from xq.database.records import rows_of
from xq.database.sessions import Sessions

ORPHANS = 5.0  # seconds between two searches for tasks whose session is not registered, and
LONGEST = 1.0  # seconds that a thread waits for another one's run, which a lock may hold up
EFFORT = 20  # times as many as the last one took: there may be thousands of queues

log = logging.getLogger("xq")


class Reaper:
    """Reaps the orphaned tasks of one database."""

    def __init__(self, database: BaseDatabase, sessions: Sessions) -> None:
        self._database = ref(database)
        self._sessions = sessions
        self.more = False  # whether the last run left some that the next one may end
        self._left = math.inf  # how many there were at the last run, if more than a batch
        self._at: dict[str, float] = {}  # the monotonic times at which the last runs ended, by queue; "": of all
        self._others = False  # whether sessions of other processes were registered then
        self._orphans_at: dict[str, float] = {}  # and of the next searches for tasks whose session is not registered
        self._running = threading.RLock()

    def reap(self, unless_since: float = math.inf, of: Member | None = None) -> bool:
        """End a batch of sessions that have expired or whose process is gone, unless done since this monotonic time.

        `of`: those that are registered in one queue alone, as callers do, whose connections would wait for another
        queue's lock. Return whether sessions of other processes were registered at the last run.
        """
        name = "" if of is None else of.source_name
        # It waits for another thread's run, so that a take then finds the tasks which that released.
        if self._last(name) < unless_since and self._running.acquire(timeout=LONGEST):
            try:
                if self._last(name) < unless_since:
                    try:
                        self._others = self._reap(name, of)
                    finally:
                        self._at[name] = time.monotonic()
            finally:
                self._running.release()
        return self._others

    def _last(self, name: str) -> float:
        return max(self._at.get("", 0.0), self._at.get(name, 0.0))

    def _reap(self, of: str, member: Member | None) -> bool:
        sessions, liveness = self._sessions, self._sessions.records.liveness
        all_had_time = liveness is None or sessions.renew(liveness)
        # First: another thread may register one.
        mine = [session for session in sessions.live() if session.registered_in]
        database, rows = self._database(), sessions.records.listed()
        if database is None or rows is None:
            return False
        # One that was ended, but not in all queues, has no process.
        processes = {name: process for name, queue, _, process in rows if not queue}
        for session in mine:
            if session.uuid not in processes:
                sessions.ended_elsewhere(session)
        among = database.installed if member is None else [member]
        elsewhere = {name for name, queue, *_ in rows if of and queue not in ("", of)}
        ends = self._ends(database, [row for row in rows if row[0] not in elsewhere], among)
        ends |= dict.fromkeys(self._orphans(database, of, among))
        here = {*sessions.leaving, *(session.uuid for session in sessions.live())}
        living = [name for name, seconds in ends.items() if seconds is None and name not in here]

        def log_ended(name: str, text: str, *words: str) -> None:
            # If it is not registered, the process that ended it in its other queues has logged it.
            log.log(logging.INFO if name in processes else logging.DEBUG, text, name, *words)
            sessions.reaped += 1

        gone = (liveness.gone(living) if liveness else living) if all_had_time else []
        expired = [name for name, seconds in ends.items() if seconds is not None and seconds <= 0]
        if gone:
            with sessions.records.alone(_some(gone)) as alone:
                later = sessions.end(alone, "died") if alone else ()
            for name in alone:
                ended, process = "ends after session_ttr" if name in later else "has ended", processes.get(name)
                log_ended(name, "session %s is gone, and %s%s", ended, f": {process}" if process else "")
        for name in sessions.end_expired(_some(expired)) if expired else ():
            log_ended(name, "session %s, which was to end, has ended")
        left = max(len(gone), len(expired))
        self.more = REAPED < left < self._left  # not fewer: the database refuses them, or another process is at it
        self._left = left if left > REAPED else math.inf
        if self.more:
            self._orphans_at.clear()
        return not here.issuperset(ends)

    @staticmethod
    def _ends(
        database: BaseDatabase, rows: Sequence[tuple[str, str, float | None, str]], among: Sequence[Member]
    ) -> dict[str, float | None]:
        """Return the sessions that may own tasks of maintained queues, with the seconds until each expires.

        The seconds are None for a session that lives. `rows`: see `SessionRecords.listed`.
        """
        names = {queue for _, queue, *_ in rows}
        maintained = {"", *(member.source_name for member in among)}  # "" is the list of all sessions
        maintained.update(*(member.names(names - maintained) for member in among))
        maintained = {queue for queue in maintained if not database.is_skipped(queue)}
        ends: dict[str, float | None] = {}
        for name, queue, seconds, _ in rows:
            if queue in maintained and ends.get(name) is None:
                ends[name] = seconds
        return ends

    def _orphans(self, database: BaseDatabase, of: str, among: Sequence[Member]) -> set[str]:
        """Return the sessions that own tasks of queues and are not registered; none before the next search."""
        if (begun := time.monotonic()) <= self._orphans_at.get(of, 0.0):
            return set()
        self._orphans_at[of] = begun + ORPHANS

        def ask(part: Sequence[Any]) -> list[Row]:
            runs: Runs = database if len(part) > 1 else part[0].executor  # alone, a queue that was dropped says so
            return runs.run(database.sql.orphans_of([member.executor.dialect for member in part]))

        def failed(part: Sequence[Any], error: Exception) -> None:
            if (kind := database.store.classify(error)) is ErrorKind.LOCKED:
                database.leave_out(part, error)
                return
            alone = len(part) == 1 and not isinstance(error, NotInstalled) and kind is not ErrorKind.DENIED
            if alone or kind is ErrorKind.LOST:
                raise error

        allowed = [member for member in among if member.executor and not database.is_skipped(member.source_name)]
        found = [
            (member.source_name, uuid)
            for member, uuid in rows_of(allowed, ask, failed, database.answering)
            if _is_uuid(uuid)
        ]
        self._sessions.orphaned_in = {queue for queue, _ in found}
        self._orphans_at[of] += EFFORT * (time.monotonic() - begun)
        return {uuid for _, uuid in found}


def _some(names: Sequence[str]) -> list[str]:
    """Return a batch of sessions. It is a random one: another process may be about to end some, and be stopped."""
    return random.sample(names, min(len(names), REAPED))


def _is_uuid(name: str | None) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except (TypeError, ValueError, AttributeError):
        return False  # another program wrote it
