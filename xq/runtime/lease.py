"""Leases: tasks that handlers work on. A heartbeat touches them, and notices when they are lost."""

from __future__ import annotations

import contextvars
import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec

from xq.core import time
from xq.core.connections import Connections
from xq.core.errors import ConfigurationError, NotFound, NotOwner, WrongState, in_line
from xq.core.machine import TAKEN, Machine, Timer
from xq.runtime.sleep import LONGEST_SLEEP

log = logging.getLogger("xq")

P = ParamSpec("P")

LOST = (NotFound, WrongState, NotOwner)  # raised where this session does not own a task any more
HEARTBEATS = 3  # in a ttr
RETRY = 5.0  # seconds until the next try to touch a task, at most


@dataclass(slots=True, eq=False, repr=False)
class Lease:
    """A taken task of a handler. `xq.current()` returns it within the handler.

    `task` is the task as the handler got it, `attempt` the number of its takes (0 without the role attempts), and
    `lost` a threading.Event, set when a heartbeat finds that another take has the task, or may get it. It is set, too,
    when the task is cancelled: then `cancelled` is True.
    """

    _heart: Heartbeat
    task: Any
    taken: Any  # what names the task, and this take, in a call
    ttr: float | None  # seconds; None: without limit
    attempt: int = 0
    finish: Any = None  # within a worker's handler, a call that finishes its only task
    ack_with: Any = None  # the same, a call that says how to ack it when the handler returns
    started_at: float = 0.0  # the monotonic time at which the handler was called; 0: not yet
    touched_at: float = 0.0  # the monotonic time at which its ttr began
    touch_at: float = math.inf  # the monotonic time to touch it at
    is_lost: bool = False
    cancelled: bool = False
    on_loss: Callable[[], object] | None = None
    calls: list[Callable[[], Any]] | None = None  # after the commit of the function's session; None: it has none
    commit: Any = None  # within such a session: runs a call in it and commits, and the function goes on
    made_by: Any = None  # the worker's `Attempts`
    thread: int = 0  # in which its function runs
    coroutine: Any = None  # the asyncio task that awaits it
    recorded: str | None = None  # what the row of its only task had of its function's steps at the take
    progress: Any = None  # what is known of these
    suspended: Any = None  # how the function has ended its attempt, to go on later: `Suspended`
    _lost: threading.Event | None = None  # made when the handler asks for it
    _token: Any = None

    def __post_init__(self) -> None:
        self.touched(time.monotonic())

    def __enter__(self) -> None:
        """Make it the current one for the block."""
        self._token = lease_of_context.set(self)
        self.thread = threading.get_ident()

    def __exit__(self, *exception: object) -> None:
        lease_of_context.reset(self._token)

    def start(self) -> None:
        """Note that the handler begins: its timeout counts from here."""
        self.started_at = time.monotonic()
        self._heart.began(self, self.started_at)

    @property
    def begun(self) -> bool:
        """Whether the handler was called."""
        return self.started_at > 0

    def lose(self) -> None:
        """Note that this take does not own the task any more."""
        self.is_lost = True
        if self._lost is not None:
            self._lost.set()
        if self.on_loss is not None:
            self.on_loss()

    def touched(self, now: float) -> None:
        """Note that its ttr began anew at a monotonic time."""
        self.touched_at = now
        if self.ttr is not None:
            self.touch_at = now + self.ttr / HEARTBEATS

    @property
    def has_passed(self) -> bool:
        """Whether its ttr has passed since the last heartbeat, as after a stop of the process."""
        return self.ttr is not None and time.monotonic() > self.touched_at + self.ttr

    @property
    def lost(self) -> threading.Event:
        """The event that is set when this take does not own the task any more."""
        if self._lost is None:
            self._lost = threading.Event()
        if self.is_lost:  # after the assignment: `lose` may run in between
            self._lost.set()
        return self._lost

    def heartbeat(self) -> bool:
        """Touch the task now, so that its ttr begins anew. Returns False if it is lost. Raises database errors."""
        if self.ttr is not None and not self.is_lost:
            self._heart.touch([self])
        return not self.is_lost


lease_of_context: ContextVar[Lease] = ContextVar("xq_lease")


def current() -> Lease:
    """Return the lease of the task that the running handler works on. Raises ConfigurationError outside of one."""
    try:
        return lease_of_context.get()
    except LookupError:
        raise ConfigurationError(
            "xq.current() is the lease of a worker's task: call it in the worker's function"
        ) from None


def after_commit(call: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Call `call` when the session of the running function is committed. Not at all if the attempt fails.

    It is for the function of a worker with `session=`: there the task is acked by then, so an error of the call is
    logged, and a lease that has ended cancels nothing. An `async def` is awaited in an asynchronous worker. It is
    called once at most: not if the process dies between the two. Raises ConfigurationError elsewhere.
    """
    lease = lease_of_context.get(None)
    if lease is None or lease.calls is None:
        raise ConfigurationError(
            "xq.after_commit() waits for the session of a worker's function: call it there, and give the worker "
            "session=, a sessionmaker"
        )
    lease.calls.append(partial(call, *args, **kwargs))


class Heartbeat:
    """A thread that touches leased tasks at a third of their ttr, on its own connection.

    It starts with the first task that has a ttr. Where threads share one connection, it never touches.
    `move` touches tasks by so many seconds, yields the touched ones, and sets `lost` of the lost ones.
    `hold` gets True before a touch, which may have to wait, and False when no task is to be touched: in between no ttr
    may pass.
    """

    def __init__(
        self,
        store: Connections,
        move: Callable[[Collection[Lease], float], Iterable[Lease]],
        hold: Callable[[bool], object] = lambda holds: None,
    ) -> None:
        self._store = store
        self._move = move
        self._hold = hold
        self._holds = False
        self.leases: set[Lease] = set()  # also those that it need not touch
        self.lock = threading.RLock()  # no heartbeat while tasks are moved
        self._changed, self._over = threading.Event(), False
        self._wakes_at = math.inf  # the monotonic time to look at the leases
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        self.leases.add(lease)
        if lease.touch_at < self._wakes_at:
            self._wake()

    def remove(self, *leases: Lease) -> None:
        self.leases.difference_update(leases)

    def began(self, lease: Lease, at: float) -> None:
        """Note for the parent process when a handler was called."""

    def ended(self, lease: Lease, returned: bool = False) -> None:
        """Note for the parent process that a handler has ended. `returned`: a plain ack is all that is missing."""

    def _wake(self) -> None:
        """Let the thread look at the leases now. Start it first if there is none."""
        if self._thread is None:
            if not self._store.has_threads:
                self._wakes_at = -math.inf  # never
                return
            with self.lock:
                if self._thread is None:
                    run = contextvars.copy_context().run  # the thread touches by the session of this context
                    thread = threading.Thread(target=run, args=(self._run,), name="xq heartbeat", daemon=True)
                    thread.start()
                    self._thread = thread
        self._changed.set()

    def end(self) -> None:
        self._over = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join()

    def touch(self, leases: Collection[Lease]) -> None:
        """Touch these tasks. Raises database errors."""
        with self.lock:
            together: dict[float, list[Lease]] = {}  # by when they were last touched
            for lease in leases:
                together.setdefault(lease.touched_at, []).append(lease)
            now = time.monotonic()  # one for all: from now on they are touched together
            for touched_at, of_one_time in together.items():
                for lease in self._move(of_one_time, now - touched_at):
                    lease.touched(now)

    def _run(self) -> None:
        try:
            while not self._over:
                self._wakes_at = math.inf  # from here on, `add` wakes it again
                self._wakes_at = self._touch_due()
                self._changed.wait(min(LONGEST_SLEEP, max(0.0, self._wakes_at - time.monotonic())))
                self._changed.clear()
        finally:
            self._set_hold(False)
            self._store.disconnect()

    def _set_hold(self, holds: bool) -> None:
        if holds is not self._holds:
            self._hold(holds)
            self._holds = holds

    def _touch_due(self) -> float:
        """Touch the tasks that are due. Return the monotonic time to look again."""
        with self.lock:
            timed = [lease for lease in self.leases.copy() if not lease.is_lost]
            now = time.monotonic()
            pause = min((lease.ttr for lease in timed if lease.ttr is not None), default=math.inf) / HEARTBEATS
            # With the next ones: one statement for all.
            due = [lease for lease in timed if lease.ttr is not None and lease.touch_at <= now + pause / 2]
            again = now
            if due:
                try:
                    self._store.connect()
                    self._set_hold(True)
                    self.touch(due)
                except Exception as error:  # the database fails: the call that finishes a task detects the loss
                    log.warning("leased tasks could not be touched: %s", in_line(error))
                again = time.monotonic() + min(pause / 8, RETRY)  # for those that are still due
            touches = min((lease.touch_at for lease in timed), default=math.inf)
            # Also of the leases that began while it waited.
            if all(lease.touch_at > time.monotonic() or lease.is_lost for lease in self.leases.copy()):
                self._set_hold(False)
            return max(again, touches)


def ttr_timer(machine: Machine) -> Timer | None:
    """Return the timer that releases taken tasks; None without the feature ttr."""
    return machine.timer(TAKEN, "runat")


def ttr_of(timer: Timer, task: Mapping[str, Any], roles: Mapping[str, Any]) -> float | None:
    """Return the seconds that a taken task, given by its fields, has until this timer releases it; None: for ever."""
    if task[roles["runat"].name] is None:
        return None
    own = task[roles[timer.option].name] if timer.option in roles else None
    return timer.default if own is None else float(own)
