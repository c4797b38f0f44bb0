"""Liveness locks show that the process of a session lives; the tasks of one without are orphaned, and reaped."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from xq.core.errors import NotInstalled
from xq.core.ports import Row

if TYPE_CHECKING:
    from xq.sessions.session import Sessions

R = TypeVar("R")

ORPHANS = 5.0  # seconds between two looks for tasks whose session is not registered

log = logging.getLogger("xq")


def held_by(weak: Iterable[R]) -> list[R]:
    """Return what a collection of weak references holds. To copy it fails if another thread adds to it meanwhile."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue


class Liveness(Protocol):
    """The liveness locks of a process, which the system releases with it, however it ends."""

    def acquire(self, uuid: str) -> bool:
        """Hold the liveness lock of a session. False where another process is about to end the session."""

    def release(self, uuid: str) -> None:
        """Release it, once it was released as often as it was acquired."""

    def alone(self, uuid: str) -> AbstractContextManager[bool]:
        """Whether no process holds this session; and none begins to within the `with`."""

    @property
    def lease(self) -> float | None:
        """Seconds after which a session ends that was not renewed; None where the system tells who lives."""

    def gone(self, uuids: Sequence[str]) -> list[str]:
        """Those of these sessions that no process seems to hold."""

    @property
    def intact(self) -> bool:
        """Whether no lock is known to be lost: quick, and asked often."""

    @property
    def skew(self) -> float:
        """Seconds by which the clock of the database is ahead of this machine's."""

    def is_held(self, uuid: str) -> bool:
        """Whether this process still holds the lock of a session."""

    def pop_lost(self) -> list[str]:
        """The sessions of this process whose locks the system has released since this was last asked."""

    def renew(self) -> bool:
        """Acquire lost locks again. Returns whether all other processes have had the time to do so, too."""

    def apart(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        """The rows of a statement, with named values, run on a connection of its own.

        None where it has none, or would have to wait there.
        """

    def announce(self) -> None:
        """Have others look from now on whether the sessions live that are listed by now."""

    def there(self) -> bool:
        """Whether the database is there at all; it is not made by asking."""

    def close(self) -> None:
        """Close the connection that it has, if any, until it is needed again."""


class Others(Protocol):
    """Queues of a database that this process maintains, opened or not: many are looked at by one statement."""

    def names(self, of: Collection[str]) -> set[str]:
        """Those of these names that are of such queues."""

    def open_for(self, session: str) -> None:
        """Open those in which a session may hold tasks."""

    def orphans(self) -> set[str]:
        """The sessions that own tasks of any of them and are not registered. Those queues are opened."""

    def expire(self) -> float | None:
        """Move a batch of the due tasks of each. Returns the seconds until the next run; None for no need of one."""


class Reaper:
    """Reaps the orphaned tasks of one database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.others: WeakSet[Others] = WeakSet()
        self.reaped = 0  # how many sessions of others this process has ended
        self._at = 0.0  # the monotonic time of the last run
        self._orphans_at = 0.0  # the monotonic time at which to look for tasks whose session is not registered
        self._running = threading.RLock()

    def forked(self) -> None:
        self._running = threading.RLock()

    def reap(self, unless_since: float = math.inf) -> None:
        """End the sessions without a process, and those that have expired, unless that was done since this time."""
        with self._running:
            if self._at < unless_since:
                self._at = time.monotonic()
                self._reap()

    def _reap(self) -> None:
        sessions, liveness = self._sessions, self._sessions.liveness
        all_had_time = liveness is None or sessions.renew(liveness)
        mine = [session for session in sessions.live() if session.listed]  # first: another thread may register one
        ends = self._registered()
        if ends is None:
            return
        for session in mine:
            if session.uuid not in ends:
                sessions.lose(session)
                sessions.end(session.uuid, "release")
        orphans = self._orphans() if self._at > self._orphans_at else set()
        ends |= dict.fromkeys(orphans)
        here = {*sessions.leaving, *(session.uuid for session in sessions.live())}
        living = [name for name, seconds in ends.items() if seconds is None and name not in here]
        for name in (liveness.gone(living) if liveness else living) if all_had_time else ():
            with sessions.alone(name) as alone:
                if alone:
                    ended = "has ended" if sessions.end(name, "died") else "ends after session_ttr"
                    level = (
                        logging.DEBUG if name in orphans else logging.INFO
                    )  # the process that ended it has logged it
                    log.log(level, "session %s is gone, and %s", name, ended)
                    self.reaped += 1
        for name, seconds in ends.items():
            if seconds is not None and seconds <= 0 and sessions.end_expired(name):
                log.info("session %s, which was to end, has ended", name)
                self.reaped += 1

    def _registered(self) -> dict[str, float | None] | None:
        """The sessions that may own tasks of queues which this process maintains, and in how many seconds they expire.

        None for those that live. Nothing at all if no queue can be asked.
        """
        rows = self._sessions.ask(lambda queue: queue.listed(), otherwise=None)
        if rows is None:
            return None
        names = {queue for _, queue, _ in rows}
        own = {"", *(queue.name for queue in self._sessions.queues)}  # "" is the list of all sessions
        maintained = (own & names) | self.of_others(names - own)
        ends: dict[str, float | None] = {}
        for name, queue, seconds in rows:
            if queue in maintained and ends.get(name) is None:
                ends[name] = seconds
        return ends

    def _orphans(self) -> set[str]:
        """The sessions that own tasks and are not registered."""
        self._orphans_at = self._at + ORPHANS
        found: set[str] = set()
        for queue in self._sessions.queues:
            if not self.of_others([queue.name]):
                with suppress(NotInstalled):
                    found.update(queue.orphans())
        for others in held_by(self.others):
            found.update(others.orphans())
        return set(filter(_is_uuid, found))

    def of_others(self, queues: Collection[str]) -> set[str]:
        return {name for others in held_by(self.others) for name in others.names(queues)} if queues else set()


def _is_uuid(name: str | None) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except (TypeError, ValueError, AttributeError):
        return False  # another program wrote it
