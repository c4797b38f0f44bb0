"""Show on a terminal what a report does. Elsewhere it prints nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Event, Thread

from pyspark.sql import SparkSession

EVERY = 0.5  # seconds between two looks at Spark


@contextmanager
def progress(spark: SparkSession, steps: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that is called at the beginning of each step. Without Rich a terminal shows plain lines."""
    if not sys.stderr.isatty():
        yield lambda step: None
    elif find_spec("rich") is None:
        yield lambda step: print(step, file=sys.stderr)
    else:
        with _bars(spark, steps) as begin:
            yield begin


@contextmanager
def _bars(spark: SparkSession, steps: int) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        whole, tasks = shown.add_task("report", total=steps), shown.add_task("tasks of Spark", total=None)
        over, begun = Event(), 0

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not over.wait(EVERY):
                stages = [stage for id_ in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(id_))]
                if stages:
                    done = sum(stage.numCompletedTasks for stage in stages)
                    shown.update(tasks, completed=done, total=sum(stage.numTasks for stage in stages))

        def begin(step: str) -> None:
            nonlocal begun
            shown.update(whole, description=step, completed=begun)
            begun += 1

        watcher = Thread(target=watch, name="xq-report-progress", daemon=True)
        watcher.start()
        try:
            yield begin
        finally:
            over.set()
            watcher.join()
