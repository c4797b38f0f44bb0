"""The history as a stream: a driver that is killed loses nothing and doubles nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import xq
from tests.factories import tasks
from tests.spark.sinks import Sink, drain, told

DRIVER = """
import os, signal, sys, threading
from pathlib import Path
import xq
from tests.spark.sinks import Sink, stream

class Killed(Sink):
    "Stops in its second batch, before that is written or after it."

    def write(self, df, batch):
        if batch == 1 and self.path.name == "before":
            both.wait()
        super().write(df, batch)
        if batch == 1:
            both.wait()

both = threading.Barrier(3)
extract, folder, *password = sys.argv[1:]
options = {"extract": extract, **({"password": password[0]} if password else {})}
spark = xq.spark.session(master="local[2]", driver_memory="512m", sql_shuffle_partitions=1)
for name in ("before", "after"):
    stream(spark, options, Killed(Path(folder, name)), maxRows=4).start()
both.wait()
os.killpg(0, signal.SIGKILL)
"""


def test_a_driver_that_is_killed_before_or_after_it_wrote_a_batch_loses_and_doubles_nothing(
    spark, make_live, tmp_path, monkeypatch
):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(10))
    with monkeypatch.context() as shared:
        shared.setenv("XQ_SPARK_KEY", "of this test and the driver")
        options = xq.spark.options(Task, "history")
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, options["extract"], str(tmp_path)], start_new_session=True, timeout=120
        )
    assert driver.returncode == -signal.SIGKILL
    before, after = Sink(tmp_path / "before"), Sink(tmp_path / "after")
    assert (before.sizes(), after.sizes()) == ([4], [4, 4])
    Task.xq.ack_many([taken.id for taken in Task.xq.take_many(10)])
    for sink in (before, after):
        drain(spark, Task, sink, maxRows=7)
        assert sink.rows() == told(Task)
