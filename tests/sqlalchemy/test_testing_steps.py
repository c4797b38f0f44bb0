"""Steps in the tests of applications that roll back, and beside their own transactions."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

import sqlalchemy as sa
import xq
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from tests.sqlalchemy.in_loop import engine as engine_in_loop
from tests.sqlalchemy.shop import Shop
from tests.sqlalchemy.test_async import in_a_loop, on_each_driver
from xq.testing import clock as clock_of

DAY = 86_400


def worker_of(shop: Any, seen: list[Any], with_session: bool, is_async: bool) -> Any:
    """A worker that pays, sleeps for a day, and waits for an approval."""

    def paid(order: Any, session: tuple[Any, ...]) -> str:
        for each in session:
            each.add(shop.Payment(order_id=order.id))
        seen.append("paid")
        return "paid"

    def pay(order: Any, *session: Any) -> None:
        xq.step("pay", paid, order, session)
        xq.sleep("cool off", DAY)
        try:
            seen.append(xq.wait_for("approved", timeout=60))
        except TimeoutError:
            seen.append("late")

    async def apay(order: Any, *session: Any) -> None:
        await xq.step("pay", paid, order, session)
        await xq.sleep("cool off", DAY)
        try:
            seen.append(await xq.wait_for("approved", timeout=60))
        except TimeoutError:
            seen.append("late")

    def alone(order: Any) -> Any:
        return pay(order)

    async def aalone(order: Any) -> None:
        await apay(order)

    if with_session:
        return shop.orders.worker(session=shop.Session, max_attempts=1)(apay if is_async else pay)
    return shop.orders.worker(max_attempts=1)(aalone if is_async else alone)


@pytest.mark.parametrize(("with_session", "is_async"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("within", [False, True])
def test_the_clock_of_a_test_wakes_what_sleeps_with_a_session_and_without(
    shared_db, xq_session, run_pending, with_session, is_async, within
):
    shop, seen = Shop(shared_db, steps=True), list[Any]()
    pay = worker_of(shop, seen, with_session, is_async)
    with shop.engine.connect() as connection:
        outer = connection.begin() if within else None
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            with nullcontext(xq_session(session)) if within else clock_of(shop.orders) as clock:
                shop.orders.put_many([{"cents": 1}, {"cents": 2}])
                assert (run_pending(pay, raises=True), run_pending(pay)) == (2, 0)
                clock.tick(DAY)
                assert shop.orders.signal(1, "approved", "yes")
                assert (run_pending(pay, raises=True), run_pending(pay)) == (2, 0)
                clock.tick(60)
                assert run_pending(pay, raises=True) == 1
                assert shop.orders.stats().counts["D"] == 2
                count = sa.select(sa.func.count(shop.Payment.id))
                assert session.scalar(count) == 2 * with_session
        if outer:
            outer.rollback()
    assert seen == ["paid", "paid", "yes", "late"]
    assert (shop.states(), len(shop.paid())) == (("", 0) if within else ("DD", 2 * with_session))
    shop.engine.dispose()


@on_each_driver
@pytest.mark.parametrize("with_session", [False, True])
@pytest.mark.parametrize("within", [False, True])
@in_a_loop
async def test_coroutines_of_a_test_in_a_loop_go_on_after_their_steps(
    shared_db, driver, xq_session, run_pending_async, with_session, within
):
    engine = engine_in_loop(shared_db, driver)
    shop, seen = await asyncio.to_thread(Shop, shared_db, engine, steps=True), list[Any]()
    pay = worker_of(shop, seen, with_session, is_async=True)
    async with engine.connect() as connection:
        outer = await connection.begin() if within else None
        async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
            with nullcontext(xq_session(session)) if within else clock_of(shop.orders) as clock:
                await shop.orders.aio.put_many([{"cents": 1}, {"cents": 2}])
                assert (await run_pending_async(pay, raises=True), await run_pending_async(pay)) == (2, 0)
                clock.tick(DAY)
                assert await shop.orders.aio.signal(1, "approved", "yes")
                assert (await run_pending_async(pay, raises=True), await run_pending_async(pay)) == (2, 0)
                clock.tick(60)
                assert await run_pending_async(pay, raises=True) == 1
                assert (await shop.orders.aio.stats()).counts["D"] == 2
        if outer:
            await outer.rollback()
    assert seen == ["paid", "paid", "yes", "late"]
    assert await asyncio.to_thread(shop.states) == ("" if within else "DD")
    assert len(await asyncio.to_thread(shop.paid)) == (2 if with_session and not within else 0)
    await engine.dispose()
    shop.engine.dispose()
