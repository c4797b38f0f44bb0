"""Done tasks and old history go to Parquet and come back, and are read as one with what is in the database."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pandas
import peewee as pw
import polars
import pytest
from pyspark.sql import functions as F

import xq
from tests.spark.archives import FEATURES, done, told
from tests.steps import is_exact, row, state
from tests.support.types import ARRAYS, OTHERS, VALUES, arrays, fields
from xq.adapters.spark.archive import FORMAT, Archived, archive, history, restore
from xq.adapters.spark.archive import tasks as all_tasks

DAY = 86_400_000_000  # microseconds


def test_an_archive_and_the_table_are_one(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    keys = done(Task, 3)
    before, past = told(all_tasks(spark, Task, out)), Task.xq.history()
    assert archive(spark, Task, out) == Archived(3, len(past) - 1, 0)
    assert [state(Task, key) for key in keys] == ["X", "X", "X"]
    assert told(all_tasks(spark, Task, out)) == before
    columns = spark.read.format("xq").options(**xq.spark.options(Task)).load().columns
    assert sorted(all_tasks(spark, Task, out).columns) == sorted([*columns, "day"]), "with xq's own"
    again = sorted(history(spark, Task, out).collect(), key=lambda found: found.id)
    assert [(r.id, r.key, r.source, r.target, r.event, r.dur_us) for r in again[: len(past)]] == [
        (r.id, r.key, r.source, r.target, r.event, r.dur_us) for r in past
    ]
    assert archive(spark, Task, out) == Archived(0, 3, 0)
    assert archive(spark, Task, out) == Archived(0, 0, 0)
    assert restore(spark, Task, out) == 3
    assert restore(spark, Task, out) == 0
    assert told(all_tasks(spark, Task, out)) == before
    assert [state(Task, key) for key in keys] == ["D", "D", "D"]
    assert is_exact(Task)


def test_a_row_of_any_kind_comes_back_as_it_was(spark, make_live, tmp_path):
    own = {"id": pw.UUIDField(primary_key=True), "xq_day": pw.DateField(null=True)}  # as the archive calls its own
    Task, out = make_live({"keep": True, "history": True}, attributes=own | fields(make_live.db)), str(tmp_path)
    Task.xq.put_many([{"id": UUID(int=i), **each} for i, each in enumerate([VALUES, OTHERS, {}])])
    Task.xq.ack_many(Task.xq.take_many(3))
    quote = "`" if isinstance(make_live.db, pw.MySQLDatabase) else '"'
    columns = (field.column_name.replace(quote, 2 * quote) for field in Task._meta.sorted_fields)
    stored = f"SELECT {', '.join(f'{quote}{column}{quote}' for column in columns)} FROM task"
    before = sorted(make_live.db.execute_sql(stored).fetchall(), key=repr)
    assert archive(spark, Task, out).tasks == 3
    assert Task.select().count() == 0
    assert restore(spark, Task, out) == 3
    assert sorted(make_live.db.execute_sql(stored).fetchall(), key=repr) == before


def test_other_programs_read_the_moments_that_the_queue_has_in_any_time_zone(spark, make_live, tmp_path, monkeypatch):
    made = datetime(2026, 7, 1, 12, 0, 0, 5)  # without a zone, so UTC
    Task, out = make_live(FEATURES, attributes={"made": pw.DateTimeField(default=made)}), str(tmp_path)
    monkeypatch.setitem(FORMAT, "spark.sql.parquet.outputTimestampType", "INT96")  # as before
    done(Task)
    archive(spark, Task, out)
    old = sorted((tmp_path / "history").glob("*/*/*.parquet"))
    monkeypatch.undo()
    done(Task, 2)
    archive(spark, Task, out)
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96", "the session's own"
    known = history(spark, Task, out).selectExpr("at_us", "unix_micros(at) AS us").collect()
    assert len(known) > 9
    assert all(row.at_us == row.us for row in known), "old files and new ones"
    assert {row.made for row in all_tasks(spark, Task, out).selectExpr("unix_micros(made) AS made").collect()} == {
        int(made.replace(tzinfo=UTC).timestamp()) * 1_000_000 + 5
    }

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        new = [str(path) for path in (tmp_path / "history").glob("*/*/*.parquet") if path not in old]
        of = duckdb.read_parquet(new)
        assert dict(zip(of.columns, map(str, of.types), strict=True))["at"] == "TIMESTAMP WITH TIME ZONE"
        assert of.filter('epoch_us("at") <> at_us').fetchall() == []
        for path in new:
            read = pandas.read_parquet(path)
            assert list(read["at"]) == list(pandas.to_datetime(read["at_us"], unit="us", utc=True))
            frame = polars.read_parquet(path)
            assert frame["at"].dt.epoch("us").to_list() == frame["at_us"].to_list()
            assert frame.schema["at"] == polars.Datetime("us", "UTC")
        tasks = [str(path) for path in (tmp_path / "tasks").glob("*/*/*.parquet")]
        stored = polars.read_parquet(max(tasks), columns=["made"])["made"].to_list()
        assert {*stored} == {made.replace(tzinfo=UTC)}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_of_several_versions_of_a_task_the_one_counts_that_was_done_last(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    (key,) = done(Task)
    for name in ("first", "second"):
        Task.update(name=name).where(Task.id == key).execute()
        assert archive(spark, Task, out).tasks == 1
        assert restore(spark, Task, out) == 1
        assert (state(Task, key), row(Task, key).name) == ("D", name)
        Task.xq.restart(key)
        Task.xq.ack(Task.xq.take())
    Task.update(name="of the table").where(Task.id == key).execute()
    assert (key, "of the table", "Done") in told(all_tasks(spark, Task, out))
    Task.xq.kill(key)
    assert (key, "second", "Done") in told(all_tasks(spark, Task, out))


def test_what_the_model_has_no_field_for_any_more_is_not_lost(spark, make_live, tmp_path):
    more, out = {"more": pw.IntegerField(null=True)}, str(tmp_path)
    Task = make_live(FEATURES, attributes=more)
    (key,) = done(Task, 1)
    Task.update(more=7).where(Task.id == key).execute()
    archive(spark, Task, out)
    make_live.db.execute_sql("ALTER TABLE task DROP COLUMN more")
    Later = make_live(FEATURES)
    with pytest.raises(xq.ConfigurationError, match=r"has no fields for any more \(more\)"):
        restore(spark, Later, out)
    make_live.db.execute_sql("ALTER TABLE task ADD COLUMN more INTEGER")
    assert restore(spark, make_live(FEATURES, attributes={"more": pw.IntegerField(null=True)}), out) == 1
    assert make_live.db.execute_sql(f"SELECT more FROM task WHERE id = {key}").fetchall() in ([(7,)], ((7,),))


def numbered(price: pw.Field[Any], size: pw.Field[Any], note: pw.Field[Any]) -> dict[str, pw.Field[Any]]:
    return {"price": price, "size": size, "note": note}


def test_values_come_back_in_the_types_that_the_table_has_by_then(spark, make_live, tmp_path):
    out = str(tmp_path)
    narrow = pw.DecimalField(null=True, max_digits=10, decimal_places=2)
    Task = make_live(FEATURES, attributes=numbered(narrow, pw.IntegerField(default=0), pw.IntegerField(null=True)))
    (first,) = done(Task)
    Task.update(price=Decimal("1.25"), size=7, note=8).where(Task.id == first).execute()
    assert archive(spark, Task, out).tasks == 1
    wide = pw.DecimalField(null=True, max_digits=20, decimal_places=4)
    Later = make_live(FEATURES, attributes=numbered(wide, pw.DoubleField(default=0), pw.TextField(null=True)))
    (second,) = done(Later)
    Later.update(price=Decimal("1.2345"), size=0.5, note="nine").where(Later.id == second).execute()
    assert archive(spark, Later, out).tasks == 1
    kept = {first: (Decimal("1.25"), 7.0, "8"), second: (Decimal("1.2345"), 0.5, "nine")}
    read = all_tasks(spark, Later, out).where(f"id IN ({first}, {second})").collect()
    assert {each.id: (each.price, each.size, each.note) for each in read} == kept
    assert restore(spark, Later, out) == 2
    assert {each.id: (each.price, each.size, each.note) for each in Later.select() if each.id in kept} == kept

    Back = make_live(FEATURES, attributes=numbered(narrow, pw.IntegerField(default=0), pw.IntegerField(null=True)))
    names = set(tmp_path.rglob("*"))
    for call in (archive, restore, all_tasks):
        with pytest.raises(xq.ConfigurationError, match=r"(price|size|note) of Task is \w+(\(10,2\))? now, and "):
            call(spark, Back, out)
    assert set(tmp_path.rglob("*")) == names, "refused before it writes"


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
def test_arrays_go_through_frames_archives_and_work(spark, make_live, tmp_path):
    given = {name: values for name, (_, values) in ARRAYS.items()}
    Task, out = make_live(FEATURES | {"buried": True}, attributes=arrays()), str(tmp_path)
    Task.xq.put_many([given, {}])
    frame = spark.read.format("xq").options(**xq.spark.options(Task)).load()
    put_again = frame.select(*given)
    put_again.write.format("xq").options(**xq.spark.options(Task)).mode("append").save()
    by_jdbc = xq.spark.jdbc(spark, Task).select(*given)
    assert dict(by_jdbc.dtypes) == dict(put_again.dtypes)
    assert sorted(by_jdbc.collect(), key=repr) == sorted(put_again.collect(), key=repr)
    work = F.when(F.col("numbers").isNotNull(), F.array(F.lit(1), F.lit(None))).alias("numbers")
    moments = F.reverse("moments").alias("moments")
    assert xq.spark.consume(spark, Task, lambda df: df.select("id", work, moments, "ids", "times")) == {"ack": 4}
    stored = Task.select(*(getattr(Task, name) for name in given)).order_by(Task.id).tuples()
    changed = (*(given | {"numbers": [1, None], "moments": given["moments"][::-1]}).values(),)
    assert sorted(stored, key=repr) == [*[(None,) * len(given)] * 2, changed, changed]
    before = [*stored.clone()]
    assert archive(spark, Task, out).tasks == 4
    assert restore(spark, Task, out) == 4
    assert [*stored.clone()] == before


def test_a_day_is_that_of_the_last_transition_into_d(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    History = Task.xq.History
    (unknown,) = done(Task)
    History.delete().execute()
    (old,) = done(Task)
    History.update(at_us=History.at_us - 10 * DAY).execute()
    (new,) = done(Task)
    day = str(date.fromtimestamp(0) + timedelta(days=max(row.at_us for row in Task.xq.history(old)) // DAY))
    assert archive(spark, Task, out, before=datetime.now(UTC) - timedelta(days=5)).tasks == 2
    assert state(Task, new) == "D"
    found = {found.id: found.day and str(found.day) for found in all_tasks(spark, Task, out).collect()}
    assert {key: found[key] for key in (unknown, old, new)} == {unknown: None, old: day, new: None}
    folders = sorted(str(path.relative_to(tmp_path / "tasks")) for path in tmp_path.glob("tasks/*/day=*"))
    assert [folder.rpartition("/day=")[2] for folder in folders] == [day, "__HIVE_DEFAULT_PARTITION__"]


def test_an_archive_is_that_of_one_queue_that_keeps_tasks_and_history(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path / "archive")
    Other = make_live(FEATURES, attributes={"table_name": "other"})
    Bare = make_live({"keep": True}, attributes={"table_name": "bare"})
    keys, past = [*done(Task, 2), *done(Other, 3)], len(Other.xq.history())
    archive(spark, Task, out)
    for call in (archive, restore, all_tasks, history):
        with pytest.raises(xq.ConfigurationError, match="the archive of task .* give each queue a folder of its own"):
            call(spark, Other, out)
        with pytest.raises(xq.FeatureOff, match="turn on the feature 'history'"):
            call(spark, Bare, out)
        if call is not archive:
            with pytest.raises(xq.ConfigurationError, match="there is no archive at .*/mistyped"):
                call(spark, Task, str(tmp_path / "mistyped"))
    assert len(Other.xq.history()) == past
    assert restore(spark, Task, out) == 2
    assert [state(Task, key) for key in keys[:2]] + [state(Other, key) for key in keys[2:]] == ["D"] * 5


def test_times_go_on_after_a_new_installation_where_ids_begin_again(spark, make_live, tmp_path):
    Task, out = make_live(FEATURES), str(tmp_path)
    (key,) = done(Task)
    archive(spark, Task, out)
    restore(spark, Task, out)
    archive(spark, Task, out)
    Task.xq.uninstall()
    Task.xq.install()
    restore(spark, Task, out)
    found = sorted(history(spark, Task, out).where(f"key = '{key}'").collect(), key=lambda found: found.at_us)
    moves = ["X-R", "R-T", "T-D", "D-X", "X-D"]  # without those that the uninstalled queue had
    assert [f"{row.source}-{row.target}" for row in found] == moves
    assert all(row.dur_us >= 0 for row in found if row.source != "X")
