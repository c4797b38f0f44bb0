"""Tasks worked off as DataFrames: updates and acks are one transaction, and what is not done goes back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import peewee as pw
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

import xq
from tests import conftest
from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import is_exact, transitions
from tests.support.types import OTHERS, SENT, VALUES, fields, quoted, rows

shared_db = conftest.shared_db  # on the servers as well

FEATURES = {"keep": True, "buried": True}
ERROR = {"error": pw.TextField(null=True)}
ROLES = ("runat", "error")


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
        assert df.columns == [
            *(name for name in queue._meta.sorted_field_names if name != "xq_owner"),
            "state",
            "xq_state",
        ]
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


def test_what_fails_is_released_as_it_was_and_not_taken_again(spark, queue, caplog):
    queue.xq.put_many([task(size=size) for size in range(5)])

    def work(df: Any) -> Any:
        error = F.when(F.col("size") == 0, "odd")
        return df.select("id", F.lit("seen").alias("name"), error.alias("xq_error"))

    with caplog.at_level("INFO", "xq"):
        assert xq.spark.consume(spark, queue.xq, work, batch=1, on_error="release") == {"ack": 4, "release": 1}
    assert [told.partition(" s: ")[2] for told in caplog.messages] == ["{'release': 1}", *["{'ack': 1}"] * 4]
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
        (failing, Failed, "catching"),
        (failing_late, Exception, "late"),
        (lambda df: None, xq.BadType, "returns a DataFrame"),
        (lambda df: df.select("name"), xq.BadValue, "'id' is not in"),
        (lambda df: df.select("id", F.lit(1).alias("nothing")), xq.BadValue, "'nothing'"),
        (lambda df: df.select("id", "name", "name"), xq.BadValue, "two columns"),
        (lambda df: df.union(df), xq.BadValue, "two rows|no key"),
        (lambda df: df.withColumn("id", F.col("id") + 100), xq.BadValue, "not the key of a task"),
        (lambda df: df.select("id", F.lit("many").alias("size")), xq.BadValue, "'size' of Task cannot hold 'many'"),
        (lambda df: df.withColumn("state", F.lit("Done")), xq.BadValue, "the queue's own"),
    ],
)
def test_work_that_fails_or_returns_what_cannot_be_loses_nothing(spark, queue, work, error, words):
    put = [each.__data__ for each in queue.xq.put_many(tasks(3))]
    with pytest.raises(error, match=words):
        xq.spark.consume(spark, queue, work, batch=2)
    assert [each.__data__ for each in queue.select().order_by(queue.id)] == put
    assert transitions(queue) == {"X-R": 3, "R-T": 2, "T-R": 2}


# tasks for which work raises


def fussy(size):  # PySpark warns of types
    if size % 10 == 3:
        raise ValueError(f"odd:\n{size}")
    return "seen"


def fussily(df: Any) -> Any:
    return df.select("id", F.udf(fussy)("size").alias("name"))


def test_a_task_for_which_work_raises_is_buried_with_the_exceptions_words_and_the_others_are_acked(
    spark, queue, caplog
):
    queue.xq.put_many([task(size=size) for size in range(20)])
    calls = []

    def work(df: Any) -> Any:
        calls.append(1)
        return fussily(df)

    with caplog.at_level("INFO", "xq"):
        assert xq.spark.consume(spark, queue, work) == {"ack": 18, "bury": 2}
    assert len(calls) <= 1 + 2 * 2 * 5
    assert [(found.size, found.error) for found in queue.select().where(queue.status == "B").order_by(queue.id)] == [
        (3, "ValueError: odd:\n3"),
        (13, "ValueError: odd:\n13"),
    ]
    assert {found.name for found in queue.select().where(queue.status == "D")} == {"seen"}
    assert is_exact(queue)
    *_, told = caplog.messages
    assert told.startswith("consume Task: 20 tasks in ")
    assert told.endswith(" s: {'ack': 18, 'bury': 2}")


@pytest.mark.parametrize(
    ("failing", "words"),
    [("raise_error(concat('late ', size))", "[USER_RAISED_EXCEPTION] late 3"), ("1 / (size - 3)", "[DIVIDE_BY_ZERO]")],
)
def test_what_fails_in_spark_itself_has_its_words_without_javas(spark, queue, failing, words):
    queue.xq.put_many([task(size=size) for size in range(4)])

    def work(df: Any) -> Any:
        return df.selectExpr("id", f"IF(size = 3, CAST({failing} AS STRING), 'seen') AS name")

    assert xq.spark.consume(spark, queue, work, on_error="bury") == {"ack": 3, "bury": 1}
    assert queue.get(queue.status == "B").error.startswith(words)
    assert "\n\tat" not in queue.get(queue.status == "B").error


def test_a_task_for_which_work_raises_is_released_by_on_error_release_and_stays_for_the_next_call(spark, queue):
    queue.xq.put_many([task(size=size) for size in range(4)])
    assert xq.spark.consume(spark, queue, fussily, batch=2, on_error="release") == {"ack": 3, "release": 1}
    assert transitions(queue) == {"X-R": 4, "R-T": 4, "T-D": 3, "T-R": 1}


def test_ten_tasks_that_fail_before_any_succeeds_are_a_failure_of_the_work(spark, queue):
    queue.xq.put_many(tasks(100))
    calls = []

    def work(df: Any) -> Any:
        calls.append(1)
        raise Failed

    with pytest.raises(Failed):
        xq.spark.consume(spark, queue, work)
    assert len(calls) < 40
    assert transitions(queue) == {"X-R": 100, "R-T": 100, "T-R": 100}


def lacking(size):
    import nothing_of_this_name  # type: ignore[import-not-found]

    return str(nothing_of_this_name)


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda df: df.select("nothing"), "AnalysisException"),
        (lambda df: df.select("id", F.udf(lacking)("size").alias("name")), "PythonException"),
        (lambda df: df.select("id", F.lit(1).alias("nothing")), "BadValue"),
    ],
)
def test_an_error_of_no_row_is_raised_at_once(spark, queue, work, error):
    queue.xq.put_many(tasks(20))
    calls = []

    def once(df: Any) -> Any:
        calls.append(1)
        return work(df)

    with pytest.raises(Exception, match="nothing") as caught:
        xq.spark.consume(spark, queue, once)
    assert caught.type.__name__ == error
    assert calls == [1]
    assert transitions(queue) == {"X-R": 20, "R-T": 20, "T-R": 20}


def test_max_takes_counts_the_tasks_that_fail_alone_where_work_as_a_whole_has_failed(spark, make_live):
    lost = {"lost": pw.IntegerField(default=0)}
    Task = make_live(FEATURES | {"max_takes": 2, "history": True}, roles=(*ROLES, "lost"), attributes={**ERROR, **lost})
    Task.xq.put_many(tasks(12))
    for states in ({"R": 12}, {"R": 2, "B": 10}, {"R": 2, "B": 10}, {"B": 12}):
        with pytest.raises(Failed):
            xq.spark.consume(spark, Task, failing)
        assert Counter(found.status for found in Task.select()) == states
        assert is_exact(Task)


def writes(db: Any) -> int:
    """How many transactions have written on the server; on MariaDB those that were ended by COMMIT, also of reads."""
    if isinstance(db, pw.MySQLDatabase):
        return int(db.execute_sql("SHOW GLOBAL STATUS LIKE 'Com_commit'").fetchone()[1])
    return int(db.execute_sql("SELECT CAST(pg_current_xact_id() AS text)").fetchone()[0])


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_long_work_on_many_tasks_writes_little_and_loses_none(spark, make_live):
    Task = make_live(FEATURES | {"ttr": 6, "max_takes": 3}, roles=("runat",))
    Task.xq.put_many(tasks(3_000))
    ends, before = time.monotonic() + 15, writes(make_live.db)

    def work(df: Any) -> Any:
        time.sleep(max(0, ends - time.monotonic()))
        return df.select("id", F.when(F.col("id").isin(700, 1_900), F.raise_error(F.lit("odd"))).alias("name"))

    assert xq.spark.consume(spark, Task, work) == {"ack": 2_998, "bury": 2}
    assert transitions(Task) == {"X-R": 3_000, "R-T": 3_000, "T-D": 2_998, "T-B": 2}
    assert writes(make_live.db) - before <= 100


def test_catching_makes_the_exception_of_a_row_a_value(spark, queue):
    queue.xq.put_many([task(name=name, size=size) for name, size in (("7", 1), ("x", 1), ("9", 0))])
    divided = xq.spark.catching(lambda name, size: int(name) // size, IntegerType())

    def work(df: Any) -> Any:
        found = divided("name", "size")
        return df.select("id", found["value"].alias("size"), found["error"].alias("xq_error"))

    assert xq.spark.consume(spark, queue, work) == {"ack": 1, "bury": 2}
    assert [(found.status, found.error) for found in queue.select().order_by(queue.id)] == [
        ("D", None),
        ("B", "ValueError: invalid literal for int() with base 10: 'x'"),
        ("B", "ZeroDivisionError: integer division or modulo by zero"),
    ]


def test_catching_takes_a_function_and_a_type(spark):
    catching: Any = xq.spark.catching
    for wrong in (None, "len", F.udf(len)):
        with pytest.raises(xq.BadType, match="function"):
            catching(wrong, "int")
    with pytest.raises(xq.BadType, match="type"):
        catching(len, int)


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


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"work": None}, xq.BadType),
        ({"batch": 0}, xq.BadValue),
        ({"on_error": "ignore"}, xq.BadValue),
        ({"timeout": -1}, xq.BadValue),
        ({"spark": None}, xq.BadType),
        ({"on_error": "bury"}, xq.FeatureOff),
    ],
)
def test_a_call_that_makes_no_sense_takes_nothing(spark, make_live, wrong, error):
    Task = make_live({"keep": True})
    Task.put(task())
    given: dict[str, Any] = {"spark": spark, "queue": Task, "work": lambda df: df, "on_error": "release", **wrong}
    with pytest.raises(error):
        xq.spark.consume(**given)
    with pytest.raises(xq.BadValue, match="outside"), make_live.db.atomic():
        xq.spark.consume(spark, Task, lambda df: df, on_error="release")
    assert transitions(Task) == {"X-R": 1}


def test_values_of_every_type_pass_through_as_they_are(spark, make_live, another_zone):
    keys = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
    Task = make_live({**FEATURES, "retval": "dict"}, model=make_live.model(**fields(make_live.db), **keys))
    nothing = dict.fromkeys(VALUES)
    Task.xq.put_many(
        [task(site="a", page=1, **VALUES), task(site="a", page=2, **nothing), task(site="b", page=1, **VALUES)]
    )

    def work(df: Any) -> Any:
        is_other = F.col("site") == "b"
        return df.withColumns(
            {name: F.when(is_other, F.lit(value)).otherwise(df[quoted(name)]) for name, value in SENT.items()}
        )

    assert xq.spark.consume(spark, Task, work) == {"ack": 3}
    assert rows(Task) == [(*VALUES.values(),), (None,) * len(VALUES), (*OTHERS.values(),)]
