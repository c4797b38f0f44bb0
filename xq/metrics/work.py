"""What the workers of one program do: their attempts, and the maintenance threads of its processes."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from xq.metrics.histogram import Histogram
from xq.runtime import maintenance
from xq.runtime.workers.outcomes import outcome_of
from xq.runtime.workers.worker import Worker

OUTCOMES = ("returned", "failed", "retry", "bury", "discard")
DUTIES = ("sweep", "wakeup")  # as the maintenance thread counts them
RECORD = struct.Struct("=HHId")  # queue, outcome or duty, number of tasks, seconds
THREAD = 0xFFFF  # in the place of the queue: a record of a maintenance thread


class Work:
    """The counts of a program. Its processes write records into a pipe, and one thread of one process reads them.

    A record is written as a whole (it is shorter than PIPE_BUF), so a process that is killed spoils none. A process
    never waits for the reader: if the pipe is full, the record is lost.
    """

    def __init__(self, workers: list[Worker[Any]], queues: list[str]) -> None:
        self.queues = queues  # the names of the workers' queues
        self.attempts: Counter[tuple[str, str]] = Counter()  # by queue and outcome
        self.seconds = {name: Histogram() for name in self.queues}
        self.duties: Counter[str] = Counter()
        self.lock = threading.Lock()
        self._out, self._in = os.pipe()
        os.set_blocking(self._in, False)
        for place, worker in enumerate(workers):
            worker.around(self._counted(place))
        maintenance.count = self._duty

    def _write(self, queue: int, what: int, n: int = 1, seconds: float = 0.0) -> None:
        try:
            os.write(self._in, RECORD.pack(queue, what, n, seconds))
        except OSError:  # full, or nothing reads any more
            pass

    def _duty(self, name: str) -> None:
        self._write(THREAD, DUTIES.index(name))

    def _counted(self, place: int) -> Callable[[Any], Iterator[None]]:
        def counted(task: Any) -> Iterator[None]:
            began, outcome = time.monotonic(), "failed"
            try:
                yield
                outcome = "returned"
            except BaseException as error:
                outcome = outcome_of(error)
                raise
            finally:
                failed = len(getattr(task, "failed", None) or ()) if isinstance(task, list) else 0
                n, spent = (len(task) if isinstance(task, list) else 1), time.monotonic() - began
                self._write(place, OUTCOMES.index(outcome), n - failed, spent)
                if failed:
                    self._write(place, OUTCOMES.index("failed"), failed, -1.0)

        return counted

    def read(self) -> None:
        """Count the records until the program ends."""
        while data := os.read(self._out, 64 * RECORD.size):
            for queue, what, n, seconds in RECORD.iter_unpack(data):
                with self.lock:
                    self._add(queue, what, n, seconds)

    def _add(self, queue: int, what: int, n: int, seconds: float) -> None:
        if queue == THREAD:
            self.duties[DUTIES[what]] += n
            return
        name = self.queues[queue]
        self.attempts[name, OUTCOMES[what]] += n
        if seconds >= 0:
            self.seconds[name].observe(seconds)
