"""A driver of Spark that fails: `python -m tests.spark.failing OPTIONS.json` is killed by the test that runs it.

Of each queue whose options are given, it first writes a frame whose tasks fail once their rows are durable, and are
tried again; then, as another job, one that is never committed, since the driver stands still instead.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

import xq
from xq.adapters.spark.session import offer
from xq.adapters.spark.source import Xq
from xq.adapters.spark.writer import Message, Writer

ROWS = 100


class FailingWriter(Writer):
    def write(self, iterator: Any) -> Message:
        message = super().write(iterator)
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0:
            raise RuntimeError("lost after all was written")
        return message


class Failing(Xq):
    """Each first attempt fails, when its rows are durable."""

    @classmethod
    def name(cls) -> str:
        return "failing"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return FailingWriter(super().writer(schema, overwrite).job)  # type: ignore[attr-defined]


class StuckWriter(Writer):
    told: str

    def commit(self, messages: Any) -> None:
        Path(self.told).write_text(str(len(messages)))
        signal.pause()


class Stuck(Xq):
    """Nothing is ever committed."""

    @classmethod
    def name(cls) -> str:
        return "stuck"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        found = StuckWriter(super().writer(schema, overwrite).job)  # type: ignore[attr-defined]
        found.told = self.options["told"]
        return found


def frame(spark: Any, name: str) -> Any:
    return spark.createDataFrame([(name, size) for size in range(ROWS)], "name STRING, size INT")


def write_and_stand_still(spark: Any, options: dict[str, str]) -> None:
    # Made in this thread: only then does Spark look for the source in this session.
    frame(spark, "killed").write.format("stuck").options(**options, job="killed").mode("append").save()


def main(file: str) -> None:
    spark = xq.spark.session(master="local[2,3]", driver_memory="512m")
    for source in (Failing, Stuck):
        offer(spark, source)
    queues = json.loads(Path(file).read_text())
    for options in queues:
        frame(spark, "tried").write.format("failing").options(**options).mode("append").save()
    for options in queues:
        threading.Thread(target=write_and_stand_still, args=(spark, options), daemon=True).start()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
