"""A file that a stream of the history is written to, and what must be there afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import xq


class Sink:
    """A file that keeps each batch once, as often as that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("CREATE TABLE IF NOT EXISTS row (batch, id, key, source, target, dur_us)")

    def write(self, df: Any, batch: int) -> None:
        columns = ["id", "key", "source", "target", *(["dur_us"] if "dur_us" in df.columns else [])]
        rows = [(batch, *row) for row in df.select(*columns).collect()]
        with closing(sqlite3.connect(self.path)) as file, file:
            file.execute("DELETE FROM row WHERE batch = ?", (batch,))
            marks = ", ".join("?" for _ in range(len(columns) + 1))
            file.executemany(f"INSERT INTO row (batch, {', '.join(columns)}) VALUES ({marks})", rows)

    def rows(self, columns: str = "id, key, source, target") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as file:
            return file.execute(f"SELECT {columns} FROM row ORDER BY id").fetchall()

    def sizes(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as file:
            return [n for (n,) in file.execute("SELECT COUNT(*) FROM row GROUP BY batch ORDER BY batch")]


def stream(spark: Any, options: dict[str, str], sink: Sink, **more: Any) -> Any:
    read = spark.readStream.format("xq").options(**options).options(**more).load()
    write = read.writeStream.option("checkpointLocation", str(sink.path) + ".checkpoint")
    return write.trigger(availableNow=True).foreachBatch(sink.write)


def drain(spark: Any, queue: Any, sink: Sink, **more: Any) -> None:
    """All that is there now."""
    query = stream(spark, xq.spark.options(queue, "history"), sink, **more).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def told(queue: Any) -> list[tuple[Any, ...]]:
    return sorted((row.id, row.key, row.source, row.target) for row in queue.xq.history())
