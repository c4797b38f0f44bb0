"""Sections of utubes: many of them with a task each, and few that are always busy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import xq
from benchmarks.contestants import PAYLOAD, Place, Xq
from benchmarks.databases import Home
from benchmarks.measure import Opens, timed
from benchmarks.report import Effort, Section, Table

MANY = 1_000  # tasks of one call
CONSUMERS = 10  # as many as there are busy utubes


class Hosts(Xq):
    """Tasks of hosts, in a table of an application."""

    def __init__(self, place: Place, features: Mapping[str, Any] | None = None) -> None:
        super().__init__(place, ("owner", "utube"), features)

    def put_one(self, utube: str) -> None:
        self.queue.put({"payload": PAYLOAD, "utube": utube})

    def put_some(self, utubes: Sequence[str]) -> None:
        self.queue.put_many([{"payload": PAYLOAD, "utube": utube} for utube in utubes])

    def take_one(self, timeout: float) -> Any:
        return self.queue.take(timeout)


class InTube(Hosts):
    """The same in a tube of the type utube."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.db = place.database.peewee()
        self.tube: Any = xq.Tubes(self.db).create_tube("hosts", "utube")
        self.queue = self.tube.model.xq

    def put_one(self, utube: str) -> None:
        self.tube.put(PAYLOAD, utube=utube)

    def put_some(self, utubes: Sequence[str]) -> None:
        self.queue.put_many([{"data": json.dumps(PAYLOAD), "utube": utube} for utube in utubes])

    def take_one(self, timeout: float) -> Any:
        return self.tube.take(timeout)

    def ack(self, task: Any) -> None:
        self.tube.ack(task)


plain: Opens[Hosts] = Hosts
feature: Opens[Hosts] = partial(Hosts, features={"utube": True})


def put(queue: Hosts, utubes: Sequence[str], at_once: int) -> float:
    """Seconds that it takes to put a task of each of these, so many a call."""

    def all_of_them() -> None:
        for i in range(0, len(utubes), at_once):
            if at_once == 1:
                queue.put_one(utubes[i])
            else:
                queue.put_some(utubes[i : i + at_once])

    return timed(all_of_them)


def singly(queue: Hosts, n: int) -> None:
    """Take and ack until so many tasks are done, one after the other."""
    for _ in range(n):
        queue.ack(queue.take_one(0))


def at_once(size: int, queue: Hosts, n: int) -> None:
    """Take and ack until so many tasks are done, up to `size` a call."""
    done = 0
    while done < n:
        done += len(queue.queue.ack_many(queue.queue.take_many(size)))


def by_threads(queue: Hosts, n: int) -> None:
    """Take and ack until so many tasks are done, by several threads at once."""
    left, lock = [n], threading.Lock()

    def work() -> None:
        queue.connect()
        while left[0] > 0:
            task = queue.take_one(0.05)
            if task is not None:
                queue.ack(task)
                with lock:
                    left[0] -= 1
        queue.close()

    threads = [threading.Thread(target=work) for _ in range(CONSUMERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


Ways = Sequence[
    tuple[str, Opens[Hosts], Callable[[Hosts, int], None]]
]  # what a row is called, which queue, how it is emptied


def emptied(home: Home, ways: Ways, utubes: Sequence[str], per_call: int) -> list[list[str]]:
    """A row for each way: seconds of all puts and of all takes and acks, and how many times the first way's."""
    rows: list[list[str]] = []
    first: list[float] | None = None
    for i, (name, opens, empty) in enumerate(ways):
        with closing(opens(Place(home.new(f"utubes-{len(utubes)}-{i}")))) as queue:
            spent = [put(queue, utubes, per_call), timed(partial(empty, queue, len(utubes)))]
        rows.append([f"{len(utubes):,} tasks, {name}", *cells(len(utubes), spent, first)])
        first = first or spent
    return rows


def cells(n: int, spent: Sequence[float], to: Sequence[float] | None) -> list[str]:
    found = []
    for i, seconds in enumerate(spent):
        times = "" if to is None else f" · {seconds / to[i]:.2f} ×"
        found.append(f"{seconds:.2f} s · {seconds / n * 1e6:,.0f} µs{times}")
    return found


LONELY: Ways = [
    ("without the feature", plain, singly),
    ("with it", feature, singly),
    (f"with it, {MANY:,} at once", feature, partial(at_once, MANY)),
    ("a tube of the type utube", InTube, singly),
]
BUSY: Ways = [
    ("without the feature", plain, by_threads),
    ("with it", feature, by_threads),
    (f"with it, {CONSUMERS} at once", feature, partial(at_once, CONSUMERS)),
    ("a tube of the type utube", InTube, by_threads),
]


def lonely(effort: Effort, home: Home) -> Table:
    utubes = [f"host-{i}" for i in range(effort.utubes)]
    return Table(["", "put", "take and ack"], emptied(home, LONELY, utubes, 1))


def busy(sizes: Sequence[int], home: Home, per_call: int) -> Table:
    found = [emptied(home, BUSY, [f"host-{i % CONSUMERS}" for i in range(n * CONSUMERS)], per_call) for n in sizes]
    return Table(["", "put", "take and ack"], [row for rows in found for row in rows])


TEXT_OF_BUSY = (
    f"{CONSUMERS} utubes of as many tasks each. Either {CONSUMERS} threads take and ack the next task, or one consumer "
    f"takes and acks the first task of each utube at once (`take_many({CONSUMERS})`, `ack_many`). The cells have the "
    "seconds in all, the time for a task, and the time as a multiple of that in the same table without the feature, "
    "where nothing separates two tasks of a host."
)


def of_busy(effort: Effort, home: Home) -> Table:
    return busy(effort.busy, home, 1)


def of_busiest(effort: Effort, home: Home) -> Table:
    return busy(effort.busiest, home, MANY)


SECTIONS = [
    Section(
        "utubes",
        "Many utubes",
        "One task in each utube. All tasks are put, then taken and acked, one after the other or "
        f"{MANY:,} at once (`take_many`, `ack_many`). The cells have the seconds in all, the time for a task, and "
        "the time as a multiple of that without the feature.",
        lonely,
    ),
    Section("busy", "Busy utubes", f"{TEXT_OF_BUSY} `make bench-long` has longer ones.", of_busy),
]
LONG = [Section("busiest", "Longer busy utubes", f"{TEXT_OF_BUSY} Put {MANY:,} a call.", of_busiest)]
