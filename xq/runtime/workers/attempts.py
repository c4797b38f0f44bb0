"""The attempts of a worker: from the tasks that it has taken to their ack, or to their release."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from xq.core import time
from xq.core.errors import NotFound
from xq.core.ports import Row, T
from xq.core.values import Parts, Taken, chunks
from xq.core.words import lasting
from xq.engine.one import LOCKED, Locked
from xq.runtime.lease import LOST, Heartbeat, Lease, ttr_of, ttr_timer
from xq.runtime.workers.attempt import AGAIN, Attempt, RetriedCalls, line_of
from xq.runtime.workers.concurrency import Slots
from xq.runtime.workers.failed import FailedAttempts
from xq.runtime.workers.lines import Lines
from xq.runtime.workers.worker import Supply, Worker

# What a line of the log says of the task, by the event by which the function has finished it.
ENDED = {"ack": "is done", "release": "is released", "bury": "failed for good and is buried", "kill": "is killed"}


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
        alone: bool = False,  # whether it runs in the caller's thread: without heartbeat
        heart: Callable[..., Heartbeat] = Heartbeat,
        lose: Callable[[Lease, Exception], object] | None = None,  # gets each lease that is lost; None: `lose`
        end_unacked: Callable[[Lease, Collection[Parts]], object] | None = None,  # None: at once
    ) -> None:
        self.worker = worker
        self.options = options = worker.options
        self._moves = moves = worker.queue.adapter.finish
        self.log = moves.log
        self.lines = Lines(moves.log)
        self.calls = RetriedCalls(moves, stop, ends, alone)
        self.failures = FailedAttempts(worker, self.calls, alone)
        # Called with each lease of an `ack` that has not acked all, and with the keys of what is acked.
        self._end_unacked = end_unacked
        self._later: list[T] = []  # tasks that failed in this `run_pending`, and were taken again
        self.heart = heart(moves.store, self._touch, moves.hold_session)
        self._lose = lose or self.lose
        roles, timer = moves.tasks.table.roles, None if alone else ttr_timer(moves.machine)
        self._counts = "attempts" in roles
        self._own_ttr = timer if timer is not None and timer.option in roles else None  # if tasks may have their own
        self.ttr = timer.default if timer is not None and self._own_ttr is None else None  # seconds, of each task
        self.slots = None if options.concurrency is None else Slots(options.concurrency, moves.database)

    # taking

    def take(self, source: Supply[T], n: int, timeout: float, looked: bool = False) -> list[T]:
        """Take up to `n` tasks of a source, no more than slots are free. Raises NoSlot if a task waits for one.

        `looked`: the caller has just found nothing.
        """
        if looked:
            self.lines.sum_up()
        self._moves.store.connect()
        within = None if self.slots is None else partial(self._within, self.slots)
        found = source.take(n, timeout, self.calls.stop, within, looked)
        self.calls.failed.clear()
        return found

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
                self.calls.finish(slots.leave, lambda _: self.log.exception(told, self.options.concurrency))

    def begin(self, tasks: Sequence[T]) -> list[Lease]:
        """Return a lease for each call of the function with these tasks, but not for what may not be tried again."""
        found = map(self._begin, chunks(tasks, self.options.batch or 1))
        return [lease for lease in found if lease is not None]

    def _begin(self, tasks: Sequence[T]) -> Lease | None:
        ttr, timer, tell, attempts = self.ttr, self._own_ttr, self._moves.tasks, []
        most = self.options.max_attempts
        self.calls.pause = AGAIN
        for task in tasks:
            attempt = self._attempt(task)  # now: the function may change the key of the task
            if most and attempt.number > most and not self.failures.may_be_tried_once_more(attempt):
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
        given, first = self.worker.given, attempts[0]
        handed = Batch([given(each.task) for each in attempts]) if self.options.batch else given(first.task)
        finish = partial(self._finish_now, first.taken)
        lease = Lease(self.heart, handed, attempts, ttr, first.number, finish)
        self.heart.add(lease)
        return lease

    def _attempt(self, task: T) -> Attempt:
        tasks = self._moves.tasks
        attempts = tasks.in_role(task, "attempts") if self._counts else 0
        return Attempt(task, Taken(*tasks.identify(task)), int(attempts or 0))

    def keep(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return the leases of a prefetched take to call the function with, and give the others back.

        A task at its last attempt is kept alone, or is given back: if another function ended the process, this task
        would be buried uncalled.
        """
        if not (most := self.options.max_attempts):
            return leases
        kept = max(1, next((at for at, lease in enumerate(leases) if lease.attempt >= most), len(leases)))
        for lease in leases[kept:]:
            self.give_back(lease)
        return leases[:kept]

    # while the function runs

    def _touch(self, leases: Collection[Lease], seconds: float) -> Iterator[Lease]:
        moves = self._moves
        for lease in leases:
            touched, locked, lost = False, list[Attempt](), list[Exception]()
            for attempt in lease.taken:
                if not attempt.is_open:
                    continue
                try:
                    # A row that is locked is not waited for: the function's own transaction may have changed it.
                    touch = partial(moves.one, "touch", attempt.taken, {"increment": seconds + attempt.late})
                    if moves.if_free(attempt.taken, touch):
                        touched, attempt.late = True, 0.0
                    else:
                        locked.append(attempt)
                        moves.hold(attempt.taken, lease.ttr)
                except LOST as error:
                    self.log.debug("%s", error)
                    attempt.may_be_taken = lease.has_passed and not attempt.late
                    if not attempt.has_ended(error):
                        lost.append(error)
            if lost and not touched and not locked:
                self._lose(lease, lost[0])
            elif touched or not locked:
                for attempt in locked:
                    attempt.late += seconds
                yield lease

    def lose(self, lease: Lease, why: object) -> None:
        """Note, and log, that the tasks of a lease are lost, while its function runs."""
        if not lease.is_lost:
            lease.lose()
            self.log.warning("the function still runs, but its task is lost: %s", why)

    def _finish_now(self, taken: Taken, event: str, update: Mapping[str, Any], **options: Any) -> T | None:
        """Finish a task within its function, retried while the database fails; None if it was lost. Raises as `one`."""
        move = partial(self._moves.one, event, taken, options, update)
        moved: T | None = self.calls.finish(move, repeats=not self._moves.store.in_transaction())
        return moved

    def uncount(self) -> None:
        """Count no attempt of the tasks that are being worked on: it is not their fault if the process is killed soon.

        A function that fails by itself later counts.
        """
        moves, leases = self._moves, [lease for lease in list(self.heart.leases) if lease.attempt]
        if not leases:
            return
        self.failures.uncounted = True
        field = moves.tasks.table.roles["attempts"].name
        try:
            moves.store.connect()
            for attempt in [attempt for lease in leases for attempt in lease.taken]:
                with suppress(*LOST):  # it has just ended
                    moves.if_free(attempt.taken, partial(moves.write, attempt.taken, {field: attempt.number - 1}))
        except Exception as error:
            self.log.warning("the attempts of the tasks that run now stay counted: %s", line_of(error))

    # the end of an attempt

    def end(self, lease: Lease, error: BaseException | None = None, acked: Collection[Parts] = ()) -> bool:
        """Finish the tasks of a lease after the function has returned or raised. Call it within the handler of `error`.

        Those with the keys `acked` are acked already. A lost lease needs nothing: its tasks belong to others by now.
        Return False if another transaction has locked the row: then call it again.
        """
        ended = True
        try:
            if lease.is_lost:
                self.log.debug("a function has ended whose task was lost", exc_info=error)
            elif error is not None:
                for attempt in lease.taken:
                    self.failures.failed(attempt, error)
            else:
                ended = self._ack_each(lease, acked)
        finally:
            if ended:
                self.drop(lease)
        return ended

    def _ack_each(self, lease: Lease, acked: Collection[Parts]) -> bool:
        for attempt in _done(lease):
            if attempt.is_open and attempt.taken.parts not in acked:
                attempt.may_be_taken = lease.has_passed and not attempt.late
                ack = partial(self._moves.one, "ack", attempt.taken)
                attempt.locked = attempt.locked or Locked(self._moves, "ack", attempt.taken, ack)
                failed = partial(self.failures.failed, attempt)
                while (
                    not (moved := self.calls.finish(attempt.locked.moved, failed, own=attempt)) and attempt.locked.waits
                ):
                    if len(lease.taken) == 1:
                        return False
                    time.sleep(LOCKED)
                if not moved:
                    continue
                attempt.in_doubt = False
            self._log_done(lease, attempt)
        self._fail_named(lease)
        return True

    def ack(self, leases: Sequence[Lease]) -> None:
        """Ack the tasks of leases whose functions have returned."""
        done = _to_ack(leases)
        ack = partial(self._moves.ack_those, done)
        # If the database refuses one, all are acked one after the other.
        self._drop_acked(leases, done, self.calls.finish(ack, lambda error: None) if done else [])

    def ack_and_take(self, leases: Sequence[Lease], source: Supply[T], n: int) -> list[T] | None:
        """Ack the tasks of these leases, and take up to `n` of a source in the same transaction. Return those.

        In one pipeline on PostgreSQL. None if nothing could be taken along: the tasks are acked alone.
        """
        found = self._ack_and_take(leases, source, n) if leases and n else None
        if leases and found is None:
            self.ack(leases)
        return found

    def _ack_and_take(self, leases: Sequence[Lease], source: Supply[T], n: int) -> list[T] | None:
        moves, done = self._moves, _to_ack(leases)
        database, observers, joins = moves.database, moves.database.observers, moves.store.driver.joins
        if self.slots or not (joins and done) or (self.options.batch and any(map(_named, leases))):
            return None

        tokens: list[str | None] = []
        ack, take_next = partial(moves.ack_those, done), partial(source.take_within, n, tokens.append)
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
                if self._end_unacked is not None:
                    self._end_unacked(lease, keys)
            while self._end_unacked is None and (leases := [each for each in leases if not self.end(each, acked=keys)]):
                time.sleep(LOCKED)
            return
        for lease in leases:
            if self.options.batch:
                self._fail_named(lease)
            self._log_done(lease, *_done(lease))
        self.drop(*leases)

    def _fail_named(self, lease: Lease) -> None:
        for place, error in _named(lease).items():
            self.failures.failed(lease.taken[place], error)

    def _log_done(self, lease: Lease, *attempts: Attempt) -> None:
        for attempt in attempts:
            if not self.log.isEnabledFor(level := self.lines.level()):
                continue
            event = "ack" if attempt.is_open else attempt.finished
            ended, took = ENDED.get(event, f"is finished by {event}"), lasting(time.monotonic() - lease.started_at)
            key, extra = self.calls.key(attempt.taken), self.calls.extra(attempt, event)
            self.log.log(level, "task %s %s after %s", key, ended, took, extra=extra)

    def drop(self, *leases: Lease) -> None:
        """End leases, and free the slots of their tasks."""
        slots = sum(len(lease.taken) for lease in leases if lease in self.heart.leases)
        self.heart.remove(*leases)
        working = self._moves.working
        for attempt in [attempt for lease in leases for attempt in lease.taken]:
            if working.get(key := attempt.taken.parts) is attempt:  # else the task was taken again
                del working[key]
        self._leave_slots(slots)

    # giving back

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

    def release_all(self) -> None:
        """Release the tasks of all running functions."""
        for lease in list(self.heart.leases):
            for attempt in lease.taken:
                if lease.begun:
                    self.log.warning("released task %s, which was being worked on", self.calls.key(attempt.taken))
                self._give_back(attempt, lease.begun)

    def _give_back(self, attempt: Attempt, called: bool) -> None:
        """Release a task. If the function was not called with it, the take was no attempt."""
        role = None if called else self._moves.tasks.table.roles.get("attempts")
        # A task that was dug after its last attempt is tried once more: so many takes it has then.
        number = min(attempt.number, self.options.max_attempts or attempt.number)
        fields = {role.name: number - 1} if role and number else None
        waits = not self.calls.stop.is_set()
        move = partial(self._moves.one, "release", attempt.taken, {}, fields, sets=("attempts",), waits=waits)
        self.calls.finish_or_leave(attempt.taken, move)

    def not_tried(self, tasks: Sequence[T]) -> list[T]:
        """Return the tasks that have not failed before. The others stay taken until `release_tried`."""
        tried = [task for task in tasks if self._moves.tasks.identify(task)[0] in self.failures.tried]
        self._later += tried
        return [task for task in tasks if task not in tried]

    def release_tried(self) -> None:
        self.give_back_tasks(self._later)
        self._later = []


def _to_ack(leases: Sequence[Lease]) -> list[Taken]:
    return [attempt.taken for lease in leases for attempt in _done(lease) if attempt.is_open]


def _named(lease: Lease) -> Mapping[int, BaseException]:
    """Return the errors of the tasks of a batch that its function has named, by their places."""
    return lease.task.failed if isinstance(lease.task, Batch) else {}


def _done(lease: Lease) -> list[Attempt]:
    failed = _named(lease)
    return [attempt for place, attempt in enumerate(lease.taken) if place not in failed]
