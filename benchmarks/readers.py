"""A queue beside readers that keep their snapshots for minutes, as reports do: a section of make bench-long.

Their snapshots overlap. So the database never clears away the rows that were deleted in the last two minutes.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from benchmarks.contestants import Existing, Place, Xq
from benchmarks.databases import Database, Home
from benchmarks.held import READS
from benchmarks.measure import percentile
from benchmarks.report import Effort, Section, Table, milli, rate

READERS, APART, LASTS = 3, 20.0, 120.0  # and the seconds between their begins, and of each snapshot
RATE = 800  # tasks that are put each second
CONTESTANTS: dict[str, Any] = {
    "ordered by key": partial(Existing, features={"ttr": 60}),
    "ordered by priority": partial(Xq, roles=("owner", "runat"), features={"ttr": 60}),
}


def put_on(opens: Any, place: Place, put: Any, ended: Any) -> None:
    """Put RATE tasks a second, and count them."""
    with closing(opens(place)) as queue:
        begun = time.monotonic()
        while not ended.wait(0.001):
            due = int((time.monotonic() - begun) * RATE) - put.value
            if due > 0:
                queue.put_many(min(due, 100))
                put.value += min(due, 100)


def read_on(database: Database, after: float, ended: Any) -> None:
    """Begin after so many seconds to keep one snapshot after the other."""
    while not ended.wait(after):
        after = 0.0
        with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
            for sql in (*READS[database.engine], "SELECT COUNT(*) FROM task"):
                cursor.execute(sql)
            cursor.fetchall()
            ended.wait(LASTS)


def line(home: Home, name: str, readers: int, seconds: float) -> list[str]:
    """Take and ack for so many seconds, and measure in the second half."""
    opens, spawn, takes = CONTESTANTS[name], multiprocessing.get_context("spawn"), list[float]()
    database, ended, put = home.new("readers"), spawn.Event(), spawn.Value("l", 0)
    place, taken = Place(database), 0
    with ExitStack() as stack, closing(opens(place)) as queue:
        others: list[Any] = [
            threading.Thread(target=read_on, args=(database, i * APART, ended)) for i in range(readers)
        ]
        for other in [*others, spawn.Process(target=put_on, args=(opens, place, put, ended))]:
            other.start()
            stack.callback(other.join)
        stack.callback(ended.set)
        while not put.value:
            time.sleep(0.01)  # the other process starts
        begun = time.monotonic()
        while (since := time.monotonic() - begun) < seconds:
            start = time.perf_counter()
            task = queue.take()
            spent = time.perf_counter() - start
            if task is None and (task := queue.queue.take(timeout=0.1)) is None:
                continue
            queue.ack(task)
            taken += 1
            if since > seconds / 2:
                takes.append(spent)
        backlog = put.value - taken
    takes = takes or [0.0]
    cell = f"{milli(percentile(takes, 0.5))} / {milli(percentile(takes, 0.99))}"
    return [f"{name}, {readers} readers", rate(2 * len(takes) / seconds), cell, f"{backlog:,}"]


def beside_readers(effort: Effort, home: Home) -> Table:
    lines = [line(home, name, readers, effort.readers) for name in CONTESTANTS for readers in (0, READERS)]
    return Table(["", "tasks a second", "p50 / p99 in ms", "backlog at the end"], lines)


SECTIONS = [
    Section(
        "readers",
        "Beside readers that keep their snapshots",
        f"A process puts {RATE} tasks a second, and another takes and acks each, while {READERS} connections "
        f"read the table and keep their snapshots for {LASTS:.0f} s, {APART:.0f} s apart. The numbers are those of the "
        "second half, p50 and p99 those of take. On PostgreSQL a queue that is ordered by its key alone has floors.",
        beside_readers,
        on=("postgres",),
    )
]
