"""A worker: the function of a queue, its options, and the functions around it."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, get_args

from xq.core.errors import ConfigurationError, shown
from xq.core.machine import LONGEST, READY
from xq.runtime.sleep import run_steps
from xq.runtime.workers.concurrency import Concurrency
from xq.runtime.workers.outcomes import Backoff

if TYPE_CHECKING:
    from xq.handle import Queue

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Within = Callable[[int, Callable[[int], list[T]]], list[T]]
WorkerKind = Literal["thread", "process", "asyncio"]
LISTEN = 0.5  # seconds until a worker looks at what wakes nobody, as tasks that other workers have reserved
HIGHEST = 1_000_000  # of what an option counts


class WorkerOptions(TypedDict, total=False):
    """The options of `Queue.worker`, for type checkers."""

    tube: str | None
    workers: int
    kind: WorkerKind
    max_attempts: int | None
    backoff: Any
    timeout: float | None
    prefetch: int
    batch: int | None
    concurrency: Concurrency | None


@dataclass(frozen=True)
class Supply(Generic[T]):
    """Where a worker takes its tasks from: a queue, or one of its tubes."""

    queue: Queue[T]
    tube: str | None
    but: tuple[str, ...] = ()  # without a tube: those to leave to other functions

    def take(
        self,
        n: int,
        timeout: float,
        until: threading.Event | None = None,
        within: Within[T] | None = None,
        looked: bool = False,
    ) -> list[T]:
        """Take up to `n` tasks, and wait up to `timeout` seconds for the first, but not when `until` is set.

        The first take of a program begins its schedules: there errors of the database are waited for. `within` gets `n`
        and the take, once a task may be ready. `looked`: the caller has just found nothing.
        """
        adapter, waiting = self.queue.adapter, self.queue.adapter.waiting
        if (schedules := adapter.maintenance.schedules).pending:
            schedules.begin()
        if within is None:
            return waiting.take(n, timeout, self.tube, but=self.but, until=until, looked=looked)
        take = partial(waiting.take, timeout=0, tube=self.tube, but=self.but)
        adapter.maintenance.listen()  # a process that has no slot reaps the sessions that may have one
        look = partial(waiting.if_ready, partial(within, n, take))
        return run_steps(waiting.taking(self.tube, timeout, False, until, self.but), look)

    def patience(self) -> float:
        """Return for how many seconds to wait for a task before the end: 0, unless ready tasks only lack tokens."""
        rates = self.queue.adapter.takes.steps.rates
        return LISTEN if rates and rates.opens_at < math.inf and self.queue.count(READY) else 0.0

    def take_within(self, n: int, then: Callable[[str | None], None]) -> list[T]:
        """Take up to `n` tasks within the transaction that is open. `then` gets the token of the take."""
        return self.queue.adapter.takes.oldest("take", n, tube=self.tube, then=then, but=self.but)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a worker, as `Queue.worker` documents them."""

    workers: int = 1
    kind: WorkerKind = "thread"
    max_attempts: int | None = None
    backoff: Any = None
    timeout: float | None = None
    prefetch: int = 1
    batch: int | None = None
    concurrency: Concurrency | None = None
    tube: str | None = None

    def checked(self, queue: Queue[Any], function: Any) -> Options:
        """Return the options, with the kind of an `async def`. Raises ConfigurationError."""
        for name in ("workers", "max_attempts", "prefetch", "batch"):
            number = getattr(self, name)
            if number is None and name in ("max_attempts", "batch"):
                continue
            if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= HIGHEST:
                raise ConfigurationError(f"{name} is a number from 1 to {HIGHEST:,}, not {shown(number)}")
        if self.kind not in get_args(WorkerKind):
            raise ConfigurationError(f"kind is one of {', '.join(get_args(WorkerKind))}, not {shown(self.kind)}")
        queue.adapter.tube(self.tube, "worker(tube=)")
        _check_arguments(function)
        machine = queue.machine
        attempts = [] if "attempts" in machine.roles else ["the role 'attempts' (map it to an integer field)"]
        lacking = attempts + ([] if machine.sources("bury") else ["the feature 'buried' (features={'buried': True})"])
        if self.max_attempts and lacking:
            raise ConfigurationError(f"max_attempts of {queue.adapter.store.name} needs {' and '.join(lacking)}")
        limit, is_number = self.timeout, isinstance(self.timeout, (int, float)) and not isinstance(self.timeout, bool)
        if limit is not None and not (is_number and 0 < limit <= LONGEST):
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {shown(self.timeout)}")
        if self.concurrency is not None and not isinstance(self.concurrency, Concurrency):
            raise ConfigurationError(f'concurrency is an xq.Concurrency("name", n), not {shown(self.concurrency)}')
        if self.batch and self.prefetch > 1:
            raise ConfigurationError("batch= does not go with prefetch=: a batch is taken as a whole")
        Backoff(self.backoff)
        awaits = is_async(function)
        if awaits and self.kind == "process":
            raise ConfigurationError('an async def is of kind="asyncio": for more processes run the program again')
        if self.kind == "asyncio" and not awaits:
            raise ConfigurationError('a worker of kind="asyncio" is an async def')
        if self.timeout is not None and self.kind == "thread" and not awaits:
            raise ConfigurationError('timeout= needs kind="process" or an async def: Python cannot stop a thread')
        if awaits and self.prefetch > 1:
            raise ConfigurationError("an async def takes no prefetch=: give it more workers=")
        prefetch = 1 if self.max_attempts == 1 else self.prefetch  # as Attempts.keep decides
        return replace(self, kind="asyncio" if awaits else self.kind, prefetch=prefetch)


class Worker(Generic[T]):
    """The worker of a queue. Called, it runs the function, as if there were no queue."""

    __name__: str

    def __init__(self, queue: Queue[T], function: Callable[..., Any], options: Options) -> None:
        if not callable(function):
            raise ConfigurationError(f"a worker of {queue.name} is a function of a task, not {shown(function)}")
        self.queue = queue
        self.function = function
        self.options = options.checked(queue, function)
        self.backoff = Backoff(options.backoff)
        self.failure_hooks: list[Callable[[Any, BaseException], object]] = []
        self.bury_hooks: list[Callable[[Any, BaseException], object]] = []
        self._around: list[Callable[..., Any]] = []
        self.given: Callable[[T], Any] = lambda task: task  # what the handler gets for a task of the queue
        functools.update_wrapper(self, function)
        if (around := queue.adapter.observers.around_work) is not None:
            self.around(around)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<worker {getattr(self.function, '__name__', self.function)} of {self.queue.name}>"

    def around(self, function: F) -> F:
        """Run each attempt within a context manager: `function` is a generator that yields once, or returns one.

        It gets the task. What stands before the yield runs before the handler, and the rest after it; an exception of
        the handler is raised at the yield. The one that was added first is the outermost. An `async def` may also have
        asynchronous ones.
        """
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"around takes a generator or a context manager's function, not {shown(function)}")
        made: Callable[..., Any] = function
        if inspect.isgeneratorfunction(function):
            made = contextmanager(function)
        elif inspect.isasyncgenfunction(function):
            if self.options.kind != "asyncio":
                raise ConfigurationError("an asynchronous generator is around an async def only")
            made = asynccontextmanager(function)
        self._around.append(made)
        return function

    def _hook(self, name: str, function: F) -> F:
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{name} takes a function that is no async def, not {shown(function)}")
        return function

    def on_failure(self, function: F) -> F:
        """Call `function` with the task and the exception after each failed attempt. Its own exception is logged."""
        self.failure_hooks.append(self._hook("on_failure", function))
        return function

    def on_buried(self, function: F) -> F:
        """Call `function` with the task and the exception after the worker has buried a task."""
        self.bury_hooks.append(self._hook("on_buried", function))
        return function

    def run(self, *, until_empty: bool = False) -> None:
        """Run this worker, as `Queue.run`."""
        from xq.runtime.workers.program import run

        run(self, until_empty=until_empty)

    def call(self, task: Any) -> None:
        """Run the function with a task, within the context managers around it."""
        if not self._around:
            check_returned(self.function(task))
            return
        with ExitStack() as stack:
            for around in self._around:
                stack.enter_context(around(task))
            check_returned(self.function(task))

    async def acall(self, task: Any) -> None:
        """Await the function with a task, within the context managers around it."""
        async with AsyncExitStack() as stack:
            for around in self._around:
                context = around(task)
                if hasattr(context, "__aenter__"):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            await self.function(task)


def _check_arguments(function: Any) -> None:
    """Raise ConfigurationError unless a function can be called with one argument, as far as its signature is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a built-in function
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__name__", function)
        raise ConfigurationError(
            f"a worker's function gets the task, or a batch of tasks: {name}{signature} cannot be called so ({error})"
        ) from error


def is_async(function: Any) -> bool:
    """Return whether a call of a function gives a coroutine, as far as its definition shows."""
    call = getattr(function, "__call__", None)  # noqa: B004 (an object may have an async one)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def check_returned(result: object) -> None:
    """Raise TypeError for a coroutine or a generator, which would never run."""
    if result is None or not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    raise TypeError(
        f"the worker's function has returned a {type(result).__name__}, which has not run: decorate the async def "
        "itself, without another decorator that hides it, or let the function return when the work is done"
    )
