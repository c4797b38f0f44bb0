"""Workers that are threads: each takes tasks, calls the function with one after the other, and acks them."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xq.core.errors import ConfigurationError, Error, shown
from xq.core.ports import Connections
from xq.runtime.lease import Lease
from xq.runtime.workers.attempts import Attempts
from xq.runtime.workers.concurrency import NoSlot
from xq.runtime.workers.processes import REPLACED
from xq.runtime.workers.worker import LISTEN, Options, Supply, Worker

T = TypeVar("T")

WAIT = 60.0  # seconds for which a worker waits for tasks, unless it is woken
PAUSE = 0.05  # seconds until a worker looks again for what it may take
KINDS = {"thread": "threads", "process": "processes", "asyncio": "coroutines"}
ACKED_WITHIN = 0.005  # seconds within which a finished task is acked, while tasks prefetched with it are worked on


@dataclass(frozen=True)
class Assignment:
    """A worker, where it takes its tasks from, and its options in this program."""

    worker: Worker[Any]
    sources: Sequence[Supply[Any]]
    options: Options

    @property
    def size(self) -> int:
        """How many functions run at a time."""
        return self.options.workers * len(self.sources)

    def __str__(self) -> str:
        options, tubes = self.options, [repr(source.tube) for source in self.sources if source.tube is not None]
        place = f"the tube {', '.join(tubes)} of {self.worker.queue.name}" if tubes else self.worker.queue.name
        return f"{place} with {KINDS[options.kind]}={self.size} ({_place(self.worker.queue.adapter.store)})"


def _place(store: Connections) -> str:
    """Return where a database is, for the log."""
    try:
        address = store.address()
    except ConfigurationError:
        return f"{store.engine}, in memory"
    named, host = address.parameters, address.parameters.get("host")
    return f"{store.engine}, {named.get('database') or named.get('dbname')}{f' on {host}' if host else ''}"


class Budget:
    """How many tasks a program may still take, in all of its threads and processes; without a number, any.

    A take reserves the tasks that it may find, and gives back the others. So there may be nothing to
    reserve before the budget is spent. Each process has a share of the reservations: those of a killed process are
    dropped when another begins in its place.
    """

    def __init__(self, tasks: int | None = None, processes: int = 1) -> None:
        if tasks is not None and (isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1):
            raise ConfigurationError(f"max_tasks is a number from 1 on, not {shown(tasks)}")
        shared = multiprocessing.get_context("fork")
        # The tasks that were not taken yet, and how many of them each process has reserved.
        self._numbers: Any = None if tasks is None else shared.Array("q", [tasks, *[0] * processes])
        self._mine = 1

    def share(self, process: int) -> Budget:
        """Return the budget as the process of this number, from 0 on, uses it."""
        mine = copy(self)
        mine._mine = 1 + process
        return mine

    def begin(self) -> None:
        """Drop the reservations of the process before this one."""
        if self._numbers is not None:
            self._numbers[self._mine] = 0

    def reserve(self, n: int) -> int:
        """Return how many of `n` tasks may be taken now."""
        if self._numbers is None:
            return n
        with self._numbers.get_lock():
            granted = min(n, self._free())
            self._numbers[self._mine] += granted
        return granted

    def settle(self, reserved: int, taken: int) -> bool:
        """Note how many of the reserved tasks were taken. The others may be reserved again.

        Return whether nothing else is free: a caller that took none then lets another thread reserve them.
        """
        if self._numbers is None:
            return False
        with self._numbers.get_lock():
            self._numbers[0] -= taken
            self._numbers[self._mine] -= reserved
            return self._free() == reserved - taken

    def _free(self) -> int:
        left, *reserved = self._numbers[:]
        free: int = left - sum(reserved)
        return free

    @property
    def is_limited(self) -> bool:
        return self._numbers is not None

    @property
    def is_spent(self) -> bool:
        return self._numbers is not None and not self._numbers[0]


@dataclass(frozen=True)
class Program:
    """What the workers of a program share."""

    failed: Callable[[BaseException], None]  # gets the error that ends a worker
    until_empty: bool = False
    budget: Budget = field(default_factory=Budget)
    stop: threading.Event = field(default_factory=threading.Event)


class Pool:
    """What the running workers of an assignment have in common, be they threads or coroutines."""

    def __init__(self, assignment: Assignment, program: Program, **told: Any) -> None:
        ends = program.until_empty or program.budget.is_limited
        self.attempts: Attempts[Any] = Attempts(assignment.worker, program.stop, ends, **told)
        self._options = assignment.options
        self._sources = assignment.sources
        self._program = program
        self._stop = program.stop
        self._store = assignment.worker.queue.adapter.store
        # A worker that waits keeps others from the tasks it has reserved of a budget.
        self._patience = LISTEN if program.budget.is_limited else WAIT

    def stopped(self) -> None:
        """Wake what waits for tasks, and count no attempt of the running functions: the program ends."""
        for source in self._sources:
            source.queue.adapter.waiters.takers.wake_all()
        if self._store.has_threads:  # else a function may have a transaction open on the connection that all share
            self.attempts.uncount()
            self._store.disconnect()

    def release_all(self) -> None:
        self.attempts.release_all()

    def close(self) -> None:
        """Clean up after the last worker has ended."""
        self.attempts.lines.sum_up()
        self.attempts.heart.end()

    def _failed(self, error: BaseException) -> None:
        """End the program by the error of a worker. An Error needs no traceback, of a queue that is not installed.

        The program that ends while the database fails has no error: the first signal has ended it.
        """
        if self.attempts.is_unfinished(error):
            return
        known = isinstance(error, Error)
        self.attempts.log.error(
            "a worker ends, and the others with it%s", f": {error}" if known else "", exc_info=not known
        )
        self._program.failed(error)


class _Hand:
    """What one thread has taken."""

    def __init__(self) -> None:
        self.waiting: deque[Lease] = deque()  # whose functions are still to be called
        self.looked = False  # whether the thread has just found nothing
        self._finished: deque[Lease] = deque()  # whose functions have returned; two threads remove them, each its own
        self._since = 0.0  # when the first of these did, by the monotonic clock

    def add(self, lease: Lease) -> None:
        if not self._finished:
            self._since = time.monotonic()
        self._finished.append(lease)

    def finished(self, after: float = 0.0) -> list[Lease]:
        """Remove and return the leases to ack; none if the first is not older than `after` seconds."""
        found: list[Lease] = []
        if not self._finished or (after and time.monotonic() - self._since < after):
            return found
        try:
            while True:
                found.append(self._finished.popleft())
        except IndexError:
            return found


class Threads(Pool):
    """Threads that work on tasks. They take by the session of the process."""

    def __init__(self, assignment: Assignment, program: Program, deadline: Any = None) -> None:
        super().__init__(assignment, program, overdue=self._overdue)
        self._deadline = deadline  # of the running function, shared with the parent of a process
        self._timing = threading.Lock()  # a function returns, or is overdue: one comes first
        self._threads: dict[threading.Thread, _Hand] = {}
        self._any_finished = threading.Event()
        self._acks = threading.Thread(target=self._ack_in_time, name="xq acks", daemon=True)

    def start(self) -> None:
        for source in self._sources:
            for _ in range(self._options.workers):
                hand = _Hand()
                thread = threading.Thread(target=self._loop, args=(source, hand), daemon=True)
                self._threads[thread] = hand
                thread.start()
        if self._options.prefetch > 1:
            self._acks.start()

    @property
    def alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self, seconds: float) -> None:
        """Wait until a worker ends, at most so many seconds."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(seconds)
                return

    def close(self) -> None:
        self._any_finished.set()
        if self._acks.ident is not None:
            self._acks.join()  # it may be acking
        super().close()

    def _loop(self, source: Supply[Any], hand: _Hand) -> None:
        try:
            while self._take(source, hand):
                while hand.waiting:
                    self._work_on(hand.waiting.popleft(), hand)
        except BaseException as error:
            if not self.attempts.is_unfinished(error):
                self._leave(hand)
            self._failed(error)
        finally:
            self._store.disconnect()

    def _leave(self, hand: _Hand) -> None:
        """Ack what is finished and release what has not begun, since this thread ends."""
        try:
            self._stop.set()  # nothing is retried for ever
            self.attempts.ack(hand.finished())
            while hand.waiting:
                self.attempts.give_back(hand.waiting.popleft())
        except Exception as error:  # the session's end releases them
            self.attempts.log.warning("the tasks of a worker that ends stay taken until its session ends: %s", error)

    def _take(self, source: Supply[Any], hand: _Hand) -> bool:
        """Ack what is finished, and take the next tasks. Return False if the thread must end."""
        attempts, n = self.attempts, self._options.batch or self._options.prefetch
        finished, budget = hand.finished(), self._program.budget
        n = 0 if self._stop.is_set() else budget.reserve(n)
        tasks: list[Any] | None = None
        if finished and n:
            tasks = attempts.ack_and_take(finished, lambda then: source.take_within(n, then))
        if finished and tasks is None:
            attempts.ack(finished)
        if not n:  # other threads may have reserved what they will not find
            return not (budget.is_spent or self._stop.wait(PAUSE))
        if not tasks:
            try:
                hand.looked |= tasks is not None
                patience = source.patience() if self._program.until_empty else self._patience
                tasks = attempts.take(source, n, patience, hand.looked and not self._program.until_empty)
                hand.looked = not tasks
            except NoSlot:
                budget.settle(n, 0)
                if attempts.slots:
                    attempts.slots.wait(self._stop)
                return True
            except Exception as error:
                budget.settle(n, 0)
                attempts.wait_for_the_database(error)
                return True
        if self._stop.is_set():  # it waited for a task when the signal came
            budget.settle(n, 0)
            attempts.give_back_tasks(tasks)
            return False
        together = [tasks] if self._options.batch and tasks else [[task] for task in tasks]
        leases = [lease for each in together if (lease := attempts.begin(each)) is not None]
        hand.waiting.extend(kept := attempts.keep(leases))
        if budget.settle(n, len(tasks) - len(leases) + len(kept)) and not tasks:
            self._stop.wait(2 * PAUSE)
        return bool(tasks) or not self._program.until_empty or source.patience() > 0

    def _work_on(self, lease: Lease, hand: _Hand) -> None:
        attempts = self.attempts
        if self._stop.is_set() or lease.is_lost:
            attempts.give_back(lease)
            return
        lease.start()
        if self._options.timeout is not None:
            self._deadline.value = lease.ends_at
        try:
            with self._store.at_work(), lease:
                try:
                    attempts.worker.call(lease.task)
                finally:
                    if self._options.timeout is not None:
                        with self._timing:
                            self._deadline.value, lease.ends_at = 0.0, math.inf
        except (SystemExit, KeyboardInterrupt):
            hand.waiting.append(lease)  # it has not failed: it is released with those that have not begun
            raise
        except BaseException as error:  # such as CancelledError or GeneratorExit
            attempts.end(lease, error)
            return
        hand.add(lease)
        if hand.waiting and not self._any_finished.is_set():
            self._any_finished.set()

    def _overdue(self, lease: Lease) -> None:
        """Fail the task of a function that runs for too long, and end the process: nothing else stops the function."""
        with self._timing:
            if lease.ends_at == math.inf:  # it has just returned
                return
            lease.lose()
            try:
                self.attempts.fail_overdue(lease)
                for hand in self._threads.values():
                    self._leave(hand)
            except BaseException as error:
                self._failed(error)
            os._exit(REPLACED)  # the parent starts another process

    def _ack_in_time(self) -> None:
        """Ack the tasks that are finished, while a slow function keeps their thread from it."""
        try:
            while self.alive:
                self._any_finished.wait(LISTEN)
                self._any_finished.clear()
                time.sleep(ACKED_WITHIN)
                for hand in self._threads.values():
                    if finished := hand.finished(after=ACKED_WITHIN):
                        self.attempts.ack(finished)
        except Exception as error:
            self._failed(error)
        finally:
            self._store.disconnect()
