"""How long the oldest ready task has been ready."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from xq.core.machine import READY, Machine
from xq.engine.stats import stats
from xq.operators.inspection import Inspection
from xq.operators.search import Search

MARKS = 4_096  # of the number of tasks that have become ready


class OldestReady:
    """The age of the oldest ready task, from the history and from what the counters told at earlier calls.

    If m tasks have left the state, one of the first m + 1 that entered it is still there. So the age of that entry is
    no more than the age of the oldest task. Where the oldest tasks are taken first, it is that age.
    """

    def __init__(self, machine: Machine, inspection: Inspection, search: Search[Any]) -> None:
        self._machine = machine
        self._inspection = inspection
        self._search = search
        self._lock = threading.Lock()
        self._marks: deque[tuple[float, int]] = deque()  # (time, number of tasks that had entered by then)

    def age(self) -> float | None:
        """Return the age in seconds, at least; 0 without a ready task, None if nothing is known of it."""
        numbers, now = stats(self._inspection.database.counters(), self._machine.states), self._inspection.moment()
        ready = numbers.counts[READY]
        left = sum(n for name, n in numbers.transition.items() if name.startswith(f"{READY}-"))
        with self._lock:
            counted = self._counted(now, left + ready, ready)
        if not ready:
            return 0.0
        known = [counted, self._of_one(first=True), self._of_one(first=False)]
        return max((age for age in known if age is not None), default=None)

    def _counted(self, now: float, entered: int, ready: int) -> float | None:
        """Return the seconds since the first known time by which the next task to leave had entered."""
        marks, is_first = self._marks, not self._marks
        if marks and entered < marks[-1][1]:
            marks.clear()  # the counters were reset
        if not marks or entered > marks[-1][1]:
            marks.append((now, entered))
        while len(marks) > 1 and marks[0][1] <= entered - ready:
            marks.popleft()
        if len(marks) > MARKS:
            self._marks = marks = deque(list(marks)[::2])  # less exact from now on
        return None if is_first else max(now - marks[0][0], 0.0)

    def _of_one(self, first: bool) -> float | None:
        """Return for how long the task that is taken first, or last, has been ready; None if the history does not tell.

        The first may be a retry that is ready since a second, and the last one waits since the puts have ended.
        """
        keeps = self._machine.settings.history is not None
        found = self._search.find(f"state:{READY}", 1, None, not first).tasks if keeps else []
        return self._inspection.time_since(READY, found[0]) if found else None  # also if it is taken meanwhile
