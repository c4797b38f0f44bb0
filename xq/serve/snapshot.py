"""One look at all queues every other second, shared by all pages and browsers of a process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from xq.core.machine import ABSENT, READY, TAKEN
from xq.serve.charts import Rates
from xq.serve.entries import Entry, on
from xq.serve.rights import Refusal

log = logging.getLogger("xq.serve")

EVERY: Final = 1.5  # seconds between two looks; a look that takes long makes it more
IDLE: Final = 600.0  # seconds after the last reader, at which the looks end
BUCKET: Final = 5  # seconds of a point of the charts
BUCKETS: Final = 60
SPAN: Final = 15  # seconds over which a rate is shown as a number
PATIENCE: Final = 20.0  # seconds for which a page waits for the first look
LONG: Final = 10.0  # seconds: what is older than a few looks of this length is shown with its age
LATE: Final = 2.0  # seconds for which it waits for a newer look: one database that hangs must not hold up every page

FEW: Final = 4  # looks: older numbers are shown with their age

PAST: Final = 5_000  # transitions of the history that the first look reads

Totals = tuple[int, int, int]  # put, finished, buried, since counting began


@dataclass(frozen=True)
class Now:
    """One queue at one moment."""

    entry: Entry
    counts: dict[str, int] = field(default_factory=dict)
    paused: list[str | None] = field(default_factory=list)
    oldest: float | None = None  # seconds for which the oldest ready task has been so at least
    put: float | None = None  # tasks a second
    finished: float | None = None
    buried: float | None = None
    charts: tuple[tuple[str, Rates], ...] = ()
    error: str = ""  # why there are no numbers

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Snapshot:
    """All queues at one moment."""

    version: int
    at: float
    took: float  # the seconds of the look
    queues: tuple[Now, ...]
    sessions: int

    def of(self, entry: Entry) -> Now:
        return next(now for now in self.queues if now.entry is entry)

    def sum(self, state: str) -> int:
        return sum(now.counts.get(state, 0) for now in self.queues)


def _totals(transitions: Mapping[str, int]) -> Totals:
    put = finished = buried = 0
    for name, n in transitions.items():
        source, _, target = name.partition("-")
        put += n if source == ABSENT else 0
        finished += n if source == TAKEN and target in ("D", "Z", ABSENT) else 0
        buried += n if target == "B" else 0
    return put, finished, buried


class Rating:
    """The totals of one queue over the last minutes, as points of a chart."""

    def __init__(self) -> None:
        self.totals: OrderedDict[int, tuple[float, Totals]] = OrderedDict()  # the last of each bucket of time

    def begin(self, at: float, transitions: dict[str, int], rows: Sequence[Any]) -> None:
        """Add what the last transitions of the history say of the minutes before the first look."""
        left, counted, now = list(rows), Counter(transitions), time.time()
        for bucket in range(int(at // BUCKET) - 1, int(at // BUCKET) - BUCKETS - 1, -1):
            ends = (bucket + 1) * BUCKET
            while left and at - now + left[-1].at_us / 1_000_000 >= ends:
                row = left.pop()
                counted[f"{row.source}-{row.target}"] -= 1
            if not left:
                break
            self.totals[bucket] = (ends, _totals(counted))
            self.totals.move_to_end(bucket, last=False)

    def add(self, at: float, transitions: dict[str, int]) -> None:
        self.totals[int(at // BUCKET)] = (at, _totals(transitions))
        while len(self.totals) > BUCKETS + 2:
            self.totals.popitem(last=False)

    def rates(self, at: float) -> list[Rates]:
        """Return the rates of puts, of ends and of burials, by bucket; None where nothing was looked at."""
        newest = int(at // BUCKET)
        found: list[list[float | None]] = [[], [], []]
        for bucket in range(newest - BUCKETS + 1, newest + 1):
            before, after = self.totals.get(bucket - 1), self.totals.get(bucket)
            for which, rates in enumerate(found):
                rates.append(
                    (after[1][which] - before[1][which]) / max(0.1, after[0] - before[0])
                    if before and after and after[1][which] >= before[1][which]  # else they were reset
                    else None
                )
        return list(found)

    def latest(self, at: float) -> tuple[float | None, float | None, float | None]:
        """Return the three rates over the last seconds; None before there are two looks."""
        inside = [each for each in self.totals.values() if each[0] > at - SPAN]
        if len(inside) < 2 or inside[-1][0] - inside[0][0] < 1:
            return None, None, None
        (began, first), (ended, last) = inside[0], inside[-1]
        put, finished, buried = (max(0, b - a) / (ended - began) for a, b in zip(first, last))
        return put, finished, buried


class Snapshots:
    """Takes the snapshots in one thread. It starts with the first page, and ends minutes after the last one."""

    def __init__(self, entries: Sequence[Entry], every: float = EVERY) -> None:
        self.entries = tuple(entries)
        self.every = every
        self.looks = 0  # how many looks were taken
        self._changed = threading.Condition()
        self._latest: Snapshot | None = None
        self._thread: threading.Thread | None = None
        self._asked = 0.0
        self._ratings = {entry.slug: Rating() for entry in entries}
        self._errors: dict[str, str] = {}  # why queues have no numbers, by slug
        self.is_closed = False
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def current(self) -> Snapshot:
        """Return a snapshot, waiting for the first one. Called in a thread. Raises Refusal if none comes."""
        with self._changed:
            self._begin()
            self._changed.wait_for(self._fresh, PATIENCE if self._latest is None else LATE)
            if self._latest is None:
                raise Refusal(503, "The databases do not answer. Load this page again in a while.")
            return self._latest

    def age(self, snapshot: Snapshot) -> float | None:
        """Return the age of a snapshot in seconds; None if it is current."""
        age = time.monotonic() - snapshot.at
        return age if age > FEW * max(self.every, min(snapshot.took, LONG)) + 1 else None

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    def _fresh(self) -> bool:
        return self._latest is not None and time.monotonic() - self._latest.at < 2 * self.every + 1

    def _begin(self) -> None:
        self._asked = time.monotonic()
        if self._thread is None or not self._thread.is_alive():  # a fork leaves it behind
            self._latest = None  # of minutes ago
            self._thread = threading.Thread(target=self._run, name="xq-console-snapshot", daemon=True)
            self._thread.start()

    async def after(self, version: int, seconds: float) -> Snapshot | None:
        """Return the first snapshot after a version, or None if none comes within so many seconds."""
        listener = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            self._begin()
            self._listeners.add(listener)
        try:
            if self._latest is None or self._latest.version <= version:
                with suppress(TimeoutError):
                    await asyncio.wait_for(listener[1].wait(), seconds)
        finally:
            with self._changed:
                self._listeners.discard(listener)
        latest = self._latest
        return latest if latest is not None and latest.version > version else None

    def close(self) -> None:
        """End the looks, and the waits for more of them."""
        with self._changed:
            self.is_closed = True
            self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        for loop, event in self._listeners:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(event.set)

    def _run(self) -> None:
        while not self.is_closed and time.monotonic() - self._asked < IDLE:
            began = time.monotonic()
            made = self._look()
            with self._changed:
                self._latest = made
                self._notify()
                rest = max(self.every, time.monotonic() - began)  # at most half of a thread's time
                self._changed.wait_for(lambda: self.is_closed, rest)

    def _look(self) -> Snapshot:
        self.looks += 1
        began = time.monotonic()
        sessions: set[str] = set()  # two queues may be in one database
        with suppress(Exception), ExitStack() as kept:  # a connection that broke may fail to close
            queues = tuple(self._of(entry, sessions, kept) for entry in self.entries)
        at = time.monotonic()
        return Snapshot(self.looks, at, at - began, queues, len(sessions))

    def _of(self, entry: Entry, sessions: set[str], kept: ExitStack) -> Now:
        """Return the numbers of one queue. All queues of a database share a connection: to open one may take long."""
        try:
            now = on(entry, lambda: self._numbers(entry, sessions), kept)
        except Exception as error:  # the other queues have numbers
            now = Now(entry, error=error.sentence if isinstance(error, Refusal) else f"{error}")
        if now.error != self._errors.get(entry.slug, ""):  # one line when trouble begins, one when it ends
            self._errors[entry.slug] = now.error
            log.info("no numbers of %s: %s" if now.error else "numbers of %s again%s", entry.name, now.error)
        return now

    def _numbers(self, entry: Entry, sessions: set[str]) -> Now:
        queue = entry.queue
        stats, at = queue.stats(), time.monotonic()
        rating = self._ratings[entry.slug]
        if not rating.totals and entry.keeps_history:
            inspection = queue.adapter.inspection
            rating.begin(at, stats.transition, inspection.after(max(0, inspection.newest() - PAST), PAST))
        rating.add(at, stats.transition)
        sessions.update(queue.adapter.inspection.online())
        put, finished, buried = rating.latest(at)
        names = ("in", "out", "bad")
        return Now(
            entry,
            stats.counts,
            queue.paused(),
            queue.oldest_ready() if stats.counts.get(READY) else None,
            put,
            finished,
            buried,
            tuple(zip(names, rating.rates(at))),
        )
