"""format("xq"): tasks, history and statistics as DataFrames, on every database."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import peewee as pw
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import xq
from tests.factories import task, tasks
from tests.support.extract import ODD, READ, VALUES
from xq.adapters.spark.arrow import STORED
from xq.adapters.spark.exchange import MADE, PLAIN
from xq.pipeline.frames import FRAMED


def frame(spark: Any, queue: Any, what: Any = "tasks", **more: Any) -> Any:
    return spark.read.format("xq").options(**xq.spark.options(queue, what)).options(**more).load()


def explained(df: Any) -> str:
    """The plan of a DataFrame, in all that Spark tells of it."""
    with redirect_stdout(io.StringIO()) as told:
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            df.explain(mode=mode)
    return told.getvalue()


def test_tasks_are_a_frame_with_the_types_of_the_model(spark, make_shared):
    make_shared.db.mariadb = True  # for its JSON
    Task = make_shared(attributes=dict(ODD))
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


def test_the_database_filters_by_what_where_says(spark, make_shared):
    Task = make_shared(attributes={"at": pw.DateTimeField(null=True), "price": pw.DecimalField(null=True)})
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


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_a_frame_that_was_filtered_is_whole_afterwards(spark, make_shared, pushed):
    # Spark 4.3 keeps the filters of a reader that takes them, whoever sets it to push them.
    Task = make_shared()
    Task.xq.put_many([task(name=name) for name in "aab"])
    mine = xq.spark.register(spark.newSession())
    mine.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    df = frame(mine, Task)
    assert df.where("name = 'a'").count() == 2
    assert df.where("name = 'b'").union(df).count() == 4
    assert df.count() == 3


def test_the_history_is_read_in_parts_and_each_row_once(spark, make_shared):
    Task = make_shared({"history": True})
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


def test_no_password_stands_in_a_plan(spark, make_shared):
    Task = make_shared()
    Task.xq.put(task())
    more = json.dumps({"sslpassword": "another"})
    options = xq.spark.options(Task) | {"password": "a-secret", "secrets": more}
    df = spark.read.format("xq").options(**options).load().where("size = 0")
    for plan in (explained(df), str(df._jdf.queryExecution().toString())):
        assert "a-secret" not in plan
        assert more not in plan


def test_what_cannot_be_read_says_what_to_do(spark, make_shared):
    Task = make_shared()
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


def test_a_value_that_is_not_of_its_type_is_named(spark, make_shared):
    Task = make_shared(attributes={"at": pw.DateTimeField(null=True)})
    if isinstance(make_shared.db, pw.SqliteDatabase):  # the others hold what a column is of
        Task.xq.put(task())
        Task.xq.adapter.store.execute("UPDATE task SET at = 'tomorrow'")
        with pytest.raises(PySparkException, match="at of Task holds 'tomorrow', which is not a TIMESTAMP"):
            frame(spark, Task).collect()
