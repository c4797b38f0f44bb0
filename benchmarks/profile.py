"""make profile: where the microseconds of a cycle go.

A profiler would make the Python look slower than it is, so the layers are found by leaving out: what xq sent to the
database is recorded, and sent again to a database in the same state, once through Peewee, once through the driver
alone, and once by the driver within one transaction. Only the shares within xq's own layer come from a profiler.
"""

from __future__ import annotations

import cProfile
import pstats
import sqlite3
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import peewee as pw

from benchmarks.bench import EVERYTHING
from benchmarks.contestants import PATIENCE, Contestant, Floor, Place, Xq
from benchmarks.measure import Numbers, race
from benchmarks.report import Effort, Section, Table, run

VERBS = ("put", "take", "ack")
Statements = list[tuple[str, Any]]  # SQL and its values
Recorded = list[tuple[str, Statements]]  # a verb and what it sent
Times = dict[str, list[float]]  # verb -> seconds of each call
SHOWN = 20  # functions


class Recorder(pw.SqliteDatabase):
    """A database that remembers what it was sent."""

    sent: Statements = []

    def execute_sql(self, sql: str, params: Any = None, *args: Any) -> Any:
        self.sent.append((sql, params))
        return super().execute_sql(sql, params, *args)


def prepared(folder: Path, name: str, effort: Effort, **options: Any) -> Xq:
    """A queue with everything on, where others wait: each time in the same state."""
    queue = Xq(Place(folder / f"{name}.db"), **EVERYTHING, **options)
    queue.put_many(effort.waiting)
    queue.ack(queue.take())
    return queue


def through_xq(queue: Contestant, cycles: int) -> Times:
    spent: Times = {verb: [] for verb in VERBS}
    for _ in range(cycles):
        start = time.perf_counter()
        queue.put()
        put = time.perf_counter()
        task = queue.take()
        take = time.perf_counter()
        queue.ack(task)
        ack = time.perf_counter()
        for verb, seconds in zip(VERBS, (put - start, take - put, ack - take)):
            spent[verb].append(seconds)
    return spent


def recorded(folder: Path, effort: Effort) -> Recorded:
    queue = prepared(folder, "recorded", effort, database=Recorder)
    found: Recorded = []

    def remember(verb: str, call: Callable[[], Any]) -> Any:
        Recorder.sent = []
        result = call()
        found.append((verb, Recorder.sent))
        return result

    for _ in range(effort.calls):
        remember("put", queue.put)
        task = remember("take", queue.take)
        remember("ack", partial(queue.ack, task))
    queue.close()
    return found


def sent_again(calls: Recorded, execute: Callable[[str, Any], Any]) -> Times:
    spent: Times = {verb: [] for verb in VERBS}
    for verb, sent in calls:
        start = time.perf_counter()
        for sql, values in sent:
            execute(sql, values).fetchall()
        spent[verb].append(time.perf_counter() - start)
    return spent


def through_peewee(folder: Path, name: str, effort: Effort, calls: Recorded) -> Times:
    queue = prepared(folder, name, effort)
    with closing(queue):
        return sent_again(calls, queue.db.execute_sql)


def through_the_driver(folder: Path, name: str, effort: Effort, calls: Recorded, together: bool) -> Times:
    prepared(folder, name, effort).close()
    with closing(sqlite3.connect(folder / f"{name}.db", isolation_level=None, timeout=PATIENCE)) as connection:
        connection.execute("PRAGMA synchronous = normal")
        connection.execute("PRAGMA recursive_triggers = on")
        if together:
            connection.execute("BEGIN IMMEDIATE")
        return sent_again(calls, lambda sql, values: connection.execute(sql, values or {}))


def layers(effort: Effort, folder: Path) -> Table:
    calls = recorded(folder, effort)
    floor = Floor(Place(folder / "floor.db"))
    floor.put_many(effort.waiting)

    def through_all(name: str) -> Times:
        with closing(prepared(folder, name, effort)) as queue:
            return through_xq(queue, effort.calls)

    ways: Mapping[str, Callable[[str], Times]] = {
        "xq": through_all,
        "peewee": lambda name: through_peewee(folder, name, effort, calls),
        "driver": lambda name: through_the_driver(folder, name, effort, calls, together=False),
        "statements": lambda name: through_the_driver(folder, name, effort, calls, together=True),
        "floor": lambda name: through_xq(floor, effort.calls),
    }
    runs: dict[str, list[Times]] = {way: [] for way in ways}
    numbers = count()

    def measured(way: str) -> Numbers:
        runs[way].append(ways[way](f"{way}_{next(numbers)}"))
        return {}

    race(ways, measured, effort.repetitions)
    floor.close()

    def micros(way: str, average: Callable[[Sequence[float]], float] = statistics.median) -> list[float]:
        """Of the calls of a run the average, of the runs the median: for each verb, and for the cycle."""
        values = [statistics.median(average(run[verb]) for run in runs[way]) * 1e6 for verb in VERBS]
        return [*values, sum(values)]

    def less(some: Sequence[float], others: Sequence[float]) -> list[float]:
        return [a - b for a, b in zip(some, others)]

    statements, driver, peewee, whole = map(micros, ("statements", "driver", "peewee", "xq"))
    found = {
        "SQLite: the statements and their triggers": statements,
        "SQLite: a commit for each": less(driver, statements),
        "Peewee": less(peewee, driver),
        "xq": less(whole, peewee),
        "**the median call**": whole,
        "what the mean adds: checkpoints, sweeps": less(micros("xq", statistics.fmean), whole),
        "the floor's median call": micros("floor"),
        "what its mean adds": less(micros("floor", statistics.fmean), micros("floor")),
    }
    rows = [[name, *(f"{v:.1f}" for v in values), f"{values[-1] / whole[-1]:.0%}"] for name, values in found.items()]
    return Table(["µs", *VERBS, "cycle", "share"], rows)


# within xq

Function = tuple[str, int, str]  # its file, line, and name, as the profiler tells them
ROOT = Path(__file__).resolve().parent.parent
LAYER = [ROOT / part for part in ("xq", "features", "adapters")]


def name_of(function: Function) -> str | None:
    """What a function of xq is called; None for all others."""
    file = Path(function[0]).resolve()
    ours = any(file.is_relative_to(folder) for folder in LAYER)
    return f"{file.relative_to(ROOT).with_suffix('')} {function[2]}" if ours else None


def own_times(profile: cProfile.Profile) -> dict[str, tuple[int, float]]:
    """The calls and the own seconds of each function of xq, with the built-in ones it calls, the driver left out."""
    stats: dict[Function, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for function, (_, calls, seconds, _, callers) in stats.items():
        name = name_of(function)
        if name:
            found[name] = (found[name][0] + calls, found[name][1] + seconds)
        elif function[0] == "~" and "sqlite3" not in function[2]:
            for caller, (_, _, seconds, _) in callers.items():
                if by := name_of(caller):
                    found[by] = (found[by][0], found[by][1] + seconds)
    return found


def functions(effort: Effort, folder: Path) -> Table:
    with closing(prepared(folder, "profiled", effort)) as queue:
        profile = cProfile.Profile()
        profile.enable()
        through_xq(queue, effort.calls)
        profile.disable()
    own = own_times(profile)
    whole = sum(seconds for _, seconds in own.values())
    slowest = sorted(own.items(), key=lambda item: -item[1][1])[:SHOWN]
    rows = [
        [f"`{name}`", f"{calls / effort.calls:.1f}", f"{seconds / whole:.1%}"] for name, (calls, seconds) in slowest
    ]
    return Table(["function", "calls a cycle", "share"], rows)


SECTIONS: Sequence[Section] = [
    Section(
        "layers",
        "Where the microseconds of a cycle go",
        "One process, one call after the other, everything on, while other tasks wait. Found by leaving out: the "
        "statements that xq sent were sent again through Peewee, through the driver, and through the driver in one "
        "transaction. Of the calls the median, since every so often one of them moves the log into the file.",
        layers,
    ),
    Section(
        "functions",
        "Within xq",
        "The slowest functions of xq's own layer, with the built-in code that they call, as a profiler sees them: it "
        "makes what is called often look slower than it is.",
        functions,
    ),
]

if __name__ == "__main__":
    run(SECTIONS, "make profile")
