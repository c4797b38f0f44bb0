"""A worker: a queue's function, its options, and the functions around it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from xq.core.connections import Store
from xq.core.errors import ConfigurationError, shown
from xq.core.kinds import T
from xq.core.machine import Machine
from xq.core.values import Key
from xq.engine.named import NamedMoves
from xq.runtime.lease import lease_of_context as _lease
from xq.runtime.waiting import Waiting
from xq.workers.options import Options
from xq.workers.outcomes import Backoff

F = TypeVar("F", bound=Callable[..., Any])

Hook = Callable[[Any, BaseException], object]
POLL_EVERY = 0.5  # seconds between two looks for what wakes no worker: a task that another gives back, a process


class WorkedQueue(Protocol):
    """What workers use: a queue."""

    @property
    def name(self) -> str: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def handlers(self) -> dict[str | None, Any]: ...
    @property
    def parts(self) -> Any: ...  # an `xq.parts.Key`
    def count(self, state: str) -> int: ...


class TaskSource(NamedTuple):
    """Which tasks of its queue a worker takes: those of a tube, or without one all but those of the tubes `but`."""

    tube: str | None
    but: tuple[str, ...] = ()  # which other functions work on


def as_it_is(task: Any) -> Any:
    return task


class Worker(Generic[T]):
    """The worker of a queue. Called, it runs the function, as if there were no queue."""

    __name__: str

    def __init__(
        self,
        queue: WorkedQueue,
        function: Callable[..., Any],
        options: Options,
        run: Callable[..., None],  # runs workers in one program
        given: Callable[[T], Any] = as_it_is,  # what the function gets for a task of the queue
    ) -> None:
        functools.update_wrapper(self, function)  # first: the function may have attributes of these names
        self.queue = queue
        self.store: Store[T] = queue.parts.store
        self.waiting: Waiting[T] = queue.parts.waiting
        self.moves: NamedMoves[T] = queue.parts.named
        self.function = function
        self.options = options
        self.given = given
        self._call = self.store.in_session(self)
        self.backoff = Backoff(options.backoff)
        self.is_endless = options.max_attempts is None  # and nothing else limits the attempts at a task
        self.deaths = deque[Key](maxlen=1_000)  # the keys of the tasks whose processes died last
        self.counted: Callable[[Any, str], object] = lambda task, outcome: None  # gets what ends outside `around`
        # Returns the fields to write as a task is released whose attempt has failed.
        self.noted: Callable[[Any, BaseException], Mapping[str, Any]] = lambda task, error: {}
        # May end a task whose process died, or was too late. Gets what finishes it; returns whether it has.
        self.ended: Callable[[Any, BaseException, Callable[..., Any]], bool] = lambda task, error, finish: False
        self.level_of_ends = logging.ERROR  # of the line about a task that its function has buried
        # By "on_failure" or "on_buried", and by whether they run in the transaction.
        self.hooks = defaultdict[tuple[str, bool], list[Hook]](list)
        self.in_child: list[Callable[[Worker[T]], object]] = []  # called in a process that imports it; to be pickled
        self._run = run
        self._around: list[Callable[..., Any]] = []
        if (around := self.moves.executor.observers.around_work) is not None:
            self.around(around)
        if options.around is not None:
            self.around(options.around)

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
            if not is_async(self.function):
                raise ConfigurationError("an asynchronous generator is around an async def only")
            made = asynccontextmanager(function)
        self._around.append(made)
        return function

    def on_failure(self, function: F | None = None, *, in_transaction: bool = False) -> Any:
        """Call `function` with the task and the exception after each failed attempt. Its own exception is logged.

        With `in_transaction` it runs in the transaction that releases or buries the task, as in `on_buried`.
        """
        return self._add_hook("on_failure", function, in_transaction)

    def on_buried(self, function: F | None = None, *, in_transaction: bool = False) -> Any:
        """Call `function` with the task and the exception after the worker has buried a task, at most once.

        With `in_transaction` it runs in the transaction of the burial, so what it writes to this database is there
        exactly once. Its own exception undoes the burial: the task is tried again after the pause of the backoff.
        """
        return self._add_hook("on_buried", function, in_transaction)

    def _add_hook(self, name: str, function: F | None, in_transaction: bool) -> Any:
        if function is None:  # a decorator with arguments
            return lambda function: self._add_hook(name, function, in_transaction)
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{name} takes a function that is no async def, not {shown(function)}")
        self.hooks[name, bool(in_transaction)].append(function)
        return function

    def run(self, *, until_empty: bool = False) -> None:
        """Run this worker, as `Queue.run`."""
        self._run(self, until_empty=until_empty)

    def call(self, task: Any) -> None:
        """Run the function with a task, within the context managers around it."""
        if not self._around:
            returned(self._call(task))
            return
        with ExitStack() as stack:
            for around in self._around:
                stack.enter_context(around(task))
            returned(self._call(task))
        returned()  # one of these may have swallowed it

    async def acall(self, task: Any) -> None:
        """Await the function with a task, within the context managers around it."""
        if (lease := _lease.get(None)) is not None:
            lease.thread, lease.coroutine = threading.get_ident(), asyncio.current_task()
        async with AsyncExitStack() as stack:
            for around in self._around:
                context = around(task)
                if hasattr(context, "__aenter__"):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            await self._call(task)
            returned()
        returned()


def is_async(function: Any) -> bool:
    """Return whether a function is an `async def`, as far as its definition shows."""
    call = getattr(function, "__call__", None)  # noqa: B004 (an object may have an async one)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def returned(result: object = None) -> None:
    """Check how a worker's function has returned. Raises as `check_returned`, and again what has suspended it."""
    check_returned(result)
    if (lease := _lease.get(None)) is not None:
        if lease.suspended is not None:
            raise lease.suspended
        if lease.progress is not None:
            lease.progress.returned()


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
