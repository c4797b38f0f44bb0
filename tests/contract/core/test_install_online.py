"""install(online=True) beside the writers of a table, and install(plan=True)."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from contextlib import closing
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, database_on
from tests.steps import another_program, forked, install_anew

LOG = logging.getLogger("xq")


@pytest.fixture
def at_each_step(request):
    """Calls a function with each message of an installation."""

    def add(call: Any) -> None:
        handler: Any = logging.Handler()
        handler.emit = lambda record: call(record.getMessage())
        LOG.addHandler(handler)
        request.addfinalizer(lambda: LOG.removeHandler(handler))

    LOG.setLevel(logging.INFO)
    yield add
    LOG.setLevel(logging.NOTSET)


def orders(db: pw.Database, features: Any = None, **fields: str) -> Any:
    """The application's table with 30 rows, a third of them ready, as a queue that is not installed."""
    columns: Any = {"job": pw.CharField(20, null=True), "state": pw.CharField(20, default="R")}
    model: Any = type("Orders", (pw.Model,), {**columns, "Meta": type("Meta", (), {"database": db})})
    db.create_tables([model])
    model.insert_many([{"job": f"j{n // 2}", "state": "RDx"[n % 3]} for n in range(30)]).execute()
    xq.upgrade(model, {"status": "state", **fields}, features or {"delayed": True, "keep": True, "ttr": 60})
    return model


def is_counted(Orders: Any) -> bool:
    held = dict(Orders.select(Orders.state, pw.fn.COUNT(Orders.id)).group_by(Orders.state).tuples())
    return Orders.xq.check() == [] and all(Orders.stats().counts[state] == held.get(state, 0) for state in "RD")


def add_one(Orders: Any) -> None:
    """As the application, which has no queue."""
    another_program(Orders._meta.database, "INSERT INTO orders (job, state) VALUES ('j1', 'R')")


def write(Orders: Any) -> None:
    """One row comes, one leaves, and one becomes ready."""
    add_one(Orders)
    first = "WHERE id = (SELECT id FROM (SELECT MIN(id) AS id FROM orders WHERE state = '{}') AS it)".format
    another_program(Orders._meta.database, f"DELETE FROM orders {first('D')}")
    another_program(Orders._meta.database, f"UPDATE orders SET state = 'R' {first('x')}")


def test_what_is_written_between_the_steps_is_counted(make_shared, at_each_step):
    Orders, steps = orders(make_shared.db), list[str]()

    def emit(message: str) -> None:
        steps.append(message)
        write(Orders)

    at_each_step(emit)
    Orders.xq.install(online=True)
    assert len(steps) >= (0 if isinstance(make_shared.db, pw.SqliteDatabase) else 6)
    assert is_counted(Orders)
    assert Orders.take().ack().state == "D"
    Orders.xq.install(online=True)
    assert is_counted(Orders)


def test_the_next_call_goes_on_where_one_was_killed(make_shared):
    Orders, killed = orders(make_shared.db), 0

    def one_step() -> None:
        steps = list[str]()

        def emit(record: Any) -> None:
            steps.append(record.getMessage())
            if len(steps) == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        handler: Any = logging.Handler()
        handler.emit = emit
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
        Orders.xq.install(online=True)
        make_shared.db.close()

    while True:
        program = forked(make_shared.db, one_step)
        program.join()
        write(Orders)
        if program.exitcode == 0:
            break
        assert program.exitcode == -signal.SIGKILL
        killed += 1
        assert Orders.xq.check() != []
    assert killed >= (0 if isinstance(make_shared.db, pw.SqliteDatabase) else 5)
    assert is_counted(Orders)


@pytest.mark.parametrize("kind", SERVERS)
def test_others_write_while_it_waits_for_an_open_transaction(kind, at_each_step):
    with (
        database_on(SERVERS[kind]) as (server, name),
        closing(server.peewee(name)) as db,
        closing(server.peewee(name)) as other,
    ):
        Orders, waits = orders(db), list[str]()
        other.begin()
        other.execute_sql("UPDATE orders SET state = 'R' WHERE id = 3")

        def emit(message: str) -> None:
            if "waits for" in message:
                waits.append(message)
                add_one(Orders)  # it would be stuck if the installation kept its place in the queue of locks
                other.commit()

        at_each_step(emit)
        assert "It waits for" in Orders.xq.install(online=True, plan=True)
        Orders.xq.install(online=True, lock_timeout=0.05)
        assert len(waits) == 1
        assert is_counted(Orders)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_second_process_that_installs_online_waits_for_the_first(kind, at_each_step):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        Orders, context = orders(db), multiprocessing.get_context("fork")
        begun, waits = context.Event(), context.Event()

        def second() -> None:
            assert begun.wait(60)
            handler: Any = logging.Handler()
            handler.emit = lambda record: waits.set() if "another process" in record.getMessage() else None
            LOG.addHandler(handler)
            Orders.xq.install(online=True, lock_timeout=0.01)
            assert is_counted(Orders)

        def emit(message: str) -> None:
            if "build the index" in message:
                begun.set()
                assert waits.wait(60)

        other = forked(db, second)
        at_each_step(emit)
        Orders.xq.install(online=True)
        assert is_counted(Orders)
        other.join()
        assert other.exitcode == 0


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("step", ["add its columns", "build the index", "count each write", "count the tasks"])
def test_what_another_process_installs_meanwhile_stays(kind, step, at_each_step):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        Orders, others = orders(db), list[Any]()

        def install_with_history() -> None:
            LOG.handlers.clear()
            install_anew(Orders, {"delayed": True, "keep": True, "history": True})

        def emit(message: str) -> None:
            if step in message and not others:
                others.append(forked(db, install_with_history))
                others[0].join()

        at_each_step(emit)
        with pytest.raises(xq.ConfigurationError, match="the feature 'history' is on there and off here"):
            Orders.xq.install(online=True)
        assert others[0].exitcode == 0
        install_anew(Orders, {"delayed": True, "keep": True, "history": True})
        assert is_counted(Orders)


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("name", ["oldest_R", "unique"])
def test_an_invalid_index_of_a_broken_run_is_dropped_and_built_anew_if_it_is_wanted(kind, name):
    with database_on(SERVERS[kind]) as (server, database), closing(server.peewee(database)) as db:
        Orders = orders(db)
        with pytest.raises(pw.IntegrityError):
            db.execute_sql(f'CREATE UNIQUE INDEX CONCURRENTLY "orders_xq_{name}" ON orders (state)')
        db.execute_sql("SET lock_timeout = '7s'")
        Orders.xq.install(online=True)
        Orders.create()
        assert is_counted(Orders)
        assert db.execute_sql("SHOW lock_timeout").fetchone() == ("7s",)


@pytest.mark.parametrize("kind", ["postgres"])
def test_an_old_snapshot_for_which_an_index_waits_is_named(kind, at_each_step):
    with (
        database_on(SERVERS[kind]) as (server, name),
        closing(server.peewee(name)) as db,
        closing(server.peewee(name)) as other,
    ):
        Orders, named = orders(db), list[str]()
        other.begin()
        other.execute_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute_sql("SELECT 1")

        def emit(message: str) -> None:
            if "waits for process" in message:
                named.append(message)
                other.rollback()

        at_each_step(emit)
        assert "It waits for process" in Orders.xq.install(online=True, plan=True)
        Orders.xq.install(online=True, lock_timeout=0)
        assert "build the index" in named[0]


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_fulltext_index_is_named_as_the_reason_against_online(kind):
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        Orders = orders(db)
        db.execute_sql("ALTER TABLE orders ADD FULLTEXT (job)")
        assert "It is refused: " in Orders.xq.install(online=True, plan=True)
        with pytest.raises(xq.ConfigurationError, match="FULLTEXT"):
            Orders.xq.install(online=True)
        Orders.xq.install()
        assert is_counted(Orders)


def test_rows_that_hold_a_unique_value_twice_are_refused_and_nothing_is_in_their_way(make_shared):
    Orders = orders(make_shared.db, {"unique": True}, unique="job")
    Orders.update(state="R").execute()
    with pytest.raises(xq.ConfigurationError):
        Orders.xq.install(online=True)
    add_one(Orders)
    assert Orders.select().count() == 31


def test_the_plan_names_the_locks_and_changes_nothing(make_shared):
    Orders = orders(make_shared.db)
    before = make_shared.db.get_tables(), Orders.xq.check()
    for online in (False, True):
        plan = Orders.xq.install(online=online, plan=True)
        assert "xq_owner" in plan
        assert "orders_xq_oldest_R" in plan
        assert "lock" in plan or ("SHARE UPDATE EXCLUSIVE" in plan) == online
        assert (make_shared.db.get_tables(), Orders.xq.check()) == before
    Orders.xq.install()
    assert "nothing is left" in Orders.xq.install(plan=True)


def test_what_cannot_be_installed_online_is_refused(make_shared):
    db, is_local = make_shared.db, isinstance(make_shared.db, pw.SqliteDatabase)
    Orders = orders(db)
    with pytest.raises(xq.ConfigurationError, match="online"):
        Orders.xq.install(online=True, drop_history=True)
    with db.atomic(), pytest.raises(xq.InTransaction):
        Orders.xq.install(online=True)
    with pytest.raises(xq.BadType):
        Orders.xq.install(online=True, lock_timeout="1")
    Orders.xq.install()
    if not is_local:
        with pytest.raises(xq.ConfigurationError, match="the feature 'buried' is off there"):
            install_anew(Orders, {"keep": True, "buried": True}, online=True)
        db.drop_tables([Orders])
        Grouped = orders(db, {"utube": True}, utube="job")
        assert "It is refused: " in Grouped.xq.install(online=True, plan=True)
        with pytest.raises(xq.ConfigurationError, match="utube"):
            Grouped.xq.install(online=True)
