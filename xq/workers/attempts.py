"""Take tasks for a worker, and finish them: from the take to the ack, or to the release."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from xq.core import time
from xq.core.kinds import Row, T
from xq.core.values import Taken
from xq.core.words import lasting
from xq.engine.named import ACK, LOCKED, CheckedCall, Locked, Unmet, cancelled
from xq.runtime.lease import LOST, Heartbeat, Lease, ttr_of, ttr_timer
from xq.runtime.sleep import run_wait
from xq.workers.attempt import AGAIN, NONE_FAILED, Ack, Attempt, Batch, RetriedCalls, Stop, WorkerJob, line_of, path_of
from xq.workers.concurrency import Slots
from xq.workers.failed import FailedAttempts
from xq.workers.outcomes import Next, Suspended
from xq.workers.worker import TaskSource, Worker

# What the log says about a task, by the event that has finished it.
ENDED = {"ack": "is done", "release": "is released", "bury": "failed for good and is buried", "kill": "is killed"}
ENDED["cancel"] = "was cancelled"
LONG = 60.0  # seconds for which a task has run that the log names when the program is to end


class Attempts(Generic[T]):
    """The attempts that one worker makes, in any number of threads."""

    def __init__(
        self,
        worker: Worker[T],
        stop: Stop,
        ends: bool = True,  # whether the program ends by itself
        alone: bool = False,  # whether it runs in the caller's thread: without heartbeat
        heart: Callable[..., Heartbeat] = Heartbeat,
    ) -> None:
        self.worker = worker
        self.options = options = worker.options
        self._moves = moves = worker.moves
        self.log = moves.log
        self.calls = RetriedCalls(moves, stop, ends, alone)
        self.lines = self.calls.lines
        self.failures = FailedAttempts(worker, self.calls)
        self.heart = heart(moves.store, self._touch, moves.hold_session)
        roles, timer = moves.tasks.table.roles, None if alone else ttr_timer(moves.machine)
        moves.workers.add(self)
        self._counts = roles["attempts"].name if "attempts" in roles else ""  # the field with their number
        self._steps = roles["steps"].name if "steps" in roles else ""  # the field with what functions have done
        self._uncounted = list[Any]()  # jobs that `uncount` has uncounted
        self._own_ttr = timer if timer is not None and timer.option in roles else None  # if tasks may have their own
        self.ttr = timer.default if timer is not None and self._own_ttr is None else None  # seconds
        self.slots = None if alone or options.concurrency is None else Slots(options.concurrency, moves.executor)

    # taking

    def take(self, source: TaskSource, n: int, timeout: float, looked: bool = False) -> list[T]:
        """Take up to `n` tasks, no more than slots are free, and wait up to `timeout` seconds for the first.

        The first take begins the schedules: there the caller waits for a database that fails. `looked`: the caller has
        just found nothing. Raises NoSlot if a task waits for a slot.
        """
        if looked:
            self.lines.sum_up()
        self._moves.store.connect()
        waiting, stop = self.worker.waiting, self.calls.stop
        if (schedules := waiting.maintenance.schedules).pending:
            schedules.begin()
        if self.slots is None:
            found = waiting.take(n, timeout, source.tube, but=source.but, until=stop, looked=looked)
        else:
            waiting.maintenance.listen()  # a process that has no slot reaps the sessions that may have one
            look = partial(waiting.if_ready, partial(self._take_slots, self.slots, source, n))
            found = run_wait(waiting.taking(source.tube, timeout, False, stop, source.but), look)
        self.calls.failed.clear()
        return found

    def _take_slots(self, slots: Slots, source: TaskSource, n: int) -> list[T]:
        taken, tasks = slots.take(n, self._leave_slots), list[T]()
        try:
            tasks = self.worker.waiting.take(taken, 0, source.tube, but=source.but)
        finally:
            self._leave_slots(taken - len(tasks))
        return tasks

    def _leave_slots(self, n: int) -> None:
        """Free `n` slots. One that cannot be freed is free when the session ends."""
        if slots := self.slots:
            told = "a slot of %r cannot be freed"
            for _ in range(n):
                self.calls.finish(slots.leave, lambda _: self.log.exception(told, self.options.concurrency))

    def begin(self, tasks: Sequence[T]) -> list[WorkerJob]:
        """Return jobs that call the function with these tasks, but leave out what may not be tried again."""
        size = self.options.batch or 1
        return list(filter(None, [self._begin(tasks[at : at + size]) for at in range(0, len(tasks), size)]))

    def _begin(self, tasks: Sequence[T]) -> WorkerJob | None:
        tell, attempts, ttr = self._moves.tasks, list[Attempt](), self.ttr
        self.calls.pause = AGAIN
        for task in tasks:
            data = tell.data(task)
            number = int(data[self._counts] or 0) if self._counts else 0
            attempt = Attempt(task, Taken(*tell.identify(task)), number)  # now: the function may change the key
            most = self.options.max_attempts
            if most and number > most and not self.failures.may_be_tried_once_more(attempt):
                continue
            attempts.append(attempt)
            if self._own_ttr is not None:
                own = ttr_of(self._own_ttr, data, tell.table.roles)
                ttr = own if ttr is None or (own is not None and own < ttr) else ttr
            self._moves.working[attempt.taken.parts] = attempt
        if self.slots:
            self._leave_slots(len(tasks) - len(attempts))
        if not attempts:
            return None
        given, first = self.worker.given, attempts[0]
        batch = Batch([given(each.task) for each in attempts]) if self.options.batch else None
        work, failed = (given(first.task), NONE_FAILED) if batch is None else (batch, batch.failed)
        finish = partial(self._finish_now, first)
        job = WorkerJob(self.heart, work, attempts, ttr, first.number, finish, failed=failed)
        job.ack_with, job.made_by = partial(self._ack_with, first), self
        job.recorded = data[self._steps] if self._steps else None  # now: the function's session may expire the task
        self.heart.add(job)
        return job

    def keep(self, jobs: Sequence[WorkerJob]) -> Sequence[WorkerJob]:
        """Return the prefetched jobs to call the function with, and give the others back.

        A task at its last attempt is kept alone, or is given back: if another function ended the process, this task
        would be buried uncalled.
        """
        if not (most := self.options.max_attempts):
            return jobs
        kept = max(1, next((at for at, job in enumerate(jobs) if job.attempt >= most), len(jobs)))
        for job in jobs[kept:]:
            self.give_back(job)
        return jobs[:kept]

    # while the function runs

    def _touch(self, jobs: Collection[WorkerJob], seconds: float) -> Iterator[WorkerJob]:
        moves = self._moves
        for job in jobs:
            touched, locked, lost = False, list[Attempt](), list[Exception]()
            for attempt in job.taken:
                if not attempt.is_open:
                    continue
                try:
                    # A row that is locked is not waited for: the function's own transaction may have changed it.
                    touch = partial(moves.one, "touch", attempt.taken, {"increment": seconds + attempt.late})
                    if moves.if_free(attempt.taken, touch):
                        touched, attempt.late = True, 0.0
                    else:
                        locked.append(attempt)
                        moves.hold(attempt.taken, job.ttr)
                except LOST as error:
                    self.log.debug("%s", error)
                    attempt.may_be_taken = job.has_passed and not attempt.late
                    if not attempt.has_ended(error):
                        lost.append(error)
            if lost and not touched and not locked:
                if not job.is_lost:
                    job.lose()
                    self.log.warning("the function still runs, but its task is lost: %s", lost[0])
            elif touched or not locked:
                for attempt in locked:
                    attempt.late += seconds
                yield job

    def see_cancelled(self, names: Collection[str]) -> None:
        """Lose the jobs whose tasks are all among those that were cancelled. Of others leave these tasks out."""
        for job in list(self.heart.leases):
            for attempt in job.taken:
                if cancelled(attempt.taken) in names:
                    attempt.finished, attempt.in_doubt = "cancel", False
            with self.heart.lock:
                if not job.is_lost and all(each.finished == "cancel" and not each.in_doubt for each in job.taken):
                    job.cancelled = True
                    job.lose()

    def _finish_now(
        self,
        attempt: Attempt,
        event: str,
        update: Mapping[str, Any],
        sets: tuple[str, ...] = (),
        error: BaseException | None = None,
        **options: Any,
    ) -> T | None:
        """Finish a task within its function, retried while the database fails; None if it was lost. Raises as `one`.

        The log names the `error`.
        """
        attempt.error = error
        move = partial(self._moves.one, event, attempt.taken, options, update, sets=sets)
        moved: T | None = self.calls.finish(move, repeats=not self._moves.store.in_transaction())
        return self.failures.found(attempt, "B") if moved is None and event == "bury" else moved

    def _ack_with(
        self,
        attempt: Attempt,
        update: Mapping[str, Any],
        then: Callable[[T], object],
        sets: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        """Have a task acked so when its function returns, with the next take. Raises BadValue and BadType."""
        asked = CheckedCall("ack", *self._moves.tasks.called("ack", options, update, sets))
        attempt.ack = Ack({"options": options, "update": update, "sets": sets}, asked, then)

    def uncount(self) -> None:
        """Uncount the attempts that run now: it is not their fault if the process is killed soon.

        A function that fails by itself later counts, and so does one that runs for longer than its timeout by now.
        """
        running = list(self.heart.leases)
        for job in running:
            if job.begun and (ran := time.monotonic() - job.started_at) > LONG:
                keys = ", ".join(self.calls.key(attempt.taken) for attempt in job.taken)
                self.log.warning("task %s still runs after %s", keys, lasting(ran))
        self._uncounted = [job for job in running if job.attempt and not self._is_late(job)]
        self.failures.uncounted = bool(self._uncounted)
        try:
            for job in self._uncounted:
                self._count(job, -1)
        except Exception as error:
            level = logging.INFO if self._moves.store.may_pass(error) else logging.WARNING  # the end warns of it
            self.log.log(level, "the attempts of the tasks that run now stay counted: %s", line_of(error))

    def count_late(self) -> None:
        """Count the attempts again that have run past their timeout since `uncount`."""
        for job in [job for job in self._uncounted if job in self.heart.leases and self._is_late(job)]:
            with suppress(Exception), self._moves.store.briefly_connected():  # if the database fails, it is asked again
                self._count(job)
                self._uncounted.remove(job)

    def _count(self, job: Any, more: int = 0) -> None:
        for attempt in job.taken:
            self._moves.store.connect()
            fields = {self._moves.tasks.table.roles["attempts"].name: attempt.number + more}
            with suppress(*LOST):  # it has just ended
                self._moves.if_free(attempt.taken, partial(self._moves.write, attempt.taken, fields))

    def _is_late(self, job: Any) -> bool:
        """Return whether a function runs past its timeout: nothing ends a coroutine that does not yield."""
        task = job.taken[0].task
        own = task.xq_timeout() if hasattr(task, "xq_timeout") else None
        limit = own or self.options.timeout
        return bool(limit and job.begun and time.monotonic() > job.started_at + limit)

    # when the function has ended

    def end(self, job: WorkerJob, error: BaseException | None = None) -> bool:
        """Finish the tasks of a job whose function has returned, or has raised `error`, which is being handled.

        A lost job needs nothing: its tasks belong to others by now. Return False if another transaction has locked
        the row: then call it again.
        """
        ended = True
        try:
            if job.is_lost:
                self.log.debug("a function has ended whose task was lost", exc_info=error)
                self._log_done(job, *(each for each in job.taken if job.cancelled))
            elif job.suspended is not None and job.suspended.ends(error):
                self._suspend(job, job.taken[0], job.suspended)
            elif error is not None:
                for attempt in job.taken:
                    if self.options.session is None or not self._is_committed(attempt):
                        self._fail(job, attempt, error)
                    elif isinstance(error, Next):
                        self._log_done(job, attempt, told=f"goes on in {error.tube!r}")
                    else:
                        told = "task %s is finished, and what ran after that has failed: %s"
                        self.log.error(told, self.calls.key(attempt.taken), line_of(error), exc_info=error)
            else:
                ended = self._ack_each(job)
        finally:
            if ended:
                self.drop(job)
        return ended

    def _suspend(self, job: WorkerJob, attempt: Attempt, suspended: Suspended) -> None:
        """Have the task wait as its function has asked; if what it waits for has come, release it."""

        one, taken, update = self._moves.one, attempt.taken, suspended.update

        def move() -> T:
            try:
                return one(suspended.event, taken, suspended.options, update, brings=suspended.brings)
            except Unmet:
                return one("release", taken, update=update, undone=True)

        if self.calls.finish(move, partial(self.failures.failed, attempt)) is not None:
            self._log_done(job, attempt, told=suspended.told)

    def _is_committed(self, attempt: Attempt) -> bool:
        """Return whether the session of a function that has failed was committed with the end of its task.

        If its COMMIT failed, the database tells.
        """
        if attempt.in_doubt:
            self.calls.finish(partial(self._moves.find, ACK, *attempt.taken), own=attempt)
        return not attempt.is_open

    def end_each(self, jobs: Sequence[WorkerJob]) -> None:
        """Finish jobs whose functions have returned, one after the other."""
        while jobs := [job for job in jobs if not self.end(job)]:
            time.sleep(LOCKED)

    def _ack_each(self, job: WorkerJob) -> bool:
        for attempt in job.done:
            if attempt.is_open:
                attempt.may_be_taken = job.has_passed and not attempt.late
                ack = partial(self._moves.one, "ack", attempt.taken, **(attempt.ack.call if attempt.ack else {}))
                locked = attempt.locked = attempt.locked or Locked(self._moves, "ack", attempt.taken, ack)
                failed = partial(self._ack_failed, attempt)
                while not (moved := self.calls.finish(locked.moved, failed, own=attempt)) and locked.waits:
                    if len(job.taken) == 1:
                        return False
                    time.sleep(LOCKED)
                if not moved:
                    continue
                if attempt.is_open:  # else the function has finished it itself
                    attempt.finished, attempt.in_doubt = "ack", False
                elif attempt.ack:
                    moved = self.failures.found(attempt, "DZ")
                if attempt.ack and moved is not None:
                    attempt.ack.then(moved)
            self._log_done(job, attempt)
        for place, error in job.failed.items():
            self._fail(job, job.taken[place], error)
        return True

    def _ack_failed(self, attempt: Attempt, error: Exception) -> None:
        finish = partial(self._finish_now, attempt)
        if not (attempt.ack and self.worker.ended(attempt.task, error, finish)):
            self.failures.failed(attempt, error)

    def ack(self, jobs: Sequence[WorkerJob]) -> None:
        """Ack jobs whose functions have returned, and what the database refuses one by one."""
        self.end_each(self.ack_and_take(jobs)[0])

    def ack_and_take(
        self, jobs: Sequence[WorkerJob], source: TaskSource | None = None, n: int = 0
    ) -> tuple[list[WorkerJob], list[T] | None]:
        """Ack jobs whose functions have returned, by one statement; take `n` tasks with it if that costs less.

        Return the jobs to `end` one by one: such a job is lost, or the database refused an ack, and so all of them.
        And return the tasks. They are None if the acks were alone: then take by itself.
        """
        each = (attempt for job in jobs for attempt in job.done if attempt.is_open)
        done = [(attempt.taken, attempt.ack.asked if attempt.ack else ACK) for attempt in each]
        acked: list[Row] | None = []
        tasks: list[T] | None = None
        if source and n and done and self._joins(jobs):
            tokens, oldest = list[str | None](), self.worker.waiting.takes.oldest
            take = partial(oldest, "take", n, tube=source.tube, then=tokens.append, but=source.but)
            try:
                acked, tasks = self._moves.ack_those(done, take)
            except BaseException as error:
                self._moves.in_doubt.add(tokens, error)
                if not isinstance(error, Exception):
                    raise
        if done and tasks is None:  # the acks are alone: if both were rolled back, they find the reason
            acked, _ = self.calls.finish(partial(self._moves.ack_those, done), lambda error: None) or (None, None)
        return self._drop_acked(jobs, done, acked), tasks

    def _joins(self, jobs: Sequence[WorkerJob]) -> bool:
        """Return whether the acks of jobs and the next take are one transaction."""
        batching = self._moves.store.driver.batching
        if not batching or self.slots or (self.options.batch and any(job.failed for job in jobs)):
            return False  # what has failed is released before the next take
        return batching != "pipeline" or not self._moves.executor.observers.callbacks  # in the ORM's transaction

    def _drop_acked(self, jobs: Sequence[WorkerJob], done: Sequence[Any], acked: list[Row] | None) -> list[WorkerJob]:
        """Drop the jobs whose tasks have ended after `done` was acked, and return the others.

        `acked` has the rows that the ack returned; None if the database has refused it.
        """
        ended, others, rows = jobs, list[WorkerJob](), {self._moves.tasks.key_of(row): row for row in acked or ()}
        if acked is None or self.options.batch or len(acked) < len(done):
            for attempt in [attempt for job in jobs for attempt in job.taken] if acked is not None else ():
                if attempt.taken.parts in rows:
                    attempt.finished = "ack"
                attempt.in_doubt = False  # else the function's own transaction was committed
            others = [job for job in jobs if job.failed or any(attempt.is_open for attempt in job.taken)]
            ended = [job for job in jobs if job not in others]
        for job in ended:
            self._log_done(job, *job.taken)
            for attempt in job.taken:
                if attempt.ack and (row := rows.get(attempt.taken.parts)):
                    attempt.ack.then(self._moves.tasks.returned(row))
        self.drop(*ended)
        return others

    def _fail(self, job: WorkerJob, attempt: Attempt, error: BaseException) -> None:
        failed = partial(self.failures.failed, attempt)
        if not isinstance(error, Next):
            failed(error)
            return
        options = {**error.options, "attempts": 0 if self._counts else None}
        move = partial(self._moves.rewriting, "release", attempt.taken, options, error.update, self._moves.machine.anew)
        if self.calls.finish(move, failed) is not None:  # else the attempt failed by what the queue cannot do
            self._log_done(job, attempt, told=f"goes on in {error.tube!r}")

    def _log_done(self, job: WorkerJob, *attempts: Attempt, told: str = "") -> None:
        for attempt in attempts:
            event = "ack" if attempt.is_open else attempt.finished
            end, error = ("tasks are finished", logging.INFO), attempt.error if event == "bury" else None
            if event == "bury":
                end = f"tasks are buried{f': {type(error).__name__}' if error else ''}", self.worker.level_of_ends
            if not self.log.isEnabledFor(level := self.lines.level(*end, path_of(attempt.task))):
                continue
            ended, took = ENDED.get(event, f"is finished by {event}"), time.monotonic() - job.started_at
            name, counted = self.failures.told(attempt, ends=event == "bury", error=error)
            extra = self.calls.extra(attempt, event)
            ended = told or ended + (counted if event in ("release", "bury") else "")
            why = f": {line_of(error)}" if error else ""
            self.log.log(level, "task %s %s after %s%s", name, ended, lasting(took), why, extra=extra)

    def drop(self, *jobs: Lease) -> None:
        """End jobs, and free their slots."""
        working, held = self._moves.working, self.heart.leases
        slots = sum(len(job.taken) for job in jobs if job in held) if self.slots else 0
        self.heart.remove(*jobs)
        for job in jobs:
            for attempt in job.taken:
                if working.get(key := attempt.taken.parts) is attempt:  # else the task was taken again
                    del working[key]
        if slots:
            self._leave_slots(slots)

    # giving back

    def give_back(self, job: WorkerJob) -> None:
        """Release a job whose function has not been called, or was interrupted."""
        for attempt in () if job.cancelled else job.taken:
            self._give_back(attempt, job.begun)
        self.drop(job)

    def release_all(self) -> None:
        """Release what all functions work on. What the database does not release, the end of the session does."""
        for job in list(self.heart.leases):
            for attempt in job.taken:
                with suppress(Exception):  # which is noted, as the program ends
                    if self._give_back(attempt, job.begun) is not None and job.begun:
                        self.log.warning("released task %s, which was being worked on", self.failures.told(attempt)[0])

    def _give_back(self, attempt: Attempt, called: bool) -> Any:
        """Release a task. If the function was not called with it, the take was no attempt."""
        role = None if called else self._moves.tasks.table.roles.get("attempts")
        # A task that was dug after its last attempt is tried once more: so many takes it has then.
        number = min(attempt.number, self.options.max_attempts or attempt.number)
        fields = {role.name: number - 1} if role and number else None
        waits = not self.calls.stop.is_set()
        release = partial(self._moves.one, "release", attempt.taken, {}, fields, sets=("attempts",))
        move = partial(release, waits=waits, undone=not called)
        return self.calls.finish_or_leave(attempt.taken, move)
