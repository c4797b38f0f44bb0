"""A worker process: it takes, works and acks. Its parent touches its tasks, and ends it, by what the two share."""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import pickle
import signal
import sys
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from xq.core.tokens import PROGRAM
from xq.database.process import ENDING, name_program, this_process
from xq.runtime.lease import Heartbeat, Lease

log = logging.getLogger("xq")

PASSED_ON = (signal.SIGTERM, signal.SIGINT)
UNFIT, LOST = os.EX_CONFIG, os.EX_TEMPFAIL  # exit codes: it cannot make its worker; its session or parent is lost
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


class SharedMemory(NamedTuple):
    """What a parent and a child share. It is pickled for a child that is not forked.

    The child writes its leases, each at a place of its own, and the parent may read them at any time.
    """

    orders: Connection  # calls of `Running`: the name and the arguments of each
    signals: Connection  # a byte for each signal: C code that keeps the GIL does not hinder it
    session: str  # the uuid of the session that takes
    program: str  # its text for operators
    numbers: Any = ()  # of the leases; 0: there is none at this place, or it is written just now
    started_at: Any = ()  # the monotonic times of the calls of their functions; 0: not yet; inf: it returned
    tasks: Any = b""  # pickled: the ttr, and the tasks with the numbers of their attempts
    size: int = 0  # of a place in `tasks`, in bytes

    def read(self) -> dict[int, tuple[float, bytes]]:
        """Return when each lease was started, and its tasks, by its number."""
        found = {}
        for place, number in enumerate(self.numbers):
            read = self.started_at[place], self.tasks[place * self.size : (place + 1) * self.size] if number else b""
            if number and number == self.numbers[place]:
                found[number] = read
        return found


class InHand(Heartbeat):
    """The leases of a child, which its parent touches."""

    def __init__(self, shared: SharedMemory, *heartbeat: Any) -> None:
        super().__init__(*heartbeat)
        self._shared, self._tasks = shared, memoryview(shared.tasks).cast("B")
        self._free, self._numbers = [*range(len(shared.numbers))], itertools.count(1)
        self._places = dict[Lease, int]()

    def add(self, lease: Lease) -> None:
        self.leases.add(lease)
        tasks, size = pickle.dumps((lease.ttr, [(*each.taken, each.number) for each in lease.taken])), self._shared.size
        if not self._free or len(tasks) > size:
            log.warning("no heartbeat touches the tasks with these keys: they are too long: %s", lease.taken)
            return
        place = self._places[lease] = self._free.pop()
        self._tasks[place * size : place * size + len(tasks)] = tasks
        self._shared.started_at[place] = 0.0
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


def program_of(pid: int, ending: bool = False) -> str:
    """Return the program of a worker process of this parent, for operators."""
    told = f", worker of pid {pid}{ENDING if ending else ''}"
    return f"{str(this_process()['program'])[: PROGRAM - len(told)]}{told}"


def begin(shared: SharedMemory) -> None:
    """Let this process belong to its parent: only the parent decides what a signal does, and it ends with it."""
    if sys.platform == "linux":  # also while C code keeps the GIL
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    os.set_blocking(shared.signals.fileno(), False)
    signal.set_wakeup_fd(shared.signals.fileno(), warn_on_full_buffer=False)
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    # Of a process that the function forks: a signal to it must wait until it is none of this one's.
    block, unblock = (partial(signal.pthread_sigmask, how, PASSED_ON) for how in (signal.SIG_BLOCK, signal.SIG_UNBLOCK))
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=_forked_by_function)
    name_program(shared.program)


def _forked_by_function() -> None:
    signal.set_wakeup_fd(-1)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
