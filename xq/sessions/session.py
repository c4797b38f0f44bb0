"""Who owns a taken task: the session of a process, or one that was entered, and the mark of the very take."""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import os
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from typing import NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

from xq.core.errors import BadType, BadValue, NotInstalled, UnknownSession
from xq.core.ports import Row

R = TypeVar("R")
S = TypeVar("S")

UUID_LENGTH = 36  # with its dashes; the mark of a take begins so, and goes on with one character more, see `marks_of`
ORPHANS = 5.0  # seconds between two looks for tasks whose session nobody lists

log = logging.getLogger("xq")
_entered: ContextVar[tuple[Place, ...]] = ContextVar("xq_sessions", default=())
_of_database: WeakKeyDictionary[object, Sessions] = WeakKeyDictionary()
_takes = itertools.count(1)
_process = secrets.token_hex(4)
_ends_at_exit = 0  # the process that was told
before_exit: list[Callable[[], None]] = []  # what is done before the sessions of a process that ends are left


class ProofOfLife(Protocol):
    """What the system takes away by itself from a process that ends, however it ends."""

    def hold(self, uuid: str) -> bool:
        """Prove that a process of this session lives. False where another process is about to end the session."""

    def let_go(self, uuid: str) -> None:
        """Prove it no longer."""

    def alone(self, uuid: str) -> AbstractContextManager[bool]:
        """Whether no process holds this session; and none begins to within the `with`."""

    @property
    def lease(self) -> float | None:
        """Seconds after which a session ends that was not renewed; None where the system tells who lives."""

    def gone(self, uuids: Sequence[str]) -> list[str]:
        """Those of these sessions that no process seems to hold."""

    @property
    def stands(self) -> bool:
        """Whether nothing is known to have ended it: quick, and asked often."""

    @property
    def skew(self) -> float:
        """Seconds by which the clock of the database is ahead of this machine's."""

    def holds(self, uuid: str) -> bool:
        """Whether this process still proves that a session lives."""

    def pop_lost(self) -> list[str]:
        """The sessions of this process whose proof the system has taken away since this was last asked."""

    def renew(self) -> bool:
        """Prove it again, where the proof was lost. Returns whether all others have had the time to do so, too."""

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


class Keeper(Protocol):
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

    def postpone(self, uuid: str) -> bool:
        """Have a session end in so many seconds as the database is configured for. False when at once."""

    def is_there(self, uuid: str) -> bool:
        """Whether the database lists a session that has not ended."""

    def over(self, uuid: str) -> bool:
        """Whether a session that was to end has ended for good: looked at as a write, that nobody may pass by."""

    def give_back(self, uuid: str, event: str) -> None:
        """Release what a session holds in this queue, and strike it off the list of those that do."""

    def forget_waits(self, uuid: str) -> None:
        """Forget that anybody of a process waits, whose session this was."""

    def session_closed(self) -> None:
        """Wake the callers that wait to take for a session of this process which is closed."""

    def session_lost(self) -> None:
        """The session of this process was lost: what the database knew of it, it knows no more."""

    def strike(self, uuid: str) -> None:
        """Strike a session off the list of those that may be joined."""

    def proof_of_life(self) -> ProofOfLife | None:
        """What proves to others that a session lives; None where no other process sees the database."""

    def rejoin(self, uuid: str) -> bool:
        """Have a session go on that was about to end. False when there is none of this uuid."""


class Holder(Protocol):
    """What knows by itself which sessions of this process have taken its tasks."""

    def give_back(self, session: str) -> None:
        """A session has ended."""


class Others(Protocol):
    """Queues of a database that this process maintains, opened or not: many are looked at by one statement."""

    def names(self, of: Collection[str]) -> set[str]:
        """Those of these names that are of such queues."""

    def open_for(self, session: str) -> None:
        """Open those in which a session may hold tasks: then they have keepers."""

    def orphans(self) -> set[str]:
        """The sessions that hold tasks of any of them and are not listed. Those queues are opened."""

    def expire(self) -> float | None:
        """Move a batch of the due tasks of each. Returns the seconds until the next run; None for no need of one."""


keepers: WeakSet[Keeper] = WeakSet()  # of all the queues of this process


def held_by(weak: Iterable[R]) -> list[R]:
    """Return what a collection of weak references holds. To copy it fails if another thread adds to it meanwhile."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue


class Place(NamedTuple):
    """That a thread or asyncio task has a session: from a `with` on, or since it was joined by its name."""

    sessions: Sessions
    session: Session | None  # None: that of the process
    joined: bool  # by its name: until another is, or the `with` around that is left

    def leave(self) -> None:
        if self.session is None:
            _entered.set(self.others())
        else:
            self.session._leave(self.others)

    def others(self) -> tuple[Place, ...]:
        return tuple(place for place in _entered.get() if place is not self)


class Session:
    """An owner of tasks. `with session:` makes it the current one of this thread or asyncio task.

    Leaving the last `with` of a process ends it, unless other processes have joined it, and so gives its tasks back.
    """

    def __init__(self, sessions: Sessions, uuid: str) -> None:
        self.uuid = uuid
        self.sessions = sessions
        self.closed = False
        self.held = False  # whether this process proves that it lives
        self._proof: ProofOfLife | None = None  # by which it does
        self.listed: set[str] = set()  # the queues that the database knows to hold tasks of it
        self.prefix, _ = marks_of(uuid)
        self._entered = 0  # in this process
        self._process = os.getpid()
        self._lock = threading.RLock()

    def mark(self, now: float) -> str:
        """A mark for one take, by nobody else and never again: session, time in milliseconds, process, number."""
        if self.closed:
            raise UnknownSession(self.uuid)
        return f"{self.prefix}{int(now * 1000):x}.{_process}.{next(_takes):x}"

    def hold(self) -> None:
        """Prove from here on that a process of this session lives. Raises UnknownSession when it is just ended."""
        _end_at_exit()
        with self._lock:
            if not self.held:
                self._proof = self.sessions.proof
                if self._proof is not None and not self._proof.hold(self.uuid):
                    raise UnknownSession(self.uuid)
            self.held = True

    def let_go(self) -> None:
        """Prove it no longer."""
        with self._lock:
            if self.held and self._proof is not None:
                self._proof.let_go(self.uuid)
            self.held, self._proof = False, None

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
            if self.closed or (not self.held and not self.sessions.rejoin(self)):
                raise UnknownSession(self.uuid)
            self._entered += 1
        self._process = os.getpid()
        _entered.set((*_entered.get(), Place(self.sessions, self, joined)))

    def __exit__(self, *exception: object) -> None:
        try:
            for place in self._entry()[1:]:
                place.leave()
        finally:
            self._leave(self._others)

    def _entry(self) -> list[Place]:
        """The last time that this thread or asyncio task entered it by `with`, and what was joined since in that block.

        Nothing, where a generator is closed in another thread or task than it was started in.
        """
        places = [place for place in _entered.get() if place.sessions is self.sessions]
        for at in reversed(range(len(places))):
            if places[at].session is self and not places[at].joined:
                return [places[at], *itertools.takewhile(lambda place: place.joined, places[at + 1 :])]
        return []

    def _others(self) -> tuple[Place, ...]:
        """What this thread or asyncio task has beside that."""
        left = self._entry()
        return tuple(place for place in _entered.get() if not any(place is other for other in left))

    def _leave(self, remaining: Callable[[], tuple[Place, ...]]) -> None:
        """Leave it, after which this thread has what remains."""
        if os.getpid() != self._process:
            return  # a child that was forked within the `with`: it entered nothing
        _entered.set(remaining())
        with self._lock:
            self._entered -= 1
            last = self._entered <= 0 and not self.closed
            if last:
                self.let_go()  # whoever enters it from here on must join it anew
        if last:
            self.sessions.leave(self)

    def forked(self) -> None:
        self.held, self._proof, self._entered, self._lock = False, None, 0, threading.RLock()
        self.listed.clear()

    def __repr__(self) -> str:
        return f"<xq session {self.uuid}{' (closed)' if self.closed else ''}>"


class Sessions:
    """The sessions that this process has with one database."""

    def __init__(self) -> None:
        self.holders: WeakSet[Holder] = WeakSet()
        self.others: WeakSet[Others] = WeakSet()
        self.looking = threading.RLock()
        self.looked_at = 0.0  # the monotonic time of the last look at who lives
        self._orphans_at = 0.0  # the monotonic time at which to look for tasks whose session nobody lists
        self.deaths = 0  # how many sessions of others this process has ended
        self.waits = threading.RLock()  # held by the thread that waits, where all threads share one connection
        self._proof: tuple[ProofOfLife | None] | None = None  # once it was looked for
        self._open: dict[str, Session] = {}
        self._own: Session | None = None
        self._lock = threading.Lock()
        self._own_lost = False  # whether the session of the process was lost before
        self._lost: set[str] = set()  # those that were ended since what proved that they live was lost

    @property
    def lease(self) -> float | None:
        """For how many seconds a session goes on without being renewed; None where the system tells who lives."""
        return None if self._proof is None or self._proof[0] is None else self._proof[0].lease

    @property
    def now(self) -> float:
        """Seconds since 1970, by the clock of the database."""
        return time.time() + (0.0 if self._proof is None or self._proof[0] is None else self._proof[0].skew)

    def notice_loss(self, name: str) -> bool:
        """Whether a session of this process was ended since what proved that it lives was lost.

        One that others have ended ends here, too, and gives back what it has taken since.
        """
        session = self._open.get(name)
        if session is not None and session.held and session.listed:
            if not self._ask(lambda keeper: keeper.is_there(name), otherwise=True):
                self._lose(session)
                self.end(name, "release")  # what it has taken since
        # Of a key alone nobody knows by which session it was taken: until the next take, by the one before.
        own = self._own
        before = own is not None and own.uuid == name and not own.held and self._own_lost
        return name in self._lost or before

    def _lose(self, session: Session) -> None:
        """A session was ended, and not by this process: it takes nothing any more, and is no more this process's."""
        own = session is self._own
        with session._lock:
            if session.closed:  # another thread noticed it first, and proves it no longer
                return
            lost = self.proof is not None and not self.proof.holds(session.uuid)  # else another process closed it
            if lost:
                self._lost.add(session.uuid)
                self._own_lost |= own
            session.closed = True
            session.let_go()
        self._closed(session)
        for keeper in self.keepers if lost and own else ():
            keeper.session_lost()

    def _closed(self, session: Session) -> None:
        self._open.pop(session.uuid, None)
        for keeper in held_by(keepers):  # be they installed or not, which only the database could tell
            if keeper.sessions is self:
                keeper.session_closed()

    @property
    def keepers(self) -> list[Keeper]:
        """The queues of this process that are installed in this database."""
        return [keeper for keeper in held_by(keepers) if keeper.sessions is self and keeper.installed]

    def _ask(self, question: Callable[[Keeper], R], otherwise: S) -> R | S:
        """What any of the queues says of all sessions."""
        for keeper in self.keepers:
            with suppress(NotInstalled):  # its table was dropped just now
                return question(keeper)
        return otherwise

    @property
    def proof(self) -> ProofOfLife | None:
        """None where no other process sees the database."""
        if self._proof is None:
            for keeper in self.keepers[:1]:
                self.prove_by(keeper.proof_of_life)
        return self._proof[0] if self._proof else None

    def prove_by(self, find: Callable[[], ProofOfLife | None]) -> None:
        """Know what proves that sessions live. What is known already stays: locks go with what has them."""
        if self._proof is None:
            found = find()
            with self._lock:
                self._proof = self._proof or (found,)

    def apart(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        """The rows of a statement run on the connection that proves our life; None where that cannot be.

        It neither waits for the application's transaction nor sees the moment at which that one began.
        """
        return None if self.proof is None else self.proof.apart(sql, values)

    def announce(self) -> None:
        """Have others look from now on whether the sessions live that are listed by now."""
        if self.proof is not None:
            self.proof.announce()

    def current(self) -> Session:
        """That which this thread or asyncio task entered or joined last, else the one of the process."""
        entered, own = _entered.get(), self._own
        if not entered and own is not None and not own.closed:
            return own
        if entered:
            place = next((place for place in reversed(entered) if place.sessions is self), None)
            if place is not None and place.session is not None:
                return place.session
        return self.own()

    def join(self, session: Session | None) -> None:
        """Have this be the current one of this thread or asyncio task; None: that of the process.

        Until another is joined, or the `with` around this is left. The one joined before in the same block is left.
        """
        entered = [place for place in _entered.get() if place.sessions is self]
        if session is None:
            _entered.set((*_entered.get(), Place(self, None, joined=True)))
        else:
            session.enter(joined=True)
        for place in entered[-1:]:
            if place.joined:
                place.leave()

    def to_take(self) -> Session:
        """The current session, which is proved to live. Raises the ORM's errors where it can be proved no more."""
        if self._proof is not None and self._proof[0] is not None and not self._proof[0].stands:
            self._prove_again(self._proof[0])
        own = self._own
        return own if own is not None and not own.closed and not _entered.get() else self.current()

    def _prove_again(self, proof: ProofOfLife) -> bool:
        """As `ProofOfLife.renew`; what was lost before, others may have given away."""
        others_do = proof.renew()
        for name in proof.pop_lost():
            if name in self._open:
                log.warning(
                    "session %s is lost: the connection that proved it was. Its tasks come back at once, "
                    "or after session_ttr",
                    name,
                )
                self._lose(self._open[name])  # it ends as any does of which no process is left
        return others_do

    def is_entered(self, name: str) -> bool:
        """Whether this thread or asyncio task has entered a session, and not left it."""
        entered = (place.session for place in _entered.get() if place.sessions is self)
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

    def held(self) -> list[Session]:
        """Those for which this process proves that they live."""
        return [session for session in list(self._open.values()) if session.held]

    def rejoin(self, session: Session) -> bool:
        """Join a session that may have been left, or lost, or ended meanwhile. False when it has ended."""
        session.hold()
        there = False
        try:
            there = self._ask(lambda keeper: keeper.rejoin(session.uuid), otherwise=False)
        finally:
            if not there:
                session.let_go()
        if there:
            self._open[session.uuid] = session
        else:
            self._open.pop(session.uuid, None)
        return there

    def leave(self, session: Session) -> None:
        """Leave a session that was let go of to the other processes that have joined it; end it where there is none."""
        with self.alone(session.uuid) as alone:
            if alone and not session.held:  # else another thread has joined it anew
                self._open.pop(session.uuid, None)
                self._end(session)

    def close(self, session: Session) -> None:
        """End a session, whoever else has joined it."""
        self._end(session)
        session.let_go()

    def _end(self, session: Session) -> None:
        session.closed = True  # from here on it takes nothing
        try:
            self.end(session.uuid, "release")
        except BaseException:
            session.closed = False
            raise
        self._closed(session)

    def alone(self, name: str) -> AbstractContextManager[bool]:
        """Whether no process holds a session; and none begins to within the `with`."""
        return nullcontext(True) if self.proof is None else self.proof.alone(name)

    def end(self, name: str, event: str) -> bool:
        """Give back what a session holds, as the event `event`, now or when session_ttr has passed: whether now."""
        postponed = self._ask(lambda keeper: keeper.postpone(name), otherwise=True)
        if not postponed:
            self._give_back(name, event)
        return not postponed

    def _give_back(self, name: str, event: str) -> None:
        for others in held_by(self.others):
            others.open_for(name)
        for keeper in self.keepers:
            with suppress(NotInstalled):
                keeper.give_back(name, event)
        for holder in held_by(self.holders):
            holder.give_back(name)
        self._ask(lambda keeper: keeper.strike(name), otherwise=None)

    def end_the_dead(self, unless_since: float = math.inf) -> bool:
        """End the sessions of which no process is left, and those whose time is over.

        Tells whether there are others that may die. Looks at nothing when that was done since this monotonic time.
        """
        with self.looking:
            if self.looked_at >= unless_since:
                return True
            self.looked_at = time.monotonic()
            return self._end_the_dead()

    def _end_the_dead(self) -> bool:
        keepers = self.keepers
        all_prove = self.proof is None or self._prove_again(self.proof)
        mine = [session for session in self.held() if session.listed]  # before: another thread may list one meanwhile
        ends: dict[str, float | None] = {}
        listed = self._ask(lambda keeper: keeper.listed(), otherwise=None)
        if listed is None:
            return False
        queues = self._maintained({queue for _, queue, _ in listed}, keepers)
        for name, queue, seconds in listed:
            if queue in queues and ends.get(name) is None:
                ends[name] = seconds
        for session in mine:
            if session.uuid not in ends:
                self._lose(session)
                self.end(session.uuid, "release")
        orphans: set[str] = set()
        if self.looked_at > self._orphans_at:
            self._orphans_at = self.looked_at + ORPHANS
            for keeper in keepers:
                if not self._of_others([keeper.name]):
                    with suppress(NotInstalled):
                        orphans.update(filter(_is_uuid, keeper.orphans()))
            for others in held_by(self.others):
                orphans.update(filter(_is_uuid, others.orphans()))
            ends |= dict.fromkeys(orphans)
        here = {session.uuid for session in self.held()}
        not_here = {uuid: seconds for uuid, seconds in ends.items() if uuid not in here or seconds is not None}
        living = [name for name, seconds in not_here.items() if seconds is None]
        for name in (self.proof.gone(living) if self.proof else living) if all_prove else ():
            with self.alone(name) as alone:
                if alone:
                    ended = "has ended" if self.end(name, "died") else "ends after session_ttr"
                    level = logging.DEBUG if name in orphans else logging.INFO  # whoever ended it has told
                    log.log(level, "session %s is gone, and %s", name, ended)
                    self.deaths += 1
        for name, seconds in not_here.items():
            if seconds is not None and seconds <= 0:
                with self.alone(name):
                    if self._ask(lambda keeper, name=name: keeper.over(name), otherwise=False):  # type: ignore[misc]
                        self._give_back(name, "died")
                        log.info("session %s, which was to end, has ended", name)
                        self.deaths += 1
        return bool(not_here)

    def _maintained(self, queues: Collection[str], keepers: Sequence[Keeper]) -> set[str]:
        """Those of these names that are of queues which this process maintains; "" is the list of all sessions."""
        mine = {"", *(keeper.name for keeper in keepers)}
        return (mine & set(queues)) | self._of_others([queue for queue in queues if queue not in mine])

    def _of_others(self, queues: Collection[str]) -> set[str]:
        return {name for others in held_by(self.others) for name in others.names(queues)} if queues else set()

    def forget_listed(self) -> None:
        """The database may have forgotten them all: make them known again at their next take."""
        for session in list(self._open.values()):
            session.listed.clear()

    def exit(self) -> None:
        """The process ends: leave all sessions."""
        known = self.held()
        if known and (self.proof is None or self.proof.there()):
            here = next((keeper for keeper in held_by(keepers) if keeper.sessions is self), None)
            with here.briefly_connected() if here else nullcontext():  # the application may have closed its connection
                for session in known:
                    session.let_go()
                    self.leave(session)
                    for keeper in self.keepers:
                        with suppress(NotInstalled):
                            keeper.forget_waits(session.uuid)

    def dropped(self) -> None:
        """The database object is gone, and nobody can finish what was taken through it: others give it back."""
        for session in self.held():
            session.let_go()

    def forked(self) -> None:
        """In a child, which has none of them: a session that it enters again, it must join."""
        for session in self._open.values():
            session.forked()
        self.looking = threading.RLock()
        self.waits = threading.RLock()
        self._proof = None
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


def _is_uuid(name: str | None) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except (TypeError, ValueError, AttributeError):
        return False  # another program wrote it


def marks_of(session: str) -> tuple[str, str]:
    """What the marks of a session's takes begin with, and what comes after all of them: they stand in between."""
    return f"{session}/", f"{session}0"


def owner_of(mark: str) -> tuple[str, float | None]:
    """The session's uuid and the time, in seconds since 1970, that a mark made by `Session.mark` tells.

    A mark that another program wrote tells no time.
    """
    session, _, take = mark.partition("/")
    try:
        return session, int(take.partition(".")[0], 16) / 1000
    except ValueError:
        return mark, None


def _at_exit() -> None:
    for call in before_exit:
        call()
    for sessions in held_by(_of_database.values()):
        try:
            sessions.exit()
        except Exception as error:  # then the proof of life goes with the process, and others notice
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
os.register_at_fork(after_in_child=_in_child)
