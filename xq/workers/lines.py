"""The lines of a worker's log about ended attempts: one each, or a sum a second where they are many."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Final

from xq.core import time

PER_SECOND: Final = 20  # lines of one sum within a second: a line costs a tenth of a fast worker's job


class Lines:
    """Decides which of a worker's ended attempts have a line of their own."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._lock = log, threading.RLock()
        # The second that runs, by the monotonic clock, and the attempts that ended in it, by level and text of the sum.
        self._ends_at, self._n = 0.0, Counter[tuple[int, str]]()

    def level(self, ended: str, usual: int = logging.INFO) -> int:
        """Return the level of the line of one more attempt. `ended` is what the sum says: "tasks are finished"."""
        if not self._log.isEnabledFor(usual):
            return logging.DEBUG
        with self._lock:
            if (now := time.monotonic()) >= self._ends_at:
                self.sum_up()
                self._ends_at = now + 1
            self._n[usual, ended] = n = self._n[usual, ended] + 1
            return usual if n <= PER_SECOND else logging.DEBUG

    def sum_up(self) -> None:
        """Log how many attempts had no line of their own. Call it when no task is left, and at the end."""
        with self._lock:
            for (level, ended), n in self._n.items():
                if n > PER_SECOND:
                    self._log.log(level, "%d more %s", n - PER_SECOND, ended)
            self._n.clear()
