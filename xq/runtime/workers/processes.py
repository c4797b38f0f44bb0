"""Workers that are processes: a parent starts them, replaces those that crash, and passes signals on."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

from xq.core import time
from xq.core.errors import ConfigurationError, Error

log = logging.getLogger("xq")

CHILDREN_LOOK = 0.5  # seconds between two looks at the children
CRASHES, WITHIN = 10, 60.0  # so many crashes within so many seconds end the program
REPLACED = 75  # the exit code of a process whose function ran past its timeout
UNFIT = os.EX_CONFIG  # the exit code of a process that cannot make its worker
PASSED_ON = (signal.SIGTERM, signal.SIGINT)
ABORTED = {code for number in PASSED_ON for code in (128 + number, -number)}  # the exit codes after a second signal
GRACE = 2.0  # seconds after a timeout until the parent kills a process that does not end by itself


class SharedMemory(NamedTuple):
    """What a parent and a child share, as values in memory."""

    deadline: Any  # the monotonic time at which the function must have returned; 0: no such time
    signals: Any  # how many the parent has got. A signal to the whole process group reaches a child twice


class Launch(Protocol):
    """How a child starts: see `starting`."""

    context: Any

    def process(self, shared: SharedMemory) -> BaseProcess: ...


@contextmanager
def handled_by(handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle SIGTERM and SIGINT by this function within the block. Only the main thread can: another ignores it.

    A process that is forked within the block, by the function of a worker, is ended by them as without it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here = os.getpid()

    def handled(number: int, frame: Any) -> None:
        if os.getpid() == here:
            handle(number, frame)
        else:
            signal.signal(number, before[number] or signal.SIG_DFL)
            signal.raise_signal(number)

    before: dict[int, Any] = {number: signal.signal(number, handled) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Child:
    """A process, and what it shares with its parent."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.shared = SharedMemory(launch.context.RawValue("d", 0.0), launch.context.RawValue("i", 0))
        self.killed = False
        self.process = launch.process(self.shared)
        self.process.start()

    def kill_if_overdue(self) -> None:
        """Kill a process whose function ran past its timeout without letting another thread of it run."""
        if not self.killed and 0 < self.shared.deadline.value < time.monotonic() - GRACE and self.process.is_alive():
            log.warning("the function of worker process %d runs past its timeout: it is killed", self.process.pid)
            self.killed = True
            self.process.kill()


class Processes:
    """A parent without threads, and a child for each launch."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = launches
        self._children: list[Child] = []
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._signals: list[int] = []
        self._aborted = False  # whether a child has released its tasks at a second signal

    def run(self) -> str:
        """Run until all children have ended. Return the name of the signal that has ended them, or "".

        Raises Error after too many crashes, SystemExit after a second signal.
        """
        with handled_by(self._signalled):
            try:
                for launch in self._launches:
                    self._start(launch)
                while self._children:
                    wait([child.process.sentinel for child in self._children], CHILDREN_LOOK)
                    for child in list(self._children):
                        child.kill_if_overdue()
                        if not child.process.is_alive():
                            self._ended(child)
                if self._aborted:
                    raise SystemExit(128 + self._signals[1])
                return signal.Signals(self._signals[0]).name if self._signals else ""
            except BaseException:
                self._pass_on(1)
                self._pass_on(2)  # release the tasks
                for child in self._children:
                    child.process.join(GRACE)
                    child.process.kill()
                raise

    def _ended(self, child: Child) -> None:
        code = child.process.exitcode
        self._children.remove(child)
        self._aborted |= len(self._signals) > 1 and code in ABORTED
        if code == 0 or self._signals:
            return
        if code == UNFIT:
            raise ConfigurationError("a worker process cannot be set up: the log has the reason")
        if code != REPLACED and not child.killed:
            log.error("worker process %d has ended with code %s, and is replaced", child.process.pid, code)
            self._crashes.append(time.monotonic())
            if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] < WITHIN:
                raise Error(f"worker processes have crashed {CRASHES} times within {WITHIN:g} s: see the log for why")
        self._start(child.launch)

    def _start(self, launch: Launch) -> None:
        """Start a child, unless the program ends. No signal is handled before it is known, nor in it as here."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            if not self._signals:
                self._children.append(Child(launch))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _pass_on(self, signals: int) -> None:
        for child in self._children:
            if child.process.is_alive() and child.process.pid is not None:
                child.shared.signals.value = signals
                os.kill(child.process.pid, signal.SIGTERM)

    def _signalled(self, number: int, frame: object) -> None:
        self._signals.append(number)
        self._pass_on(len(self._signals))
