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
from xq.core.values import Taken, chunks
from xq.core.words import lasting
from xq.engine.one import LOCKED, Locked, cancelled
from xq.runtime.lease import LOST, Heartbeat, Lease, ttr_of, ttr_timer
from xq.runtime.sleep import run_steps
from xq.runtime.waiting import Waiting
from xq.workers.attempt import AGAIN, Attempt, RetriedCalls, line_of
from xq.workers.concurrency import Slots
from xq.workers.failed import FailedAttempts
from xq.workers.lines import Lines
from xq.workers.outcomes import Next
from xq.workers.worker import Supply, Worker

# What a line of the log says of the task, by the event by which the function has finished it.
ENDED = {"ack": "is done", "release": "is released", "bury": "failed for good and is buried", "kill": "is killed"}
ENDED["cancel"] = "was cancelled"
LONG = 60.0  # seconds for which a task has run that the log names when the program is to end


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
    ) -> None:
        self.worker = worker
        self.options = options = worker.options
        self._moves = moves = worker.queue.parts.finish
        self.log = moves.log
        self.lines = Lines(moves.log)
        self.calls = RetriedCalls(moves, stop, ends, alone)
        self.failures = FailedAttempts(worker, self.calls, alone, self.lines)
        self.heart = heart(moves.store, self._touch, moves.hold_session)
        roles, timer = moves.tasks.table.roles, None if alone else ttr_timer(moves.machine)
        moves.workers.add(self)
        self._counts = "attempts" in roles
        self._own_ttr = timer if timer is not None and timer.option in roles else None  # if tasks may have their own
        self.ttr = timer.default if timer is not None and self._own_ttr is None else None  # seconds, of each task
        self.slots = None if alone or options.concurrency is None else Slots(options.concurrency, moves.executor)

    # taking

    def take(self, source: Supply[T], n: int, timeout: float, looked: bool = False) -> list[T]:
        """Take up to `n` tasks, no more than slots are free, and wait up to `timeout` seconds for the first.

        The first take of a program begins its schedules: there errors of the database are waited for. `looked`: the
        caller has just found nothing. Raises NoSlot if a task waits for a slot.
        """
        if looked:
            self.lines.sum_up()
        self._moves.store.connect()
        parts, stop = source.queue.parts, self.calls.stop
        if (schedules := parts.maintenance.schedules).pending:
            schedules.begin()
        waiting: Waiting[T] = parts.waiting
        if self.slots is None:
            found = waiting.take(n, timeout, source.tube, but=source.but, until=stop, looked=looked)
        else:
            parts.maintenance.listen()  # a process that has no slot reaps the sessions that may have one
            look = partial(waiting.if_ready, partial(self._take_slots, self.slots, source, n))
            found = run_steps(waiting.taking(source.tube, timeout, False, stop, source.but), look)
        self.calls.failed.clear()
        return found

    def _take_slots(self, slots: Slots, source: Supply[T], n: int) -> list[T]:
        taken, tasks = slots.take(n), list[T]()
        try:
            waiting: Waiting[T] = source.queue.parts.waiting
            tasks = waiting.take(taken, 0, source.tube, but=source.but)
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
        return list(filter(None, map(self._begin, chunks(tasks, self.options.batch or 1))))

    def _begin(self, tasks: Sequence[T]) -> Lease | None:
        timer, tell, most = self._own_ttr, self._moves.tasks, self.options.max_attempts
        attempts: list[Attempt] = []
        ttr = self.ttr
        self.calls.pause = AGAIN
        for task in tasks:
            number = int(tell.in_role(task, "attempts") or 0) if self._counts else 0
            attempt = Attempt(task, Taken(*tell.identify(task)), number)  # now: the function may change the key
            if most and attempt.number > most and not self.failures.may_be_tried_once_more(attempt):
                continue
            attempts.append(attempt)
            own = None if timer is None else ttr_of(timer, partial(tell.in_role, task))
            ttr = own if ttr is None or (own is not None and own < ttr) else ttr
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
                if not lease.is_lost:
                    lease.lose()
                    self.log.warning("the function still runs, but its task is lost: %s", lost[0])
            elif touched or not locked:
                for attempt in locked:
                    attempt.late += seconds
                yield lease

    def see_cancelled(self, names: Collection[str]) -> None:
        """Lose the leases whose tasks are all among those that were cancelled. Of others leave these tasks out."""
        for lease in list(self.heart.leases):
            for attempt in lease.taken:
                if cancelled(attempt.taken) in names:
                    attempt.finished, attempt.in_doubt = "cancel", False
            with self.heart.lock:
                if not lease.is_lost and all(each.finished == "cancel" and not each.in_doubt for each in lease.taken):
                    lease.cancelled = True
                    lease.lose()

    def _finish_now(self, taken: Taken, event: str, update: Mapping[str, Any], **options: Any) -> T | None:
        """Finish a task within its function, retried while the database fails; None if it was lost. Raises as `one`."""
        move = partial(self._moves.one, event, taken, options, update)
        moved: T | None = self.calls.finish(move, repeats=not self._moves.store.in_transaction())
        return moved

    def uncount(self) -> None:
        """Count no attempt of the tasks that are being worked on: it is not their fault if the process is killed soon.

        A function that fails by itself later counts.
        """
        moves, running = self._moves, list(self.heart.leases)
        for lease in running:
            if lease.begun and (ran := time.monotonic() - lease.started_at) > LONG:
                keys = ", ".join(self.calls.key(attempt.taken) for attempt in lease.taken)
                self.log.warning("task %s still runs after %s", keys, lasting(ran))
        counted = [attempt for lease in running if lease.attempt for attempt in lease.taken]
        self.failures.uncounted = bool(counted)
        try:
            for attempt in counted:
                moves.store.connect()
                fields = {moves.tasks.table.roles["attempts"].name: attempt.number - 1}
                with suppress(*LOST):  # it has just ended
                    moves.if_free(attempt.taken, partial(moves.write, attempt.taken, fields))
        except Exception as error:
            self.log.warning("the attempts of the tasks that run now stay counted: %s", line_of(error))

    # the end of an attempt

    def end(self, lease: Lease, error: BaseException | None = None) -> bool:
        """Finish the tasks of a lease after the function has returned or raised. Call it within the handler of `error`.

        A lost lease needs nothing: its tasks belong to others by now. Return False if another transaction has locked
        the row: then call it again.
        """
        ended = True
        try:
            if lease.is_lost:
                self.log.debug("a function has ended whose task was lost", exc_info=error)
                self._log_done(lease, *(each for each in lease.taken if lease.cancelled))
            elif error is not None:
                for attempt in lease.taken:
                    self._fail(lease, attempt, error)
            else:
                ended = self._ack_each(lease)
        finally:
            if ended:
                self.drop(lease)
        return ended

    def end_each(self, leases: Sequence[Lease]) -> None:
        """Finish the tasks of leases whose functions have returned, one after the other."""
        while leases := [lease for lease in leases if not self.end(lease)]:
            time.sleep(LOCKED)

    def _ack_each(self, lease: Lease) -> bool:
        for attempt in _done(lease):
            if attempt.is_open:
                attempt.may_be_taken = lease.has_passed and not attempt.late
                ack = partial(self._moves.one, "ack", attempt.taken)
                locked = attempt.locked = attempt.locked or Locked(self._moves, "ack", attempt.taken, ack)
                failed = partial(self.failures.failed, attempt)
                while not (moved := self.calls.finish(locked.moved, failed, own=attempt)) and locked.waits:
                    if len(lease.taken) == 1:
                        return False
                    time.sleep(LOCKED)
                if not moved:
                    continue
                if attempt.is_open:  # else the function has finished it itself
                    attempt.finished, attempt.in_doubt = "ack", False
            self._log_done(lease, attempt)
        for place, error in _named(lease).items():
            self._fail(lease, lease.taken[place], error)
        return True

    def ack(self, leases: Sequence[Lease]) -> None:
        """Ack the tasks of leases whose functions have returned, and what the database refuses one by one."""
        self.end_each(self.ack_together(leases))

    def ack_together(self, leases: Sequence[Lease]) -> list[Lease]:
        """Ack the tasks of leases whose functions have returned, by one statement. Return the leases to `end` singly.

        Such has a task that was not acked: it is lost, or the database refused an ack, and so all of them.
        """
        done = _to_ack(leases)
        ack = partial(self._moves.ack_those, done)
        return self._acked(leases, done, self.calls.finish(ack, lambda error: None) if done else [])

    def ack_and_take(self, leases: Sequence[Lease], source: Supply[T], n: int) -> tuple[list[Lease], list[T] | None]:
        """Ack as `ack_together`, and take up to `n` tasks of a source in one transaction, where that costs less.

        Return the leases to `end` singly, and the tasks; None if the take did not come along.
        """
        moves, done = self._moves, _to_ack(leases)
        tokens: list[str | None] = []
        joins, executor, observers = moves.store.driver.joins, moves.executor, moves.executor.observers
        if not (n and done and joins) or self.slots or (observers.callbacks and joins == "pipeline"):
            return self.ack_together(leases), None
        if self.options.batch and any(map(_named, leases)):  # these fail before the next take
            return self.ack_together(leases), None
        ack, oldest = partial(moves.ack_those, done), source.queue.parts.takes.oldest
        take = partial(oldest, "take", n, tube=source.tube, then=tokens.append, but=source.but)
        observed = observers.anybody
        try:
            connection, _ = executor.begin()
            if observed and not connection.pipelines:  # its callbacks after a commit need the ORM's transaction
                acked, tasks = executor.transaction(lambda: (ack(), take()), locks=False, caught=True)
            else:
                acked, tasks = connection.as_one(ack, take)
        except BaseException as error:
            moves.in_doubt.add(tokens, error)
            if isinstance(error, Exception):
                return self.ack_together(leases), None  # all is rolled back: the ack alone finds the reason
            raise
        if observed and connection.pipelines:
            moves.notify_acked(acked)  # there were no rows yet when each ack was sent
        return self._acked(leases, done, acked), tasks

    def _acked(self, leases: Sequence[Lease], done: Sequence[Taken], acked: list[list[Row]] | None) -> list[Lease]:
        """Drop the leases whose tasks an ack of them all has finished, and return the others.

        `acked` is what it returned; None if the database has refused it.
        """
        ended, others = leases, []
        if acked is None or self.options.batch or sum(map(len, acked)) < len(done):
            keys = {self._moves.tasks.key_of(row) for rows in acked or () for row in rows}
            for attempt in [attempt for lease in leases for attempt in lease.taken] if acked is not None else ():
                if attempt.taken.parts in keys:
                    attempt.finished = "ack"
                attempt.in_doubt = False  # else the function's own transaction was committed
            others = [each for each in leases if _named(each) or any(attempt.is_open for attempt in each.taken)]
            ended = [lease for lease in leases if lease not in others]
        for lease in ended:
            self._log_done(lease, *lease.taken)
        self.drop(*ended)
        return others

    def _fail(self, lease: Lease, attempt: Attempt, error: BaseException) -> None:
        failed = partial(self.failures.failed, attempt)
        if not isinstance(error, Next):
            failed(error)
            return
        options = {**error.options, "attempts": 0 if self._counts else None}
        move = partial(self._moves.one, "release", attempt.taken, options, error.update)
        if self.calls.finish(move, failed) is not None:  # what the queue cannot do is the error of the attempt
            self._log_done(lease, attempt, told=f"goes on in {error.tube!r}")

    def _log_done(self, lease: Lease, *attempts: Attempt, told: str = "") -> None:
        for attempt in attempts:
            if not self.log.isEnabledFor(level := self.lines.level("tasks are finished")):
                continue
            event = "ack" if attempt.is_open else attempt.finished
            ended, took = ENDED.get(event, f"is finished by {event}"), lasting(time.monotonic() - lease.started_at)
            (name, counted), extra = self.failures.told(attempt), self.calls.extra(attempt, event)
            ended = told or ended + (counted if event in ("release", "bury") else "")
            self.log.log(level, "task %s %s after %s", name, ended, took, extra=extra)

    def drop(self, *leases: Lease) -> None:
        """End leases, and free the slots of their tasks."""
        working, held = self._moves.working, self.heart.leases
        slots = sum(len(lease.taken) for lease in leases if lease in held) if self.slots else 0
        self.heart.remove(*leases)
        for lease in leases:
            for attempt in lease.taken:
                if working.get(key := attempt.taken.parts) is attempt:  # else the task was taken again
                    del working[key]
        self._leave_slots(slots)

    # giving back

    def give_back(self, lease: Lease) -> None:
        """Release the tasks of a lease, whose function has not been called or was interrupted."""
        for attempt in () if lease.cancelled else lease.taken:
            self._give_back(attempt, lease.begun)
        self.drop(lease)

    def release_all(self) -> None:
        """Release the tasks of all running functions."""
        for lease in list(self.heart.leases):
            for attempt in lease.taken:
                if lease.begun:
                    self.log.warning("released task %s, which was being worked on", self.failures.told(attempt)[0])
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


def _to_ack(leases: Sequence[Lease]) -> list[Taken]:
    return [attempt.taken for lease in leases for attempt in _done(lease) if attempt.is_open]


def _named(lease: Lease) -> Mapping[int, BaseException]:
    """Return the errors of the tasks of a batch that its function has named, by their places."""
    return lease.task.failed if isinstance(lease.task, Batch) else {}


def _done(lease: Lease) -> list[Attempt]:
    failed = _named(lease)
    return [attempt for place, attempt in enumerate(lease.taken) if place not in failed]
