"""What the options of format("xq") ask for, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

import xq
from tests.factories import task


def test_a_history_has_its_durations_where_the_option_asks_for_them(spark, make_live):
    Task = make_live({"history": True})
    Task.put(task())
    Task.take().ack()

    def read(what: Any, **more: str) -> Any:
        return spark.read.format("xq").options(**xq.spark.options(Task, what)).options(**more).load()

    plain = read("history", dur_us="false").columns
    assert "dur_us" not in plain
    assert read("history", dur_us="true").columns == [*plain, "dur_us"]
    assert read("history", dur_us="true", columns="dur_us,id").columns == ["dur_us", "id"]
    timed = read("history", dur_us="True", columns="id")
    assert {tuple(row) for row in timed.collect()} == {(row.id, row.dur_us) for row in Task.xq.history()}
    with pytest.raises(PySparkException, match="the option dur_us is 'true' or 'false', not 'yes'"):
        read("history", dur_us="yes")
    with pytest.raises(PySparkException, match="no column 'dur_us' in the tasks of Task"):
        read("tasks", dur_us="true")


def test_what_is_read_only_says_what_is_written(spark, make_live):
    Task = make_live({"history": True})
    what: Any
    for what in ("history", "stats", "live"):
        writer = spark.range(1).write.format("xq").options(**xq.spark.options(Task, what))
        with pytest.raises(PySparkException, match=rf"{what} is read only; for tasks use options\(Page\)"):
            writer.mode("append").save()
