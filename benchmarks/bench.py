"""make bench: xq against hand-written SQL. The sections stand at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any

from benchmarks import checkpoints, coroutines, pages, shapes, sizing, storage, utubes, waiting, workers
from benchmarks.contestants import PAYLOAD, Existing, Place, UnattendedMoves, Xq, counted_floor, floor, model
from benchmarks.databases import HOMES, Home
from benchmarks.measure import Crew, Numbers, Opens, Series, behind, in_threads, percentile, race, single_calls, timed
from benchmarks.report import Effort, Section, Table, micro, milli, rate, run

CALLS = ("put", "take", "ack", "cycle")

# "Everything": every feature that can be switched on beside the others and costs something when it is not used.
EVERYTHING: Mapping[str, Any] = {
    "roles": ("owner", "runat", "attempts", "tube"),
    "features": {"ttr": 60, "ttl": 3600, "delayed": True, "buried": True, "history": True},
}
BARE: Opens[UnattendedMoves] = partial(Xq, roles=("owner",), statistics=False)
WHOLE: Opens[UnattendedMoves] = partial(Xq, **EVERYTHING)

FLOOR = "the floor"
MAIN: Mapping[str, Opens[UnattendedMoves]] = {
    FLOOR: floor,
    "the floor, counted by xq's triggers": counted_floor,
    "xq, an existing table; delayed, buried, ttr": partial(
        Existing, features={"delayed": True, "buried": True, "ttr": 60}
    ),
    "xq, no statistics": BARE,
    "xq, everything on": WHOLE,
}
FEATURES: Mapping[str, Opens[UnattendedMoves]] = {
    FLOOR: floor,
    "status, priority, owner; no statistics": BARE,
    "+ statistics": partial(Xq, roles=("owner",)),
    "an existing table: status, and own columns; statistics": Existing,
    "+ statistics, ttr": partial(Xq, roles=("owner", "runat"), features={"ttr": 60}),
    "+ statistics, history": partial(Xq, roles=("owner",), features={"history": True}),
    "+ statistics, ttr, ttl, delayed, buried, attempts, tube, history": WHOLE,
}


def opened(
    stack: ExitStack, names: Mapping[str, Opens[UnattendedMoves]], home: Home, waiting: int = 0, durable: bool = False
) -> dict[str, UnattendedMoves]:
    """Each in a database of its own, where so many tasks wait."""
    found = {name: opens(Place(home.new(f"queue-{i}", durable))) for i, (name, opens) in enumerate(names.items())}
    for contestant in found.values():
        stack.callback(contestant.close)
        if waiting:
            contestant.put_many(waiting)
    return found


def ratio(of: Series, to: Series, what: str) -> str:
    """Best/median of the repetitions, and the rate."""
    return f"{of.times(to, what)} · {rate(of.median(what))}"


def against_the_floor(results: Mapping[str, Series], measured: Iterable[str]) -> list[list[str]]:
    """A row for each contestant, a column for each thing measured: the floor's rates, and the ratios of the others."""
    floor = results[FLOOR]

    def cell(of: Series, what: str) -> str:
        return f"{of.best(what):,.0f} / {rate(of.median(what))}" if of is floor else ratio(of, floor, what)

    wanted = list(measured)
    return [[name, *(cell(of, what) for what in wanted)] for name, of in results.items()]


def singly(contestants: Mapping[str, Opens[UnattendedMoves]], effort: Effort, home: Home) -> Table:
    with ExitStack() as stack:
        queues = opened(stack, contestants, home)
        results = race(queues, lambda n: single_calls(queues[n], effort.calls, effort.waiting), effort.repetitions)
    return Table(["", *CALLS], against_the_floor(results, CALLS))


def batches(effort: Effort, home: Home) -> Table:
    """Rates are tasks a second; 1 is a single call."""

    def of_size(queue: UnattendedMoves, size: int) -> Numbers:
        """About as many tasks as single calls would move, and at least a few batches."""
        rounds = max(3, effort.calls // size)
        with behind(queue, effort.waiting):
            put = sum(timed(lambda: queue.put_many(size)) for _ in range(rounds))
            start = time.perf_counter()
            taken = [queue.take_many(size) for _ in range(rounds)]
            take = time.perf_counter()
            for tasks in taken:
                queue.ack_many(tasks)
            ack = time.perf_counter()
        n = rounds * size
        return {f"put {size}": n / put, f"take {size}": n / (take - start), f"ack {size}": n / (ack - take)}

    def measured(queue: UnattendedMoves) -> Numbers:
        found = dict(single_calls(queue, effort.calls, effort.waiting))
        for size in effort.batches:
            found |= of_size(queue, size)
        return found

    with ExitStack() as stack:
        queues = opened(stack, MAIN, home)
        results = race(queues, lambda name: measured(queues[name]), effort.repetitions)
    rows = []
    for name, of in results.items():
        for size in effort.batches:
            row = [f"{name}, batches of {size:,}"]
            for call in CALLS[:3]:
                here = f"{call} {size}"
                times = f"{of.median(here) / of.median(call):.1f} × · {rate(of.median(here))}"
                row.append(times if name == FLOOR else f"{times} · {of.median(here) / results[FLOOR].median(here):.2f}")
            rows.append(row)
    return Table(["", *CALLS[:3]], rows)


def columns(results: Mapping[tuple[str, int], Series]) -> dict[str, Series]:
    """What was measured for each number of callers, as one series for each contestant."""
    found: dict[str, Series] = {name: Series() for name in MAIN}
    for (name, callers), series in results.items():
        found[name].numbers[str(callers)] = series.numbers["cycle"]
    return found


def processes(durable: bool, effort: Effort, home: Home) -> Table:
    with ExitStack() as stack:
        queues = opened(stack, MAIN, home, effort.waiting, durable)
        members = {name: (MAIN[name], queue.place) for name, queue in queues.items()}
        crew = stack.enter_context(Crew(max(effort.processes), members))
        results = race(
            product(MAIN, effort.processes),
            lambda who: {"cycle": crew.run(who[0], effort.seconds, who[1])},
            effort.rounds,
        )
    heads = {str(n): f"{n} process{'es' * (n > 1)}" for n in effort.processes}
    return Table(["", *heads.values()], against_the_floor(columns(results), heads))


def threads(effort: Effort, home: Home) -> Table:
    with ExitStack() as stack:
        queues = opened(stack, MAIN, home, effort.waiting)
        results = race(
            product(MAIN, effort.threads),
            lambda who: {"cycle": in_threads(queues[who[0]], who[1], effort.seconds)},
            effort.rounds,
        )
    heads = {str(n): f"{n} thread{'s' * (n > 1)}" for n in effort.threads}
    return Table(["", *heads.values()], against_the_floor(columns(results), heads))


# what stands behind the ready tasks

RESTING = {"ready": "R", "done": "D", "buried": "B", "other statuses": "draft"}
AT_ONCE = 1_000_000  # rows of one INSERT that fills a table


def filled(place: Place, status: str, rows: int) -> Xq:
    """A queue installed on a table that has so many rows already."""
    db = place.database.peewee()
    with db:
        db.create_tables([model(db, place.table)])
    with closing(place.database.connect()) as connection, closing(connection.cursor()) as cursor:
        for first in range(0, rows, AT_ONCE):
            cursor.execute(
                f"INSERT INTO {place.table} (payload, status, priority, attempts) SELECT '{PAYLOAD}', '{status}', 0, 0 "
                f"FROM {place.database.numbers(min(AT_ONCE, rows - first))}"
            )
    queue = Xq(place, roles=("owner", "runat"), features={"ttr": 60, "buried": True, "keep": True})
    place.database.settle()
    return queue


def backlog(sizes: Callable[[Effort], Sequence[int]], kinds: Sequence[str], effort: Effort, home: Home) -> Table:
    chosen = {f"{n:,} rows, {kind}": (kind, n) for kind in kinds for n in sizes(effort)}
    times: dict[str, dict[str, list[float]]] = {name: {"take": [], "stats": []} for name in chosen}
    with ExitStack() as stack:
        queues = {}
        for name, (kind, rows) in chosen.items():
            queues[name] = filled(Place(home.new(f"{kind[0]}-{rows}")), RESTING[kind], rows)
            stack.callback(queues[name].close)

        def measured(name: str) -> Numbers:
            queue = queues[name]
            for _ in range(effort.samples):
                queue.put()
            tasks = []
            for _ in range(effort.samples):
                times[name]["take"].append(timed(lambda: tasks.append(queue.take())))
                times[name]["stats"].append(timed(queue.queue.stats))
            for task in tasks:
                queue.ack(task)
            return {}

        race(queues, measured, effort.rounds)
    found = []
    for kind in kinds:
        few, *_ = (percentile(times[f"{n:,} rows, {kind}"]["take"], 0.5) for n in sizes(effort))
        for n in sizes(effort):
            name = f"{n:,} rows, {kind}"
            take, stats = times[name]["take"], times[name]["stats"]
            p50 = percentile(take, 0.5)
            found.append(
                [name, micro(p50), micro(percentile(take, 0.99)), f"{p50 / few:.2f}"]
                + [milli(percentile(stats, 0.5)), milli(percentile(stats, 0.99))]
            )
    small = f"to {sizes(effort)[0]:,} rows"
    return Table(["behind", "take, p50 µs", "p99 µs", small, "stats(), p50 ms", "p99 ms"], found)


def burst(effort: Effort, home: Home) -> Table:
    def takes(queue: UnattendedMoves, before: Callable[[], object]) -> list[str]:
        found = []
        for _ in range(effort.samples):
            before()
            start = time.perf_counter()
            task = queue.take()
            found.append(time.perf_counter() - start)
            queue.ack(task)
        return [micro(percentile(found, 0.5)), micro(percentile(found, 0.99))]

    rows = []
    with ExitStack() as stack:
        for name, queue in opened(stack, {FLOOR: floor, "xq": partial(Xq, roles=("owner",))}, home).items():
            takes(queue, queue.put)
            queue.place.database.settle()  # it is empty, and so is what a planner learns of it
            rows.append([f"{name}, one after the other", *takes(queue, queue.put)])
            for first in range(0, effort.burst, AT_ONCE // 100):
                queue.put_many(min(AT_ONCE // 100, effort.burst - first))
            rows.append([f"{name}, after {effort.burst:,} at once", *takes(queue, lambda: None)])
    return Table(["puts", "take, p50 µs", "p99 µs"], rows)


TEXT_OF_BACKLOG = (
    "take and stats() in tables with many rows. Either all rows are ready, or a few ready rows come after many "
    "others. The aims are a take as fast as in a small table, and stats() under 5 ms."
)
TEXT_OF_CALLS = (
    "One process with one thread makes one call after the other, while other tasks are ready: all puts, then all "
    "takes, then all acks, then cycles of the three."
)
SECTIONS = [
    Section(
        "single",
        "Single calls",
        f"{TEXT_OF_CALLS} The aims are 0.8 of the floor on SQLite without statistics and 0.9 on PostgreSQL, and with "
        "everything on 0.5 and 0.7. Statistics cannot be switched off. To measure their cost, the benchmark dropped "
        "the triggers that count. It also ran the floor's statements with these triggers, which leaves the cost of "
        "xq's own layer. Everything means statistics, history, the owner in a column, ttr, ttl, delayed, buried, "
        "attempts and a tube.",
        partial(singly, MAIN),
    ),
    Section(
        "features",
        "What each feature adds",
        f"{TEXT_OF_CALLS} Each row has the feature in its name and no other.",
        partial(singly, FEATURES),
    ),
    Section(
        "batches",
        "UnattendedMoves",
        "put_many, take_many and ack_many. Each cell has the rate as a multiple of that of single calls, the tasks "
        "a second, and the ratio to the floor's batches of the same size (many rows in one INSERT, `LIMIT n`, a "
        "list of keys). The aim is 10 times the single calls with batches of 100.",
        batches,
    ),
    Section(
        "processes",
        "Processes",
        "Cycles of put, take and ack a second, of all processes together. SQLite runs one write at a time.",
        partial(processes, False),
    ),
    Section(
        "threads",
        "Threads",
        "Cycles of put, take and ack a second, of all threads of one process together. Each thread has a connection.",
        threads,
    ),
    Section(
        "full",
        "Processes, and every commit on the disk",
        "The processes as above, but each commit waits for the disk: "
        f"{', '.join(f'`{home.commits[True]}`' for home in HOMES.values())}.",
        partial(processes, True),
    ),
    Section(
        "backlog",
        "A long backlog",
        f"{TEXT_OF_BACKLOG} `make bench-long` has longer ones.",
        partial(backlog, attrgetter("backlogs"), tuple(RESTING)),
    ),
    Section(
        "burst",
        "Many at once after a quiet time",
        "take in a queue that was vacuumed while it was empty, before and after many tasks arrive at once. A "
        "database plans a statement by what it knew of the table, which is out of date then.",
        burst,
    ),
    *coroutines.SECTIONS,
    *workers.SECTIONS,
    *utubes.SECTIONS,
    *shapes.SECTIONS,
    *waiting.SECTIONS,
    *checkpoints.SECTIONS,
    *storage.SECTIONS,
    *sizing.SECTIONS,
    *pages.SECTIONS,
]

if __name__ == "__main__":
    from benchmarks.on_django import SECTIONS as ORMS  # it imports this module
    from benchmarks.sessions import SECTIONS as SESSIONS

    run([*SECTIONS, *ORMS, *SESSIONS], "make bench")
