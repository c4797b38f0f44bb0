"""Bulk puts: rows staged by any process, and put all at once by one, without the model."""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import operator
import os
import signal
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import peewee as pw
import pytest

import xq
from tests.steps import PATIENCE, STUCK, another_process, is_exact, processes, transitions, waiter
from tests.support import bulk as support
from tests.support.bulk import elsewhere, names, put, staged_rows

timed = support.timed


def test_what_was_staged_is_put_when_the_job_commits_and_not_before(timed):
    Task = timed({"history": True, "delayed": True}, roles=("runat", "attempts"))
    job = Task.xq.pipeline.bulk().begin(["name", "size", "delay"])
    staged = job.stage([[["a", "b"], [1, 2], [None, 5]]])
    assert Task.select().count() == 0
    assert job.commit([staged]) == 2
    found = [(task.name, task.size, task.status, task.attempts) for task in Task.select()]
    assert found == [("a", 1, "R", 0), ("b", 2, "W", 0)]
    told = [(row.source, row.target, row.event) for row in Task.xq.history()]
    assert sorted(told) == [("X", "R", "put"), ("X", "W", "put")]
    assert is_exact(Task)
    assert staged_rows(Task) == 0
    assert Task.take().name == "a"


def test_rows_are_put_in_the_order_of_their_partitions_and_within_these_in_their_own(make_shared):
    Task = make_shared()
    job = Task.xq.pipeline.bulk().begin(["name"])
    staged = [job.stage([[[f"{part}{i}" for i in range(3)]], [[f"{part}x"]]], part) for part in (2, 0, 1)]
    job.commit(staged)
    assert names(Task) == [f"{part}{i}" for part in range(3) for i in "012x"]


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


# what else features ask for


def test_unique_values_that_are_held_are_duplicates_and_nothing_is_put_or_with_skip_are_left_out(make_shared):
    Task = make_shared({"unique": True, "buried": True}, roles=("unique", "priority"))
    held = Task.put({"job": "a"})
    for jobs, parts in (("ba", 1), ("cdc", 1), ("cdc", 3)):
        with pytest.raises(xq.Duplicate, match="already holds the unique value"):
            put(Task, ["job"], *zip(jobs, strict=True), parts=parts)
    assert [task.id for task in Task.select()] == [held.id]
    rows = [("b", 1), ("a", 2), ("b", 3), (None, 4), ("A", 5), (None, 6), ("b", 7)]
    assert put(Task, ["job", "size"], *rows, parts=2, on_conflict="skip") == 4
    found = sorted((task.job or "", task.size) for task in Task.select())
    assert found == [("", 4), ("", 6), ("A", 5), ("a", 0), ("b", 1)]
    assert is_exact(Task)
    with pytest.raises(xq.BadValue, match="'raise' or 'skip', not 'replace'"):
        Task.xq.pipeline.bulk(on_conflict="replace")
    with pytest.raises(xq.FeatureOff, match="unique"):
        make_shared(attributes={"table_name": "other"}).xq.pipeline.bulk(on_conflict="skip")


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
    taken = {task.name: task for task in (Task.take(), Task.take())}
    assert set(taken) == {"a0", "b0"}  # in either order: who hears of a utube's news passes it by for a moment
    assert Task.take() is None
    Task.ack(taken["a0"])
    assert Task.take().name == "a1"
    assert Task.xq.check() == []


def test_tubes_are_counted_and_priorities_kept(make_shared):
    Task = make_shared(roles=("tube", "priority"), tube_stats=["a"])
    put(Task, ["tube", "priority", "name"], ("a", 5, "late"), ("b", 3, "soon"), ("a", 3, "sooner"))
    assert Task.xq.stats().tube["a"].counts["R"] == 2
    assert [Task.take().name for _ in range(3)] == ["soon", "sooner", "late"]


# jobs


def test_what_no_message_tells_of_is_not_put(make_shared):
    Task = make_shared()
    job = Task.xq.pipeline.bulk().begin(["name"])
    job.stage([[["a first attempt, whose message was lost"]]])
    assert job.commit([job.stage([[["a second one"]]])]) == 1
    assert names(Task) == ["a second one"]
    assert staged_rows(Task) == 0


def test_an_attempt_that_goes_on_when_its_job_has_ended_stages_nothing_more(make_shared):
    Task = make_shared()
    job = Task.xq.pipeline.bulk().begin(["name"])

    def slow() -> Any:
        yield [["a"]]
        job.abort()
        yield [["b"]]

    with pytest.raises(xq.Error, match="has ended"):
        job.stage(slow())
    assert staged_rows(Task) == 0


def test_an_attempt_of_a_job_that_was_given_up_writes_nothing_into_another_that_has_its_number(make_shared):
    Task = make_shared()
    bulk = Task.xq.pipeline.bulk()
    old = bulk.begin(["name"], "tonight")

    def slow(other: Any) -> Any:
        yield [["a"]]
        old.abort()
        other()
        yield [["b"]]

    new = bulk.begin(["name"], "tomorrow")  # SQLite gives the highest number and one, and so that of `old` again
    staged = []
    for other in (lambda: bulk.begin(["name"], "tonight").commit([]), lambda: staged.append(new.stage([[["c"]]]))):
        with pytest.raises(xq.Error, match="has ended"):
            old.stage(slow(other))
    assert staged_rows(Task) == 1
    assert new.commit(staged) == 1
    assert names(Task) == ["c"]


def test_jobs_that_end_throw_away_what_others_left_behind_a_day_ago(timed):
    Task = timed({"delayed": True})
    left = Task.xq.pipeline.bulk().begin(["name"])
    left.stage([[["a"]]])
    put(Task, ["name"], ("b",))
    assert staged_rows(Task) == 1
    Task.xq.clock.tick(86_401)
    put(Task, ["name"], ("c",))
    assert staged_rows(Task) == 0


def test_two_that_commit_one_job_at_once_put_it_once(make_live):
    Task = make_live()
    db = Task._meta.database
    job = elsewhere(Task.xq.pipeline.bulk().begin(["name"], "tonight"))
    staged = [job.stage([[[f"{part}"] * 500]], part) for part in range(2)]
    db.close()

    def commit() -> Any:
        yield
        yield job.commit(staged)

    with processes(db, commit, commit) as others:
        for other in others:
            next(other)
        for other in others:
            other.post(None)
        assert sorted(other.hear() for other in others) == [0, 1000]
    assert Task.select().count() == 1000
    assert is_exact(Task)


def test_a_process_killed_as_it_commits_has_put_nothing_and_the_job_is_run_again(make_live):
    Task = make_live({"limit": 100_000})
    db = Task._meta.database

    def run() -> Any:
        job = Task.xq.pipeline.bulk().begin(["size"], "tonight")
        staged = [job.stage([[list(range(500))]], part) for part in range(2)]
        put_one_batch: Any = type(job)._put
        told = iter(range(2))

        def put_and_stand_still(*values: Any) -> Any:
            if next(told):  # the first batch is put, and the second is not
                pipe.send("within")
                signal.pause()
            return put_one_batch(*values)

        type(job)._put = put_and_stand_still
        yield job.commit(staged)

    pipe_here, pipe = multiprocessing.Pipe()
    db.close()
    process = multiprocessing.get_context("fork").Process(target=lambda: [*run()])
    process.start()
    assert pipe_here.poll(STUCK)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(STUCK)
    assert Task.select().count() == 0
    assert put(Task, ["size"], *[(i,) for i in range(1000)], job="tonight", parts=2) == 1000
    assert put(Task, ["size"], *[(i,) for i in range(1000)], job="tonight", parts=2) == 0
    assert is_exact(Task)
    assert staged_rows(Task) == 0


@pytest.mark.parametrize("how", ["a crash of the server", "the job was given up", "and another has its number"])
def test_rows_that_are_gone_are_missed_and_nothing_is_put(make_shared, how):
    Task = make_shared()
    job, new = (Task.xq.pipeline.bulk().begin(["name"]) for _ in range(2))
    staged = job.stage([[["a", "b"]]])
    if how == "a crash of the server":
        Task._meta.database.execute_sql(f"DELETE FROM {job.bulk.dialect.staging.stage}")
    else:
        job.abort()
        assert staged_rows(Task) == 0
    others = new.stage([[["c"]]]) if how == "and another has its number" else None
    with pytest.raises(xq.Error, match="are gone, so nothing was put"):
        job.commit([staged])
    assert Task.select().count() == 0
    if others:
        assert new.commit([others]) == 1
        assert names(Task) == ["c"]
    assert is_exact(Task)


def test_who_waits_for_a_task_is_woken_by_a_job_of_another_process(make_live):
    Task = make_live()
    db = Task._meta.database
    job = elsewhere(Task.xq.pipeline.bulk().begin(["name"]))

    def commit() -> Any:
        yield 0
        yield job.commit([job.stage([[["a"]]])])

    with another_process(db, commit) as other:
        next(other)
        waiting = waiter(Task, lambda: Task.take(timeout=PATIENCE))
        assert next(other) == 1
        assert waiting.result().name == "a"


# columns


@pytest.mark.parametrize(
    ("column", "error", "words"),
    [
        ("status", xq.BadValue, "'status' is the queue's own"),
        ("runat", xq.BadValue, "'runat' is the queue's own"),
        ("attempts", xq.BadValue, "'attempts' is the queue's own"),
        ("nonsense", xq.BadValue, "has no field for the column 'nonsense'"),
        ("delay", xq.FeatureOff, "delay"),
        ("ttr", xq.FeatureOff, "ttr"),
        ("increment", xq.BadValue, "has no field for the column 'increment'"),
    ],
)
def test_columns_that_put_could_not_take_are_refused_before_anything_is_staged(make_shared, column, error, words):
    class Task(pw.Model):
        name = pw.TextField()
        status = pw.CharField(default="R")
        runat = pw.DoubleField(null=True)
        attempts = pw.IntegerField(default=0)

        class Meta:
            database = make_shared.db

    queue = make_shared({"ttl": True}, model=Task, roles=("runat", "attempts")).xq
    with pytest.raises(error, match=words):
        queue.pipeline.bulk().begin(["name", column])
    with pytest.raises(xq.BadValue, match="a job is named by text"):
        queue.pipeline.bulk().begin(["name"], "x" * 201)
    for columns in (["name", "name"], ["id", "ttl", "ttl"]):
        with pytest.raises(xq.BadValue, match="set the same: drop one"):
            queue.pipeline.bulk().begin(columns)


@pytest.mark.parametrize(
    ("column", "value"),
    [("delay", math.inf), ("delay", -1), ("ttl", True), ("size", 1.5), ("size", 2**63), ("name", b"x"), ("tube", 7)],
)
def test_values_that_put_could_not_take_are_refused_and_nothing_is_put(make_shared, column, value):
    Task = make_shared({"delayed": True, "ttl": True}, roles=("runat", "priority", "tube", "ttl"))
    with pytest.raises((xq.BadValue, xq.BadType)):
        put(Task, ["id", column], (1, None), (2, value))
    assert Task.select().count() == 0


def test_values_are_stored_as_the_model_stores_them(make_shared):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901)
    fields = {
        "when": pw.DateTimeField(null=True) if not is_mariadb(make_shared.db) else Moment(null=True),
        "day": pw.DateField(null=True),
        "price": pw.DecimalField(max_digits=12, decimal_places=4, null=True),
        "yes": pw.BooleanField(null=True),
        "which": pw.UUIDField(null=True),
        # What Peewee writes as JSON for MySQL, MariaDB does not understand.
        "data": pw.JSONField(null=True) if not is_mariadb(make_shared.db) else pw.TextField(null=True),
        "raw": pw.BlobField(null=True),
        "part": pw.DoubleField(null=True),
    }
    Task = make_shared(attributes=fields)
    which = uuid.UUID(int=7)
    values: dict[str, Any] = {
        "when": moment,
        "day": date(2026, 1, 2),
        "price": Decimal("12.5000"),
        "yes": True,
        "which": which,
        "data": {"a": [1, "\u00e9", None], "b": ""},
        "raw": b"\0\xff",
        "part": 0.1,
        "name": "\u00e9 '\\",
    }
    if is_mariadb(make_shared.db):
        values["data"] = json.dumps(values["data"])
    Task.put(values)
    Task.put(dict.fromkeys(values))
    travelled = {
        "when": moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=3))),
        "which": str(which),
        "raw": bytearray(values["raw"]),
    }
    if not is_mariadb(make_shared.db):
        travelled["data"] = json.dumps(values["data"])
    put(Task, list(values), tuple(values.values()), (None,) * len(values), tuple({**values, **travelled}.values()))
    first, nothing, *others = [task.__data__ for task in Task.select().order_by(Task.id)]
    assert [{**found, "id": 0} for found in others] == [{**found, "id": 0} for found in (first, nothing, first)]
    stored = "SELECT COUNT(*) FROM task AS a, task AS b WHERE a.id = 1 AND b.id IN (3, 5) AND "
    same = " AND ".join(f"CAST(a.{name} AS CHAR(99)) = CAST(b.{name} AS CHAR(99))" for name in ("which", "yes", "data"))
    assert Task._meta.database.execute_sql(stored + same).fetchone()[0] == 2


class Moment(pw.DateTimeField):
    field_type = "DATETIME(6)"


def is_mariadb(db: pw.Database) -> bool:
    return isinstance(db, pw.MySQLDatabase)


_made = itertools.count(100)


def next_size() -> int:
    return next(_made)


def test_the_defaults_of_the_model_hold_for_columns_that_a_frame_does_not_bring(make_shared):
    fields = {"size": pw.IntegerField(default=next_size), "name": pw.TextField(default="unnamed")}
    Task = make_shared(attributes=fields)
    put(Task, ["priority"], (1,), (2,), (3,))
    found = list(Task.select().order_by(Task.priority))
    assert [task.name for task in found] == ["unnamed"] * 3
    assert len({task.size for task in found}) == 3
    put(Task, ["name", "size"], ("a", 7))
    assert Task.get(Task.name == "a").size == 7


# what stands in the database


def test_uninstall_leaves_nothing_of_jobs(make_shared):
    Task = make_shared()
    put(Task, ["name"], ("a",))
    assert any("_xq_" in name for name in Task._meta.database.get_tables())
    Task.xq.uninstall()
    assert [name for name in Task._meta.database.get_tables() if "xq" in name] == []


def test_a_queue_that_is_configured_anew_knows_what_was_put_before(make_shared):
    Task = make_shared({"buried": True})
    put(Task, ["name"], ("a",), job="tonight")
    Task.xq.reconfigure({"keep": True, "delayed": True})
    assert put(Task, ["name", "delay"], ("a", 1.0), job="tonight") == 0
    assert put(Task, ["name", "delay"], ("a", 1.0)) == 1


def test_what_is_not_installed_is_not_put_into(make_shared):
    Task = make_shared({"buried": True})
    bulk = elsewhere(Task.xq.pipeline.bulk())
    Task.xq.reconfigure({"keep": True})
    with pytest.raises(xq.NotInstalled, match="buried"):
        bulk.begin(["name"])
