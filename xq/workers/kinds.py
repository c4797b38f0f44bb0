"""The kinds of worker, and the making of a worker of one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from xq.core.errors import ConfigurationError, shown
from xq.workers.coroutines import Coroutines
from xq.workers.options import USUAL, Options
from xq.workers.pool import Kind
from xq.workers.threads import Threads
from xq.workers.worker import WorkedQueue, is_async

KINDS: Final[Mapping[str, Kind]] = {
    "thread": Kind(
        "threads",
        Threads,
        refuses={"timeout": 'timeout= needs kind="process" or an async def: Python cannot stop a thread'},
    ),
    "process": Kind("processes", Threads, forks=True),
    "asyncio": Kind(
        "coroutines",
        Coroutines,
        awaits=True,
        refuses={"prefetch": "an async def takes no prefetch=: give it more workers="},
    ),
}


def checked(queue: WorkedQueue, function: Any, options: Options) -> Options:
    """Return the options for a function of a queue, with the kind of an `async def`. Raises ConfigurationError."""
    if not callable(function):
        raise ConfigurationError(f"a worker of {queue.name} is a function of a task, not {shown(function)}")
    if options.kind not in [*KINDS]:
        raise ConfigurationError(f"kind is one of {', '.join(KINDS)}, not {shown(options.kind)}")
    queue.parts.tasks.tube(options.tube, "worker(tube=)")
    _check_arguments(function)
    machine = queue.machine
    attempts = [] if "attempts" in machine.roles else ["the role 'attempts' (map it to an integer field)"]
    lacking = attempts + ([] if machine.sources("bury") else ["the feature 'buried' (features={'buried': True})"])
    if options.max_attempts and lacking:
        raise ConfigurationError(f"max_attempts of {queue.name} needs {' and '.join(lacking)}")
    awaits = is_async(function)
    kind = KINDS[name := "asyncio" if awaits and options.kind == USUAL.kind else options.kind]
    if awaits and not kind.awaits:
        raise ConfigurationError('an async def is of kind="asyncio": for more processes run the program again')
    if kind.awaits and not awaits:
        raise ConfigurationError('a worker of kind="asyncio" is an async def')
    kind.check(options)
    prefetch = 1 if options.max_attempts == 1 else options.prefetch  # as Attempts.keep decides
    return replace(options, kind=name, prefetch=prefetch)


def _check_arguments(function: Callable[..., Any]) -> None:
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
