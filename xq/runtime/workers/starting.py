"""How the processes of kind="process" start: as a new interpreter that imports the worker, else by a fork.

A forked process shares the connections that other libraries have opened. A new interpreter gets names, and imports.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from xq.core.errors import ConfigurationError
from xq.runtime.workers.child import PASSED_ON, SharedMemory
from xq.runtime.workers.kinds import KINDS
from xq.runtime.workers.options import Options
from xq.runtime.workers.pool import Assignment
from xq.runtime.workers.processes import UNFIT
from xq.runtime.workers.worker import Supply, Worker
from xq.sessions.process import name_program, this_process

log = logging.getLogger("xq")

FORKED = (
    "worker processes are forked: %s. A connection that another library has opened before is shared with them, and "
    "results get mixed up. os.register_at_fork(after_in_child=lambda: engine.dispose(close=False)) forgets an engine's"
)
Names = Sequence[tuple[str, str]]  # the modules and names of a function and of its model
RunChild = Callable[[Assignment, bool, int | None, SharedMemory], None]


class Launch:
    """How a process for an assignment starts; `run` runs the assignment there."""

    def __init__(self, part: Assignment, until_empty: bool, max_tasks: int | None, run: RunChild) -> None:
        self.part, self._given = part, (run, until_empty, max_tasks)
        self.why = _why_fork(part.worker)
        self.context: Any = multiprocessing.get_context("fork" if self.why else "spawn")

    def process(self, shared: SharedMemory) -> BaseProcess:
        """Return a process that is not started yet."""
        make: Callable[[], Assignment] = lambda: self.part  # noqa: E731
        if not self.why:
            worker = self.part.worker
            sources = [(source.tube, source.but) for source in self.part.sources]
            options = replace(self.part.options, backoff=None)  # which may be any function
            here = str(this_process()["program"]), worker.in_child, _facts(worker)
            make = partial(_made, _names(worker), sources, options, *here)
        kind: Any = self.context.Process if self.why else _Process
        process: BaseProcess = kind(target=_run, args=(make, *self._given, shared))
        return process


def launches(parts: Iterable[Assignment], until_empty: bool, max_tasks: int | None, run: RunChild) -> list[Launch]:
    """Return how the processes of a program start. Log why any is forked."""
    found = [Launch(part, until_empty, max_tasks, run) for part in parts]
    if forked := dict.fromkeys(each.why for each in found if each.why):
        log.warning(FORKED, "; ".join(forked))
    return found


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


def _run(make: Callable[[], Assignment], run: RunChild, *given: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        run(make(), *given)
    except ConfigurationError as error:
        logging.basicConfig()  # does nothing if there is a log
        log.error("a worker process ends: %s", error)
        os._exit(UNFIT)
    except Exception:
        log.debug("a worker process ends", exc_info=True)  # the worker has logged the error
        os._exit(1)


def _made(names: Names, sources: Any, options: Options, program: str, prepare: Any, facts: str) -> Assignment:
    """Import a worker, and return its assignment as the program has it. Raises ConfigurationError."""
    name_program(program)
    named = ".".join(names[0])
    try:
        for adapter in entry_points(group="xq.targets"):  # sets Django up
            adapter.load()(named)
        for module, _ in names:
            import_module(module)
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
    return Assignment(worker, [Supply(worker.queue, *each) for each in sources], options, KINDS[options.kind])


def _facts(worker: Worker[Any]) -> str:
    """Return what must be the same in the program and in its processes."""
    store, hooks = worker.queue.adapter.store, [*worker.failure_hooks.values(), *worker.bury_hooks.values()]
    try:
        place = {name: each for name, each in store.address().parameters.items() if type(each) in (str, int)}
    except Exception as error:  # it has no name yet
        place = {type(error).__name__: str(error)}
    backoff = "a function" if callable(worker.options.backoff) else worker.options.backoff
    return f"the database {place}, {sum(map(len, [worker._around, *hooks]))} hooks, and as its backoff {backoff}"


def _names(worker: Worker[Any]) -> Names:
    things = worker.function, worker.queue.adapter.store.model
    return [(getattr(each, "__module__", ""), getattr(each, "__qualname__", "")) for each in things]


def _found(names: Names, tube: str | None) -> Worker[Any]:
    """Return the worker that a name leads to, or that the queue knows by it; else one of the bare function."""
    found: list[Any] = [sys.modules.get(module) for module, _ in names]
    for n, (_, name) in enumerate(names):
        for each in name.split("."):
            found[n] = getattr(found[n], each, None)
    function, model = found
    if isinstance(function, Worker):
        return function
    if not hasattr(model, "xq") or not function:
        raise ConfigurationError("no worker has this name")
    known: Worker[Any] | None = model.xq.handlers.get(tube)
    known = known if known is not None and _names(known)[0] == names[0] else None
    return known or Worker(model.xq, function, Options(), lambda task: task, lambda *_: None)


def _why_fork(worker: Worker[Any]) -> str:
    """Return why the processes of a worker are forked; "" if they can import it."""
    (module, name), _ = names = _names(worker)
    # An earlier use of multiprocessing may have chosen fork, not the program.
    if getattr(sys, "frozen", False) or multiprocessing.get_start_method(allow_none=True) == "fork":
        return "the start method of multiprocessing is fork, or the program is frozen"
    try:
        if module in ("__main__", "__mp_main__") or "<locals>" in name:
            raise ConfigurationError(f"{name} stands in {'a function' if '<locals>' in name else '__main__'}")
        found = _found(names, worker.options.tube)
        if (found.queue, found.function) != (worker.queue, worker.function):
            raise ConfigurationError("another worker has this name")
    except ConfigurationError as error:
        return f"{error}: move it to a module that can be imported"
    return ""
