"""Run workers until a signal comes, or until no task is ready: in this process, or in processes of their own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from xq.core.ending import Late, left, within
from xq.core.errors import BadType, BadValue, ConfigurationError, InTransaction, shown
from xq.core.machine import READY, TAKEN
from xq.core.values import Key
from xq.database.callers import begun
from xq.database.database import Database
from xq.database.process import this_process
from xq.runtime.lease import Heartbeat
from xq.workers.child import LOST, InHand, SharedMemory
from xq.workers.coroutines import Coroutines
from xq.workers.options import USUAL, Options
from xq.workers.pool import Assignment, Budget, Pool, Program
from xq.workers.processes import Processes, exit_by, handled_by
from xq.workers.threads import ProcessThreads, Threads
from xq.workers.worker import POLL_EVERY, TaskSource, WorkedQueue, Worker, as_it_is, is_async

log = logging.getLogger("xq")
ENDLESS = "%s retries a failing task for ever: give it max_attempts=5 (it needs the role attempts, the feature buried)"
KINDS: Final[Mapping[str, type[Pool]]] = {"thread": Threads, "process": ProcessThreads, "asyncio": Coroutines}


def worker_of(
    queue: WorkedQueue, function: Any, options: Options, given: Callable[[Any], Any] = as_it_is
) -> Worker[Any]:
    """Return a worker whose function gets what `given` returns for a task. Raises ConfigurationError."""
    function = function.function if isinstance(function, Worker) else function
    return Worker(queue, function, checked(queue, function, options), run, given)


def add_worker(queue: WorkedQueue, function: Any, options: Options, given: Callable[[Any], Any] = as_it_is) -> Any:
    """Make a function a worker that its queue knows; without one, return a decorator. Raises ConfigurationError."""
    if function is None:
        return lambda function: add_worker(queue, function, options, given)
    made = worker_of(queue, function, options, given)
    tube = options.tube
    if (there := queue.handlers.get(tube)) is not None:
        raise ConfigurationError(
            f"{there} works on {'the tasks of this queue' if tube is None else f'the tube {tube!r}'} already: "
            "give each function a tube of its own, as in @Page.xq.worker(tube='mail')"
        )
    queue.handlers[tube] = made
    return made


def checked(queue: WorkedQueue, function: Any, options: Options) -> Options:
    """Return the options for a function, an `async def` with its kind. Raises ConfigurationError."""
    if not callable(function):
        raise ConfigurationError(f"a worker of {queue.name} is a function of a task, not {shown(function)}")
    if options.kind not in [*KINDS]:
        raise ConfigurationError(f"kind is one of {', '.join(KINDS)}, not {shown(options.kind)}")
    tube = queue.parts.tasks.tube(options.tube, "worker(tube=)")
    _check_arguments(function, options.session is not None)
    machine = queue.machine
    attempts = [] if "attempts" in machine.roles else ["the role 'attempts' (fields={'attempts': True}, or a field)"]
    lacking = attempts + ([] if machine.sources("bury") else ["the feature 'buried' (features={'buried': True})"])
    if options.max_attempts and lacking:
        raise ConfigurationError(f"max_attempts of {queue.name} needs {' and '.join(lacking)}")
    awaits = is_async(function)
    kind = KINDS[name := "asyncio" if awaits and options.kind == USUAL.kind else options.kind]
    if awaits and not kind.awaits:
        raise ConfigurationError('an async def is of kind="asyncio": for more processes run the program again')
    if kind.awaits and not awaits:
        raise ConfigurationError('a worker of kind="asyncio" is an async def')
    kind.check(options)
    prefetch = 1 if options.max_attempts == 1 else options.prefetch  # as Attempts.keep decides
    return replace(options, kind=name, prefetch=prefetch, tube=tube)


def _check_arguments(function: Callable[..., Any], session: bool) -> None:
    """Raise ConfigurationError unless a function can be called with its arguments, as far as its signature is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a built-in function
        return
    try:
        signature.bind(None, *[None] * session)
    except TypeError as error:
        name = getattr(function, "__name__", function)
        raise ConfigurationError(
            f"a worker's function gets the task, or a batch of tasks{', and the session' * session}: {name}{signature} "
            f"cannot be called so ({error})"
        ) from error


def assignments_of(queue: WorkedQueue, workers: int | None, tubes: Sequence[str] | None) -> list[Assignment]:
    """Return assignments for all workers that a queue knows, or for those on `tubes`. Raises as `assignment_of`."""
    found, named = queue.handlers, tubes if isinstance(tubes, (list, tuple)) else ()
    own = [*found] if tubes is None else [tube for tube in named if tube in [*found]]
    assignments = [assignment_of(found[tube], workers, None) for tube in own]
    others = [tube for tube in tubes if tube not in own] if own and tubes else tubes
    if own and not others:
        return assignments
    if None not in found:
        of = f" for {', '.join(map(repr, others))}" if found and others else ""
        raise ConfigurationError(
            f"{queue.name} has no worker{of}: upgrade(..., worker=f), or @{queue.name}.xq.worker()"
        )
    return [*assignments, assignment_of(found[None], workers, others)]


def assignment_of(worker: Worker[Any], workers: int | None, tubes: Sequence[str] | None) -> Assignment:
    """Return a worker's assignment. Raises ConfigurationError, InTransaction, BadType and UnknownTube."""
    queue, store = worker.queue, worker.store
    if store.in_transaction():
        raise InTransaction(
            "run",
            ": its threads see nothing of it. In a test, xq.testing.run_pending calls a worker within the transaction; "
            "and Django's TransactionTestCase has none, as TestCase has",
        )
    if isinstance(tubes, str) or not (tubes is None or isinstance(tubes, Sequence)):
        raise BadType(f"tubes is a list of names of tubes, not {shown(tubes)}")
    if tubes is not None and not tubes:
        raise BadValue("tubes is empty: name the tubes to take from, or leave it out for all")
    own = worker.options.tube
    named = [own] if tubes is None else [queue.parts.tasks.tube(tube) for tube in tubes]
    if own is not None and named != [own]:
        raise BadValue(f"{worker} takes from the tube {own!r} only, not from {', '.join(map(repr, named))}")
    options = worker.options if workers is None else replace(worker.options, workers=workers)
    kind = KINDS[options.kind]
    kind.check(options)
    assignment = Assignment(worker, [source_of(worker, tube) for tube in named], options, kind)
    store.check_session(options.session, bool(worker._around))
    if store.no_threads:
        raise ConfigurationError(f"workers run in threads, and {store.name} is {store.no_threads}")
    threads = 1 if kind.awaits else assignment.size
    if not store.has_threads and threads > 1:
        raise ConfigurationError(
            f"{threads} threads of {store.name} cannot work on one connection "
            "(thread_safe=False): let one work, or give each a connection of its own (thread_safe=True)"
        )
    if not store.has_threads and kind.forks:
        raise ConfigurationError(f"processes cannot share the one connection of {store.name} (thread_safe=False)")
    return assignment


def source_of(worker: Worker[Any], tube: str | None) -> TaskSource:
    """Return where a worker takes from: without a tube, from all that have no function of their own."""
    others = worker.queue.handlers if tube is None else ()
    return TaskSource(tube, tuple(sorted(each for each in others if each is not None)))


def run(*workers: Worker[Any], until_empty: bool = False, max_tasks: int | None = None) -> None:
    """Run these workers in one program until SIGTERM or SIGINT, or with `until_empty` until no task is ready.

    With `max_tasks` the program ends after that many tasks in total.
    """
    if not workers:
        raise ConfigurationError("xq.run needs workers: xq.run(fetch, send)")
    for worker in workers:
        if not isinstance(worker, Worker):
            raise BadType(f"a worker is what @Page.xq.worker makes of a function, not {shown(worker)}")
    run_assignments([assignment_of(worker, None, None) for worker in workers], until_empty, max_tasks)


def run_assignments(assignments: Sequence[Assignment], until_empty: bool, max_tasks: int | None = None) -> None:
    """Run assignments until they end. Raises ConfigurationError for a `max_tasks` that is no number from 1 on."""
    budget = Budget(max_tasks)
    with _shown_log():
        if any(assignment.kind.forks for assignment in assignments):
            parts = [part for assignment in assignments for part in _parts(assignment)]
            _begin(assignments, until_empty)
            why = Processes(parts, run_child, until_empty, max_tasks).run()
            log.info("the workers have ended: %s", why or _end_of(assignments, until_empty, budget))
            return
        running = Running(assignments, Program(until_empty, budget))

        def handle(name: str, again: bool) -> None:
            if again:
                left(ends=True)
            running.stop(name)
            if again:
                exit_by(name)

        with handled_by(handle):
            running._work()
            running.join()


def start_assignments(
    assignments: Sequence[Assignment],
    until_empty: bool = False,
    max_tasks: int | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Running:
    """Run assignments in threads, or in an event loop, beside the caller. Raises as `run_assignments`."""
    if any(assignment.kind.forks for assignment in assignments):
        raise ConfigurationError(
            'workers of kind="process" need a program of their own: run() or the command xq worker'
        )
    running = Running(assignments, Program(until_empty, Budget(max_tasks), loop))
    running._thread.start()
    return running


@contextmanager
def _shown_log() -> Iterator[None]:
    """Show the log on stderr within the block if the program has set up no logging."""
    if log.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), log.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _begin(assignments: Sequence[Assignment], until_empty: bool, tells: bool = True) -> None:
    """Log what starts. Let the first take store declared schedules, and fire what is due before an end."""
    for assignment in assignments:
        schedules, log = assignment.worker.waiting.maintenance.schedules, assignment.worker.moves.log
        schedules.pending = until_empty or schedules.declared is not None
        if tells:
            log.info("working on %s", assignment)
        if tells and assignment.worker.is_endless:
            log.warning(ENDLESS, assignment.worker)


def _end_of(assignments: Sequence[Assignment], until_empty: bool, budget: Budget) -> str:
    """Return why workers have ended that no signal and no error has ended."""
    if not budget.left:
        return "max_tasks were taken"
    if not until_empty:
        return "max_tasks were taken" if budget.is_limited else "their functions have called sys.exit(0)"
    waiting = 0
    for queue in {assignment.worker.queue.name: assignment.worker.queue for assignment in assignments}.values():
        for state in {*queue.machine.pending} - {READY, TAKEN}:
            with queue.parts.store.briefly_connected():
                waiting += queue.count(state)
    return f"no task is ready, and {waiting} wait for their time" if waiting else "no task is ready"


def _parts(assignment: Assignment) -> list[Assignment]:
    """Return an assignment for each process."""
    if not assignment.kind.forks:
        return [assignment]
    single, sources = replace(assignment.options, workers=1), [*assignment.sources] * assignment.options.workers
    return [replace(assignment, sources=[source], options=single) for source in sources]


def _log_sessions(assignments: Sequence[Assignment]) -> None:
    """Log the sessions by which this process takes: the history names them as owners."""
    found = [assignment.worker.moves.executor.sessions for assignment in assignments]
    here = this_process()
    for uuid in dict.fromkeys(its.own().uuid for its in found if its is not None):
        log.debug("the session of pid %s on host %s (%s) is %s", here["pid"], here["host"], here["program"], uuid)


def run_child(part: Assignment, until_empty: bool, max_tasks: int | None, shared: SharedMemory) -> None:
    """Run a part in a worker process."""
    database, parent = Database.of(part.worker.store), multiprocessing.parent_process()
    database.supervised, mine = True, database.sessions
    mine.of_process = own = mine.named(shared.session)
    mine.new = partial(os._exit, LOST)  # type: ignore[method-assign]  # the parent cannot act in another session
    lost = lambda: own.closed or not (parent and parent.is_alive())  # noqa: E731
    heart = partial(InHand, shared) if shared.numbers else Heartbeat
    running = Running([part], Program(until_empty, Budget(max_tasks), heart=heart, is_child=True, has_lost_parent=lost))
    threading.Thread(target=running._obey, args=(shared.orders,), name="xq orders", daemon=True).start()
    running._ended.add_done_callback(lambda _: running._program.in_main.put(None))
    with _shown_log():
        running._thread.start()
        while (call := running._program.in_main.get()) is not None:
            contextvars.Context().run(call)  # as in a thread of its own
        running.join()


class Running:
    """The workers that `Page.xq.start()` runs beside the rest of the program."""

    def __init__(self, assignments: Sequence[Assignment], program: Program) -> None:
        self._log = assignments[0].worker.moves.log
        self._assignments = assignments
        self._why = ""
        self._stops = itertools.count()
        self._program = program
        _log_sessions(assignments)
        self._pools = [assignment.kind(assignment, program) for assignment in assignments]
        self._process = os.getpid()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, name="xq workers", daemon=True)

    def __repr__(self) -> str:
        return f"<workers of {', '.join(dict.fromkeys(each.worker.queue.name for each in self._assignments))}>"

    def stop(self, why: str = "stop() was called") -> None:
        """End the workers. Their functions finish; a second call releases the tasks of those still running.

        It does not wait: see `join`. `why` stands in the log. Does nothing in a process forked after the start:
        the workers go on in the one that started them.
        """
        if os.getpid() != self._process:
            return
        if not next(self._stops):
            self._end(why)
            return
        try:
            with within(left()):
                for pool in self._pools:
                    pool.release_all()
        except Late as error:
            self._program.stop.note(self._log, error)

    def _end(self, why: str) -> None:
        if not self._program.stop.is_set():
            self._why = why
            self._program.stop.set()
            self._log.info("%s: the workers finish their tasks and end; a second time releases the tasks", why)

    def _lose(self, token: str | None) -> None:
        for lease in [lease for pool in self._pools for lease in list(pool.attempts.heart.leases)]:
            if any(attempt.is_open and attempt.taken.token == token for attempt in lease.taken):
                lease.lose()

    def _pass_over(self, parts: Key) -> None:
        self._assignments[0].worker.waiting.takes.unmovable.pass_over(parts)

    def _obey(self, orders: Connection) -> None:
        with suppress(EOFError, OSError):  # the parent has ended
            while True:
                name, *arguments = orders.recv()
                getattr(self, name)(*arguments)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the workers have ended, up to `timeout` seconds. Returns whether they have.

        Raises the error that has ended one of them, for example NotInstalled; and ConfigurationError in a process
        forked while they ran: there are none.
        """
        if os.getpid() != self._process and not self._ended.done():
            raise ConfigurationError(f"{self!r} run in process {self._process}: call start() after the fork, here")
        wait([self._ended], timeout)
        if self._ended.done() and self._program.errors:
            raise self._program.errors[0]
        return self._ended.done()

    async def joined(self) -> None:
        """Wait as `join` does, in asyncio. A cancellation calls `stop`, and waits; a second one releases the tasks."""
        self.join(0)  # raises in a fork
        ended = asyncio.wrap_future(self._ended)
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            self.stop("their coroutine was cancelled")
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                await asyncio.wait([asyncio.wrap_future(begun(self.stop))], timeout=left())
            raise
        self.join()

    def _work(self) -> None:
        program, given = self._program, self._assignments
        try:
            _begin(given, program.until_empty, tells=not program.is_child)
            ended = threading.Event()
            stopped = threading.Thread(target=self._stopped, args=(ended,), name="xq stop", daemon=True)
            stopped.start()
            for pool in self._pools:
                pool.start()
            while running := [pool for pool in self._pools if pool.alive]:
                running[0].join(POLL_EVERY)  # a join without a timeout would block the signal handlers
                if program.has_lost_parent():
                    os._exit(LOST)
            program.stop.set()  # for `stopped`
            ended.set()
            stopped.join()
            for pool in self._pools:
                pool.close()
            if not program.is_child:
                error = "an error" if program.errors else ""
                why = self._why or error or _end_of(given, program.until_empty, program.budget)
                self._log.info("the workers have ended: %s", why)
        except Exception as error:
            program.errors.append(error)
            raise
        finally:
            self._ended.set_result(None)

    def _stopped(self, ended: threading.Event) -> None:
        """Wake what waits for tasks once the program is to end, and uncount what runs then, until it is late."""
        self._program.stop.wait()
        for pool in self._pools:
            pool.stopped()
        while not ended.wait(POLL_EVERY):
            for pool in self._pools:
                pool.attempts.count_late()
