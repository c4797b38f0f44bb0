"""What becomes of the tasks that a worker has taken: each is acked, released, buried or killed."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from xq.core.errors import Error, NotFound, NotOwner, WrongState, shown
from xq.core.ports import FAULTS, ErrorKind, Row
from xq.core.values import Parts, Taken
from xq.core.words import lasting
from xq.runtime.lease import LOST, Heartbeat, Lease, ttr_of, ttr_timer
from xq.runtime.workers.concurrency import Slots
from xq.runtime.workers.lines import Lines
from xq.runtime.workers.outcomes import Bury, Discard, Retry
from xq.runtime.workers.worker import Supply, Worker

T = TypeVar("T")
Hook = Callable[[Any, BaseException], object]

AGAIN, AGAIN_MOST = 1.0, 60.0  # seconds until the database is asked again after it failed, and after many denials
LONGEST_ERROR = 10_000  # characters: a TEXT of MariaDB holds 65,535 bytes
LONGEST_LINE = 500  # characters of an error in a line of the log
LEFT_OUT = " [...] "
# What a line of the log says of the task, by the event by which the function has finished it.
ENDED = {"ack": "is done", "release": "is released", "bury": "failed for good and is buried", "kill": "is killed"}


@dataclass(slots=True, eq=False)  # not a NamedTuple, which takes four times as long to make
class Attempt:
    """One attempt at one task."""

    task: Any  # as the handler gets it
    taken: Taken  # what names the task, and this take, in a call
    number: int  # of its takes; 0 without the role attempts
    finished: str = ""  # the event by which the function itself has finished the task
    in_doubt: bool = False  # within a transaction, which may be rolled back

    @property
    def is_open(self) -> bool:
        """Whether the worker has to ack the task, as far as it is known."""
        return self.in_doubt or not self.finished


class Batch(list[T]):
    """The tasks that a handler of `worker(batch=)` gets. When it returns, all that have not failed are acked."""

    def __init__(self, tasks: Collection[T]) -> None:
        super().__init__(tasks)
        self._given = tuple(tasks)  # the function may change the list
        self.failed: dict[int, BaseException] = {}  # by the place at which the task was given

    def fail(self, task: T, error: BaseException | str) -> None:
        """Mark one task as failed. It is released or buried, as if a handler of its own had raised the error."""
        place = next((place for place, each in enumerate(self._given) if each is task), None)
        if place is None:
            raise NotFound("this batch", task)
        self.failed[place] = error if isinstance(error, BaseException) else RuntimeError(error)


class Attempts(Generic[T]):
    """The attempts of one worker, in any number of threads."""

    def __init__(
        self,
        worker: Worker[T],
        stop: threading.Event,
        ends: bool = True,  # whether the program ends by itself
        alone: bool = False,  # whether it runs in the caller's thread: without heartbeat and timeout
        overdue: Callable[[Lease], object] = lambda lease: None,
        end_unacked: Callable[[Lease, Collection[Parts]], object] | None = None,
    ) -> None:
        self.worker = worker
        self._moves = moves = worker.queue.adapter.finish
        self._ends = ends
        self._pause = AGAIN  # after the next denial
        # Called with each lease of an `ack` that has not acked all, and with the keys of what is acked.
        self._end_unacked = end_unacked or (lambda lease, acked: self.end(lease, acked=acked))
        self.options = worker.options
        self.stop = stop
        self.database, self.store = moves.database, moves.store
        self.log = moves.log
        self.lines = Lines(moves.log)
        self.uncounted = False  # whether the tasks that ran when the program was to end have an attempt less
        self._alone = alone
        self.may_delay = "delay" in moves.machine.options("release")
        self._tried = set[Parts]()  # the keys of tasks that failed, where nothing delays their next attempt
        self._later: list[T] = []  # those of them that were taken again
        self._unfinished: list[Exception] = []  # see `_note_unfinished`
        self.heart = Heartbeat(self.store, self._touch, overdue)
        roles, timer = moves.tasks.table.roles, None if alone else ttr_timer(moves.machine)
        self._counts = "attempts" in roles
        self._own_ttr = timer if timer is not None and timer.option in roles else None  # if tasks may have their own
        self._ttr = timer.default if timer is not None and self._own_ttr is None else None  # seconds, of each task
        concurrency = worker.options.concurrency
        self.slots = None if concurrency is None else Slots(concurrency, moves.database)

    # the course of an attempt

    def begin(self, tasks: Sequence[T]) -> Lease | None:
        """Lease taken tasks for one call of the function; None if none of them may be tried again."""
        options, ttr, timer = self.options, self._ttr, self._own_ttr
        self._pause = AGAIN
        tell, attempts = self._moves.tasks, []
        for task in tasks:
            attempt = self._attempt(task)  # now: the function may change the key of the task
            if options.max_attempts and not self._may_be_tried(attempt):
                continue
            attempts.append(attempt)
            if timer is not None:
                own = ttr_of(timer, partial(tell.in_role, task))
                if own is not None and (ttr is None or own < ttr):
                    ttr = own
            self._moves.working[attempt.taken.parts] = attempt
        self._leave_slots(len(tasks) - len(attempts))
        if not attempts:
            return None
        given = self.worker.given
        handed = Batch([given(each.task) for each in attempts]) if options.batch else given(attempts[0].task)
        limit = options.timeout if options.kind == "process" and not self._alone else None  # asyncio has its own
        finish = partial(self._finish_now, attempts[0].taken)
        lease = Lease(self.heart, handed, attempts, ttr, attempts[0].number, limit, finish)
        self.heart.add(lease)
        return lease

    def _attempt(self, task: T) -> Attempt:
        tell = self._moves.tasks
        return Attempt(task, tell.taken(task), int(tell.in_role(task, "attempts") or 0) if self._counts else 0)

    def keep(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return the leases of a prefetched take to call the function with, and give the others back.

        A task at its last attempt is kept alone, or is given back: if another function ended the process, this task
        would be buried uncalled.
        """
        most = self.options.max_attempts
        last = next((at for at, lease in enumerate(leases) if most and lease.attempt >= most), len(leases))
        kept = max(last, 1)
        for lease in leases[kept:]:
            self.give_back(lease)
        return leases[:kept]

    # slots

    def take(self, source: Supply[T], n: int, timeout: float, looked: bool = False) -> list[T]:
        """Take up to `n` tasks of a source, no more than slots are free. Raises NoSlot if a task waits for one.

        `looked`: the caller has just found nothing.
        """
        if looked:
            self.lines.sum_up()
        self.store.connect()
        within = None if self.slots is None else partial(self._within, self.slots)
        return source.take(n, timeout, self.stop, within, looked)

    def _within(self, slots: Slots, n: int, take: Callable[[int], list[T]]) -> list[T]:
        taken, tasks = slots.take(n), list[T]()
        try:
            tasks = take(taken)
        finally:
            self._leave_slots(taken - len(tasks))
        return tasks

    def _leave_slots(self, n: int) -> None:
        """Free `n` slots. One that cannot be freed is free when the session ends."""
        if slots := self.slots:
            told = "a slot of %r cannot be freed"
            for _ in range(n):
                self._finish(slots.leave, lambda _: self.log.exception(told, self.options.concurrency))

    def _finish_now(self, taken: Taken, event: str, update: Mapping[str, Any], **options: Any) -> T | None:
        """Finish a task within its function, retried while the database fails; None if it was lost. Raises as `one`."""
        move = partial(self._moves.one, event, taken, options, update)
        moved: T | None = self._finish(move, repeats=not self.store.in_transaction())
        return moved

    def end(self, lease: Lease, error: BaseException | None = None, acked: Collection[Parts] = ()) -> None:
        """Finish the tasks of a lease after the function has returned or raised. Call it within the handler of `error`.

        Those with the keys `acked` are acked already. A lost lease needs nothing: its tasks belong to others by now.
        """
        try:
            if lease.is_lost:
                self.log.debug("a function has ended whose task was lost", exc_info=error)
            elif error is not None:
                for attempt in lease.taken:
                    self._failed(attempt, error)
            else:
                self._ack_each(lease, acked)
        finally:
            self.drop(lease)

    def ack(self, leases: Sequence[Lease]) -> None:
        """Ack the tasks of leases whose functions have returned."""
        done = self._to_ack(leases)
        ack = partial(self._moves.ack_those, done)
        # If the database refuses one, all are acked one after the other.
        self._drop_acked(leases, done, self._finish(ack, lambda error: None) if done else [])

    def ack_and_take(
        self, leases: Sequence[Lease], take: Callable[[Callable[[str | None], None]], list[T]]
    ) -> list[T] | None:
        """Ack the tasks of these leases, and take the next ones, in one transaction. Return those.

        In one pipeline on PostgreSQL. None if nothing was done. `take` passes the token of its take to its argument.
        """
        moves, done = self._moves, self._to_ack(leases)
        database, observers = moves.database, moves.database.observers
        joins = self.store.driver.joins
        if self.slots or not (joins and done) or (self.options.batch and any(map(_named, leases))):
            return None

        tokens: list[str | None] = []
        ack, take_next = partial(moves.ack_those, done), partial(take, tokens.append)
        try:
            connection, _ = database.begin()
            if joins == "pipeline" and (observers.callbacks or (observers.anybody and not connection.pipelines)):
                return None  # two transactions cost less than the four messages of one
            if joins == "transaction" and observers.anybody:
                acked, found = database.transaction(lambda: (ack(), take_next()), locks=False, caught=True)
            else:  # without the ORM's transaction, which only its callbacks after a commit need
                acked, found = connection.as_one(ack, take_next)
        except BaseException as error:
            moves.in_doubt.add(tokens, error)
            if isinstance(error, Exception):
                return None  # all is rolled back: `ack` finds the reason
            raise
        if joins == "pipeline" and observers.anybody:
            moves.notify_acked(acked)  # there were no rows yet when each ack was sent
        self._drop_acked(leases, done, acked)
        return found

    def _to_ack(self, leases: Sequence[Lease]) -> list[Taken]:
        return [attempt.taken for lease in leases for attempt in _done(lease) if attempt.is_open]

    def _drop_acked(
        self, leases: Sequence[Lease], done: Sequence[Taken], acked: Sequence[Sequence[Row]] | None
    ) -> None:
        """Drop leases after an ack of them all, which returned `acked`; None if the database has refused some.

        Ack the missing ones singly, to know the reason, but not what the function itself has finished.
        """
        if acked is None or sum(map(len, acked)) < len(done):
            key_of = self._moves.tasks.key_of
            keys = {key_of(row) for rows in acked or () for row in rows}
            for lease in leases:
                for attempt in lease.taken if acked is not None else ():
                    attempt.in_doubt &= attempt.taken.parts in keys  # else its transaction was committed
                self._end_unacked(lease, keys)
            return
        if self.options.batch:
            for lease in leases:
                self._fail_named(lease)
        for lease in leases:
            self._log_done(lease)
        self.drop(*leases)

    def drop(self, *leases: Lease) -> None:
        """End leases, and free the slots of their tasks."""
        slots = sum(len(lease.taken) for lease in leases if lease in self.heart.leases)
        self.heart.remove(*leases)
        working = self._moves.working
        for attempt in [attempt for lease in leases for attempt in lease.taken]:
            if working.get(key := attempt.taken.parts) is attempt:  # else the task was taken again
                del working[key]
        self._leave_slots(slots)

    def give_back(self, lease: Lease) -> None:
        """Release the tasks of a lease, whose function has not been called or was interrupted."""
        for attempt in lease.taken:
            self._give_back(attempt, lease.begun)
        self.drop(lease)

    def give_back_tasks(self, tasks: Sequence[T]) -> None:
        """Release tasks that were taken as the worker was to end."""
        for task in tasks:
            self._give_back(self._attempt(task), called=False)
        self._leave_slots(len(tasks))

    def not_tried(self, tasks: Sequence[T]) -> list[T]:
        """Return the tasks that have not failed before. The others stay taken until `release_tried`."""
        tried = [self._moves.tasks.taken(task).parts in self._tried for task in tasks]
        self._later += [task for task, before in zip(tasks, tried, strict=True) if before]
        return [task for task, before in zip(tasks, tried, strict=True) if not before]

    def release_tried(self) -> None:
        self.give_back_tasks(self._later)
        self._later = []

    def uncount(self) -> None:
        """Count no attempt of the tasks that are being worked on: it is not their fault if the process is killed soon.

        A function that fails by itself later counts (`_counted`).
        """
        moves, leases = self._moves, [lease for lease in list(self.heart.leases) if lease.attempt]
        if not leases:
            return
        self.uncounted = True
        field = moves.tasks.table.roles["attempts"].name
        try:
            self.store.connect()
            for attempt in [attempt for lease in leases for attempt in lease.taken]:
                with suppress(*LOST):  # it has just ended
                    moves.if_free(attempt.taken, partial(moves.write, attempt.taken, {field: attempt.number - 1}))
        except Exception as error:
            self.log.warning("the attempts of the tasks that run now stay counted: %s", _line(error))

    def _counted(self, attempt: Attempt, **roles: str) -> dict[str, Any]:
        """Return the update of a task whose function has failed, and the roles set by it."""
        counted = {"attempts": attempt.number} if self.uncounted and attempt.number else {}
        known = self._moves.tasks.table.roles
        update = {known[role].name: value for role, value in {**roles, **counted}.items()}
        return {"update": update or None, "sets": (*roles, *counted)}

    def release_all(self) -> None:
        """Release the tasks of all running functions."""
        for lease in list(self.heart.leases):
            for attempt in lease.taken:
                if lease.begun:
                    self.log.warning("released task %s, which was being worked on", self._key(attempt.taken))
                self._give_back(attempt, lease.begun)

    def fail_overdue(self, lease: Lease) -> None:
        """Release or bury the tasks of a function that runs for too long."""
        try:
            raise TimeoutError(f"the function runs for longer than {self.options.timeout:g} s")
        except TimeoutError as error:
            for attempt in lease.taken:
                self._failed(attempt, error, waits=False)  # the process ends now

    def wait_for_the_database(self, error: Exception) -> None:
        """Wait AGAIN seconds after an error of the database, longer after each denial. Raise errors that stay.

        Such is a denied privilege for a program that ends by itself, and any error within the caller's own transaction.
        """
        kind = self.store.classify(error)
        denied = kind is ErrorKind.DENIED
        if kind in (ErrorKind.NOT_DATABASE, *FAULTS) or (denied and self._ends):
            raise error
        if self._alone and self.store.in_transaction():
            raise error
        self.log.warning("the database fails, and is asked again: %s", error)
        self.stop.wait(self._pause if denied else AGAIN)
        self._pause = min(2 * self._pause, AGAIN_MOST) if denied else AGAIN

    def _note_unfinished(self, error: Exception) -> None:
        """Note an error of the database, which the program does not wait for, since it ends. Log the first one."""
        self._unfinished.append(error)
        if error is self._unfinished[0]:  # other threads note errors, too
            told = "the program ends while the database fails: its tasks stay taken until its session has ended: %s"
            self.log.warning(told, _line(error))

    def is_unfinished(self, error: BaseException) -> bool:
        """Return whether this error of the database was raised because the program ends."""
        return any(error is each for each in self._unfinished)

    # how an attempt ends

    def _ack_each(self, lease: Lease, acked: Collection[Parts]) -> None:
        for attempt in _done(lease):
            if attempt.is_open and attempt.taken.parts not in acked:
                ack = partial(self._moves.one, "ack", attempt.taken)
                if not self._finish(ack, partial(self._failed, attempt), expected=(NotFound, WrongState)):
                    continue
                attempt.in_doubt = False
            self._log_done(lease, attempt)
        self._fail_named(lease)

    def _log_done(self, lease: Lease, *attempts: Attempt) -> None:
        for attempt in attempts or _done(lease):
            if not self.log.isEnabledFor(level := self.lines.level()):
                continue
            event = "ack" if attempt.is_open else attempt.finished
            ended, took = ENDED.get(event, f"is finished by {event}"), lasting(time.monotonic() - lease.started_at)
            extra = self._extra(attempt, event)
            self.log.log(level, "task %s %s after %s", self._key(attempt.taken), ended, took, extra=extra)

    def _fail_named(self, lease: Lease) -> None:
        for place, error in _named(lease).items():
            self._failed(lease.taken[place], error)

    def _failed(self, attempt: Attempt, error: BaseException, waits: bool = True) -> None:
        """Log the error of a task, and release, bury or kill it. `waits`: this worker may pause before a release."""
        if isinstance(error, Discard):
            self._finish(partial(self._moves.kill_if_taken_by, attempt.taken), partial(self._leave, attempt.taken))
            return
        asks_to_bury = isinstance(error, Bury) and bool(self._moves.machine.sources("bury"))
        if not isinstance(error, (Retry, Bury)):
            self._call_hooks(self.worker.failure_hooks, attempt, error)
        most = self.options.max_attempts
        if asks_to_bury:
            self._bury(attempt, text_of(error) or type(error).__name__, by=error)
        elif most and attempt.number >= most:
            self._bury(attempt, f"{type(error).__name__}: {text_of(error)}", error, by=error)
        else:
            self._retry(attempt, error, waits)

    def _retry(self, attempt: Attempt, error: BaseException, waits: bool) -> None:
        task, number, most = attempt.taken, attempt.number, self.options.max_attempts
        pause = error.delay if isinstance(error, Retry) else None
        if pause is None:
            pause = self.worker.backoff.pause(self.worker.given(attempt.task), number, error, self.log)
        if not waits and not self.may_delay:
            pause = 0.0
        extra = self._extra(attempt, "release")
        counted = f"attempt {number}{f' of {most}' if most else ''}; " if number else ""
        when = f"({counted}next in {lasting(pause)})"
        if isinstance(error, Retry):
            self.log.info("task %s is retried %s", self._key(task), when, extra=extra)
        else:
            self.log.debug("task %s failed", self._key(task), exc_info=error)
            self.log.warning("task %s failed %s: %s", self._key(task), when, _line(error), extra=extra)
        options = {"delay": pause} if pause and self.may_delay else {}
        if not self.may_delay and self._alone:
            self._tried.add(task.parts)
        elif not self.may_delay:
            self.stop.wait(pause)  # else it would be ready at once
        leave = partial(self._leave, task)
        self._finish(lambda: self._moves.one("release", task, options, **self._counted(attempt)), leave)

    def _bury(self, attempt: Attempt, why: str, error: BaseException | None = None, *, by: BaseException) -> None:
        task = attempt.taken
        trace = "" if error is None else f"\n{_traceback(error)}".removesuffix(f"\n{why}").lstrip()
        give_up = partial(self._give_up, attempt, why, trace)
        if self._finish(give_up, partial(self._leave, task)) is not None:
            extra = self._extra(attempt, "bury")
            self.log.error("task %s is buried: %s", self._key(task), why, exc_info=error, extra=extra)
            self._call_hooks(self.worker.bury_hooks, attempt, by)

    def _call_hooks(self, hooks: Sequence[Hook], attempt: Attempt, error: BaseException) -> None:
        for hook in hooks:
            try:
                hook(self.worker.given(attempt.task), error)
            except Exception:
                self.log.exception("a function that the worker calls after a failure has failed itself")

    def _may_be_tried(self, attempt: Attempt) -> bool:
        """Return whether to call the function (once more if dug); bury the task if workers died in all attempts."""
        if not self.options.max_attempts or attempt.number <= self.options.max_attempts:
            return True
        once_more = self._finish(partial(self._may_try_once_more, attempt.task), partial(self._failed, attempt))
        if once_more is False:  # None: the task was lost, or has failed
            why = f"it was taken {attempt.number - 1} times and never finished"
            self._bury(attempt, why, by=Bury(why))
        return bool(once_more)

    def _may_try_once_more(self, task: T) -> bool:
        """Return whether the taken task was buried before and dug out: then its role error is set. Clear it."""
        moves = self._moves
        if not moves.tasks.in_role(task, "error"):
            return False
        role = moves.tasks.table.roles["error"]
        moves.write(task, {role.name: None if role.null else ""})
        return True

    def _give_up(self, attempt: Attempt, why: str, trace: str) -> T:
        """Bury a task with the reason and the traceback in its role error. The reason comes first, to group reports."""
        moves, task, last = self._moves, attempt.taken, self.options.max_attempts
        role, attempts = map(moves.tasks.table.roles.get, ("error", "attempts"))
        for encoding in ("utf-8", "ascii"):  # ASCII if the column's encoding lacks a character
            if role is None:
                break
            most = min(LONGEST_ERROR, role.max_length or LONGEST_ERROR)
            text = storable(why, most, encoding)
            if trace and len(text) + 1 < most:
                text = f"{text}\n{storable(trace, most - len(text) - 1, encoding)}"
            try:
                return moves.one("bury", task, **self._counted(attempt, error=text))
            except Exception as refused:
                if isinstance(refused, LOST) or self.store.may_pass(refused):
                    raise
                if encoding == "ascii":  # for example a unique index
                    self.log.warning("%r of task %s cannot hold its error: %s", role.name, self._key(task), refused)
        # Without an error no take sees that the task was dug out: leave it one more attempt.
        if attempts and last:
            return moves.one("bury", task, {}, {attempts.name: min(attempt.number, last - 1)}, sets=("attempts",))
        return moves.one("bury", task, **self._counted(attempt))

    def _touch(self, leases: Collection[Lease], seconds: float) -> Iterator[Lease]:
        moves = self._moves
        for lease in leases:
            touched, lost = False, list[Exception]()
            for attempt in lease.taken:
                try:
                    # A row that is locked is not waited for: the function's own transaction may have changed it.
                    touch = partial(moves.one, "touch", attempt.taken, {"increment": seconds})
                    touched |= moves.if_free(attempt.taken, touch)
                except LOST as error:
                    self.log.debug("%s", error)  # the handler may have finished it
                    lost.append(error)
            if len(lost) == len(lease.taken):
                lease.lose()
                if loss := next(filter(_is_loss, lost), None):
                    self.log.warning("the function still runs, but its task is lost: %s", loss)
            elif touched:
                yield lease

    # moves

    def _key(self, taken: Taken) -> str:
        return shown(self._moves.tasks.app_key(taken.parts))

    def _extra(self, attempt: Attempt, event: str) -> Mapping[str, Any]:
        """Return the fields of a record in the log."""
        key = self._moves.tasks.app_key(attempt.taken.parts)
        return {"queue": self.store.name, "key": key, "attempt": attempt.number, "event": event}

    def _give_back(self, attempt: Attempt, called: bool) -> None:
        """Release a task. If the function was not called with it, the take was no attempt."""
        role = None if called else self._moves.tasks.table.roles.get("attempts")
        # A task that was dug after its last attempt is tried once more: so many takes it has then.
        number = min(attempt.number, self.options.max_attempts or attempt.number)
        fields = {role.name: number - 1} if role and number else None
        move = partial(self._moves.one, "release", attempt.taken, {}, fields, sets=("attempts",))
        self._finish(move, partial(self._leave, attempt.taken))

    def _leave(self, task: Taken, error: Exception) -> None:
        """Log a task that cannot be released either. It stays taken, and the worker goes on."""
        self.log.exception("task %s can be neither finished nor given back, and stays taken", self._key(task))

    def _finish(
        self,
        move: Callable[[], Any],
        otherwise: Callable[[Exception], object] | None = None,
        expected: tuple[type[Error], ...] = (),
        repeats: bool = True,
    ) -> Any:
        """Run `move`, retried while the database fails, and return its result, or None.

        None: the task was lost, which is logged; or a retry is useless. Then `otherwise` is called within the handler
        of the error, which is raised without it. If the error is `expected` and no loss, as when the function has
        finished the task itself, return the error. Without `repeats` (in a transaction, which a failure ends) nothing
        is retried.
        """
        while True:
            try:
                self.store.connect()  # the function may have closed it
                return move()
            except LOST as error:
                if isinstance(error, expected) and not _is_loss(error):
                    return error
                if expected:
                    self.log.warning("the function returned, but its task is lost: %s", error)
                else:
                    self.log.info("%s", error)
                return None
            except Exception as error:
                if not repeats or not self.store.may_pass(error):
                    if otherwise is None:
                        raise
                    otherwise(error)
                    return None
                if self.stop.is_set():
                    self._note_unfinished(error)
                    raise
                self.wait_for_the_database(error)


def _is_loss(error: Exception) -> bool:
    """Return whether an error means a lost task: not one that the function or an operator has finished."""
    return isinstance(error, NotOwner) or (isinstance(error, NotFound) and bool(error.found))


def _named(lease: Lease) -> Mapping[int, BaseException]:
    """Return the errors of the tasks of a batch that its function has named, by their places."""
    return lease.task.failed if isinstance(lease.task, Batch) else {}


def _done(lease: Lease) -> list[Attempt]:
    failed = _named(lease)
    return [attempt for place, attempt in enumerate(lease.taken) if place not in failed]


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"


def _line(error: BaseException) -> str:
    """Return an error as one line for the log."""
    return next(iter(f"{type(error).__name__}: {text_of(error)}".splitlines()))[:LONGEST_LINE]


def _traceback(error: BaseException) -> str:
    """Return the traceback from the first frame that is not one of xq; the whole one if all are."""
    first = error.__traceback__
    while first and first.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "xq":
        first = first.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, first or error.__traceback__)).rstrip()
    except Exception:  # the error's own __str__ may raise
        return ""


def storable(text: str, most: int, encoding: str = "utf-8") -> str:
    """Return a text that a field of `most` characters can store in any database. The middle of a longer one is cut."""
    text = text.replace("\0", "\\x00").encode(encoding, "backslashreplace").decode()
    if len(text) <= most:
        return text
    half = (most - len(LEFT_OUT)) // 2
    return f"{text[:half]}{LEFT_OUT}{text[-half:]}" if half > 0 else text[:most]
