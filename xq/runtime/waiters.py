"""Waiters of this process: callers that wait for a ready task, for room in a full queue, or for the end of a task.

A waiter sleeps in a wait queue until it is woken, and then looks at the database. One notification wakes one waiter.
A waiter that found something wakes the next one if there is more.

A call that waits is a generator (`Wait`): it yields where it sleeps. A thread runs it to its end. A coroutine
sleeps on its event loop, and needs a thread only for the steps between.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from xq.core.errors import ConfigurationError, Error, Full, InTransaction, NotFound
from xq.core.machine import ABSENT, READY, TAKEN
from xq.core.options import Span, seconds_of
from xq.core.ports import ErrorKind, Row
from xq.core.values import Parts, named
from xq.engine.finish import Finish
from xq.engine.insert import Inserts
from xq.engine.take import NONE, Takes
from xq.runtime import maintenance
from xq.sessions.session import Session, owner_of

T = TypeVar("T")
R = TypeVar("R")

LONGEST_SLEEP = 3600.0  # seconds: the longest sleep, since the timeout of a lock is limited
AGAIN = 0.2  # seconds until a retry after a lost connection; also the longest pause before retrying a locked row
SOON = 0.001  # seconds until the first retry of such a row
ACKED = 0.05  # seconds to wait for the acking thread to record the task that it acked
UNATTENDED = 0.05  # seconds between two looks without a maintenance thread: a database in memory, a test's clock


class Deadline:
    """The time at which a wait ends, by the monotonic clock. Without seconds (None) it never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The longest sleep in seconds; zero or negative after the deadline."""
        return LONGEST_SLEEP if self._at is None else min(LONGEST_SLEEP, self._at - time.monotonic())


class Awake(threading.Event):
    """The event that wakes a waiter."""

    # Called when it is set: a coroutine waits for that, not for the event. Returns False if its event loop is closed.
    call: Callable[[], bool] | None = None

    def set(self) -> None:
        self.reach()

    def reach(self) -> bool:
        """Set it, and return whether a caller can be woken."""
        super().set()
        return self.call is None or self.call()


class Sleep(NamedTuple):
    """A request of a call that waits: sleep until `awake` is set, clear it, and send whether it was set in time."""

    awake: Awake
    seconds: float


LOOK = None  # a request of a take that waits: look for tasks, and send them
Wait = Generator[Sleep | None, Any, R]


def _sleep(awake: Awake, seconds: float) -> bool:
    """Sleep until an event is set, and clear it. Return False if it was not set within `seconds`."""
    if not awake.wait(max(0.0, seconds)):
        return False
    awake.clear()
    return True


def run_steps(steps: Wait[R], look: Callable[[], object] = lambda: None) -> R:
    """Run a call that waits in this thread, to its end."""
    try:
        request = next(steps)
        while True:
            try:
                answer = look() if request is LOOK else _sleep(*request)
            except BaseException as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        steps.close()


@dataclass(eq=False)
class Waiter:
    """A caller that waits for a task or for room."""

    tube: str | None  # the only one to take from; None for any that is not in `but`
    session: Session | None  # by which it takes; None for a put
    but: tuple[str, ...] = ()
    woken: bool = False
    _awake: Awake = field(default_factory=Awake)

    def wake(self) -> bool:
        """Wake it, and return whether it will look: the event loop of a coroutine may be closed."""
        self.woken = True
        return self._awake.reach()

    def sleep(self, seconds: float) -> Wait[bool]:
        """Sleep until `wake`, for up to `seconds`. Return whether it was woken."""
        woken: bool = yield Sleep(self._awake, seconds)
        self.woken &= not woken  # one that came after `seconds` is passed on if the waiter does not look
        return woken


class WaitQueue:
    """A wait queue: first come, first woken. Each task, or each free place, is for one waiter.

    No wake-up is lost: a woken waiter looks, and if it leaves before the end of its look, others are woken.
    """

    def __init__(self, counted: Callable[[], None] = lambda: None) -> None:
        self.waiters: dict[Waiter, float] = {}  # -> since when, in seconds since 1970
        self._counted = counted  # called whenever a waiter is added or removed
        self._lock = threading.Lock()

    @property
    def since(self) -> list[float]:
        """The times at which the waiters came, in seconds since 1970."""
        return list(self.waiters.values())

    @contextmanager
    def enter(
        self, tube: str | None = None, session: Session | None = None, but: tuple[str, ...] = ()
    ) -> Iterator[Waiter]:
        """Wait in the queue for the block."""
        waiter = Waiter(tube, session, but)
        with self._lock:
            self.waiters[waiter] = time.time()
        try:
            self._counted()
            yield waiter
        except BaseException:
            waiter.woken = True  # it may have been woken, and its look did not end
            raise
        finally:
            with self._lock:  # after this it cannot be woken
                self.waiters.pop(waiter, None)
            self._counted()
            if waiter.woken:  # and leaves without a look: others must look, in any tube
                self.wake_first()

    def wake(self, tube: str | None) -> None:
        """Wake the first waiter that may take from this tube (None: a task without a tube)."""
        with self._lock:
            for waiter in list(self.waiters):
                may_take = waiter.tube in (None, tube) and tube not in waiter.but
                if may_take and not waiter.woken and waiter.wake():
                    return

    def wake_all(self) -> None:
        with self._lock:
            for waiter in list(self.waiters):
                waiter.wake()

    def wake_closed(self) -> None:
        with self._lock:
            for waiter in list(self.waiters):
                if waiter.session is not None and waiter.session.closed:
                    waiter.wake()

    def wake_first(self) -> None:
        """Wake the first waiter of each tube, and the first of any tube."""
        with self._lock:
            first: dict[object, Waiter] = {}
            for waiter in list(self.waiters):
                first.setdefault((waiter.tube, waiter.but), waiter)
            for waiter in first.values():
                waiter.wake()


@dataclass(eq=False)
class EndWaiter:
    """A caller that waits for the end of a task."""

    waiter: str  # its name in the database
    parts: Parts = ()  # the key of the task, once the database may hold a row for this wait
    awake: Awake = field(default_factory=Awake)
    lost: bool = False  # whether the session that registered the wait was lost
    row: Row = ()  # of the task, as this process saw it last
    here: bool = False  # whether a session of this process owns the task, as far as it has seen
    gone: bool = False  # whether this process has deleted the row; `row` is its last state
    event: str | None = None  # that ended the task
    target: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The names of its row in the database."""
        return {**named(self.parts), "waiter": self.waiter}

    def end(self, event: str, target: str) -> None:
        self.event, self.target = event, target
        self.awake.set()


class Waiting(Generic[T]):
    """The waiters of this process in one queue."""

    _names = itertools.count(1)

    def __init__(self, inserts: Inserts[T], takes: Takes[T], finish: Finish[T], woken: Callable[[], None]) -> None:
        self.database = takes.database
        self.tasks = takes.tasks
        self.inserts = inserts
        self.takes = takes
        self.finish = finish
        self.machine = takes.machine
        self._limit = self.machine.guard("limit")
        # Starts a thread that calls `committed_elsewhere`. Returns False if none can run.
        self.listen: Callable[[], bool] = lambda: False
        self._woken = woken  # raises to end a call that waits
        takes.pauses.resumed = lambda: self.takers.wake_first()
        self.forget()

    def forget(self) -> None:
        """Start without waiters. In a forked child there are none: threads are not copied."""
        count = self.database.observers.count
        self.takers = WaitQueue(count)
        self.putters = WaitQueue(count)
        self._end_waiters: dict[str, EndWaiter] = {}
        self._writing = threading.Lock()
        self._left: list[EndWaiter] = []  # ended waits whose rows are still to be deleted

    @property
    def anybody(self) -> bool:
        return bool(self.takers.waiters or self.putters.waiters or self._end_waiters)

    @property
    def looks(self) -> bool:
        """Whether a caller waits for a task, in a queue that is not paused."""
        paused = self.takes.pauses.paused
        return bool(self.takers.waiters) and not (paused and paused.queue)

    @property
    def condition(self) -> str:
        """The SQL condition on which to wake the waiters; "" if some wait for room, or for an end."""
        bound = self.database.bound
        if bound is None or self.putters.waiters or self._end_waiters:
            return ""
        return bound.dialect.looks.anything if self.looks else "FALSE"

    def seconds(self, value: Span, name: str = "timeout") -> float | None:
        """Return a timeout in seconds; None is without limit. Raises BadType and BadValue."""
        return None if value is None else seconds_of(name, value)

    # for tasks, and for room

    def take(
        self,
        n: int,
        timeout: Span = 0,
        tube: str | None = None,
        options: Mapping[str, Any] = NONE,
        but: tuple[str, ...] = (),
        until: threading.Event | None = None,
        looked: bool = False,
    ) -> list[T]:
        """Take as `Queue.take_many` does; without `tube`, from any that is not in `but`.

        `until` and `looked` are those of `taking`. If there is no task, it reaps, and looks once more.
        """
        binding = self.database.binding
        reaped = 0 if binding is None else binding.sessions.reaper.reaped
        seconds = 0 if timeout == 0 and timeout is not False else self.seconds(timeout)
        if n == 0 or seconds == 0:
            found = self.takes.oldest("take", n, options, tube=tube, but=but)
        else:
            taken: list[str | None] = []  # the token
            look = partial(self.takes.oldest, "take", n, options, tube=tube, then=taken.append, but=but)
            try:
                found = run_steps(self.taking(tube, seconds, looked, until, but), look)
            except BaseException as error:
                self.takes.in_doubt.add(taken, error)
                raise
        if not (found or looked) and n and self._more_have_died(than=reaped):
            found = self.takes.oldest("take", n, options, tube=tube, but=but)
        return found

    def _more_have_died(self, than: int) -> bool:
        """Reap a batch, at most every `maintenance.LOOK` seconds. Return whether more than `than` have been reaped."""
        database, reaper = self.database, self.database.open().sessions.reaper
        if database.clock is None and not database.store.in_transaction():
            reaper.reap(time.monotonic() - maintenance.LOOK)
        return reaper.reaped > than

    def taking(
        self,
        tube: str | None,
        timeout: float | None,
        looked: bool = False,
        until: threading.Event | None = None,
        but: tuple[str, ...] = (),
    ) -> Wait[list[Any]]:
        """Return what a look of the caller finds, as `take` does.

        `looked`: the caller has just found nothing. With `until` it is a worker's: it waits no longer once that is set
        and the takers are woken, and raises the error of a lost connection.
        """
        with self._may_wait("take", timeout):
            found: list[Any] = [] if looked else (yield LOOK)
            if found:
                return found
            self.listen()  # before the query, so that no later commit is missed
            slept, deadline = False, Deadline(timeout)
            forgiving = deadline if until is None else Deadline(0)
            with self.takers.enter(tube, self.database.session, but) as waiter:
                while not (found := (yield from self._take_if_there(forgiving, slept))):
                    if until is not None and until.is_set():
                        return []
                    if not (slept := (yield from self._sleep(waiter, deadline, looks=until is None))):
                        return []
                if len(self.takers.waiters) > 1:
                    self._pass_on()
            return found

    def _take_if_there(self, deadline: Deadline, slept: bool) -> Wait[list[Any]]:
        """Look; return no tasks if the connection is lost and the deadline has not passed."""
        found: list[Any] = []
        try:
            if slept or self.takes.any_ready():  # else the caller has just looked, and no task has come since
                found = yield LOOK
        except Exception as error:
            self._forgive(error, deadline)
        return found

    def _forgive(self, error: Exception, deadline: Deadline) -> None:
        """Raise the error, unless the connection was lost and there is time to wait for a new one."""
        if deadline.left <= 0 or self.database.store.classify(error) is not ErrorKind.LOST:
            raise error

    def if_ready(self, look: Callable[[], list[Any]]) -> list[Any]:
        """Return what a look finds that costs more than a query; it is called only if a task may be ready."""
        found, rates = self.takes.timers.sweep_if_any().moved or self.takes.any_ready(), self.takes.steps.rates
        if not found and rates is not None:
            rates.wait_for(self.database.run(self.database.dialect.next_bucket))
            found = self.takes.any_ready()
        return look() if found else []

    def _pass_on(self) -> None:
        """Call the next waiters if there are more tasks. Ignore database errors: the caller must get its tasks."""
        try:
            more = self.takes.any_ready()
        except Exception as error:
            if not isinstance(error, Error) and self.database.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise
            more = True
        if more:
            self.takers.wake_first()

    def putting(self, task: object, options: Mapping[str, Any], timeout: float | None) -> Wait[T]:
        """Put a task, and wait up to `timeout` seconds (None: without limit) while the queue is full.

        Raises Full after that, and InTransaction and ConfigurationError if the caller must not wait.
        """
        if self._limit is None:
            self.tasks.options.refuse_option("put", "timeout")
        deadline, found = Deadline(timeout), list[T]()
        with self._may_wait("put", timeout):
            if timeout != 0:
                self.listen()  # before the put, so that no later commit is missed
            with self.putters.enter() as waiter:
                while not found:
                    try:
                        found = self.inserts.put([task], dict(options))
                    except Full as full:
                        looks = self._makes_room(full) or (timeout != 0 and (yield from self._sleep(waiter, deadline)))
                        if not looks:
                            raise
            self.putters.wake_first()  # wakes one waiter: there may be more room
        return found[0]

    def _makes_room(self, full: Full) -> bool:
        """Move due tasks, and return whether any moved. Raises `full` if the user of the database may only put."""
        try:
            return self.takes.timers.sweep_if_any().moved > 0
        except Exception as error:
            if self.database.store.classify(error) is not ErrorKind.DENIED:
                raise
            raise full from error

    def _sleep(self, waiter: Waiter, deadline: Deadline, looks: bool = True) -> Wait[bool]:
        """Sleep until woken, or until the next look without a wake-up. Return whether to look.

        It is False if the deadline has passed; after a sleep only without `looks`, which is for a look at the deadline.
        """
        if deadline.left <= 0:
            return False
        try:
            rates = self.takes.steps.rates  # an empty bucket has a token at a time that wakes nobody
            opens_at = math.inf if rates is None else rates.opens_at
            longest = UNATTENDED if self._alone() else max(0.0, opens_at - time.monotonic())
        except Exception as error:
            self._forgive(error, deadline)
            longest = AGAIN
        woken = yield from waiter.sleep(min(deadline.left, longest))
        self._woken()
        return woken or looks or deadline.left > 0

    def _alone(self) -> bool:
        """Return whether no maintenance thread wakes waiters: then they look and sweep every UNATTENDED seconds."""
        return not self.listen() or self.database.clock is not None or self.database.store.in_transaction()

    @contextmanager
    def _may_wait(self, what: str, timeout: float | None, option: str = "timeout") -> Iterator[None]:
        """Allow this thread to wait within the block, unless `timeout` is 0.

        Raises InTransaction in a transaction, and ConfigurationError if another thread waits on the same connection.
        """
        if timeout == 0:
            yield
            return
        otherwise = f", or say {option}=0"
        store, mine = self.database.store, self.database.sessions
        # Threads on one connection share its transactions: one could wait within another's, or end it.
        shared = None if mine is None or store.has_threads else mine.waits
        if shared is not None and not shared.acquire(blocking=False):
            raise ConfigurationError(
                f"{what} cannot wait while another thread does on the same connection (thread_safe=False): give each "
                f"thread a connection of its own (thread_safe=True){otherwise}"
            )
        try:
            if not store.may_wait:
                raise InTransaction(what, otherwise)
            yield
        finally:
            if shared is not None:
                shared.release()

    # for the end of a task

    def putting_and_waiting(
        self, task: object, options: Mapping[str, Any], timeout: float | None
    ) -> Wait[tuple[T, bool]]:
        """Put a task and wait up to `timeout` seconds for its end, with no gap between the two.

        Returns the task, and whether it was processed.
        """
        if timeout == 0:
            return self.inserts.put([task], options)[0], False

        def put() -> Parts:
            (found,) = self.inserts.put([task], options)
            return self.tasks.identify(found)[0]

        with self._may_wait("put", timeout, "wait"):
            # A new task needs no lock: no other process sees it before the commit. With `unique` it may be an old one.
            new = self.machine.guard("unique") is None
            return (yield from self._until_the_end(put, Deadline(timeout), locked=new))

    def waiting_for(self, parts: Parts, timeout: float | None) -> Wait[tuple[T, bool]]:
        """Wait up to `timeout` seconds (None: without limit) for the end of a task.

        Returns the task, and whether it was processed. Raises NotFound, InTransaction and ConfigurationError.
        """
        with self._may_wait("wait", timeout):
            row, state = self.finish.look(parts)
            if timeout == 0 or state not in self.machine.pending:
                return self.tasks.returned(row), self._processed("", state)
            return (yield from self._until_the_end(lambda: parts, Deadline(timeout)))

    def _until_the_end(
        self, named_task: Callable[[], Parts], deadline: Deadline, locked: bool = False
    ) -> Wait[tuple[T, bool]]:
        caller = EndWaiter(f"{self.database.open().sessions.own().prefix}{next(self._names)}")
        try:
            row, state, begun = self._begin(caller, named_task, locked)
            parts, pause = self.tasks.key_of(row), SOON
            while state in self.machine.pending and not begun and deadline.left > 0:
                yield Sleep(Awake(), min(pause, deadline.left))
                pause = min(2 * pause, AGAIN)
                row, state, begun = self._begin(caller, lambda: parts)
            if state not in self.machine.pending:
                return self.tasks.returned(row), self._processed("", state)
            while caller.event is None and deadline.left > 0:
                alone = self._alone()
                longest = UNATTENDED if alone else AGAIN if caller.lost else LONGEST_SLEEP
                woken = yield Sleep(caller.awake, min(deadline.left, longest))
                try:
                    if alone:
                        self.takes.timers.sweep_if_any()
                    if caller.event is None and (alone or woken):
                        self.collect()
                    if alone:
                        self._look_at_taken()
                    if caller.lost and not self._wait_anew(caller, parts):
                        break
                except Exception as error:
                    self._forgive(error, deadline)
                    caller.lost = True  # assume it: the new registration also finds an end that was missed
            recorded_by = Deadline(ACKED)
            while caller.here and (caller.event, caller.target) == ("ack", ABSENT) and recorded_by.left > 0:
                yield Sleep(caller.awake, recorded_by.left)  # the acking thread has committed and will record the row
        finally:
            if caller.parts:
                self._end(caller)
        if caller.event is not None and caller.target == ABSENT:
            return self._last(caller), self._processed(caller.event, ABSENT)
        try:
            row, state = self.finish.look(parts)
        except NotFound:  # it ended, and its row was deleted, since the last look
            done = caller.event is not None and self._processed(caller.event, caller.target)
            return self._last(caller), done
        return self.tasks.returned(row), self._processed(caller.event or "", caller.target or state)

    def _last(self, caller: EndWaiter) -> T:
        """Return a task whose row is gone, as it last was."""
        row = list(caller.row)
        if caller.event == "ack":  # only a taken task can be acked
            table = self.tasks.table
            row[table.fields.index(table.roles["status"])] = self.database.dialect.words[
                TAKEN if caller.target == ABSENT else caller.target
            ]
        return self.tasks.returned(row)

    def _begin(self, caller: EndWaiter, named_task: Callable[[], Parts], locked: bool = False) -> tuple[Row, str, bool]:
        """Register the wait for the end of a task, unless it has ended.

        Returns its row, its state, and whether the wait was registered. It is not while another transaction has locked
        the row, since that may end the task at any time. `locked`: no other process can end the task before
        the commit.
        """
        self.listen()  # before the registration, so that no end is missed
        try:
            # One thread at a time: SQLite's lock is not fair. Nor does a wait of this process end in between.
            with self._writing:
                return self.database.transaction(partial(self._begin_at_once, caller, named_task, locked))
        except Exception as error:
            if self.takes.in_doubt.excluded_by(error):  # then the wait has no row
                self._drop(caller)
                caller.parts = ()
            raise

    def _begin_at_once(self, caller: EndWaiter, named_task: Callable[[], Parts], locked: bool) -> tuple[Row, str, bool]:
        opened = self.database.open()
        named_parts = named_task()
        if not locked:  # yet: without a lock of rows the transaction has locked all
            locked = not opened.dialect.lock or bool(self.database.run(opened.dialect.lock_task, named(named_parts)))
        row, state = self.finish.look(named_parts)
        caller.row = row
        if not locked or state not in self.machine.pending:
            return row, state, False
        session = opened.sessions.own()
        mine = {each.uuid for each in opened.sessions.open.live()}
        caller.here = state == TAKEN and owner_of(row[-1] or "")[0] in mine
        session.register(self.database)
        caller.parts = self.tasks.key_of(row)  # from the row: triggers may compare more strictly than the column
        self._end_waiters[caller.waiter] = caller  # before the commit: a notification must find it
        self.database.observers.count()
        self.database.run(opened.dialect.records.begin_wait, {**caller.values, "uuid": session.uuid})
        return row, state, True

    def _drop(self, caller: EndWaiter) -> None:
        self._end_waiters.pop(caller.waiter, None)
        self.database.observers.count()

    def _wait_anew(self, caller: EndWaiter, parts: Parts) -> bool:
        """Register the wait again after the session was lost. Return False if the task has ended meanwhile."""
        caller.parts = parts
        with self._writing:
            self._end_in_database(caller)
        if caller.event is not None:
            return False
        try:
            _, state, begun = self._begin(caller, lambda: parts)
        except NotFound:
            return False
        caller.lost = not begun
        return state in self.machine.pending

    def session_lost(self) -> None:
        """Wake the callers that wait for an end: the database deleted their waits with the lost session."""
        for caller in list(self._end_waiters.values()):
            caller.lost = True
            caller.awake.set()

    def _end(self, caller: EndWaiter) -> None:
        self._drop(caller)
        try:
            with self._writing:
                self._end_in_database(caller)
        except BaseException as error:
            if not isinstance(error, Error):  # an error of xq means that there is no table
                self._left.append(caller)
            if self.database.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise  # ignore database errors: the caller must get the result of its wait

    def _end_in_database(self, caller: EndWaiter) -> None:
        for event, target in self.database.run(self.database.dialect.records.end_wait, caller.values):
            if event is not None:  # an end that was not notified yet
                caller.end(event, target)

    def _processed(self, event: str, state: str) -> bool:
        """Return whether a task that ended by this event, or in this state, was acked."""
        if state == ABSENT:
            return event == "ack"
        return any(row.event == "ack" and row.target == state for row in self.machine.rows)

    def waited_for(self) -> list[tuple[Any, str, float]]:
        """Return the waits as (key of the task, uuid of the session, since when in seconds since 1970).

        The key is None for a caller of this process that waits in take.
        """
        rows = self.database.run(self.database.dialect.records.waiting)
        own = self.database.open().sessions.own().uuid
        return [
            *((self.tasks.app_key(tuple(key)), session, since) for *key, session, since in rows),
            *((None, own, since) for since in self.takers.since),
        ]

    # notifications

    def committed_elsewhere(self, ready: bool | None = None) -> bool:
        """Wake the waiters that may find something, after another process has committed an unknown change.

        `ready`: whether a take would find a task, if that is known. Returns whether a waiter was woken, other than one
        for room.
        """
        # A query first: a take that finds nothing would lock out writers.
        if ready is None:
            ready = bool(self.takers.waiters) and self.takes.any_ready()
        if ready:
            self.takers.wake_first()
        self.putters.wake_first()
        ended = self.collect() > 0
        self._look_at_taken()
        return ended or ready

    def wake_all(self) -> None:
        """Wake all waiters: the queue was uninstalled or has other features, or became read-only."""
        self.takers.wake_all()
        self.putters.wake_all()
        for caller in list(self._end_waiters.values()):
            caller.awake.set()

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Wake waiters after this process has committed a transition of tasks."""
        if self._end_waiters and source != ABSENT:  # the row of a put is known, and another thread may have moved it
            self._keep(target, {self.tasks.key_of(row): row for row in rows})
        if target != READY and self.machine.frees(source, target):
            self.takers.wake_first()
        if target == READY and self.takers.waiters:
            tube = self.tasks.table.roles.get("tube")
            place = None if tube is None else self.tasks.table.fields.index(tube)
            # With one writer at a time, threads that take at once wait long for its lock: one wakes the next.
            at_once = len(self.takers.waiters) if self.database.dialect.lock else 1
            for tube_of_rows, n in Counter(None if place is None else row[place] for row in rows).items():
                for _ in range(min(n, at_once)):
                    self.takers.wake(tube_of_rows)
        if self._limit and source in self._limit.states and target not in self._limit.states:
            self.putters.wake_first()
        if source in self.machine.pending and target not in self.machine.pending:
            self.collect()

    def _keep(self, target: str, rows: Mapping[Parts, Row]) -> None:
        """Record the rows (by key) of tasks that this process has moved, for callers waiting for their end."""
        for caller in list(self._end_waiters.values()):
            # After the end, the key may belong to another task. The deletion may be recorded after its event.
            over = caller.gone or (caller.event is not None and target != ABSENT)
            if not over and (row := rows.get(caller.parts)) is not None:
                caller.row, caller.here, caller.gone = row, target == TAKEN, target == ABSENT
                if caller.event is not None:  # another thread has recorded the end already
                    caller.awake.set()

    def _look_at_taken(self) -> None:
        """Record the rows of taken tasks whose end is waited for: at the end they may be deleted."""
        if not self._end_waiters:
            return
        opened = self.database.open()
        mine = {"uuid": opened.sessions.own().uuid}
        for name, *row in self.database.run(opened.dialect.records.taken_and_awaited, mine):
            if (caller := self._end_waiters.get(name)) is not None and not caller.gone:
                caller.row = row

    def collect(self) -> int:
        """Wake the callers whose tasks have ended. Return their number."""
        ends = self.database.run(self.database.dialect.records.ends) if self._end_waiters else []
        mine = [(caller, *end) for name, *end in ends if (caller := self._end_waiters.get(name)) is not None]
        for caller, event, target in mine:
            caller.end(event, target)
        while self._left:
            try:
                caller = self._left.pop()
            except IndexError:  # another thread popped it
                break
            try:
                self._end_in_database(caller)
            except BaseException:
                self._left.append(caller)
                raise
        return len(mine)
