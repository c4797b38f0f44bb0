"""How long tasks have been ready, and for how long none was taken: exact where the history has it, else a bound."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final, NamedTuple

from xq.core.compile import Selector
from xq.core.machine import READY, TAKEN
from xq.core.words import lasting
from xq.engine.stats import stats
from xq.operators.inspection import Inspection

WINDOWS: Final = (10_000, 100_000)  # the last transitions, in which the entries of the ready tasks are searched
MARKS: Final = 4_096  # of the number of tasks that have become ready


class Age(NamedTuple):
    """For how many seconds the oldest ready task has been ready; at least, if that is not `exact`."""

    seconds: float
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{lasting(self.seconds)}"


class Ready(NamedTuple):
    """The number of ready tasks, the age of the oldest one, and for how many seconds none was taken. None: unknown."""

    tasks: int
    oldest: Age | None
    standstill: float | None


class Ages(Inspection):
    """The age of the oldest ready task, and the standstill of a queue.

    The history has the last transition of each task. If as many tasks as are ready became so within the transitions
    that are read, their first entry is exact; else the oldest one has been ready since before. Without the history the
    counters tell a process that looks repeatedly: if m tasks have left the state, one of the first m + 1 that entered
    it is still there.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._lock = threading.Lock()
        self._marks = deque[tuple[float, int]](maxlen=MARKS)  # (time, number of tasks that had entered by then)
        self._still = (0.0, -1)  # since when tasks are ready and none was taken, and the number of takes by then

    def oldest_ready(self) -> Age | None:
        return self._read().oldest

    def standstill(self) -> float | None:
        return self.ready().standstill

    def ready(self) -> Ready:
        found = self._read()
        return found if found.standstill is None or self._may_take() else found._replace(standstill=None)

    def _may_take(self) -> bool:
        """Return whether a take may find a task: no pause, no limit of a rate and no busy utube is in its way."""
        dialect, paused = self.database.dialect, self.pauses.listed()
        if None in paused:
            return False
        skipped = {f"skip{place}": tube for place, tube in enumerate(paused)} if "tube" in dialect.roles else {}
        query = dialect.any_ready if dialect.groups else dialect.ready(Selector("first", READY, skips=len(skipped)))
        return bool(self._run(query, **skipped))

    def _read(self) -> Ready:
        return self._by_counters() if self.machine.settings.history is None else self._by_history()

    def _by_history(self) -> Ready:
        for n in WINDOWS:
            ((now, tasks, entered, oldest, taken, first),) = self._run(self.database.dialect.ready_since, n=n)
            if (exact := entered >= tasks) or first is None:
                break
        if tasks <= 0 or first is None:
            return Ready(int(tasks), None if tasks > 0 else Age(0.0, True), None)
        seconds, still = (max(0, int(now) - int(at)) / 1_000_000 for at in (oldest if exact else first, taken or first))
        return Ready(int(tasks), Age(seconds, exact), min(seconds, still))

    def _by_counters(self) -> Ready:
        numbers, now = stats(self.database.counters(), self.machine.states), self.moment()
        tasks = numbers.counts[READY]
        left = sum(n for name, n in numbers.transition.items() if name.startswith(f"{READY}-"))
        takes = numbers.transition.get(f"{READY}-{TAKEN}", 0)
        is_first = tasks > 0 and self._still[1] < 0  # then the newest take of a task that is still taken must do
        taken = [since for *_, since in self.taken() if since is not None] if is_first else []
        with self._lock:
            if takes != self._still[1] or tasks <= 0:
                self._still = max(taken, default=now), takes
            age, still = self._counted(now, left + tasks, tasks), max(0.0, now - self._still[0])
        return Ready(tasks, age, still) if tasks > 0 else Ready(0, Age(0.0, True), None)

    def _counted(self, now: float, entered: int, tasks: int) -> Age | None:
        """Return the time since the first known moment by which the next task to leave had entered."""
        marks, is_first = self._marks, not self._marks
        if marks and entered < marks[-1][1]:
            marks.clear()  # the counters were reset
        if not marks or entered > marks[-1][1]:
            marks.append((now, entered))
        while len(marks) > 1 and marks[0][1] <= entered - tasks:
            marks.popleft()
        return None if is_first else Age(max(now - marks[0][0], 0.0), False)
