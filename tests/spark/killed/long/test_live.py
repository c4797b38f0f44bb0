"""A table that counts transitions is right, although the driver is killed again and again while tasks move."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Timer
from typing import Any

import peewee as pw
from pyspark.errors import StreamingQueryException

import xq
from tests.conftest import live
from tests.factories import tasks
from tests.spark.counts import FEATURES, counted, is_current
from tests.spark.drivers import driver
from tests.steps import PATIENCE, eventually
from xq.pipeline.checkpoints import Rollup

KILLS = 10  # of a driver
LATEST = 3.0  # seconds after which a driver is killed
LOOK = 0.05  # seconds for which a process that works waits for tasks of others


def works(db: pw.Database, tell: Any, folder: str, seed: int) -> None:
    """Put, take and end tasks until a file says stop."""
    chance, queue = random.Random(seed), live(db)(FEATURES, roles=("tube",)).xq
    ends = (queue.ack, queue.ack, queue.ack, queue.release, queue.bury, queue.kill)
    while not Path(folder, "stop").exists():
        queue.put_many(tasks(chance.randrange(1, 5), tube=chance.choice((None, "a", "b"))))
        while (found := queue.take(timeout=LOOK)) is not None:
            chance.choice(ends)(found)


def counts_until(db: pw.Database, tell: Any, folder: str, seconds: float, begins: str) -> None:
    """Count by a stream, a few rows at once, until all processes of this driver are killed.

    That is so many seconds after the session, or the first batch, begins.
    """
    os.setpgrp()
    kill = Timer(seconds, os.killpg, (0, signal.SIGKILL))
    Task: Any = live(db)(FEATURES, roles=("tube",))
    add = Rollup.add

    def begin() -> None:
        if kill.ident is None:
            kill.start()

    def added(*given: Any) -> bool:
        begin()
        return add(*given)

    Rollup.add = added  # type: ignore[assignment,method-assign]
    spark = xq.spark.session(master="local[1]", driver_memory="512m", sql_shuffle_partitions=1)
    tell("begun")
    if begins == "session":
        begin()
    while True:
        with suppress(StreamingQueryException):  # on a busy machine Spark waits in vain for a process to start
            xq.spark.stream(
                spark, Task, "told", str(Path(folder, "checkpoint")), max_rows=200, every=0.1
            ).awaitTermination()
        begin()


def test_each_transition_is_counted_once_if_the_driver_is_killed_at_ten_random_moments(spark, make_live, tmp_path):
    queue = make_live(FEATURES, roles=("tube",))
    db = queue._meta.database
    seed = int(os.environ.get("XQ_SEED") or random.randrange(2**32))
    print(f"XQ_SEED={seed} repeats the moments")
    chance = random.Random(seed)
    with ExitStack() as ends:
        busy_ones = [ends.enter_context(driver(db, works, str(tmp_path), chance.randrange(2**32))) for _ in range(2)]
        for i in range(KILLS):
            moment, begins = chance.uniform(0, LATEST), ("batch", "session")[i % 4 == 3]  # most while it counts
            with driver(db, counts_until, str(tmp_path), moment, begins) as process:
                assert process.told() == "begun"
                assert process.join() == -signal.SIGKILL
            told = sum(counted(queue).values()) if db.table_exists("told") else 0
            of = len(queue.xq.history())
            print(f"killed {moment:.2f} s after the {begins} began: {told:,} of {of:,} are counted", flush=True)
        (tmp_path / "stop").touch()
        assert [process.join() for process in busy_ones] == [0, 0]
    assert told > 0
    eventually(lambda: is_current(spark, queue, tmp_path), PATIENCE)
    moves: Counter[str] = Counter()
    for (source, target), n in counted(queue, "source, target").items():
        moves[f"{source}-{target}"] += n
    assert moves == Counter(queue.xq.stats().transition)
