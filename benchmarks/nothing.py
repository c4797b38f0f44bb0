"""The program that benchmarks/workers.py measures: workers that do nothing, in a module that their processes import."""

from __future__ import annotations

import logging
import os
import pickle
import time
from mmap import mmap

import peewee as pw

import xq
from benchmarks.contestants import PAYLOAD

logging.disable(logging.WARNING)  # else there is a line for each task
place, marked, n, options = pickle.loads(bytes.fromhex(os.environ["XQ_BENCH_NOTHING"]))
with open(marked, "r+b") as _file:  # all processes share it: of each the first call, the last, and processor time then
    marks = memoryview(mmap(_file.fileno(), 0)).cast("d")
processes = options.get("workers", 1) if options.get("kind") == "process" else 1


class Task(xq.Task):
    payload = pw.TextField()

    class Meta:
        database = place.database.peewee()


queue = xq.upgrade(Task, features={"ttr": 60, "buried": True})


def work(task: object) -> None:
    mine = os.getpid() * 4 % len(marks)
    if not marks[mine]:
        marks[mine] = 1
        until = time.perf_counter() + 2
        while sum(map(bool, marks[::4])) < processes and time.perf_counter() < until:
            time.sleep(0.001)  # for the others: else the first one does the work of one that is still starting
        marks[mine], marks[mine + 1] = time.perf_counter(), time.process_time()
    marks[mine + 2], marks[mine + 3] = time.perf_counter(), time.process_time()


async def coroutine(task: object) -> None:
    work(task)


def main() -> tuple[float, float, float]:
    """Return the seconds until the first call, from there to the last, and of processor time meanwhile."""
    Task._meta.database.create_tables([Task])
    queue.install()
    queue.put_many([{"payload": PAYLOAD}] * n)
    worker = queue.worker(globals()[options.pop("function")], **options)
    Task._meta.database.close()
    start, used = time.perf_counter(), time.process_time()
    worker.run(until_empty=True)
    used = 0.0 if marks[os.getpid() * 4 % len(marks)] else time.process_time() - used  # a parent, which calls nothing
    if left := Task.select().count():
        raise RuntimeError(f"of {n} tasks {left} are left by {options}")
    rows = [marks[i : i + 4] for i in range(0, len(marks), 4) if marks[i]]
    first, last = max(row[0] for row in rows), max(row[2] for row in rows)
    return first - start, last - first, used + sum(row[3] - row[1] for row in rows)
