"""Bulk puts amid what goes wrong: other runs of a job, failures after the commit, refusals, names and installs."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

import peewee as pw
import pytest
from pymysql.constants import CLIENT

import xq
from tests.conftest import SERVERS
from tests.steps import is_exact, make_impatient
from tests.support.bulk import elsewhere, names, put, staged_rows, timed
from tests.support.names import NAMES, QUOTED, is_possible
from xq.adapters import plain
from xq.adapters.databases.staging import Staging
from xq.pipeline.bulk import Job

__all__ = ["timed"]


def amid_the_put(monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
    """Have something happen once, when a job counts as put and its rows were counted, before the first is put."""
    put_rows = Job._put

    def after(self: Job, *values: Any) -> int:
        monkeypatch.setattr(Job, "_put", put_rows)
        work()
        return put_rows(self, *values)

    monkeypatch.setattr(Job, "_put", after)


def test_a_job_that_another_run_gives_up_while_it_is_put_is_put_whole(make_shared, monkeypatch):
    monkeypatch.setattr(plain, "PATIENCE", 1)
    make_impatient(make_shared.db, 1)
    Task = make_shared()
    job = Task.xq.pipeline.bulk().begin(["name"], "tonight")
    staged = [job.stage([[["a", "b"]]], part) for part in range(2)]
    another = elsewhere(Task.xq.pipeline.bulk()).begin(["name"], "tonight")

    def give_up() -> None:
        with suppress(Exception):  # it waits for the other, which here waits for it
            another.abort()

    amid_the_put(monkeypatch, give_up)
    assert job.commit(staged) == 4
    assert names(Task) == ["a", "b", "a", "b"]
    assert is_exact(Task)
    assert staged_rows(Task) == 0


IGNORES = {
    pw.SqliteDatabase: "CREATE TRIGGER no BEFORE INSERT ON task WHEN new.name = 'b' BEGIN SELECT RAISE(IGNORE); END",
    pw.PostgresqlDatabase: "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
    "$$BEGIN IF new.name = 'b' THEN RETURN NULL; END IF; RETURN new; END$$; "
    "CREATE TRIGGER no BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION no()",
}


def of_this(db: pw.Database, sql: dict[type[pw.Database], str]) -> str:
    found = [text for kind, text in sql.items() if isinstance(db, kind)]
    return found[0]


def drop(db: pw.Database, trigger: str, table: str) -> None:
    db.execute_sql(f"DROP TRIGGER {trigger}" + f" ON {table}" * isinstance(db, pw.PostgresqlDatabase))


@pytest.mark.parametrize("shared_db", ["sqlite", "postgres"], indirect=True)  # no trigger of MariaDB can
def test_rows_that_a_trigger_ignores_are_told_and_nothing_is_put(make_shared):
    Task = make_shared()
    make_shared.db.execute_sql(of_this(make_shared.db, IGNORES))
    with pytest.raises(xq.Error, match="2 rows .* taken 1, so nothing was put: is there a trigger that ignores rows"):
        put(Task, ["name"], ("a",), ("b",), job="tonight")
    assert Task.select().count() == 0
    drop(make_shared.db, "no", "task")
    assert put(Task, ["name"], ("a",), ("b",), job="tonight") == 2
    assert is_exact(Task)


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)  # who puts into SQLite is alone
def test_a_unique_value_that_is_put_between_look_and_put_is_a_duplicate_and_left_out_by_skip_alone(
    make_shared, monkeypatch
):
    Task = make_shared({"unique": True}, roles=("unique",))
    put_rows = Staging.put

    def come_between(self: Staging, *values: Any) -> Any:
        monkeypatch.setattr(Staging, "put", put_rows)
        Task.put({"job": "a"})
        return put_rows(self, *values)

    monkeypatch.setattr(Staging, "put", come_between)
    with pytest.raises(xq.Duplicate, match="already holds the unique value 'a'"):
        put(Task, ["job"], ("a",), ("b",), job="tonight")
    assert [task.job for task in Task.select()] == ["a"]
    assert put(Task, ["job"], ("a",), ("b",), job="tonight", on_conflict="skip") == 1
    assert is_exact(Task)


NO_END = {
    pw.SqliteDatabase: "CREATE TRIGGER no BEFORE DELETE ON task_xq_job BEGIN SELECT RAISE(ABORT, 'no'); END",
    pw.PostgresqlDatabase: "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
    "$$BEGIN RAISE EXCEPTION 'no'; END$$; "
    "CREATE TRIGGER no BEFORE DELETE ON task_xq_job FOR EACH ROW EXECUTE FUNCTION no()",
    pw.MySQLDatabase: "CREATE TRIGGER no BEFORE DELETE ON task_xq_job FOR EACH ROW "
    "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'",
}


def test_a_job_that_was_put_is_put_though_it_cannot_be_cleared_up(timed, caplog):
    Task = timed()
    db, clock = Task._meta.database, Task.xq.clock
    assert put(Task, ["name"], ("a",)) == 1
    db.execute_sql(of_this(db, NO_END))
    with caplog.at_level(logging.WARNING, "xq.Task"):
        assert put(Task, ["name"], ("b",), ("c",)) == 2
    assert "2 tasks were put" in caplog.text
    assert names(Task) == ["a", "b", "c"]
    assert staged_rows(Task) == 2
    drop(db, "no", "task_xq_job")
    clock.tick(86_401)
    assert put(Task, ["name"], ("d",)) == 1
    assert staged_rows(Task) == 0
    assert is_exact(Task)


@pytest.mark.parametrize("shared_db", ["mariadb"], indirect=True)  # whose client has such a flag
def test_a_job_with_a_name_is_put_once_where_rows_that_were_found_count_as_changed(make_shared):
    Task = make_shared()
    bulk = Task.xq.pipeline.bulk()
    parameters = {**bulk.address.parameters, "client_flag": CLIENT.FOUND_ROWS}
    found = replace(bulk, address=replace(bulk.address, parameters=parameters))

    def run() -> Any:
        job = found.begin(["name"], "tonight")
        return job.commit([job.stage([[["a", "b"]]])])

    assert [run(), run()] == [2, 0]
    assert names(Task) == ["a", "b"]


def test_what_the_table_refuses_is_the_drivers_error_also_where_keys_are_made(make_shared):
    attributes = {"name": pw.TextField(null=False)}
    Task = make_shared({"id": "time64"}, key=pw.BigIntegerField(primary_key=True), attributes=attributes)
    with pytest.raises(Exception, match="(?i)null") as refused:
        put(Task, ["name"], ("a",), (None,))
    assert type(refused.value).__module__ in ("sqlite3", "psycopg.errors", "pymysql.err")
    assert Task.select().count() == 0


@pytest.fixture
def shared_db(shared_db):
    """Peewee names things as they are, and the drivers of servers take a % in a name for the placeholder of a value."""
    if not isinstance(shared_db, pw.SqliteDatabase):
        execute = shared_db.execute_sql
        shared_db.execute_sql = lambda sql, *rest: execute(
            QUOTED.sub(lambda name: name[0].replace("%", "%%"), sql), *rest
        )
    return shared_db


@pytest.mark.parametrize("first", range(0, len(NAMES), 4))
def test_tables_and_columns_of_any_name_are_put_into(make_shared, first):
    brought = [name for name in [*NAMES[first:], *NAMES[:first]] if is_possible(make_shared.db, name)]
    model = make_shared.model(
        table_name=brought[0],
        id=pw.AutoField(column_name=brought[1]),
        name=pw.TextField(null=True, column_name=brought[2]),
        size=pw.IntegerField(default=0, column_name=brought[3]),
        tube=pw.TextField(null=True, column_name=brought[4]),
    )
    Task = make_shared({"keep": True, "history": True, "delayed": True}, model=model, roles=("runat", "tube"))
    assert put(Task, ["name", "size", "tube", "delay"], ("a", 1, "x", None), ("b", 2, "y", 0.0)) == 2
    assert sorted((task.name, task.size, task.tube) for task in Task.select()) == [("a", 1, "x"), ("b", 2, "y")]
    Task.xq.pipeline.archives.prepare()
    loading = elsewhere(Task.xq.pipeline.archives.loading(["id", "name", "size", "tube", "status"]))
    assert loading.load([([7], ["c"], [3], ["z"], ["D"])], 1) == 1
    Task.xq.pipeline.archives.loaded(loading, "run", 1)
    assert Task.xq.pipeline.archives.put_back("run").moved == 1
    assert [(task.id, task.name, task.tube) for task in Task.xq.by_state("D")] == [(7, "c", "z")]
    assert is_exact(Task)


@pytest.mark.parametrize("kind", ["index", "trigger"])
def test_what_is_installed_anew_leaves_the_jobs_that_run_alone(make_shared, kind):
    Task = make_shared({"delayed": True})
    job = Task.xq.pipeline.bulk().begin(["name"])
    staged = job.stage([[["a", "b"]]])
    gone = next(item for item in job.bulk.dialect.objects() if item.kind == kind)
    make_shared.db.execute_sql(gone.drop)
    assert Task.xq.check() != []
    Task.xq.install()
    assert Task.xq.check() == []
    assert job.commit([staged, job.stage([[["c"]]], 1)]) == 3
    assert names(Task) == ["a", "b", "c"]
    assert is_exact(Task)


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)  # who puts into SQLite is alone
def test_other_jobs_begin_and_stage_while_one_is_put(make_shared, monkeypatch):
    make_impatient(make_shared.db, 5)
    Task = make_shared()
    job, running = Task.xq.pipeline.bulk().begin(["name"]), Task.xq.pipeline.bulk().begin(["name"], "another")
    staged, others = [job.stage([[["a"]]], part) for part in range(2)], [running.stage([[["b"]]])]

    def go_on() -> None:
        others.append(running.stage([[["c"]]], 1))
        begun = Task.xq.pipeline.bulk().begin(["name"])
        begun.stage([[["d"]]])
        begun.abort()

    amid_the_put(monkeypatch, go_on)
    assert job.commit(staged) == 2
    assert running.commit(others) == 2
    assert names(Task) == ["a", "a", "b", "c"]
