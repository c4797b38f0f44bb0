"""Queues by Spark's own JDBC: types, filters, partitions and moments."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import peewee as pw
import pytest
from playhouse.postgres_ext import BinaryJSONField

import xq
from tests.conftest import SERVERS, database_on, live
from tests.steps import eventually
from tests.support.grant import Land
from xq.adapters.drivers import connect
from xq.adapters.spark.jdbc import DRIVERS

BIG = 2**53 + 1  # no float has it

spawn = multiprocessing.get_context("spawn")


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


def every_type(db: pw.Database) -> dict[str, pw.Field[Any]]:
    json = BinaryJSONField if isinstance(db, pw.PostgresqlDatabase) else pw.TextField
    return {
        "big": pw.BigIntegerField(null=True),
        "small": pw.SmallIntegerField(null=True),
        "at": pw.DateTimeField(null=True),
        "day": pw.DateField(null=True),
        "sure": pw.BooleanField(null=True),
        "price": pw.DecimalField(max_digits=12, decimal_places=3, null=True),
        "ratio": pw.DoubleField(null=True),
        "who": pw.UUIDField(null=True),
        "raw": pw.BlobField(null=True),
        "data": json(null=True),
        "order": pw.CharField(null=True),
    }


def test_every_type_comes_right_in_any_time_zone(spark, make_live):
    names = every_type(make_live.db)
    Task = make_live(attributes=names)
    # In New York there was no half past two on that day.
    moments = [datetime(2024, 3, 10, 2, 30, 0, 123456), datetime(1999, 12, 31, 23, 59, 59, 999999)]
    full = {"big": BIG, "small": -7, "day": date(2024, 3, 10), "sure": True, "price": Decimal("1234567.125")}
    full |= {"ratio": 0.1, "who": UUID(int=7), "raw": b"\0\xff", "order": "it's"}
    full["data"] = {"a": [1, None]} if isinstance(make_live.db, pw.PostgresqlDatabase) else '{"a": [1, null]}'
    if isinstance(make_live.db, pw.MySQLDatabase):  # where Peewee's have no fractions
        moments = [at.replace(microsecond=0) for at in moments]
    # NULLs come first: a driver that takes the types from the first rows would be wrong.
    Task.put(dict.fromkeys(names))
    for at in moments:
        Task.put({**full, "at": at})
    with in_zone(spark, "America/New_York", "Asia/Tokyo"):
        frame = xq.spark.jdbc(spark, Task, columns=["id", *names])
        empty, *found = [{**row, "at": row["at"] and row["at"].astimezone(UTC)} for row in rows(frame)]
    assert {**dict.fromkeys(names), "id": 1} == empty
    full |= {"who": str(UUID(int=7)), "data": '{"a": [1, null]}', "raw": bytearray(b"\0\xff")}
    assert found == [{**full, "id": n, "at": at.replace(tzinfo=UTC)} for n, at in enumerate(moments, 2)]
    types = {**dict.fromkeys(names, "string"), "big": "bigint", "small": "bigint", "at": "timestamp", "day": "date"}
    types |= {"sure": "boolean", "price": "decimal(12,3)", "ratio": "double", "raw": "binary"}
    assert dict(frame.dtypes[1:]) == types


def test_the_options_alone_are_enough_and_say_what_is_text(spark, make_live):
    Task = make_live(attributes=every_type(make_live.db))
    at = datetime(2024, 3, 10, 2, 30)
    Task.put({"big": BIG, "sure": False, "at": at, "data": None})
    options = xq.spark.jdbc_options(Task, columns=["id", "big", "sure", "at"])
    assert {type(value) for value in options.values()} == {str}
    frame = spark.read.format("jdbc").options(**options).load()
    (row,) = frame.collect()
    assert (row.id, row.big, row.sure) == (1, BIG, False)
    expected = at if isinstance(make_live.db, pw.PostgresqlDatabase) else "2024-03-10 02:30:00"
    assert row.at == expected
    assert frame.dtypes[0] == ("id", "bigint")


def test_filters_are_pushed_down_and_compare_as_spark_does(spark, make_live):
    Task = make_live({"buried": True}, attributes={"word": pw.CharField(null=True)})
    words = ["abc", "ABC", "abc ", "it's", "a\\b", "\\' OR 1=1 -- ", "%", "a_c", "ä", "Z", None]
    for word in words:
        Task.put({"word": word})
    Task.bury(Task.take())
    frame = xq.spark.jdbc(spark, Task)

    def told(condition: str) -> list[Any]:
        return sorted((row.word for row in frame.where(condition).collect()), key=str)

    assert "EqualTo(id,3)" in pushed(frame.where("id = 3"))
    assert told("id = 3") == ["abc "]
    assert "EqualTo(state,Buried)" in pushed(frame.where("state = 'Buried'"))
    assert told("state = 'Buried'") == ["abc"]
    for word in filter(None, words):
        text = word.replace("\\", "\\\\").replace("'", "\\'")
        assert told(f"word = '{text}'") == [word]
    assert "StringStartsWith(word,a)" in pushed(frame.where("startswith(word, 'a')"))
    assert told("startswith(word, 'a')") == ["a\\b", "a_c", "abc", "abc "]
    assert told("startswith(word, 'a_')") == ["a_c"]
    assert told("word < 'a'") == ["%", "ABC", "Z", "\\' OR 1=1 -- "]
    assert told("word IN ('Z', 'ä')") == ["Z", "ä"]
    assert told("word IS NULL") == [None]


def test_partitions_are_ranges_of_the_key(spark, make_live):
    Task = make_live()
    assert xq.spark.jdbc(spark, Task, partitions=4).count() == 0
    Task.xq.put_many([{"size": n} for n in range(1000)])
    frame = xq.spark.jdbc(spark, Task, partitions=4)
    counts = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert counts == [250] * 4
    assert frame.agg({"size": "sum"}).collect()[0][0] == sum(range(1000))


def test_history_and_statistics_are_read_too(spark, make_live):
    Task = make_live({"history": True, "keep": True})
    Task.xq.put_many([{}] * 3)
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


def test_a_tube_is_read_as_a_model_is(spark, shared_db):
    queue = xq.Tubes(shared_db)
    tube = queue.create_tube("pages", "fifottl")
    tube.put({"url": "a"})
    assert xq.spark.jdbc(spark, tube).count() == 1


# moments


def _move(address: Any, accounts: int, moved: Any) -> None:
    """Move amounts between tasks, until killed: their sum stays the same."""
    with closing(connect(address)) as connection:
        cursor = connection.cursor()
        for n in range(1, 10**9):
            cursor.execute("BEGIN IMMEDIATE" if address.engine == "sqlite" else "BEGIN")
            for account, amount in zip(random.sample(range(accounts), 2), (n % 1000, -(n % 1000)), strict=True):
                cursor.execute(f"UPDATE task SET size = size + {amount} WHERE id = {account + 1}")
            cursor.execute("COMMIT")
            moved.value = n


@contextmanager
def moving(Task: Any, accounts: int) -> Iterator[Any]:
    """A process that moves amounts between tasks, and how often it has."""
    moved = spawn.Value("q", 0)
    process = spawn.Process(target=_move, args=(Task.xq.adapter.store.address(), accounts, moved))
    process.start()
    try:
        eventually(lambda: moved.value)
        yield moved
    finally:
        process.kill()
        process.join()


def test_a_snapshot_is_of_one_moment_whoever_writes(spark, make_live):
    Task = make_live()
    accounts, partitions = 200, 4 if isinstance(make_live.db, pw.PostgresqlDatabase) else 1
    Task.xq.put_many([{"size": 1000}] * accounts)
    with moving(Task, accounts) as moved, xq.spark.snapshot(Task) as moment:
        frame = xq.spark.jdbc(spark, Task, partitions=partitions, snapshot=moment)
        begun = moved.value
        for _ in range(4):
            assert frame.agg({"size": "sum"}).collect()[0][0] == 1000 * accounts
        eventually(lambda: moved.value > begun)
    assert frame.rdd.getNumPartitions() == partitions


def test_what_a_snapshot_holds_stays_as_it_was(spark, make_live):
    Task = make_live({"history": True})
    Task.xq.put_many([{}] * 3)
    with xq.spark.snapshot(Task) as moment:
        Task.xq.put_many([{}] * 2)
        if not isinstance(make_live.db, pw.PostgresqlDatabase):
            with pytest.raises(xq.BadValue, match=r"cannot share a snapshot .* one partition, or read a copy"):
                xq.spark.jdbc(spark, Task, partitions=2, snapshot=moment)
            return
        assert xq.spark.jdbc(spark, Task, partitions=2, snapshot=moment).count() == 3
        assert xq.spark.jdbc(spark, Task, "history", partitions=2, snapshot=moment).count() == 3
    assert xq.spark.jdbc(spark, Task, partitions=2).count() == 5


# who may read


@pytest.mark.parametrize("kind", SERVERS)
def test_the_rights_of_a_reader_are_enough(spark, kind):
    with database_on(SERVERS[kind]) as (server, name):
        land = Land(server, name)
        try:
            queue, user = land.queue("kept"), land.user()
            land.allow(user, "SELECT")
            queue.put()
            with land.connected(user) as db, xq.spark.snapshot(land.of(db)) as moment:
                for what in ("tasks", "history", "stats"):
                    options = xq.spark.options(land.of(db), what, snapshot=moment)
                    assert xq.spark.jdbc(spark, land.of(db), what, snapshot=moment).count() == 1
                    assert spark.read.format("xq").options(**options).load().count() == 1
        finally:
            land.remove()


# what cannot be


def test_partitions_of_another_key_are_refused(make_live):
    Task = make_live(key=pw.CharField(primary_key=True))
    with pytest.raises(xq.BadValue, match="partitions of the tasks of Task need a key that is one whole number"):
        xq.spark.jdbc_options(Task, partitions=2)


def test_partitions_need_their_key_among_the_columns(make_live):
    with pytest.raises(xq.BadValue, match="partitions of the tasks of Task need the column 'id' among those read"):
        xq.spark.jdbc_options(make_live(), columns=["size"], partitions=2)


def test_a_column_that_is_not_there_is_named(make_live):
    with pytest.raises(xq.BadValue, match="no column 'colour' in the tasks of Task: there are id, name"):
        xq.spark.jdbc_options(make_live(), columns=["colour"])


def test_a_driver_that_is_not_there_is_named(spark, make_live, monkeypatch):
    Task = make_live()
    monkeypatch.setitem(DRIVERS, Task.xq.adapter.store.engine, "org.nowhere.Driver")
    with pytest.raises(
        xq.ConfigurationError, match=r"Spark has no org.nowhere.Driver: name its jar in XQ_SPARK_JARS, or"
    ):
        xq.spark.jdbc(spark, Task)


@pytest.mark.parametrize("kind", ["postgres"])  # which lets anybody in here, with any password
def test_a_password_is_in_no_plan(spark, kind):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name, password="hush")) as database:
        Task = live(database)()
        options = xq.spark.jdbc_options(Task)
        assert [option for option, value in options.items() if "hush" in value] == ["password"]
        frame = xq.spark.jdbc(spark, Task)
        assert frame.count() == 0
        explained = frame._jdf.queryExecution()
        plans = [explained.toString(), *(explained.explainString(mode) for mode in modes(spark))]
        assert [plan for plan in plans if "hush" in plan] == []


def modes(spark: Any) -> list[Any]:
    of = spark._jvm.org.apache.spark.sql.execution.ExplainMode
    return [of.fromString(name) for name in ("simple", "extended", "codegen", "cost", "formatted")]
