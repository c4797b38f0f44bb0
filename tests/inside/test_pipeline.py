"""What Spark builds on, without Spark: archives, bulk puts, reads of a queue without its model, batches of streams."""

from __future__ import annotations

import itertools
import math
import operator
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import peewee as pw
import pytest
from playhouse import postgres_ext

import xq
from tests.conftest import SERVERS
from tests.factories import task, tasks
from tests.steps import (
    another_process,
    eventually,
    install_anew,
    is_exact,
    processes,
    put_late,
    refers,
    row,
    state,
    transitions,
)
from tests.support.names import NAMES, QUOTED, is_possible
from tests.support.pipeline import elsewhere, extract, names, put, rows
from tests.support.types import ARRAYS, MOMENT, OTHERS, SENT, VALUES, arrays, fields
from tests.support.types import rows as stored
from xq.core.machine import NAMES as STATES
from xq.pipeline import archive, bulk
from xq.pipeline.archive import Written
from xq.pipeline.rollup import Counted
from xq.pipeline.scan import Part
from xq.pipeline.sql import mariadb, readers

FEATURES = {"keep": True, "history": True, "delayed": True, "buried": True}
ON_SERVERS = pytest.mark.parametrize("shared_db", SERVERS, indirect=True)  # where several write at once


# archives


def done(Task: Any, n: int = 1, **fields: Any) -> list[int]:
    """So many tasks, done now, and one more, which is ready: SQLite would give the highest key to another."""
    found = Task.xq.put_many([task | fields for task in tasks(n)])
    Task.xq.ack_many(Task.xq.take_many(n))
    Task.xq.put({"name": "ready"}, delay=1_000_000)
    return [task.id for task in found]


def before(Task: Any) -> tuple[Any, Any]:
    """The history, and how far it goes before tasks are written to an archive."""
    history = Task.xq.pipeline.extract("history")
    eventually(lambda: not [*history.read(["id"], Part(after=history.checkpoint()))])  # MariaDB waits for gaps
    return history, history.checkpoint()


def forget(Task: Any, keys: list[int], history: Any, until: Any) -> tuple[int, list[int]]:
    """Delete tasks that were written. How many are gone, and the keys of those that must stay."""
    tasks = [Written([key], str(key), None) for key in keys]
    pipeline = Task.xq.pipeline
    gone, refused = pipeline.archive.forget_done(tasks, history, until, pipeline.archive.executor.time_us())
    return gone, [task.key[0] for task in refused]


def test_done_tasks_go_out_and_come_back_as_they_were_in_many_transactions(make_shared, monkeypatch):
    monkeypatch.setattr(archive, "PER_TRANSACTION", 3)
    Task, heard = make_shared(FEATURES, roles=("runat", "priority", "attempts")), []
    Task.xq.on_change(lambda task, *change: heard.append((task.id, *change)))
    keys = done(Task, 10, name="it's 100 %", size=7)
    there = [row(Task, key).__data__ for key in keys]
    heard.clear()
    assert forget(Task, keys, *before(Task)) == (10, [])
    assert {state(Task, key) for key in keys} == {"X"}
    names = [*there[0]]
    rows = [[fields[name] for name in names] for fields in there]
    assert Task.xq.pipeline.archive.put_back(names, rows) == (10, 0)
    assert [row(Task, key).__data__ for key in keys] == there
    assert Task.xq.pipeline.archive.put_back(names, rows) == (0, 0), "they are there"
    assert transitions(Task) == Counter({"X-R": 10, "X-W": 1, "R-T": 10, "T-D": 10, "D-X": 10, "X-D": 10})
    for key in keys:
        told = [(row.source, row.target, row.event) for row in Task.xq.history(key)]
        assert told[-2:] == [("D", "X", "archive"), ("X", "D", "restore")]
        assert [each for each in heard if each[0] == key] == [(key, "archive", "D", "X"), (key, "restore", "X", "D")]
    assert is_exact(Task)


def restart(Task: Any, key: int) -> None:
    Task.xq.restart(key)


def kill(Task: Any, key: int) -> None:
    Task.xq.kill(key)


def do_again(Task: Any, key: int) -> None:
    Task.xq.restart(key)
    Task.xq.ack(Task.xq.take())


# What happens to a task that was written -> the state that it keeps, and whether it is one that must stay.
MEANWHILE = {"restarted": (restart, "R", False), "done again": (do_again, "D", True), "killed": (kill, "X", False)}


@pytest.mark.parametrize("is_long_ago", [False, True], ids=["just now", "long ago"])
@pytest.mark.parametrize(("happens", "is_in", "stays"), MEANWHILE.values(), ids=MEANWHILE)
def test_what_moves_after_it_was_written_stays(make_shared, monkeypatch, happens, is_in, stays, is_long_ago):
    Task = make_shared(FEATURES)
    keys = done(Task, 5)
    history, until = before(Task)
    happens(Task, keys[3])
    if is_long_ago:  # before the transaction that deletes
        before(Task)
    else:
        monkeypatch.setattr(type(history), "checkpoint", lambda self, after: after)
    refused = [keys[3]] if stays and not is_long_ago else []
    assert forget(Task, keys, history, until) == (4, refused)
    assert [state(Task, key) for key in keys] == ["X", "X", "X", is_in, "X"]
    assert is_exact(Task)


@ON_SERVERS  # where a transaction that stays open keeps the checkpoint from going on
def test_what_another_deletes_meanwhile_keeps_no_task_from_going_out(make_shared, monkeypatch):
    Task = make_shared(FEATURES)
    keys = done(Task, 3)
    history, until = before(Task)
    monkeypatch.setattr(type(history), "checkpoint", lambda self, after: after)
    other = Task.put({"name": "another"})
    Task.xq.ack(Task.take())
    Task.xq.kill(other.id)
    assert forget(Task, keys, history, until) == (3, [])


def test_an_archive_that_takes_longer_than_the_history_is_kept_deletes_no_more(make_shared):
    Task = make_shared(FEATURES | {"history": 60})
    keys = done(Task)
    history, until = before(Task)
    archive, begun_us = Task.xq.pipeline.archive, Task.xq.pipeline.archive.executor.time_us()
    Task.xq.clock.tick(60)
    with pytest.raises(xq.ConfigurationError, match="keeps its history for 60 s"):
        archive.forget_done([Written(keys, str(keys[0]), None)], history, until, begun_us)
    assert state(Task, keys[0]) == "D"


def test_a_task_that_others_refer_to_stays(make_shared, caplog):
    Task = make_shared(FEATURES)
    keys = done(Task, 4)
    Child = refers(Task, row(Task, keys[1]))
    assert forget(Task, keys, *before(Task)) == (3, [keys[1]])
    assert [state(Task, key) for key in keys] == ["X", "D", "X", "X"]
    assert "a task stays where it is" in caplog.text
    Child.drop_table()


def test_what_the_table_refuses_stays_in_the_archive(make_shared):
    Task = make_shared(FEATURES | {"unique": "RTWBD"}, roles=("unique", "runat"))
    Task.put({"id": 7, "job": "b"})
    names = ["id", "job", "status"]
    rows = [[key, job, "D"] for key, job in ((1, "a"), (2, "b"), (3, "c"), (7, "d"))]
    assert Task.xq.pipeline.archive.put_back(names, rows) == (2, 1)
    assert [(task.id, task.job, task.status) for task in Task.select().order_by(Task.id)] == [
        *((1, "a", "D"), (3, "c", "D"), (7, "b", "R"))
    ]
    assert is_exact(Task)


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_the_highest_number_stays_that_sqlite_would_give_again(make_shared):
    Task = make_shared(FEATURES)
    keys = [task.id for task in Task.xq.put_many([{}, {}, {}])]
    Task.xq.ack_many(Task.xq.take_many(3))
    assert forget(Task, keys, *before(Task)) == (2, [keys[-1]])
    assert os.path.isabs(Task.xq.pipeline.archive.identity["database"]), "two files may have one name"


def test_a_table_with_columns_that_the_model_lacks_loses_none(make):
    Task = make(FEATURES)
    make.db.execute_sql("ALTER TABLE task ADD COLUMN more INTEGER")
    with pytest.raises(xq.ConfigurationError, match=r"columns that Task does not name \(more\)"):
        Task.xq.pipeline.archive.check_changes()
    with make.db.atomic(), pytest.raises(xq.ConfigurationError, match="outside of a transaction"):
        Task.xq.pipeline.archive.check_changes()


@ON_SERVERS
def test_history_that_another_is_writing_is_not_lost(make_live, monkeypatch):
    monkeypatch.setattr(archive, "ROWS", 2)
    Task = make_live(FEATURES)
    done(Task)
    history, _ = before(Task)
    with put_late(Task) as commit:
        done(Task)
        until = history.checkpoint()
        early = [id for (id,) in history.read(["id"], Part(until=until))][:-1]
        keys = [row.id for row in Task.select()]
        assert Task.xq.pipeline.archive.forget_archived(early) == len(early)
        commit()
    (late,) = [row.id for row in Task.select() if row.id not in keys]
    assert str(late) in [row.key for row in Task.xq.History.select()]


# bulk puts


ENDS = (("a", 1), ("c", 3))


def test_each_partition_is_put_in_the_order_of_its_rows(make_shared):
    Task = make_shared({"history": True, "delayed": True}, roles=("runat", "attempts"))
    job = elsewhere(Task.xq.pipeline.bulk().begin(["name", "size", "delay"]))
    for part in (1, 0):
        assert job.put(part, [(f"{part}a", 1, None), [f"{part}b", 2, 5], (f"{part}c", 3, None)]) == 3
        assert job.put(part, iter([(f"{part}c", 3, None), (f"{part}a", 1, None), (f"{part}b", 2, 5)])) == 0, "again"
    found = [(task.name, task.size, task.status, task.attempts) for task in Task.select().order_by(Task.id)]
    assert [row for row in found if row[2] == "R"] == [(f"{part}{n}", i, "R", 0) for part in (1, 0) for n, i in ENDS]
    assert [row for row in found if row[2] == "W"] == [("1b", 2, "W", 0), ("0b", 2, "W", 0)]
    told = [(row.source, row.target, row.event) for row in Task.xq.history()]
    assert sorted(told) == [("X", "R", "put")] * 4 + [("X", "W", "put")] * 2
    assert is_exact(Task)


@pytest.mark.parametrize("ends", ["ttl", "lifetime"])
def test_delay_ttl_and_ttr_of_each_row_do_what_they_do_in_put(make_shared, ends):
    features = {"delayed": True, ends: 100, "ttr": 60, "history": True}
    roles = ("runat", "deadline", "priority", "ttl", "ttr", "attempts")
    bulk, single = (make_shared(features, roles=roles, attributes={"table_name": name}) for name in "ab")
    columns = [(f"{delay} {ttl}", delay, ttl) for delay in (None, 0, 5) for ttl in (None, 7.5, math.inf)]
    assert put(bulk, ["name", "delay", "ttl"], *columns, parts=2) == 9
    for name, delay, ttl in columns:
        single.put({"name": name}, **{o: v for o, v in {"delay": delay, "ttl": ttl}.items() if v is not None})
    found, wanted = ([vars(task)["__data__"] for task in Task.select()] for Task in (bulk, single))
    for each in [*found, *wanted]:
        each.pop("id")
        for role in ("runat", "deadline"):
            each[role] = each[role] and round(each[role], 3)
    key = operator.itemgetter("name")
    assert sorted(found, key=key) == sorted(wanted, key=key)
    assert transitions(bulk) == transitions(single)
    assert is_exact(bulk)


def some_key(task: Any) -> str:
    return f"made {task['name']}"


TEXT: Any = {"primary_key": True, "max_length": 40}
# strategy -> the key, the rows with their own or none, and the keys of which are made
KEYS: dict[Any, tuple[Any, ...]] = {
    "auto_increment": (lambda: None, [("a", 7), ("b", None), ("c", 9)]),
    "time64": (lambda: pw.BigIntegerField(primary_key=True), [("a", 7), ("b", None), ("c", 9)]),
    "uuid": (lambda: pw.UUIDField(primary_key=True), [("a", None), ("b", None)]),
    some_key: (lambda: pw.CharField(**TEXT), [("a", None), ("b", "own")]),
    "required": (lambda: pw.CharField(**TEXT), [("a", "one"), ("b", "two")]),
}


@pytest.mark.parametrize("strategy", KEYS)
def test_a_key_that_a_row_brings_is_used_and_one_that_it_does_not_is_made(make_shared, strategy):
    key, brought = KEYS[strategy]
    Task = make_shared({"id": strategy}, key=key())
    assert put(Task, ["name", "id"], *brought) == len(brought)
    found = {task.name: task.id for task in Task.select()}
    assert {name: found[name] for name, own in brought if own} == {name: own for name, own in brought if own}
    assert len({*found.values()}) == len(brought)
    if strategy is some_key:
        assert found["a"] == "made a"
    assert Task.take() is not None


def test_unique_values_that_are_held_are_duplicates_and_nothing_is_put_or_with_skip_are_left_out(make_shared):
    Task = make_shared({"unique": True, "buried": True}, roles=("unique", "priority"))
    held = Task.put({"job": "a"})
    for jobs, twice in (("ba", "a"), ("cdc", "c")):
        with pytest.raises(xq.Duplicate, match=f"already holds the unique value '{twice}'"):
            put(Task, ["job"], *zip(jobs, strict=True))
    assert [task.id for task in Task.select()] == [held.id]
    brought = [("b", 1), ("a", 2), ("b", 3), (None, 4), ("A", 5), (None, 6), ("b", 7)]
    assert put(Task, ["job", "size"], *brought, parts=2, on_conflict="skip") == 4
    found = sorted((task.job or "", task.size) for task in Task.select())
    assert found == [("", 4), ("", 6), ("A", 5), ("a", 0), ("b", 1)]
    assert is_exact(Task)
    with pytest.raises(xq.BadValue, match="'raise' or 'skip', not 'replace'"):
        Task.xq.pipeline.bulk(on_conflict="replace")


def test_more_than_the_limit_is_refused_whole_and_values_that_are_left_out_need_no_room(make_shared):
    Task = make_shared({"limit": 3, "unique": True}, roles=("unique",))
    assert put(Task, ["job"], ("a",), ("b",)) == 2
    with pytest.raises(xq.Full, match="limited to 3"):
        put(Task, ["job"], ("c",), ("d",))
    assert Task.select().count() == 2
    assert put(Task, ["job"], ("a",), ("b",), ("c",), on_conflict="skip") == 1
    with pytest.raises(xq.Full):
        put(Task, ["job"], ("d",), on_conflict="skip")
    assert is_exact(Task)


def test_a_partition_with_other_rows_is_refused(make_shared):
    Task = make_shared()
    bulk = Task.xq.pipeline.bulk()
    bulk.begin(["name"], "tonight").put(0, [("a",), ("b",)])
    again = bulk.begin(["name"], "tonight")
    assert again.put(0, [("b",), ("a",)]) == 0
    for others in ("a", "ac", "abb", ""):
        with pytest.raises(xq.Error, match="begun with other rows in its partition 0"):
            again.put(0, [(name,) for name in others])
    for part in (-1, True, "0"):
        with pytest.raises(xq.BadValue, match="a partition is a whole number"):
            again.put(part, [("c",)])
    assert names(Task) == ["a", "b"]


def test_rows_are_the_same_in_any_time_zone_and_others_at_another_moment(make_shared):
    Task = make_shared(attributes={"at": pw.DateTimeField(null=True)})
    job = Task.xq.pipeline.bulk().begin(["name", "at"], "tonight")
    at = datetime(2026, 3, 8, 2, 30, 5, 7, UTC)
    assert job.put(0, [("a", at), ("b", None)]) == 2
    for same in (at.astimezone(ZoneInfo("America/New_York")), at.replace(tzinfo=None)):
        assert job.put(0, [("a", same), ("b", None)]) == 0
    with pytest.raises(xq.Error, match="begun with other rows"):
        job.put(0, [("a", at.replace(tzinfo=ZoneInfo("America/New_York"))), ("b", None)])


def test_a_key_that_another_process_has_made_meanwhile_is_made_anew(make_shared, monkeypatch):
    Task = make_shared({"id": "time64"}, key=pw.BigIntegerField(primary_key=True))
    put(Task, ["name"], ("a",))
    told = iter([Task.get().id - 1])
    monkeypatch.setattr(bulk, "time", SimpleNamespace(time_ns=lambda: next(told, time.time_ns())))
    assert put(Task, ["name"], ("b",), ("c",)) == 2
    assert names(Task) == ["a", "b", "c"]
    assert is_exact(Task)


def test_a_job_without_a_name_is_remembered_for_a_day(make_shared):
    Task = make_shared()
    for name in (None, "tonight"):
        put(Task, ["name"], ("a",), job=name)
    Task.xq.clock.tick(86_401)
    Task.xq.pipeline.bulk().begin(["name"])
    kept = Task._meta.database.execute_sql("SELECT job, part, n FROM task_xq_put ORDER BY part").fetchall()
    assert [tuple(row) for row in kept] == [("tonight", -2, 1), ("tonight", -1, 1), ("tonight", 0, 1)]


def test_of_two_that_put_one_partition_at_once_one_does(make_live):
    Task = make_live()
    job = elsewhere(Task.xq.pipeline.bulk().begin(["name"]))
    make_live.db.close()

    def attempt() -> Any:
        yield
        yield job.put(0, [("a",)] * 1000)

    with processes(make_live.db, attempt, attempt) as others:
        for other in others:
            next(other)
        for other in others:
            other.post(None)
        assert sorted(other.hear() for other in others) == [0, 1000]
    assert Task.select().count() == 1000
    assert is_exact(Task)


def test_a_process_killed_in_a_partition_has_put_the_others_and_the_job_is_run_again(make_live):
    Task = make_live({"limit": 100_000})

    def run() -> Generator[Any, Any, None]:
        job = Task.xq.pipeline.bulk().begin(["size"], "tonight", 2)

        def dies() -> Iterator[Any]:
            yield [list(range(1, 1000, 2))]
            os.kill(os.getpid(), signal.SIGKILL)

        yield job.put(0, [(n,) for n in range(0, 1000, 2)])
        job.put_blocks(1, dies())

    with another_process(make_live.db, run) as process:
        assert next(process) == 500
        process.post(None)
        process.join()
    assert Task.select().count() == 500
    other = Task.xq.pipeline.bulk()
    for part in range(3):
        with pytest.raises(xq.Error, match="begun with 2 partitions, and this run has 3"):
            replace(other.begin(["size"], "tonight"), parts=3).put(part, [(n,) for n in range(part, 1000, 3)])
    assert Task.select().count() == 500
    for n in (500, 0):
        assert put(Task, ["size"], *[(i,) for i in range(1000)], job="tonight", parts=2) == n
    assert sorted(task.size for task in Task.select()) == [*range(1000)]
    assert is_exact(Task)


@pytest.mark.parametrize(
    ("column", "error", "words"),
    [
        ("status", xq.BadValue, "'status' out: it is the queue's own"),
        ("runat", xq.BadValue, "'runat' out, and for a time use delay= or at=: it is the queue's own"),
        ("attempts", xq.BadValue, "'attempts' out: it is the queue's own"),
        ("nonsense", xq.BadValue, "has no field for the column 'nonsense'"),
        ("delay", xq.FeatureOff, "delay"),
        ("name", xq.BadValue, "set the same: drop one"),
    ],
)
def test_columns_that_put_could_not_take_are_refused_before_anything_is_put(make_shared, column, error, words):
    Task = make_shared({"ttl": True}, roles=("runat", "attempts"))
    with pytest.raises(error, match=words):
        Task.xq.pipeline.bulk().begin(["name", column])
    with pytest.raises(xq.BadValue, match="a job is named by text"):
        Task.xq.pipeline.bulk().begin(["name"], "x" * 201)


@pytest.mark.parametrize(
    ("column", "value"),
    [("delay", math.inf), ("delay", -1), ("ttl", True), ("size", 1.5), ("size", 2**63), ("name", b"x"), ("tube", 7)],
)
def test_values_that_put_could_not_take_are_refused_and_nothing_is_put(make_shared, column, value):
    Task = make_shared({"delayed": True, "ttl": True}, roles=("runat", "priority", "tube", "ttl"))
    with pytest.raises((xq.BadValue, xq.BadType)):
        put(Task, ["id", column], (1, 1 if column == "size" else None), (2, value))
    assert Task.select().count() == 0


def test_values_are_stored_as_the_model_stores_them(make_shared):
    Task = make_shared(attributes=fields(make_shared.db))
    for each in (VALUES, OTHERS, dict.fromkeys(VALUES)):
        Task.put(each)
    put(Task, list(VALUES), tuple(VALUES.values()), tuple(SENT.values()), (None,) * len(VALUES))
    assert stored(Task) == [(*VALUES.values(),), (*OTHERS.values(),), (None,) * len(VALUES)] * 2
    kept = "SELECT COUNT(*) FROM task AS a, task AS b WHERE b.id = a.id + 3"
    same = "".join(f" AND CAST(a.{name} AS CHAR(99)) = CAST(b.{name} AS CHAR(99))" for name in ("who", "flag"))
    assert make_shared.db.execute_sql(kept + same).fetchone()[0] == 2


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
def test_arrays_of_plain_types_are_put_and_read(make_shared):
    Task = make_shared(attributes=arrays())
    given = {name: values for name, (_, values) in ARRAYS.items()}
    put(Task, [*given], (*given.values(),), ([],) * len(given), (None,) * len(given))
    full, *others = [tuple(getattr(task, name) for name in given) for task in Task.select().order_by(Task.id)]
    assert full == (*given.values(),)
    assert others == [([],) * len(given), (None,) * len(given)]
    of = extract(Task)
    read = dict(zip(given, next(row for row in of.read([*given]) if row[0]), strict=True))
    sent = {"ids": [str(UUID(int=7)), None], "times": [MOMENT, None], "moments": [MOMENT]}
    assert read == given | sent
    assert {of.column(name).type for name in ("numbers", "words", "moments")} == {
        "ARRAY<BIGINT>",
        "ARRAY<STRING>",
        "ARRAY<TIMESTAMP>",
    }
    with pytest.raises(xq.BadType, match="'numbers' of Task cannot hold 5: it is not a list"):
        put(Task, ["numbers"], (5,))


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("field", "kind"),
    [
        (lambda: postgres_ext.ArrayField(pw.IntegerField, dimensions=2, null=True), "INT[][]"),
        (lambda: postgres_ext.ArrayField(pw.JSONField, null=True), "JSON[]"),
    ],
)
def test_other_arrays_are_refused_by_name_before_anything_is_read_or_put(make_shared, field, kind):
    Task = make_shared(attributes={"deep": field()})
    with pytest.raises(xq.BadValue, match=re.escape(f"'deep' of Task, which is {kind}")):
        Task.xq.pipeline.bulk().begin(["name", "deep"])
    of = extract(Task)
    with pytest.raises(xq.BadValue, match=re.escape(f"'deep' is {kind}")):
        _ = [column.declared for column in of.chosen()]
    assert [column.declared for column in of.chosen(["name"])] == ["`name` STRING"]


SIZES = itertools.count(100)


def next_size() -> int:
    return next(SIZES)


def test_the_defaults_of_the_model_hold_for_columns_that_a_frame_does_not_bring(make_shared):
    fields = {"size": pw.IntegerField(default=next_size), "name": pw.TextField(default="unnamed")}
    Task = make_shared(attributes=fields)
    assert put(Task, ["priority"], (1,), (2,), (3,)) == 3
    assert [task.name for task in Task.select()] == ["unnamed"] * 3
    assert len({task.size for task in Task.select()}) == 3


def test_a_default_that_other_processes_cannot_make_is_to_be_brought(make_shared):
    Task = make_shared(attributes={"size": pw.IntegerField(default=lambda: 5)})
    with pytest.raises(xq.ConfigurationError, match="'size' is not known to this process .* or bring the column"):
        put(Task, ["name"], ("a",))
    assert put(Task, ["name", "size"], ("a", 1)) == 1


def test_a_queue_that_is_configured_anew_knows_what_was_put_and_an_uninstalled_one_leaves_nothing(make_shared):
    Task = make_shared({"buried": True})
    put(Task, ["name"], ("a",), job="tonight")
    install_anew(Task, {"keep": True, "delayed": True})
    assert put(Task, ["name", "delay"], ("a", 1.0), job="tonight") == 0
    assert put(Task, ["name", "delay"], ("a", 1.0)) == 1
    Task.xq.uninstall()
    assert [name for name in Task._meta.database.get_tables() if "xq" in name] == []


@pytest.fixture
def make_named(make_shared):
    """Peewee names things as they are, and the drivers of servers take a % in a name for the placeholder of a value."""
    if not isinstance(make_shared.db, pw.SqliteDatabase):
        execute = make_shared.db.execute_sql
        make_shared.db.execute_sql = lambda sql, *rest: execute(
            QUOTED.sub(lambda name: name[0].replace("%", "%%"), sql), *rest
        )
    return make_shared


@pytest.mark.parametrize("first", range(0, len(NAMES), 4))
def test_tables_and_columns_of_any_name_are_put_into(make_named, first):
    brought = [name for name in [*NAMES[first:], *NAMES[:first]] if is_possible(make_named.db, name)]
    model = make_named.model(
        table_name=brought[0],
        id=pw.AutoField(column_name=brought[1]),
        name=pw.TextField(null=True, column_name=brought[2]),
        size=pw.IntegerField(default=0, column_name=brought[3]),
        tube=pw.TextField(null=True, column_name=brought[4]),
    )
    Task = make_named({"keep": True, "history": True, "delayed": True}, model=model, roles=("runat", "tube"))
    assert put(Task, ["name", "size", "tube", "delay"], ("a", 1, "x", None), ("b", 2, "y", 0.0)) == 2
    assert sorted((task.name, task.size, task.tube) for task in Task.select()) == [("a", 1, "x"), ("b", 2, "y")]
    names = ["id", "name", "size", "tube", "status"]
    assert Task.xq.pipeline.archive.put_back(names, [[7, "c", 3, "z", "D"], [6, "d", 4, "z", "D"]]) == (2, 0)
    assert forget(Task, [6], *before(Task)) == (1, [])
    assert [(task.id, task.name, task.tube) for task in Task.xq.by_state("D")] == [(7, "c", "z")]
    assert is_exact(Task)


# reads


def test_live_tasks_are_told_by_the_keys_of_the_history(make_shared):
    keys = {"a": pw.IntegerField(), "b": pw.CharField(), "meta": {"primary_key": pw.CompositeKey("a", "b")}}
    features = {"delayed": True, "buried": True, "history": True}
    Task = make_shared(features, roles=("runat", "tube"), attributes=keys)
    for i, options in enumerate([{}, {}, {}, {"delay": 60}]):
        Task.put(task(tube=f"t{i}", a=i, b=f'it\'s "{i}"'), **options)
    Task.take()
    Task.take().bury()
    put = {row.tube: row.key for row in Task.xq.history() if row.event == "put"}
    expected = [(put[row.tube], row.tube, STATES[row.status]) for row in Task.select() if row.status != "B"]
    assert rows(extract(Task, "tasks", "RTW"), "xq_key", "tube", "state") == sorted(expected)
    assert sorted(state for *_, state in expected) == sorted(STATES[letter] for letter in "RTW")
    assert len(rows(extract(Task), "state")) == 4


def test_a_checkpoint_of_a_history_that_began_anew_and_is_longer_by_now_is_refused(make_live):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(3))
    history = extract(Task, "history")
    assert eventually(lambda: history.checkpoint() != ())
    checkpoint = history.checkpoint()
    assert history.checkpoint(checkpoint) >= checkpoint
    with pytest.raises(xq.ConfigurationError, match="begun anew"):  # further than the history has come
        history.checkpoint(tuple(part + 2**40 for part in checkpoint))
    Task.xq.uninstall()
    Task.xq.install()
    Task.xq.put_many(tasks(9))
    if not history.witness:  # PostgreSQL: the new rows come after the checkpoint, and none is left out
        assert len(rows(history, "id", after=checkpoint, until=history.checkpoint(checkpoint))) == 9
        return
    for limit in (None, 1):
        with pytest.raises(xq.ConfigurationError, match="begun anew"):
            history.checkpoint(checkpoint, limit)


def test_a_checkpoint_whose_row_was_pruned_is_gone_on_from(make_live):
    Task = make_live({"history": True})
    Task.xq.put_many(tasks(3))
    history, History = extract(Task, "history"), Task.xq.History
    assert eventually(lambda: len(rows(history, "id", until=history.checkpoint())) == 3)
    checkpoint = history.checkpoint()
    Task.put(task())
    History.delete().where(History.id < History.select(pw.fn.MAX(History.id)).scalar()).execute()
    assert eventually(lambda: len(rows(history, "id", after=checkpoint, until=history.checkpoint(checkpoint))) == 1)


def test_what_cannot_be_read_is_refused_in_words(make_shared, tmp_path):
    Task = make_shared()
    with pytest.raises(xq.BadValue, match="only the history"):
        extract(Task).checkpoint()
    with pytest.raises(xq.BadValue, match="tasks, history, stats, not 'rows'"):
        Task.xq.pipeline.extract("rows")
    if isinstance(make_shared.db, pw.SqliteDatabase):
        of, path = extract(Task), tmp_path / "elsewhere.db"
        address = replace(of.address, parameters={**of.address.parameters, "database": str(path)})
        with pytest.raises(xq.ConfigurationError, match="a file is read where it is"):
            rows(replace(of, address=address))
        assert not path.exists()


@pytest.fixture
def held(make_live):
    """A queue with one row of history that is not committed yet, and one after it that is."""
    Task = make_live({"history": True})
    Task.put(task())
    with put_late(Task) as commit:
        Task.put(task())
        yield Task, commit


@ON_SERVERS
@pytest.mark.parametrize("fresh", [None, -3600.0])  # as if all was written an hour ago
def test_a_checkpoint_never_passes_what_is_not_committed(held, monkeypatch, fresh):
    Task, commit = held
    if fresh:
        monkeypatch.setattr(mariadb, "FRESH", fresh)
    history = extract(Task, "history")
    checkpoint = history.checkpoint()
    assert len(rows(history, "id", until=checkpoint)) == 1
    assert len(rows(history, "id")) == 2
    commit()
    assert eventually(lambda: len(rows(history, "id", after=checkpoint, until=history.checkpoint(checkpoint))) == 2)


@ON_SERVERS
def test_ranges_are_of_one_moment_also_when_what_is_older_is_committed_meanwhile(held):
    Task, commit = held
    history = extract(Task, "history")
    parts = history.ranges(2)
    seen = {row for part in parts for row in history.read(["id"], part)}
    commit()
    assert {row for part in parts for row in history.read(["id"], part)} == seen
    assert len(rows(history, "id")) == 3


@ON_SERVERS
def test_a_number_that_was_given_to_nothing_holds_a_checkpoint_up_for_a_moment_only(make_live):
    Task = make_live({"history": True})
    Task.put(task())
    with make_live.db.atomic() as transaction:
        Task.xq.put_many(tasks(3))
        transaction.rollback()
    Task.put(task())
    history = extract(Task, "history")
    assert eventually(lambda: len(rows(history, "id", until=history.checkpoint())) == 2)


AT = 1_700_000_000_000_000
Rows = list[tuple[Any, ...]]


def fill(Task: Any, found: Rows) -> None:
    columns = ("id", "at_us", "key", "source", "target", "event")
    Task.xq.History.insert_many(found, [getattr(Task.xq.History, name) for name in columns]).execute()


def a_history(chance: random.Random) -> Rows:
    """Any transitions of some tasks, the first of which are not the first of their tasks, with gaps in the ids."""
    states: dict[str, str] = {}
    found, id_, at_us = [], 0, AT
    for _ in range(400):
        id_, at_us, key = id_ + chance.choice([1, 1, 2, 9]), at_us + chance.randrange(1_000), str(chance.randrange(60))
        source = states.get(key, chance.choice("XRT"))
        states[key] = chance.choice("XRTDB")
        found.append((id_, at_us, key, source, states[key], "event"))
    return found


def spent(found: Rows) -> dict[int, int | None]:
    """The time in the state that each row left, by the id of the row."""
    last: dict[str, int] = {}
    told: dict[int, int | None] = {}
    for id_, at_us, key, source, *_ in found:
        told[id_] = at_us - last[key] if key in last and source != "X" else None
        last[key] = at_us
    return told


def parts_of(found: Rows, key: str, chance: random.Random) -> Iterator[Part]:
    low, high = sorted(chance.choice(found)[0] for _ in range(2))
    at_us, its = chance.choice(found)[1], chance.choice(found)[2]
    yield Part()
    yield Part(f"id BETWEEN {low} AND {high}")
    yield Part(f"at_us >= {at_us}")
    yield Part(f"{key} = '{its}'")
    yield Part(f"id BETWEEN {low} AND {high} AND source IN ('R', 'T')")


@pytest.mark.parametrize("seed", range(2))
def test_any_part_of_a_history_has_the_times_of_all_of_it(make_shared, monkeypatch, seed):
    monkeypatch.setattr(readers, "NEAR", 3)
    monkeypatch.setattr(readers, "WIDER", 2)
    Task, chance = make_shared({"history": True, "keep": True}), random.Random(seed)
    found = a_history(chance)
    fill(Task, found)
    told, history = spent(found), extract(Task, "history")
    for part in parts_of(found, history.column("key").sql, chance):
        ids = [id_ for (id_,) in history.read(["id"], part)]
        assert ids
        assert dict(history.read(["id", "dur_us"], part)) == {id_: told[id_] for id_ in ids}
    assert {row.id: row.dur_us for row in Task.xq.history()} == told


def test_a_history_is_read_in_slices_and_each_row_once(make_shared, monkeypatch):
    monkeypatch.setattr(readers, "SLICE", 3)
    Task = make_shared({"history": True})
    Task.xq.put_many(tasks(10))
    Task.xq.ack_many(Task.xq.take_many(4))
    history = extract(Task, "history")
    told = sorted((row.id,) for row in Task.xq.history())
    assert rows(history, "id") == told
    assert rows(history, "id", sql=f"id > {told[2][0]}") == told[3:]
    parts = history.ranges(2)
    assert sorted(row for part in parts for row in history.read(["id"], part)) == told


@ON_SERVERS
def test_slices_show_one_moment_however_late_a_transaction_commits(make_live, monkeypatch):
    monkeypatch.setattr(readers, "SLICE", 3)
    Task = make_live({"history": True})
    with put_late(Task) as commit:
        Task.xq.put_many(tasks(10))
        told = sorted((row.id,) for row in Task.xq.history())
        reading = extract(Task, "history").read(["id"])
        read = [next(reading)]
        commit()
        read += reading
    assert sorted(read) == told


# batches of streams

ONE = Counted("Task", "", "minute", 60, "R", "T", "take", 1)


def counted(db: pw.Database, table: str = "told") -> dict[tuple[Any, ...], int]:
    found = db.execute_sql(f"SELECT queue, tube, unit, bucket, source, target, event, n FROM {table}").fetchall()
    return {tuple(row[:-1]): row[-1] for row in found}


def test_transitions_are_added_up_also_when_its_rows_were_cleaned_up(make):
    name = 'a "table" of `mine`, 100 %'
    tally = make().xq.pipeline.rollup(name)
    tally.install()
    tube = ONE._replace(tube="a 'tube' \u00e9\U0001f986")
    other = tube._replace(tube=tube.tube.upper())
    assert tally.add("stream", 0, [ONE, tube])
    assert tally.add("stream", 1, [ONE._replace(n=5), ONE._replace(bucket=120), other])
    for number in (1, 0):
        assert not tally.add("stream", number, [ONE])
    assert tally.add("stream", 2, [])
    mark = "`" if isinstance(make.db, pw.MySQLDatabase) else '"'
    table = f"{mark}{name.replace(mark, 2 * mark)}{mark}"
    if not isinstance(make.db, pw.SqliteDatabase):
        table = table.replace("%", "%%")
    assert counted(make.db, table) == {ONE[:-1]: 6, tube[:-1]: 1, ONE._replace(bucket=120)[:-1]: 1, other[:-1]: 1}
    make.db.execute_sql(f"DELETE FROM {table}")
    tally.install()
    assert tally.add("stream", 3, [ONE._replace(n=3)])
    assert counted(make.db, table) == {ONE[:-1]: 3}


def test_a_view_of_a_tally_tells_the_throughput(make):
    tally = make().xq.pipeline.rollup("told")
    tally.install()
    moves = {
        "put": ["XR put 3", "XW put 4", "XT write 1"],
        "taken": ["RT take 5"],
        "done": ["TD ack 1", "TX ack 2", "TZ ack 4", "BD switch 8"],
        "buried": ["TB bury 2", "RB bury 1"],
        "killed": ["RX kill 6", "WX write 1"],
        "expired": ["RX ttl 1", "BX lifetime 7"],
        "": ["TR release 5", "TT touch 5", "ZX zombie 4", "DX kill 1", "XD write 9", "WR delay 5"],
    }
    told = [
        ONE._replace(source=ends[0], target=ends[1], event=event, n=int(n))
        for several in moves.values()
        for ends, event, n in map(str.split, several)
    ]
    tally.add("stream", 0, told)
    (found,) = make.db.execute_sql("SELECT * FROM told_throughput").fetchall()
    assert tuple(found) == ("Task", "", "minute", 60, 8, 6, 15, 3, 7, 8)


def test_a_tally_of_other_queues_is_refused(make):
    Task = make()
    tally = Task.xq.pipeline.rollup("told")
    for batch in range(2):  # before there is a batch, and after it
        tally.install("Page, Order")
        with pytest.raises(xq.BadValue, match="counts other queues"):
            tally.install("Page, Refund")
        assert tally.add("stream", batch, [ONE], "Page, Order")
    with pytest.raises(xq.BadValue, match="another stream"):
        tally.add("stream", 2, [ONE], "Page, Refund")
    assert counted(make.db) == {ONE[:-1]: 2}
