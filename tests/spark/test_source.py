"""format("xq"): tasks, history and statistics as DataFrames, on every database."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import peewee as pw
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import xq
from tests import conftest
from tests.factories import task, tasks
from tests.support.extract import ODD, READ, VALUES
from xq.adapters.spark import source
from xq.adapters.spark.arrow import STORED
from xq.adapters.spark.exchange import MADE, PLAIN
from xq.pipeline.frames import FRAMED

shared_db = conftest.shared_db  # on the servers as well


def frame(spark: Any, queue: Any, what: Any = "tasks", **more: Any) -> Any:
    return spark.read.format("xq").options(**xq.spark.options(queue, what)).options(**more).load()


def explained(df: Any) -> str:
    """The plan of a DataFrame, in all that Spark tells of it."""
    with redirect_stdout(io.StringIO()) as told:
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            df.explain(mode=mode)
    return told.getvalue()


def test_tasks_are_a_frame_with_the_types_of_the_model(spark, make_live):
    make_live.db.mariadb = True  # for its JSON
    Task = make_live(attributes=dict(ODD))
    Task.xq.put_many([*({} for _ in range(3)), VALUES | {"doc": {"a": 1}}])
    df = frame(spark, Task)
    types = {name: kind.upper() for name, kind in df.dtypes}
    assert {name: types[name] for name in READ} == READ
    *empty, full = df.select(*VALUES, "state").orderBy("big").collect()
    assert {value for row in empty for value in row[:-1]} == {None}
    at = Task.get(Task.big.is_null(False)).at
    assert full.asDict() == VALUES | {"at": at, "who": str(VALUES["who"]), "state": "Ready"}


def test_every_type_of_a_field_is_one_that_arrow_and_consume_know():
    types = {each.spark for each in FRAMED.values()} - {"DECIMAL"}  # which is of some digits
    assert types <= STORED.keys()
    assert MADE.keys() | PLAIN.keys() <= types


def test_the_database_filters_by_what_where_says(spark, make_live):
    Task = make_live(attributes={"at": pw.DateTimeField(null=True), "price": pw.DecimalField(null=True)})
    names = ["a", "A", "b", "it's", None]
    Task.xq.put_many([task(name=name, size=i) for i, name in enumerate(names)])
    df = spark.read.format("xq").options(
        **xq.spark.options(Task, where=[("name", "in", ["a", "A", "it's"]), ("size", ">", 0), ("state", "=", "Ready")])
    )
    assert sorted(row.name for row in df.load().collect()) == ["A", "it's"]
    with pytest.raises(xq.BadValue, match="name is compared with text"):
        xq.spark.options(Task, where=[("name", "=", 1)])
    with pytest.raises(xq.BadValue, match="the tests of where are =, .*, not 'like'"):
        xq.spark.options(Task, where=[("name", "like", "a%")])  # type: ignore[list-item]


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark, monkeypatch):
    """The active session, which pushes filters into sources, as if it kept those of several queries apart."""
    active = xq.spark.register(SparkSession.getActiveSession() or spark)
    monkeypatch.setattr(source, "MENDED", True)
    active.conf.set(PUSHDOWN, "true")
    yield active
    active.conf.unset(PUSHDOWN)


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_a_frame_that_was_filtered_is_whole_afterwards(spark, make_live, pushed):
    Task = make_live()
    Task.xq.put_many([task(name=name) for name in "aab"])
    mine = xq.spark.register(spark.newSession())
    mine.conf.set(PUSHDOWN, pushed)
    df = frame(mine, Task)
    assert df.where("name = 'a'").count() == 2
    assert df.where("name = 'b'").union(df).count() == 4
    assert df.count() == 3


def test_the_fault_of_spark_for_which_filters_are_not_pushed_is_still_there(pushing, make_live):
    Task = make_live()
    Task.xq.put_many([task(name=name) for name in "aab"])
    df = frame(pushing, Task)
    assert df.where("name = 'a'").count() == 2
    assert df.count() == 2, "Spark is mended: MENDED and this test can go, and session() can push filters"


@pytest.mark.parametrize("session", ["spark", "pushing"])
def test_a_plan_says_which_filters_the_database_applies_and_which_spark_does(make_live, request, session):
    spark, is_mended = request.getfixturevalue(session), session == "pushing"
    Task = make_live(attributes={"at": pw.DateTimeField(null=True)})
    names = ["a", "A", "b", "it's", None]
    Task.xq.put_many([task(name=name, size=i, at=datetime(2026, 1, i + 1)) for i, name in enumerate(names)])
    found: dict[str, list[str | None]] = {
        "size > 0 AND size <= 3": ["A", "b", "it's"],
        "size IN (1, 2, 9) AND name >= 'a'": ["b"],
        "name LIKE 'it%' AND state = 'Ready'": ["it's"],
        "name IS NULL": [None],
        "name IS NOT NULL AND size + 1 >= 4": ["it's"],
        "NOT name = 'a' AND at > TIMESTAMP '2026-01-03 00:00:00'": ["it's"],
    }
    for where, expected in found.items():
        df = frame(spark, Task).where(where).select("name")
        assert sorted(row.name or "" for row in df.collect()) == [name or "" for name in expected], where
    plan = explained(frame(spark, Task).where("size > 0 AND size + 1 >= 4"))
    (left,) = {line.rpartition(" : ")[2] for line in plan.splitlines() if line.startswith("Condition : ")}
    left = re.sub(r"#\d+L?", "", left)
    if is_mended:
        assert "PushedFilters: [IsNotNull(size), GreaterThan(size,0)]" in plan
        assert left == "((size + 1) >= 4)"
    else:
        assert "PushedFilters" not in plan
        assert left == "((isnotnull(size) AND (size > 0)) AND ((size + 1) >= 4))"


def test_the_history_is_read_in_parts_and_each_row_once(spark, make_live):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(20))
    Task.xq.ack_many([taken.id for taken in Task.xq.take_many(10)])
    df = frame(spark, Task, "history", partitions=3)
    assert df.rdd.getNumPartitions() == 3
    told = {(row.id, row.key, row.source, row.target, row.event, row.at_us) for row in Task.xq.history()}
    read = df.select("id", "key", "source", "target", "event", "at_us", F.unix_micros("at").alias("at")).collect()
    assert {tuple(row)[:6] for row in read} == told
    assert len(read) == len(told) == 40
    assert all(row.at == row.at_us for row in read)
    timed = frame(spark, Task, "history", columns="id, dur_us")
    assert {tuple(row) for row in timed.collect()} == {(row.id, row.dur_us) for row in Task.xq.history()}
    since = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=read[20].at_us)
    later = spark.read.format("xq").options(**xq.spark.options(Task, "history", where=[("at", ">=", since)])).load()
    assert {row.id for row in later.collect()} == {row.id for row in read if row.at_us >= read[20].at_us}


def test_the_statistics_of_a_tube_are_a_frame(spark, shared_db):
    tube = xq.Tubes(shared_db).create_tube("letters", "fifo")
    for n in range(3):
        tube.put({"n": n})
    tube.take()
    read = frame(spark, tube, "stats").collect()
    assert {(row.source, row.target, row.n) for row in read} == {("X", "R", 3), ("R", "T", 1)}
    assert sorted(row.data for row in frame(spark, tube).collect()) == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_no_password_stands_in_a_plan(spark, make_live):
    Task = make_live()
    Task.xq.put(task())
    more = json.dumps({"sslpassword": "another"})
    options = xq.spark.options(Task) | {"password": "a-secret", "secrets": more}
    df = spark.read.format("xq").options(**options).load().where("size = 0")
    for plan in (explained(df), str(df._jdf.queryExecution().toString())):
        assert "a-secret" not in plan
        assert more not in plan


def test_what_cannot_be_read_says_what_to_do(spark, make_live):
    Task = make_live()
    with pytest.raises(xq.BadType, match="is not a queue"):
        xq.spark.options(object())
    wrong: Any
    for wrong in (5, None, "id", {"id": 5}, [5], [("id",)], [("id", "=", 1, 2)]):
        with pytest.raises(xq.BadType, match="where is a list of tests"):
            xq.spark.options(Task, where=wrong)
    for wrong in ([(5, "null")], [("id", [])], [("none", "=", 5)]):
        with pytest.raises(xq.BadValue):
            xq.spark.options(Task, where=wrong)
    with pytest.raises(PySparkException, match=r"options\(\*\*xq\.spark\.options\(Page\)\)"):
        spark.read.format("xq").load()
    with pytest.raises(PySparkException, match="no column 'none' in the tasks of Task"):
        frame(spark, Task, columns="id,none")
    with pytest.raises(PySparkException, match="partitions is a whole number above 0, not 'x'"):
        frame(spark, Task, partitions="x").count()


def test_a_value_that_is_not_of_its_type_is_named(spark, make_live):
    Task = make_live(attributes={"at": pw.DateTimeField(null=True)})
    if isinstance(make_live.db, pw.SqliteDatabase):  # the others hold what a column is of
        Task.xq.put(task())
        Task.xq.adapter.store.execute("UPDATE task SET at = 'tomorrow'")
        with pytest.raises(PySparkException, match="at of Task holds 'tomorrow', which is not a TIMESTAMP"):
            frame(spark, Task).collect()


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
