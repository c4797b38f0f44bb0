"""Who owns a taken task: the session of a process, or one that was entered, and the mark of the very take."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from xq.errors import BadType, BadValue, UnknownSession

_entered: ContextVar[tuple[Session, ...]] = ContextVar("xq_sessions", default=())
queues: WeakSet[Any] = WeakSet()  # all of this process: what a closed session held is given back to them
_of_database: WeakKeyDictionary[object, Sessions] = WeakKeyDictionary()
_takes = itertools.count(1)
_process = secrets.token_hex(4)


class Session:
    """An owner of tasks. `with session:` makes it the current one of this thread or asyncio task.

    Leaving the last `with`, of all processes that entered it, closes it, and so gives its tasks back.
    """

    def __init__(self, sessions: Sessions, uuid: str, count: Callable[[str, int], int | None] | None = None) -> None:
        self.uuid = uuid
        self.sessions = sessions
        self.closed = False
        self.known = False  # to the database
        self.prefix = f"{uuid}/"  # of the marks of its takes, which so stand between `prefix` and `end`
        self.end = f"{uuid}0"
        self._entered = 0  # in this process
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._count = count  # adds to the number of processes that entered it, and returns it; None for no such session

    def mark(self, now: float) -> str:
        """A mark for one take, by nobody else and never again: session, time in milliseconds, process, number."""
        if self.closed:
            raise UnknownSession(self.uuid)
        return f"{self.prefix}{int(now * 1000):x}.{_process}.{next(_takes):x}"

    def close(self) -> None:
        """Give this session's tasks back, and forget it. When that fails, it may be called again."""
        self.closed = True  # from here on it takes nothing
        try:
            self.sessions.close(self)
        except BaseException:
            self.closed = False
            raise

    def __enter__(self) -> Session:
        with self._lock:
            if self.closed or (self._count and not self._entered and self._count(self.uuid, 1) is None):
                raise UnknownSession(self.uuid)
            self._entered += 1
            self._process = os.getpid()
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        if os.getpid() != self._process:
            return  # a child that was forked within the `with`: it entered nothing
        entered = list(_entered.get())
        if self in entered:  # else a generator is closed in another thread or task than it was started in
            del entered[len(entered) - 1 - entered[::-1].index(self)]
            _entered.set(tuple(entered))
        with self._lock:
            self._entered -= 1
            # Less than none, where the entering was in a transaction that was rolled back.
            others = self._count(self.uuid, -1) if self._count and not self._entered else 0
        if not self._entered and (others or 0) <= 0 and not self.closed:
            self.close()

    def __repr__(self) -> str:
        return f"<xq session {self.uuid}{' (closed)' if self.closed else ''}>"


class Sessions:
    """The sessions that this process has with one database."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}
        self._own: Session | None = None
        self._lock = threading.Lock()

    def current(self) -> Session:
        """The session entered last in this thread or asyncio task, else the one of the process."""
        for session in reversed(_entered.get()):
            if session.sessions is self:
                return session
        own = self._own
        if own is None or own.closed:
            with self._lock:
                if self._own is None or self._own.closed:
                    self._own = self.new()
                own = self._own
        return own

    def new(self, count: Callable[[str, int], int | None] | None = None) -> Session:
        """Another session."""
        return self.named(str(uuid.uuid4()), count)

    def named(self, name: str, count: Callable[[str, int], int | None] | None = None) -> Session:
        """The session of this uuid in this process."""
        session = self._open.get(name)
        return session if session is not None else self._open.setdefault(name, Session(self, name, count))

    def close(self, session: Session) -> None:
        """Give back what a session holds, and let go of it."""
        for queue in list(queues):
            queue._give_back(session)
        self._open.pop(session.uuid, None)

    def unknown(self) -> None:
        """The database may have forgotten them all: make them known again at their next take."""
        for session in list(self._open.values()):
            session.known = False

    def forked(self) -> None:
        self._own = None
        self._open = {}
        self._lock = threading.Lock()


def of(database: object) -> Sessions:
    """The sessions of this process with a database."""
    sessions = _of_database.get(database)
    return sessions if sessions is not None else _of_database.setdefault(database, Sessions())


def checked(name: object) -> str:
    """A session's uuid as it is stored. Raises BadType and BadValue."""
    if isinstance(name, uuid.UUID):
        return str(name)
    if not isinstance(name, str):
        raise BadType(f"a session is named by its uuid, not by a {type(name).__name__}")
    try:
        return str(uuid.UUID(name))
    except ValueError:
        raise BadValue(f"a session is named by its uuid, and {name!r} is none") from None


def owner_of(mark: str) -> tuple[str, float | None]:
    """The session's uuid and the time, in seconds since 1970, that a mark made by `Session.mark` tells.

    A mark that another program wrote tells no time.
    """
    session, _, take = mark.partition("/")
    try:
        return session, int(take.partition(".")[0], 16) / 1000
    except ValueError:
        return mark, None


def _in_child() -> None:
    global _process
    _process = secrets.token_hex(4)
    _entered.set(())
    for sessions in list(_of_database.values()):
        sessions.forked()


os.register_at_fork(after_in_child=_in_child)
