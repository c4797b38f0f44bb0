"""Workers that are threads: each takes tasks, calls the function with one after the other, and acks them."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from functools import partial
from typing import Any, NoReturn

from xq.core import time
from xq.runtime.lease import Lease
from xq.workers.concurrency import NoSlot
from xq.workers.pool import PAUSE, Assignment, Pool, Program
from xq.workers.worker import LISTEN, Supply

ACKED_WITHIN = 0.005  # seconds within which a finished task is acked, while tasks prefetched with it are worked on
QUICK = 0.1  # seconds within which a thread finishes what it takes at once, before it takes more at once
HELD = 0.5  # seconds after which it gives back what it has not begun


class _Hand:
    """What one thread has taken."""

    def __init__(self) -> None:
        self.waiting: deque[Lease] = deque()  # whose functions are still to be called
        self.looked = False  # whether the thread has just found nothing
        self.finished: deque[Lease] = deque()  # whose functions have returned
        self.share = 1  # how many tasks it takes at once
        self.taken_at = 0.0  # the monotonic time of the last take that has found tasks


def _next(leases: deque[Lease]) -> Lease | None:
    """Remove the first lease and return it; None if there is none. Another thread may do the same."""
    try:
        return leases.popleft() if leases else None
    except IndexError:  # the other one was quicker
        return None


def _emptied(leases: deque[Lease]) -> list[Lease]:
    """Remove all leases and return them. Another thread may do the same."""
    return list(iter(partial(_next, leases), None)) if leases else []


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
                while lease := _next(hand.waiting):
                    self._work_on(lease, hand)
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
            self.attempts.ack(_emptied(hand.finished))
            self._give_back(hand)
        except Exception as error:  # the session's end releases them
            self.attempts.log.warning("the tasks of a worker that ends stay taken until its session ends: %s", error)

    def _give_back(self, hand: _Hand) -> None:
        for lease in _emptied(hand.waiting):
            self.attempts.give_back(lease)

    def _patience_for(self, source: Supply[Any]) -> float:
        """Return for how many seconds to wait for a task: 0 if no more will be ready, and the thread must end."""
        if not self._program.until_empty:
            return self._patience
        # Another thread may give back what it has not begun.
        prefetched = self._options.prefetch > 1 and not all(each.begun for each in self.attempts.heart.leases.copy())
        return LISTEN if prefetched else source.patience()

    def _take(self, source: Supply[Any], hand: _Hand) -> bool:
        """Ack what is finished, and take the next tasks. Return False if the thread must end."""
        attempts, budget, options = self.attempts, self._program.budget, self._options
        hand.share = min(2 * hand.share, options.prefetch) if time.monotonic() < hand.taken_at + QUICK else 1
        n = 0 if self._stop.is_set() else budget.reserve(options.batch or hand.share)
        refused, tasks = attempts.ack_and_take(_emptied(hand.finished), source, n)
        if refused:
            attempts.end_each(refused)
        if not n:  # other threads may have reserved what they will not find
            return budget.left > 0 and not self._stop.wait(PAUSE)
        if not tasks:
            try:
                patience = self._patience_for(source)  # now: the take finds what was given back before
                looked = (hand.looked or tasks is not None) and not self._program.until_empty
                tasks = attempts.take(source, n, patience, looked)
                hand.looked = not tasks
            except Exception as error:
                budget.settle(n, 0)
                if isinstance(error, NoSlot) and attempts.slots:
                    attempts.slots.wait(self._stop)
                else:
                    attempts.calls.wait_for_the_database(error)
                return True
        leases = attempts.begin(tasks)
        if tasks:
            hand.taken_at = time.monotonic()
        hand.waiting.extend(kept := attempts.keep(leases))
        if budget.settle(n, len(tasks) - len(leases) + len(kept)) and not tasks:
            self._stop.wait(2 * PAUSE)
        return bool(tasks) or patience > 0 or self._patience_for(source) > 0

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
        except (SystemExit, KeyboardInterrupt) as error:
            if self._program.shared and (code := getattr(error, "code", 1)):
                self._exit(lease, hand, code if isinstance(code, int) else 1)
            hand.waiting.append(lease)  # it has not failed: it is released with those that have not begun
            raise
        except BaseException as error:  # such as CancelledError or GeneratorExit
            attempts.end(lease, error)
            return
        hand.finished.append(lease)
        if hand.waiting and not self._any_finished.is_set():
            self._any_finished.set()

    def _exit(self, lease: Lease, hand: _Hand, code: int) -> NoReturn:
        """End this process, whose parent fails the task of the function that asked for it."""
        self.attempts.heart.began(lease, lease.started_at)
        try:
            self.attempts.ack(_emptied(hand.finished))
            self._give_back(hand)
        finally:
            os._exit(code)

    def _ack_in_time(self) -> None:
        """Ack what is finished, and give back what has not begun, while a slow function keeps their thread from it."""
        try:
            while self.alive:
                self._any_finished.wait(LISTEN)
                self._any_finished.clear()
                time.sleep(ACKED_WITHIN)
                for hand in self._threads.values():
                    age = time.monotonic() - hand.taken_at
                    if age > ACKED_WITHIN:
                        self.attempts.ack(_emptied(hand.finished))
                    if age > HELD:
                        self._give_back(hand)
        except Exception as error:
            self._failed(error)
        finally:
            self._store.disconnect()
