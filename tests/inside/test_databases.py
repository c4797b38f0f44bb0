"""Databases that are refused by name, and those that the application changes while it runs."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import uuid4
from weakref import ref

import peewee as pw
import pytest

import xq
from tests.conftest import DATABASES, Maker
from tests.factories import task
from tests.steps import PATIENCE, forked
from xq.adapters.peewee.connections import database_of
from xq.core.errors import ConfigurationError, NotInstalled
from xq.database.duties import Duties
from xq.drivers import DRIVERS
from xq.sql.dialects import SHARED
from xq.workers.pool import Program
from xq.workers.program import assignment_of
from xq.workers.threads import Threads


def postgres(version: int, **status: str) -> Any:
    info = SimpleNamespace(server_version=version, parameter_status=status.get)
    return SimpleNamespace(pgconn=None, info=info, closed=False)


def mariadb(version: str) -> Any:
    return SimpleNamespace(server_version=version, server_status=2)


REFUSED: list[tuple[str, Any, str]] = [
    ("postgres", postgres(120_022), "needs PostgreSQL 13 or later, this is 120022"),
    ("postgres", postgres(130_000, crdb_version="CockroachDB v23.1"), "this is CockroachDB v23"),
    ("postgres", object(), "psycopg 3, this is a connection of builtins"),
    ("innodb", mariadb("8.0.29"), "MySQL 8.0.30 or later, this is 8.0.29"),
    ("innodb", mariadb("8.0.30-Vitess"), "8.0.30-Vitess, which has no triggers"),
    ("innodb", mariadb("8.0.11-TiDB-v7.5.0"), "8.0.11-TiDB-v7.5.0, which has no triggers"),
    ("innodb", mariadb("5.5.5-10.5.23-MariaDB-log"), "MariaDB 10.6 or later, this is"),
    ("innodb", object(), "through pymysql, this is a connection of builtins"),
]


@pytest.mark.parametrize(("driver", "connection", "words"), REFUSED)
def test_an_old_server_another_one_and_another_driver_are_refused_by_name(driver, connection, words):
    with pytest.raises(ConfigurationError, match=words):
        DRIVERS[driver].check(connection)
    assert DRIVERS["innodb"].check(mariadb("5.5.5-10.11.6-MariaDB-1")) == "mariadb"
    assert DRIVERS["innodb"].check(mariadb("8.0.30")) == "mysql"


def test_a_server_of_another_product_in_place_of_the_one_before_is_refused(make):
    Task = make({})
    Task.put(task())
    store = Task.xq.parts.store
    store.database.product = "another"
    Task._meta.database.close()
    with pytest.raises(ConfigurationError, match="the server was another when this program began, and is "):
        Task.take()


def test_what_all_queues_share_is_made_and_asked_without_a_queue(make):
    Task = make({})
    Task.xq.uninstall()  # with the shared tables, as it was the last queue
    store, sql, uuid = Task.xq.parts.store, SHARED[Task.xq.parts.store.database.product](), str(uuid4())
    for create in sql.tables.values():
        store.execute(create)
    row = {"uuid": uuid, "lease": 5, "host": "web-3", "pid": 1, "program": "xq", "now": 100.0}
    for queue in ("task", "task", ""):
        sql.execute(store, sql.session_listed, {**row, "queue": queue})
    listed = sql.execute(store, sql.sessions_listed, row)
    assert {tuple(found[:3]) for found in listed} == {(uuid, "", 5), (uuid, "task", 5)}
    assert sql.execute(store, sql.time_us, row) == [(100_000_000,)]
    text, uuids = sql.of_sessions(sql.session_over, [uuid])
    assert sql.execute(store, text, {**row, **uuids, "now": 106.0})[0] == (uuid,)
    assert sql.execute(store, sql.records_of([]), row) == []


def test_a_program_that_is_to_end_does_nothing_on_a_connection_that_all_threads_share(tmp_path):
    db = pw.SqliteDatabase(tmp_path / "app.db", thread_safe=False, check_same_thread=False)
    Task = Maker(db)({"buried": True}, roles=("attempts",))
    Task.put(task())
    assignment = assignment_of(Task.xq.worker(lambda found: None, max_attempts=2), None, None)
    pool = Threads(assignment, Program())
    pool.attempts.begin([Task.take()])
    pool.stopped()
    assert not db.is_closed()
    assert Task.get().attempts == 1
    db.close()


def test_the_exit_of_a_process_opens_no_database_that_it_has_not_used(tmp_path):
    xq.upgrade(Maker(unused := pw.SqliteDatabase(tmp_path / "unused.db")).model(), fields={"status": "status"})
    database_of(unused).close()
    assert not (tmp_path / "unused.db").exists()


def test_after_init_with_another_database_its_sessions_show_there_that_the_process_lives(make, request, tmp_path):
    db, Task = make.db, make()
    Task.put(task())
    assert Task.take()
    before, own = database_of(db), database_of(db).sessions.own()
    (tmp_path / "another").mkdir()
    with DATABASES[request.node.callspec.params["db"]](tmp_path / "another") as other:
        Other = Maker(other)()
        Other.xq.put_many([task(), task()])
        assert Other.take()
        db.init(other.database, **other.connect_params)
        taken, there = Task.take(), database_of(other).sessions
        with there.records.alone([database_of(db).sessions.own().uuid]) as gone:
            assert not gone
        assert taken.ack()
    assert database_of(db) is not before
    del before
    assert not own.live  # whose tasks stay in the first database: other processes give them back


def test_with_the_orms_database_end_its_sessions_and_its_thread_at_once(make):
    first, Task = make.db, make()
    other = type(first)(first.database, **first.connect_params)
    Task.bind(other)
    Task.put(task())
    assert Task.take()
    Task.xq.parts.maintenance.attend()
    own, maintenance = database_of(other).sessions.own(), database_of(other).duties
    Task.bind(first)
    end, gone = ref(database_of(other)), ref(other)
    other.close()
    gc.disable()  # no object of xq waits for it
    try:
        del other
        assert (gone(), end()) == (None, None)
    finally:
        gc.enable()
    assert not own.live
    if maintenance is not None:
        maintenance.thread.join(PATIENCE)
        assert not maintenance.thread.is_alive()


def test_what_names_no_queue_runs_on_the_database_and_says_so_when_its_tables_are_gone(make):
    Task, database = make(), database_of(make.db)
    Task.put(task())
    assert database.run(database.sql.queues) == [(Task._meta.table_name,)]
    assert database.values()["now"] == make.clock.now, "as its queues have it"
    Task.xq.uninstall()
    with pytest.raises(NotInstalled, match="there is no table xq_queue"):
        database.run(database.sql.queues)


def test_a_database_without_a_place_may_be_upgraded_and_gets_its_place_at_run_time(tmp_path):
    db = pw.SqliteDatabase(None)
    make = Maker(db)
    make.INSTALLS = False
    Task = make()
    db.init(str(tmp_path / "app.db"))
    db.create_tables([Task])
    Task.put(task())
    assert Task.take().ack()
    db.close()


def test_a_queue_is_of_the_database_in_which_it_is_used_and_goes_with_its_last_reference(make, tmp_path):
    Task, first = make(), database_of(make.db)
    mine = Task.xq.parts.maintenance
    assert mine in first.members
    other = pw.SqliteDatabase(tmp_path / "other.db")
    Task.bind(other)
    other.create_tables([Task])
    Task.xq.install()
    assert mine in database_of(other).members
    assert mine not in first.members
    Task.xq.uninstall()
    del Task.xq, Task, mine
    gc.collect()
    assert database_of(other).members == []
    other.close()


def test_a_reap_that_was_just_done_does_not_wait_for_one_that_runs(make_live):
    (reaper := database_of(make_live().xq.model._meta.database).reaper).reap()
    with ThreadPoolExecutor(1) as thread, reaper._running:
        assert thread.submit(reaper.reap, 0.0).result(PATIENCE) is reaper._others


def test_in_a_forked_child_each_database_is_reset_even_if_another_fails(tmp_path):
    found = [pw.SqliteDatabase(tmp_path / name) for name in ("one.db", "two.db")]
    databases = [database_of(each) for each in found]
    for database in databases:
        assert database.sessions.own()
        vars(database.store)["forked"] = lambda: 1 / 0
    program = forked(found[0], lambda: os._exit(sum(each.sessions.of_process is not None for each in databases)))
    program.join(PATIENCE)
    assert program.exitcode == 0


def test_a_process_that_is_forked_while_its_maintenance_thread_connects_has_no_connection_to_it(tmp_path, monkeypatch):
    class Job(xq.Task):
        class Meta:
            database = pw.SqliteDatabase(tmp_path / "app.db")

    xq.upgrade(Job)
    (db := Job._meta.database).create_tables([Job])
    database = database_of(db)
    connect, connects, asked = database.store.connect_unpooled, Event(), Event()

    def connect_and_wait():
        connect()
        connects.set()
        asked.wait(0.1)  # until the fork goes on, which it must not yet

    def fork(forks, ask=Duties.fork):
        ask(duties, forks)
        asked.set()

    monkeypatch.setattr(database.store, "connect_unpooled", connect_and_wait)
    Job.take()
    assert connects.wait(PATIENCE)
    duties: Any = database.duties
    monkeypatch.setattr(duties, "fork", fork)
    program = forked(db, lambda: os._exit(duties._connection is not None))
    program.join(PATIENCE)
    assert program.exitcode == 0
