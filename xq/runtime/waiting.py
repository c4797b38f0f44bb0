"""The calls that wait: for a ready task, for room in a full queue, or for a task's end.

A waiting call is notified before it looks, so that it misses no commit. Each is a generator (`Wait`).
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic

from xq.core import time
from xq.core.errors import ConfigurationError, Error, Full, InTransaction, NotFound
from xq.core.kinds import ErrorKind, Row, T
from xq.core.machine import ABSENT, TAKEN
from xq.core.options import NONE, Span, seconds_of
from xq.core.tokens import owner_of
from xq.core.values import Key
from xq.engine.insert import Inserts
from xq.engine.named import NamedMoves
from xq.engine.take import Takes
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.runtime.sleep import LONGEST_SLEEP, LOOK_NOW, UNATTENDED, Awake, Deadline, Sleep, Wait, run_wait
from xq.runtime.waiters import EndWaiter, Waiter

AGAIN = 0.2  # seconds until a retry after a lost connection; also the longest pause before retrying a locked row
SOON = 0.001  # seconds until the first retry of such a row
ACKED = 0.05  # seconds to wait for the acking thread to record the task that it acked


class Waiting(Generic[T]):
    """One queue's calls that wait."""

    _names = itertools.count(1)

    def __init__(
        self, inserts: Inserts[T], takes: Takes[T], maintenance: QueueMaintenance, woken: Callable[[], None]
    ) -> None:
        self.executor = takes.executor
        self.tasks = takes.tasks
        self.machine = takes.machine
        self.inserts = inserts
        self.takes = takes
        self.named: NamedMoves[T] = maintenance.named
        self.waiters = maintenance.waiters
        self.maintenance = maintenance
        self._limit = self.machine.room
        self._woken = woken  # raises to end a call that waits

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

        `until` and `looked` are as for `taking`. A look without a task reaps, and is repeated if it reaped a session.
        """
        look, taken = partial(self.takes.oldest, "take", n, options, tube=tube, but=but, reaps=not looked), list[Any]()
        seconds = self.seconds(timeout)
        if n == 0 or seconds == 0:
            return look()
        try:
            return run_wait(self.taking(tube, seconds, looked, until, but), partial(look, then=taken.append))
        except BaseException as error:
            self.takes.in_doubt.add(taken, error)  # the token
            raise

    def taking(
        self,
        tube: str | None,
        timeout: float | None,
        looked: bool = False,
        until: threading.Event | None = None,
        but: tuple[str, ...] = (),
    ) -> Wait[list[Any]]:
        """Return what the caller's look finds, as `take` does.

        `looked`: the caller has just found nothing. With `until` it is a worker's: it waits no longer once that is set
        and the takers are woken, and raises the error of a lost connection.
        """
        with self._may_wait("take", timeout):
            found: list[Any] = [] if looked else (yield LOOK_NOW)
            if found:
                return found
            self.maintenance.listen()  # before the query, so that no later commit is missed
            slept, deadline = False, Deadline(timeout)
            forgiving = deadline if until is None else Deadline(0)
            with self.waiters.takers.enter(tube, self.executor.session, but) as waiter:
                while not (found := (yield from self._take_if_there(forgiving, slept))):
                    if until is not None and until.is_set():
                        return []
                    if not (slept := (yield from self._sleep(waiter, deadline, looks=until is None))):
                        return []
                if len(self.waiters.takers.waiters) > 1:
                    self._pass_on()
            return found

    def _take_if_there(self, deadline: Deadline, slept: bool) -> Wait[list[Any]]:
        """Look; return no tasks if the connection is lost and the deadline has not passed."""
        found: list[Any] = []
        try:
            if slept or self.takes.any_ready():  # else the caller has just looked, and no task has come since
                found = yield LOOK_NOW
        except Exception as error:
            self._forgive(error, deadline)
        return found

    def _forgive(self, error: Exception, deadline: Deadline) -> None:
        """Raise the error, unless the connection was lost and there is time to wait for a new one."""
        if deadline.left <= 0 or self.executor.store.classify(error) is not ErrorKind.LOST:
            raise error

    def if_ready(self, look: Callable[[], list[Any]]) -> list[Any]:
        """Return what a look finds that costs more than a query; it is called only if a task may be ready."""
        found, opening = self.takes.timers.sweep_if_any().moved or self.takes.any_ready(), self.takes.statements.opening
        if not found and opening is not None and (opens := self.executor.dialect.opens):
            opening.note(self.executor.run(opens))
            found = self.takes.any_ready()
        return look() if found else []

    def _pass_on(self) -> None:
        """Call the next waiters if there are more tasks. Ignore database errors: the caller must get its tasks."""
        try:
            more = self.takes.any_ready()
        except Exception as error:
            if not isinstance(error, Error) and self.executor.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise
            more = True
        if more:
            self.waiters.takers.wake_first()

    def putting(self, task: object, options: Mapping[str, Any], timeout: float | None) -> Wait[T]:
        """Put a task, and wait up to `timeout` seconds (None: without limit) while the queue is full.

        Raises Full after that, and InTransaction and ConfigurationError if the caller must not wait.
        """
        if self._limit is None:
            self.tasks.options.refuse_option("put", "timeout")
        deadline, found = Deadline(timeout), list[T]()
        with self._may_wait("put", timeout):
            if timeout != 0:
                self.maintenance.listen()  # before the put, so that no later commit is missed
            with self.waiters.putters.enter() as waiter:
                while not found:
                    try:
                        found = [self.inserts.put(task, dict(options))]
                    except Full as full:
                        if not (self._makes_room(full) or (yield from self._sleep(waiter, deadline))):
                            raise
            self.waiters.putters.wake_first()  # wakes one waiter: there may be more room
        return found[0]

    def _makes_room(self, full: Full) -> bool:
        """Move due tasks, and return whether any moved. Raises `full` if the database user may only put."""
        try:
            return self.takes.timers.sweep_if_any().moved > 0
        except Exception as error:
            if self.executor.store.classify(error) is not ErrorKind.DENIED:
                raise
            raise full from error

    def until(self, what: str, timeout: float | None, look: Callable[[], bool]) -> Wait[bool]:
        """Look until that returns True, up to `timeout` seconds (None: without limit). Return whether it did."""
        deadline, awake, pause = Deadline(timeout), Awake(), UNATTENDED / 4
        with self._may_wait(what, timeout):
            while not look():
                if deadline.left <= 0:
                    return False
                if self._alone():
                    self.takes.timers.sweep_if_any()
                yield Sleep(awake, min(deadline.left, pause := min(2 * pause, 0.5)))
        return True

    def _sleep(self, waiter: Waiter, deadline: Deadline, looks: bool = True) -> Wait[bool]:
        """Sleep until woken, or until the next look without a wake-up. Return whether to look.

        It is False if the deadline has passed; after a sleep only without `looks`, which is for a look at the deadline.
        """
        if deadline.left <= 0:
            return False
        try:
            longest = UNATTENDED if self._alone() else self._until_it_opens(waiter)
        except Exception as error:
            self._forgive(error, deadline)
            longest = AGAIN
        woken = yield from waiter.sleep(min(deadline.left, longest))
        self._woken()
        return woken or looks or deadline.left > 0

    def _until_it_opens(self, waiter: Waiter) -> float:
        """Return the seconds until a take may find what was hidden; infinity for never. Nothing wakes a waiter then."""
        opening, paused = self.takes.statements.opening, self.takes.pauses.paused
        if opening is None or waiter.session is None or (paused and paused.stops(waiter.tube)):
            return math.inf  # only a take renews the time, once that has passed
        return max(SOON, opening.at - time.monotonic())

    def _alone(self) -> bool:
        """Return whether no maintenance thread wakes waiters: then they look and sweep every UNATTENDED seconds."""
        return not self.maintenance.listen() or self.executor.clock is not None or self.executor.store.in_transaction()

    @contextmanager
    def _may_wait(self, what: str, timeout: float | None, option: str = "timeout") -> Iterator[None]:
        """Allow this thread to wait within the block, unless `timeout` is 0.

        Raises InTransaction in a transaction, and ConfigurationError if another thread waits on the same connection.
        """
        if timeout == 0:
            yield
            return
        otherwise = f", or say {option}=0"
        store, mine = self.executor.store, self.executor.sessions
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

    # for a task's end

    def putting_and_waiting(
        self, task: object, options: Mapping[str, Any], timeout: float | None
    ) -> Wait[tuple[T, bool]]:
        """Put a task and wait up to `timeout` seconds for its end, with no gap between the two.

        Returns the task, and whether it was processed.
        """
        if timeout == 0:
            return self.inserts.put(task, options), False

        def put() -> Key:
            return self.tasks.identify(self.inserts.put(task, options))[0]

        with self._may_wait("put", timeout, "wait"):
            # A new task needs no lock: no other process sees it before the commit. With `unique` it may be an old one.
            new = self.machine.single is None
            return (yield from self._until_the_end(put, Deadline(timeout), locked=new))

    def waiting_for(self, parts: Key, timeout: float | None) -> Wait[tuple[T, bool]]:
        """Wait up to `timeout` seconds (None: without limit) for a task's end.

        Returns the task, and whether it was processed. Raises NotFound, InTransaction and ConfigurationError.
        """
        with self._may_wait("wait", timeout):
            row, state = self.named.look(parts)
            if timeout == 0 or state not in self.machine.pending:
                return self.tasks.returned(row), self._processed("", state)
            return (yield from self._until_the_end(lambda: parts, Deadline(timeout)))

    def _until_the_end(
        self, named_task: Callable[[], Key], deadline: Deadline, locked: bool = False
    ) -> Wait[tuple[T, bool]]:
        caller = EndWaiter(f"{self.executor.open().sessions.own().prefix}{next(self._names)}")
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
                        self.waiters.look_at_taken()
                    if caller.event is None and (alone or woken):
                        self.waiters.collect()
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
                self.waiters.end(caller)
        if caller.event is not None and caller.target == ABSENT:
            return self._last(caller), self._processed(caller.event, ABSENT)
        try:
            row, state = self.named.look(parts)
        except NotFound:  # it ended, and its row was deleted, since the last look
            return self._last(caller), self._processed(caller.event or "", caller.target)
        return self.tasks.returned(row), self._processed(caller.event or "", caller.target or state)

    def _last(self, caller: EndWaiter) -> T:
        """Return a task whose row is gone, as it last was."""
        row = list(caller.row)
        if caller.event == "ack":  # only a taken task can be acked
            table, state = self.tasks.table, TAKEN if caller.target == ABSENT else caller.target
            row[table.fields.index(table.roles["status"])] = self.executor.dialect.words[state]
        return self.tasks.returned(row)

    def _begin(self, caller: EndWaiter, named_task: Callable[[], Key], locked: bool = False) -> tuple[Row, str, bool]:
        """Register the wait for a task's end, unless it has ended.

        Returns its row, its state, and whether the wait was registered. It is not while another transaction has locked
        the row, since that may end the task at any time. `locked`: no other process can end the task before the commit.
        """
        self.maintenance.listen()  # before the registration, so that no end is missed
        try:
            # One thread at a time: SQLite's lock is not fair. Nor does a wait in this process end in between.
            with self.waiters.writing:
                return self.executor.transaction(partial(self._begin_at_once, caller, named_task, locked))
        except Exception as error:
            if self.takes.in_doubt.excluded_by(error):  # then the wait has no row
                self.waiters.drop(caller)
                caller.parts = ()
            raise

    def _begin_at_once(self, caller: EndWaiter, named_task: Callable[[], Key], locked: bool) -> tuple[Row, str, bool]:
        opened = self.executor.open()
        named_parts = named_task()
        locked = locked or self.named.lock(named_parts)
        row, state = self.named.look(named_parts)
        caller.row = row
        if not locked or state not in self.machine.pending:
            return row, state, False
        mine = {each.uuid for each in opened.sessions.live()}
        caller.here = state == TAKEN and owner_of(row[-1] or "")[0] in mine
        self.waiters.begin(caller, self.tasks.key_of(row))  # as the row has it: triggers may compare more strictly
        return row, state, True

    def _wait_anew(self, caller: EndWaiter, parts: Key) -> bool:
        """Register the wait again after the session was lost. Return False if the task has ended meanwhile."""
        caller.parts = parts
        with self.waiters.writing:
            self.waiters.end_in_database(caller)
        if caller.event is not None:
            return False
        try:
            _, state, begun = self._begin(caller, lambda: parts)
        except NotFound:
            return False
        caller.lost = not begun
        return state in self.machine.pending

    def _processed(self, event: str, state: str) -> bool:
        """Return whether a task that ended by this event, or in this state, was acked."""
        if state == ABSENT:
            return event == "ack"
        return any(row.event == "ack" and row.target == state for row in self.machine.rows)
