"""Sessions own taken tasks: that of the process, or one that was entered. Each take has a token of its session."""

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

from xq.core.dialect import Runs
from xq.core.errors import BadType, BadValue, NotInstalled, UnknownSession
from xq.core.forking import at_fork
from xq.core.ports import ErrorKind, Liveness
from xq.sessions.reaper import REAPED, Reaper
from xq.sessions.records import Owner, Records, forget_waits

R = TypeVar("R")

ATTEMPT = 60.0  # seconds until another attempt to end sessions in a queue where the database has denied that
UUID_LENGTH = 36  # with its dashes; a token begins with the uuid and one more character, see `tokens_of`

log = logging.getLogger("xq")
_entered: ContextVar[tuple[Entry, ...]] = ContextVar("xq_sessions", default=())
entered = _entered.get  # the sessions that this thread or asyncio task has entered
_of_database: WeakKeyDictionary[object, Sessions] = WeakKeyDictionary()
_takes = itertools.count(1)
_process = secrets.token_hex(4)
_ends_at_exit = 0  # the pid of the process that has registered `_at_exit` with multiprocessing
before_exit: list[Callable[[], None]] = []  # called at exit, before the sessions end
owners: WeakSet[Owner] = WeakSet()  # all of this process: what may own tasks


def members_of(weak: Iterable[R]) -> list[R]:
    """Return a list of a collection of weak references. Copying fails, and is retried, if another thread adds one."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue


class Entry(NamedTuple):
    """A record that a thread or asyncio task has entered a session, by `with` or by `Sessions.join`."""

    sessions: Sessions
    session: Session | None  # None: the session of the process
    joined: bool  # by `Sessions.join`: until the next join, or the end of the `with` around it


class Session:
    """An owner of tasks. `with session:` makes it the current one of this thread or asyncio task.

    The end of the last `with` of a process ends the session and releases its tasks, unless other processes have joined
    it. By its `uuid` they join it: `Page.xq.session(uuid)`.
    """

    def __init__(self, sessions: Sessions, uuid: str) -> None:
        self.uuid = uuid
        self.sessions = sessions
        self.live = False  # whether this process holds its liveness lock
        self.closed = False  # whether it takes nothing any more; then it is not live
        self._liveness: Liveness | None = None  # set while this process holds the lock
        self.registered_in: set[str] = set()  # the queues in which it is registered
        self.prefix, _ = tokens_of(uuid)
        self._entered = 0  # how many threads and asyncio tasks of this process have entered it
        self._process = os.getpid()
        self._lock = threading.RLock()

    def new_token(self, now: float) -> str:
        """Return a unique token for one take: session, time in milliseconds, process, number. Raises UnknownSession."""
        if self.closed:
            raise UnknownSession(self.uuid)
        return f"{self.prefix}{int(now * 1000):x}.{_process}.{next(_takes):x}"

    def token(self, database: Runs, queue: str) -> str:
        """Return a token for a take from a queue. The first one registers the session in the database."""
        if queue not in self.registered_in and not self.closed:
            self.register(database)
        return self.new_token(self.sessions.now if database.clock is None else database.clock.now)

    def register(self, database: Runs) -> None:
        """Register it in the database as a possible owner of tasks of a queue."""
        queue = database.dialect.source_name
        if queue not in self.registered_in:
            self.sessions.use_liveness(database)
            self.acquire()
            if self.sessions.records.register(self.uuid, database):
                self.registered_in.add(queue)

    def acquire(self) -> None:
        """Acquire its liveness lock. Raises UnknownSession if it is closed, or another process is ending it."""
        _end_at_exit()
        with self._lock:
            if self.live:
                return
            liveness = self.sessions.liveness
            if self.closed or (liveness is not None and not liveness.acquire(self.uuid)):
                raise UnknownSession(self.uuid)
            self._liveness = liveness
            self.live = True

    def release(self) -> None:
        """Release its liveness lock. Its tasks are orphaned, unless other processes have joined it."""
        with self._lock:
            liveness, self._liveness = self._liveness, None
            self.live = False
            if liveness is not None:
                liveness.release(self.uuid)

    def close(self) -> None:
        """End it for all processes that have joined it, and release its tasks: at once, or after session_ttr seconds.

        If the call fails, it may be repeated.
        """
        self.sessions.close(self)

    def __enter__(self) -> Session:
        self.enter(joined=False)
        return self

    def enter(self, joined: bool) -> None:
        """Make it the current session of this thread or asyncio task. `joined` if by `Sessions.join`.

        Raises UnknownSession if it has ended.
        """
        self.hold()
        self.note(joined)

    def hold(self) -> None:
        """Hold it, as one more thread or asyncio task, until `leave`. Raises UnknownSession if it has ended."""
        with self._lock:
            if self.closed or (not self.live and not self.sessions.rejoin(self)):
                raise UnknownSession(self.uuid)
            self._entered += 1
        self._process = os.getpid()

    def note(self, joined: bool) -> None:
        """Note that it is the current session of this thread or asyncio task."""
        _entered.set((*_entered.get(), Entry(self.sessions, self, joined)))

    def forget(self) -> None:
        """Forget that this thread or asyncio task has entered it, after another context has left it."""
        _forget(self._entries())

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
        """Return the entry of the innermost `with` of this session, and of the session joined since in that block.

        Empty if a generator with that block is closed in another thread or asyncio task than it was started in.
        """
        entries = [entry for entry in _entered.get() if entry.sessions is self.sessions]
        for at in reversed(range(len(entries))):
            if entries[at].session is self and not entries[at].joined:
                return [entries[at], *itertools.takewhile(lambda entry: entry.joined, entries[at + 1 :])]
        return []

    def leave(self) -> None:
        """Leave it. The last thread or task of this process releases the liveness lock, the last process ends it."""
        if os.getpid() != self._process:
            return  # a child that was forked within the `with` did not enter it
        try:
            with self._lock:
                self._entered -= 1
                last = self._entered <= 0 and not self.closed
                if last:
                    self.sessions.leaving.add(self.uuid)
                    self.release()  # a thread that enters it after this must rejoin it
            if last:
                self.sessions.leave(self)
        finally:
            self.sessions.leaving.discard(self.uuid)

    def forked(self) -> None:
        self.live, self._liveness, self._entered, self._lock = False, None, 0, threading.RLock()
        self.registered_in.clear()

    def __repr__(self) -> str:
        return f"<xq session {self.uuid}{' (closed)' if self.closed else ''}>"


def _forget(entries: Sequence[Entry]) -> None:
    """Remove these entries from this thread or asyncio task."""
    _entered.set(tuple(each for each in _entered.get() if not any(each is entry for entry in entries)))


class Sessions:
    """The sessions of this process in one database."""

    def __init__(self, database: object) -> None:
        self._database = ref(database)
        self.records = Records(self._databases, lambda: self.liveness)
        self.reaper = Reaper(self)
        self.waits = threading.RLock()  # held by the thread that waits, if all threads share one connection
        self._liveness: Liveness | None = None
        self._liveness_found = False  # whether `_liveness` is determined, as None or as an object
        self._open: dict[str, Session] = {}
        self._own: Session | None = None
        self._lock = threading.Lock()
        self._own_lost = False  # whether an own session of the process was lost before
        self.leaving: set[str] = set()  # uuids that threads of this process are ending, so that the reaper skips them
        self._lost: set[str] = set()  # uuids of those that ended because their liveness locks were lost
        # The queues in which this user of the database may not move tasks, and the monotonic time of the next attempt.
        self._denied: dict[str, float] = {}

    @property
    def now(self) -> float:
        """The time in seconds since 1970, by the clock of the database."""
        liveness = self._liveness
        return time.time() if liveness is None else time.time() + liveness.skew

    def notice_loss(self, name: str) -> bool:
        """Return whether a session of this process ended because its liveness lock was lost.

        If another process has ended it, end it here, too, and release what it has taken since.
        """
        session = self._open.get(name)
        if session is not None and session.live and session.registered_in:
            if not self.records.is_there(name):
                self.lose(session)
                self.end([name], "release")  # what it has taken since
        # A key without a token does not name its session: until the next take, assume the lost one.
        own = self._own
        before = own is not None and own.uuid == name and not own.live and self._own_lost
        return name in self._lost or before

    def lose(self, session: Session) -> None:
        """Close a session that was lost, or that another process has ended."""
        own = session is self._own
        with session._lock:
            if session.closed:  # another thread has done this
                return
            # If this process still holds its lock, another process has closed it.
            lost = self.liveness is not None and not self.liveness.is_held(session.uuid)
            if lost:
                self._lost.add(session.uuid)
                self._own_lost |= own
            session.closed = True
            session.release()
        self._closed(session, own_lost=lost and own)

    def _closed(self, session: Session, own_lost: bool = False) -> None:
        self._open.pop(session.uuid, None)
        for owner in self._owners:  # also those that are not installed: no query is needed
            owner.session_closed(own_lost)

    @property
    def _owners(self) -> list[Owner]:
        database = self._database()
        return [owner for owner in members_of(owners) if owner.home is database] if database is not None else []

    @property
    def installed(self) -> list[Owner]:
        """What may own tasks in this database, the queues first."""
        return sorted((owner for owner in self._owners if owner.installed), key=lambda owner: owner.database is None)

    def _databases(self) -> Iterator[Runs]:
        """Yield that of each queue of this process that is installed."""
        for owner in self._owners:
            if owner.database is not None and owner.installed:
                yield owner.database

    @property
    def liveness(self) -> Liveness | None:
        """The liveness locks of this process; None if no other process can access the database."""
        if not self._liveness_found:
            for database in itertools.islice(self._databases(), 1):
                self.use_liveness(database)
        return self._liveness

    def use_liveness(self, database: Runs) -> None:
        """Set `liveness`, unless it is set: a second object would not hold the locks of the first."""
        if not self._liveness_found:
            found = database.dialect.liveness(database.store)
            with self._lock:
                if not self._liveness_found:
                    self._liveness, self._liveness_found = found, True

    def current(self) -> Session:
        """Return the session that this thread or asyncio task entered or joined last, else the one of the process."""
        entered, own = _entered.get(), self._own
        if not entered and own is not None and not own.closed:
            return own
        return (self._entered_last(entered) if entered else None) or self.own()

    def _entered_last(self, entered: Sequence[Entry]) -> Session | None:
        entry = next((entry for entry in reversed(entered) if entry.sessions is self), None)
        return None if entry is None else entry.session

    def join(self, session: Session | None) -> None:
        """Make this the current session of this thread or asyncio task (None: the session of the process).

        It lasts until the next join, or until the end of the `with` around it. The session that was joined before in
        the same block is left. Raises UnknownSession if the session has ended.
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
        """Return the current session, after renewing lost liveness locks. Raises the ORM's errors if that fails."""
        liveness, own = self._liveness, self._own
        if liveness is not None and not liveness.intact:
            self.renew(liveness)
            own = self._own
        return own if own is not None and not own.closed and not _entered.get() else self.current()

    def renew(self, liveness: Liveness) -> bool:
        """Call `Liveness.renew` and return its result. Close the sessions whose locks were lost before."""
        others_do = liveness.renew()
        for name in liveness.pop_lost():
            if name in self._open:
                log.warning(
                    "session %s is lost: its liveness lock was. Its tasks come back at once, or after session_ttr",
                    name,
                )
                self.lose(self._open[name])  # its tasks are orphaned, and reaped
        return others_do

    def is_registered(self, name: str) -> bool:
        """Return whether this thread or asyncio task has entered a session and not left it."""
        entered = (entry.session for entry in _entered.get() if entry.sessions is self)
        return any(session is not None and session.uuid == name for session in entered)

    def own(self) -> Session:
        own = self._own
        if own is None or own.closed:
            with self._lock:
                if self._own is None or self._own.closed:
                    self._own = self.new()
                own = self._own
        return own

    def new(self) -> Session:
        return self.named(str(uuid.uuid4()))

    def named(self, name: str) -> Session:
        """Return the session of this uuid in this process."""
        session = self._open.get(name)
        return session if session is not None else self._open.setdefault(name, Session(self, name))

    def live(self) -> list[Session]:
        """Return the sessions whose liveness locks this process holds."""
        return [session for session in list(self._open.values()) if session.live]

    def rejoin(self, session: Session) -> bool:
        """Join a session that this process does not hold any more. Return False if it has ended."""
        session.acquire()
        there = False
        try:
            there = self.records.rejoin(session.uuid)
        finally:
            if not there:
                session.release()
        if there:
            self._open[session.uuid] = session
        else:
            self._open.pop(session.uuid, None)
        return there

    def leave(self, session: Session) -> None:
        """End a session whose liveness lock this process has released, unless another process has joined it."""
        with self.alone([session.uuid]) as alone:
            if alone and not session.live:  # else another thread has rejoined it
                self._open.pop(session.uuid, None)
                self._end(session)

    def close(self, session: Session) -> None:
        """End a session, even if other processes have joined it."""
        self._end(session)
        session.release()

    def _end(self, session: Session) -> None:
        before = session.closed, session.live
        session.closed, session.live = True, False  # no take can begin after this
        try:
            self.end([session.uuid], "release")
        except BaseException:
            session.closed, session.live = before
            raise
        self._closed(session)

    def alone(self, names: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Yield those of these sessions whose locks no process holds. None can acquire one within the block."""
        return nullcontext(names) if self.liveness is None else self.liveness.alone(names)

    def end(self, names: Sequence[str], event: str) -> set[str]:
        """End sessions and release their tasks, recorded as `event`. Return those that wait for session_ttr."""
        later = self.records.expire_later(names)
        if at_once := [name for name in names if name not in later]:
            self._give_back(at_once, event)
        return later

    def _give_back(self, names: Sequence[str], event: str) -> None:
        # The queues first: then the sessions are registered only in those that this process has not opened.
        for owner in self.installed:
            self.unless_denied(owner, partial(owner.give_back, names, event))
        self.records.deregister(names)

    def is_denied(self, queue: str) -> bool:
        """Return whether this user of the database may not move tasks in a queue: tried ATTEMPT seconds ago at most."""
        return time.monotonic() < self._denied.get(queue, 0.0)

    def unless_denied(self, owner: Owner, work: Callable[[], object]) -> None:
        """Call `work` in a queue. Skip one that was dropped just now, or in which this user may not move tasks.

        A process whose user may do so reaps the sessions there.
        """
        if self.is_denied(owner.source_name):
            return
        try:
            work()
        except NotInstalled:
            pass
        except Exception as error:
            if owner.database is None or owner.database.store.classify(error) is not ErrorKind.DENIED:
                raise
            name = owner.database.store.name
            level = logging.DEBUG if owner.source_name in self._denied else logging.WARNING
            log.log(level, "%s: other processes reap its sessions, as this one may not: %s", name, error)
            self._denied[owner.source_name] = time.monotonic() + ATTEMPT

    def end_expired(self, names: Sequence[str]) -> set[str]:
        """End expired sessions. Return them without those that another process has rejoined or ended meanwhile."""
        with self.alone(names):
            expired = self.records.over(names)
            if expired:
                self._give_back([*expired], "died")
        return expired

    def forget_listed(self) -> None:
        """Register all sessions anew at their next take: the database may have lost them."""
        for session in list(self._open.values()):
            session.registered_in.clear()

    def exit(self) -> None:
        """Leave all sessions at the end of the process."""
        known = self.live()
        if known and (self.liveness is None or self.liveness.there()):
            here = next((owner.database for owner in self._owners if owner.database), None)
            # The application may have closed its own connection.
            with here.store.briefly_connected() if here else nullcontext():
                for session in known:
                    session.release()
                    self.leave(session)
                for owner in self.installed:
                    if owner.database is not None:
                        uuids = [session.uuid for session in known]
                        self.unless_denied(owner, partial(forget_waits, owner.database, uuids))

    def dropped(self) -> None:
        """Release the liveness locks, since the database object is gone. Other processes reap the tasks."""
        for session in self.live():
            session.release()

    def forked(self) -> None:
        """Reset in a forked child, which has none of the sessions and must rejoin those that it enters."""
        for session in self._open.values():
            session.forked()
        self.reaper.forked()
        self.waits = threading.RLock()
        self._liveness, self._liveness_found = None, False
        self._own = None
        self._own_lost = False
        self._lost = set()
        self._open = {}
        self._lock = threading.Lock()


def of(database: object) -> Sessions:
    """Return the sessions of this process in a database."""
    sessions = _of_database.get(database)
    if sessions is None:
        sessions = _of_database.setdefault(database, Sessions(database))
        finalize(database, sessions.dropped).atexit = False
    return sessions


def checked(name: object) -> str:
    """Return a session's uuid as it is stored. Raises BadType and BadValue."""
    if isinstance(name, uuid.UUID):
        return str(name)
    if not isinstance(name, str):
        raise BadType(f"a session is named by its uuid, not by a {type(name).__name__}")
    try:
        return str(uuid.UUID(name))
    except ValueError:
        raise BadValue(f"a session is named by its uuid, and {name!r} is not a uuid") from None


def tokens_of(session: str) -> tuple[str, str]:
    """Return the bounds of a session's tokens: their common prefix, and a text above all of them."""
    return f"{session}/", f"{session}0"


def in_full(sessions: Sequence[str]) -> Sequence[str]:
    """Return one session, or REAPED by repeating the last: a statement has a text for each number."""
    return sessions if len(sessions) == 1 else [*sessions, *[sessions[-1]] * (REAPED - len(sessions))]


def owner_of(token: str) -> tuple[str, float | None]:
    """Return the session's uuid and the time of a token, in seconds since 1970.

    The time is None if another program wrote the token.
    """
    session, _, take = token.partition("/")
    try:
        return session, int(take.partition(".")[0], 16) / 1000
    except ValueError:
        return token, None


def _at_exit() -> None:
    for call in before_exit:
        call()
    for sessions in members_of(_of_database.values()):
        try:
            sessions.exit()
        except Exception as error:  # its liveness locks go with the process
            log.debug("a session could not be ended at exit: %s", error)


def _in_child() -> None:
    global _process
    _process = secrets.token_hex(4)
    _entered.set(())
    for sessions in members_of(_of_database.values()):
        sessions.forked()


def _end_at_exit() -> None:
    """End the sessions at exit also in children that multiprocessing forks: these do not run atexit."""
    global _ends_at_exit
    if _ends_at_exit != os.getpid():
        _ends_at_exit = os.getpid()
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing.Finalize(None, _at_exit, exitpriority=10)


atexit.register(_at_exit)
at_fork("sessions", _in_child)
