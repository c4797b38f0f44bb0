"""Measure contestants in one run, in turn, in an order that each repetition shuffles."""

from __future__ import annotations

import gc
import multiprocessing
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from benchmarks.contestants import Contestant, Place

C = TypeVar("C", bound=Contestant)
K = TypeVar("K", bound=Hashable)
Opens = Callable[[Place], C]  # what is handed to other processes: it must be importable there
Numbers = Mapping[str, float]  # what was measured -> how often a second, or seconds

spawn = multiprocessing.get_context("spawn")


def end_orderly() -> None:
    """Let a process that is told to end leave its blocks: children and servers end there."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@dataclass
class Series:
    """One contestant's numbers, a list for each thing measured: one number for each repetition."""

    numbers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, found: Numbers) -> None:
        for what, number in found.items():
            self.numbers.setdefault(what, []).append(number)

    def best(self, what: str) -> float:
        """The highest rate: what the noise of the machine disturbed least."""
        return max(self.numbers[what])

    def median(self, what: str) -> float:
        return statistics.median(self.numbers[what])

    def times(self, other: Series, what: str, digits: int = 2) -> str:
        """How many times the other's rate this one is: by the best / by the median."""
        best, median = self.best(what) / other.best(what), self.median(what) / other.median(what)
        return f"{best:.{digits}f} / {median:.{digits}f}"


def race(starters: Iterable[K], run: Callable[[K], Numbers], repetitions: int) -> dict[K, Series]:
    """`run` each of the starters as often as `repetitions` says, and once before that to warm up."""
    results = {starter: Series() for starter in starters}
    order, shuffle = list(results), random.Random(1).shuffle
    for repetition in range(repetitions + 1):
        shuffle(order)
        for starter in order:
            gc.collect()
            found = run(starter)
            if repetition:
                results[starter].add(found)
    return results


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def percentile(values: Sequence[float], part: float) -> float:
    """The nearest rank: the least value with at least this part of them at or below it."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


# what a contestant is asked to do


@contextmanager
def behind(contestant: Contestant, waiting: int) -> Iterator[None]:
    """So many tasks wait meanwhile: a planner would take a table that is settled while it is empty for an empty one."""
    for _ in range(waiting):
        contestant.put()
    contestant.place.database.settle()
    yield
    for _ in range(waiting):
        contestant.ack(contestant.take())


def single_calls(contestant: Contestant, n: int, waiting: int) -> dict[str, float]:
    """`n` calls of each kind, a second: all puts, all takes, all acks; then cycles of the three. `waiting` wait."""
    contestant.tidy()
    with behind(contestant, waiting):
        start = time.perf_counter()
        for _ in range(n):
            contestant.put()
        put = time.perf_counter()
        tasks = [contestant.take() for _ in range(n)]
        take = time.perf_counter()
        for task in tasks:
            contestant.ack(task)
        ack = time.perf_counter()
        contestant.tidy()
        cycle = time.perf_counter()
        for _ in range(n):
            contestant.put()
            contestant.ack(contestant.take())
        end = time.perf_counter()
    return {"put": n / (put - start), "take": n / (take - put), "ack": n / (ack - take), "cycle": n / (end - cycle)}


def cycles(contestant: Contestant, seconds: float) -> float:
    """How many cycles of put, take and ack a second one caller makes, for about so many seconds."""
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        contestant.put()
        while (task := contestant.take()) is None:
            pass  # what there is was locked by others at that moment
        contestant.ack(task)
        count += 1
    return count / spent


def in_threads(contestant: Contestant, threads: int, seconds: float) -> float:
    """Cycles a second of several threads together."""
    rates: list[float] = []
    together = threading.Barrier(threads)

    def work() -> None:
        try:
            contestant.connect()
            together.wait()
            rates.append(cycles(contestant, seconds))
            contestant.close()
        except BaseException:
            together.abort()  # the others would wait for ever
            raise

    contestant.place.database.settle()
    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if len(rates) < threads:
        raise RuntimeError(f"{threads - len(rates)} of {threads} threads failed")
    return sum(rates)


class Crew(Generic[C]):
    """Processes that have every contestant open, and make cycles when they are told."""

    def __init__(self, size: int, places: Mapping[str, tuple[Opens[C], Place]]) -> None:
        self._places = places
        self._ends = ExitStack()
        self._pipes = [self._start() for _ in range(size)]

    def _start(self) -> Connection:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_member, args=(theirs, dict(self._places)))
        process.start()
        theirs.close()
        self._ends.callback(process.join)
        self._ends.callback(ours.close)  # before the join: it is what a member ends at
        ours.recv()  # one opens after the other: some take their triggers off, which the next one looks for
        return ours

    def run(self, name: str, seconds: float, size: int) -> float:
        """Cycles a second of so many processes together."""
        self._places[name][1].database.settle()
        chosen = self._pipes[:size]
        for pipe in chosen:
            pipe.send((name, seconds))
        return float(sum(pipe.recv() for pipe in chosen))

    def __enter__(self) -> Crew[C]:
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()


def _member(pipe: Connection, places: Mapping[str, tuple[Opens[Any], Place]]) -> None:
    contestants = {name: opens(place) for name, (opens, place) in places.items()}
    pipe.send("ready")
    while True:
        try:
            name, seconds = pipe.recv()
        except EOFError:
            break
        pipe.send(cycles(contestants[name], seconds))
    for contestant in contestants.values():
        contestant.close()
