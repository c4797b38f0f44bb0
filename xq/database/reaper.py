"""Reap the orphaned tasks of one database: end the sessions whose processes are gone, and those that have expired."""

from __future__ import annotations

import logging
import math
import random
import threading
import uuid
from collections.abc import Sequence
from weakref import ref

from xq.core import time
from xq.core.connections import Runs
from xq.core.errors import NotInstalled
from xq.core.kinds import ErrorKind, Row
from xq.core.tokens import REAPED
from xq.database.base import BaseDatabase
from xq.database.records import rows_of
from xq.database.sessions import Sessions
from xq.database.transactions import RunsQueue

ORPHANS = 5.0  # seconds between two searches for tasks whose session is not registered, and
EFFORT = 20  # times as many as the last one took: there may be thousands of queues

log = logging.getLogger("xq")


class Reaper:
    """Reaps the orphaned tasks of one database."""

    def __init__(self, database: BaseDatabase, sessions: Sessions) -> None:
        self._database = ref(database)
        self._sessions = sessions
        self.more = False  # whether the last run left some that the next one may end
        self._left = math.inf  # how many there were at the last run, if more than a batch
        self._at = 0.0  # the monotonic time at which the last run ended
        self._others = False  # whether sessions of other processes were registered then
        self._orphans_at = 0.0  # the monotonic time of the next search for tasks whose session is not registered
        self._running = threading.RLock()

    def reap(self, unless_since: float = math.inf) -> bool:
        """End a batch of sessions that have expired or whose process is gone, unless done since this monotonic time.

        Return whether sessions of other processes were registered at the last run.
        """
        if self._at < unless_since:  # waits for another thread's run, so that a take then finds the tasks it released
            with self._running:
                if self._at < unless_since:
                    try:
                        self._others = self._reap()
                    finally:
                        self._at = time.monotonic()
        return self._others

    def _reap(self) -> bool:
        sessions, liveness = self._sessions, self._sessions.records.liveness
        all_had_time = liveness is None or sessions.renew(liveness)
        # First: another thread may register one.
        mine = [session for session in sessions.live() if session.registered_in]
        database, rows = self._database(), sessions.records.listed()
        if database is None or rows is None:
            return False
        # One that was ended, but not in all queues, has no process.
        ends, processes = self._ends(database, rows), {name: of for name, queue, _, of in rows if not queue}
        for session in mine:
            if session.uuid not in ends:
                sessions.ended_elsewhere(session)
        orphans = self._orphans(database) if time.monotonic() > self._orphans_at else set()
        ends |= dict.fromkeys(orphans)
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
            self._orphans_at = 0.0
        return not here.issuperset(ends)

    @staticmethod
    def _ends(database: BaseDatabase, rows: Sequence[tuple[str, str, float | None, str]]) -> dict[str, float | None]:
        """Return the sessions that may own tasks of maintained queues, with the seconds until each expires.

        The seconds are None for a session that lives. `rows`: see `SessionRecords.listed`.
        """
        names, installed = {queue for _, queue, *_ in rows}, database.installed
        maintained = {"", *(member.source_name for member in installed)}  # "" is the list of all sessions
        maintained.update(*(member.names(names - maintained) for member in installed))
        maintained = {queue for queue in maintained if not database.is_denied(queue)}
        ends: dict[str, float | None] = {}
        for name, queue, seconds, _ in rows:
            if queue in maintained and ends.get(name) is None:
                ends[name] = seconds
        return ends

    def _orphans(self, database: BaseDatabase) -> set[str]:
        """Return the sessions that own tasks of queues and are not registered."""
        begun = time.monotonic()
        self._orphans_at = begun + ORPHANS
        queues = [each.executor for each in database.installed if each.executor]

        def ask(part: Sequence[RunsQueue]) -> list[Row]:
            runs: Runs = database if len(part) > 1 else part[0]  # alone, a queue that was dropped says so
            return runs.run(database.sql.orphans_of([queue.dialect for queue in part]))

        def failed(part: Sequence[RunsQueue], error: Exception) -> None:
            kind = database.store.classify(error)
            alone = len(part) == 1 and not isinstance(error, NotInstalled) and kind is not ErrorKind.DENIED
            if alone or kind is ErrorKind.LOST:
                raise error

        allowed = [queue for queue in queues if not database.is_denied(queue.dialect.source_name)]
        found = {uuid for _, uuid in rows_of(allowed, ask, failed)}
        self._orphans_at += EFFORT * (time.monotonic() - begun)
        return set(filter(_is_uuid, found))


def _some(names: Sequence[str]) -> list[str]:
    """Return a batch of sessions. It is a random one: another process may be about to end some, and be stopped."""
    return random.sample(names, min(len(names), REAPED))


def _is_uuid(name: str | None) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except (TypeError, ValueError, AttributeError):
        return False  # another program wrote it
