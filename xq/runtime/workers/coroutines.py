"""Workers that are coroutines: one event loop runs an `async def` with many tasks at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from xq.engine.finish import Finish
from xq.runtime.callers import Callers
from xq.runtime.lease import Lease, leased
from xq.runtime.turns import soon
from xq.runtime.workers.attempts import NO_SLOT
from xq.runtime.workers.concurrency import ASK
from xq.runtime.workers.threads import LISTEN, PAUSE, Pool, Program, Source
from xq.runtime.workers.worker import Worker

T = TypeVar("T")
R = TypeVar("R")

CALLERS = 2  # threads that call the database for the coroutines, beside one for each source that waits for tasks


class Coroutines(Pool[T]):
    """Coroutines of one event loop. Threads of its own call the database."""

    def __init__(
        self,
        worker: Worker[T],
        sources: Sequence[Source[T]],
        moves: Callable[[], Finish[T]],
        program: Program,
        workers: int,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(worker, sources, moves, program, workers)
        self._worker = worker
        self._loop = loop  # the program's; None: a loop of its own, in a thread of its own
        self._within: Future[None] | None = None  # the run within the program's loop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xq coroutines", daemon=True)
        self._callers = Callers(CALLERS + len(sources))
        self._waiting = Callers(workers * len(sources))  # of releases, which wait for the pause of the backoff
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()  # as those of Slots

    def start(self) -> None:
        if self._loop is None:
            self._thread.start()
        else:
            self._within = asyncio.run_coroutine_threadsafe(self._run_within(), self._loop)

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
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(self._take_for(source))
        except BaseExceptionGroup as errors:
            first: BaseException = errors
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        finally:
            self._stop.set()
            if self._store.has_threads:  # a take may be running, whose coroutine was cancelled
                await asyncio.get_running_loop().run_in_executor(None, self._end)
            else:
                self._end()

    def _end(self) -> None:
        self._callers.end()
        self._waiting.end()
        self.attempts.release_all()  # what a coroutine would have worked on that was cancelled before it began

    async def _take_for(self, source: Source[T]) -> None:
        """Take tasks and run a coroutine for each, so many at a time."""
        options, free, budget = self._options, asyncio.Semaphore(self._workers), self._program.budget
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                await free.acquire()
                n = budget.reserve(options.batch or 1)
                if not n:
                    if budget.is_spent:
                        break
                    free.release()
                    await asyncio.sleep(PAUSE)  # others may have reserved what they will not find
                    continue
                try:
                    taken, lease = await self._call(lambda n=n: self._take(source, n))  # type: ignore[misc]
                except Exception as error:
                    free.release()
                    budget.settle(n, 0)
                    await self._call(lambda error=error: self.attempts.wait_for_the_database(error))  # type: ignore[misc]
                    continue
                lacking = budget.settle(n, taken)
                if lease is not None:
                    attempt = group.create_task(self._attempt(lease))
                    running.add(attempt)
                    attempt.add_done_callback(running.discard)
                    attempt.add_done_callback(lambda _: free.release())
                    continue
                free.release()
                if taken:
                    continue
                if not self._program.until_empty:
                    await asyncio.sleep(2 * PAUSE if lacking else 0 if self._store.has_threads else PAUSE)
                elif running:  # one that fails may be ready again
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    break

    def _take(self, source: Source[T], n: int) -> tuple[int, Lease | None]:
        """Take up to `n` tasks. Return how many they are, and their lease; None if no function is to be called."""
        self._store.connect()
        tasks = source.take(n, LISTEN if self._store.has_threads and not self._program.until_empty else 0, self._stop)
        if tasks and self._stop.is_set():  # it waited for a task when the signal came
            self.attempts.give_back_tasks(tasks)
            return 0, None
        return len(tasks), self.attempts.begin(tasks) if tasks else None

    async def _attempt(self, lease: Lease) -> None:
        slot = await self._wait_for_slot(lease)
        if slot is None:
            await self._call(lambda: self.attempts.give_back(lease))
            return
        lease.start()
        error: BaseException | None = None
        handler = asyncio.ensure_future(self._handle(lease))
        loop = asyncio.get_running_loop()
        lease.on_loss = partial(soon, loop, handler.cancel)
        limit = asyncio.timeout(self._options.timeout)
        try:
            async with limit:
                await handler
        except (SystemExit, KeyboardInterrupt):
            raise
        except asyncio.CancelledError as raised:
            if lease.is_lost:  # its tasks belong to others by now
                self.attempts.drop(lease)
                return
            if _is_cancelled():  # the program ends, and has stopped the function, which has not failed
                await self._call(lambda: self.attempts.give_back(lease))
                raise
            error = raised
        except BaseException as raised:
            error = raised
            if isinstance(raised, TimeoutError) and limit.expired():
                late = TimeoutError(f"the function runs for longer than {self._options.timeout} s")
                cancelled = raised.__cause__ or raised  # its traceback shows where the function stood
                error = late.with_traceback(cancelled.__traceback__)
        finally:
            if slot:
                await self._call(lambda: self.attempts.leave_slot(slot))
                self._freed.set()
        # Without delays the task is released after the pause, by a thread that does nothing else.
        apart = error is not None and "delay" not in self.attempts.release_options and self._store.has_threads
        await self._call(lambda: self.attempts.end(lease, error), self._waiting if apart else self._callers)

    async def _wait_for_slot(self, lease: Lease) -> int | None:
        """As `Attempts.wait_for_slot`."""
        attempts = self.attempts
        if attempts.slots is None:
            return None if attempts.must_not_begin(lease) else NO_SLOT
        async with self._turn:  # one coroutine asks for a free slot, and the others wait for it
            while not attempts.must_not_begin(lease):
                self._freed.clear()
                if (slot := await self._call(attempts.take_slot)) is not None:
                    return slot
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._freed.wait(), ASK)
        return None

    async def _handle(self, lease: Lease) -> None:
        with leased(lease):
            await self._worker.acall(lease.task)

    async def _call(self, call: Callable[[], R], callers: Callers | None = None) -> R:
        """Call the database in a thread that has a connection, or here if threads share one."""
        if not self._store.has_threads:
            return call()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def job() -> None:
            try:
                deliver = partial(future.set_result, call())
            except BaseException as error:
                deliver = partial(future.set_exception, error)
            soon(loop, deliver)

        (callers or self._callers).submit(self._store, job)
        return await asyncio.shield(future)


def _is_cancelled() -> bool:
    """Return whether this task itself was cancelled, rather than what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
