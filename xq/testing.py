"""Test programs that use xq: a clock, a queue in memory, the workers run at once, and what was put.

Pytest loads `xq.pytest_plugin` by itself: its fixtures are these functions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from xq.api import Queue, queue_of
from xq.core.clock import Clock as Clock
from xq.core.errors import ConfigurationError, NotInstalled, shown
from xq.workers.attempt import Stop, WorkerJob
from xq.workers.attempts import Attempts
from xq.workers.outcomes import Suspended
from xq.workers.program import source_of
from xq.workers.worker import Worker, is_async

SHOWN = 5  # tasks in the message of an assertion


@contextmanager
def clock(*queues: Any) -> Iterator[Clock]:
    """Set one clock for queues (models, their handles or tubes) for the block, store their schedules, and return it.

    It begins now, at the next whole second: in frozen time (freezegun) at that time.
    """
    found = [queue_of(each) for each in queues]
    with _by_clock(found) as clock:
        for queue in found:
            with suppress(NotInstalled):  # then `run_pending` stores them
                queue.parts.maintenance.schedules.declare()
        yield clock


@contextmanager
def _by_clock(queues: list[Queue[Any]]) -> Iterator[Clock]:
    clock, before = Clock(math.ceil(time.time())), [queue.clock for queue in queues]
    for queue in queues:
        queue.clock = clock
    try:
        yield clock
    finally:
        for queue, own in zip(queues, before, strict=True):
            queue.clock = own


@contextmanager
def session(given: Any) -> Iterator[Clock]:
    """Have the queues of SQLAlchemy use the connection of a test's Session or AsyncSession for the block, by a clock.

    The session is bound to a connection whose transaction the test rolls back, with
    `join_transaction_mode="create_savepoint"`. All queues on that database use it: calls without `on=`, those of `aio`
    too, and `run_pending`, in which a worker's `session=` makes sessions on it. A call that cannot use it raises
    ConfigurationError: one of another thread, or with an AsyncSession one that is not awaited. Returns the clock, which
    begins now.
    """
    from xq.adapters.sqlalchemy.testing import in_session

    with in_session(given) as queues, _by_clock(queues) as clock:
        yield clock


@contextmanager
def memory(*models: Any) -> Iterator[Clock]:
    """Bind Peewee models to a fresh database in memory for the block, by a clock, which it returns.

    Pass the models that the test uses, queues or not. Threads share its one connection.
    """
    from xq.adapters.peewee.memory import in_memory

    with ExitStack() as stack:
        stack.enter_context(in_memory(models))
        yield stack.enter_context(clock(*(model for model in models if isinstance(getattr(model, "xq", None), Queue))))


def run_pending(*workers: Any, raises: bool = False) -> int:
    """Run workers (or the workers of queues) in this thread until no task is ready. Return the number of calls.

    They take, call and finish as `run` does, with the same retries, but without threads, processes, heartbeat, timeout
    and concurrency, and inside the transaction of the test if one is open. A task that failed waits for its pause:
    advance the clock and call it again. Without the feature delayed it is ready at once: it is tried once in a call.
    With `raises` the exception of a function is also raised here. A call that ends in `xq.sleep` or `xq.wait_for`
    counts as one, and so does the one that goes on. Declared schedules are stored, and `sweep()` fires them. Raises
    ConfigurationError for an `async def` on a running event loop.
    """
    return _run_all(workers, raises, None)


async def run_pending_async(*workers: Any, raises: bool = False) -> int:
    """Do as `run_pending`, with queues of SQLAlchemy: each `async def` is awaited on this event loop."""
    from xq.adapters.sqlalchemy.testing import in_this_loop

    return await in_this_loop(partial(_run_all, workers, raises))


def _run_all(workers: Iterable[Any], raises: bool, awaited: Callable[[Any], object] | None) -> int:
    calls = 0
    for given in workers:
        found = [given] if isinstance(given, Worker) else [*queue_of(given).handlers.values()]
        if not found:
            raise ConfigurationError(f"{shown(given)} has no worker: decorate a function with @Page.xq.worker")
        for worker in found:
            with worker.queue.parts.store.under_test(worker.options.session):
                calls += _run(worker, raises, awaited or _loop_for(worker))
    return calls


def _loop_for(worker: Worker[Any]) -> Callable[[Any], object]:
    if is_async(worker.function):
        with suppress(RuntimeError):  # no event loop runs in this thread
            asyncio.get_running_loop()
            raise ConfigurationError(
                "run_pending runs an async def on an event loop of its own, and one runs here: call it in a thread, as "
                "await asyncio.to_thread(run_pending, worker), or with SQLAlchemy await run_pending_async(worker)"
            )
    return worker.store.run_coroutine


def _run(worker: Worker[Any], raises: bool, awaited: Callable[[Any], object]) -> int:
    attempts: Attempts[Any] = Attempts(worker, Stop(), alone=True)
    calls, source, again = 0, source_of(worker, worker.options.tube), list[Any]()
    identify, tried = worker.queue.parts.named.tasks.identify, attempts.failures.tried
    worker.queue.parts.maintenance.schedules.declare()

    def take() -> list[Any]:
        if worker.queue.parts.store.in_transaction():  # which may not commit: what follows the commit of an end
            worker.queue.parts.takes.timers.sweep(within=True)
        return attempts.take(source, worker.options.batch or 1, 0)

    try:
        while tasks := take():
            again += [task for task in tasks if identify(task)[0] in tried]
            for job in attempts.begin([task for task in tasks if task not in again]):
                _call(attempts, job, raises, awaited)
                calls += 1
    finally:
        for job in attempts.begin(again):
            attempts.give_back(job)
        attempts.lines.sum_up()
    return calls


def _call(attempts: Attempts[Any], job: WorkerJob, raises: bool, awaited: Callable[[Any], object]) -> None:
    worker = attempts.worker
    try:
        job.start()
        with job:
            if is_async(worker.function):
                awaited(worker.acall(job.task))
            else:
                worker.call(job.task)
    except (Exception, Suspended) as error:
        attempts.end(job, error)
        if raises and not isinstance(error, Suspended):
            raise
    else:
        attempts.end(job)


def assert_put(queue: Any, fields: Mapping[str, Any] | None = None, *, count: int = 1) -> list[Any]:
    """Assert that the table of a queue has exactly `count` tasks with the given fields, in any state. Return them.

    `assert_put(Page, {"url": "https://example.org"})`. A task that was acked is there with the feature keep only.
    """
    handle = queue_of(queue)
    model: Any = handle.model
    rows: Any = getattr(model, "_default_manager", model)
    if not hasattr(rows, "filter"):  # a mapped class of SQLAlchemy
        rows = _Rows(handle.find(n=1_000).tasks)
    found = list(rows.filter(**(fields or {})))
    if len(found) != count:
        there = [handle.parts.store.data(task) for task in list(rows.filter())[: SHOWN + 1]]
        listed = "".join(f"\n  {each}" for each in there[:SHOWN]) + "\n  ..." * (len(there) > SHOWN)
        which = f"with {shown(fields)}" if fields else "in all"
        raise AssertionError(f"{handle.name} has {len(found)} tasks {which}, not {count}:{listed or ' none'}")
    return found


class _Rows(list[Any]):
    def filter(self, **fields: Any) -> list[Any]:
        return [each for each in self if all(getattr(each, name) == value for name, value in fields.items())]
