"""The transaction that calls join by `on=`: savepoints, errors of the database, and what runs after its commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy.orm import Session, sessionmaker
from tests.conftest import fresh
from tests.sqlalchemy.shop import Shop
from tests.sqlalchemy.test_unit_of_work import Desk

CONNECTION = {"postgresql": "pg_backend_pid()", "mysql": "connection_id()"}
CLOSE = {"postgresql": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}

server_db = fresh(["postgres", "mariadb", "mysql"])


@pytest.fixture
def server_shop(server_db):
    made = Shop(server_db)
    yield made
    made.engine.dispose()


def deadlock(session: Session) -> None:
    """An error of MariaDB's by which it rolls a whole transaction back; here it only says so."""
    session.execute(sa.text("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'"))


def test_what_begins_with_a_savepoint_is_rolled_back_with_the_rest(shop):
    with Session(shop.engine) as session:
        with session.begin_nested():
            shop.orders.put({}, on=session)
        session.rollback()
    assert shop.orders.stats().counts["R"] == 0


def test_a_savepoint_at_the_start_of_a_workers_function_is_rolled_back_with_its_attempt(shop):
    @shop.orders.worker(session=shop.Session, max_attempts=1)
    def pay(order: Any, session: Any) -> None:
        with session.begin_nested():
            session.add(shop.Payment(order_id=order.id))
        raise ValueError("no money")

    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("B", [])


def test_sessions_find_the_engine_by_the_class(shop):
    make = sessionmaker(binds={shop.Order: shop.engine, shop.Payment: shop.engine})
    with make.begin() as session:
        shop.orders.put({}, on=session)

    @shop.orders.worker(session=make)
    def work(order: Any, session: Any) -> None:
        session.add(shop.Payment(order_id=order.id))

    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("D", [1])


class Routing(Session):
    """Sessions that read on a replica, as SQLAlchemy's documents show it."""

    leader: sa.Engine
    replica: sa.Engine

    def get_bind(self, mapper: Any = None, *, clause: Any = None, **options: Any) -> Any:
        return self.leader if self._flushing or isinstance(clause, (sa.Update, sa.Delete)) else self.replica


@pytest.fixture
def replica(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/replica.db")
    yield engine
    engine.dispose()


def test_calls_in_a_session_that_reads_on_a_replica_go_where_it_writes(shop, replica):
    routing: Any = sessionmaker(class_=type("Routed", (Routing,), {"leader": shop.engine, "replica": replica}))
    with routing() as session:
        shop.orders.put({}, on=session)
        shop.orders.bury(shop.orders.take(on=session), on=session)
        shop.orders.dig(1, on=session)
        shop.orders.put(shop.Order(), on=session)
        shop.orders.cancel(2, on=session)
        session.commit()
    assert shop.states() == "R"

    @shop.orders.worker(session=routing)
    def pay(order: Any, session: Any) -> None:
        session.add(shop.Payment(order_id=order.id))
        assert session.scalar(sa.text("SELECT count(*) FROM sqlite_master")) == 0  # the replica

    shop.orders.run(until_empty=True)
    assert (shop.states(), shop.paid()) == ("D", [1])


def test_a_session_that_has_another_schema_for_the_table_is_refused(shop):
    other = {"schema_translate_map": {None: "other"}}
    mapped = shop.engine.execution_options(**other)
    with Session(mapped) as session, pytest.raises(xq.ConfigurationError, match="schema_translate_map"):
        shop.orders.put({}, on=session)
    with Session(mapped) as session:
        session.add(shop.Order(xq_status="R"))
        with pytest.raises(xq.ConfigurationError, match="schema_translate_map"):
            session.flush()
    with Session(shop.engine) as session:
        session.connection(execution_options=other)
        with pytest.raises(xq.ConfigurationError, match="schema_translate_map"):
            shop.orders.put(shop.Order(), on=session)

    with pytest.raises(xq.ConfigurationError, match="schema_translate_map"):
        shop.orders.worker(lambda order, session: None, session=sessionmaker(mapped))
    assert shop.states() == ""


def test_an_observer_finds_a_connection_in_the_pool_of_the_session_that_has_committed(shop):
    of_one = sa.create_engine(shop.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    shop.orders.bind(of_one)
    seen = list[int]()
    shop.orders.on_change(lambda *change: seen.append(shop.orders.count("R")))
    with Session(of_one) as session:
        shop.orders.put({}, on=session)
        session.commit()
        assert seen == [1]
        shop.orders.put({}, on=session)
        session.rollback()
    assert seen == [1]
    with of_one.begin() as connection:
        shop.orders.put({}, on=connection)
    assert seen == [1, 2]
    of_one.dispose()


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
def test_a_lock_is_an_error_of_sqlalchemys(shop):
    with shop.engine.connect() as one, shop.engine.connect() as other:
        one.exec_driver_sql("BEGIN IMMEDIATE")
        other.exec_driver_sql("PRAGMA busy_timeout = 0")
        with pytest.raises(sa.exc.OperationalError, match="locked"):
            shop.orders.put({}, on=other)


def test_a_connection_that_the_server_has_closed_leaves_the_pool(server_shop):
    shop = server_shop
    with Session(shop.engine) as session:
        own = session.scalar(sa.text("SELECT " + CONNECTION[shop.engine.dialect.name]))
        with shop.engine.connect() as other:
            other.execute(sa.text(CLOSE[shop.engine.dialect.name].format(own)))
        with pytest.raises(sa.exc.DBAPIError) as raised:
            shop.orders.put({}, on=session)
        assert raised.value.connection_invalidated
        session.rollback()
        shop.orders.put({}, on=session)
        session.commit()
    assert shop.states() == "R"


@pytest.mark.parametrize("server_db", ["postgres"], indirect=True)
def test_calls_follow_the_search_path_of_the_session_that_they_join(server_shop):
    shop = server_shop

    def of(tenant: str) -> Session:
        session = Session(shop.engine)
        session.execute(sa.text(f"SET LOCAL search_path TO {tenant}"))
        return session

    for tenant in ("acme", "without"):
        with shop.engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {tenant}")
    with of("acme") as session:
        shop.Order.metadata.create_all(session.connection())
        session.connection().connection.cursor().execute(shop.orders.ddl())
        session.commit()
    with of("acme") as session:
        shop.orders.put({}, on=session)
        session.add(shop.Order(xq_status="R"))
        session.commit()
    with of("without") as session, pytest.raises(xq.NotInstalled):
        shop.orders.put({}, on=session)
    shop.orders.put({})
    with of("acme") as session:
        assert session.scalar(sa.select(sa.func.sum(sa.column("n"))).select_from(sa.table("orders_xq_count"))) == 2
    assert shop.states() == "R"


def test_two_phases_are_refused(server_shop):
    with (
        Session(server_shop.engine, twophase=True) as session,
        pytest.raises(xq.ConfigurationError, match="two phases"),
    ):
        server_shop.orders.put({}, on=session)


@pytest.mark.parametrize("server_db", ["mariadb", "mysql"], indirect=True)
def test_a_transaction_that_a_deadlock_has_undone_is_no_success(server_shop):
    shop, tried = server_shop, list[int]()

    @shop.orders.worker(session=shop.Session, max_attempts=2, backoff=[0])
    def pay(order: Any, session: Any) -> None:
        tried.append(order.id)
        if len(tried) == 1:
            with pytest.raises(sa.exc.OperationalError), session.begin_nested():
                deadlock(session)

    shop.orders.put({})
    shop.orders.run(until_empty=True)
    assert (shop.states(), tried) == ("D", [1, 1])


def test_the_actor_of_a_block_is_that_of_its_calls_in_a_session_for_which_it_takes_no_connection(shared_db):
    desk = Desk(shared_db)
    orders = desk.queue(history=True, buried="any")
    options = {"creator": desk.engine.pool._creator, "pool_size": 1, "max_overflow": 0}
    orders.bind(of_one := sa.create_engine(desk.engine.url, **options))
    with Session(of_one, expire_on_commit=False) as session:
        put = orders.put({"cents": 1}, on=session)
        with orders.acting("ann"):
            orders.bury(put, on=session)
        session.commit()
    with suppress(xq.NotFound), orders.acting("ben"), orders.acting("cy"):
        orders.dig(put.id)
        orders.dig(99)
    with orders.acting("dan"):
        with pytest.raises(xq.InTransaction):
            orders.take(5)
        orders.kill(put.id)
        assert orders.count() == 0
    assert [(row.event, row.actor) for row in orders.history()] == [("put", None), ("bury", "ann"), ("kill", "dan")]
    of_one.dispose()
