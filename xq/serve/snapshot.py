"""What all queues are like now: one look at each database every other second, shared by all pages and browsers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from starlette.exceptions import HTTPException

from xq.core import time
from xq.core.kinds import R
from xq.core.words import lasting
from xq.database.callers import begun
from xq.operators.doctor import LONG
from xq.operators.inspection import Age, Snapshot
from xq.serve.charts import Chart, LastHour, Totals, chart, rates, totals
from xq.serve.entries import ConsoleQueue, on

EVERY: Final = 1.5  # seconds between two looks; a look that takes long makes it more
GAP: Final = 30  # seconds without a look, which the history fills
PAST: Final = 20_000  # history transitions that fill the chart
THREADS: Final = 4  # page calls on a database at a time
OPERATIONS: Final = 2  # operations on a database at a time; others wait for their turn
HANGS: Final = 10.0  # seconds without an answer, after which a database does not answer, and its pages are refused
PATIENCE: Final = 55.0  # seconds for a page's call, which may wait for a lock: proxies give up after 60
LATE: Final = 2.0  # seconds for which a page waits for a look, and then shows older numbers
TICK: Final = 0.02  # seconds between two attempts to get a thread for a page
MARKS: Final = 3  # paused tubes and groups that the overview names
SLOW: Final = 15.0  # seconds until a look reads again from a history for how long tasks have waited
OLD: Final = 4  # looks, after which numbers are shown with their age

NONE: Final = Age(0.0, exact=True)


@dataclass(frozen=True)
class Now:
    """One queue at one moment."""

    entry: ConsoleQueue
    at: float  # by time.monotonic()
    error: str = ""  # why there are no numbers
    counts: Counter[str] = field(default_factory=Counter)  # tasks by state
    marks: Sequence[str] = ()  # what holds the queue up, in words
    oldest: Age = NONE  # for how long the oldest ready task has been so
    rates: Sequence[float | None] = ()  # put, finished, buried
    past: Sequence[Totals] = ()
    age: float | None = None  # in seconds, if the numbers are old
    late: str = ""  # why there are no newer ones

    @property
    def kept(self) -> int:
        """How many tasks are finished, or in a state that the application's own features add."""
        return sum(n for letter, n in self.counts.items() if letter not in "RTWB")

    def chart(self, buckets: int) -> Chart:
        """Return the chart for the last hour, with so many buckets to a point."""
        return chart(self.past, time.time() - (time.monotonic() - self.at), buckets)


class Look:
    """One database: the looks at its queues, one at a time, and the threads for their pages.

    Each call has its own thread, which does not delay the process's exit.
    """

    def __init__(self, every: float = EVERY) -> None:
        self.every = every
        self.entries: list[ConsoleQueue] = []
        self.now: dict[str, Now] = {}
        self.past = defaultdict[str, LastHour](LastHour)
        self.seen = dict[str, tuple[float, Snapshot]]()  # and when it was read
        self.running: Future[None] | None = None
        self.answered = self.due = 0.0  # when the look had its last answer, and when the next look may begin
        self.operations = threading.Semaphore(OPERATIONS)
        self._beginning = threading.Lock()
        self._room = threading.Semaphore(THREADS)

    def begin(self) -> Future[None]:
        """Return the look that runs, after a new one has begun if it is due."""
        with self._beginning:
            at = time.monotonic()
            if self.running is None or (self.running.done() and at >= self.due):
                self.answered, self.running = at, begun(self._run)
            return self.running

    async def current(self) -> None:
        """Wait for a look if one is due: until the numbers count as late, for the first ones until it hangs."""
        running = self.begin()
        with suppress(TimeoutError):
            left = self.answered + (LATE if self.now else HANGS) - time.monotonic()
            await asyncio.wait_for(asyncio.wrap_future(running), left)

    def of(self, entry: ConsoleQueue) -> Now:
        """Return a queue's last numbers, with their age if they are old."""
        at = time.monotonic()
        now = self.now.get(entry.slug, Now(entry, at, f"The database of {entry.name} has not answered yet."))
        late = "its database does not answer" if self.hangs() else "a new look is under way"
        return replace(now, age=at - now.at, late=late) if at - now.at > OLD * self.every + LATE else now

    def hangs(self) -> float:
        """Return for how many seconds the database has not answered; 0 if that is not for long."""
        silent = 0.0 if self.begin().done() else time.monotonic() - self.answered
        return silent if silent >= HANGS else 0.0

    async def call(self, call: Callable[[], R]) -> R:
        """Make a call on the database in a thread. Raises HTTPException if it takes too long, or the database hangs."""
        began = time.monotonic()
        self._refuse(began)
        while not self._room.acquire(blocking=False):
            await asyncio.sleep(TICK)
            self._refuse(began)
        answer = asyncio.wrap_future(begun(partial(copy_context().run, call), self._room.release))
        try:
            while not (await asyncio.wait([answer], timeout=1))[0]:
                self._refuse(began, "A change that was asked for may still be made.")
            return answer.result()
        finally:
            answer.cancel()  # else a late one reaches an event loop that may be closed

    def _refuse(self, began: float, but: str = "Try again later.") -> None:
        waited = time.monotonic() - began
        if silent := self.hangs() or (waited if waited > PATIENCE else 0.0):
            names = ", ".join(entry.name for entry in self.entries[:3]) or "a queue"
            raise HTTPException(503, f"The database of {names} has not answered for {silent:.0f} s. {but}")

    def _run(self) -> None:
        began = time.monotonic()
        with suppress(Exception), ExitStack() as kept:  # a connection that broke may fail to close
            for entry in self.entries:  # they share the connection: to open one may take long
                self.now[entry.slug] = self._of(entry, kept)
                self.answered = time.monotonic()
        self.due = time.monotonic() + max(self.every, time.monotonic() - began)  # at most half of a thread's time

    def _of(self, entry: ConsoleQueue, kept: ExitStack) -> Now:
        try:
            return on(entry, lambda: self._numbers(entry), kept)
        except Exception as error:  # the other queues have numbers
            return Now(entry, time.monotonic(), getattr(error, "detail", f"{error}"))

    def _numbers(self, entry: ConsoleQueue) -> Now:
        queue, past, inspection = entry.queue, self.past[entry.slug], entry.queue.parts.doctor
        at, (asked, seen) = time.monotonic(), self.seen.get(entry.slug, (0.0, None))
        if seen is None or not entry.keeps_history or at - asked >= SLOW:
            _, seen = self.seen[entry.slug] = at, inspection.snapshot()
        else:
            seen = seen._replace(stats=queue.stats(), pauses=queue.pauses())
        stats, pauses, room, oldest, standstill = seen
        if entry.keeps_history and (not past or at - past[-1][0] > GAP):
            rows = inspection.after(max(0, inspection.newest() - PAST), PAST)
            past.begin(at, inspection.moment(), stats.transition, rows)
        past.add(at, totals(stats.transition))
        marks = ["full"] * (room == 0)
        if stats.counts["R"] and standstill >= LONG:
            marks.append(f"none was taken for {lasting(standstill)}")
        names = [pause.tube if pause.group is None else f"group {pause.group}" for pause in pauses[:MARKS]]
        marks += ["paused" if name is None else f"paused: {name}" for name in names]
        marks += [f"and {len(pauses) - MARKS} more"] * (len(pauses) > MARKS)
        oldest = (oldest if stats.counts["R"] else None) or NONE
        return Now(entry, at, "", Counter(stats.counts), marks, oldest, rates(past), [*past])


def looks_of(entries: Sequence[ConsoleQueue], every: float) -> dict[ConsoleQueue, Look]:
    """Return each queue's look: queues in one database share one."""
    looks = defaultdict[object, Look](partial(Look, every))
    found = {entry: looks[entry.queue.parts.store.database or entry.slug] for entry in entries}
    for entry, look in found.items():
        look.entries.append(entry)
    return found
