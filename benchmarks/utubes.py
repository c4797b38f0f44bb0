"""Sections of utubes: many of them with a task each, and few that are always busy."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks.contestants import PAYLOAD, Place, Xq
from benchmarks.databases import Home
from benchmarks.measure import Opens, timed
from benchmarks.report import Effort, Section, Table

AT_ONCE = 1_000  # tasks of one put_many
CONSUMERS = 10  # as many as there are busy utubes

plain: Opens[Xq] = partial(Xq, roles=("owner", "utube"))
BOTH: Mapping[str, Opens[Xq]] = {
    "without the feature": plain,
    "with it": partial(Xq, roles=("owner", "utube"), features={"utube": True}),
}


def put(queue: Xq, utubes: Sequence[str]) -> float:
    """Seconds that it takes to put a task of each of these."""
    rows = [{"payload": PAYLOAD, "utube": utube} for utube in utubes]
    return timed(lambda: [queue.queue.put_many(rows[i : i + AT_ONCE]) for i in range(0, len(rows), AT_ONCE)])


def work_off(queue: Xq, n: int) -> None:
    """Take and ack until so many tasks are done, one after the other."""
    for _ in range(n):
        queue.ack(queue.take())


def consume(queue: Xq, n: int) -> None:
    """Take and ack until so many tasks are done, by several threads at once."""
    left, lock = [n], threading.Lock()

    def work() -> None:
        queue.connect()
        while left[0] > 0:
            task = queue.queue.take(0.05)
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


def cells(n: int, spent: Sequence[float], to: Sequence[float] | None) -> list[str]:
    """Seconds of put and of take and ack, and how many times as long as `to` each takes for a task."""
    found = []
    for i, seconds in enumerate(spent):
        times = "" if to is None else f" · {seconds / to[i]:.2f} ×"
        found.append(f"{seconds:.2f} s · {seconds / n * 1e6:,.0f} µs{times}")
    return found


def lonely(effort: Effort, home: Home) -> Table:
    n, rows = effort.utubes, []
    first: list[float] | None = None
    with ExitStack() as stack:
        for i, (name, opens) in enumerate(BOTH.items()):
            queue = opens(Place(home.new(f"lonely-{i}")))
            stack.callback(queue.close)
            spent = [put(queue, [f"host-{j}" for j in range(n)]), timed(partial(work_off, queue, n))]
            rows.append([f"{n:,} tasks, {name}", *cells(n, spent, first)])
            first = first or spent
    return Table(["", "put", "take and ack"], rows)


def busy(sizes: Sequence[int], effort: Effort, home: Home) -> Table:
    rows: list[list[str]] = []
    with ExitStack() as stack:
        for size in sizes:
            n, first = size * CONSUMERS, None
            for i, (name, opens) in enumerate(BOTH.items()):
                queue = opens(Place(home.new(f"busy-{size}-{i}")))
                stack.callback(queue.close)
                utubes = [f"host-{j % CONSUMERS}" for j in range(n)]
                spent = [put(queue, utubes), timed(partial(consume, queue, n))]
                rows.append([f"{CONSUMERS} × {size:,} tasks, {name}", *cells(n, spent, first)])
                first = first or spent
    return Table(["", "put", "take and ack"], rows)


TEXT_OF_BUSY = (
    f"{CONSUMERS} utubes of so many tasks each, and a thread for each that takes and acks whatever comes next: seconds "
    "in all, for a task, and how many times as long as in the same table without the feature, where nothing keeps two "
    "tasks of a host apart."
)


def of_busy(effort: Effort, home: Home) -> Table:
    return busy(effort.busy, effort, home)


def of_busiest(effort: Effort, home: Home) -> Table:
    return busy(effort.busiest, effort, home)


SECTIONS = [
    Section(
        "utubes",
        "Many utubes",
        "A task in each of so many utubes: all put, a thousand a call, then all taken and acked, one after the other. "
        "Seconds in all, for a task, and how many times as long as without the feature.",
        lonely,
    ),
    Section("busy", "Busy utubes", f"{TEXT_OF_BUSY} `make bench-long` has longer ones.", of_busy),
]
LONG = [Section("busiest", "Longer busy utubes", TEXT_OF_BUSY, of_busiest)]
