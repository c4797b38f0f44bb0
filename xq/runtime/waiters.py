"""Waiters of this process: callers that wait for a ready task, for room in a full queue, or for the end of a task.

A waiter sleeps in a wait queue until it is woken, and then looks at the database. One notification wakes one waiter.
A waiter that found something wakes the next one if there is more.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from xq.core.errors import ConfigurationError, Error, Full, InTransaction, NotFound
from xq.core.machine import ABSENT, READY, TAKEN
from xq.core.ports import ErrorKind, Row
from xq.core.values import Parts, Tasks, named
from xq.engine.finish import Finish
from xq.engine.insert import Inserts
from xq.engine.take import Takes
from xq.engine.unit import Database
from xq.sessions.session import Session, owner_of

T = TypeVar("T")

SLICE = 3600.0  # seconds: the longest sleep, since the timeout of a lock is limited
AGAIN = 0.2  # seconds until a retry after a lost connection; also the longest pause before retrying a locked row
SOON = 0.001  # seconds until the first retry of such a row
TOLD = 0.05  # seconds to wait for the acking thread to record the task that it acked
ALONE = 0.05  # seconds between two looks without a maintenance thread: a database in memory, a test's clock


class Deadline:
    """The time at which a wait ends, by the monotonic clock. Without seconds (None) it never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The longest sleep in seconds; zero or negative after the deadline."""
        return SLICE if self._at is None else min(SLICE, self._at - time.monotonic())


def _sleep(awake: threading.Event, seconds: float) -> bool:
    """Sleep until an event is set, and clear it. Return False if it was not set within `seconds`."""
    if not awake.wait(max(0.0, seconds)):
        return False
    awake.clear()
    return True


class Waiter:
    """A thread that waits for a task or for room."""

    def __init__(self, tube: str | None, session: Session | None) -> None:
        self.tube = tube  # the only one to take from; None for any
        self.session = session  # by which it takes; None for a put
        self.called = False
        self._awake = threading.Event()

    def call(self) -> None:
        self.called = True
        self._awake.set()

    def sleep(self, seconds: float) -> bool:
        """Sleep until `call`. Return False if it did not come within `seconds`."""
        called = _sleep(self._awake, seconds)
        self.called = False
        return called


class Line:
    """A wait queue: first come, first woken. Each task, or each free place, is for one waiter.

    No call is lost: a waiter that was called looks, and if it leaves before the end of its look, others are called.
    """

    def __init__(self, counted: Callable[[], None] = lambda: None) -> None:
        self.waiters: dict[Waiter, float] = {}  # -> since when, in seconds since 1970
        self._counted = counted  # called whenever a waiter was added or removed
        self._lock = threading.Lock()

    @property
    def since(self) -> list[float]:
        """The times at which the waiters came, in seconds since 1970."""
        return list(self.waiters.values())

    @contextmanager
    def place(self, tube: str | None = None, session: Session | None = None) -> Iterator[Waiter]:
        waiter = Waiter(tube, session)
        with self._lock:
            self.waiters[waiter] = time.time()
        try:
            self._counted()
            yield waiter
        except BaseException:
            waiter.called = True  # it may have been called, and its look did not end
            raise
        finally:
            with self._lock:  # after this it cannot be called
                self.waiters.pop(waiter, None)
            self._counted()
            if waiter.called:  # and leaves without a look: others must look, in any tube
                self.call_for_any()

    def call(self, tube: str | None) -> None:
        """Call the first waiter that may take from this tube (None: a task without a tube)."""
        with self._lock:
            for waiter in list(self.waiters):
                if not waiter.called and waiter.tube in (None, tube):
                    waiter.call()
                    return

    def call_all(self) -> None:
        with self._lock:
            for waiter in list(self.waiters):
                waiter.call()

    def call_closed(self) -> None:
        """Call the waiters whose session was closed."""
        with self._lock:
            for waiter in list(self.waiters):
                if waiter.session is not None and waiter.session.closed:
                    waiter.call()

    def call_for_any(self) -> None:
        """Call the first waiter of each tube, and the first of any tube."""
        with self._lock:
            first: dict[str | None, Waiter] = {}
            for waiter in list(self.waiters):
                first.setdefault(waiter.tube, waiter)
            for waiter in first.values():
                waiter.call()


class Ending:
    """A caller that waits for the end of a task."""

    def __init__(self, waiter: str) -> None:
        self.waiter = waiter  # its name in the database
        self.parts: Parts = ()  # the key of the task, once the database may hold a row for this wait
        self.awake = threading.Event()
        self.lost = False  # whether the session that registered the wait was lost
        self.row: Row = ()  # of the task, as this process saw it last
        self.here = False  # whether a session of this process owns the task, as far as it has seen
        self.gone = False  # whether this process has deleted the row; `row` is its last state
        self.event: str | None = None  # that ended the task
        self.target = ""

    def tell(self, event: str, target: str) -> None:
        self.event, self.target = event, target
        self.awake.set()


class Waiting(Generic[T]):
    """The waiters of this process in one queue."""

    _names = itertools.count(1)

    def __init__(
        self, database: Database, tasks: Tasks[T], inserts: Inserts[T], takes: Takes[T], finish: Finish[T]
    ) -> None:
        self.database = database
        self.tasks = tasks
        self.inserts = inserts
        self.takes = takes
        self.finish = finish
        self.machine = takes.machine
        self._status_at = tasks.table.fields.index(tasks.table.roles["status"])
        self._limit = self.machine.guard("limit")
        self.listen: Callable[[], bool] = lambda: False  # starts a thread that calls `heard`; False if none can run
        self.woken: Callable[[], None] = lambda: None  # raises to end a call that waits
        self.forget()

    def forget(self) -> None:
        """Start without waiters. In a forked child there are none: threads are not copied."""
        count = self.database.observers.count
        self.takers = Line(count)
        self.putters = Line(count)
        self._endings: dict[str, Ending] = {}
        self._writing = threading.Lock()
        self._left: list[Ending] = []  # ended waits whose rows are still to be deleted

    @property
    def anybody(self) -> bool:
        """Whether a caller waits."""
        return bool(self.takers.waiters or self.putters.waiters or self._endings)

    # for tasks, and for room

    def take(self, n: int, options: Mapping[str, Any], tube: str | None, timeout: float | None) -> list[T]:
        """Take up to `n` tasks, and wait up to `timeout` seconds (None: without limit) for the first.

        Returns an empty list if none came. Raises InTransaction and ConfigurationError if the caller must not wait.
        """
        if timeout == 0:
            return self.takes.oldest("take", n, options, tube=tube)
        taken: list[str | None] = []  # the token
        look = partial(self.takes.oldest, "take", n, options, tube=tube, then=taken.append)
        try:
            with self._may_wait("take", timeout):
                return look() or self._wait_to_take(look, tube, Deadline(timeout))
        except BaseException as error:
            self.takes.in_doubt.add(taken, error)
            raise

    def _wait_to_take(self, look: Callable[[], list[T]], tube: str | None, deadline: Deadline) -> list[T]:
        self.listen()  # before the look, so that no later commit is missed
        with self.takers.place(tube, self.database.session) as waiter:
            while not (found := self._take_if_there(look, deadline)):
                if not self._sleep(waiter, deadline):
                    return []
            if len(self.takers.waiters) > 1:
                self._pass_on()
        return found

    def _take_if_there(self, look: Callable[[], list[T]], deadline: Deadline) -> list[T]:
        """Return what `look` takes; no tasks if the connection is lost and the deadline has not passed."""
        try:
            return look()
        except Exception as error:
            self._forgive(error, deadline)
            return []

    def _forgive(self, error: Exception, deadline: Deadline) -> None:
        """Raise the error, unless the connection was lost and there is time to wait for a new one."""
        if deadline.left <= 0 or self.database.store.classify(error) is not ErrorKind.LOST:
            raise error

    def _pass_on(self) -> None:
        """Call the next waiters if there are more tasks. Ignore database errors: the caller must get its tasks."""
        try:
            more = self.takes.any_ready()
        except Exception as error:
            if not isinstance(error, Error) and self.database.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise
            more = True
        if more:
            self.takers.call_for_any()

    def put(self, task: object, options: dict[str, Any], timeout: float | None) -> T:
        """Put a task, and wait up to `timeout` seconds (None: without limit) while the queue is full.

        Raises Full after that, and InTransaction and ConfigurationError if the caller must not wait.
        """
        if self._limit is None:
            self.tasks.refuse_option("put", "timeout")
        with self._may_wait("put", timeout):
            return self._wait_to_put(task, options, timeout)

    def _wait_to_put(self, task: object, options: dict[str, Any], timeout: float | None) -> T:
        deadline = Deadline(timeout)
        if timeout != 0:
            self.listen()  # before the put, so that no later commit is missed
        with self.putters.place() as waiter:
            while True:
                try:
                    (found,) = self.inserts.put([task], dict(options))
                    break
                except Full:
                    if not self.takes.timers.sweep_if_any().moved and (
                        timeout == 0 or not self._sleep(waiter, deadline)
                    ):
                        raise
        self.putters.call_for_any()  # wakes one waiter: there may be more room
        return found

    def _sleep(self, waiter: Waiter, deadline: Deadline) -> bool:
        """Sleep until called, or until the next look without a call. Return False if the deadline has passed."""
        if deadline.left <= 0:
            return False
        try:
            longest = ALONE if self._alone() else SLICE
        except Exception as error:
            self._forgive(error, deadline)
            longest = AGAIN
        waiter.sleep(min(deadline.left, longest))
        self.woken()
        return True

    def _alone(self) -> bool:
        """Return whether no maintenance thread wakes waiters: then they look and sweep every ALONE seconds."""
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

    def put_and_wait(self, task: object, options: dict[str, Any], timeout: float | None) -> tuple[T, bool]:
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
            return self._until_the_end(put, Deadline(timeout), held=self.machine.guard("unique") is None)

    def wait(self, parts: Parts, timeout: float | None) -> tuple[T, bool]:
        """Wait up to `timeout` seconds (None: without limit) for the end of a task.

        Returns the task, and whether it was processed. Raises NotFound, InTransaction and ConfigurationError.
        """
        with self._may_wait("wait", timeout):
            row, state = self.finish.look(parts)
            if timeout == 0 or state not in self.machine.pending:
                return self.tasks.returned(row), self._processed("", state)
            return self._until_the_end(lambda: parts, Deadline(timeout))

    def _until_the_end(self, named_task: Callable[[], Parts], deadline: Deadline, held: bool = False) -> tuple[T, bool]:
        ending = Ending(f"{self.database.open().sessions.own().prefix}{next(self._names)}")
        try:
            row, state, begun = self._begin(ending, named_task, held)
            parts, pause = self.tasks.key_of(row), SOON
            while state in self.machine.pending and not begun and deadline.left > 0:
                time.sleep(max(0.0, min(pause, deadline.left)))
                pause = min(2 * pause, AGAIN)
                row, state, begun = self._begin(ending, lambda: parts)
            if state not in self.machine.pending:
                return self.tasks.returned(row), self._processed("", state)
            while ending.event is None and deadline.left > 0:
                alone = self._alone()
                called = _sleep(ending.awake, min(deadline.left, ALONE if alone else AGAIN if ending.lost else SLICE))
                try:
                    if alone:
                        self.takes.timers.sweep_if_any()
                    if ending.event is None and (alone or called):
                        self.collect()
                    if alone:
                        self._look_at_taken()
                    if ending.lost and not self._wait_anew(ending, parts):
                        break
                except Exception as error:
                    self._forgive(error, deadline)
                    ending.lost = True  # assume it: the new registration also finds an end that was missed
            said = Deadline(TOLD)
            while ending.here and (ending.event, ending.target) == ("ack", ABSENT) and said.left > 0:
                _sleep(ending.awake, said.left)  # the acking thread has committed, and is about to record the row
        finally:
            if ending.parts:
                self._end(ending)
        if ending.event is not None and ending.target == ABSENT:
            return self._last(ending), self._processed(ending.event, ABSENT)
        try:
            row, state = self.finish.look(parts)
        except NotFound:  # it ended, and its row was deleted, since the last look
            done = ending.event is not None and self._processed(ending.event, ending.target)
            return self._last(ending), done
        return self.tasks.returned(row), self._processed(ending.event or "", ending.target or state)

    def _last(self, ending: Ending) -> T:
        """Return a task whose row is gone, as it last was."""
        row = list(ending.row)
        if ending.event == "ack":  # only a taken task can be acked
            row[self._status_at] = self.database.dialect.words[TAKEN if ending.target == ABSENT else ending.target]
        return self.tasks.returned(row)

    def _begin(self, ending: Ending, named_task: Callable[[], Parts], held: bool = False) -> tuple[Row, str, bool]:
        """Register the wait for the end of a task, unless it has ended.

        Returns its row, its state, and whether the wait was registered. It is not while another transaction has locked
        the row, since that may end the task at any time. `held` says that no other process can end the task before the
        commit.
        """
        self.listen()  # before the registration, so that no end is missed
        try:
            # One thread at a time: SQLite's lock is not fair. Nor does a wait of this process end in between.
            with self._writing:
                return self.database.unit(partial(self._begin_at_once, ending, named_task, held), transaction=True)
        except Exception as error:
            if self.takes.in_doubt.excluded_by(error):  # then the wait has no row
                self._drop_ending(ending)
                ending.parts = ()
            raise

    def _begin_at_once(self, ending: Ending, named_task: Callable[[], Parts], held: bool) -> tuple[Row, str, bool]:
        opened = self.database.open()
        named_parts = named_task()
        held = held or bool(self.database.execute(opened.dialect.hold, named(named_parts))) or not opened.dialect.lock
        row, state = self.finish.look(named_parts)
        ending.row = row
        if not held or state not in self.machine.pending:
            return row, state, False
        session = opened.sessions.own()
        ending.here = state == TAKEN and owner_of(row[-1] or "")[0] in {each.uuid for each in opened.sessions.live()}
        self.database.list_session(opened, session)
        ending.parts = self.tasks.key_of(row)  # from the row: triggers may compare more strictly than the column
        self._add_ending(ending)  # before the commit: a notification must find it
        self.database.execute(opened.dialect.begin_wait, {**self._values(ending), "uuid": session.uuid})
        return row, state, True

    def _add_ending(self, ending: Ending) -> None:
        self._endings[ending.waiter] = ending
        self.database.observers.count()

    def _drop_ending(self, ending: Ending) -> Ending | None:
        found = self._endings.pop(ending.waiter, None)
        self.database.observers.count()
        return found

    def _wait_anew(self, ending: Ending, parts: Parts) -> bool:
        """Register the wait again after the session was lost. Return False if the task has ended meanwhile."""
        ending.parts = parts
        with self._writing:
            self._end_in_database(ending)
        if ending.event is not None:
            return False
        if not self.database.may_move:  # it may not lock the task either: look again and again
            with suppress(NotFound):
                return self.finish.look(parts)[1] in self.machine.pending
            return False
        try:
            _, state, begun = self._begin(ending, lambda: parts)
        except NotFound:
            return False
        ending.lost = not begun
        return state in self.machine.pending

    def session_lost(self) -> None:
        """Wake the callers that wait for an end: the database deleted their waits with the lost session."""
        for ending in list(self._endings.values()):
            ending.lost = True
            ending.awake.set()

    def _end(self, ending: Ending) -> None:
        self._drop_ending(ending)
        try:
            with self._writing:
                self._end_in_database(ending)
        except BaseException as error:
            if not isinstance(error, Error):  # an error of xq means that there is no table
                self._left.append(ending)
            if self.database.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise  # ignore database errors: the caller must get the result of its wait

    def _end_in_database(self, ending: Ending) -> None:
        for event, target in self.database.execute(self.database.dialect.end_wait, self._values(ending)):
            if event is not None:  # an end that was not notified yet
                ending.tell(event, target)

    @staticmethod
    def _values(ending: Ending) -> dict[str, Any]:
        return {**named(ending.parts), "waiter": ending.waiter}

    def _processed(self, event: str, state: str) -> bool:
        """Return whether a task that ended by this event, or in this state, was acked."""
        if state == ABSENT:
            return event == "ack"
        return any(row.event == "ack" and row.target == state for row in self.machine.rows)

    def waited_for(self) -> list[tuple[Any, str, float]]:
        """Return the waits as (key of the task, uuid of the session, since when in seconds since 1970).

        The key is None for a caller of this process that waits in take.
        """
        rows = self.database.execute(self.database.dialect.waiting)
        own = self.database.open().sessions.own().uuid
        return [
            *((self.tasks.app_key(tuple(key)), session, since) for *key, session, since in rows),
            *((None, own, since) for since in self.takers.since),
        ]

    # notifications

    def heard(self) -> bool:
        """Wake the waiters that may find something, after another process has committed an unknown change.

        Returns whether a waiter was woken, other than one for room.
        """
        # A query first: a take that finds nothing would lock out writers.
        ready = bool(self.takers.waiters) and self.takes.any_ready()
        if ready:
            self.takers.call_for_any()
        self.putters.call_for_any()
        ended = self.collect() > 0
        self._look_at_taken()
        return ended or ready

    def alarm(self) -> None:
        """Wake all waiters: the queue was uninstalled or reconfigured, or became read-only."""
        self.takers.call_all()
        self.putters.call_all()
        for ending in list(self._endings.values()):
            ending.awake.set()

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Wake waiters after this process has committed a transition of tasks."""
        if self._endings and source != ABSENT:  # the row of a put is known, and another thread may have moved it
            self._keep(target, {self.tasks.key_of(row): row for row in rows})
        if target != READY and self.machine.frees(source, target):
            self.takers.call_for_any()
        if target == READY and self.takers.waiters:
            tube = self.tasks.table.roles.get("tube")
            place = None if tube is None else self.tasks.table.fields.index(tube)
            for tube_of_rows, n in Counter(None if place is None else row[place] for row in rows).items():
                for _ in range(min(n, len(self.takers.waiters))):
                    self.takers.call(tube_of_rows)
        if self._limit and source in self._limit.states and target not in self._limit.states:
            self.putters.call_for_any()
        if source in self.machine.pending and target not in self.machine.pending:
            self.collect()

    def _keep(self, target: str, rows: Mapping[Parts, Row]) -> None:
        """Record the rows (by key) of tasks that this process has moved, for the callers that wait for their end."""
        for ending in list(self._endings.values()):
            # After the end, the key may belong to another task. The deletion may be recorded after its event.
            over = ending.gone or (ending.event is not None and target != ABSENT)
            if not over and (row := rows.get(ending.parts)) is not None:
                ending.row, ending.here, ending.gone = row, target == TAKEN, target == ABSENT
                if ending.event is not None:  # another thread has recorded the end already
                    ending.awake.set()

    def _look_at_taken(self) -> None:
        """Record the rows of taken tasks whose end is waited for: at the end they may be deleted."""
        if not self._endings:
            return
        opened = self.database.open()
        mine = {"uuid": opened.sessions.own().uuid}
        for name, *row in self.database.execute(opened.dialect.taken_and_awaited, mine):
            if (ending := self._endings.get(name)) is not None and not ending.gone:
                ending.row = row

    def collect(self) -> int:
        """Wake the callers whose tasks have ended. Return their number."""
        ends = self.database.execute(self.database.dialect.ends) if self._endings else []
        mine = [(ending, *end) for name, *end in ends if (ending := self._endings.get(name)) is not None]
        for ending, event, target in mine:
            ending.tell(event, target)
        while self._left:
            try:
                ending = self._left.pop()
            except IndexError:  # another thread popped it
                break
            try:
                self._end_in_database(ending)
            except BaseException:
                self._left.append(ending)
                raise
        return len(mine)
