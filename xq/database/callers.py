"""Where the calls of coroutines run: threads that call the database for them, with a connection each.

The threads of a database start as calls come, and end when they have had none for IDLE seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final

from xq.core.connections import Connections, keep
from xq.core.kinds import R

log = logging.getLogger("xq")

Job = Callable[[], None]  # raises nothing
Runner = Callable[[Job], None]  # runs a job, at once or later, and the jobs given to it one after the other

ON_A_FILE: Final = 1  # threads that call a database which has one writer at a time
ON_A_SERVER: Final = 4
BLOCKS: Final = 8  # transactions of coroutines that may be open at a time, each with a thread of its own
IDLE = 10.0  # seconds
ENDS = 5.0  # seconds for the threads to end with the process


def begun(call: Callable[[], R], ends: Callable[[], object] = lambda: None) -> Future[R]:
    """Begin a call in its own thread, which calls `ends` afterwards. It does not delay the end of the process."""
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()  # so that nothing that gives up cancels it

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        finally:
            ends()

    threading.Thread(target=run, name="xq call", daemon=True).start()
    return future


class Callers:
    """Threads that run jobs: up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reset()

    def _reset(self) -> None:
        self._jobs: SimpleQueue[tuple[Connections, Job] | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._pending = 0  # jobs that have not ended
        self._threads: dict[threading.Thread, Any] = {}  # each with its connection

    def submit(self, store: Connections, job: Job) -> None:
        """Run a job in one of the threads, with the connection that the store has there."""
        with self._lock:
            if len(self._threads) < min(self._pending + 1, self._most):
                thread = threading.Thread(target=self._serve, name="xq calls of coroutines", daemon=True)
                self._threads[thread] = None
                try:
                    thread.start()
                except RuntimeError:  # the system allows no more threads: another one may run the job
                    del self._threads[thread]
                    if not self._threads:
                        raise
            self._pending += 1
            self._jobs.put((store, job))

    def end(self) -> None:
        """End the threads after the jobs that were submitted."""
        with self._lock:
            threads = list(self._threads)
            for _ in threads:
                self._jobs.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(ENDS)

    def _serve(self) -> None:
        me, store = threading.current_thread(), None
        try:
            while (given := self._next()) is not None:
                store, job = given
                try:
                    job()
                    self._threads[me] = store.in_use
                except Exception:  # a call delivers its own errors: this is the end of one that was cancelled
                    log.exception("a cancelled call of a coroutine could not be ended")
                finally:
                    with self._lock:
                        self._pending -= 1
                del given, job  # else they live until the next one
        finally:
            self._threads.pop(me, None)
            try:
                if store is not None:
                    store.disconnect()
            except Exception as error:  # the database may be gone
                log.debug("a connection of a coroutine's calls could not be closed: %s", error)

    def _next(self) -> tuple[Connections, Job] | None:
        """Return the next job; None if none came for IDLE seconds, or to end the thread."""
        while True:
            try:
                return self._jobs.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._threads.pop(threading.current_thread(), None)
                        return None

    def forked(self) -> None:
        """Start anew in a forked child without its parent's threads, whose connections must not be closed there."""
        for connection in self._threads.values():
            keep(connection)
        self._reset()
