"""Sections of tasks that belong together: groups, and shapes of dependants, beside as many plain tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.contestants import PAYLOAD, Place, Xq
from benchmarks.databases import Home
from benchmarks.measure import Numbers, Opens, race, timed
from benchmarks.report import Effort, Section, Table, rate
from benchmarks.utubes import Hosts, singly

AT_ONCE = 1_000  # tasks of one put
BATCH = 100  # of a take and an ack
LAYERS = 20
NEXT = {"payload": "next"}
ROW = {"payload": PAYLOAD}

Puts = Callable[[Any, int], None]


def plain(queue: Any, n: int) -> None:
    for first in range(0, n, AT_ONCE):
        queue.put_many([ROW] * min(AT_ONCE, n - first))


def grouped(size: int, queue: Any, n: int) -> None:
    """Put so many tasks in groups of a size."""
    for first in range(0, n, size):
        with queue.group(f"group {first}", then=NEXT) as group:
            plain(group, min(size, n - first))


def chain(queue: Any, n: int) -> None:
    queue.put_many([ROW] * n, chain=True)


def fan_out(queue: Any, n: int) -> None:
    first = queue.put(ROW)
    for begun in range(1, n, AT_ONCE):
        queue.put_many([ROW] * min(AT_ONCE, n - begun), after=[first])


def fan_in(queue: Any, n: int) -> None:
    parents = queue.put_many([ROW] * (n - 1))
    queue.put(ROW, after=parents)


def layers(queue: Any, n: int) -> None:
    """Put tasks in layers, each after two of the layer before."""
    width = max(1, n // LAYERS)
    above = queue.put_many([ROW] * width)
    for _ in range(n // width - 1):
        above = [queue.put(ROW, after=[parent, above[i - 1]][: len(above)]) for i, parent in enumerate(above)]
    plain(queue, n - n // width * width)


Ways = Mapping[str, tuple[Mapping[str, Any], Puts]]
NO_WAY: Ways = {"plain tasks": ({}, plain)}
GROUPS: Ways = {
    **NO_WAY,
    "plain tasks, the feature on": ({"groups": True}, plain),
    "groups of 10": ({"groups": True}, partial(grouped, 10)),
    "groups of 10,000": ({"groups": True}, partial(grouped, 10_000)),
}
SHAPES: Ways = {
    **NO_WAY,
    "plain tasks, the feature on": ({"after": True}, plain),
    "a chain": ({"after": True}, chain),
    "fan-out": ({"after": True}, fan_out),
    "fan-in": ({"after": True}, fan_in),
    f"{LAYERS} layers": ({"after": True}, layers),
}


def emptied(queue: Any, size: int) -> int:
    """Take and ack until there is nothing; return how many tasks it were."""
    done = 0
    while taken := queue.take_many(size):
        done += len(queue.ack_many(taken)) if size > 1 else len([queue.ack(task) for task in taken])
    return done


def beside_plain(ways: Ways, effort: Effort, home: Home) -> Table:
    """A row for each way: puts a second, and takes with acks, one by one and in batches."""

    def measured(name: str) -> Numbers:
        features, puts = ways[name]
        with closing(Xq(Place(home.new("shapes")), ("owner", "runat"), features)) as contestant:
            queue, found, n = contestant.queue, dict[str, float](), effort.grouped
            for what, size in (("singly", 1), ("at once", BATCH)):
                found["put"] = n / timed(partial(puts, queue, n))
                contestant.place.database.settle()
                start = time.perf_counter()
                done = emptied(queue, size)
                found[what] = done / (time.perf_counter() - start)
                assert done >= n, f"{name}: {done} of {n} tasks were taken"
        return found

    results = race(ways, measured, effort.rounds)
    (first, *_), rows = results.values(), []
    for name, of in results.items():
        cells = [f"{rate(of.median(what))} · {of.times(first, what)}" for what in ("put", "singly", "at once")]
        rows.append([name, *cells])
    head = ["", f"put, {effort.grouped:,} tasks", "take and ack", f"{BATCH} a take"]
    return Table(head, rows)


FAIR: Mapping[str, Opens[Hosts]] = {
    "without the feature": Hosts,
    "utube": partial(Hosts, features={"utube": {"n": 4}}),
    "utube, fair": partial(Hosts, features={"utube": {"n": 4, "fair": True}}),
}


def fairness(effort: Effort, home: Home) -> Table:
    """A row for each number of utubes: takes and acks a second, one by one, in each of the queues."""
    rows = []
    for number in effort.fairness:
        utubes: Sequence[str] = [f"host-{i}" for i in range(number)]

        def measured(name: str, utubes: Sequence[str] = utubes) -> Numbers:
            with closing(FAIR[name](Place(home.new("fairness")))) as queue:
                for first in range(0, len(utubes), AT_ONCE):
                    queue.put_some(utubes[first : first + AT_ONCE])
                queue.put_some([utubes[i % len(utubes)] for i in range(effort.calls)])  # so many are in use to the end
                queue.place.database.settle()
                return {"take": effort.calls / timed(partial(singly, queue, effort.calls))}

        results = race(FAIR, measured, effort.rounds)
        first = results["without the feature"]
        rows.append(
            [
                f"{number:,} utubes",
                *(f"{rate(of.median('take'))} · {of.times(first, 'take')}" for of in results.values()),
            ]
        )
    return Table(["takes and acks", *FAIR], rows)


SECTIONS = [
    Section(
        "groups",
        "Groups of tasks",
        "One process puts tasks, then takes and acks them, one by one or in batches. A cell has tasks a second, and "
        "that as a multiple of the rate of plain tasks (best / median). Each group puts one more task in the commit "
        "in which its last member ends. The aim is 0.6 of the rate of plain tasks.",
        partial(beside_plain, GROUPS),
    ),
    Section(
        "shapes",
        "Chains and dependants",
        "As above, for tasks that wait for others: in a chain each for the one before; all but one for the first; one "
        f"for all others; in {LAYERS} layers each for two of the layer before, put one by one. The aim is 0.5 of the "
        "rate of plain tasks.",
        partial(beside_plain, SHAPES),
    ),
    Section(
        "fairness",
        "Fair takes",
        "Takes with acks a second, one by one, from queues where so many utubes have tasks. Fair takes go to the utube "
        "that was served longest ago. The ratios are to the same tasks without the feature (best / median).",
        fairness,
    ),
]
