"""A coroutine in an AsyncSession of its own: what it writes and the end of its task are one transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import peewee as pw
import pytest

import sqlalchemy as sa
import xq
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import async_scoped_session
from tests.sqlalchemy.in_loop import engine
from tests.sqlalchemy.shop import Shop
from tests.steps import conflict
from xq.adapters.sqlalchemy import upgrade

DRIVERS = {pw.SqliteDatabase: "aiosqlite", pw.PostgresqlDatabase: "asyncpg", pw.MySQLDatabase: "asyncmy"}


@pytest.fixture
def shop(shared_db):
    asynchronous = engine(shared_db, DRIVERS[type(shared_db)], poolclass=sa.NullPool)
    made = Shop(shared_db, asynchronous)
    yield made
    made.engine.dispose()


async def nothing(order: Any, session: Any) -> None: ...


def pays(shop: Any, then: Any = nothing, n: int = 1, **options: Any) -> Any:
    """A worker that pays orders, and then does what the test says."""

    @shop.orders.worker(session=shop.Session, **{"max_attempts": 1, **options})
    async def pay(order: Any, session: Any) -> None:
        assert order in session
        session.add(shop.Payment(order_id=order.id))
        order.cents += 5
        await session.flush()
        await then(order, session)

    shop.orders.put_many([{"cents": 1}] * n)
    return pay


def runs(shop: Any) -> str:
    asyncio.run(shop.orders.aio.run(until_empty=True))
    return str(shop.states())


def test_what_the_coroutines_write_is_there_with_the_end_of_their_tasks(shop):
    pays(shop, n=5, workers=3)
    assert (runs(shop), shop.paid(), shop.orders.peek(1).cents) == ("DDDDD", [1, 2, 3, 4, 5], 6)


def test_a_coroutine_finds_the_expressions_of_its_class_loaded(shop):
    class Base(orm.DeclarativeBase):
        pass

    class Gift(Base):
        __tablename__ = "gifts"
        id = sa.Column(sa.Integer, primary_key=True)
        cents = sa.Column(sa.Integer)
        double = orm.column_property(cents * 2)

    gifts, seen = upgrade(Gift, features={"keep": True}, engine=shop.Session.kw["bind"]), list[int]()
    Gift.metadata.create_all(shop.engine)
    gifts.install()

    @gifts.worker(session=shop.Session)
    async def see(gift: Any, session: Any) -> None:
        seen.append(gift.double)

    gifts.put({"cents": 3})
    asyncio.run(gifts.aio.run(until_empty=True))
    assert seen == [6]


def test_a_scoped_session_has_one_session_for_each_attempt(shop):
    sessions = async_scoped_session(shop.Session, asyncio.current_task)
    seen = set[Any]()

    @shop.orders.worker(session=sessions, workers=3, max_attempts=1)
    async def pay(order: Any, session: Any) -> None:
        seen.add(session)
        assert sessions() is session
        sessions.add(shop.Payment(order_id=order.id))
        if order.id == 2:
            raise ValueError("no money")

    shop.orders.put_many([{}] * 5)
    assert (runs(shop), shop.paid(), len(seen)) == ("DBDDD", [1, 3, 4, 5], 5)
    assert not sessions.registry.registry


def test_an_error_rolls_all_back(shop):
    async def fail(order: Any, session: Any) -> None:
        if order.id == 1:
            raise ValueError("no money")

    pays(shop, fail, n=2)
    assert (runs(shop), shop.paid()) == ("BD", [2])


@pytest.mark.parametrize("shared_db", ["postgres", "mariadb", "mysql"], indirect=True)
def test_a_conflict_with_another_transaction_is_no_attempt(shop, shared_db):
    tried = list[int]()

    async def meet(order: Any, session: Any) -> None:
        tried.append(order.tries)
        if len(tried) < 3:
            await session.run_sync(lambda own: conflict(shared_db, lambda sql: own.execute(sa.text(sql))))

    pays(shop, meet)
    assert (runs(shop), shop.paid(), tried) == ("D", [1], [1, 1, 1])


def test_a_function_that_runs_too_long_is_rolled_back_and_never_acked(shop):
    async def wait(order: Any, session: Any) -> None:
        await asyncio.sleep(60)

    pays(shop, wait, timeout=0.2)
    assert (runs(shop), shop.paid()) == ("B", [])
    assert shop.why().startswith("TimeoutError")


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_the_function_cannot_end_the_transaction(shop, end):
    async def ends(order: Any, session: Any) -> None:
        await getattr(session, end)()

    pays(shop, ends)
    assert (runs(shop), shop.paid()) == ("B", [])
    assert f"calls {end}() of its session" in shop.why()


def test_a_status_that_is_not_loaded_is_not_the_functions_to_write_either(shop):
    async def write(order: Any, session: Any) -> None:
        session.expire(order)
        order.xq_status = "D"

    pays(shop, write)
    assert (runs(shop), shop.paid()) == ("B", [])
    assert "'xq_status' is the queue's status, which only the queue writes" in shop.why()


def test_the_function_may_finish_the_task_in_its_session(shop):
    async def release(order: Any, session: Any) -> None:
        await shop.orders.aio.release(order, delay=60, on=session)

    pays(shop, release)
    assert (runs(shop), shop.paid()) == ("W", [1])


def test_a_next_stage_commits_this_one(shop):
    async def go_on(order: Any, session: Any) -> None:
        raise xq.Next("mail", delay=60)

    pays(shop, go_on)
    assert (runs(shop), shop.paid(), shop.orders.peek(1).stage) == ("W", [1], "mail")


def test_a_batch_is_in_one_session(shop):
    @shop.orders.worker(session=shop.Session, batch=10, max_attempts=1)
    async def pay(batch: Any, session: Any) -> None:
        session.add_all([shop.Payment(order_id=order.id) for order in batch])
        batch.fail(batch[1], "no money")

    shop.orders.put_many([{}, {}, {}])
    assert (runs(shop), shop.paid()) == ("DBD", [1, 2, 3])


def test_a_call_after_the_commit_is_awaited_then_and_may_fail(shop, caplog):
    seen = list[Any]()

    async def tell(key: int) -> None:
        await asyncio.sleep(0)
        seen.append((key, shop.states(), shop.paid()))

    async def after(order: Any, session: Any) -> None:
        xq.after_commit(tell, order.id)
        xq.after_commit(lambda: 1 / 0)

    pays(shop, after)
    assert (runs(shop), seen) == ("D", [(1, "D", [1])])
    assert "a call of xq.after_commit() has failed" in caplog.text


def test_a_call_after_the_commit_that_is_too_late_leaves_the_task_done(shop, caplog):
    async def after(order: Any, session: Any) -> None:
        xq.after_commit(asyncio.sleep, 60)

    pays(shop, after, timeout=0.5)
    assert (runs(shop), shop.paid()) == ("D", [1])


@pytest.mark.parametrize("call", ["ack", "release", "ack_many"])
def test_a_call_that_would_wait_for_the_functions_own_session_is_refused(shop, call):
    async def beside(order: Any, session: Any) -> None:
        await getattr(shop.orders.aio, call)([order] if call == "ack_many" else order)

    pays(shop, beside)
    assert (runs(shop), shop.paid()) == ("B", [])
    assert f"{call}(order, on=session)" in shop.why()


def test_a_forgotten_commit_fails_the_attempt_of_its_coroutine_alone(shop):
    @shop.orders.worker(max_attempts=1, workers=1 if shop.is_file else 3)
    async def pay(order: Any) -> None:
        async with shop.Session() as session:
            session.add(shop.Payment(order_id=order.id))
            await session.flush()
            if order.id != 2:
                await session.commit()

    shop.orders.put_many([{}, {}, {}])
    assert (runs(shop), shop.paid()) == ("DBD", [1, 3])
    assert "what it wrote on the engine of Order was rolled back" in shop.why()


def test_a_session_that_is_left_open_fails_the_attempt_and_is_rolled_back(shop):
    left = list[Any]()

    @shop.orders.worker(max_attempts=1)
    async def leave(order: Any) -> None:
        left.append(session := shop.Session())
        await session.execute(sa.update(shop.Order).values(cents=1))

    shop.orders.put({})
    assert runs(shop) == "B"
    assert "LeftOpen" in shop.why()
