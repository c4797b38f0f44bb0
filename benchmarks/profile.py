"""make profile: where the microseconds of a cycle go.

A profiler would make the Python look slower than it is, so the layers are found by leaving out: what xq sent to the
database is recorded, and sent again to a database in the same state, once through the seam to Peewee, once through the
driver alone, and once by the driver within one transaction. Only the shares within xq's own layer come from a profiler.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import fused
from benchmarks.bench import EVERYTHING
from benchmarks.contestants import Contestant, Place, Xq, floor
from benchmarks.databases import Home
from benchmarks.measure import Numbers, race
from benchmarks.report import Effort, Section, Table, run

VERBS = ("put", "take", "ack")
Statements = list[tuple[str, Any]]  # SQL and its values
Recorded = list[tuple[str, Statements]]  # a verb and what it sent
Times = dict[str, list[float]]  # verb -> seconds of each call
ENDS = ("BEGIN", "COMMIT")  # of transactions
SHOWN = 20  # functions
DRIVERS = ("sqlite3", "psycopg", "pymysql", "_socket")


def prepared(home: Home, name: str, effort: Effort, features: Mapping[str, Any] = EVERYTHING) -> Xq:
    """A queue with everything on, where others wait: each time in the same state."""
    queue = Xq(Place(home.new(name)), **features)
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


def recorded(home: Home, effort: Effort, features: Mapping[str, Any] = EVERYTHING) -> Recorded:
    sent: Statements = []
    found: Recorded = []
    queue = prepared(home, f"recorded_{len(features)}", effort, features)
    mine = threading.get_ident()  # not what sweeps send meanwhile

    connection = queue.queue.parts.store.ready()
    plain = connection.cursor  # type: ignore[attr-defined]

    class Recording:
        """A cursor that remembers what it is sent."""

        def __init__(self) -> None:
            self._cursor = plain()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

        def execute(self, sql: str | bytes, values: Any = (), **how: Any) -> Any:
            if threading.get_ident() == mine:
                # On MariaDB xq sends bytes in which the values stand already.
                text = sql.decode().replace("%", "%%") if isinstance(sql, bytes) else sql
                sent.append((text, values))
            return self._cursor.execute(sql, values, **how) if values or how else self._cursor.execute(sql)

    connection.cursor = Recording  # type: ignore[attr-defined]
    if hasattr(connection, "idle"):  # on SQLite, a cursor that the next statement would use
        connection.idle = None

    def call(verb: str, what: Callable[[], Any]) -> Any:
        sent.clear()
        result = what()
        found.append((verb, [*sent]))
        return result

    for _ in range(effort.calls):
        call("put", queue.put)
        task = call("take", queue.take)
        call("ack", partial(queue.ack, task))
    queue.close()
    return found


def sent_again(calls: Recorded, execute: Callable[[str, Any], Any]) -> Times:
    spent: Times = {verb: [] for verb in VERBS}
    for verb, sent in calls:
        start = time.perf_counter()
        for sql, values in sent:
            execute(sql, values)
        spent[verb].append(time.perf_counter() - start)
    return spent


def through_peewee(home: Home, name: str, effort: Effort, calls: Recorded) -> Times:
    with closing(prepared(home, name, effort)) as queue:
        return sent_again(calls, queue.queue.parts.store.execute)


def through_the_driver(home: Home, name: str, effort: Effort, calls: Recorded, together: bool) -> Times:
    queue = prepared(home, name, effort)
    queue.close()
    with closing(queue.place.database.connect()) as connection, closing(connection.cursor()) as cursor:
        if together:
            cursor.execute("BEGIN")
            calls = [(verb, [one for one in sent if not one[0].startswith(ENDS)]) for verb, sent in calls]

        def execute(sql: str, values: Any) -> None:
            cursor.execute(sql, values or ())
            if cursor.description:
                cursor.fetchall()

        return sent_again(calls, execute)


def layers(effort: Effort, home: Home) -> Table:
    calls = recorded(home, effort)
    by_hand = floor(Place(home.new("floor")))
    by_hand.put_many(effort.waiting)

    def through_all(name: str) -> Times:
        with closing(prepared(home, name, effort)) as queue:
            return through_xq(queue, effort.calls)

    ways: Mapping[str, Callable[[str], Times]] = {
        "xq": through_all,
        "peewee": lambda name: through_peewee(home, name, effort, calls),
        "driver": lambda name: through_the_driver(home, name, effort, calls, together=False),
        "statements": lambda name: through_the_driver(home, name, effort, calls, together=True),
        "floor": lambda name: through_xq(by_hand, effort.calls),
    }
    runs: dict[str, list[Times]] = {way: [] for way in ways}
    numbers = count()

    def measured(way: str) -> Numbers:
        runs[way].append(ways[way](f"{way}_{next(numbers)}"))
        return {}

    race(ways, measured, effort.repetitions)
    by_hand.close()

    def micros(way: str, average: Callable[[Sequence[float]], float] = statistics.median) -> list[float]:
        """Of the calls of a run the average, of the runs the median: for each verb, and for the cycle."""
        values = [statistics.median(average(run[verb]) for run in runs[way]) * 1e6 for verb in VERBS]
        return [*values, sum(values)]

    def less(some: Sequence[float], others: Sequence[float]) -> list[float]:
        return [a - b for a, b in zip(some, others)]

    statements, driver, peewee, whole = map(micros, ("statements", "driver", "peewee", "xq"))
    found = {
        f"{home.title}: the statements and their triggers": statements,
        f"{home.title}: a commit for each": less(driver, statements),
        "the seam to Peewee": less(peewee, driver),
        "xq": less(whole, peewee),
        "**the median call**": whole,
        "what the mean adds: checkpoints, sweeps": less(micros("xq", statistics.fmean), whole),
        "the floor's median call": micros("floor"),
        "what its mean adds": less(micros("floor", statistics.fmean), micros("floor")),
    }
    rows = [[name, *(f"{v:.1f}" for v in values), f"{values[-1] / whole[-1]:.0%}"] for name, values in found.items()]
    return Table(["µs", *VERBS, "cycle", "share"], rows)


# CPU

FEATURES: Mapping[str, Mapping[str, Any]] = {"no features": {}, "everything on": EVERYTHING}


def cpu(effort: Effort, home: Home) -> Table:
    """What of a cycle's CPU time is the database's, and what is Python of xq's own."""
    rows: list[list[str]] = []
    for title, features in FEATURES.items():
        calls = recorded(home, effort, features)
        ways: Mapping[str, Callable[[str], float]] = {
            "floor": lambda name: _seconds_of_floor(home, name, effort),
            "bare": lambda name, features=features, calls=calls: _seconds_of_bare(home, name, effort, features, calls),  # type: ignore[misc]
            "xq": lambda name, features=features: _seconds_of_xq(home, name, effort, features),  # type: ignore[misc]
        }
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(2 * effort.repetitions):
            for way, seconds in ways.items():
                name = f"cpu_{len(features)}_{way}_{turn}"
                best[way] = min(best[way], 1e6 * seconds(name) / effort.calls)
        own = best["xq"] - best["bare"]
        rows.append([f"{home.title}, {title}", *(f"{best[way]:.0f}" for way in ways), f"**{own:.0f}**"])
    return Table(["CPU of this process, µs a cycle", "floor", "xq's SQL, bare", "xq", "xq's own Python"], rows)


def _spent(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _seconds_of_floor(home: Home, name: str, effort: Effort) -> float:
    by_hand = floor(Place(home.new(name)))
    by_hand.put_many(effort.waiting)
    with closing(by_hand):
        return _spent(lambda: through_xq(by_hand, effort.calls))


def _seconds_of_xq(home: Home, name: str, effort: Effort, features: Mapping[str, Any]) -> float:
    with closing(prepared(home, name, effort, features)) as queue:
        return _spent(lambda: through_xq(queue, effort.calls))


def _seconds_of_bare(home: Home, name: str, effort: Effort, features: Mapping[str, Any], calls: Recorded) -> float:
    queue = prepared(home, name, effort, features)
    queue.close()
    with closing(queue.place.database.connect()) as connection, closing(connection.cursor()) as cursor:

        def execute(sql: str, values: Any) -> None:
            cursor.execute(sql, values or ())
            if cursor.description:
                cursor.fetchall()

        return _spent(lambda: sent_again(calls, execute))


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
        elif function[0] == "~" and not any(driver in function[2] for driver in DRIVERS):
            for caller, (_, _, seconds, _) in callers.items():
                if by := name_of(caller):
                    found[by] = (found[by][0], found[by][1] + seconds)
    return found


def functions(effort: Effort, home: Home) -> Table:
    with closing(prepared(home, "profiled", effort)) as queue:
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
        "One process makes one call after the other, with everything on, while other tasks are ready. The layers "
        "are found by leaving them out: the statements that xq sent were sent again through Peewee, through the "
        "driver, and through the driver in one transaction. Each cell is the median of the calls, since now and "
        "then one of them copies the log into the file.",
        layers,
    ),
    Section(
        "cpu",
        "Whose CPU time a cycle is",
        "One process makes one call after the other, while other tasks are ready. The driver alone sent xq's "
        "statements again in a plain loop. The difference is the Python of xq and of Peewee. Each cell is the best "
        "of interleaved runs, since other work on the machine adds to each.",
        cpu,
    ),
    Section(
        "functions",
        "Within xq",
        "The slowest functions of xq's own layer, with the built-in code that they call, by a profiler. A profiler "
        "makes frequent calls look slower than they are.",
        functions,
    ),
    *fused.SECTIONS,
]

if __name__ == "__main__":
    run(SECTIONS, "make profile")
