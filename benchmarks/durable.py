"""Durable steps beside DBOS: workflows of five steps that do nothing, one after the other in one thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any, cast
from urllib.parse import urlencode

import xq
from benchmarks.databases import Home, Postgres
from benchmarks.measure import race
from benchmarks.report import Effort, Table, rate

STEPS = 5
Runs = Callable[[int], float]  # runs so many workflows, and returns the seconds


def nothing() -> None: ...


def by_xq(database: Postgres, stack: ExitStack) -> Runs:
    """A worker's function with steps; each task is put, taken and acked."""

    db = database.peewee()
    stack.callback(db.close)
    Work: Any = type("Work", (xq.Task,), {"Meta": type("Meta", (), {"database": db})})
    queue = xq.upgrade(Work, features={"steps": True, "delayed": True, "buried": True, "ttr": 60})
    db.create_tables([Work])

    def work(task: Any) -> None:
        for n in range(STEPS):
            xq.step(f"step {n}", nothing)

    worker = queue.worker(work)

    def run(n: int) -> float:
        started = time.perf_counter()
        queue.put_many([{}] * n)
        worker.run(until_empty=True)
        return time.perf_counter() - started

    return run


def by_dbos(database: Postgres, stack: ExitStack) -> Runs:
    """A workflow with steps, called as its documentation begins."""
    from dbos import DBOS

    url = f"{database.where}{'&' if '?' in database.where else '?'}{urlencode({'options': database.options})}"
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    step = DBOS.step()(nothing)

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def workflow() -> None:
        for _ in range(STEPS):
            step()

    DBOS.launch()
    stack.callback(DBOS.destroy)

    def run(n: int) -> float:
        started = time.perf_counter()
        for _ in range(n):
            workflow()
        return time.perf_counter() - started

    return run


CONTESTANTS: dict[str, Callable[[Postgres, ExitStack], Runs]] = {"xq": by_xq, "DBOS": by_dbos}


def durable(effort: Effort, home: Home) -> Table:
    """Return workflows a second of each, and by how much xq's is the multiple of the other."""
    logging.disable(logging.WARNING)
    n = max(20, effort.calls // 10)
    with ExitStack() as stack:
        runs = {name: make(cast(Postgres, home.new(name.lower())), stack) for name, make in CONTESTANTS.items()}
        found = race(runs, lambda name: {"workflows": n / runs[name](n)}, effort.repetitions)
    names = {"xq": f"xq {xq.__version__}", "DBOS": f"DBOS {version('dbos')}"}
    mine = found["xq"]
    rows = [
        (names[name], rate(each.best("workflows")), mine.times(each, "workflows", 1)) for name, each in found.items()
    ]
    return Table(("", "workflows of 5 steps", "xq's as a multiple (best / median)"), rows)
