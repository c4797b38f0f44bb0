"""Workers whose function does nothing, by kind: a section of make bench."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.contestants import Place, floor
from benchmarks.databases import Home
from benchmarks.measure import Numbers, race
from benchmarks.report import Effort, Section, Table, micro, milli, rate

FLOOR = "the floor: take and ack, one loop"
WORKERS: Mapping[str, Mapping[str, Any]] = {
    "1 thread": {"function": "work", "kind": "thread"},
    "4 threads, prefetch=10": {"function": "work", "kind": "thread", "workers": 4, "prefetch": 10},
    "32 coroutines": {"function": "coroutine", "workers": 32},
    "2 processes": {"function": "work", "kind": "process", "workers": 2},
    "2 processes, prefetch=20": {"function": "work", "kind": "process", "workers": 2, "prefetch": 20},
}
Seconds = tuple[float, float, float]  # of the start, of the work, of processor time


def by_hand(place: Place, n: int) -> Seconds:
    """Put so many tasks, and work them off by a loop of takes and acks."""
    queue = floor(place)
    queue.put_many(n)
    start, used = time.perf_counter(), time.process_time()
    for _ in range(n):
        queue.ack(queue.take())
    found = 0.0, time.perf_counter() - start, time.process_time() - used
    queue.close()
    return found


def worked(place: Place, n: int, options: Mapping[str, Any]) -> Seconds:
    """The same of a program of its own."""
    with tempfile.NamedTemporaryFile() as marked:
        marked.truncate(1 << 16)
        given = {"XQ_BENCH_NOTHING": pickle.dumps((place, marked.name, n, options)).hex()}
        command = [sys.executable, "-c", "from benchmarks import nothing; print(*nothing.main())"]
        told = subprocess.run(command, env=os.environ | given, stdout=subprocess.PIPE, check=True).stdout.split()
    return float(told[0]), float(told[1]), float(told[2])


def workers(effort: Effort, home: Home) -> Table:
    n = 16 * effort.calls

    def measured(name: str) -> Numbers:
        place = Place(home.new("work"))
        start, work, used = by_hand(place, n) if name == FLOOR else worked(place, n, WORKERS[name])
        return {"work": n / work, "processor": n / used, "start": start}

    results = race([FLOOR, *WORKERS], measured, effort.rounds)
    rows = []
    for name, of in results.items():
        times = [of.times(results[FLOOR], "work"), micro(1 / of.median("processor")), milli(of.median("start"))]
        rows.append([name, rate(of.median("work")), *times])
    return Table(["", f"{n:,} tasks", "to the floor", "processor time of a task, µs", "start, ms"], rows)


SECTIONS = [
    Section(
        "workers",
        "Workers by kind",
        "Tasks are put; then a program works them off by a function that does nothing. The rate is that from the first "
        "call to the last one; a process waits in its first call until all have started. The processor time is that "
        "of the program and, from then on, of its processes; the server's is not in it. The last column has the time "
        "from run() to the first call, in all processes.",
        workers,
    ),
]
