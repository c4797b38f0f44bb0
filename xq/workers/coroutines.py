"""Workers that are coroutines: one event loop runs an `async def` with many tasks at a time.

One take gets tasks for all free coroutines, and one statement acks those that have finished meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from xq.core.kinds import R
from xq.database.callers import ENDS, Callers, begun
from xq.engine.named import LOCKED
from xq.runtime.turns import soon
from xq.workers.attempt import WorkerJob
from xq.workers.concurrency import SLOT_PAUSE, NoSlot
from xq.workers.pool import PAUSE, Assignment, Pool, Program
from xq.workers.worker import TaskSource


class Coroutines(Pool):
    """Coroutines of one event loop. The threads of the database call it, as for `Page.xq.aio`."""

    runs = "coroutines"
    awaits = True
    refuses: ClassVar[Mapping[str, str]] = {"prefetch": "an async def takes no prefetch=: give it more workers="}

    def __init__(self, assignment: Assignment, program: Program) -> None:
        super().__init__(assignment, program)
        self._unacked = set[WorkerJob]()  # whose functions have returned, and whose ack was refused
        self._within: Future[None] | None = None  # the run within the loop of the caller
        self._ended = threading.Event()
        self._callers = self.attempts.calls.moves.executor.database.callers
        # Of what may take long: takes that wait for tasks, and failures: without delays these wait for their backoff.
        failing = 1 if self.attempts.failures.may_delay else assignment.size
        self._waiting = Callers(len(self._sources) + failing)
        self._calls: set[Future[Any]] = set()  # that run in threads
        self._finished: dict[WorkerJob, None] = {}  # whose functions have returned, until they are acked
        self._joins = assignment.size == 1  # whether the next take acks them: it comes at once
        self._acks: asyncio.Future[None] | None = None

    def start(self) -> None:
        if self._program.loop is None:
            threading.Thread(target=self._run, name="xq coroutines", daemon=True).start()
        else:
            self._within = asyncio.run_coroutine_threadsafe(self._run_within(), self._program.loop)

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def join(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def release_all(self) -> None:
        if self._within is None:
            super().release_all()
        else:
            self._within.cancel()  # each coroutine releases its task

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._failed(error)
        finally:
            self._store.disconnect()
            self._ended.set()

    async def _run_within(self) -> None:
        try:
            await self._work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)
        finally:
            self._ended.set()

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                for source in self._sources:
                    self._group.create_task(self._take_for(source))
        except BaseException as error:
            self._stop.set()
            first = error
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        finally:
            if self._store.has_threads:  # a call may be running, whose coroutine was cancelled
                await asyncio.wrap_future(begun(self._end))  # no executor's thread, for which the exit waits
            else:
                self._end()

    def _end(self) -> None:
        wait(list(self._calls), ENDS)
        try:  # those that a cancelled ack has acked all the same are no longer leased
            self.attempts.ack_and_take([job for job in self._finished if job in self.attempts.heart.leases])
        finally:
            self._waiting.end()
            self.attempts.release_all()  # what a coroutine would have worked on that was cancelled before it began
            self.attempts.drop(*self.attempts.heart.leases)

    async def _take_for(self, source: TaskSource) -> None:
        """Take tasks for all free coroutines at once, and run these."""
        size, budget, waits = self._options.batch or 1, self._program.budget, False
        timeout = self._patience if self._store.has_threads and not self._program.until_empty else 0
        running, ended = set[asyncio.Task[None]](), asyncio.Event()
        while not self._stop.is_set():
            ended.clear()
            if len(running) == self._options.workers:
                await ended.wait()
                continue
            n = budget.reserve(size if waits else size * (self._options.workers - len(running)))
            if not n:
                await self._ack_rest()
                if not budget.left:
                    break
                await asyncio.sleep(PAUSE)  # others may have reserved what they will not find
                continue
            try:
                finished = list(self._finished) if self._joins else []
                take = partial(self._take, source, n, timeout if waits else 0, finished)
                taken, jobs = await self._call(take, self._waiting if waits else None)
            except NoSlot:
                budget.note_taken(n, 0)
                with suppress(TimeoutError):  # an attempt that ends frees its slot
                    await asyncio.wait_for(ended.wait(), SLOT_PAUSE)
                continue
            except Exception as error:
                budget.note_taken(n, 0)
                await self._call(partial(self.attempts.calls.wait_for_the_database, error), self._waiting)
                continue
            lacking = budget.note_taken(n, taken)
            for job in jobs:
                attempt = self._group.create_task(self._attempt(job))
                running.add(attempt)
                attempt.add_done_callback(running.discard)
                attempt.add_done_callback(lambda _: ended.set())
            if self._joins and self._unacked:
                await self._ack_rest()
            elif taken:
                waits = False
            elif timeout and not waits:
                waits = True  # the next take
            elif not self._program.until_empty:
                await asyncio.sleep(2 * PAUSE if lacking else 0 if timeout else PAUSE)
            elif running:  # one that fails may be ready again
                await ended.wait()
            elif await self._call(self._wait_at_end):
                await asyncio.sleep(PAUSE)
            else:
                break
        await self._ack_rest()

    def _take(
        self, source: TaskSource, n: int, timeout: float, finished: list[WorkerJob]
    ) -> tuple[int, list[WorkerJob]]:
        """Ack what is finished, and take up to `n` tasks. Return how many they are, and the functions' jobs."""
        refused, tasks = self.attempts.ack_and_take(finished, source, n)
        self._acked(finished, refused)
        # After a take along with the acks the next one waits, and a refused ack is looked into first.
        if not tasks and (not finished or (not refused and (tasks is None or self._program.until_empty))):
            tasks = self.attempts.take(source, n, timeout, looked=timeout > 0)
        return len(tasks or ()), self.attempts.begin(tasks or ())

    async def _attempt(self, job: WorkerJob) -> None:
        if self._stop.is_set() or job.is_lost:
            await self._call(partial(self.attempts.give_back, job))
            return
        job.start()
        error: BaseException | None = None
        handler = asyncio.ensure_future(self._handle(job))
        loop = asyncio.get_running_loop()
        job.on_loss = partial(soon, loop, handler.cancel)
        limit = asyncio.timeout(self._options.timeout)
        try:
            async with limit:
                await handler
        except (SystemExit, KeyboardInterrupt):
            raise
        except asyncio.CancelledError as raised:
            if job.is_lost:  # its tasks belong to others by now, or were cancelled
                await self._call(partial(self.attempts.end, job))
                return
            me = asyncio.current_task()
            if me and me.cancelling():  # not the function alone: the program ends, and the function has not failed
                await self._call(partial(self.attempts.give_back, job))
                raise
            error = raised
        except BaseException as raised:
            error = raised
            if isinstance(raised, TimeoutError) and limit.expired():
                late = TimeoutError(f"the function runs for longer than {self._options.timeout} s")
                cancelled = raised.__cause__ or raised  # its traceback shows where the function stood
                error = late.with_traceback(cancelled.__traceback__)
        if error is not None or job.failed:
            await self._call(partial(self.attempts.end, job, error), self._waiting)
            return
        if not (self.attempts.slots or any(attempt.is_open for attempt in job.taken)):
            self.attempts.ack_and_take([job])  # which has nothing to ask the database
            return
        self._finished[job] = None
        if not self._joins:
            await self._ack(job)

    async def _ack(self, job: WorkerJob) -> None:
        """Ack the tasks of a function that has returned, with the ones of other coroutines."""
        while job in self._finished:
            if self._acks is None or self._acks.done():
                self._acks = asyncio.ensure_future(self._ack_finished())  # in the next turn, with all of this one
            await asyncio.shield(self._acks)
        if job in self._unacked:
            self._unacked.remove(job)
            while not await self._call(partial(self.attempts.end, job), self._waiting):
                await asyncio.sleep(LOCKED)

    async def _ack_rest(self) -> None:
        """Ack what no take will ack, and end what a take could not ack."""
        for job in [*self._finished, *self._unacked] if self._joins else ():
            await self._ack(job)

    async def _ack_finished(self) -> None:
        finished = list(self._finished)
        refused, _ = await self._call(partial(self.attempts.ack_and_take, finished))
        self._acked(finished, refused)

    def _acked(self, finished: Sequence[WorkerJob], refused: Sequence[WorkerJob]) -> None:
        self._unacked.update(refused)
        for job in finished:
            del self._finished[job]

    async def _handle(self, job: WorkerJob) -> None:
        with job:
            await self.attempts.worker.acall(job.task)

    async def _call(self, call: Callable[[], R], callers: Callers | None = None) -> R:
        """Call the database in a thread that has a connection, or here if threads share one."""
        if not self._store.has_threads:
            return call()
        future: Future[R] = Future()
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)

        def job() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        (callers or self._callers).submit(self._store, job)
        return await asyncio.shield(asyncio.wrap_future(future))
