"""Who of this process waits: for a task that is ready, for room in a queue that is full, for the end of a task.

Whoever waits has a place in a line, and sleeps until it is called. A signal is a reason to look, never an answer:
the database has that. One signal calls one waiter, and who leaves with something calls the next if there is more.
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

SLICE = 3600.0  # seconds: the longest sleep, since a lock takes no longer ones than some years
AGAIN = 0.2  # seconds after which a lost connection is tried again, or at most a row that others have locked
SOON = 0.001  # seconds after which such a row is tried again first
TOLD = 0.05  # seconds to wait for the acking thread to record the task that it acked
ALONE = 0.05  # seconds between two looks where no thread can listen: a database in memory, a test's clock


class Deadline:
    """When patience ends, by real time. None seconds is never."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds to sleep at most; none when it has passed."""
        return SLICE if self._at is None else min(SLICE, self._at - time.monotonic())


def _sleep(awake: threading.Event, seconds: float) -> bool:
    """Sleep until an event is set, and clear it. False when it was not for so long."""
    if not awake.wait(max(0.0, seconds)):
        return False
    awake.clear()
    return True


class Waiter:
    """One that waits in a thread of its own."""

    def __init__(self, tube: str | None, session: Session | None) -> None:
        self.tube = tube  # the only one that it wants; None for any
        self.session = session  # the one that takes; None where it takes nothing
        self.called = False
        self._awake = threading.Event()

    def call(self) -> None:
        self.called = True
        self._awake.set()

    def sleep(self, seconds: float) -> bool:
        """Sleep until called. False when nobody called for so long."""
        called = _sleep(self._awake, seconds)
        self.called = False
        return called


class Line:
    """Waiters for things of which each serves one of them: first come, first called.

    A call is never lost: who was called looks, and who leaves without having looked to the end passes the call on.
    """

    def __init__(self, counted: Callable[[], None] = lambda: None) -> None:
        self.waiters: dict[Waiter, float] = {}  # -> since when
        self._counted = counted  # called whenever one came or left
        self._lock = threading.Lock()

    @property
    def since(self) -> list[float]:
        """Since when they wait, in seconds since 1970."""
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
            waiter.called = True  # it may have been, and then did not look to the end
            raise
        finally:
            with self._lock:  # from here on it is called no more
                self.waiters.pop(waiter, None)
            self._counted()
            if waiter.called:  # and leaves without having looked: others shall look, it is not known for which tube
                self.call_for_any()

    def call(self, tube: str | None) -> None:
        """Call one for what is in a tube, or in none."""
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
        """Call those whose session was closed."""
        with self._lock:
            for waiter in list(self.waiters):
                if waiter.session is not None and waiter.session.closed:
                    waiter.call()

    def call_for_any(self) -> None:
        """Call one for each tube that is waited for: there may be something in it."""
        with self._lock:
            first: dict[str | None, Waiter] = {}
            for waiter in list(self.waiters):
                first.setdefault(waiter.tube, waiter)
            for waiter in first.values():
                waiter.call()


class Ending:
    """One that waits for the end of a task."""

    def __init__(self, waiter: str) -> None:
        self.waiter = waiter  # its name in the database
        self.parts: Parts = ()  # the key of the task, once a row may tell the database who waits
        self.awake = threading.Event()
        self.lost = False  # whether the session is, for which the database knew it
        self.row: Row = ()  # of the task, as this process saw it last
        self.here = False  # whether a session of this process holds the task, as far as is known
        self.gone = False  # whether this process has deleted the row, and `row` is how
        self.event: str | None = None  # with which the task ended
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
        self.listen: Callable[[], bool] = lambda: False  # have a thread call `heard`; False where there can be none
        self.woken: Callable[[], None] = lambda: None  # raises where a call must wait no longer
        self.forget()

    def forget(self) -> None:
        """Nobody waits, in a child that was forked: threads are not copied with their process."""
        count = self.database.observers.count
        self.takers = Line(count)
        self.putters = Line(count)
        self._endings: dict[str, Ending] = {}
        self._writing = threading.Lock()
        self._left: list[Ending] = []  # of those who wait no more, whose rows are yet to be deleted

    @property
    def anybody(self) -> bool:
        """Whether anybody waits."""
        return bool(self.takers.waiters or self.putters.waiters or self._endings)

    # for tasks, and for room

    def take(self, n: int, options: Mapping[str, Any], tube: str | None, timeout: float | None) -> list[T]:
        """As `Takes.oldest`, but patient: it comes back as soon as there is one. Raises as `_may_wait`."""
        if timeout == 0:
            return self.takes.oldest("take", n, options, tube=tube)
        taken: list[str | None] = []  # the mark
        try:
            with self._may_wait("take", timeout):
                found = self.takes.oldest("take", n, options, tube=tube, then=taken.append)
                return found or self._wait_to_take(n, options, tube, Deadline(timeout), taken.append)
        except BaseException as error:
            self.takes.in_doubt.add(taken, error)
            raise

    def _wait_to_take(
        self,
        n: int,
        options: Mapping[str, Any],
        tube: str | None,
        deadline: Deadline,
        then: Callable[[str | None], None],
    ) -> list[T]:
        self.listen()  # from before the look: what comes after it is told of
        with self.takers.place(tube, self.database.session) as waiter:
            while not (found := self._take_if_there(n, options, tube, deadline, then)):
                if not self._sleep(waiter, deadline):
                    return []
            if len(self.takers.waiters) > 1:
                self._pass_on()
        return found

    def _take_if_there(
        self,
        n: int,
        options: Mapping[str, Any],
        tube: str | None,
        deadline: Deadline,
        then: Callable[[str | None], None],
    ) -> list[T]:
        """As `Takes.oldest`. A database that is not there has nothing, as long as there is time for it to come back."""
        try:
            return self.takes.oldest("take", n, options, tube=tube, then=then)
        except Exception as error:
            self._forgive(error, deadline)
            return []

    def _forgive(self, error: Exception, deadline: Deadline) -> None:
        """Raise it again, unless it is that the connection was lost, and there is time to wait for another one."""
        if deadline.left <= 0 or self.database.store.classify(error) is not ErrorKind.LOST:
            raise error

    def _pass_on(self) -> None:
        """Call the next, if there is more. No error of the database is raised: what was taken must be returned."""
        try:
            more = self.takes.any_ready()
        except Exception as error:
            if not isinstance(error, Error) and self.database.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise
            more = True
        if more:
            self.takers.call_for_any()

    def put(self, task: object, options: dict[str, Any], timeout: float | None) -> T:
        """As `Inserts.put`, but waits while the queue is full. Raises Full when time is up, and as `_may_wait`."""
        if self._limit is None:
            self.tasks.refuse_option("put", "timeout")
        with self._may_wait("put", timeout):
            return self._wait_to_put(task, options, timeout)

    def _wait_to_put(self, task: object, options: dict[str, Any], timeout: float | None) -> T:
        deadline = Deadline(timeout)
        if timeout != 0:
            self.listen()  # from before the look: room that is made after it is told of
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
        self.putters.call_for_any()  # the first alone, each time: whoever was called, too, may be the faster one
        return found

    def _sleep(self, waiter: Waiter, deadline: Deadline) -> bool:
        """Sleep until called, or as long as one may without being called. False when the deadline has passed."""
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
        """Whether no thread tells of anything: who waits must look, and sweep, now and then."""
        return not self.listen() or self.database.clock is not None or self.database.store.in_transaction()

    @contextmanager
    def _may_wait(self, what: str, timeout: float | None, option: str = "timeout") -> Iterator[None]:
        """Within the block this thread may wait. Raises InTransaction and ConfigurationError."""
        if timeout == 0:
            yield
            return
        otherwise = f", or say {option}=0"
        store, mine = self.database.store, self.database.sessions
        # A transaction of one thread is that of all others there, who then wait within it, or end it.
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
        """Put a task and wait for its end, with no gap between the two."""
        if timeout == 0:
            return self.inserts.put([task], options)[0], False

        def put() -> Parts:
            (found,) = self.inserts.put([task], options)
            return self.tasks.identify(found)[0]

        with self._may_wait("put", timeout, "wait"):
            # Nobody else sees the task yet: there is none to be held, unless it may be one that was there.
            return self._until_the_end(put, Deadline(timeout), held=self.machine.guard("unique") is None)

    def wait(self, parts: Parts, timeout: float | None) -> tuple[T, bool]:
        """Wait until a task has ended: (the task, whether it was processed). Raises NotFound, and as `_may_wait`."""
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
                    ending.lost = True  # it may be; and what was told meanwhile is seen by that as well
            said = Deadline(TOLD)
            while ending.here and (ending.event, ending.target) == ("ack", ABSENT) and said.left > 0:
                _sleep(ending.awake, said.left)  # the thread that ended it has committed, and is about to say how
        finally:
            if ending.parts:
                self._end(ending)
        if ending.event is not None and ending.target == ABSENT:
            return self._last(ending), self._processed(ending.event, ABSENT)
        try:
            row, state = self.finish.look(parts)
        except NotFound:  # it ended, and its row went away, since we looked last
            done = ending.event is not None and self._processed(ending.event, ending.target)
            return self._last(ending), done
        return self.tasks.returned(row), self._processed(ending.event or "", ending.target or state)

    def _last(self, ending: Ending) -> T:
        """Return a task whose row is gone, as it last was."""
        row = list(ending.row)
        if ending.event == "ack":  # which is of taken tasks alone
            row[self._status_at] = self.database.dialect.words[TAKEN if ending.target == ABSENT else ending.target]
        return self.tasks.returned(row)

    def _begin(self, ending: Ending, named_task: Callable[[], Parts], held: bool = False) -> tuple[Row, str, bool]:
        """Have the end of a task be told of, if it is yet to come. Returns its row, its state, and whether it will be.

        `held` says that nobody else can end it until this has begun.

        It will not where another transaction has locked the row: nobody knows when that ends.
        """
        self.listen()  # from before it is told of
        try:
            # One thread at a time: SQLite is not fair to those who want its lock. And nothing ends in between.
            with self._writing:
                return self.database.unit(partial(self._begin_at_once, ending, named_task, held), transaction=True)
        except Exception as error:
            if self.takes.in_doubt.excluded_by(error):  # then there is no row
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
        ending.parts = self.tasks.key_of(row)  # as the row has it: triggers compare more strictly than columns may
        self._add_ending(ending)  # before the row is seen: what is told of it finds somebody
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
        """Have the end of a task be told of again, which nobody is told of any more. False when it has ended by now."""
        ending.parts = parts
        with self._writing:
            self._end_in_database(ending)
        if ending.event is not None:
            return False
        if not self.database.may_move:  # nor hold the task meanwhile: look again and again
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
        """The session of this process was lost, and with it what the database knew of who waits."""
        for ending in list(self._endings.values()):
            ending.lost = True
            ending.awake.set()

    def _end(self, ending: Ending) -> None:
        self._drop_ending(ending)
        try:
            with self._writing:
                self._end_in_database(ending)
        except BaseException as error:
            if not isinstance(error, Error):  # of xq's own: then there is no table
                self._left.append(ending)
            if self.database.store.classify(error) is ErrorKind.NOT_DATABASE:
                raise  # else what is known of the end is more than that its row could not be deleted

    def _end_in_database(self, ending: Ending) -> None:
        for event, target in self.database.execute(self.database.dialect.end_wait, self._values(ending)):
            if event is not None:  # what nobody told of counts, too
                ending.tell(event, target)

    @staticmethod
    def _values(ending: Ending) -> dict[str, Any]:
        return {**named(ending.parts), "waiter": ending.waiter}

    def _processed(self, event: str, state: str) -> bool:
        """Whether the end of a task is that it was done."""
        if state == ABSENT:
            return event == "ack"
        return any(row.event == "ack" and row.target == state for row in self.machine.rows)

    def waited_for(self) -> list[tuple[Any, str, float]]:
        """Which tasks are waited for, by which sessions, and since when; None for this process's waiting takers."""
        rows = self.database.execute(self.database.dialect.waiting)
        own = self.database.open().sessions.own().uuid
        return [
            *((self.tasks.app_key(tuple(key)), session, since) for *key, session, since in rows),
            *((None, own, since) for since in self.takers.since),
        ]

    # what is heard

    def heard(self) -> bool:
        """Somebody wrote to the database, nobody knows what: let those look who may find something.

        Returns whether anybody was called.
        """
        # A take that finds nothing locks writers out for nothing.
        ready = bool(self.takers.waiters) and self.takes.any_ready()
        if ready:
            self.takers.call_for_any()
        self.putters.call_for_any()
        ended = self.collect() > 0
        self._look_at_taken()
        return ended or ready

    def alarm(self) -> None:
        """The queue is not there any more: let everybody see for himself."""
        self.takers.call_all()
        self.putters.call_all()
        for ending in list(self._endings.values()):
            ending.awake.set()

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """This process moved tasks, and has committed since."""
        if self._endings and source != ABSENT:  # a task that was put is known, and may be another thread's by now
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
        """Keep those rows, by their keys, of tasks that this process has moved and whose end is waited for."""
        for ending in list(self._endings.values()):
            # After its end the key may be that of another task. That it is gone may be known later than its event.
            over = ending.gone or (ending.event is not None and target != ABSENT)
            if not over and (row := rows.get(ending.parts)) is not None:
                ending.row, ending.here, ending.gone = row, target == TAKEN, target == ABSENT
                if ending.event is not None:  # told by another thread, which was faster
                    ending.awake.set()

    def _look_at_taken(self) -> None:
        """Look at the tasks that are taken and whose end is waited for: when that comes their rows may be gone."""
        if not self._endings:
            return
        opened = self.database.open()
        mine = {"uuid": opened.sessions.own().uuid}
        for name, *row in self.database.execute(opened.dialect.taken_and_awaited, mine):
            if (ending := self._endings.get(name)) is not None and not ending.gone:
                ending.row = row

    def collect(self) -> int:
        """Tell those whose tasks have ended how they did. Returns how many there were."""
        ends = self.database.execute(self.database.dialect.ends) if self._endings else []
        mine = [(ending, *end) for name, *end in ends if (ending := self._endings.get(name)) is not None]
        for ending, event, target in mine:
            ending.tell(event, target)
        while self._left:
            try:
                ending = self._left.pop()
            except IndexError:  # several threads collect
                break
            try:
                self._end_in_database(ending)
            except BaseException:
                self._left.append(ending)
                raise
        return len(mine)
