"""format("xq"): tasks, history and statistics as DataFrames, and DataFrames as tasks, on every database."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import peewee as pw
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

import xq
from tests import conftest
from tests.factories import task, tasks
from tests.steps import STUCK, is_exact, transitions, waiter
from tests.support.types import OTHERS, SENT, TYPES, fields, quoted
from xq.adapters.spark.arrow import batches
from xq.pipeline.scan import WHOLE
from xq.tubes import Tubes

shared_db = conftest.shared_db  # on the servers as well


def frame(spark: Any, queue: Any, what: Any = "tasks", **more: Any) -> Any:
    return spark.read.format("xq").options(**xq.spark.options(queue, what)).options(**more).load()


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
    assert "dur_us" not in frame(spark, Task, "history", dur_us="false").columns
    stats = {(row.source, row.target): row.n for row in frame(spark, Task, "stats").collect() if not row.tube}
    assert stats == {("X", "R"): 20, ("R", "T"): 10, ("T", "X"): 10}
    since = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=read[20].at_us)
    later = frame(spark, Task, "history").where(F.col("at") >= since)
    assert {row.id for row in later.collect()} == {row.id for row in read if row.at_us >= read[20].at_us}


def test_tasks_are_a_frame_with_the_types_of_the_model(spark, make_live):
    Task = make_live(attributes=fields(make_live.db))
    Task.xq.put_many([{}, {}, OTHERS])
    df = frame(spark, Task)
    assert {name: kind for name, kind in df.dtypes if name in TYPES} == {name: TYPES[name].spark for name in TYPES}
    *empty, full = (row.asDict() for row in df.orderBy("id").select(*map(quoted, TYPES)).collect())
    assert {value for row in empty for value in row.values()} == {None}
    assert full | {"data": json.loads(full["data"])} == SENT | {"at": OTHERS["at"], "data": OTHERS["data"]}


def test_arrow_and_rows_give_the_same_values(spark, make_live):
    found = {name: field for name, field in fields(make_live.db).items() if TYPES[name].spark != "binary"}
    Task = make_live(attributes=found)
    given = [{name: getattr(kind, which) for name, kind in TYPES.items()} for which in ("value", "other")]
    Task.xq.put_many([{}, *({name: values[name] for name in found} for values in given)])
    extract = Task.xq.pipeline.extract()
    assert (extract.arrow() is None) == isinstance(make_live.db, pw.SqliteDatabase)
    schema = to_arrow_schema(frame(spark, Task).schema, timezone="UTC")
    read = pa.Table.from_batches(batches(extract, schema, WHOLE))
    columns = zip(*extract.read(), strict=True)
    assert read.to_pydict() == dict(zip(read.column_names, map(list, columns), strict=True))


def test_the_database_applies_the_options_of_states_and_times(spark, make_live):
    Task = make_live({"history": True, "buried": True}, roles=("status",), fields={"error": True})
    Task.xq.put_many([{"name": name} for name in "abcd"])
    Task.take()
    Task.take().bury()
    assert {"state", "xq_state", "xq_error"} <= {*frame(spark, Task).columns}
    rows = sorted((row.id, row.at_us) for row in Task.xq.history())
    for parts in (1, 3):
        for states, left in {"Taken": "a", "Ready, Buried": "bcd", "": "abcd"}.items():
            found = frame(spark, Task, partitions=parts, states=states)
            assert "".join(sorted(row.name for row in found.select("name").collect())) == left
        since = frame(spark, Task, "history", partitions=parts, since=rows[2][1] / 1e6, until="2100-01-01")
        assert {row.id for row in since.collect()} == {id for id, at in rows if at >= rows[2][1]}
    assert not frame(spark, Task, "history", until="2000-01-01T00:00:00Z").collect()


def test_no_password_stands_in_a_plan(spark, make_live):
    Task = make_live()
    Task.xq.put(task())
    options = xq.spark.options(Task) | {"password": "a-secret", "secrets": json.dumps({"sslpassword": "another"})}
    df = spark.read.format("xq").options(**options).load().where("size = 0")
    with redirect_stdout(io.StringIO()) as told:
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            df.explain(mode=mode)
    plans = told.getvalue() + df._jdf.queryExecution().toString()
    assert [secret for secret in ("a-secret", "another") if secret in plans] == []


# what of a queue, options; what is said of them
REFUSED: list[tuple[Any, dict[str, str], str]] = [
    ("tasks", {"columns": "id,none"}, "no column 'none' in the tasks of Task"),
    ("tasks", {"partitions": "x"}, "partitions is a whole number above 0, not 'x'"),
    ("tasks", {"dur_us": "true"}, "no column 'dur_us' in the tasks of Task"),
    ("history", {"dur_us": "yes"}, "the option dur_us is 'true' or 'false', not 'yes'"),
    ("history", {"since": "yesterday"}, "since is a moment, in seconds since 1970 or as ISO text, not 'yesterday'"),
    ("tasks", {"until": "0"}, "until are options of the history: tasks have no moment"),
    ("tasks", {"states": "Ready,Gone"}, "there is no state 'Gone': they are"),
    ("history", {"states": "Ready"}, "states is an option of the tasks: filter the history by a column"),
]


def test_what_cannot_be_read_or_written_says_what_to_do(spark, make_live):
    Task = make_live({"history": True}, attributes={"at": pw.DateTimeField(null=True)})
    with pytest.raises(xq.BadType, match="is not a queue"):
        xq.spark.options(object())
    with pytest.raises(PySparkException, match=r"options\(\*\*xq\.spark\.options\(Page\)\)"):
        spark.read.format("xq").load()
    for what, options, words in REFUSED:
        with pytest.raises(PySparkException, match=words):
            frame(spark, Task, what, **options).count()
    writer = spark.range(1).write.format("xq").options(**xq.spark.options(Task, "history"))
    with pytest.raises(PySparkException, match=r"history is read only; for tasks use options\(Page\)"):
        writer.mode("append").save()
    if isinstance(make_live.db, pw.SqliteDatabase):  # the others hold what a column is of
        Task.xq.put(task())
        Task.xq.parts.store.execute("UPDATE task SET at = 'tomorrow'")
        with pytest.raises(PySparkException, match="at of Task holds 'tomorrow', which is not a TIMESTAMP"):
            frame(spark, Task).collect()


# writes: the rows of a frame become tasks, each once, or none at all


def write(df: Any, queue: Any, mode: str = "append", **options: Any) -> None:
    df.write.format("xq").options(**xq.spark.options(queue)).options(**options).mode(mode).save()


def test_rows_become_tasks_through_the_features(spark, make_live):
    Task = make_live({"delayed": True, "ttl": 100, "history": True}, roles=("runat", "tube", "ttl"), tube_stats=["a"])
    waiting = waiter(Task, lambda: Task.take(timeout=STUCK))
    df = spark.range(0, 20, 1, 2).selectExpr(
        "concat('n', id) AS name",
        "CAST(id AS SMALLINT) AS size",
        "CASE WHEN id % 2 = 0 THEN 'a' ELSE 'b' END AS tube",
        "CASE WHEN id >= 10 THEN 3600 END AS delay",
        "CASE WHEN id = 5 THEN DOUBLE('Infinity') END AS ttl",
    )
    write(df, Task)
    assert waiting.result() is not None
    stats = Task.xq.stats()
    assert (stats.counts["R"] + stats.counts["T"], stats.counts["W"]) == (10, 10)
    assert {move: n for move, n in stats.transition.items() if n} == {"X-R": 10, "X-W": 10, "R-T": 1}
    assert stats.tube["a"].transition["X-R"] == 5
    found = {task.name: task for task in Task.select()}
    assert [found[f"n{i}"].size for i in range(20)] == [*range(20)]
    assert [found[f"n{i}"].runat is None for i in (4, 5, 15)] == [False, True, False]
    assert {row.event for row in Task.xq.history() if row.source == "X"} == {"put"}
    assert is_exact(Task)


def test_a_job_that_has_a_name_is_put_once_and_others_each_time(spark, make_live):
    Task = make_live({"unique": True}, roles=("unique",))
    df = spark.range(3).selectExpr("concat('j', id) AS job", "'a' AS name")
    for parts in (2, 3):
        done: Any = xq.spark.put(spark, Task, df, "tonight", parts)
        assert done[:5] == ("tonight", 2, 2, 3, True)
    with pytest.raises(xq.Error, match="tonight was completed at .*: give other rows another name"):
        xq.spark.put(spark, Task, df, "tonight", on_done="raise")
    write(df, Task, job="tonight")
    with pytest.raises(xq.Duplicate, match="already holds the unique value 'j"):
        xq.spark.put(spark, Task, df)
    write(df.union(spark.sql("SELECT 'new', 'b'")), Task, on_conflict="skip")
    assert sorted(task.name for task in Task.select()) == ["a", "a", "a", "b"]
    write(df.where("job = ''"), Task)
    assert transitions(Task) == {"X-R": 4}


def test_a_row_that_was_mended_stays_in_its_partition_by_its_key(spark, make_live):
    Task = make_live()
    rows = spark.range(20).selectExpr("CAST(id AS INT) AS size", "CONCAT('n', id) AS name")
    bad = rows.selectExpr("IF(size = 7, NULL, size) AS size", "name").select(rows.columns)
    with pytest.raises(xq.BadValue, match=r"table of Task refuses a row of partition \d, so none .*size"):
        xq.spark.put(spark, Task, bad, "tonight", 4, by=["name"])
    done: Any = xq.spark.put(spark, Task, rows, "tonight", 4, by=["name"])
    assert (done.rows, done.complete, Task.select().count()) == (20, True, 20)
    for by, parts in ((["none"], 4), (["name"], None)):
        with pytest.raises(xq.BadValue, match="by= has columns of the frame"):
            xq.spark.put(spark, Task, rows, "other", parts, by=by)


UNPUT = [
    ("'a' AS name", "overwrite", "overwrites none: write with mode"),
    ("id / 3 AS size", "append", "'size' of Task cannot hold"),
    ("raise_error('no more') AS name", "append", "no more"),
]


def test_a_run_whose_frame_has_other_partitions_puts_nothing(spark, make_live):
    Task = make_live()
    Task.xq.pipeline.bulk().begin(["name"], "tonight", 4).put(3, [("a",)])
    df = spark.range(0, 8, 1, 8).selectExpr("concat('n', id) AS name")
    with pytest.raises(xq.Error, match="begun with 4 partitions, and this run has 8"):
        xq.spark.put(spark, Task, df, "tonight")
    assert Task.select().count() == 1


def test_what_put_could_not_take_is_refused_and_nothing_is_put(spark, make_live):
    Task = make_live()
    for column, mode, words in UNPUT:
        with pytest.raises(PySparkException, match=words) as raised:
            write(spark.range(0, 5, 1, 2).selectExpr(column), Task, mode)
        found = xq.spark.error(raised.value)
        assert (type(found), "Read docs" in str(found)) == ((type(None) if "raise" in column else xq.BadValue), False)
    assert Task.select().count() == 0
    assert transitions(Task) == {}


def test_a_frame_fills_a_tube(spark, shared_db):
    tube = Tubes(shared_db).create_tube("mail", "fifottl")
    write(spark.range(0, 2, 1, 1).selectExpr("to_json(named_struct('to', id)) AS data", "3600 AS ttl"), tube)
    taken: list[Any] = [tube.take(0) for _ in range(2)]
    assert [task.data for task in taken] == [{"to": 0}, {"to": 1}]
