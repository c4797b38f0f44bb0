"""Bulk puts: rows staged by any process, and put all at once by one, without the model."""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Sequence
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conformance.steps import is_exact, transitions
from tests.conftest import Maker
from xq.testing import Clock


def elsewhere(bulk: Any) -> Any:
    """A bulk put as another process has it."""
    return pickle.loads(pickle.dumps(bulk))


def put(Task: Any, columns: Sequence[str], *rows: Any, job: str | None = None, parts: int = 1, **options: Any) -> int:
    """Put rows by a job of so many partitions."""
    begun = elsewhere(elsewhere(Task.xq.bulk(**options)).begin(columns, job))
    staged = [
        begun.stage([list(zip(*rows[part::parts], strict=True))] if rows[part::parts] else [], part)
        for part in range(parts)
    ]
    count: int = begun.commit(elsewhere(staged))
    return count


def names(Task: Any) -> list[str]:
    return [task.name for task in Task.select().order_by(Task._meta.primary_key)]


def test_what_was_staged_is_put_when_the_job_commits_and_not_before(make_shared):
    Task = make_shared()
    job = Task.xq.bulk().begin(["name", "size"])
    staged = job.stage([[["a", "b"], [1, 2]]])
    assert Task.select().count() == 0
    assert job.commit([staged]) == 2
    assert [(task.name, task.size, task.status, task.attempts) for task in Task.select()] == [
        ("a", 1, "R", 0),
        ("b", 2, "R", 0),
    ]
    assert transitions(Task) == {"X-R": 2}
    assert is_exact(Task)
    assert Task.take().name == "a"


def test_rows_are_put_in_the_order_of_their_partitions_and_within_these_in_their_own(make_shared):
    Task = make_shared()
    job = Task.xq.bulk().begin(["name"])
    staged = [job.stage([[[f"{part}{i}" for i in range(3)]], [[f"{part}x"]]], part) for part in (2, 0, 1)]
    job.commit(staged)
    assert names(Task) == [f"{part}{i}" for part in range(3) for i in "012x"]


@pytest.fixture
def timed(shared_db):
    """Makes queues by a clock in the test's hand, which other processes can open."""
    return Maker(shared_db, Clock())


@pytest.mark.parametrize(
    ("features", "roles"),
    [
        ({"delayed": True, "ttl": 100, "ttr": 60, "history": True}, ("runat", "priority", "ttl", "ttr", "attempts")),
        ({"delayed": True, "lifetime": 100, "ttr": True, "keep": True}, ("runat", "deadline", "ttl", "tube", "owner")),
        ({"delayed": True, "lifetime": True, "ttr": True, "utube": True}, ("runat", "deadline", "ttl", "utube")),
    ],
)
def test_delay_ttl_and_ttr_of_each_row_do_what_they_do_in_put(timed, features, roles):
    bulk, single = timed(features, roles=roles), timed(features, roles=roles, attributes={"table_name": "other"})
    rows = [(f"{delay} {ttl}", delay, ttl) for delay in (None, 0, 5) for ttl in (None, 7.5, math.inf)]
    assert put(bulk, ["name", "delay", "ttl"], *rows, parts=2) == 9
    for name, delay, ttl in sorted(rows, key=lambda row: rows.index(row) % 2):
        single.put({"name": name}, **{o: v for o, v in {"delay": delay, "ttl": ttl}.items() if v is not None})
    found, wanted = ([vars(task)["__data__"] for task in Task.select()] for Task in (bulk, single))
    key = operator.itemgetter("name")
    for row in [*found, *wanted]:
        row.pop("id")
        for role in ("runat", "deadline"):
            row[role] = row[role] and round(row[role], 3)
    assert sorted(found, key=key) == sorted(wanted, key=key)
    assert transitions(bulk) == transitions(single)
    assert is_exact(bulk)


def test_the_history_tells_of_puts(timed):
    Task = timed({"history": True, "delayed": True})
    put(Task, ["name", "delay"], ("a", None), ("b", 5))
    told = [(row.source, row.target, row.event) for row in Task.xq.history()]
    assert sorted(told) == [("X", "R", "put"), ("X", "W", "put")]


# keys


@pytest.mark.parametrize("strategy", ["auto_increment", "time64", "uuid", "callable", "required"])
def test_keys_are_made_as_put_makes_them(make_shared, strategy):
    keys = {"time64": pw.BigIntegerField(primary_key=True), "uuid": pw.UUIDField(primary_key=True)}
    text = pw.CharField(primary_key=True, max_length=40)
    id = some_key if strategy == "callable" else strategy
    key = keys.get(strategy) or (None if strategy == "auto_increment" else text)
    Task = make_shared({"id": id}, key=key)
    columns = ["id", "name"] if strategy == "required" else ["name"]
    rows = [(f"k{i}", f"{i}") if strategy == "required" else (f"{i}",) for i in range(5)]
    assert put(Task, columns, *rows, parts=1) == 5
    assert sorted(names(Task)) == list("01234")
    if strategy in ("auto_increment", "time64", "uuid"):
        assert names(Task) == list("01234")
    if strategy == "callable":
        assert {task.id[:5] for task in Task.select()} == {"made "}
    assert Task.take() is not None


def some_key(task: Any) -> str:
    return f"made {task['name']}"


def test_a_key_that_a_row_brings_is_used_and_one_that_it_does_not_is_made(make_shared):
    for kind, key in (("auto_increment", None), ("time64", pw.BigIntegerField(primary_key=True))):
        Task = make_shared({"id": kind}, key=key, attributes={"table_name": kind})
        put(Task, ["name", "id"], ("a", 7), ("b", None), ("c", 9))
        found = {task.name: task.id for task in Task.select()}
        assert (found["a"], found["c"]) == (7, 9)
        assert found["b"] not in (7, 9)


def test_composite_keys_are_brought(make_shared):
    attributes = {
        "one": pw.IntegerField(),
        "two": pw.CharField(),
        "meta": {"primary_key": pw.CompositeKey("one", "two")},
    }
    Task = make_shared(attributes=attributes)
    assert put(Task, ["one", "two", "name"], (1, "a", "x"), (1, "b", "y")) == 2
    assert Task.take().name == "x"
    with pytest.raises(xq.BadValue, match="must bring their keys: there is no column two"):
        Task.xq.bulk().begin(["one"])


# what else features ask for


def test_unique_values_that_are_held_are_duplicates_and_nothing_is_put(make_shared):
    Task = make_shared({"unique": True, "buried": True}, roles=("unique", "priority"))
    held = Task.put({"job": "a"})
    for rows in ([("b",), ("a",)], [("c",), ("d",), ("c",)]):
        with pytest.raises(xq.Duplicate, match="already holds the unique value"):
            put(Task, ["job"], *rows)
    with pytest.raises(xq.Duplicate):
        put(Task, ["job"], ("c",), ("d",), ("c",), parts=3)
    assert [task.id for task in Task.select()] == [held.id]
    assert put(Task, ["job"], ("b",), ("A",), (None,), (None,)) == 4
    assert is_exact(Task)


def test_with_skip_those_in_the_way_are_left_out(make_shared):
    Task = make_shared({"unique": True, "buried": True}, roles=("unique", "priority"))
    Task.put({"job": "a"})
    rows = [("b", 1), ("a", 2), ("b", 3), (None, 4), ("c", 5), (None, 6), ("b", 7)]
    assert put(Task, ["job", "size"], *rows, parts=2, on_conflict="skip") == 4
    assert sorted((task.job or "", task.size) for task in Task.select()) == [
        ("", 4),
        ("", 6),
        ("a", 0),
        ("b", 1),
        ("c", 5),
    ]
    assert is_exact(Task)


def test_replace_is_no_way_to_put_in_bulk_nor_skip_without_unique(make_shared):
    Task = make_shared({"unique": True}, roles=("unique",))
    with pytest.raises(xq.BadValue, match="'raise' or 'skip', not 'replace'"):
        Task.xq.bulk(on_conflict="replace")
    with pytest.raises(xq.FeatureOff, match="unique"):
        make_shared(attributes={"table_name": "other"}).xq.bulk(on_conflict="skip")


def test_more_than_the_limit_is_refused_whole(make_shared):
    Task = make_shared({"limit": 5})
    Task.xq.put_many([{}, {}])
    with pytest.raises(xq.Full, match="limited to 5"):
        put(Task, ["name"], *[(str(i),) for i in range(4)], parts=2)
    assert Task.select().count() == 2
    assert put(Task, ["name"], *[(str(i),) for i in range(3)]) == 3
    with pytest.raises(xq.Full):
        Task.put({})


def test_utubes_are_taken_in_turn(make_shared):
    Task = make_shared({"utube": True}, roles=("utube", "priority"))
    put(Task, ["utube", "name"], *[(utube, f"{utube}{i}") for i in range(3) for utube in "ab"])
    taken = [Task.take(), Task.take()]
    assert [task.name for task in taken] == ["a0", "b0"]
    assert Task.take() is None
    Task.ack(taken[0])
    assert Task.take().name == "a1"
    assert Task.xq.check() == []


def test_tubes_are_counted_and_priorities_kept(make_shared):
    Task = make_shared(roles=("tube", "priority"), tube_stats=["a"])
    put(Task, ["tube", "priority", "name"], ("a", 5, "late"), ("b", 3, "soon"), ("a", 3, "sooner"))
    assert Task.xq.stats().tube["a"].counts["R"] == 2
    assert [Task.take().name for _ in range(3)] == ["soon", "sooner", "late"]


# jobs


def test_a_job_with_a_name_is_put_once_however_often_it_is_run(make_shared):
    Task = make_shared()
    assert [put(Task, ["name"], ("a",), ("b",), job="tonight") for _ in range(3)] == [2, 0, 0]
    assert put(Task, ["name"], ("a",), job="tomorrow") == 1
    assert Task.select().count() == 3
    assert staged_rows(Task) == 0


def test_what_no_message_tells_of_is_not_put(make_shared):
    Task = make_shared()
    job = Task.xq.bulk().begin(["name"])
    job.stage([[["a first attempt, whose message was lost"]]])
    assert job.commit([job.stage([[["a second one"]]])]) == 1
    assert names(Task) == ["a second one"]
    assert staged_rows(Task) == 0


def test_a_job_that_is_given_up_leaves_nothing(make_shared):
    Task = make_shared()
    job = Task.xq.bulk().begin(["name"])
    staged = job.stage([[["a"]]])
    job.abort()
    assert staged_rows(Task) == 0
    with pytest.raises(xq.Error, match="are gone, so nothing was put"):
        job.commit([staged])
    assert Task.select().count() == 0


def test_an_attempt_that_goes_on_when_its_job_has_ended_stages_nothing_more(make_shared):
    Task = make_shared()
    job = Task.xq.bulk().begin(["name"])

    def slow() -> Any:
        yield [["a"]]
        job.abort()
        yield [["b"]]

    with pytest.raises(xq.Error, match="has ended"):
        job.stage(slow())
    assert staged_rows(Task) == 0


def test_jobs_that_end_throw_away_what_others_left_behind_a_day_ago(timed):
    Task = timed({"delayed": True})
    left = Task.xq.bulk().begin(["name"])
    left.stage([[["a"]]])
    put(Task, ["name"], ("b",))
    assert staged_rows(Task) == 1
    Task.xq.clock.tick(86_401)
    put(Task, ["name"], ("c",))
    assert staged_rows(Task) == 0


def staged_rows(Task: Any) -> int:
    """How many rows stand in the stage, of however many fields."""
    stage = Task.xq.bulk().dialect.staging
    return int(Task._meta.database.execute_sql(f"SELECT COUNT(*) FROM {stage.stage}").fetchone()[0])
