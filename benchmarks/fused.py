"""Whether a worker should ack one task and take the next in one transaction, or in one statement: of make profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.contestants import Place, PostgresFloor, UnattendedMoves, Xq, counted_floor, floor
from benchmarks.databases import Home
from benchmarks.measure import Numbers, behind, race
from benchmarks.report import Effort, Section, Table, rate

Next = Callable[[Any], Any]  # acks a task and returns the next one


def two(queue: UnattendedMoves) -> Next:
    def ack_and_take(task: Any) -> Any:
        queue.ack(task)
        return queue.take()

    return ack_and_take


def together(queue: Xq) -> Next:
    both = two(queue)

    def ack_and_take(task: Any) -> Any:
        with queue.db.atomic():
            return both(task)

    return ack_and_take


def one(queue: PostgresFloor) -> Next:
    """Takes nothing when the ack came too late, as two calls of which the first raises."""
    table = queue.table
    oldest = (
        f"SELECT id FROM {table} WHERE status = 'R' AND EXISTS (SELECT 1 FROM acked) "
        "ORDER BY priority, id LIMIT 1 FOR UPDATE SKIP LOCKED"
    )
    sql = (
        f"WITH acked AS (DELETE FROM {table} WHERE id = %s AND status = 'T' RETURNING id), "
        f"picked AS MATERIALIZED ({oldest}), taken AS (UPDATE {table} SET status = 'T' FROM picked "
        f"WHERE {table}.id = picked.id RETURNING {table}.id, payload, priority) "
        "SELECT (SELECT COUNT(*) FROM acked), taken.* FROM (SELECT 1) AS always LEFT JOIN taken ON true"
    )

    def ack_and_take(task: Any) -> Any:
        acked, *taken = queue._run(sql, (task[0],)).fetchone()
        if acked != 1:
            raise LookupError(task)
        return taken

    return ack_and_take


owned = partial(Xq, roles=("owner",))
WAYS: Mapping[str, tuple[Callable[[Place], Any], Callable[[Any], Next]]] = {
    "the floor, two statements": (floor, two),
    "the floor, one statement": (floor, one),
    "the floor, counted by xq's triggers, two statements": (counted_floor, two),
    "the floor, counted by xq's triggers, one statement": (counted_floor, one),
    "xq, two calls": (owned, two),
    "xq, two calls in a transaction": (owned, together),
}


def fused(durable: bool, effort: Effort, home: Home) -> Table:
    with ExitStack() as stack:
        queues = {}
        for name, (opens, way) in WAYS.items():
            if way is one and home.engine != "postgres":
                continue
            queue = opens(Place(home.new(name, durable)))
            stack.callback(queue.close)
            queues[name] = (queue, way(queue))

        def measured(name: str) -> Numbers:
            queue, ack_and_take = queues[name]
            with behind(queue, effort.waiting):
                queue.put_many(effort.calls)
                task = queue.take()
                start = time.perf_counter()
                for _ in range(effort.calls):
                    task = ack_and_take(task)
                spent = time.perf_counter() - start
                queue.ack(task)
                queue.put()
            return {"rate": effort.calls / spent}

        results = race(queues, measured, effort.repetitions)
    base, *_ = results.values()
    rows = []
    for name, of in results.items():
        rows.append([name, rate(of.best("rate")), rate(of.median("rate")), of.times(base, "rate")])
    return Table(["ack and take", "best", "median", "to the first"], rows)


SECTIONS = [
    Section(
        "fused",
        "Ack and take at once",
        "A worker acks a task and takes the next: by two statements with a commit each, by one statement that does "
        "both where the database has such, or by two calls in one transaction. xq's workers make two calls. One "
        "statement would report two events to its triggers at once, and saves little where they count. A "
        "transaction saves nothing.",
        partial(fused, False),
    ),
    Section(
        "fused-full",
        "Ack and take at once, and every commit on the disk",
        "As above, but each commit waits for the disk.",
        partial(fused, True),
    ),
]
