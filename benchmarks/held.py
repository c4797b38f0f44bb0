"""The cost of an open transaction for the queue beside it: a section of make bench-long.

Its snapshot keeps the database from clearing away what was deleted since, and a take has to step over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from benchmarks.contestants import Place, UnattendedMoves, Xq, floor
from benchmarks.databases import Database, Home
from benchmarks.measure import Opens, percentile
from benchmarks.report import Effort, Section, Table, micro, rate

CYCLES = 20  # of one contestant, before it is the next one's turn
READS: Mapping[str, tuple[str, ...]] = {  # what makes a transaction keep its snapshot
    "sqlite": ("BEGIN",),
    "postgres": ("BEGIN ISOLATION LEVEL REPEATABLE READ",),
    **dict.fromkeys(("mariadb", "mysql"), ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN")),
}
BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0"
XQ = partial(Xq, roles=("owner", "runat"), features={"ttr": 60})


def tuned(place: Place) -> Xq:
    queue = XQ(place)
    store = queue.queue.parts.store
    if store.engine == "postgres":
        store.execute(f"ALTER TABLE {place.table} SET ({BUSY})")
    return queue


CONTESTANTS: Mapping[str, Opens[UnattendedMoves]] = {"the floor": floor, "xq": XQ, "xq, tuned": tuned}


@contextmanager
def held(database: Database, table: str) -> Iterator[None]:
    """A transaction that has read, and stays open."""
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
        for sql in (*READS[database.engine], f"SELECT COUNT(*) FROM {table}"):
            cursor.execute(sql)
        cursor.fetchall()
        yield
        cursor.execute("ROLLBACK")


class Watch:
    """Queues that are kept busy, in turn, with a line of the table for every so many seconds."""

    def __init__(self, queues: Mapping[str, UnattendedMoves], every: float) -> None:
        self._queues = queues
        self._every = every
        self.lines: list[list[str]] = []

    def watch(self, seconds: float, called: Callable[[float], str]) -> None:
        """Keep them busy for so long; `called` names a line by the seconds when it ends."""
        start = time.monotonic()
        while (since := time.monotonic() - start) < seconds:
            self.lines.append(
                [called(min(since + self._every, seconds)), *self._line(min(self._every, seconds - since))]
            )

    def _line(self, seconds: float) -> list[str]:
        takes: dict[str, list[float]] = {name: [] for name in self._queues}
        spent = dict.fromkeys(self._queues, 0.0)
        end = time.monotonic() + seconds
        while not all(takes.values()) or time.monotonic() < end:  # once at least, however little is left of the time
            for name, queue in self._queues.items():
                begun = time.perf_counter()
                for _ in range(CYCLES):
                    queue.put()
                    start = time.perf_counter()
                    task = queue.take()
                    takes[name].append(time.perf_counter() - start)
                    queue.ack(task)
                spent[name] += time.perf_counter() - begun
        return [
            f"{micro(percentile(times, 0.5))} / {micro(percentile(times, 0.99))} · {rate(len(times) / spent[name])}"
            for name, times in takes.items()
        ]


def beside_a_transaction(effort: Effort, home: Home) -> Table:
    database = home.new("held")
    with ExitStack() as stack:
        queues = {}
        for i, (name, opens) in enumerate(CONTESTANTS.items()):
            queues[name] = opens(Place(database, f"task_{i}"))
            stack.callback(queues[name].close)
            queues[name].put_many(effort.waiting)
        watch = Watch(queues, effort.watched)
        watch.watch(effort.watched, lambda end: "before")
        with held(database, "task_0"):
            watch.watch(effort.held, lambda end: f"open for {end:,.0f} s")
        watch.watch(2 * effort.watched, lambda end: f"{end:,.0f} s after its end")
    return Table(["a transaction that has read", *CONTESTANTS], watch.lines)


SECTIONS = [
    Section(
        "held",
        "Beside a transaction that stays open",
        "Cycles of put, take and ack, one after the other, while another connection has read in a transaction and "
        "leaves it open. The database keeps everything that was deleted since then, in tables and indexes. The "
        "cells have the p50 and p99 of take in µs, and the cycles a second. The tuned table has the autovacuum "
        "settings of docs/databases.md.",
        beside_a_transaction,
    ),
]
