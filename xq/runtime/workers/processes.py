"""The parent of worker processes: it starts them, touches their tasks, and ends and replaces them."""

from __future__ import annotations

import contextvars
import itertools
import logging
import math
import multiprocessing
import os
import pickle
import signal
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import wait
from typing import Any, NoReturn

from xq.core import time
from xq.core.errors import ConfigurationError, Error, NotInstalled
from xq.core.values import Parts, Taken
from xq.runtime.lease import Lease
from xq.runtime.workers.attempt import Attempt
from xq.runtime.workers.attempts import Attempts
from xq.runtime.workers.child import LONGEST_KEY, PASSED_ON, UNFIT, SharedMemory, program_of
from xq.runtime.workers.starting import Launch
from xq.sessions import current as sessions

log = logging.getLogger("xq")

LOOK = 0.5  # seconds between two looks at the children, at most
CRASHES, WITHIN = 10, 60.0  # so many crashes without a task within so many seconds end the program


@contextmanager
def handled_by(handle: Callable[[str, bool], object]) -> Iterator[None]:
    """Call `handle` with the name of a SIGTERM or SIGINT within the block, and with whether it is the second one.

    Only the main thread can: another ignores it. A third signal is ignored: it would interrupt the release of the
    tasks, or the end of the program. A process that is forked within the block, by the function of a worker, is
    ended by them as without it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, signals = os.getpid(), itertools.count()

    def handled(number: int, frame: Any) -> None:
        if os.getpid() != here:
            signal.signal(number, before[number] or signal.SIG_DFL)
            signal.raise_signal(number)
            return
        if again := next(signals) > 0:
            for each in PASSED_ON:
                signal.signal(each, signal.SIG_IGN)
        handle(signal.Signals(number).name, again)

    before: dict[int, Any] = {number: signal.signal(number, handled) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is handled:  # else they are ignored
                signal.signal(number, handler)


def exit_by(name: str) -> NoReturn:
    """End the program after a second signal."""
    log.info("the workers have ended: %s, for the second time: the tasks that ran are released", name)
    raise SystemExit(0)


class Child:
    """A worker process, and the leases of its tasks in this one, its parent."""

    def __init__(self, launch: Launch, stop: threading.Event) -> None:
        worker, options = launch.part.worker, launch.part.options
        self.launch = launch
        self.adapter = worker.queue.adapter
        self.session = sessions.of(self.adapter.maintenance.home).open.named(str(uuid.uuid4()))
        self._context = contextvars.copy_context()  # in which its session is the current one, so that it may move tasks
        self._context.run(self.session.note, joined=False)
        self.attempts: Attempts[Any] = self._context.run(lambda: Attempts(worker, stop))
        self._timeout = math.inf if options.timeout is None else options.timeout
        self.pause = min(LOOK, self._timeout / 4, (self.attempts.ttr or math.inf) / 4)
        self.ends_at = math.inf  # the monotonic time at which a function must have returned
        self.killed_by = ""  # "signal", "timeout" or "cancel"
        self.ending = False  # whether it was told to end
        self._signals = 0  # that this process alone got
        self._passed = set[Parts]()  # the tasks that it was told to leave out
        self._leases: dict[int, Lease] = {}  # by its number

        orders, self._orders = multiprocessing.Pipe(duplex=False)
        self.got, signals = multiprocessing.Pipe(duplex=False)
        n, size = 2 * options.prefetch + 2, LONGEST_KEY * (options.batch or 1)  # what is acked just now, as well
        array = launch.context.RawArray
        memory = (array("q", n), array("d", n), array("c", n * size), size) if launch.part.kind.forks else ()
        self._shared = SharedMemory(orders, signals, self.session.uuid, program_of(os.getpid()), *memory)
        self.process = launch.process(self._shared)
        self.process.start()
        orders.close()
        signals.close()

    # what the child has

    def look(self) -> None:
        """Lease what the child has in hand: the heartbeat touches it from now on."""
        found, heart = self._shared.read(), self.attempts.heart
        for number in self._leases.keys() - found.keys():
            heart.remove(self._leases.pop(number))
        for number, (started_at, tasks) in found.items():
            if (lease := self._leases.get(number)) is None:
                ttr, taken = pickle.loads(tasks)
                attempts = [Attempt(None, Taken(parts, token), nth) for parts, token, nth in taken]
                lease = self._leases[number] = Lease(heart, None, attempts, ttr, attempts[0].number)
                lease.on_loss = partial(self._lost, lease)
                self._context.run(heart.add, lease)
            lease.started_at = started_at
        self.ends_at = min((each.started_at for each in self._running), default=math.inf) + self._timeout

    @property
    def _running(self) -> list[Lease]:
        return [lease for lease in self._leases.values() if 0 < lease.started_at < math.inf]

    def keep(self) -> None:
        """Hold the session of the child, so that no other process reaps the tasks that this one has to fail."""
        if self.adapter.maintenance.maintained is None or not (self.session.live or self.session.closed):
            with self.adapter.store.briefly_connected():
                self.adapter.maintenance.attend()
                self.session.sessions.records.use_liveness(self.adapter.maintenance.database)
                self.session.acquire()

    def signals(self) -> int:
        """Return how many signals this process alone has got."""
        while self.got.poll() and (got := os.read(self.got.fileno(), 64)):
            self._signals += sum(number in PASSED_ON for number in got)
        return self._signals

    # what the parent does with it

    def end(self, why: str) -> None:
        """Let its function finish, and no more."""
        self.ending = True
        self._order("_end", why)
        with self.adapter.store.briefly_connected():
            self.session.sessions.records.describe(self.session.uuid, program_of(os.getpid(), ending=True))

    def pass_over(self) -> None:
        """Let it leave out the tasks that too many processes have died of."""
        if new := [*{*self.adapter.takes.unmovable.passed} - self._passed]:  # else the pipe may get full
            self._passed.update(new)
            self._order("_pass_over", new)

    def kill(self, why: str) -> None:
        self.killed_by = self.killed_by or why
        self.process.kill()

    def _lost(self, lease: Lease) -> None:
        if not lease.cancelled:  # which the process notices by itself
            self._order("_lose", lease.taken[0].taken.token)

    def must_end(self, signals: int) -> str:
        """Return why to kill it now, or ""."""
        if signals > 1 or any(lease.cancelled for lease in self._running):
            return "signal" if signals > 1 else "cancel"
        return "timeout" if time.monotonic() >= self.ends_at else ""

    def _order(self, *call: object) -> None:
        try:
            self._orders.send(call)
        except OSError as error:  # it has just ended
            log.debug("worker process %s: %s", self.process.pid, error)

    @property
    def cause(self) -> str:
        """Why it has ended, in words."""
        code = self.process.exitcode or 0
        name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
        return f"killed by {name}" if code < 0 else f"ended with exit code {code}"

    def settle(self) -> list[str]:
        """Fail the tasks that it had begun, and give back the others. Return the keys of those that it had begun."""
        self.process.join()
        self.look()
        begun = [attempt for lease in self._running for attempt in lease.taken]
        try:
            self._context.run(self._settle)
        except Exception as error:
            log.warning(
                "the tasks of worker process %d come back when its session has ended: %s", self.process.pid, error
            )
        return [self.attempts.calls.key(attempt.taken) for attempt in begun]

    def _settle(self) -> None:
        attempts, calls, running = self.attempts, self.attempts.calls, self._running
        attempts.heart.end()
        with self.adapter.store.briefly_connected():
            for lease in [lease for lease in self._leases.values() if not lease.is_lost]:
                for attempt in lease.taken:
                    if lease in running and self.killed_by != "signal":
                        self._fail(attempt)
                    elif not lease.started_at or lease in running:
                        attempts._give_back(attempt, called=False)
            self.session.release()
            event = "died" if self.process.exitcode and self.killed_by != "signal" else "release"
            calls.finish(partial(self.session.sessions.leave, self.session, event))

    def _fail(self, attempt: Attempt) -> None:
        calls, failures = self.attempts.calls, self.attempts.failures
        found = calls.finish(partial(calls.moves.look, attempt.taken.parts))
        if found is None or (attempt.taken.token and found[0][-1] != attempt.taken.token):
            return  # it has ended, and the process just afterwards
        attempt.task = calls.moves.tasks.returned(found[0], attempt.taken.token)
        if self.killed_by == "timeout":
            late = TimeoutError(f"the function runs for longer than {self._timeout:g} s")
            attempt.why = str(late)
            failures.failed(attempt, late)
        elif not self.killed_by:
            failures.died(attempt, self.cause)


class Processes:
    """The worker processes of a program."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._signals: list[str] = []
        self._stop = threading.Event()  # set by the first signal
        self._woken, self._waker = multiprocessing.Pipe(duplex=False)  # by a signal

    def run(self, launches: Sequence[Launch]) -> str:
        """Start a child for each launch, until all have ended. Return the name of the signal that ended them, or "".

        Raises Error after too many crashes, SystemExit after a second signal.
        """
        with handled_by(self._signalled):
            try:
                for launch in launches:
                    self._start(launch)
                while self._children:
                    self._wait()
                    for child in list(self._children):
                        self._look_at(child)
            except BaseException:
                for child in self._children:
                    child.kill("signal")
                for child in self._children:
                    child.settle()
                raise
        if len(self._signals) > 1:
            exit_by(self._signals[1])
        return self._signals[0] if self._signals else ""

    def _wait(self) -> None:
        now = time.monotonic()
        seconds = min(min(child.pause, child.ends_at - now) for child in self._children)
        signs = [sign for child in self._children for sign in (child.process.sentinel, child.got)]
        if self._woken in wait([self._woken, *signs], max(0.0, seconds)):
            self._woken.recv_bytes()

    def _look_at(self, child: Child) -> None:
        if not child.process.is_alive():
            self._ended(child)
            return
        child.look()
        signals = max(len(self._signals), child.signals())
        if why := child.must_end(signals):
            child.kill(why)
            return
        try:
            if signals and not child.ending:
                child.end(self._signals[0] if self._signals else "a signal to this process alone")
            child.keep()
        except NotInstalled:
            raise
        except Exception as error:  # of the database, on which the children wait as well
            log.debug("worker process %d: %s", child.process.pid, error)

    def _ended(self, child: Child) -> None:
        self._children.remove(child)
        begun, code = child.settle(), child.process.exitcode
        if self._signals or (code == 0 and not child.ending):
            return
        if code == UNFIT:
            raise ConfigurationError("a worker process cannot be set up: the log has the reason")
        if not (child.killed_by or child.ending):
            had = f"; it had begun {', '.join(f'task {key}' for key in begun)}" if begun else ""
            log.error("worker process %d is replaced: %s%s", child.process.pid, child.cause, had)
            if not begun:
                self._crashes.append(time.monotonic())
            if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] < WITHIN:
                raise Error(f"worker processes have crashed {CRASHES} times within {WITHIN:g} s: see the log for why")
        self._start(child.launch)

    def _start(self, launch: Launch) -> None:
        """Start a child, unless the program ends. No signal is handled before it is known, nor in it as here."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            with ExitStack() as quiet:  # no heartbeat is within the database during a fork
                for child in self._children:
                    quiet.enter_context(child.attempts.heart.lock)
                if not self._signals:
                    self._children.append(Child(launch, self._stop))
                    for child in self._children:
                        child.pass_over()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _signalled(self, name: str, again: bool) -> None:
        self._signals.append(name)
        self._stop.set()
        self._waker.send_bytes(b"signal")
