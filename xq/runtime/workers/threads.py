"""Workers that are threads: each takes tasks, calls the function with one after the other, and acks them."""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any

from xq.core import time
from xq.runtime.lease import Lease
from xq.runtime.workers.concurrency import NoSlot
from xq.runtime.workers.pool import PAUSE, Assignment, Pool, Program
from xq.runtime.workers.worker import LISTEN, Supply

ACKED_WITHIN = 0.005  # seconds within which a finished task is acked, while tasks prefetched with it are worked on


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

    def __init__(self, assignment: Assignment, program: Program) -> None:
        super().__init__(assignment, program)
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
            if not self.attempts.calls.is_unfinished(error):
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
        attempts, budget, n = self.attempts, self._program.budget, self._options.batch or self._options.prefetch
        n = 0 if self._stop.is_set() else budget.reserve(n)
        tasks = attempts.ack_and_take(hand.finished(), source, n)
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
                attempts.calls.wait_for_the_database(error)
                return True
        if self._stop.is_set():  # it waited for a task when the signal came
            budget.settle(n, 0)
            attempts.give_back_tasks(tasks)
            return False
        leases = attempts.begin(tasks)
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
        try:
            with self._store.at_work(), lease:
                try:
                    attempts.worker.call(lease.task)
                finally:
                    attempts.heart.began(lease, math.inf)
        except (SystemExit, KeyboardInterrupt):
            hand.waiting.append(lease)  # it has not failed: it is released with those that have not begun
            raise
        except BaseException as error:  # such as CancelledError or GeneratorExit
            attempts.end(lease, error)
            return
        hand.add(lease)
        if hand.waiting and not self._any_finished.is_set():
            self._any_finished.set()

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
