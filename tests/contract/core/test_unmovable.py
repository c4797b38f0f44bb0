"""A row that cannot be read, or that the database refuses to move: the others go on."""

from __future__ import annotations

import json
import logging
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import fail_for, fail_no_more, names

IN_MEMORY = True
APART = pytest.mark.apart("in the caller's transaction a take raises")

Json: Any = type("Json", (pw.TextField,), {"python_value": lambda self, value: value and json.loads(value)})
BURIES = {"buried": True, "history": True}
ROLES = ("attempts", "tube", "error")


def unreadable(make, features: Any = BURIES) -> Any:
    """A queue whose first task has a value that no field, or no driver, can read; and the tasks."""
    field: Any = pw.DateTimeField(null=True) if isinstance(make.db, pw.PostgresqlDatabase) else Json(null=True)
    Task = make(features, roles=ROLES, attributes={"made": field, "error": pw.TextField(null=True)})
    found = Task.xq.put_many([task(name=name) for name in "abc"])
    wrong = "infinity" if isinstance(make.db, pw.PostgresqlDatabase) else "no JSON"
    make.db.execute_sql(f"UPDATE task SET made = '{wrong}' WHERE id = {found[0].id}")
    return Task, found, wrong


@APART
def test_a_row_that_cannot_be_read_is_buried_with_the_reason_and_the_others_go_on(make, caplog):
    Task, (bad, *_), wrong = unreadable(make)
    assert names([Task.take(), *Task.xq.take_many(5)]) == ["b", "c"]
    assert Task.xq.peek(bad.id).status == "B"
    assert wrong in Task.xq.peek(bad.id).error
    assert [each.message.split(":")[0] for each in caplog.records if each.levelno == logging.ERROR] == [
        f"task {bad.id} is buried"
    ]
    assert Task.xq.check() == []


@APART
def test_a_batch_goes_on_around_a_row_that_cannot_be_read(make):
    Task, (bad, *_), _ = unreadable(make)
    assert names([each for _ in range(3) for each in Task.xq.take_many(2)]) == ["b", "c"]
    assert Task.xq.peek(bad.id).status == "B"


@APART
def test_without_buried_takes_pass_over_a_row_that_cannot_be_read_and_log_it_once(make, caplog):
    Task, (bad, *_), _ = unreadable(make, {})
    assert names([Task.take(), Task.take()]) == ["b", "c"]
    assert Task.take() is None
    assert Task.xq.peek(bad.id).status == "R"
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1


@APART
def test_a_row_that_cannot_be_read_is_found_shown_and_moved_by_its_key(make):
    Task, (bad, *_), wrong = unreadable(make, {"buried": "any"})
    queue = Task.xq
    assert wrong in [each.made for each in queue.find("state:R", 5).tasks]
    assert queue.peek(bad.id).made == wrong
    assert wrong in queue.why(bad.id)[0]
    assert [finding.what for finding in queue.doctor() if wrong in finding.what]
    assert queue.bury(bad.id).made == wrong
    assert queue.dig(bad.id).made == wrong
    assert queue.act("kill", f"key:{bad.id}").run().done == 1
    assert queue.count() == 2


def test_within_the_transaction_of_the_application_the_take_raises_and_changes_nothing(make):
    Task, (bad, *_), _ = unreadable(make)
    with pytest.raises(xq.BadValue, match=f"the row {bad.id} of Task"), make.db.atomic():
        Task.take()
    assert Task.xq.peek(bad.id).status == "R"


@APART
def test_takes_pass_over_a_task_that_the_database_refuses_to_move_and_doctor_names_it(make, caplog):
    Task = make(BURIES, roles=ROLES, attributes={"error": pw.TextField(null=True)})
    bad, *_ = Task.xq.put_many([task(name=name, tube="x") for name in "abc"])
    fail_for(Task, f"NEW.id = {bad.id} AND NEW.status = 'T'")
    assert [each.what for each in Task.xq.doctor() if each.what.startswith(f"task {bad.id} cannot be taken: ")]
    assert "it cannot be taken: " in Task.xq.why(bad.id)[0]
    assert names([Task.take(tube="x"), *Task.xq.take_many(5)]) == ["b", "c"]
    assert (Task.take(), Task.xq.peek(bad.id).status) == (None, "R")
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    fail_no_more(Task)
    assert Task.kill(bad.id).name == "a"


@APART
def test_in_a_utube_the_tasks_behind_one_that_the_database_refuses_to_move_wait_and_the_other_utubes_go_on(make):
    Task = make({"utube": True}, roles=("utube", "attempts"))
    bad, *_ = Task.xq.put_many([task(name=name, utube=utube) for name, utube in (("a", "x"), ("b", "x"), ("c", None))])
    fail_for(Task, f"NEW.id = {bad.id} AND NEW.status = 'T'")
    assert names([Task.take()]) == ["c"]
    assert Task.take() is None
    Task.put(task(name="d", utube="y"))
    assert names([Task.take()]) == ["d"]


def test_doctor_names_a_task_whose_take_a_trigger_ignores(make):
    Task = make({}, roles=("attempts",))
    first = Task.put(task())
    when, ignore = f"NEW.id = {first.id} AND NEW.status = 'T'", "CREATE TRIGGER ignores BEFORE UPDATE ON task"
    if isinstance(make.db, pw.SqliteDatabase):
        make.db.execute_sql(f"{ignore} WHEN {when} BEGIN SELECT RAISE(IGNORE); END")
    elif isinstance(make.db, pw.PostgresqlDatabase):
        body = "RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
        make.db.execute_sql(f"CREATE FUNCTION ignores() {body}")
        make.db.execute_sql(f"{ignore} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION ignores()")
    else:
        return  # no trigger of MariaDB can
    assert Task.take() is None
    assert [found.what for found in Task.xq.doctor() if f"task {first.id} cannot be taken" in found.what]


def test_workers_go_on_beside_a_row_that_cannot_be_read(make_shared):
    Task, (bad, *_), _ = unreadable(make_shared)
    done: list[str] = []
    Task.xq.worker(lambda each: done.append(each.name), max_attempts=2)
    Task.xq.run(until_empty=True)
    assert (sorted(done), Task.xq.peek(bad.id).status) == (["b", "c"], "B")
