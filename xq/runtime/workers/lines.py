"""The lines of a worker's log about finished tasks: one each, or a sum a second where they are many."""

from __future__ import annotations

import logging
import threading
from typing import Final

from xq.core import time

PER_SECOND: Final = 20  # lines within a second: a line costs a tenth of a fast worker's job


class Lines:
    """Decides which of a worker's finished tasks have a line of their own at INFO."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.RLock()
        self._ends_at, self._n = 0.0, 0  # the second that runs, by the monotonic clock, and the tasks finished in it

    def level(self) -> int:
        """Return the level of the line of one more finished task."""
        if not self._log.isEnabledFor(logging.INFO):
            return logging.DEBUG
        with self._lock:
            if (now := time.monotonic()) >= self._ends_at:
                self.sum_up()
                self._ends_at = now + 1
            self._n += 1
            return logging.INFO if self._n <= PER_SECOND else logging.DEBUG

    def sum_up(self) -> None:
        """Log how many tasks had no line of their own. Call it when no task is left, and at the end."""
        with self._lock:
            if self._n > PER_SECOND:
                self._log.info("%d more tasks are finished", self._n - PER_SECOND)
            self._n = 0
