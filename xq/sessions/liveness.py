"""Liveness locks: each shows that the process of a session lives. Tasks of a session without one are reaped."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from xq.core.errors import NotInstalled
from xq.core.ports import ErrorKind, Row

if TYPE_CHECKING:
    from xq.sessions.session import Sessions
    from xq.tubes.upkeep import Upkeep

R = TypeVar("R")

REAPED = 100  # sessions that are ended at once
ORPHANS = 5.0  # seconds between two searches for tasks whose session is not registered
AT_ONCE = 20  # queues of a query: SQLite allows 500 parts, and the planning time of PostgreSQL grows with them

log = logging.getLogger("xq")


def members_of(weak: Iterable[R]) -> list[R]:
    """Return a list of a collection of weak references. Copying fails, and is retried, if another thread adds one."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue


class Liveness(Protocol):
    """The liveness locks of a process. The system releases them when the process ends, however it ends."""

    def acquire(self, uuid: str) -> bool:
        """Acquire the liveness lock of a session. Return False if another process is ending the session."""

    def release(self, uuid: str) -> None:
        """Release the lock, when this was called as often as `acquire`."""

    def alone(self, uuids: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Yield those of these sessions whose locks no process holds. None can acquire one within the block."""

    @property
    def lease(self) -> float | None:
        """The seconds after which a session ends unless it is renewed; None if the locks end with the process."""

    def gone(self, uuids: Sequence[str]) -> list[str]:
        """Return those of these sessions whose locks no process seems to hold."""

    @property
    def intact(self) -> bool:
        """Whether no lock is known to be lost. Must be fast: each take reads it."""

    @property
    def skew(self) -> float:
        """The seconds by which the clock of the database is ahead of this machine's."""

    def is_held(self, uuid: str) -> bool:
        """Return whether this process still holds the lock of a session."""

    def pop_lost(self) -> list[str]:
        """Return the sessions of this process whose locks were lost since the last call."""

    def renew(self) -> bool:
        """Acquire lost locks again. Return whether all other processes have had the time to do so, too."""

    def on_own_connection(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        """Run a statement, with named values, on the session connection, and return its rows.

        Returns None if there is no such connection, or if the statement would have to wait.
        """

    def announce(self) -> None:
        """Notify other processes to check the locks of the sessions that are registered by now."""

    def there(self) -> bool:
        """Return whether the database exists, without creating it."""

    def close(self) -> None:
        """Close the session connection, if there is one, until it is needed again."""


class Reaper:
    """Reaps the orphaned tasks of one database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.others: WeakSet[Upkeep] = WeakSet()  # queues that this process maintains without opening all of them
        self.reaped = 0  # the number of sessions of other processes that this process has ended
        self.more = False  # whether the last run left some that the next one may end
        self._left = math.inf  # how many there were at the last run, if more than a batch
        self._at = 0.0  # the monotonic time of the last run
        self._others = False  # whether sessions of other processes were registered then
        self._orphans_at = 0.0  # the monotonic time of the next search for tasks whose session is not registered
        self._running = threading.RLock()

    def forked(self) -> None:
        self._running = threading.RLock()

    def reap(self, unless_since: float = math.inf) -> bool:
        """End a batch of sessions that have expired or whose process is gone, unless done since this monotonic time.

        Return whether sessions of other processes were registered at the last run.
        """
        with self._running:
            if self._at < unless_since:
                self._at = time.monotonic()
                self._others = self._reap()
            return self._others

    def _reap(self) -> bool:
        sessions, liveness = self._sessions, self._sessions.liveness
        all_had_time = liveness is None or sessions.renew(liveness)
        # First: another thread may register one.
        mine = [session for session in sessions.live() if session.registered_in]
        listed = self._registered()
        if listed is None:
            return False
        ends, processes = listed
        for session in mine:
            if session.uuid not in ends:
                sessions.lose(session)
                sessions.end([session.uuid], "release")
        orphans = self._orphans() if self._at > self._orphans_at else set()
        ends |= dict.fromkeys(orphans)
        here = {*sessions.leaving, *(session.uuid for session in sessions.live())}
        living = [name for name, seconds in ends.items() if seconds is None and name not in here]
        gone = (liveness.gone(living) if liveness else living) if all_had_time else []
        expired = [name for name, seconds in ends.items() if seconds is not None and seconds <= 0]
        if gone:
            with sessions.alone(_some(gone)) as alone:
                later = sessions.end(alone, "died") if alone else ()
            for name in alone:
                ended, process = "ends after session_ttr" if name in later else "has ended", processes.get(name)
                # The process that ended an orphaned session has logged it.
                level = logging.DEBUG if name in orphans else logging.INFO
                log.log(level, "session %s is gone, and %s%s", name, ended, f": {process}" if process else "")
            self.reaped += len(alone)
        for name in sessions.end_expired(_some(expired)) if expired else ():
            log.info("session %s, which was to end, has ended", name)
            self.reaped += 1
        left = max(len(gone), len(expired))
        self.more = REAPED < left < self._left  # not fewer: the database refuses them, or another process is at it
        self._left = left if left > REAPED else math.inf
        if self.more:
            self._orphans_at = 0.0
        return not here.issuperset(ends)

    def _registered(self) -> tuple[dict[str, float | None], dict[str, str]] | None:
        """Return the sessions that may own tasks of the maintained queues: the seconds until each expires, its process.

        The seconds are None for a session that lives. Returns None if there is no queue to query.
        """
        rows = self._sessions.ask(lambda queue: queue.listed(), otherwise=None)
        if rows is None:
            return None
        names = {queue for _, queue, *_ in rows}
        own = {"", *(queue.name for queue in self._sessions.queues)}  # "" is the list of all sessions
        maintained = (own & names) | self.of_others(names - own)
        ends: dict[str, float | None] = {}
        for name, queue, seconds, _ in rows:
            if queue in maintained and ends.get(name) is None:
                ends[name] = seconds
        return ends, {name: process for name, _, _, process in rows}

    def _orphans(self) -> set[str]:
        """Return the sessions that own tasks and are not registered."""
        self._orphans_at = self._at + ORPHANS
        found: set[str] = set()
        queues = [queue for queue in self._sessions.queues if not self.of_others([queue.name])]
        for part in [queues[at : at + AT_ONCE] for at in range(0, len(queues), AT_ONCE)]:
            try:
                found |= part[0].orphans(part)
            except Exception as error:  # of one that was dropped just now, say
                if part[0].database.store.classify(error) is ErrorKind.LOST:
                    raise
                for queue in part:
                    with suppress(NotInstalled):
                        found |= queue.orphans([queue])
        for others in members_of(self.others):
            found.update(others.orphans())
        return set(filter(_is_uuid, found))

    def of_others(self, queues: Collection[str]) -> set[str]:
        return {name for others in members_of(self.others) for name in others.names(queues)} if queues else set()


def _some(names: Sequence[str]) -> list[str]:
    """Return a batch of sessions. It is a random one: another process may be about to end some, and be stopped."""
    return random.sample(names, min(len(names), REAPED))


def _is_uuid(name: str | None) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except (TypeError, ValueError, AttributeError):
        return False  # another program wrote it
