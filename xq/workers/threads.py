"""Workers that are threads: each takes tasks, calls the function with one after the other, and acks them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import ClassVar, NoReturn

from xq.core import time
from xq.workers.attempt import WorkerJob
from xq.workers.concurrency import NoSlot
from xq.workers.pool import PAUSE, Assignment, Pool, Program
from xq.workers.worker import POLL_EVERY, TaskSource

ACKED_WITHIN = 0.005  # seconds within which a finished task is acked, while tasks prefetched with it are worked on
QUICK = 0.1  # seconds within which a thread finishes what it takes at once, before it takes more at once
HELD = 0.5  # seconds after which it gives back what it has not begun


class ThreadJobs:
    """The jobs that one thread has."""

    def __init__(self) -> None:
        self.waiting: deque[WorkerJob] = deque()  # whose functions are still to be called
        self.finished: deque[WorkerJob] = deque()  # whose functions have returned
        self.looked = False  # whether the thread has just found nothing
        self.share = 1  # how many tasks it takes at once
        self.taken_at = 0.0  # the monotonic time at which it last found tasks


def _next(jobs: deque[WorkerJob]) -> WorkerJob | None:
    """Remove the first job and return it; None if another thread was quicker."""
    try:
        return jobs.popleft()
    except IndexError:
        return None


def _emptied(jobs: deque[WorkerJob]) -> list[WorkerJob]:
    """Remove all jobs and return them. Another thread may do the same."""
    emptied = list[WorkerJob]()
    while jobs and (job := _next(jobs)):
        emptied.append(job)
    return emptied


class Threads(Pool):
    """Threads that work on tasks. They take by this process's session."""

    runs = "threads"
    refuses: ClassVar[Mapping[str, str]] = {
        "timeout": 'timeout= needs kind="process" or an async def: Python cannot stop a thread'
    }

    def __init__(self, assignment: Assignment, program: Program) -> None:
        super().__init__(assignment, program)
        self._threads: dict[threading.Thread, ThreadJobs] = {}
        self._any_finished = threading.Event()
        self._acks = threading.Thread(target=self._ack_in_time, name="xq acks", daemon=True)

    def start(self) -> None:
        for source in self._sources:
            for _ in range(self._options.workers):
                mine = ThreadJobs()
                thread = threading.Thread(target=self._loop, args=(source, mine), daemon=True)
                self._threads[thread] = mine
                thread.start()
        if self._options.prefetch > 1:
            self._acks.start()

    @property
    def alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self, seconds: float) -> None:
        for thread in self._threads:
            if thread.is_alive():
                thread.join(seconds)
                return

    def close(self) -> None:
        self._any_finished.set()
        if self._acks.ident is not None:
            self._acks.join()  # it may be acking
        super().close()

    def _loop(self, source: TaskSource, mine: ThreadJobs) -> None:
        try:
            while self._take(source, mine):
                while mine.waiting and (job := _next(mine.waiting)):
                    self._work_on(job, mine)
        except BaseException as error:
            if not self.attempts.calls.is_unfinished(error):
                self._leave(mine)
            self._failed(error)
        finally:
            self._store.disconnect()

    def _leave(self, mine: ThreadJobs) -> None:
        """Ack what is finished and release what has not begun, since this thread ends."""
        try:
            self._stop.set()  # nothing is retried for ever
            self.attempts.ack(_emptied(mine.finished))
            self._give_back(mine)
        except Exception as error:  # the session's end releases them
            self.attempts.log.warning("the tasks of a worker that ends stay taken until its session ends: %s", error)

    def _give_back(self, mine: ThreadJobs) -> None:
        for job in _emptied(mine.waiting):
            self.attempts.give_back(job)

    def _patience_for(self, source: TaskSource) -> float:
        """Return for how many seconds to wait for a task: 0 if no more will be ready, and the thread must end."""
        if not self._program.until_empty:
            return self._patience
        # Another thread may give back what it has not begun.
        prefetched = self._options.prefetch > 1 and not all(each.begun for each in self.attempts.heart.leases.copy())
        return POLL_EVERY if prefetched else self._wait_at_end()

    def _take(self, source: TaskSource, mine: ThreadJobs) -> bool:
        """Ack what is finished, and take the next tasks. Return False if the thread must end."""
        attempts, budget, options = self.attempts, self._program.budget, self._options
        mine.share = min(2 * mine.share, options.prefetch) if time.monotonic() < mine.taken_at + QUICK else 1
        n = 0 if self._stop.is_set() else budget.reserve(options.batch or mine.share)
        refused, tasks = attempts.ack_and_take(_emptied(mine.finished), source, n)
        if refused:
            attempts.end_each(refused)
        if not n:  # other threads may have reserved what they will not find
            return budget.left > 0 and not self._stop.wait(PAUSE)
        if not tasks:
            try:
                patience = self._patience_for(source)  # now: the take finds what was given back before
                looked = (mine.looked or tasks is not None) and not self._program.until_empty
                tasks = attempts.take(source, n, patience, looked)
                mine.looked = not tasks
            except Exception as error:
                budget.note_taken(n, 0)
                if isinstance(error, NoSlot) and attempts.slots:
                    attempts.slots.wait(self._stop)
                else:
                    attempts.calls.wait_for_the_database(error)
                return True
        jobs = attempts.begin(tasks)
        if tasks:
            mine.taken_at = time.monotonic()
        mine.waiting.extend(kept := attempts.keep(jobs))
        if budget.note_taken(n, len(tasks) - len(jobs) + len(kept)) and not tasks:
            self._stop.wait(2 * PAUSE)
        return bool(tasks) or patience > 0 or self._patience_for(source) > 0

    def _work_on(self, job: WorkerJob, mine: ThreadJobs) -> None:
        attempts = self.attempts
        if self._stop.is_set() or job.is_lost:
            attempts.give_back(job)
            return
        job.start()
        try:
            with self._store.at_work(), job:
                attempts.worker.call(job.task)
        except (SystemExit, KeyboardInterrupt) as error:
            if self._program.is_child and (code := getattr(error, "code", 1)):
                self._exit(mine, code if isinstance(code, int) else 1)
            mine.waiting.append(job)  # it has not failed: it is released with those that have not begun
            raise
        except BaseException as error:  # such as CancelledError or GeneratorExit
            attempts.heart.ended(job)
            attempts.end(job, error)
            return
        attempts.heart.ended(job, returned=job.is_plain)
        mine.finished.append(job)
        if mine.waiting and not self._any_finished.is_set():
            self._any_finished.set()

    def _exit(self, mine: ThreadJobs, code: int) -> NoReturn:
        """End this process, as its function asks. The parent fails its task."""
        try:
            self.attempts.ack(_emptied(mine.finished))
            self._give_back(mine)
        finally:
            os._exit(code)

    def _ack_in_time(self) -> None:
        """Ack what is finished, and give back what has not begun, while a slow function keeps their thread from it."""
        try:
            while self.alive:
                self._any_finished.wait(POLL_EVERY)
                self._any_finished.clear()
                time.sleep(ACKED_WITHIN)
                for mine in self._threads.values():
                    age = time.monotonic() - mine.taken_at
                    if age > ACKED_WITHIN:
                        self.attempts.ack(_emptied(mine.finished))
                    if age > HELD:
                        self._give_back(mine)
        except Exception as error:
            self._failed(error)
        finally:
            self._store.disconnect()


class ProcessThreads(Threads):
    """The worker in a worker process, in its main thread: its function may handle signals. `Processes` starts each."""

    runs = "processes"
    forks = True
    refuses: ClassVar[Mapping[str, str]] = {}

    def _loop(self, source: TaskSource, mine: ThreadJobs) -> None:
        ended, loop = threading.Event(), super()._loop

        def run() -> None:
            loop(source, mine)
            ended.set()

        self._program.in_main.put(run)
        ended.wait()
