"""The session of a take, and the token that it writes into `owner`: unique to the take, of the current session."""

from __future__ import annotations

import itertools
import secrets
import threading
import uuid
from weakref import WeakKeyDictionary, finalize

from xq.core import time
from xq.core.errors import UnknownSession
from xq.core.forking import at_fork
from xq.database.database import Database
from xq.database.members import members_of
from xq.database.reaper import Reaper
from xq.database.session import OpenSessions, Session, entered, entries
from xq.database.transactions import RunsQueue

_of_database: WeakKeyDictionary[Database, Sessions] = WeakKeyDictionary()
_takes = itertools.count(1)
_process = secrets.token_hex(4)


class Sessions:
    """The sessions of this process in one database, and which of them takes."""

    def __init__(self, database: Database) -> None:
        self.open = OpenSessions(database)
        self._begin()

    def _begin(self) -> None:
        self.reaper = Reaper(self.open)
        self.waits = threading.RLock()  # held by the thread that waits, if all threads share one connection
        self._lock = threading.Lock()

    def forked(self) -> None:
        self.open.forked()
        self._begin()

    def to_take(self) -> Session:
        """Return the current session, after renewing lost liveness locks. Raises the ORM's errors if that fails."""
        mine = self.open
        liveness = mine.records.known
        if liveness is not None and not liveness.intact:
            mine.renew(liveness)
        own = mine.own
        return own if own is not None and not own.closed and not entered() else self.current()

    def token(self, session: Session, database: RunsQueue, queue: str) -> str:
        """Return a unique token for a take from a queue: session, time in milliseconds, process, number.

        It has at most 63 characters, since the token of a finished task has one more (plain-sql.md) in a column of 64.
        The first one of a queue registers the session in the database. Raises UnknownSession.
        """
        if queue not in session.registered_in and not session.closed:
            session.register(database)
        if database.clock is not None:
            now = database.clock.now
        else:  # by the clock of the database
            liveness = self.open.records.known
            now = time.time() if liveness is None else time.time() + liveness.skew
        if session.closed:
            raise UnknownSession(session.uuid)
        return f"{session.prefix}{int(now * 1000):x}.{_process}.{next(_takes) % 2**20:x}"

    def current(self) -> Session:
        """Return the session that this thread or asyncio task entered or joined last, else the one of the process."""
        return (self.open.entered_last() if entered() else None) or self.own()

    def own(self) -> Session:
        """Return the session of the process."""
        own = self.open.own
        if own is None or own.closed:
            with self._lock:
                if self.open.own is None or self.open.own.closed:
                    self.open.own = self.new()
                own = self.open.own
        return own

    def new(self) -> Session:
        return self.open.named(str(uuid.uuid4()))


def of(database: Database) -> Sessions:
    """Return the sessions of this process in a database."""
    sessions = _of_database.get(database)
    if sessions is None:
        sessions = _of_database.setdefault(database, Sessions(database))
        finalize(database, sessions.open.dropped).atexit = False
    return sessions


def _in_child() -> None:
    global _process
    _process = secrets.token_hex(4)
    entries.set(())
    for sessions in members_of(_of_database.values()):
        sessions.forked()


at_fork("sessions", _in_child)
