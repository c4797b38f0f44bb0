"""Workers that are coroutines: one event loop runs an `async def` with many tasks at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from xq.core.errors import Error
from xq.engine.finish import Finish
from xq.runtime.lease import Lease, leased
from xq.runtime.workers.attempts import Attempts
from xq.runtime.workers.threads import LISTEN, Program, Source
from xq.runtime.workers.worker import Worker

T = TypeVar("T")
R = TypeVar("R")
Job = tuple[asyncio.Future[Any], Callable[[], Any]]  # a call of the database, and who awaits it

CALLERS = 2  # threads that call the database for the coroutines, beside one for each source that waits for tasks
PAUSE = 0.05  # seconds between two looks for a task where the database has one connection for all threads


class Coroutines(Generic[T]):
    """An event loop with `workers` coroutines for each source. Threads of its own call the database."""

    def __init__(
        self,
        worker: Worker[T],
        sources: Sequence[Source[T]],
        moves: Callable[[], Finish[T]],
        program: Program,
        workers: int,
    ) -> None:
        self.attempts = Attempts(worker, moves, program.stop)
        self.size = workers * len(sources)
        self._worker = worker
        self._sources = sources
        self._workers = workers
        self._stop = program.stop
        self._program = program
        self._store = moves().store
        self._thread = threading.Thread(target=self._run, name="xq coroutines", daemon=True)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def release_all(self) -> None:
        self.attempts.release_all()

    def close(self) -> None:
        self.attempts.heart.end()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            known = isinstance(error, Error)
            self.attempts.log.error(
                "a worker ends, and the others with it%s", f": {error}" if known else "", exc_info=not known
            )
            self._program.failed(error)
        finally:
            self._store.disconnect()

    async def _work(self) -> None:
        callers = (CALLERS + len(self._sources)) * self._store.has_threads
        loop = asyncio.get_running_loop()
        for _ in range(callers):
            threading.Thread(target=self._call_for, args=(loop, self._jobs), name="xq calls", daemon=True).start()
        try:
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(self._take_for(source))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for _ in range(callers):
                self._jobs.put(None)

    async def _take_for(self, source: Source[T]) -> None:
        """Take tasks and run a coroutine for each, so many at a time."""
        options, free = self._worker.options, asyncio.Semaphore(self._workers)
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                await free.acquire()
                n = self._program.budget.reserve(options.batch or 1)
                if not n:
                    break
                try:
                    tasks = await self._call(lambda n=n: self._take(source, n))  # type: ignore[misc]
                except Exception as error:
                    free.release()
                    self._program.budget.give_back(n)
                    await self._call(lambda error=error: self.attempts.wait_for_the_database(error))  # type: ignore[misc]
                    continue
                self._program.budget.give_back(n - len(tasks))
                if tasks:
                    attempt = group.create_task(self._attempt(tasks))
                    running.add(attempt)
                    attempt.add_done_callback(running.discard)
                    attempt.add_done_callback(lambda _: free.release())
                    continue
                free.release()
                if not self._program.until_empty:
                    await asyncio.sleep(0 if self._store.has_threads else PAUSE)
                elif running:  # one that fails may be ready again
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    break

    def _take(self, source: Source[T], n: int) -> list[T]:
        self._store.connect()
        tasks = source.take(n, LISTEN if self._store.has_threads and not self._program.until_empty else 0)
        if tasks and self._stop.is_set():  # it waited for a task when the signal came
            self.attempts.give_back_tasks(tasks)
            return []
        return tasks

    async def _attempt(self, tasks: list[T]) -> None:
        lease = await self._call(lambda: self.attempts.begin(tasks))
        if lease is None:
            return
        error: BaseException | None = None
        handler = asyncio.ensure_future(self._handle(lease))
        loop = asyncio.get_running_loop()
        lease.on_loss = lambda: loop.call_soon_threadsafe(handler.cancel)
        try:
            await asyncio.wait_for(handler, self._worker.options.timeout)
        except (SystemExit, KeyboardInterrupt):
            raise
        except asyncio.CancelledError as raised:
            if lease.is_lost:  # its tasks belong to others by now
                self.attempts.drop(lease)
                return
            error = raised
        except BaseException as raised:
            error = raised
            if isinstance(raised, TimeoutError) and not str(raised):
                error = TimeoutError(f"the function runs for longer than {self._worker.options.timeout} s")
        # Without delays the task is released after the pause, by a thread that does nothing else.
        apart = error is not None and "delay" not in self.attempts.release_options and self._store.has_threads
        await (self._call_apart if apart else self._call)(lambda: self.attempts.end(lease, error))

    async def _handle(self, lease: Lease) -> None:
        with leased(lease):
            await self._worker.acall(lease.task)

    async def _call(self, call: Callable[[], R]) -> R:
        """Call the database in a thread that has a connection, or here if threads share one."""
        if not self._store.has_threads:
            return call()
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, call))
        return await asyncio.shield(future)

    async def _call_apart(self, call: Callable[[], None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        jobs: SimpleQueue[Job | None] = SimpleQueue()
        jobs.put((future, call))
        jobs.put(None)
        threading.Thread(target=self._call_for, args=(asyncio.get_running_loop(), jobs), daemon=True).start()
        await asyncio.shield(future)

    def _call_for(self, loop: asyncio.AbstractEventLoop, jobs: SimpleQueue[Job | None]) -> None:
        try:
            while (job := jobs.get()) is not None:
                future, call = job
                try:
                    set_, value = future.set_result, call()
                except BaseException as error:
                    set_, value = future.set_exception, error
                loop.call_soon_threadsafe(set_, value)
        finally:
            self._store.disconnect()
