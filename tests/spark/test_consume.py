"""Tasks worked off as DataFrames: updates and acks are one transaction, and what is not done goes back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import peewee as pw
import pytest
from pyspark.sql import functions as F

import xq
from tests import conftest
from tests.factories import task, tasks
from tests.steps import eventually, is_exact, transitions

shared_db = conftest.shared_db  # on the servers as well

FEATURES = {"keep": True, "buried": True}
ERROR = {"error": pw.TextField(null=True)}
ROLES = ("runat", "error")
NO_SPARK: Any = None  # what is refused before there is need of one


@pytest.fixture
def queue(make_live):
    """A queue whose tasks stay when they are done."""
    return make_live(FEATURES, roles=ROLES, attributes=ERROR)


@pytest.fixture
def another_zone(monkeypatch) -> Iterator[None]:
    """The clock on the wall is not that of UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def states(Task: Any) -> str:
    return "".join(found.status for found in Task.select().order_by(Task.id))


def test_tasks_are_worked_off_in_batches_with_what_came_of_them(spark, queue):
    queue.xq.put_many([task(size=5) for _ in range(7)])
    seen = []

    def work(df: Any) -> Any:
        seen.append(df.count())
        assert df.columns == [*queue._meta.sorted_field_names, "state"]
        assert {tuple(row) for row in df.select("status", "state").distinct().collect()} == {("T", "Taken")}
        return df.select("id", (F.col("id") + F.col("size")).alias("size"), F.upper("name").alias("name"))

    assert xq.spark.consume(spark, queue, work, batch=3) == {"ack": 7}
    assert seen == [3, 3, 1]
    assert [(each.status, each.size, each.name[:5]) for each in queue.select().order_by(queue.id)] == [
        ("D", number + 5, "TASK ") for number in range(1, 8)
    ]
    assert is_exact(queue)


def test_what_fails_is_buried_and_what_does_not_come_back_is_released(spark, queue):
    queue.xq.put_many([task(size=size) for size in range(6)])
    calls = []

    def work(df: Any) -> Any:
        calls.append(1)
        error = F.when(F.col("size") < 2, F.concat(F.lit("too small: "), F.col("size")))
        return df.where("size < 5").select("id", F.lit("seen").alias("name"), error.alias("xq_error"))

    assert xq.spark.consume(spark, queue, work, batch=4) == {"ack": 3, "bury": 2, "release": 1}
    assert len(calls) == 2
    found = [(each.status, each.error, each.name == "seen") for each in queue.select().order_by(queue.id)]
    assert found == [
        ("B", "too small: 0", True),
        ("B", "too small: 1", True),
        *[("D", None, True)] * 3,
        ("R", None, False),
    ]
    assert transitions(queue) == {"X-R": 6, "R-T": 6, "T-D": 3, "T-B": 2, "T-R": 1}
    assert is_exact(queue)


def test_what_fails_is_released_as_it_was_and_not_taken_again(spark, queue):
    queue.xq.put_many([task(size=size) for size in range(5)])

    def work(df: Any) -> Any:
        error = F.when(F.col("size") == 0, "odd")
        return df.select("id", F.lit("seen").alias("name"), error.alias("xq_error"))

    assert xq.spark.consume(spark, queue.xq, work, batch=1, on_error="release") == {"ack": 4, "release": 1}
    assert states(queue) == "RDDDD"
    first = queue.get_by_id(1)
    assert (first.name == "seen", first.error) == (False, None)
    assert transitions(queue) == {"X-R": 5, "R-T": 5, "T-D": 4, "T-R": 1}


class Failed(Exception):
    pass


def failing(df: Any) -> Any:
    raise Failed


def failing_late(df: Any) -> Any:
    return df.select("id", F.raise_error(F.lit("late")).cast("string").alias("name"))


@pytest.mark.parametrize(
    ("work", "error", "words"),
    [
        (failing, Failed, "^$"),
        (failing_late, Exception, "late"),
        (lambda df: None, xq.BadType, "returns a DataFrame"),
        (lambda df: df.select("name"), xq.BadValue, "'id' is not in"),
        (lambda df: df.select("id", F.lit(1).alias("nothing")), xq.BadValue, "'nothing'"),
        (lambda df: df.select("id", "name", "name"), xq.BadValue, "two columns"),
        (lambda df: df.union(df), xq.BadValue, "two rows|no key"),
        (lambda df: df.withColumn("id", F.col("id") + 100), xq.BadValue, "not the key of a task"),
        (lambda df: df.withColumn("id", F.lit(None)), xq.BadValue, "not the key of a task"),
        (lambda df: df.select("id", F.lit("many").alias("size")), xq.BadValue, "'size' of Task cannot hold 'many'"),
        (lambda df: df.withColumn("status", F.lit("D")), xq.BadValue, "the queue's"),
        (lambda df: df.withColumn("state", F.lit("Done")), xq.BadValue, "the queue's own"),
    ],
)
def test_work_that_fails_or_returns_what_cannot_be_loses_nothing(spark, queue, work, error, words):
    put = [each.__data__ for each in queue.xq.put_many(tasks(3))]
    with pytest.raises(error, match=words):
        xq.spark.consume(spark, queue, work, batch=2)
    assert [each.__data__ for each in queue.select().order_by(queue.id)] == put
    assert transitions(queue) == {"X-R": 3, "R-T": 2, "T-R": 2}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"work": None}, xq.BadType),
        ({"batch": 0}, xq.BadValue),
        ({"batch": "many"}, xq.BadType),
        ({"on_error": "ignore"}, xq.BadValue),
        ({"timeout": -1}, xq.BadValue),
        ({"also": 5}, xq.BadType),
        ({"queue": pw.Model}, xq.BadType),
        ({"spark": None}, xq.BadType),
    ],
)
def test_a_call_that_makes_no_sense_takes_nothing(spark, make_live, wrong, error):
    Task = make_live(FEATURES)
    Task.put(task())
    given: dict[str, Any] = {"spark": spark, "queue": Task, "work": lambda df: df, **wrong}
    with pytest.raises(error):
        xq.spark.consume(**given)
    assert transitions(Task) == {"X-R": 1}


def test_burying_needs_the_feature(make_live):
    Task = make_live()
    Task.put(task())
    with pytest.raises(xq.FeatureOff, match="on_error='release'"):
        xq.spark.consume(NO_SPARK, Task, lambda df: df)
    with pytest.raises(xq.BadValue, match="outside"), Task._meta.database.atomic():
        xq.spark.consume(NO_SPARK, Task, lambda df: df, on_error="release")
    assert transitions(Task) == {"X-R": 1}


def test_what_the_application_writes_is_in_the_transaction_of_the_acks(spark, queue):
    queue.xq.put_many(tasks(3))
    meta = type("Meta", (), {"database": queue._meta.database})
    Result: Any = type("Result", (pw.Model,), {"name": pw.TextField(), "Meta": meta})
    Result.create_table()

    def write(rows: Any) -> None:
        Result.insert_many([{"name": row["name"]} for row in rows]).execute()
        if fails:
            raise Failed

    fails = True
    with pytest.raises(Failed):
        xq.spark.consume(spark, queue, lambda df: df.select("id", "name"), also=write)
    assert (states(queue), Result.select().count()) == ("RRR", 0)
    fails = False
    assert xq.spark.consume(spark, queue, lambda df: df.select("id", "name"), also=write) == {"ack": 3}
    assert sorted(row.name for row in Result.select()) == sorted(row.name for row in queue.select())


def test_an_error_of_another_queue_about_a_task_of_the_same_key_is_the_applications(spark, queue, make_live):
    queue.xq.put_many(tasks(2))
    Other = make_live(FEATURES, roles=ROLES, attributes={"error": pw.TextField(null=True), "table_name": "other"})
    Other.put(task())
    with pytest.raises(xq.WrongState):
        xq.spark.consume(spark, queue, lambda df: df.select("id"), also=lambda rows: Other.ack(1))
    assert (states(queue), states(Other)) == ("RR", "R")


def test_tasks_are_touched_as_long_as_they_are_in_hand(spark, make_live, monkeypatch):
    monkeypatch.setattr("xq.runtime.lease.HEARTBEATS", 600)
    Task = make_live(FEATURES | {"ttr": 60}, roles=("runat", "ttr"))
    Task.xq.put_many(tasks(2))
    Task.xq.put(task(), ttr=30)

    def runats() -> list[float]:
        return [each.runat for each in Task.select().order_by(Task.id)]

    def are_later(before: list[float]) -> bool:
        return all(after > start for start, after in zip(before, runats(), strict=True))

    def work(df: Any) -> Any:
        for _ in range(2):
            before = runats()
            eventually(partial(are_later, before))
        return df.select("id")

    assert xq.spark.consume(spark, Task, work) == {"ack": 3}
    assert states(Task) == "DDD"


def test_what_another_has_taken_away_is_left_to_him(spark, queue):
    queue.xq.put_many(tasks(4))

    def work(df: Any) -> Any:
        with queue.xq.session():
            queue.xq.snatch(1)
            queue.xq.kill(3)
        return df.select("id", F.lit("seen").alias("name"))

    def twice(df: Any) -> Any:
        return work(df) if queue.xq.count("T") == 4 else df.select("id")

    assert xq.spark.consume(spark, queue, twice, batch=4) == {"ack": 3, "lost": 2}
    assert [(each.id, each.status, each.name == "seen") for each in queue.select().order_by(queue.id)] == [
        (1, "D", False),
        (2, "D", True),
        (4, "D", True),
    ]


def test_values_of_every_type_pass_through_as_they_are(spark, make_live, another_zone):
    if isinstance(make_live.db, pw.MySQLDatabase):
        make_live.db.mariadb = True
    own: dict[str, Any] = {
        "big": pw.BigIntegerField(null=True),
        "ok": pw.BooleanField(null=True),
        "at": pw.DateTimeField(null=True),
        "day": pw.DateField(null=True),
        "ticks": pw.TimestampField(null=True, default=None),
        "price": pw.DecimalField(max_digits=20, decimal_places=4, null=True),
        "mark": pw.UUIDField(null=True),
        "raw": pw.BlobField(null=True),
        "data": pw.JSONField(null=True),
    }
    site = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
    Task = make_live({**FEATURES, "retval": "dict"}, model=make_live.model(**own, **site))
    values = {
        "big": 2**62 + 1,
        "ok": True,
        "at": datetime(2026, 3, 8, 2, 30, 5),  # an hour that New York has not
        "day": date(2026, 11, 1),
        "ticks": datetime(2026, 11, 1, 1, 30),
        "price": Decimal("12345678.9012"),
        "mark": uuid.uuid4(),
        "raw": b"\x00\xff'",
        "data": {"a": [1, None, "\u00e9"]},
    }
    changed = {
        "big": -1,
        "ok": False,
        "at": datetime(2026, 11, 1, 1, 30),  # one that it has twice
        "day": date(2020, 2, 29),
        "price": Decimal("0.1"),
        "mark": uuid.uuid4(),
        "raw": b"",
        "data": ["\U0001f986"],
    }
    Task.xq.put(task(site="a", page=1, **values))
    Task.xq.put(task(site="a", page=2, **dict.fromkeys(values)))
    Task.xq.put(task(site="b", page=1, **values))
    update = {
        "big": F.lit(-1),
        "ok": F.lit(False),
        "at": F.lit(datetime(2026, 11, 1, 1, 30, tzinfo=UTC)),
        "day": F.lit(date(2020, 2, 29)),
        "price": F.lit(Decimal("0.1")),
        "mark": F.lit(str(changed["mark"])),
        "raw": F.lit(b""),
        "data": F.lit('["\U0001f986"]'),
    }
    is_other = F.col("site") == "b"

    def work(df: Any) -> Any:
        return df.withColumns({name: F.when(is_other, new).otherwise(F.col(name)) for name, new in update.items()})

    assert xq.spark.consume(spark, Task, work) == {"ack": 3}
    by_key = {(each.site, each.page): {name: getattr(each, name) for name in values} for each in Task.select()}
    for row in by_key.values():
        row["raw"] = None if row["raw"] is None else bytes(row["raw"])
    assert by_key == {("a", 1): values, ("a", 2): dict.fromkeys(values), ("b", 1): values | changed}


def test_fields_of_any_name_pass_through(spark, make_live):
    Task = make_live(FEATURES, attributes={"a`b": pw.TextField(null=True), "a.b": pw.IntegerField(null=True)})
    Task.xq.put_many([{"a`b": "one", "a.b": 1}, {}])
    assert xq.spark.consume(spark, Task, lambda df: df.withColumn("a.b", F.col("`a.b`") + 1)) == {"ack": 2}
    read = Task.select(getattr(Task, "a`b"), getattr(Task, "a.b")).order_by(Task.id)
    assert list(read.tuples()) == [("one", 2), (None, None)]


def test_uuids_of_bytes_pass_through_and_are_keys(spark, make_live):
    own = {"id": pw.BinaryUUIDField(primary_key=True), "mark": pw.BinaryUUIDField(null=True)}
    Task = make_live(FEATURES, attributes=own)
    marks = {uuid.UUID(int=1): uuid.UUID(int=2**127), uuid.UUID(int=2): None, uuid.UUID(int=3): uuid.UUID(int=3)}
    Task.xq.put_many([task(id=key, mark=mark) for key, mark in marks.items()])
    new = uuid.UUID(int=2**64)

    def work(df: Any) -> Any:
        assert {row.mark and bytes(row.mark) for row in df.collect()} == {
            mark and mark.bytes for mark in marks.values()
        }
        mark = F.when(F.col("id") == F.lit(uuid.UUID(int=3).bytes), F.lit(new.bytes)).otherwise(F.col("mark"))
        return df.select("id", mark.alias("mark"))

    with pytest.raises(xq.BadValue, match="'mark'"):
        xq.spark.consume(spark, Task, lambda df: df.select("id", F.lit(b"short").alias("mark")))
    assert xq.spark.consume(spark, Task, work) == {"ack": 3}
    assert {row.id: row.mark for row in Task.select()} == marks | {uuid.UUID(int=3): new}
