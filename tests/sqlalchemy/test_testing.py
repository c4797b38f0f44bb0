"""Tests of applications that roll back: xq's calls and the workers' sessions are on the connection of the test."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, sessionmaker
from tests.sqlalchemy.in_loop import ASYNCHRONOUS
from tests.sqlalchemy.in_loop import engine as engine_in_loop
from tests.sqlalchemy.shop import Shop
from tests.sqlalchemy.test_async import in_a_loop, on_each_driver
from xq.adapters.sqlalchemy import upgrade


@pytest.fixture
def session(shop):
    """The session of a test, whose connection is rolled back at its end."""
    with shop.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as made:
            yield made
        outer.rollback()
    assert (shop.states(), shop.paid()) == ("", [])


def pays(shop: Any) -> Any:
    @shop.orders.worker(session=shop.Session, max_attempts=1)
    def pay(order: Any, session: Any) -> None:
        session.add(shop.Payment(order_id=order.id))
        session.flush()
        if order.cents < 0:
            raise ValueError("no money")

    return pay


def test_a_worker_runs_in_the_transaction_of_the_test(shop, session, xq_session, run_pending, assert_put):
    pay = pays(shop)
    xq_session(session)
    shop.orders.put({"cents": 1}, on=session)
    shop.orders.put({"cents": 2})
    shop.orders.put({"cents": -3})
    session.commit()
    assert run_pending(pay) == 3
    assert session.scalars(sa.select(shop.Payment.order_id)).all() == [1, 2]
    assert shop.orders.stats().counts["D"] == 2
    (failed,) = assert_put(shop.orders, {"cents": -3})
    assert failed.xq_status == "B"


def test_the_clock_of_the_test_begins_now(shop, session, xq_session, run_pending):
    pay = pays(shop)
    clock = xq_session(session)
    shop.orders.put({"cents": 1}, delay=60)
    assert run_pending(pay) == 0
    clock.tick(61)
    assert run_pending(pay) == 1


def test_afterwards_all_is_as_before(shop):
    from xq.testing import session as of_test

    with shop.engine.connect() as connection:
        outer = connection.begin()
        with of_test(Session(connection, join_transaction_mode="create_savepoint")):
            shop.orders.put({})
        outer.rollback()
    shop.orders.put({})
    pay = pays(shop)
    shop.orders.run(until_empty=True)
    assert (pay, shop.states(), shop.orders.clock) == (pay, "D", None)


def test_a_queue_that_is_made_meanwhile_is_part_of_the_test(shop, session, xq_session):
    xq_session(session)
    Later = type("Later", (orm.DeclarativeBase,), {})
    columns = {"__tablename__": "later", "id": sa.Column(sa.Integer, primary_key=True)}
    later: Any = upgrade(type("Later", (Later,), columns), engine=shop.engine)
    assert later.parts.store.in_transaction()


def test_a_session_of_another_database_is_refused(shop, session, xq_session, run_pending, tmp_path):
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    shop.Session = sessionmaker(elsewhere)
    pay = pays(shop)
    with pytest.raises(xq.ConfigurationError, match="the worker's sessions are on"):
        run_pending(pay)
    with pytest.raises(xq.ConfigurationError, match="xq_session takes a session on the connection"):
        xq_session(Session(shop.engine))


def rows(engine: sa.Engine) -> dict[str, list[Any]]:
    """All rows of the database as others see them, but for those that say which processes live."""
    tables = sa.MetaData()
    tables.reflect(engine)
    found = {name: table for name, table in tables.tables.items() if name not in ("xq_session", "xq_alive")}
    with engine.connect() as connection:
        return {name: sorted(map(repr, connection.execute(sa.select(table)))) for name, table in found.items()}


async def all_calls(shop: Any, clock: Any) -> None:
    """Call what writes, by aio without on=. Raises AssertionError if the calls do not see each other."""
    aio = shop.orders.aio
    assert await aio.every("0 3 * * *", {"cents": 7}, name="nightly")
    clock.tick(86_400)
    await aio.sweep()
    await asyncio.gather(*(aio.put({"cents": n}) for n in range(3)))
    async with aio.atomic():
        await aio.put({"cents": 3})
    with suppress(ZeroDivisionError):
        async with aio.atomic():
            await aio.put({"cents": 4})
            raise ZeroDivisionError
    async with aio.session():
        await aio.release(await aio.take())
    await aio.transaction(lambda: shop.orders.put({"cents": 5}))
    await aio.ack(await aio.take(), update={"cents": 8})
    with pytest.raises(xq.InTransaction):
        await aio.take(timeout=5, tube="none")
    assert (await aio.stats()).counts["R"] == 5
    assert [each.cents for each in await aio.by_state("D")] == [8]


def test_coroutines_of_a_test_use_its_connection_and_another_thread_is_refused(shop, session, xq_session):
    before, clock = rows(shop.engine), xq_session(session)
    asyncio.run(all_calls(shop, clock))
    assert len(session.scalars(sa.select(shop.Order)).all()) == 6
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(xq.ConfigurationError, match="would be no part of the test"):
            pool.submit(shop.orders.put, {}).result()
        assert pool.submit(copy_context().run, shop.orders.count).result() == 6
    assert rows(shop.engine) == before


@pytest.mark.parametrize("fails", [False, True])
def test_coroutines_run_in_the_transaction_and_the_loop_of_the_test(
    shared_db, xq_session, run_pending_async, fails, tmp_path
):
    asyncio.run(_coroutines(shared_db, xq_session, run_pending_async, fails))


async def _coroutines(shared_db: Any, xq_session: Any, run_pending_async: Any, fails: bool) -> None:
    driver = next(name for name, kind in ASYNCHRONOUS.items() if isinstance(shared_db, kind))
    engine = engine_in_loop(shared_db, driver)
    shop = await asyncio.to_thread(Shop, shared_db, engine)

    @shop.orders.worker(session=shop.Session, max_attempts=1)
    async def pay(order: Any, session: AsyncSession) -> None:
        session.add(shop.Payment(order_id=order.id))
        await session.flush()
        if fails:
            raise ValueError("no money")

    @shop.orders.worker(session=sessionmaker(shop.engine), tube="count")
    def count(order: Any, session: Session) -> None:
        order.cents += 1

    async with engine.connect() as connection:
        outer = await connection.begin()
        async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
            clock = xq_session(session)
            await shop.orders.aio.put({"cents": 1}, on=session, delay=60)
            await session.commit()
            assert await run_pending_async(pay) == 0
            clock.tick(61)
            assert await run_pending_async(pay) == 1
            assert (await session.scalars(sa.select(shop.Payment.order_id))).all() == ([] if fails else [1])
            await shop.orders.aio.put({"cents": 2, "stage": "count"}, on=session)
            assert await run_pending_async(count) == 1
        await outer.rollback()
    await engine.dispose()
    assert (await asyncio.to_thread(shop.states), await asyncio.to_thread(shop.paid)) == ("", [])


@on_each_driver
@in_a_loop
async def test_nothing_that_a_test_in_a_loop_calls_is_written_to_the_database_itself(shared_db, driver, xq_session):
    engine = engine_in_loop(shared_db, driver)
    shop = await asyncio.to_thread(Shop, shared_db, engine)
    before = await asyncio.to_thread(rows, shop.engine)
    async with engine.connect() as connection:
        outer = await connection.begin()
        async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
            clock = xq_session(session)
            await all_calls(shop, clock)
            assert len((await session.scalars(sa.select(shop.Order))).all()) == 6
            for call in (lambda: shop.orders.put({}), shop.orders.sweep):
                with pytest.raises(xq.ConfigurationError, match="await Order's call of aio"):
                    call()
            assert shop.is_file or await asyncio.to_thread(rows, shop.engine) == before
        await outer.rollback()
    assert await asyncio.to_thread(rows, shop.engine) == before
    await engine.dispose()
