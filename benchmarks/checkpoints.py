"""What SQLite's checkpoints cost several processes on one file: a section of make bench."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import peewee as pw

from benchmarks.contestants import Place, Xq
from benchmarks.databases import Home, Sqlite
from benchmarks.measure import percentile, spawn
from benchmarks.report import Effort, Section, Table, micro, rate

PAGES = (1_000, 10_000)  # of the log, after which a commit checkpoints; the first is SQLite's own


@dataclass(frozen=True)
class Checkpointed(Sqlite):
    """A file whose commits checkpoint when the log has so many pages."""

    pages: int = PAGES[0]

    def peewee(self) -> pw.Database:
        pragmas = {"synchronous": self.synchronous, "wal_autocheckpoint": self.pages}
        return pw.SqliteDatabase(self.where, timeout=60, pragmas=pragmas)


def calls(place: Place, seconds: float) -> list[float]:
    """Return the seconds of each put, take and ack of a process that makes them one after the other."""
    queue = Xq(place)
    found: list[float] = []
    end = time.monotonic() + seconds
    while not found or time.monotonic() < end:
        start = time.perf_counter()
        queue.put()
        put = time.perf_counter()
        task = queue.take()
        taken = time.perf_counter()
        if task is not None:  # else another process has taken it
            queue.ack(task)
            found += [put - start, taken - put, time.perf_counter() - taken]
    queue.close()
    return found


def shown(times: Sequence[float], seconds: float) -> list[str]:
    return [rate(len(times) / 3 / seconds), *(micro(percentile(times, share)) for share in (0.5, 0.99))]


def checkpoints(effort: Effort, home: Home) -> Table:
    size, seconds = max(effort.processes), 10 * effort.seconds
    found: dict[int, list[float]] = {pages: [] for pages in PAGES}
    with spawn.Pool(size) as pool:
        for turn in range(effort.rounds * len(PAGES)):
            pages = PAGES[turn % len(PAGES)]
            place = Place(Checkpointed(home.new(f"checkpoint_{turn}").where, pages=pages), "task")
            Xq(place).close()  # installed before the others come
            for times in pool.starmap(calls, [(place, seconds)] * size):
                found[pages] += times
    rows = [[f"{pages:,} pages", *shown(times, effort.rounds * seconds)] for pages, times in found.items()]
    return Table(["`PRAGMA wal_autocheckpoint`", "cycles a second", "p50 of a call, µs", "p99 of a call, µs"], rows)


SECTIONS = [
    Section(
        "checkpoints",
        "Checkpoints of SQLite's log",
        "Several processes put, take and ack on one file. The commit that finds the log at its limit copies it "
        "into the file and waits for the disk. With more pages that happens less often, and the log and each copy "
        "are longer.",
        checkpoints,
        ("sqlite",),
    ),
]
