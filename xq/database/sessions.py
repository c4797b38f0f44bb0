"""The sessions of this process in one database, which own tasks: their lives, their ends, and which of them takes."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple
from weakref import ref

from xq.core import time
from xq.core.connections import Liveness
from xq.core.errors import UnknownSession
from xq.core.tokens import OUTAGE, tokens_of
from xq.database.base import BaseDatabase
from xq.database.records import SessionRecords, of_sessions
from xq.database.transactions import RunsQueue

log = logging.getLogger("xq")
entries: ContextVar[tuple[Entry, ...]] = ContextVar("xq_sessions", default=())
entered = entries.get  # the sessions that this thread or asyncio task has entered
_takes = itertools.count(1)
_process = secrets.token_hex(4)


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
        self.slots: dict[tuple[str, int], object] = {}  # the last take of each slot, by Concurrency and number
        self.prefix, _ = tokens_of(uuid)
        self._entered = 0  # how many threads and asyncio tasks of this process have entered it
        self._lock = threading.RLock()

    def register(self, queue: RunsQueue | None = None) -> None:
        """Register it in the database as a possible owner of tasks, in a queue if one is given."""
        name = queue.dialect.source_name if queue else ""
        database = self.sessions.database()
        if name not in self.registered_in and database is not None:
            self.acquire()
            if self.sessions.records.register(self.uuid, database, queue):
                self.registered_in.add(name)
            else:
                (queue or database).store.after_commit(partial(self._see_registered, name))

    def _see_registered(self, name: str) -> None:
        """Note where it is registered: a savepoint may have undone that in a transaction that was committed."""
        if name not in self.registered_in:
            with suppress(Exception):  # the next take registers it again
                self.registered_in |= self.sessions.records.queues_of([self.uuid])

    def acquire(self) -> None:
        """Acquire its liveness lock. Raises UnknownSession if it is closed, or another process is ending it."""
        with self._lock:
            if self.live:
                return
            liveness = self.sessions.records.liveness
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

    def note(self, joined: bool) -> None:
        """Note that it is the current session of this thread or asyncio task."""
        entries.set((*entered(), Entry(self.sessions, self, joined)))

    def forget(self) -> None:
        """Forget that this thread or asyncio task has entered it, after another context has left it."""
        _forget(self._entries())

    def __exit__(self, *exception: object) -> None:
        mine = self._entries()
        _forget(mine)
        try:
            for entry in mine[1:]:
                if entry.session is not None:
                    entry.session.leave()
        finally:
            self.leave()

    def _entries(self) -> list[Entry]:
        """Return the entry of the innermost `with` of this session, and of the session joined since in that block.

        Empty if a generator with that block is closed in another thread or asyncio task than it was started in.
        """
        mine = [entry for entry in entered() if entry.sessions is self.sessions]
        for at in reversed(range(len(mine))):
            if mine[at].session is self and not mine[at].joined:
                return [mine[at], *itertools.takewhile(lambda entry: entry.joined, mine[at + 1 :])]
        return []

    def leave(self) -> None:
        """Leave it. The last thread or task of this process releases the liveness lock, the last process ends it."""
        try:
            with self._lock:
                if not self._entered:
                    return  # a child that was forked within the `with` did not enter it
                self._entered -= 1
                last = not self._entered and not self.closed
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


def _forget(left: Sequence[Entry]) -> None:
    """Remove these entries from this thread or asyncio task."""
    entries.set(tuple(each for each in entered() if not any(each is entry for entry in left)))


class Sessions:
    """The sessions of this process in one database, and which of them takes."""

    def __init__(self, database: BaseDatabase) -> None:
        self.database = ref(database)
        self.records = SessionRecords(database)
        self._begin()

    def _begin(self) -> None:
        self._open: dict[str, Session] = {}
        self.of_process: Session | None = None
        self._own_lost = False  # whether an own session of the process was lost before
        self.leaving: set[str] = set()  # uuids that threads of this process are ending, so that the reaper skips them
        self._lost: set[str] = set()  # uuids of those that ended because their liveness locks were lost
        self.orphaned_in: set[str] = set()  # queues with tasks of sessions that are not registered
        self.reaped = 0  # sessions of other processes that this process has ended
        self.waits = threading.RLock()  # held by the thread that waits, if all threads share one connection
        self._lock = threading.Lock()

    def forked(self) -> None:
        """Reset in a forked child, which has none of the sessions and must rejoin those that it enters."""
        for session in self._open.values():
            session.forked()
        self._begin()

    # the session of a take, and its token

    def to_take(self) -> Session:
        """Return the current session, after renewing lost liveness locks. Raises the ORM's errors if that fails."""
        database = self.database()
        if database and database.liveness and not database.liveness.intact:
            self.renew(database.liveness)
        own = self.of_process
        return own if own is not None and not own.closed and not entered() else self.current()

    def token(self, session: Session, queue: RunsQueue, name: str) -> str:
        """Return a unique token for a take from a queue: session, time in milliseconds, process, number.

        It has at most 63 characters, since the token of a finished task has one more (plain-sql.md) in a column of 64.
        The first one of a queue registers the session in the database. Raises UnknownSession.
        """
        if name not in session.registered_in and not session.closed:
            session.register(queue)
        if queue.clock is not None:
            now = queue.clock.now
        else:  # by the clock of the database
            here = self.database()
            now = time.time() + (here.liveness.skew if here and here.liveness else 0.0)
        if session.closed:
            raise UnknownSession(session.uuid)
        return f"{session.prefix}{int(now * 1000):x}.{_process}.{next(_takes) % 2**20:x}"

    def current(self) -> Session:
        """Return the session that this thread or asyncio task entered or joined last, else the one of the process."""
        last = next((entry.session for entry in reversed(entered()) if entry.sessions is self), None)
        return last or self.own()

    def own(self) -> Session:
        """Return the session of the process."""
        own = self.of_process
        if own is None or own.closed:
            with self._lock:
                own = self.of_process
                if own is None or own.closed:
                    own = self.of_process = self.new()
        return own

    def new(self) -> Session:
        return self.named(str(uuid.uuid4()))

    def registered(self, name: str | None, queue: RunsQueue | None = None) -> Session:
        """Return a new session, or join the one of this uuid. Raises UnknownSession if it has ended."""
        session = self.new() if name is None else self.named(name)
        if name is None:
            session.register(queue)
        elif not self.rejoin(session):
            raise UnknownSession(name)
        return session

    def join(self, session: Session | None) -> None:
        """Make this the current session of this thread or asyncio task (None: the session of the process).

        It lasts until the next join, or until the end of the `with` around it. The session that was joined before in
        the same block is left. Raises UnknownSession if the session has ended.
        """
        before = [entry for entry in entered() if entry.sessions is self]
        if session is None:
            entries.set((*entered(), Entry(self, None, joined=True)))
        else:
            session.enter(joined=True)
        if before and before[-1].joined:
            _forget(before[-1:])
            if before[-1].session is not None:
                before[-1].session.leave()

    def is_entered(self, name: str) -> bool:
        """Return whether this thread or asyncio task has entered a session and not left it."""
        mine = (entry.session for entry in entered() if entry.sessions is self)
        return any(session is not None and session.uuid == name for session in mine)

    # those of this process

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
            if there:
                self._open[session.uuid] = session
            else:
                session.release()
                self._open.pop(session.uuid, None)
        return there

    def forget_listed(self) -> None:
        """Register all sessions anew at their next take: the database may have lost them."""
        for session in list(self._open.values()):
            session.registered_in.clear()

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

    def notice_loss(self, name: str) -> bool:
        """Return whether a session of this process ended because its liveness lock was lost.

        If another process has ended it, end it here, too, and release what it has taken since.
        """
        session = self._open.get(name)
        if session is not None and session.live and session.registered_in:
            if not self.records.is_there(name):
                self.ended_elsewhere(session)
        # A key without a token does not name its session: until the next take, assume the lost one.
        own = self.of_process
        before = own is not None and own.uuid == name and not own.live and self._own_lost
        return name in self._lost or before

    def ended_elsewhere(self, session: Session) -> None:
        """End a session here, too, that another process has ended, and release what it has taken since."""
        self.lose(session)
        self.end([session.uuid], "release")

    def lose(self, session: Session) -> None:
        """Close a session that was lost, or that another process has ended."""
        own = session is self.of_process
        with session._lock:
            if session.closed:  # another thread has done this
                return
            # If this process still holds its lock, another process has closed it.
            liveness = self.records.liveness
            lost = liveness is not None and not liveness.is_held(session.uuid)
            if lost:
                self._lost.add(session.uuid)
                self._own_lost |= own
            session.closed = True
            session.release()
        self._closed(session, own_lost=lost and own)

    def _closed(self, session: Session, own_lost: bool = False) -> None:
        self._open.pop(session.uuid, None)
        if (database := self.database()) is not None:
            for member in database.members:  # also those that are not installed: no query is needed
                member.session_closed(own_lost)

    # the end

    def leave(self, session: Session, event: str = "release") -> None:
        """End a session whose liveness lock this process has released, unless another process has joined it."""
        with self.records.alone([session.uuid]) as alone:
            if alone and not session.live:  # else another thread has rejoined it
                self._open.pop(session.uuid, None)
                self._end(session, event)

    def close(self, session: Session) -> None:
        """End a session, even if other processes have joined it."""
        self._end(session)
        session.release()

    def _end(self, session: Session, event: str = "release") -> None:
        before = session.closed, session.live
        session.closed, session.live = True, False  # no take can begin after this
        try:
            self.end([session.uuid], event)
        except BaseException:
            session.closed, session.live = before
            raise
        self._closed(session)

    def end(self, names: Sequence[str], event: str) -> set[str]:
        """End sessions and release their tasks, recorded as `event`. Return those that wait for session_ttr."""
        later = self.records.expire_later(names)
        if at_once := [name for name in names if name not in later]:
            self._give_back(at_once, event)
        return later

    def _give_back(self, names: Sequence[str], event: str) -> None:
        # The queues first: then the sessions are registered only in those that this process has not opened.
        if (database := self.database()) is not None:
            registered, ends = {"", *self.records.queues_of(names), *self.orphaned_in}, dict.fromkeys(names, event)
            if event == "died" and database.clock is None and not database.sql.is_local:
                ends |= dict.fromkeys(self.records.older(names), OUTAGE)
            for end in dict.fromkeys(ends.values()):
                database.give_back([name for name in names if ends[name] == end], end, registered)
        self.records.deregister(names)

    def end_expired(self, names: Sequence[str]) -> set[str]:
        """End expired sessions. Return them without those that another process has rejoined or ended meanwhile."""
        with self.records.alone(names):
            expired = self.records.over(names)
            if expired:
                self._give_back([*expired], "died")
        return expired

    def exit(self) -> None:
        """Leave all sessions at the end of the process."""
        database, known = self.database(), self.live()
        if database is None or not known:  # no query: it may be a database that this process has never used
            return
        if (liveness := self.records.liveness) is not None and not liveness.there():
            return
        with database.store.briefly_connected():  # the application may have closed its own connection
            for session in known:
                session.release()
                try:
                    self.leave(session)
                except Exception as error:
                    log.debug("the session %s could not be ended: %s", session.uuid, error)
            uuids = [session.uuid for session in known]
            for member in database.installed:
                if (queue := member.executor) is not None:
                    shared, forget_waits = queue.dialect.shared, queue.dialect.records.forget_waits
                    forget = partial(of_sessions, queue, shared, forget_waits, uuids)
                    database.unless_denied(member, forget)

    def dropped(self) -> None:
        """Release the liveness locks, since the database object is gone. Other processes reap the tasks."""
        for session in self.live():
            session.release()


def forked() -> None:
    """Forget in a forked child what its parent has entered, and make tokens of its own."""
    global _process
    _process = secrets.token_hex(4)
    entries.set(())
