"""Run workers until a signal comes, or until no task is ready: in this process, or in processes of their own."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from xq.core.errors import BadType, BadValue, ConfigurationError, InTransaction, shown
from xq.runtime.workers.coroutines import Coroutines
from xq.runtime.workers.processes import PASSED_ON, Processes, Shared, handled_by
from xq.runtime.workers.threads import LISTEN, Budget, Pool, Program, Source, Threads
from xq.runtime.workers.worker import Options, Worker
from xq.sessions.process import this_process

if TYPE_CHECKING:
    from xq.handle import Queue

log = logging.getLogger("xq")


@dataclass(frozen=True)
class Job:
    """A worker, where it takes its tasks from, and its options in this program."""

    worker: Worker[Any]
    sources: Sequence[Source[Any]]
    options: Options

    @property
    def size(self) -> int:
        """How many functions run at a time."""
        return self.options.workers * len(self.sources)

    def pool(self, program: Program, shared: Shared | None) -> Pool[Any]:
        queue, kind = self.worker.queue, self.options.kind
        own = shared.deadline if shared is not None and kind == "process" else None
        make: Callable[..., Pool[Any]] = Coroutines if kind == "asyncio" else partial(Threads, deadline=own)
        return make(self.worker, self.sources, lambda: queue.adapter.finish, program, self.options.workers)


def jobs_of(queue: Queue[Any], workers: int | None, tubes: Sequence[str] | None) -> list[Job]:
    """Return the jobs of all workers of a queue; with `tubes`, of those that work on these. Raises as `job_of`."""
    found = queue.handlers
    if tubes is None and found:
        return [job_of(each, workers, None) for each in found.values()]
    own = [tube for tube in tubes if tube in [*found]] if isinstance(tubes, (list, tuple)) else []
    jobs = [job_of(found[tube], workers, None) for tube in own]
    others = [tube for tube in tubes if tube not in own] if own and tubes else tubes
    if own and not others:
        return jobs
    if None not in found:
        of = f" for {', '.join(map(repr, others))}" if found and others else ""
        raise ConfigurationError(
            f"{queue.name} has no worker{of}: upgrade(..., worker=f), or @{queue.name}.xq.worker()"
        )
    return [*jobs, job_of(found[None], workers, others)]


def job_of(worker: Worker[Any], workers: int | None, tubes: Sequence[str] | None) -> Job:
    """Return the job of a worker. Raises ConfigurationError, InTransaction, BadType and UnknownTube."""
    queue, store = worker.queue, worker.queue.adapter.store
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
    named = [own] if tubes is None else [queue.adapter.tube(tube) for tube in tubes]
    if own is not None and named != [own]:
        raise BadValue(f"{worker} takes from the tube {own!r} only, not from {', '.join(map(repr, named))}")
    options = worker.options if workers is None else replace(worker.options, workers=workers)
    job = Job(worker, [source_of(worker, tube) for tube in named], options.checked(queue, worker.function))
    if store.no_threads:
        raise ConfigurationError(f"workers run in threads, and {store.name} is {store.no_threads}")
    if not store.has_threads:
        _check_one_connection(job, store.name)
    return job


def source_of(worker: Worker[Any], tube: str | None) -> Source[Any]:
    """Return where a worker takes from; without a tube it leaves out those that have a function of their own."""
    others = worker.queue.handlers if tube is None else ()
    return Source(worker.queue, tube, tuple(sorted(each for each in others if each is not None)))


def _check_one_connection(job: Job, name: str) -> None:
    threads = 1 if job.options.kind == "asyncio" else job.size
    if threads > 1:
        raise ConfigurationError(
            f"{threads} threads of {name} cannot work on one connection "
            "(thread_safe=False): let one work, or give each a connection of its own (thread_safe=True)"
        )
    if job.options.kind == "process":
        raise ConfigurationError(f"processes cannot share the one connection of {name} (thread_safe=False)")
    if job.options.timeout is not None and job.options.kind == "thread":
        raise ConfigurationError(
            f"timeout= of the worker of {name} needs a connection for each thread (thread_safe=True): "
            "another thread fails a task whose function runs for too long"
        )


def run(*workers: Worker[Any], until_empty: bool = False, max_tasks: int | None = None) -> None:
    """Run these workers in one program until SIGTERM or SIGINT, or with `until_empty` until no task is ready.

    With `max_tasks` the program ends after that many tasks in total.
    """
    if not workers:
        raise ConfigurationError("xq.run needs workers: xq.run(fetch, send)")
    for worker in workers:
        if not isinstance(worker, Worker):
            raise BadType(f"a worker is what @Page.xq.worker makes of a function, not {shown(worker)}")
    run_jobs([job_of(worker, None, None) for worker in workers], until_empty, max_tasks)


def run_jobs(jobs: Sequence[Job], until_empty: bool, max_tasks: int | None = None) -> None:
    """Run jobs. Raises ConfigurationError for a `max_tasks` that is no number from 1 on."""
    if max_tasks is not None and (isinstance(max_tasks, bool) or not isinstance(max_tasks, int) or max_tasks < 1):
        raise ConfigurationError(f"max_tasks is a number from 1 on, not {shown(max_tasks)}")
    for job in jobs:
        schedules = job.worker.queue.adapter.maintenance.schedules
        schedules.pending = schedules.declared is not None
        job.worker.queue.adapter.finish.log.info(
            "working on %s with %s=%d", job.worker.queue.name, KINDS[job.options.kind], job.size
        )
    if any(job.options.kind == "process" for job in jobs):
        # The parent has no threads, since it forks again when a process crashes.
        parts = [part for job in jobs for part in _parts(job)]
        budget = Budget(max_tasks, len(parts))
        Processes([partial(_run_here, [part], until_empty, budget.share(n)) for n, part in enumerate(parts)]).run()
    else:
        _run_here(jobs, until_empty, Budget(max_tasks))


KINDS = {"thread": "threads", "process": "processes", "asyncio": "coroutines"}


def _parts(job: Job) -> list[Job]:
    """Return the jobs of the processes that do this one."""
    if job.options.kind != "process":
        return [job]
    single = replace(job.options, workers=1)
    each = [replace(job, sources=[source], options=single) for source in job.sources]
    return [part for part in each for _ in range(job.options.workers)]


def _log_sessions(jobs: Sequence[Job]) -> None:
    """Log the sessions of this process, which the histories of its queues name as the owners of tasks."""
    found = [job.worker.queue.adapter.maintenance.sessions for job in jobs]
    here = this_process()
    for uuid in dict.fromkeys(sessions.own().uuid for sessions in found if sessions is not None):
        log.debug("the session of pid %s on host %s (%s) is %s", here["pid"], here["host"], here["program"], uuid)


def _run_here(jobs: Sequence[Job], until_empty: bool, budget: Budget, shared: Shared | None = None) -> None:
    """Run jobs in this process, which is a child if it shares something with its parent."""
    errors = list[BaseException]()

    def failed(error: BaseException) -> None:
        errors.append(error)
        program.stop.set()

    budget.begin()
    program = Program(failed, until_empty, budget)
    _log_sessions(jobs)
    pools = [job.pool(program, shared) for job in jobs]
    parent = None if shared is None else multiprocessing.parent_process()
    stopped = threading.Thread(target=_stopped, args=(program.stop, pools), name="xq stop", daemon=True)
    stopped.start()
    with _signals(program.stop, pools, jobs, shared):
        for pool in pools:
            pool.start()
        while running := [pool for pool in pools if pool.alive]:
            running[0].join(LISTEN)  # a join without a timeout would block the signal handlers
            if parent is not None and not parent.is_alive():
                program.stop.set()
    program.stop.set()  # a thread whose function was overdue may still run: it does not retry for ever
    stopped.join()
    for pool in pools:
        pool.close()
    if errors:
        raise errors[0]


def _stopped(stop: threading.Event, pools: Sequence[Pool[Any]]) -> None:
    """Wake what waits for tasks once the program is to end, and count no attempt of what runs then."""
    stop.wait()
    for pool in pools:
        pool.stopped()


@contextmanager
def _signals(
    stop: threading.Event, pools: Sequence[Pool[Any]], jobs: Sequence[Job], shared: Shared | None
) -> Iterator[None]:
    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            if shared is not None and shared.signals.value < 2:
                return  # a terminal or a supervisor signals the whole group, and the parent passes that on as well
            for each in PASSED_ON:
                signal.signal(each, signal.SIG_IGN)  # a third one would interrupt the release
            for pool in pools:
                pool.release_all()
            raise SystemExit(128 + number)
        stop.set()
        name = signal.Signals(number).name
        for job in jobs:
            job.worker.queue.adapter.finish.log.info(
                "%s: the workers finish their tasks and end; a second signal releases the tasks", name
            )

    with handled_by(handle):
        yield
