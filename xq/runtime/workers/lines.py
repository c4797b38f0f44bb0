"""The lines of a worker's log about ended attempts: one each, or a sum a second where they are many."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from typing import Final

from xq.core import time

PER_SECOND: Final = 20  # lines of a sum within a second: a line costs a tenth of a fast worker's job
NAMED: Final = 5  # errors that a sum names


class Lines:
    """Decides which of a worker's ended attempts have a line of their own. Sums count those of each level apart."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.RLock()
        # The second that runs, by the monotonic clock; and the names of errors of the attempts in it, by sum.
        self._ends_at, self._counted = 0.0, defaultdict[tuple[int, str], Counter[str]](Counter)

    def level(self, level: int, ended: str, name: str = "") -> int:
        """Return the level of the line of one more attempt. `ended` is the text of the sum, `name` that of an error."""
        if not self._log.isEnabledFor(level):
            return logging.DEBUG
        with self._lock:
            if (now := time.monotonic()) >= self._ends_at:
                self.sum_up()
                self._ends_at = now + 1
            counted = self._counted[level, ended]
            shown = counted[""] < PER_SECOND
            counted["" if shown else name or ended] += 1
            return level if shown else logging.DEBUG

    def sum_up(self) -> None:
        """Log how many tasks had no line of their own. Call it when no task is left, and at the end."""
        with self._lock:
            for (level, ended), counted in self._counted.items():
                del counted[""]
                names = ", ".join(f"{name} {n}" for name, n in counted.most_common(NAMED) if name != ended)
                if counted:
                    self._log.log(level, "%d more %s%s", counted.total(), ended, f": {names}" if names else "")
            self._counted.clear()
