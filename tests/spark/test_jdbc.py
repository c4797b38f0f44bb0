"""Queues by Spark's own JDBC: types, filters and partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on, live
from tests.support.types import OTHERS, TYPES, VALUES, fields


@pytest.fixture(autouse=True)
def _jars(spark):
    if not spark.conf.get("spark.jars", ""):
        pytest.skip("there is no jar of JDBC: name them in XQ_SPARK_JARS, or install those of Debian (docs/spark.md)")


@contextmanager
def in_zone(spark: Any, java: str, session: str) -> Iterator[None]:
    """Java and the session in other time zones."""
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault(), spark.conf.get("spark.sql.session.timeZone")
    zones.setDefault(zones.getTimeZone(java))
    spark.conf.set("spark.sql.session.timeZone", session)
    try:
        yield
    finally:
        zones.setDefault(before[0])
        spark.conf.set("spark.sql.session.timeZone", before[1])


def rows(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row.get("id") or 0)


def pushed(frame: Any) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan.partition("PushedFilters: [")[2].partition("]")[0]


def test_every_type_comes_right_in_any_time_zone(spark, make_live):
    Task = make_live(attributes=fields(make_live.db))
    names = [name for name in TYPES if "`" not in name]
    # NULLs come first: a driver that takes the types from the first rows would be wrong.
    Task.xq.put_many([{}, VALUES, OTHERS])
    with in_zone(spark, "America/New_York", "Asia/Tokyo"):
        frame = xq.spark.jdbc(spark, Task, columns=["id", *names])
        empty, *found = [{**row, "at": row["at"] and row["at"].astimezone(UTC)} for row in rows(frame)]
    assert {**dict.fromkeys(names), "id": 1} == empty
    for row, values in zip(found, (VALUES, OTHERS), strict=True):
        sent = {"who": str(values["who"]), "short": values["short"].bytes, "at": values["at"].replace(tzinfo=UTC)}
        assert row | {"data": json.loads(row["data"])} == {
            **{name: values[name] for name in names},
            **sent,
            "id": row["id"],
        }
    assert dict(frame.dtypes[1:]) == {name: TYPES[name].spark for name in names}


def test_filters_compare_as_spark_does(spark, make_live):
    Task = make_live({"buried": True}, attributes={"word": pw.CharField(null=True)})
    words = ["abc", "ABC", "abc ", "ä", "Z", None]
    for word in words:
        Task.put({"word": word})
    Task.bury(Task.take())
    frame = xq.spark.jdbc(spark, Task)

    def told(condition: str) -> list[Any]:
        return sorted((row.word for row in frame.where(condition).collect()), key=str)

    assert "*" not in pushed(frame.where("id = 3"))  # which marks what the database applies
    assert told("state = 'Buried'") == ["abc"]
    assert [told(f"word = '{word}'") for word in words[:4]] == [[word] for word in words[:4]]
    assert told("word < 'a'") == ["ABC", "Z"]


def test_history_and_statistics_are_read_too_and_partitions_are_ranges_of_the_key(spark, make_live):
    Task = make_live({"history": True, "keep": True})
    assert xq.spark.jdbc(spark, Task, partitions=3).count() == 0
    Task.xq.put_many([{}] * 3)
    frame = xq.spark.jdbc(spark, Task, partitions=3)
    assert frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect() == [1] * 3
    Task.ack(Task.take())
    history = xq.spark.jdbc(spark, Task, "history", partitions=2)
    told = [(row.source, row.target, row.event) for row in history.orderBy("id").collect()]
    assert told == [("X", "R", "put")] * 3 + [("R", "T", "take"), ("T", "D", "ack")]
    assert history.where("at <> timestamp_micros(at_us)").count() == 0
    assert history.where("at > now() - interval 1 hour and at <= now()").count() == 5
    stats = {
        (row.source, row.target): row.n for row in xq.spark.jdbc(spark, Task, "stats").where("tube = ''").collect()
    }
    assert stats == {("X", "R"): 3, ("R", "T"): 1, ("T", "D"): 1}


@pytest.mark.parametrize(
    ("key", "options", "words"),
    [
        (pw.CharField, {"partitions": 2}, "partitions of the tasks of Task need a key that is one whole number"),
        (pw.AutoField, {"partitions": 2, "columns": ["size"]}, "need the column 'id' among those read"),
        (pw.AutoField, {"columns": ["colour"]}, "no column 'colour' in the tasks of Task: there are id, name"),
    ],
)
def test_what_cannot_be_read_is_named(make_live, key, options, words):
    with pytest.raises(xq.BadValue, match=words):
        xq.spark.jdbc_options(make_live(key=key(primary_key=True)), **options)


@pytest.mark.parametrize("kind", ["postgres"])  # which lets anybody in here, with any password
def test_a_password_is_in_no_plan(spark, kind):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name, password="hush")) as database:
        Task = live(database)()
        assert [option for option, value in xq.spark.jdbc_options(Task).items() if "hush" in value] == ["password"]
        frame = xq.spark.jdbc(spark, Task)
        assert frame.count() == 0
        modes, plans = spark._jvm.org.apache.spark.sql.execution.ExplainMode, frame._jdf.queryExecution()
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            assert "hush" not in plans.explainString(modes.fromString(mode))
