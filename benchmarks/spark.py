"""Spark and queues, measured: `python -m benchmarks.spark sources [rows] [sqlite postgres mariadb]`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import peewee as pw

import xq
from benchmarks.databases import PATIENCE
from tests import servers

ROUNDS = 4  # of which the best counts: others work on the machine as well
START = 1_767_225_600_000_000  # microseconds since 1970: 2026 begins
EVENTS = (("X", "R", "put"), ("R", "T", "take"), ("T", "X", "ack"))


@contextmanager
def database(kind: str) -> Iterator[pw.Database]:
    """A fresh one, of this kind."""
    if kind == "sqlite":
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(pw.SqliteDatabase(str(Path(folder, "q.db")), timeout=PATIENCE)) as found,
        ):
            yield found
        return
    server = {"postgres": servers.Postgres, "mariadb": servers.MariaDB}[kind]()
    server.start()
    try:
        server.create("q")
        with closing(server.peewee("q")) as found:
            yield found
    finally:
        server.stop()


def queue(db: pw.Database) -> Any:
    """A queue with an empty history."""

    class Page(pw.Model):
        status = pw.CharField(default="R")

        class Meta:
            database = db

    xq.upgrade(Page, {"status": "status"}, {"history": True})
    db.create_tables([Page])
    return Page


def fill(page: Any, rows: int) -> None:
    """So many rows of history: each task is put, taken and acked, a millisecond apart."""
    history = page.xq.History
    names = ["at_us", "key", "source", "target", "event", "attempt"]
    fields = [getattr(history, name) for name in names]

    def row(i: int) -> tuple[Any, ...]:
        return (START + i * 1000, str(i // 3), *EVENTS[i % 3], 1)

    with history._meta.database.atomic():
        for first in range(0, rows, 5_000):
            history.insert_many([row(i) for i in range(first, min(rows, first + 5_000))], fields).execute()


def seconds(work: Callable[[], object]) -> float:
    """The best of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def sources(rows: int = 1_000_000, kinds: tuple[str, ...] = ("sqlite", "postgres", "mariadb")) -> None:
    """All columns of a history, read and thrown away: by format("xq") and by JDBC, in one run."""
    spark = xq.spark.session(master="local[2]", driver_memory="1g")
    spark.sparkContext.setLogLevel("ERROR")
    for kind in kinds:
        with database(kind) as db:
            page = queue(db)
            fill(page, rows)
            given = xq.spark.options(page, "history")
            names = [column.name for column in page.xq.extract("history").chosen()]

            def own(parts: int, given: dict[str, str] = given) -> Any:
                return spark.read.format("xq").options(**given).option("partitions", parts).load()

            def jdbc(parts: int, page: Any = page) -> Any:
                return xq.spark.jdbc(spark, page, "history", partitions=parts)

            for name, made in {"xq": own, "JDBC": jdbc}.items():
                for parts in (1, 2):
                    assert made(parts).count() == rows
                    took = seconds(lambda made=made, parts=parts: _drop(made(parts)))  # type: ignore[misc]
                    print(
                        f"{kind:9} {name:5} {parts} partition(s): {took:6.2f} s, {rows / took / 1e6:5.2f} M rows/s",
                        flush=True,
                    )
            print(f"{kind:9} {len(names)} columns", flush=True)
    spark.stop()


def _drop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    what, *more = sys.argv[1:] or ["sources"]
    {"sources": sources}[what](
        int(more[0]) if more else 1_000_000, tuple(more[1:]) or ("sqlite", "postgres", "mariadb")
    )
