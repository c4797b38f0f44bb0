"""What all queues are like now: one look at each database every other second, shared by all pages and browsers."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from xq.core.machine import READY
from xq.operators.inspection import percentiles
from xq.serve.charts import Chart, Past, Totals, chart, rates, totals
from xq.serve.entries import Entry, on

EVERY: Final = 1.5  # seconds from the end of a look to the next one; a look that takes long makes it more
GAP: Final = 30  # seconds without a look, which the history fills
PAST: Final = 20_000  # transitions of the history that fill the chart
FIRST: Final = 20.0  # seconds for which a page waits for the first look at a database
LATE: Final = 2.0  # seconds for which it waits for others, and then shows old numbers
MARKS: Final = 3  # paused tubes that the overview names
OLD: Final = 4  # looks, after which numbers are shown with their age


@dataclass(frozen=True)
class Now:
    """One queue at one moment."""

    entry: Entry
    at: float  # by time.monotonic()
    error: str = ""  # why there are no numbers
    counts: Mapping[str, int] = field(default_factory=dict)
    paused: Sequence[str | None] = ()
    oldest: float | None = None  # seconds for which the oldest ready task has been so at least
    rates: Sequence[float | None] = ()  # put, finished, buried
    past: Sequence[Totals] = ()
    spans: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # percentiles in each state, in seconds
    age: float | None = None  # in seconds, if the numbers are old

    @property
    def kept(self) -> int:
        """The number of tasks that are finished, or in a state of the application's own features."""
        return sum(n for letter, n in self.counts.items() if letter not in "RTWB")

    @property
    def marks(self) -> list[str]:
        """What holds the queue up, in words."""
        paused = ["paused" if tube is None else f"paused: {tube}" for tube in self.paused]
        return paused[:MARKS] + [f"and {len(paused) - MARKS} more"] * (len(paused) > MARKS)

    def chart(self, buckets: int) -> Chart:
        """Return the chart of the last hour, with so many buckets to a point."""
        return chart(self.past, time.time() - (time.monotonic() - self.at), buckets)


# The orders of the overview: a number by which the queues are sorted, the greatest first.
ORDERS: Final[Mapping[str, Callable[[Now], float]]] = {
    "name": lambda now: 0,
    "ready": lambda now: now.counts.get("R", 0),
    "taken": lambda now: now.counts.get("T", 0),
    "buried": lambda now: now.counts.get("B", 0),
    "oldest": lambda now: now.oldest or 0,
    "finished": lambda now: now.rates[1] or 0 if now.rates else 0,
}


def overview(all: Sequence[Now], find: str, by: str) -> list[Now]:
    """Return the queues that have a text in their names: in an order of `ORDERS`, else as they were given."""
    found = [now for now in all if find.strip().lower() in now.entry.name.lower()]
    order = ORDERS.get(by)
    return sorted(found, key=lambda now: (-order(now), now.entry.name.lower())) if order else found


class Look:
    """The looks at the queues of one database, of which one runs at a time. One that hangs holds up no other."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.now: dict[str, Now] = {}
        self.past = defaultdict[str, Past](Past)
        self.spans: dict[str, Mapping[str, Mapping[int, float]]] = {}
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
        if past.add(at, totals(stats.transition)) and entry.keeps_history:
            spent = inspection.durations()
            self.spans[entry.slug] = {state: percentiles(spent[state]) for state in spent}
        if entry is self.entries[0]:
            self.sessions = inspection.online()
        oldest = queue.oldest_ready() if stats.counts.get(READY) else None
        spans = self.spans.get(entry.slug, {})
        return Now(entry, at, "", stats.counts, queue.paused(), oldest, rates(past), [*past], spans)


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
