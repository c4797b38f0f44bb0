"""What all kinds of worker have in common: an assignment, the program around it, and how much it may take."""

from __future__ import annotations

import asyncio
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, ClassVar

from xq.core.connections import Connections
from xq.core.errors import ConfigurationError, Error, is_integer, shown
from xq.core.machine import READY
from xq.runtime.lease import Heartbeat
from xq.workers.attempt import Stop
from xq.workers.attempts import Attempts
from xq.workers.options import USUAL, Options
from xq.workers.worker import POLL_EVERY, TaskSource, Worker

WAIT = 60.0  # seconds for which a worker waits for tasks, unless it is woken
PAUSE = 0.05  # seconds until a worker looks again for what it may take


@dataclass(frozen=True)
class Assignment:
    """A worker, where it takes its tasks from, and its options in this program."""

    worker: Worker[Any]
    sources: Sequence[TaskSource]
    options: Options
    kind: type[Pool]

    @property
    def size(self) -> int:
        """How many functions run at a time."""
        return self.options.workers * len(self.sources)

    def __str__(self) -> str:
        tubes = [repr(source.tube) for source in self.sources if source.tube is not None]
        place = f"the tube {', '.join(tubes)} of {self.worker.queue.name}" if tubes else self.worker.queue.name
        return f"{place} with {self.kind.runs}={self.size} ({_place(self.worker.store)})"


def _place(store: Connections) -> str:
    """Return where a database is, for the log."""
    database: Any = store.database  # connected by now
    try:
        address = store.address()
    except ConfigurationError:
        return f"{store.engine}, in memory"
    named, host = address.parameters, address.parameters.get("host")
    return f"{database.known_product}, {named.get('database') or named.get('dbname')}{f' on {host}' if host else ''}"


class Budget:
    """How many tasks this process may still take, in all of its threads; without a number, any.

    A take reserves the tasks that it may find, and gives back the others. So there may be nothing to
    reserve before the budget is spent.
    """

    def __init__(self, tasks: int | None = None) -> None:
        if tasks is not None and (not is_integer(tasks) or tasks < 1):
            raise ConfigurationError(f"max_tasks is a number from 1 on, not {shown(tasks)}")
        self.is_limited = tasks is not None
        self.left = self._free = tasks or math.inf  # not taken; and not reserved
        self._lock = threading.Lock()

    def reserve(self, n: int) -> int:
        """Return how many tasks, up to `n`, may be taken now."""
        if not self.is_limited:  # each job of each thread asks: no lock
            return n
        with self._lock:
            granted = int(min(n, self._free))
            self._free -= granted
        return granted

    def note_taken(self, reserved: int, taken: int) -> bool:
        """Note that so many reserved tasks were taken. The others may be reserved again.

        Return whether nothing else is free: a caller that took none then lets another thread reserve them.
        """
        if not self.is_limited:
            return False
        with self._lock:
            self.left -= taken
            self._free += reserved - taken
            return self._free == reserved - taken


@dataclass(frozen=True)
class Program:
    """What the workers in one program share."""

    until_empty: bool = False
    budget: Budget = field(default_factory=Budget)
    loop: asyncio.AbstractEventLoop | None = None  # the caller's, for coroutines; None: they make one
    heart: Callable[..., Heartbeat] = Heartbeat
    is_child: bool = False  # whether it runs in a worker process, which its parent ends
    in_main: SimpleQueue[Callable[[], None] | None] = field(
        default_factory=SimpleQueue
    )  # for its main thread; None: end
    has_lost_parent: Callable[[], bool] = lambda: False
    stop: Stop = field(default_factory=Stop)
    errors: list[BaseException] = field(default_factory=list)  # those that have ended workers


class Pool(ABC):
    """The running workers that do an assignment. Each kind of worker is a subclass."""

    runs: str  # what runs its functions, for the log
    awaits = False  # whether its functions are `async def`, all in one thread
    forks = False  # whether each function has its own process
    refuses: ClassVar[Mapping[str, str]] = {}  # the options that it cannot have, and why

    def __init__(self, assignment: Assignment, program: Program) -> None:
        ends = program.until_empty or program.budget.is_limited
        self.attempts: Attempts[Any] = Attempts(assignment.worker, program.stop, ends, heart=program.heart)
        self._options = assignment.options
        self._sources = assignment.sources
        self._program = program
        self._stop = program.stop
        self._worker, self._store = assignment.worker, assignment.worker.store
        # While it waits, no other worker can reserve from the budget what it has reserved.
        self._patience = POLL_EVERY if program.budget.is_limited else WAIT

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise ConfigurationError for an option that this kind refuses."""
        for option, why in cls.refuses.items():
            if getattr(options, option) != getattr(USUAL, option):
                raise ConfigurationError(why)

    @abstractmethod
    def start(self) -> None:
        """Start the workers in their own threads, and return: only the first living pool is joined."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a worker runs."""

    @abstractmethod
    def join(self, seconds: float) -> None:
        """Wait until a worker ends, at most so many seconds."""

    def stopped(self) -> None:
        """Wake what waits for tasks, and uncount the attempts that run: the program ends."""
        self._worker.waiting.waiters.takers.wake_all()
        if self._store.has_threads:  # else a function may have a transaction open on the connection that all share
            if not self._program.is_child:  # else the parent does it, also while C code keeps the GIL
                self.attempts.uncount()
            self.attempts.failures.uncounted = True
            self._store.disconnect()

    def release_all(self) -> None:
        self.attempts.release_all()

    def close(self) -> None:
        """Clean up after the last worker has ended."""
        self.attempts.lines.sum_up()
        self.attempts.heart.end()

    def _wait_at_end(self) -> float:
        """Return for how many seconds to wait for a task before the end: 0, unless ready ones are hidden for a time."""
        opening = self._worker.waiting.takes.statements.opening
        return POLL_EVERY if opening and opening.at < math.inf and self._worker.queue.count(READY) else 0.0

    def _failed(self, error: BaseException) -> None:
        """End the program, as a worker failed. An Error needs no traceback: the queue is not installed, say.

        The program that ends while the database fails has no error: the first signal has ended it.
        """
        if self.attempts.calls.is_unfinished(error):
            return
        known, errors = isinstance(error, Error), self._program.errors
        errors.append(error)
        if not known or next(each for each in errors if type(each) is type(error)) is error:  # one line for all threads
            told = f": {error}" if known else ""
            self.attempts.log.error("a worker ends, and the others with it%s", told, exc_info=not known)
        self._stop.set()
