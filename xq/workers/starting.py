"""How the processes of kind="process" start: as a new interpreter that imports the worker, else by a fork.

A forked process shares the connections that other libraries have opened. A new interpreter gets names, and imports.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from xq.core.errors import ConfigurationError
from xq.workers.child import UNFIT, SharedMemory, begin
from xq.workers.kinds import KINDS
from xq.workers.options import Options
from xq.workers.pool import Assignment
from xq.workers.worker import Worker

log = logging.getLogger("xq")

FORKED = (
    "worker processes are forked: %s. A connection that another library has opened before is shared with them, and "
    "results get mixed up. os.register_at_fork(after_in_child=lambda: engine.dispose(close=False)) forgets an engine's"
)


class Launch:
    """How a process for an assignment starts. There `run` gets the assignment, what is `given`, and what is shared."""

    def __init__(self, part: Assignment, run: Callable[..., None], *given: Any) -> None:
        self.part, self._run = part, (run, *given)
        self.why = _why_fork(part.worker)
        self.context: Any = multiprocessing.get_context("fork" if self.why else "spawn")

    def process(self, shared: SharedMemory) -> BaseProcess:
        """Return a process that is not started yet."""
        if self.why:
            made: BaseProcess = self.context.Process(target=_run, args=(shared, lambda: self.part, *self._run))
            return made
        worker, sources = self.part.worker, self.part.sources
        options = replace(self.part.options, backoff=None)  # which may be any function
        make = partial(_made, _names(worker), sources, options, worker.in_child, _facts(worker))
        return _Process(target=_run, args=(shared, make, *self._run))


class _Process(SpawnProcess):
    """A process of a new interpreter, which does not import `__main__`: that would start the program again."""

    def start(self) -> None:
        main, chosen = sys.modules["__main__"], multiprocessing.get_start_method(allow_none=True)
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main
            multiprocessing.set_start_method(chosen, force=True)  # a look at it has chosen one


def _run(shared: SharedMemory, make: Callable[[], Assignment], run: Callable[..., None], *given: Any) -> None:
    begin(shared)
    try:
        run(make(), *given, shared)
    except ConfigurationError as error:
        logging.basicConfig()  # does nothing if there is a log
        log.error("a worker process ends: %s", error)
        os._exit(UNFIT)
    except Exception:
        log.debug("a worker process ends", exc_info=True)  # the worker has logged the error
        os._exit(1)


def _made(names: list[str], sources: Any, options: Options, prepare: Any, facts: str) -> Assignment:
    """Import a worker, and return its assignment as the program has it. Raises ConfigurationError."""
    named = names[0].replace(":", ".")
    try:
        for adapter in entry_points(group="xq.targets"):  # sets Django up
            adapter.load()(named)
        worker = _found(names, options.tube)
        for each in prepare:
            each(worker)
        if (here := _facts(worker)) != facts:
            raise ConfigurationError(f"it has {here} there, and {facts} in the program")
    except Exception as error:
        raise ConfigurationError(
            f"{named} cannot work in a process of its own ({type(error).__name__}: {error}). Set it up where its "
            "module is imported, not in main(); or choose multiprocessing.set_start_method('fork')"
        ) from error
    options = replace(options, backoff=worker.options.backoff)
    return Assignment(worker, sources, options, KINDS[options.kind])


def _facts(worker: Worker[Any]) -> str:
    """Return what must be the same in the program and in its processes."""
    address, hooks = worker.store.address(), [worker._around, *worker.hooks.values()]
    place = {name: each for name, each in address.parameters.items() if type(each) in (str, int)}
    backoff = "a function" if callable(worker.options.backoff) else worker.options.backoff
    return f"the database {place}, {sum(map(len, hooks))} hooks, and as its backoff {backoff}"


def _names(worker: Worker[Any]) -> list[str]:
    """Return where the function of a worker stands, and its model."""
    things = worker.function, worker.store.model
    return [f"{getattr(each, '__module__', '')}:{getattr(each, '__qualname__', '')}" for each in things]


def _found(names: list[str], tube: str | None) -> Worker[Any]:
    """Return the worker that a name leads to, or that the queue knows by it; else one of the bare function."""
    function, model = names
    if isinstance(found := resolve_name(function), Worker):
        return found
    queue = resolve_name(model).xq
    known: Worker[Any] | None = queue.handlers.get(tube)
    known = known if known is not None and _names(known)[0] == function else None
    return known or Worker(queue, found, Options(), lambda *_: None)


def _why_fork(worker: Worker[Any]) -> str:
    """Return why the processes of a worker are forked; "" if they can import it."""
    names = _names(worker)
    module, _, name = names[0].partition(":")
    # An earlier use of multiprocessing may have chosen fork, not the program.
    if getattr(sys, "frozen", False) or multiprocessing.get_start_method(allow_none=True) == "fork":
        return "the start method of multiprocessing is fork, or the program is frozen"
    try:
        if module in ("__main__", "__mp_main__") or "<locals>" in name:
            raise ConfigurationError(f"{name} stands in {'a function' if '<locals>' in name else '__main__'}")
        found = _found(names, worker.options.tube)
        if (found.queue, found.function) != (worker.queue, worker.function):
            raise ConfigurationError("another worker has this name")
    except Exception as error:
        return f"{error}: move it to a module that can be imported"
    return ""
