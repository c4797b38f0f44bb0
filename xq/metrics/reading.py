"""What one queue shows at a scrape: read from its counters and records, never from its tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xq.core.machine import READY
from xq.engine.stats import Numbers, Stats
from xq.metrics.histogram import Histogram
from xq.metrics.transitions import Transitions

if TYPE_CHECKING:
    from xq.handle import Queue

TUBES = 100  # tubes of a queue that have series of their own: Prometheus keeps each series in memory
OTHER = "other"  # the tube of the rest
MARKS = 4_096  # of the number of tasks that have become ready
DIED = "died"

Series = Mapping[str, Mapping[str, int]]  # numbers by name, by tube


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one scrape. `up` is False if the database failed: then only what grows is known."""

    up: bool = False
    tasks: Series = field(default_factory=dict)  # by state
    transitions: Series = field(default_factory=dict)  # by name, as R-T
    events: Mapping[str, int] | None = None  # None: nothing counts them
    reaped: int | None = None  # None: it is not known
    oldest_ready: float | None = None
    sessions: int | None = None
    paused: Mapping[str, bool] = field(default_factory=dict)  # by tube; "" is the queue
    takes: Histogram | None = None
    acks: Histogram | None = None


class Entries:
    """How long the longest ready task is ready at least, from the numbers of tasks alone.

    If m tasks have left the state, one of the first m + 1 that entered it is still there. So the age of that entry is
    no more than the age of the oldest task. Where the oldest tasks are taken first, it is that age.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()  # (time, number of tasks that had entered by then)

    def age_by(self, stats: Stats, now: float) -> float:
        """Return `age` by the counters of a queue."""
        ready = stats.counts[READY]
        left = sum(n for name, n in stats.transition.items() if name.startswith(f"{READY}-"))
        return self.age(now, left + ready, ready)

    def age(self, now: float, entered: int, ready: int) -> float:
        """Return the seconds since the first known time by which the next task to leave had entered."""
        if self._marks and entered < self._marks[-1][1]:
            self._marks.clear()  # the counters were reset
        if not self._marks or entered > self._marks[-1][1]:
            self._marks.append((now, entered))
        while len(self._marks) > 1 and self._marks[0][1] <= entered - ready:
            self._marks.popleft()
        if len(self._marks) > MARKS:
            self._marks = deque(list(self._marks)[::2])  # less exact from now on
        return max(now - self._marks[0][0], 0.0) if ready else 0.0


class QueueReader:
    """Reads one queue for one process. It keeps what must not shrink between two scrapes."""

    def __init__(self, queue: Queue[Any], past: bool = False) -> None:
        self.queue = queue
        self._past = past
        self._entries = Entries()
        self._followed: Transitions | None = None
        self._last = Reading()

    def read(self) -> Reading:
        """Return the numbers of the queue. Raises the errors of the database."""
        queue, inspection = self.queue, self.queue.adapter.inspection
        with queue.adapter.store.briefly_connected():
            stats, now = queue.stats(), inspection.moment()
            followed = self._follow()
            events = stats.events if queue.machine.settings.counts_events else None
            told = followed.events if events is None and followed else events
            paused = queue.paused()
            # From 0 on, since Prometheus sees no increase in the first value of a series.
            none = {f"{row.source}-{row.target}": 0 for row in queue.machine.rows if row.source != row.target}
            self._last = Reading(
                up=True,
                tasks=_by_tube(stats, lambda numbers: numbers.counts),
                transitions=_by_tube(stats, lambda numbers: {**none, **numbers.transition}),
                events=events,
                reaped=None if told is None else told.get(DIED, 0),
                oldest_ready=self._age(stats, now),
                sessions=inspection.takers(),
                paused={"": None in paused, **{tube: True for tube in paused[:TUBES] if tube is not None}},
                takes=followed.takes if followed else None,
                acks=followed.acks if followed else None,
            )
        return self._last

    def known(self) -> Reading:
        """Return what is known while the database fails: numbers that only grow, as of the last scrape."""
        last = self._last
        return Reading(
            transitions=last.transitions, events=last.events, reaped=last.reaped, takes=last.takes, acks=last.acks
        )

    def _follow(self) -> Transitions | None:
        if self.queue.machine.settings.history is None:
            self._followed = None
            return None
        if self._followed is None:
            self._followed = Transitions(self.queue.adapter.inspection, self._past)
        self._followed.follow()
        return self._followed

    def _age(self, stats: Stats, now: float) -> float:
        age = self._entries.age_by(stats, now)
        if self._followed is None:
            return age
        if not stats.counts[READY]:
            self._followed.none_ready()
            return 0.0
        since = self._followed.oldest_ready()
        return age if since is None else max(age, now - since)


def _by_tube(stats: Stats, of: Callable[[Numbers], Mapping[str, int]]) -> Series:
    """Return the numbers of each counted tube, those of further tubes as `other`, and of the rest of the queue as "".

    So the sum over the tubes is that of the queue.
    """
    found: dict[str, dict[str, int]] = {}
    for place, (tube, numbers) in enumerate(stats.tube.items()):
        _add(found.setdefault(tube if place < TUBES else OTHER, {}), of(numbers), 1)
    rest = dict(of(stats))
    for of_tube in found.values():
        _add(rest, {name: n for name, n in of_tube.items() if name in rest}, -1)
    return {"": rest, **found}


def _add(to: dict[str, int], added: Mapping[str, int], sign: int) -> None:
    for name, n in added.items():
        to[name] = to.get(name, 0) + sign * n
