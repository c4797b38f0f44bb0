"""Coroutines of one process that share the transactions of a turn of the event loop: a section of make bench."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

from benchmarks.contestants import PAYLOAD, Contestant, Place, Xq, floor
from benchmarks.databases import Home
from benchmarks.measure import Numbers, cycles, race
from benchmarks.report import Effort, Section, Table, rate

QUEUES: Mapping[str, partial[Xq]] = {
    "no features": partial(Xq),
    "buried, delayed, ttr, history": partial(
        Xq, roles=("runat",), features={"buried": True, "delayed": True, "ttr": 60, "history": True}
    ),
}
WORKER = "tasks of a worker"


async def _cycle(queue: Any, end: float) -> int:
    """Put, take and ack until the time is over. Return how often."""
    count = 0
    while time.perf_counter() < end:
        await queue.aio.put({"payload": PAYLOAD})
        await queue.aio.ack(await queue.aio.take())
        count += 1
    return count


async def _together(queue: Any, n: int, seconds: float) -> float:
    """Return the cycles a second of `n` coroutines together."""
    start = time.perf_counter()
    counts = await asyncio.gather(*(_cycle(queue, start + seconds) for _ in range(n)))
    return sum(counts) / (time.perf_counter() - start)


async def _nothing(task: object) -> None:
    pass


def _worked(queue: Any, n: int, tasks: int) -> float:
    """Return the tasks a second of a worker of `n` coroutines whose function does nothing."""
    queue.put_many([{"payload": PAYLOAD}] * tasks)
    start = time.perf_counter()
    queue.run(until_empty=True, workers=n)
    return tasks / (time.perf_counter() - start)


def coroutines(effort: Effort, home: Home) -> Table:
    with ExitStack() as stack:
        found: dict[str, Contestant] = {"the floor": floor(Place(home.new("floor")))}
        found |= {name: opens(Place(home.new(f"queue-{i}"))) for i, (name, opens) in enumerate(QUEUES.items())}
        found[WORKER] = worker = Xq(Place(home.new("worker")))
        worker.queue.worker(_nothing)
        logging.getLogger("xq").addHandler(logging.NullHandler())  # else run() shows each task
        for contestant in found.values():
            stack.callback(contestant.close)

        def run(who: tuple[str, int]) -> Numbers:
            contestant, seconds = found[who[0]], effort.seconds
            if contestant is worker:
                return {"cycle": _worked(worker.queue, who[1], effort.calls * who[1])}
            if isinstance(contestant, Xq):
                return {"cycle": asyncio.run(_together(contestant.queue, who[1], seconds))}
            return {"cycle": cycles(contestant, seconds)}

        results = race([("the floor", 1), *product([*QUEUES, WORKER], effort.coroutines)], run, effort.repetitions)
    base = results["the floor", 1]
    rows = [["the floor", rate(base.median("cycle"))] + [""] * (len(effort.coroutines) - 1)]
    for name in [*QUEUES, WORKER]:
        each = [results[name, n] for n in effort.coroutines]
        rows.append([name, *(f"{rate(of.median('cycle'))} · {of.times(base, 'cycle')}" for of in each)])
    return Table(["", *(f"{n} coroutine{'s' * (n > 1)}" for n in effort.coroutines)], rows)


SECTIONS = [
    Section(
        "coroutines",
        "Coroutines",
        "Cycles of put, take and ack a second by `Page.xq.aio`, of all coroutines of one process together, and as a "
        "multiple of one loop of the floor (best / median). The calls of one turn of the event loop share a "
        "transaction. Statistics are on. The last row: tasks a second of a worker that is an `async def` with so many "
        "coroutines, does nothing, and finds all of its tasks there.",
        coroutines,
    ),
]
