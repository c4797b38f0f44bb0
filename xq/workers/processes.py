"""The parent: it starts worker processes, touches their tasks, and ends and replaces them."""

from __future__ import annotations

import atexit
import contextvars
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
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any, NoReturn

from xq.core import time
from xq.core.ending import GRACE, Late, left
from xq.core.errors import ConfigurationError, Error, NotInstalled, in_line
from xq.core.machine import TAKEN
from xq.core.values import Key, Taken
from xq.database.database import Database
from xq.workers.attempt import Attempt, Stop, WorkerJob
from xq.workers.attempts import Attempts
from xq.workers.child import FORKED, LOST, PASSED_ON, RETURNED, RUNS, UNFIT, Launch, SharedMemory, ToParent, program_of
from xq.workers.outcomes import ProcessDied
from xq.workers.pool import Assignment
from xq.workers.worker import POLL_EVERY

log = logging.getLogger("xq")

LONGEST_KEY, OTHERS = 4096, 256  # bytes in shared memory: a task has less; each other in a batch
KILLED = {  # why the parent kills a process
    "signal": "by a second signal: what it works on is released",
    "timeout": "as its function runs past its timeout",
    "cancel": "as its task was cancelled",
    "lost": "as its session was lost, and others may have its tasks",
}
WAITS = (
    "worker processes that wait to be forked: %d. A fork waits until on_failure, on_buried and the database have "
    "returned for those that have ended, and one of these has not for %g s"
)
CRASHES, WITHIN = 10, 60.0  # so many crashes without a task within so many seconds end the program


@contextmanager
def handled_by(handle: Callable[[str, bool], object]) -> Iterator[None]:
    """Call `handle` with the name of a SIGTERM, SIGINT or SIGHUP within the block, and with whether it is the second.

    Only the main thread can: another ignores it. A third signal is ignored: it would interrupt the release of the
    tasks, or the end of the program. A SIGHUP is never the second one: a terminal that closes may send several. One
    that the program ignores, as under nohup, stays ignored. A process that is forked within the block, by the function
    of a worker, is ended by them as without it. A second one that comes after the block ends the program with status 0.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, signals, is_over = os.getpid(), list[int](), threading.Event()

    def handled(number: int, frame: Any) -> None:
        if os.getpid() != here:
            signal.signal(number, before[number] or signal.SIG_DFL)
            signal.raise_signal(number)
            return
        if number == signal.SIGHUP and signals:
            return
        if again := bool(signals):
            for each in PASSED_ON:
                signal.signal(each, signal.SIG_IGN)
        if again and is_over.is_set():
            if threading.main_thread().is_alive():  # else the program is ending
                raise SystemExit(0)
            return
        signals.append(number)
        handle(signal.Signals(number).name, again)

    taken = [each for each in PASSED_ON if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, handled) for number in taken}
    try:
        yield
    finally:
        is_over.set()
        for number, handler in before.items():
            ends = signals and handler in (signal.SIG_DFL, signal.default_int_handler)
            if ends:
                atexit.register(signal.signal, number, signal.SIG_IGN)  # Python's end resets a handler, but not this
            elif signal.getsignal(number) is handled:  # else they are ignored
                signal.signal(number, handler)


def exit_by(name: str) -> NoReturn:
    """End the program after a second signal."""
    log.info("the workers have ended: %s, for the second time: the tasks that ran are released", name)
    raise SystemExit(0)


class Child:
    """A worker process, and what this one, its parent, leases for it."""

    def __init__(self, launch: Launch, stop: Stop) -> None:
        worker, options = launch.part.worker, launch.part.options
        self.launch = launch
        self.worker = worker
        self.session = Database.of(worker.store).sessions.named(str(uuid.uuid4()))
        self.session.sessions.leaving.add(self.session.uuid)  # the reaper here leaves it to `clean_up`
        self._context = contextvars.copy_context()  # in which its session is the current one, so that it may move tasks
        self._context.run(self.session.note, joined=False)
        self.attempts: Attempts[Any] = self._context.run(lambda: Attempts(worker, stop))
        self._timeout = math.inf if options.timeout is None else options.timeout
        self.pause = min(POLL_EVERY, self._timeout / 4, (self.attempts.ttr or math.inf) / 4)
        self.ends_at = math.inf  # the monotonic time at which a function must have returned
        self.killed_by = ""  # one of KILLED
        self.ending = False  # whether it was told to end
        self.told = False  # whether operators see that
        self.work: threading.Thread | None = None  # by which the parent calls the database for it
        self._signals = 0  # that this process alone got
        self._passed = set[Key]()  # the tasks that it was told to leave out
        self._jobs: dict[int, WorkerJob] = {}  # by its number

        orders, self._orders = multiprocessing.Pipe(duplex=False)
        self.got, signals = multiprocessing.Pipe(duplex=False)
        read, records = multiprocessing.Pipe(duplex=False)
        self._log = threading.Thread(target=ToParent.handle_all, args=(read,), name="xq log", daemon=True)
        # Of what is acked just now, as well.
        n, size = 2 * options.prefetch + 2, LONGEST_KEY + OTHERS * (options.batch or 0)
        arrays = {"q": n, "d": n, "b": n, "c": n * size} if launch.part.kind.forks else {}
        memory: list[Any] = [launch.context.RawArray(*each) for each in arrays.items()]
        told = ToParent.levels(), self.session.uuid, program_of(os.getpid())
        self._shared = SharedMemory(orders, signals, records, *told, size, *memory)
        self.process = launch.process(self._shared)
        self.process.start()
        self._pid: Any = self.process.pid  # and that of its group
        for theirs in (orders, signals, records):
            theirs.close()
        self._log.start()

    # what the child has

    def look(self) -> None:
        """Lease what the child has in hand: the heartbeat touches it from now on."""
        found, heart = self._shared.read(), self.attempts.heart
        heart.remove(*[self._jobs.pop(number) for number in self._jobs.keys() - found.keys()])
        for number, (started_at, end, tasks) in found.items():
            if (job := self._jobs.get(number)) is None:
                ttr, timeout, taken = pickle.loads(tasks)
                attempts = [Attempt(None, Taken(parts, token), nth) for parts, token, nth in taken]
                job = self._jobs[number] = WorkerJob(heart, None, attempts, ttr, attempts[0].number)
                job.timeout = self._timeout if timeout is None else timeout
                job.on_loss = partial(self._lost, job)
                self._context.run(heart.add, job)
            job.started_at, job.end = started_at, end
        self.ends_at = min((each.started_at + each.timeout for each in self._running), default=math.inf)

    @property
    def _running(self) -> list[WorkerJob]:
        return [job for job in self._jobs.values() if job.begun and job.end == RUNS]

    @property
    def is_kept(self) -> bool:
        held = self.worker.waiting.maintenance.maintained is not None and (self.session.live or self.session.closed)
        return held and self.told == self.ending

    def keep(self) -> None:
        """Hold the session of the child, so that no other process reaps the tasks that this one has to fail."""
        records, told = self.session.sessions.records, self.ending
        with self.worker.store.briefly_connected():
            self.worker.waiting.maintenance.attend()
            self.session.acquire()
            if told and not self.told:
                self._context.copy().run(self.attempts.uncount)
                records.describe(self.session.uuid, program_of(os.getpid(), ending=True))
        self.told = told

    def signals(self) -> int:
        """Return how many signals this process alone has got."""
        while self.got.poll() and (got := os.read(self.got.fileno(), 64)):
            for number in got:
                self._signals += number in PASSED_ON and not (number == signal.SIGHUP and self._signals)
        return self._signals

    # what the parent does with it

    def end(self, why: str) -> None:
        """Let its function finish, and no more."""
        self.ending = True
        self._order("_end", why)

    def pass_over(self) -> None:
        """Let it leave out the tasks at which too many processes have died."""
        passed = self.worker.waiting.takes.unmovable.passed
        for parts in {*passed} - self._passed:  # each once: else the pipe may get full
            self._passed.add(parts)
            self._order("_pass_over", parts)

    def kill(self, why: str) -> None:
        if not self.killed_by:
            log.warning("worker process %d is killed %s", self.process.pid, KILLED[why])
        self.killed_by = self.killed_by or why
        self._kill_group()
        self.process.kill()  # it may not lead its group yet

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    def _lost(self, job: WorkerJob) -> None:
        if not job.cancelled:  # which the process notices by itself
            self._order("_lose", job.taken[0].taken.token)

    def must_end(self, signals: int) -> str:
        """Return why to kill it now, or ""."""
        if signals > 1 or self.session.closed:
            return "signal" if signals > 1 else "lost"
        late = "timeout" if time.monotonic() >= self.ends_at else ""
        return "cancel" if any(job.cancelled for job in self._running) else late

    def _order(self, *call: object) -> None:
        with suppress(OSError):  # it has just ended
            self._orders.send(call)

    @property
    def cause(self) -> str:
        """Why it has ended, in words."""
        code = self.process.exitcode or 0
        if code == LOST:
            return "ended as its session was lost"
        name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
        return f"killed by {name}" if code < 0 else f"ended with exit code {code}"

    @property
    def begun(self) -> list[str]:
        """The keys of the tasks that its function was called with."""
        begun, key = [job for job in self._jobs.values() if job.begun], self.attempts.calls.key
        return [key(attempt.taken) for job in begun for attempt in job.taken]

    def clean_up(self) -> None:
        """Fail the tasks that it had begun, and give back the others."""
        self._kill_group()  # before another process begins with its tasks
        with suppress(ChildProcessError):  # as the first process of a container this one has inherited the others
            while True:
                os.waitpid(-self._pid, 0)
        self._log.join(GRACE)  # what it has logged comes before what is logged of its end
        if self.work is not None:
            self.work.join()  # else `keep` may hold the session again between its release and its end, for good
        try:
            self._context.copy().run(self._clean_up)
        except Exception as error:
            told = "the tasks of worker process %d come back when its session has ended: %s"
            if (stop := self.attempts.calls.stop).is_set() and self.worker.store.may_pass(error):
                stop.note(log, error)
            else:
                log.warning(told, self.process.pid, in_line(error))
            self.session.release()  # else it does not end as long as this process lives
        finally:
            self.session.sessions.leaving.discard(self.session.uuid)
            self.attempts.heart.end()

    def _clean_up(self) -> None:
        attempts, calls = self.attempts, self.attempts.calls
        with self.worker.store.briefly_connected():
            for job in self._jobs.values():
                returned = job.end == RETURNED
                if job.cancelled and job.begun and not returned:
                    attempts._log_done(job, *job.taken)
                elif returned:
                    attempts.end_each([job])  # its process may have had its row locked, just now
                for attempt in () if job.is_lost or returned else job.taken:
                    if job.begun and self.killed_by != "signal":
                        self._fail(attempt, job)
                    else:
                        if attempts._give_back(attempt, called=False) is not None and job.begun:
                            log.warning("released task %s, which was being worked on", calls.key(attempt.taken))
                attempts.heart.remove(job)  # only now: a function that is called after a failure may take long
            self.session.release()
            event = "died" if self.process.exitcode and self.killed_by != "signal" else "release"
            calls.finish(partial(self.session.sessions.leave, self.session, event))

    def _fail(self, attempt: Attempt, job: WorkerJob) -> None:
        if self.killed_by not in ("", "timeout"):
            return
        calls, failures = self.attempts.calls, self.attempts.failures
        found = calls.finish(partial(calls.moves.look, attempt.taken.parts))
        if found is None or found[1] != TAKEN or (attempt.taken.token and found[0][-1] != attempt.taken.token):
            return  # it has ended, and the process just afterwards
        attempt.task = calls.moves.tasks.returned(found[0], attempt.taken.token)
        attempt.number = int(calls.moves.tasks.in_role(attempt.task, "attempts") or 0)  # a step has set it back
        is_late = self.killed_by and time.monotonic() >= job.started_at + job.timeout
        late = f"the function runs for longer than {job.timeout:g} s" if is_late else ""
        error = TimeoutError(late) if late else ProcessDied(f"the worker process has died: {self.cause}")
        if self.worker.ended(attempt.task, error, partial(self.attempts._finish_now, attempt)):
            attempt.finished = "bury"
            self.attempts._log_done(job, attempt)
        elif late:
            attempt.why = late
            failures.failed(attempt, error)
        else:
            failures.died(attempt, self.cause)
        self.worker.counted(attempt.task, "failed")


class Processes:
    """A child for each of `parts`. The loop calls neither the database nor the application: threads beside it do."""

    def __init__(self, parts: Sequence[Assignment], *run: Any) -> None:
        self._due = [Launch(part, *run) for part in parts]  # to be started
        if forked := dict.fromkeys(each.why for each in self._due if each.why):
            log.warning(FORKED, "; ".join(forked))
        self._children: list[Child] = []
        self._work: list[threading.Thread] = []
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._signals: list[str] = []
        self._error: Exception | None = None  # that ends the program
        self._tells_at = math.inf  # the monotonic time at which the log says that a fork still waits
        self._stop = Stop()  # set by the first signal
        self._woken, self._waker = multiprocessing.Pipe(duplex=False)  # by a signal, or by a thread that ends
        os.set_blocking(self._waker.fileno(), False)

    def run(self) -> str:
        """Run until all children have ended. Return the name of the signal that has ended them, or "".

        Raises Error after too many crashes, SystemExit after a second signal.
        """
        with handled_by(self._signalled):
            try:
                while self._due or self._children or self._works:
                    self._start_due()
                    self._wait()
                    for child in list(self._children):
                        self._look_at(child)
            except BaseException:
                for child in self._children:
                    child.kill("signal")
                    child.attempts.heart.end()
                raise
        if self._error is not None:
            raise self._error
        if len(self._signals) > 1:
            if self._work:
                self._stop.note(log, Late("it does not answer"))
            exit_by(self._signals[1])
        return self._signals[0] if self._signals else ""

    @property
    def _works(self) -> bool:
        """Whether threads call the database, and are waited for."""
        self._work = [each for each in self._work if each.is_alive()]
        return bool(self._work) and (len(self._signals) < 2 or left() > 0)

    def _wait(self) -> None:
        now = time.monotonic()
        seconds = min((min(child.pause, child.ends_at - now) for child in self._children), default=POLL_EVERY)
        signs = [sign for child in self._children for sign in (child.process.sentinel, child.got)]
        if self._woken in wait([self._woken, *signs], max(0.0, seconds)):
            os.read(self._woken.fileno(), 1024)

    def _look_at(self, child: Child) -> None:
        is_alive = child.process.is_alive()
        child.look()
        if not is_alive:
            self._ended(child)
            return
        signals = max(len(self._signals), child.signals(), 1 if self._error else 0)
        if why := child.must_end(signals):
            child.kill(why)
            return
        child.pass_over()
        if signals and not child.ending:
            child.end([*self._signals, "an error" if self._error else "a signal to this process alone"][0])
        if not child.is_kept and not (child.work and child.work.is_alive()):
            child.work = self._beside(child.keep)

    def _beside(self, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except NotInstalled as error:
                self._error = self._error or error
            except Exception as error:  # the database fails, and the children wait, too
                log.debug("a worker process cannot be attended: %s", error)
            os.write(self._waker.fileno(), b"\0")

        self._work.append(thread := threading.Thread(target=run, name="xq children", daemon=True))
        thread.start()
        return thread

    def _ended(self, child: Child) -> None:
        self._children.remove(child)
        self._beside(child.clean_up)
        begun, code = child.begun, child.process.exitcode
        if self._signals or self._error or (code == 0 and not child.ending and not begun):
            return
        if code == UNFIT:
            self._error = ConfigurationError("a worker process cannot be set up: the log has the reason")
            return
        if not (child.killed_by or child.ending):
            had = f"; it had begun {', '.join(f'task {key}' for key in begun)}" if begun else ""
            level = logging.WARNING if code == LOST else logging.ERROR
            log.log(level, "worker process %d is replaced: %s%s", child.process.pid, child.cause, had)
            if not begun and code != LOST:
                self._crashes.append(time.monotonic())
            if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] < WITHIN:
                told = f"worker processes have crashed {CRASHES} times within {WITHIN:g} s: see the log for why"
                self._error = Error(told)
                return
        self._tells_at = time.monotonic() + GRACE
        self._due.append(child.launch)

    def _start_due(self) -> None:
        """Start what is due, unless the program ends. No signal is handled before a child is known, nor in it as here.

        A fork waits until no thread of xq is within the database.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            while self._due and not (self._signals or self._error):
                with ExitStack() as locks:
                    for child in self._children if self._due[0].why else ():
                        if not child.attempts.heart.lock.acquire(blocking=False):
                            return
                        locks.callback(child.attempts.heart.lock.release)
                    if self._due[0].why and self._works:
                        if time.monotonic() >= self._tells_at:
                            self._tells_at = math.inf
                            log.warning(WAITS, len(self._due), GRACE)
                        return
                    self._children.append(Child(self._due.pop(0), self._stop))
                    self._children[-1].pass_over()
            if self._signals or self._error:
                self._due.clear()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _signalled(self, name: str, again: bool) -> None:
        self._signals.append(name)
        self._stop.set()
        if again:
            left(ends=True)
        os.write(self._waker.fileno(), b"\0")
