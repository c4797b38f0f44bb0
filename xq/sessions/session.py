"""Who owns a taken task: the session of a process, or one that was entered, and the token of the take."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

from xq.core.errors import BadType, BadValue, NotInstalled, UnknownSession
from xq.core.ports import Row
from xq.sessions.forking import at_fork
from xq.sessions.liveness import Liveness, Reaper, held_by

R = TypeVar("R")
S = TypeVar("S")

UUID_LENGTH = 36  # with its dashes; the token of a take begins so, and goes on with one character more, see `tokens_of`

log = logging.getLogger("xq")
_entered: ContextVar[tuple[Entry, ...]] = ContextVar("xq_sessions", default=())
_of_database: WeakKeyDictionary[object, Sessions] = WeakKeyDictionary()
_takes = itertools.count(1)
_process = secrets.token_hex(4)
_ends_at_exit = 0  # the process that was told
before_exit: list[Callable[[], None]] = []  # what is done before the sessions of a process that ends are left


class SessionQueue(Protocol):
    """One queue, as the sessions of its database see it."""

    @property
    def name(self) -> str:
        """Of the queue, in its database."""

    @property
    def installed(self) -> bool: ...

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of the database that the queue is in now."""

    def briefly_connected(self) -> AbstractContextManager[object]:
        """Have a connection of this thread in the block, and close it after, unless it was open before."""

    def orphans(self) -> list[str]:
        """The sessions that hold tasks of this queue and are not listed, since another process ended them."""

    def listed(self) -> list[tuple[str, str, float | None]]:
        """Every session of the database, a queue in which it may hold tasks, and when it ends (None: it lives)."""

    def expire_later(self, uuid: str) -> bool:
        """Have a session end in so many seconds as the database is configured for. False when at once."""

    def is_there(self, uuid: str) -> bool:
        """Whether the database lists a session that has not ended."""

    def has_expired(self, uuid: str) -> bool:
        """Whether a session that was to end has ended for good: looked at as a write, that nobody may pass by."""

    def give_back(self, uuid: str, event: str) -> None:
        """Release what a session holds in this queue, and strike it off the list of those that do."""

    def forget_waits(self, uuid: str) -> None:
        """Forget that anybody of a process waits, whose session this was."""

    def session_closed(self) -> None:
        """Wake the callers that wait to take for a session of this process which is closed."""

    def session_lost(self) -> None:
        """The session of this process was lost: what the database knew of it, it knows no more."""

    def deregister(self, uuid: str) -> None:
        """Forget a session, which can be joined no more."""

    def liveness(self) -> Liveness | None:
        """The liveness locks of the database; None where no other process sees it."""

    def rejoin(self, uuid: str) -> bool:
        """Have a session go on that was about to end. False when there is none of this uuid."""


class Holder(Protocol):
    """What knows by itself which sessions of this process have taken its tasks."""

    def give_back(self, session: str) -> None:
        """A session has ended."""


queues: WeakSet[SessionQueue] = WeakSet()  # of all the queues of this process


class Entry(NamedTuple):
    """That a thread or asyncio task has entered a session: by `with`, or by its name (`Sessions.join`)."""

    sessions: Sessions
    session: Session | None  # None: that of the process
    joined: bool  # by its name: until another is, or the `with` around that is left


class State(Enum):
    """Of a session in this process. (In the database it is registered, expiring, or not there.)"""

    LEFT = "this process does not hold its liveness lock"  # `acquire` makes it LIVE
    LIVE = "this process holds its liveness lock"  # `release` makes it LEFT
    CLOSED = "it takes nothing any more"


class Session:
    """An owner of tasks. `with session:` makes it the current one of this thread or asyncio task.

    Leaving the last `with` of a process ends it, unless other processes have joined it, and so gives its tasks back.
    """

    def __init__(self, sessions: Sessions, uuid: str) -> None:
        self.uuid = uuid
        self.sessions = sessions
        self.state = State.LEFT
        self._liveness: Liveness | None = None  # which holds its lock
        self.listed: set[str] = set()  # the queues that the database knows to hold tasks of it
        self.prefix, _ = tokens_of(uuid)
        self._entered = 0  # how many threads and asyncio tasks of this process have entered it
        self._process = os.getpid()
        self._lock = threading.RLock()

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    @property
    def live(self) -> bool:
        return self.state is State.LIVE

    def new_token(self, now: float) -> str:
        """Return the token of one take: session, time in milliseconds, process, number. No other take has it."""
        if self.closed:
            raise UnknownSession(self.uuid)
        return f"{self.prefix}{int(now * 1000):x}.{_process}.{next(_takes):x}"

    def acquire(self) -> None:
        """Hold its liveness lock. Raises UnknownSession if it is closed, or another process is just ending it."""
        _end_at_exit()
        with self._lock:
            if self.live:
                return
            liveness = self.sessions.liveness
            if self.closed or (liveness is not None and not liveness.acquire(self.uuid)):
                raise UnknownSession(self.uuid)
            self._liveness, self.state = liveness, State.LIVE

    def release(self) -> None:
        """Release its liveness lock: its tasks are orphaned, unless other processes have joined it."""
        with self._lock:
            liveness, self._liveness = self._liveness, None
            if self.live:
                self.state = State.LEFT
            if liveness is not None:
                liveness.release(self.uuid)

    def close(self) -> None:
        """End it for all processes that have joined it: its tasks go back (after session_ttr).

        It may be called again if that fails.
        """
        self.sessions.close(self)

    def __enter__(self) -> Session:
        self.enter(joined=False)
        return self

    def enter(self, joined: bool) -> None:
        """Have it be the current one, as in a `with`, or as `Sessions.join`."""
        with self._lock:
            if self.closed or (not self.live and not self.sessions.rejoin(self)):
                raise UnknownSession(self.uuid)
            self._entered += 1
        self._process = os.getpid()
        _entered.set((*_entered.get(), Entry(self.sessions, self, joined)))

    def __exit__(self, *exception: object) -> None:
        entries = self._entries()
        _forget(entries)
        try:
            for entry in entries[1:]:
                if entry.session is not None:
                    entry.session.leave()
        finally:
            self.leave()

    def _entries(self) -> list[Entry]:
        """The last time that this thread or asyncio task entered it by `with`, and what was joined since in that block.

        Nothing, where a generator is closed in another thread or task than it was started in.
        """
        entries = [entry for entry in _entered.get() if entry.sessions is self.sessions]
        for at in reversed(range(len(entries))):
            if entries[at].session is self and not entries[at].joined:
                return [entries[at], *itertools.takewhile(lambda entry: entry.joined, entries[at + 1 :])]
        return []

    def leave(self) -> None:
        """Leave it. The last one of this process releases the liveness lock; the last one of all processes ends it."""
        if os.getpid() != self._process:
            return  # a child that was forked within the `with`: it entered nothing
        try:
            with self._lock:
                self._entered -= 1
                last = self._entered <= 0 and not self.closed
                if last:
                    self.sessions.leaving.add(self.uuid)
                    self.release()  # a thread that enters it from here on must join it anew
            if last:
                self.sessions.leave(self)
        finally:
            self.sessions.leaving.discard(self.uuid)

    def forked(self) -> None:
        if not self.closed:
            self.state = State.LEFT
        self._liveness, self._entered, self._lock = None, 0, threading.RLock()
        self.listed.clear()

    def __repr__(self) -> str:
        return f"<xq session {self.uuid}{' (closed)' if self.closed else ''}>"


def _forget(entries: Sequence[Entry]) -> None:
    """Have this thread or asyncio task be in these no more."""
    _entered.set(tuple(each for each in _entered.get() if not any(each is entry for entry in entries)))


class Sessions:
    """The sessions that this process has with one database."""

    def __init__(self) -> None:
        self.holders: WeakSet[Holder] = WeakSet()
        self.reaper = Reaper(self)
        self.waits = threading.RLock()  # held by the thread that waits, where all threads share one connection
        self._liveness: tuple[Liveness | None] | None = None  # once it was looked for
        self._open: dict[str, Session] = {}
        self._own: Session | None = None
        self._lock = threading.Lock()
        self._own_lost = False  # whether the session of the process was lost before
        self.leaving: set[str] = set()  # those that threads of this process end now, and the reaper must not
        self._lost: set[str] = set()  # those that ended because their liveness locks were lost

    @property
    def lease(self) -> float | None:
        """For how many seconds a session goes on without being renewed; None where the system tells who lives."""
        return None if self._liveness is None or self._liveness[0] is None else self._liveness[0].lease

    @property
    def now(self) -> float:
        """Seconds since 1970, by the clock of the database."""
        return time.time() + (0.0 if self._liveness is None or self._liveness[0] is None else self._liveness[0].skew)

    def notice_loss(self, name: str) -> bool:
        """Whether a session of this process was ended because its liveness lock was lost.

        One that others have ended ends here, too, and gives back what it has taken since.
        """
        session = self._open.get(name)
        if session is not None and session.live and session.listed:
            if not self.ask(lambda queue: queue.is_there(name), otherwise=True):
                self.lose(session)
                self.end(name, "release")  # what it has taken since
        # Of a key alone nobody knows by which session it was taken: until the next take, by the one before.
        own = self._own
        before = own is not None and own.uuid == name and not own.live and self._own_lost
        return name in self._lost or before

    def lose(self, session: Session) -> None:
        """A session was ended, and not by this process: it takes nothing any more, and is no more this process's."""
        own = session is self._own
        with session._lock:
            if session.closed:  # another thread noticed it first, and released its lock
                return
            lost = self.liveness is not None and not self.liveness.is_held(
                session.uuid
            )  # else another process closed it
            if lost:
                self._lost.add(session.uuid)
                self._own_lost |= own
            session.state = State.CLOSED
            session.release()
        self._closed(session)
        for queue in self.queues if lost and own else ():
            queue.session_lost()

    def _closed(self, session: Session) -> None:
        self._open.pop(session.uuid, None)
        for queue in held_by(queues):  # be they installed or not, which only the database could tell
            if queue.sessions is self:
                queue.session_closed()

    @property
    def queues(self) -> list[SessionQueue]:
        """The queues of this process that are installed in this database."""
        return [queue for queue in held_by(queues) if queue.sessions is self and queue.installed]

    def ask(self, question: Callable[[SessionQueue], R], otherwise: S) -> R | S:
        """What any of the queues says of all sessions."""
        for queue in self.queues:
            with suppress(NotInstalled):  # its table was dropped just now
                return question(queue)
        return otherwise

    @property
    def liveness(self) -> Liveness | None:
        """The liveness locks of this process; None where no other process sees the database."""
        if self._liveness is None:
            for queue in self.queues[:1]:
                self.use_liveness(queue.liveness)
        return self._liveness[0] if self._liveness else None

    def use_liveness(self, find: Callable[[], Liveness | None]) -> None:
        """Set what `liveness` is, unless it is known: locks go with the object that holds them."""
        if self._liveness is None:
            found = find()
            with self._lock:
                self._liveness = self._liveness or (found,)

    def apart(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        """The rows of a statement run on the session connection; None where that cannot be.

        It neither waits for the application's transaction nor sees the moment at which that one began.
        """
        return None if self.liveness is None else self.liveness.apart(sql, values)

    def announce(self) -> None:
        """Have others look from now on whether the sessions live that are listed by now."""
        if self.liveness is not None:
            self.liveness.announce()

    def current(self) -> Session:
        """That which this thread or asyncio task entered or joined last, else the one of the process."""
        entered, own = _entered.get(), self._own
        if not entered and own is not None and not own.closed:
            return own
        if entered:
            entry = next((entry for entry in reversed(entered) if entry.sessions is self), None)
            if entry is not None and entry.session is not None:
                return entry.session
        return self.own()

    def join(self, session: Session | None) -> None:
        """Have this be the current one of this thread or asyncio task; None: that of the process.

        Until another is joined, or the `with` around this is left. The one joined before in the same block is left.
        """
        entered = [entry for entry in _entered.get() if entry.sessions is self]
        if session is None:
            _entered.set((*_entered.get(), Entry(self, None, joined=True)))
        else:
            session.enter(joined=True)
        if entered and entered[-1].joined:
            _forget(entered[-1:])
            if entered[-1].session is not None:
                entered[-1].session.leave()

    def to_take(self) -> Session:
        """The current session, of which the liveness lock is held. Raises the ORM's errors where it cannot be held."""
        if self._liveness is not None and self._liveness[0] is not None and not self._liveness[0].intact:
            self.renew(self._liveness[0])
        own = self._own
        return own if own is not None and not own.closed and not _entered.get() else self.current()

    def renew(self, liveness: Liveness) -> bool:
        """As `Liveness.renew`; sessions whose locks were lost before are closed."""
        others_do = liveness.renew()
        for name in liveness.pop_lost():
            if name in self._open:
                log.warning(
                    "session %s is lost: its liveness lock was. Its tasks come back at once, or after session_ttr",
                    name,
                )
                self.lose(self._open[name])  # it ends as any does of which no process is left
        return others_do

    def is_entered(self, name: str) -> bool:
        """Whether this thread or asyncio task has entered a session, and not left it."""
        entered = (entry.session for entry in _entered.get() if entry.sessions is self)
        return any(session is not None and session.uuid == name for session in entered)

    def own(self) -> Session:
        """The session of the process."""
        own = self._own
        if own is None or own.closed:
            with self._lock:
                if self._own is None or self._own.closed:
                    self._own = self.new()
                own = self._own
        return own

    def new(self) -> Session:
        """Another session."""
        return self.named(str(uuid.uuid4()))

    def named(self, name: str) -> Session:
        """The session of this uuid in this process."""
        session = self._open.get(name)
        return session if session is not None else self._open.setdefault(name, Session(self, name))

    def live(self) -> list[Session]:
        """Those whose liveness locks this process holds."""
        return [session for session in list(self._open.values()) if session.live]

    def rejoin(self, session: Session) -> bool:
        """Join a session that may have been left, or lost, or ended meanwhile. False when it has ended."""
        session.acquire()
        there = False
        try:
            there = self.ask(lambda queue: queue.rejoin(session.uuid), otherwise=False)
        finally:
            if not there:
                session.release()
        if there:
            self._open[session.uuid] = session
        else:
            self._open.pop(session.uuid, None)
        return there

    def leave(self, session: Session) -> None:
        """Leave a session that was let go of to the other processes that have joined it; end it where there is none."""
        with self.alone(session.uuid) as alone:
            if alone and not session.live:  # else another thread has joined it anew
                self._open.pop(session.uuid, None)
                self._end(session)

    def close(self, session: Session) -> None:
        """End a session, whoever else has joined it."""
        self._end(session)
        session.release()

    def _end(self, session: Session) -> None:
        before, session.state = session.state, State.CLOSED  # from here on it takes nothing
        try:
            self.end(session.uuid, "release")
        except BaseException:
            session.state = before
            raise
        self._closed(session)

    def alone(self, name: str) -> AbstractContextManager[bool]:
        """Whether no process holds a session; and none begins to within the `with`."""
        return nullcontext(True) if self.liveness is None else self.liveness.alone(name)

    def end(self, name: str, event: str) -> bool:
        """Give back what a session holds, as the event `event`, now or when session_ttr has passed: whether now."""
        postponed = self.ask(lambda queue: queue.expire_later(name), otherwise=True)
        if not postponed:
            self._give_back(name, event)
        return not postponed

    def _give_back(self, name: str, event: str) -> None:
        for others in held_by(self.reaper.others):
            others.open_for(name)
        for queue in self.queues:
            with suppress(NotInstalled):
                queue.give_back(name, event)
        for holder in held_by(self.holders):
            holder.give_back(name)
        self.ask(lambda queue: queue.deregister(name), otherwise=None)

    def end_expired(self, name: str) -> bool:
        """End a session whose time has passed. False if it has been joined again meanwhile, or ended."""
        with self.alone(name):
            expired = self.ask(lambda queue: queue.has_expired(name), otherwise=False)
            if expired:
                self._give_back(name, "died")
        return expired

    def forget_listed(self) -> None:
        """The database may have forgotten them all: make them known again at their next take."""
        for session in list(self._open.values()):
            session.listed.clear()

    def exit(self) -> None:
        """The process ends: leave all sessions."""
        known = self.live()
        if known and (self.liveness is None or self.liveness.there()):
            here = next((queue for queue in held_by(queues) if queue.sessions is self), None)
            with here.briefly_connected() if here else nullcontext():  # the application may have closed its connection
                for session in known:
                    session.release()
                    self.leave(session)
                    for queue in self.queues:
                        with suppress(NotInstalled):
                            queue.forget_waits(session.uuid)

    def dropped(self) -> None:
        """The database object is gone, and nobody can finish what was taken through it: others give it back."""
        for session in self.live():
            session.release()

    def forked(self) -> None:
        """In a child, which has none of them: a session that it enters again, it must join."""
        for session in self._open.values():
            session.forked()
        self.reaper.forked()
        self.waits = threading.RLock()
        self._liveness = None
        self._own = None
        self._own_lost = False
        self._lost = set()
        self._open = {}
        self._lock = threading.Lock()


def of(database: object) -> Sessions:
    """The sessions of this process with a database."""
    sessions = _of_database.get(database)
    if sessions is None:
        sessions = _of_database.setdefault(database, Sessions())
        finalize(database, sessions.dropped).atexit = False
    return sessions


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


def tokens_of(session: str) -> tuple[str, str]:
    """The bounds of the tokens of a session's takes: what they begin with, and what comes after all of them."""
    return f"{session}/", f"{session}0"


def owner_of(token: str) -> tuple[str, float | None]:
    """The session's uuid and the time, in seconds since 1970, that a token of `Session.new_token` holds.

    A token that another program wrote holds no time.
    """
    session, _, take = token.partition("/")
    try:
        return session, int(take.partition(".")[0], 16) / 1000
    except ValueError:
        return token, None


def _at_exit() -> None:
    for call in before_exit:
        call()
    for sessions in held_by(_of_database.values()):
        try:
            sessions.exit()
        except Exception as error:  # its liveness locks go with the process
            log.debug("a session could not be ended at exit: %s", error)


def _in_child() -> None:
    global _process
    _process = secrets.token_hex(4)
    _entered.set(())
    for sessions in held_by(_of_database.values()):
        sessions.forked()


def _end_at_exit() -> None:
    """Have the sessions of this process end with it. Children that multiprocessing forks run nothing of atexit's."""
    global _ends_at_exit
    if _ends_at_exit != os.getpid():
        _ends_at_exit = os.getpid()
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing.Finalize(None, _at_exit, exitpriority=10)


atexit.register(_at_exit)
at_fork("sessions", _in_child)
