"""A worker process: it takes, works and acks. Its parent touches its tasks, and ends it, by what the two share."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import sys
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from xq.runtime.lease import Heartbeat, Lease
from xq.runtime.maintenance import Maintenance
from xq.sessions.process import PROGRAM, name_program, this_process

log = logging.getLogger("xq")

PASSED_ON = (signal.SIGTERM, signal.SIGINT)
LONGEST_KEY = 4096  # bytes of a task in shared memory: more than a key of a server can have
UNFIT = os.EX_CONFIG  # the exit code of a process that cannot make its worker
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


class Slot(ctypes.Structure):
    """The place of a lease. The process writes it, and the parent may read it at any time."""

    _fields_ = [
        ("number", ctypes.c_int64),  # of the leases at this place, twice; odd while one is written
        ("size", ctypes.c_int64),  # in bytes, of its tasks in `SharedMemory.tasks`; 0: there is none
        ("started_at", ctypes.c_double),  # the monotonic time of the call of its function; 0: not yet; inf: it returned
    ]


class SharedMemory(NamedTuple):
    """What a parent and a child share. It is pickled for a child that is not forked."""

    orders: Connection  # calls of `Running`: the name and the arguments of each
    signals: Connection  # a byte for each signal: C code that keeps the GIL does not hinder it
    session: str  # the uuid of the session that takes
    program: str  # its text for operators
    slots: Any = ()
    tasks: Any = b""  # pickled, of each slot: the ttr, and the tasks with the numbers of their attempts

    @property
    def size(self) -> int:
        """The bytes of a slot's tasks."""
        return len(self.tasks) // len(self.slots)

    def read(self) -> dict[tuple[int, int], tuple[float, bytes]]:
        """Return when each lease was started, and its tasks, by place and number."""
        found = {}
        for place, slot in enumerate(self.slots):
            number, size, begin = slot.number, slot.size, place * self.size
            read = slot.started_at, self.tasks[begin : begin + size]
            if size and number % 2 == 0 and (number, size) == (slot.number, slot.size):
                found[place, number] = read
        return found


class InHand(Heartbeat):
    """The leases of a child, which its parent touches."""

    def __init__(self, shared: SharedMemory, *heartbeat: Any) -> None:
        super().__init__(*heartbeat)
        self._size, memory = shared.size, memoryview(shared.tasks).cast("B")
        parts = [memory[place * self._size : (place + 1) * self._size] for place in range(len(shared.slots))]
        self._free = [*zip(shared.slots, parts, strict=True)]  # made once: each takes as long as to write it
        self._places: dict[Lease, tuple[Slot, memoryview]] = {}

    def add(self, lease: Lease) -> None:
        self.leases.add(lease)
        tasks = pickle.dumps((lease.ttr, [(*attempt.taken, attempt.number) for attempt in lease.taken]))
        if not self._free or len(tasks) > self._size:
            log.warning("no heartbeat touches the tasks with these keys: they are too long: %s", lease.taken)
            return
        slot, part = self._places[lease] = self._free.pop()
        slot.number += 1
        slot.size, slot.started_at = len(tasks), 0.0
        part[: len(tasks)] = tasks
        slot.number += 1

    def remove(self, *leases: Lease) -> None:
        super().remove(*leases)
        for lease in leases:
            if (place := self._places.pop(lease, None)) is not None:
                place[0].size = 0
                self._free.append(place)

    def began(self, lease: Lease, at: float) -> None:
        if (place := self._places.get(lease)) is not None:
            place[0].started_at = at


def program_of(pid: int, ending: bool = False) -> str:
    """Return the program of a worker process of this parent, for operators."""
    told = f", worker of pid {pid}{', ending' if ending else ''}"
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
    Maintenance.only_looks = True
    name_program(shared.program)


def _forked_by_function() -> None:
    signal.set_wakeup_fd(-1)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
