"""What a task writes on PostgreSQL, in bytes of its log and in dead rows: a section of make bench without a timing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from itertools import cycle
from typing import Any

from benchmarks.contestants import PAYLOAD, Place, UnattendedMoves, Xq, floor
from benchmarks.databases import Database, Home
from benchmarks.measure import Opens
from benchmarks.report import Effort, Section, Table
from xq.engine.stats import roll_up_some

STILL = 1.5  # seconds in which every connection has reported to the server's statistics what it changed


class InUtubes(Xq):
    """Each of its tasks is of the next of ten utubes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, ("utube",), {"utube": True})
        self._utubes = cycle(f"host {i}" for i in range(10))

    def put(self, payload: str = PAYLOAD) -> object:
        return self.queue.put({"payload": payload, "utube": next(self._utubes)})


CONTESTANTS: Mapping[str, Opens[UnattendedMoves]] = {
    "the floor": floor,
    "xq": Xq,
    "xq, the owner in a column": partial(Xq, roles=("owner",)),
    "xq, history": partial(Xq, features={"history": True}),
    "xq, utube": InUtubes,
}


def jobs(queue: UnattendedMoves, n: int) -> None:
    for _ in range(n):
        queue.put()
        queue.ack(queue.take())


def roll_up(queue: UnattendedMoves) -> None:
    while isinstance(queue, Xq) and roll_up_some(queue.queue.parts.executor):
        pass


def asked(database: Database, sql: str) -> int:
    with closing(database.connect()) as connection:
        ((number,),) = connection.execute(sql).fetchall()
    return int(number)


def written(database: Database) -> int:
    return asked(database, "SELECT pg_current_wal_insert_lsn() - '0/0'")


def dead(database: Database) -> int:
    """Rows that were deleted or replaced so far. Vacuumed ones count as well, so it does not matter when that runs."""
    found, since = -1, time.monotonic()
    while time.monotonic() - since < STILL:
        before, found = found, asked(database, "SELECT SUM(n_tup_upd + n_tup_del) FROM pg_stat_user_tables")
        since = since if found == before else time.monotonic()
        time.sleep(0.1)
    return found


def storage(effort: Effort, home: Home) -> Table:
    rows = []
    for i, (name, opens) in enumerate(CONTESTANTS.items()):
        queue = opens(Place(home.new(f"storage-{i}")))
        database: Any = queue.place.database
        with closing(queue):
            jobs(queue, 10)  # registers the session
            roll_up(queue)
            start = dead(database)
            log = [written(database)]
            for work in (partial(jobs, n=effort.calls), roll_up):
                work(queue)
                log.append(written(database))
        moved, rolled_up = ((log[i + 1] - log[i]) / effort.calls for i in range(2))
        left = (dead(database) - start) / effort.calls
        rows.append([name, f"{moved:,.0f}", f"{rolled_up:,.0f}", f"{moved + rolled_up:,.0f}", f"{left:.1f}"])
    return Table(["bytes of WAL a task", "put, take, ack", "rolling up", "in all", "dead rows a task"], rows)


SECTIONS = [
    Section(
        "storage",
        "What a task writes",
        "put, take and ack, one call each, in an empty queue: the bytes of the write-ahead log by "
        "`pg_current_wal_insert_lsn()`, with those that rolling up the counters writes later, and the deleted or "
        "replaced rows that vacuum must remove. The bytes that vacuum and the pruning of the history write are not "
        "counted.",
        storage,
        ("postgres",),
    ),
]
