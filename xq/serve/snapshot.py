"""What all queues are like now: one look at each database every other second, shared by all pages and browsers."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from xq.core.machine import ABSENT, READY, TAKEN
from xq.operators.ages import Age
from xq.serve.entries import Entry, on

EVERY: Final = 1.5  # seconds from the end of a look to the next one; a look that takes long makes it more
BUCKET: Final = 5  # seconds between two points of a chart
MINUTES: Final = 300  # seconds of a chart
TALL: Final = 34  # units of a chart
GAP: Final = 30  # seconds without a look, which the history fills
PAST: Final = 5_000  # transitions of the history that fill the chart
FIRST: Final = 20.0  # seconds for which a page waits for the first look at a database
LATE: Final = 2.0  # seconds for which it waits for others, and then shows old numbers
OLD: Final = 4  # looks, after which numbers are shown with their age
LINES: Final = ("put", "finished", "failed")  # of a chart, in tasks a second


def totals(transitions: Mapping[str, int]) -> tuple[int, ...]:
    """Return the numbers of tasks that were put, finished and buried since counting began."""
    moves = [(name[0], name[-1], n) for name, n in transitions.items()]  # as in R-T
    put = sum(n for source, _, n in moves if source == ABSENT)
    finished = sum(n for source, target, n in moves if source == TAKEN and target in ("D", "Z", ABSENT))
    return put, finished, sum(n for _, target, n in moves if target == "B")


class Past(deque[tuple[float, tuple[int, ...]]]):
    """The totals of one queue over the last minutes: one for each bucket of time, and when it was so."""

    def begin(self, at: float, now: float, transitions: Mapping[str, int], rows: Sequence[Any]) -> None:
        """Add what the last transitions of the history, in order, say of the minutes before `at` (the time `now`)."""
        counted, ago, found = Counter(transitions), BUCKET, deque[tuple[float, tuple[int, ...]]]()
        for row in reversed(rows):
            while ago <= min(MINUTES, now - row.at_us / 1_000_000):
                found.appendleft((at - ago, totals(counted)))
                ago += BUCKET
            counted[f"{row.source}-{row.target}"] -= 1
        self.extend(each for each in found if not self or each[0] > self[-1][0])

    def add(self, at: float, now: tuple[int, ...]) -> None:
        if len(self) > 1 and self[-1][0] - self[-2][0] < BUCKET:
            self.pop()  # the bucket has a later one
        self.append((at, now))
        while self[0][0] < at - MINUTES - BUCKET:
            self.popleft()

    def rates(self, first: int = -4, last: int = -1) -> list[float | None]:
        """Return how many tasks a second were put, finished and buried between two of the totals; None at first."""
        (began, before), (ended, after) = self[max(first, -len(self))], self[last]
        seconds = ended - began  # less than before: the counters were reset
        return [max(0, b - a) / seconds if seconds >= 1 else None for a, b in zip(before, after)]

    def chart(self) -> dict[str, Any]:
        """Return the greatest of the last minutes' rates, and lines: points of SVG, in seconds and down to `TALL`."""
        since = self[-1][0] - MINUTES
        points = [(max(0.0, self[i][0] - since), self.rates(i - 1, i)) for i in range(1 - len(self), 0)]
        most = max((rate for _, rates in points for rate in rates if rate), default=0.0)
        lines = {
            name: " ".join(f"{x:.0f},{TALL - (TALL - 4) * (rates[i] or 0) / most:.1f}" for x, rates in points)
            for i, name in enumerate(LINES if most else ())
        }
        return {"most": most, "lines": lines, "begins": points[0][0] if points else 0.0}


@dataclass(frozen=True)
class Now:
    """One queue at one moment."""

    entry: Entry
    at: float  # by time.monotonic()
    error: str = ""  # why there are no numbers
    counts: Mapping[str, int] = field(default_factory=dict)
    paused: Sequence[str | None] = ()
    oldest: Age | None = None  # for how long the oldest ready task has been so
    rates: Sequence[float | None] = ()  # put, finished, buried
    chart: Mapping[str, Any] = field(default_factory=dict)
    age: float | None = None  # in seconds, if the numbers are old


class Look:
    """The looks at the queues of one database, of which one runs at a time. One that hangs holds up no other."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.now: dict[str, Now] = {}
        self.past = defaultdict[str, Past](Past)
        self.sessions: set[str] = set()
        self.running: Future[None] | None = None
        self.until = self.due = 0.0  # when pages wait no longer for this one, and when the next one may begin
        self._thread = ThreadPoolExecutor(1, "xq-console-look")

    def begin(self, every: float) -> Future[None]:
        """Return the look that runs, after a new one has begun if it is due."""
        at = time.monotonic()
        if self.running is None or (self.running.done() and at >= self.due):
            self.until = at + (LATE if self.now else FIRST)
            self.running = self._thread.submit(self._run, every)
        return self.running

    def _run(self, every: float) -> None:
        began = time.monotonic()
        with suppress(Exception), ExitStack() as kept:  # a connection that broke may fail to close
            for entry in self.entries:  # they share the connection: to open one may take long
                self.now[entry.slug] = self._of(entry, kept)
        self.due = time.monotonic() + max(every, time.monotonic() - began)  # at most half of a thread's time

    def _of(self, entry: Entry, kept: ExitStack) -> Now:
        try:
            return on(entry, lambda: self._numbers(entry), kept)
        except Exception as error:  # the other queues have numbers
            return Now(entry, time.monotonic(), getattr(error, "detail", f"{error}"))

    def _numbers(self, entry: Entry) -> Now:
        queue, past, inspection = entry.queue, self.past[entry.slug], entry.queue.adapter.inspection
        stats, at = queue.stats(), time.monotonic()
        if entry.keeps_history and (not past or at - past[-1][0] > GAP):
            rows = inspection.after(max(0, inspection.newest() - PAST), PAST)
            past.begin(at, inspection.moment(), stats.transition, rows)
        past.add(at, totals(stats.transition))
        if entry is self.entries[0]:
            self.sessions = {*inspection.online()}
        oldest = queue.oldest_ready() if stats.counts.get(READY) else None
        return Now(entry, at, "", stats.counts, queue.paused(), oldest, past.rates(), past.chart())


class Snapshots:
    """The numbers of all queues. A look begins when a page or a browser asks and the last one is old enough."""

    def __init__(self, entries: Sequence[Entry], every: float = EVERY) -> None:
        self.every = every
        self._lock = threading.Lock()
        looks = defaultdict[object, Look](Look)  # by database
        self._of = {entry: looks[entry.queue.adapter.store.database or entry.slug] for entry in entries}
        for entry, look in self._of.items():
            look.entries.append(entry)
        self._looks = [*looks.values()]

    def current(self) -> list[Now]:
        """Return the numbers of all queues, after a new look if it is time for one. Called in a thread."""
        with self._lock:
            running = {look.begin(self.every): look.until for look in self._looks}
        left = [until - time.monotonic() for look, until in running.items() if not look.done()]
        wait(running, max([0.0, *left]))
        return [self.of(entry) for entry in self._of]

    def of(self, entry: Entry) -> Now:
        at = time.monotonic()
        now = self._of[entry].now.get(entry.slug, Now(entry, at, f"The database of {entry.name} has not answered yet."))
        return replace(now, age=at - now.at) if at - now.at > OLD * self.every + LATE else now

    def sessions(self) -> int:
        """Return the number of open sessions in all databases: two queues may be in one, by two pools."""
        return len(set[str]().union(*(look.sessions for look in self._looks)))
