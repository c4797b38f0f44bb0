"""A day in the life of a queue, simulated: rush hours, a tube that fails for two hours, workers too few at noon.

What comes out is what a queue of that day would have in its tables, row by row, in the order of its commits. The same
seed gives the same day.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from typing import Any, NamedTuple

DAY = 86_400.0  # seconds
MIDNIGHT = 1_767_225_600  # of 2026-01-01, UTC: seconds since 1970
HOURS = (2, 1, 1, 1, 1, 2, 4, 8, 14, 18, 20, 22, 19, 18, 20, 19, 16, 13, 10, 8, 7, 6, 4, 3)  # arrivals, as parts
ATTEMPTS = 3  # takes, after which a task is buried
BACKOFF = 30.0  # seconds, after the first failure


@dataclass(frozen=True)
class Tube:
    name: str
    share: float  # of all arrivals
    seconds: float  # that a task takes, in the median
    spread: float  # sigma of its logarithm
    fails: float  # the part of the takes that fail
    broken: tuple[float, float] = (0.0, 0.0)  # the hours in which nine of ten fail
    load: float = 0.7  # of its workers, over the day


TUBES = (
    Tube("mail", 0.45, 0.4, 0.5, 0.01),
    Tube("thumbnail", 0.25, 2.0, 0.8, 0.02),
    Tube("webhook", 0.20, 0.8, 1.0, 0.03, broken=(13.0, 15.0), load=0.4),
    Tube("invoice", 0.08, 3.0, 0.4, 0.005),
    Tube("export", 0.02, 40.0, 1.0, 0.01, load=0.55),
)
MOVES = 3.1  # rows of history for each task, or nearly


class Move(NamedTuple):
    """A row of the history."""

    id: int
    at_us: int
    key: str
    tube: str
    source: str
    target: str
    event: str
    owner: str | None
    attempt: int


@dataclass
class Left:
    """The tasks at the end of the day: key -> tube, state, attempts."""

    tasks: dict[int, tuple[str, str, int]] = field(default_factory=dict)


class _Workers:
    """Those of one tube: how many are idle, and what waits for them."""

    def __init__(self, n: int) -> None:
        self.idle = n
        self.ready: deque[tuple[int, int]] = deque()  # key and attempts


def day(moves: int, seed: int = 1, left: Left | None = None) -> Iterator[Move]:
    """The history of a day, of nearly so many moves, in the order in which they were made; `left` is filled."""
    rng = random.Random(seed)
    left = left if left is not None else Left()
    tasks = moves / MOVES
    agenda: list[tuple[float, int, Any, int, int]] = []  # when, a tie-break, which tube, key, attempts; 0 arrives
    workers = {}
    for tube in TUBES:
        work = tasks * tube.share * tube.seconds * 2.718281828 ** (tube.spread**2 / 2)
        workers[tube] = _Workers(ceil(work / DAY / tube.load))
    arriving = [(tube, _arrivals(tasks * tube.share, rng)) for tube in TUBES]
    ties = 0
    for tube, times in arriving:
        heappush(agenda, (next(times), (ties := ties + 1), ("put", tube, times), 0, 0))
    number = key = 0

    def told(at: float, key: int, tube: Tube, source: str, target: str, event: str, attempt: int) -> Move:
        nonlocal number
        number += 1
        owner = f"{tube.name}-worker/{key}.{attempt}" if "T" in (source, target) else None
        return Move(
            number, int((MIDNIGHT + at) * 1_000_000), str(key), tube.name, source, target, event, owner, attempt
        )

    while agenda:
        at, _, (what, tube, times), about, attempts = heappop(agenda)
        if at >= DAY:
            break
        crew = workers[tube]
        if what == "put":
            key += 1
            about, attempts = key, 0
            heappush(agenda, (next(times), (ties := ties + 1), ("put", tube, times), 0, 0))
            left.tasks[about] = (tube.name, "R", 0)
            yield told(at, about, tube, "X", "R", "put", 0)
            crew.ready.append((about, 0))
        elif what == "back":
            left.tasks[about] = (tube.name, "R", attempts)
            yield told(at, about, tube, "W", "R", "delay", attempts)
            crew.ready.append((about, attempts))
        else:
            hour = at / 3600
            failed = rng.random() < (0.9 if tube.broken[0] <= hour < tube.broken[1] else tube.fails)
            crew.idle += 1
            if not failed:
                left.tasks[about] = (tube.name, "D", attempts)
                yield told(at, about, tube, "T", "D", "ack", attempts)
            elif attempts >= ATTEMPTS:
                left.tasks[about] = (tube.name, "B", attempts)
                yield told(at, about, tube, "T", "B", "bury", attempts)
            else:
                left.tasks[about] = (tube.name, "W", attempts)
                yield told(at, about, tube, "T", "W", "release", attempts)
                delay = BACKOFF * 2 ** (attempts - 1)
                heappush(agenda, (at + delay, (ties := ties + 1), ("back", tube, times), about, attempts))
        while crew.idle and crew.ready:
            about, attempts = crew.ready.popleft()
            crew.idle -= 1
            attempts += 1
            left.tasks[about] = (tube.name, "T", attempts)
            yield told(at, about, tube, "R", "T", "take", attempts)
            seconds = tube.seconds * rng.lognormvariate(0.0, tube.spread)
            heappush(agenda, (at + seconds, (ties := ties + 1), ("done", tube, times), about, attempts))


def _arrivals(n: float, rng: random.Random) -> Iterator[float]:
    """When tasks arrive, in seconds of the day: a Poisson process whose rate is that of the hour; at last, never."""
    rates = [n * part / sum(HOURS) / 3600 for part in HOURS]
    at = 0.0
    while at < DAY:
        hour = int(at // 3600)
        after = at + rng.expovariate(rates[hour])
        if after >= 3600 * (hour + 1):  # another rate holds from there on, and the process has no memory
            at = 3600.0 * (hour + 1)
            continue
        at = after
        yield at
    while True:
        yield DAY
