"""A worker process: how it starts, and what it shares with its parent, which touches its tasks and ends it.

It starts as a new interpreter, which imports the worker, else by a fork. A forked process shares the connections that
other libraries have opened.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pkgutil import resolve_name
from types import ModuleType, NoneType
from typing import Any, NamedTuple

from xq.core.errors import ConfigurationError
from xq.core.tokens import PROGRAM
from xq.database.process import ENDING, name_program, this_process
from xq.runtime.lease import Heartbeat, Lease
from xq.workers.options import Options
from xq.workers.pool import Assignment
from xq.workers.worker import Worker

log = logging.getLogger("xq")

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
UNFIT, LOST = os.EX_CONFIG, os.EX_TEMPFAIL  # exit codes: it cannot make its worker; its session or parent is lost
# What a parent knows of the end of a function. If the process dies, the parent acks the task of a RETURNED one, whose
# end writes no more than a plain ack. Any other that was begun has failed. A timeout or a cancel kills one that RUNS.
RUNS, ENDED, RETURNED = range(3)
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
FORKED = (
    "worker processes are forked: %s. A connection that another library has opened before is shared with them, and "
    "results get mixed up. os.register_at_fork(after_in_child=lambda: engine.dispose(close=False)) forgets an engine's"
)


WHEN_FORKED: list[Callable[[], object]] = []  # called in a worker process that is forked, to forget what it inherits


class SharedMemory(NamedTuple):
    """What a parent and a child share. It is pickled for a child that is not forked.

    The child writes its leases, each at a place of its own, and the parent may read them at any time.
    """

    orders: Connection  # which methods to call on `Running`, and with what
    signals: Connection  # a byte for each signal: C code that keeps the GIL does not hinder it
    records: Connection  # those of its log
    levels: Mapping[str, int]  # of the program's loggers
    session: str  # the uuid by which it takes
    program: str  # its text for operators
    size: int  # bytes that `tasks` has for each
    numbers: Any = ()  # one for each lease; 0: there is none at this place, or it is written just now
    started_at: Any = ()  # the monotonic time at which each function was called; 0: not yet
    ends: Any = ()  # how each function has ended: one of RUNS, ENDED, RETURNED
    tasks: Any = b""  # pickled: the ttr, the tasks' own timeout, and each task with its attempt's number

    def read(self) -> dict[int, tuple[float, int, bytes]]:
        """Return when each lease was started, how its function has ended, and its tasks, by its number."""
        found = {}
        for place, number in enumerate(self.numbers):
            tasks = self.tasks[place * self.size : (place + 1) * self.size] if number else b""
            read = self.started_at[place], self.ends[place], tasks
            if number and number == self.numbers[place]:
                found[number] = read
        return found


class ToParent(QueueHandler):
    """Hands the records of the log to the parent, without what may not be pickled."""

    queue: Any  # the connection
    PLAIN = frozenset((str, int, float, bool, NoneType))

    def prepare(self, record: logging.LogRecord) -> dict[str, Any]:
        self.format(record)  # writes its message, and its traceback as `exc_text`
        fields = vars(record) | {"msg": record.message, "args": None, "exc_info": None}
        return {name: self._plain(each) for name, each in fields.items()}

    def _plain(self, value: Any) -> Any:
        """Return a value in which each object is text: an object might not be pickled, or made again from that."""
        if type(value) is dict:
            return {str(name): self._plain(each) for name, each in value.items()}
        if type(value) in (list, tuple):
            return [*map(self._plain, value)]
        return value if type(value) in self.PLAIN else repr(value)

    def enqueue(self, record: Any) -> None:
        self.queue.send(record)

    @classmethod
    def begin(cls, shared: SharedMemory) -> None:
        """Have the program's own handlers get the log of this process, unless that has handlers."""
        if not log.hasHandlers():
            logging.root.addHandler(cls(shared.records))  # type: ignore[arg-type]
            for name, level in shared.levels.items():
                logging.getLogger(name).setLevel(level)

    @staticmethod
    def levels() -> dict[str, int]:
        """Return the levels of this process's loggers."""
        found = {"root": logging.root} | logging.root.manager.loggerDict
        return {name: each.level for name, each in found.items() if isinstance(each, logging.Logger) and each.level}

    @staticmethod
    def handle_all(records: Connection) -> None:
        """Handle records, in the parent, until the process has ended."""
        with suppress(EOFError, OSError):
            while True:
                record = logging.makeLogRecord(records.recv())
                try:
                    if (logger := logging.getLogger(record.name)).isEnabledFor(record.levelno):
                        logger.handle(record)
                except Exception:  # a filter's, or a handler's own: the next records have others
                    log.warning("a record of a worker process is not logged: %s", record.msg, exc_info=True)


class InHand(Heartbeat):
    """Leases in a worker process, whose parent touches them."""

    def __init__(self, shared: SharedMemory, *heartbeat: Any) -> None:
        super().__init__(*heartbeat)
        self._shared, self._tasks = shared, memoryview(shared.tasks).cast("B")
        self._free, self._numbers = [*range(len(shared.numbers))], itertools.count(1)
        self._places = dict[Lease, int]()

    def add(self, lease: Lease) -> None:
        self.leases.add(lease)
        own = next((each.task.xq_timeout() for each in lease.taken if hasattr(each.task, "xq_timeout")), None)
        taken, size = [(*each.taken, each.number) for each in lease.taken], self._shared.size
        tasks = pickle.dumps((lease.ttr, own, taken))
        if not self._free or len(tasks) > size:
            log.warning("no heartbeat touches the tasks with these keys: they are too long: %s", lease.taken)
            return
        place = self._places[lease] = self._free.pop()
        self._tasks[place * size : place * size + len(tasks)] = tasks
        self._shared.started_at[place], self._shared.ends[place] = 0.0, RUNS
        self._shared.numbers[place] = next(self._numbers)

    def remove(self, *leases: Lease) -> None:
        super().remove(*leases)
        for lease in leases:
            if (place := self._places.pop(lease, None)) is not None:
                self._shared.numbers[place] = 0
                self._free.append(place)

    def began(self, lease: Lease, at: float) -> None:
        if (place := self._places.get(lease)) is not None:
            self._shared.started_at[place] = at

    def ended(self, lease: Lease, returned: bool = False) -> None:
        if (place := self._places.get(lease)) is not None:
            self._shared.ends[place] = RETURNED if returned else ENDED


def program_of(pid: int, ending: bool = False) -> str:
    """Return what operators see as the program that a worker process runs."""
    told = f", worker of pid {pid}{ENDING if ending else ''}"
    return f"{str(this_process()['program'])[: PROGRAM - len(told)]}{told}"


def begin(shared: SharedMemory) -> None:
    """Let this process belong to its parent: only the parent decides what a signal does, and it ends with it.

    All that it starts ends with it.
    """
    if sys.platform == "linux":  # also while C code keeps the GIL
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    if (parent := multiprocessing.parent_process()) is not None and parent.pid != os.getppid():  # it died before that
        os._exit(LOST)
    held = _guard()
    os.set_blocking(shared.signals.fileno(), False)
    signal.set_wakeup_fd(shared.signals.fileno(), warn_on_full_buffer=False)
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)  # the function runs in this thread, and C code in it may not try again
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    # The function may fork: a signal to that process waits until it has handlers of its own.
    block, unblock = (partial(signal.pthread_sigmask, how, PASSED_ON) for how in (signal.SIG_BLOCK, signal.SIG_UNBLOCK))
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=partial(_forked_by_function, held))
    name_program(shared.program)


def _guard() -> list[int]:
    """Lead a new group of processes, and start one that kills the group when this process has ended, however it has.

    Return the descriptor that only this process may have open: the end of the process closes it.
    """
    os.setpgid(0, 0)
    reader, writer = os.pipe()
    if starts := os.fork():
        os.waitpid(starts, 0)
        os.close(reader)
        return [writer]
    if not os.fork():  # no child of this process: its function may wait for all that it has
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.closerange(0, reader)
        os.closerange(reader + 1, os.sysconf("SC_OPEN_MAX"))
        os.read(reader, 1)  # returns at the end of the last process that has the other end
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _forked_by_function(held: list[int]) -> None:
    while held:  # a fork of a fork has closed it
        os.close(held.pop())
    signal.set_wakeup_fd(-1)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


class Launch:
    """How a process for an assignment starts. There `run` gets the assignment, what is `given`, and what is shared."""

    def __init__(self, part: Assignment, run: Callable[..., None], *given: Any) -> None:
        self.part, self._run = part, (run, *given)
        self.why = _why_fork(part.worker)
        self.context: Any = multiprocessing.get_context("fork" if self.why else "spawn")

    def process(self, shared: SharedMemory) -> BaseProcess:
        """Return a process that is not started yet."""
        if self.why:
            made: BaseProcess = self.context.Process(target=_run, args=(shared, self._forked, *self._run))
            return made
        part, worker = self.part, self.part.worker
        options = replace(part.options, backoff=None, session=None, around=None)  # which may not be pickled
        prepare = [*worker.in_child, partial(_know, {**getattr(worker.store.driver, "answered", {})})]
        make = partial(_made, _names(worker), part.sources, options, part.kind, prepare, _facts(worker))
        return _Process(target=_run, args=(shared, make, *self._run))

    def _forked(self) -> Assignment:
        for forget in WHEN_FORKED:
            forget()
        return self.part


class _Process(SpawnProcess):
    """A new interpreter that does not import `__main__`: that would start the program again."""

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
        part = make()
        ToParent.begin(shared)
        run(part, *given, shared)
    except ConfigurationError as error:
        ToParent.begin(shared)
        log.error("a worker process ends: %s", error)
        os._exit(UNFIT)
    except Exception:
        log.debug("a worker process ends", exc_info=True)  # the worker has logged the error
        os._exit(1)


def _made(names: list[str], sources: Any, options: Options, kind: Any, prepare: Any, facts: str) -> Assignment:
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
    options = replace(options, backoff=worker.options.backoff, session=worker.options.session)
    return Assignment(worker, sources, options, kind)


def _know(answered: dict[Any, Any], worker: Worker[Any]) -> None:
    """Have a process try the host first that has answered the program: another one may be dark."""
    if answered:
        worker.store.driver.answered.update(answered)  # type: ignore[attr-defined]


def _facts(worker: Worker[Any]) -> str:
    """Return what must be the same in the program and in its processes."""
    address, hooks = worker.store.address(), [worker._around, *worker.hooks.values()]
    place = {name: each for name, each in address.parameters.items() if type(each) in (str, int)}
    backoff = "a function" if callable(worker.options.backoff) else worker.options.backoff
    session = "no" if worker.options.session is None else "a"
    return f"the database {place}, {session} session, {sum(map(len, hooks))} hooks, and as its backoff {backoff}"


def _names(worker: Worker[Any]) -> list[str]:
    """Return where a worker's function stands, and its model."""
    things = worker.function, worker.store.model
    return [f"{getattr(each, '__module__', '')}:{getattr(each, '__qualname__', '')}" for each in things]


def _found(names: list[str], tube: str | None) -> Worker[Any]:
    """Return the worker that a name leads to, or that the queue knows by it; else make one."""
    function, model = names
    if isinstance(found := resolve_name(function), Worker):
        return found
    queue = resolve_name(model).xq
    known: Worker[Any] | None = queue.handlers.get(tube)
    known = known if known is not None and _names(known)[0] == function else None
    return known or Worker(queue, found, Options(), lambda *_: None)


def _why_fork(worker: Worker[Any]) -> str:
    """Return why a worker's processes are forked; "" if they can import it."""
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
