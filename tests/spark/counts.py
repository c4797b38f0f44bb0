"""A table that counts the transitions of queues: filled by a stream, and compared with the history."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import xq
from tests.factories import task, tasks

FEATURES = {"keep": True, "buried": True, "history": True}


def count(spark: SparkSession, queues: Any, folder: Path, **options: Any) -> None:
    """Have the table told hold what the history tells now, or, on MariaDB, told two seconds ago."""
    query = xq.spark.stream(spark, queues, "told", str(folder / "checkpoint"), available_now=True, **options)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def counted(Task: Any, columns: str = "queue, tube, unit, source, target, event") -> dict[tuple[Any, ...], int]:
    found = Task._meta.database.execute_sql(f"SELECT {columns}, SUM(n) FROM told GROUP BY {columns}").fetchall()
    return {tuple(row[:-1]): int(row[-1]) for row in found}


def of_history(Task: Any, unit: str = "minute") -> dict[tuple[Any, ...], int]:
    rows = Task.xq.history()
    return Counter(("Task", row.tube or "", unit, row.source, row.target, row.event) for row in rows)


def is_current(spark: SparkSession, Task: Any, folder: Path, **options: Any) -> bool:
    count(spark, Task, folder, **options)
    return counted(Task) == of_history(Task)


def busy(Task: Any) -> None:
    """Each kind of transition that the queue has."""
    Task.xq.put_many([*tasks(3, tube="a"), task(tube="\U0001f986 'b'"), task()])
    done, buried, back, killed, _ = Task.xq.take_many(5)
    Task.ack(done)
    Task.bury(buried)
    Task.release(back)
    Task.kill(killed)
