"""AsyncEngine: `orders.aio`, and `on=` with the sessions and connections of each asynchronous driver."""

from __future__ import annotations

import asyncio
import datetime
import enum
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import wraps
from typing import Any

import peewee as pw
import pytest

import sqlalchemy as sa
import xq
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from tests.factories import task
from tests.sqlalchemy.in_loop import engine as engine_of
from tests.steps import STUCK, a_second_passes
from xq.adapters.sqlalchemy import upgrade
from xq.adapters.sqlalchemy.asynchronous import engine_beside, parameters_of

on_each_driver = pytest.mark.parametrize(
    ("shared_db", "driver"),
    [
        ("sqlite", "aiosqlite"),
        ("postgres", "asyncpg"),
        ("postgres", "psycopg"),
        ("mariadb", "asyncmy"),
        ("mysql", "asyncmy"),
    ],
    indirect=["shared_db"],
)
FEATURES = {"delayed": True, "buried": True, "keep": True, "ttr": 60}


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Shop:
    """Orders on an AsyncEngine, with columns of many types."""

    def __init__(self, engine: Any, features: Any, fields: Any) -> None:
        class Base(DeclarativeBase):
            pass

        class Order(Base):
            __tablename__ = "orders"
            id: Mapped[int] = mapped_column(primary_key=True)
            name: Mapped[str | None] = mapped_column(sa.String(40))
            cents: Mapped[int] = mapped_column(sa.BigInteger, default=0)
            price: Mapped[Decimal | None] = mapped_column(sa.Numeric(12, 2))
            weight: Mapped[float | None]
            paid: Mapped[bool | None]
            day: Mapped[datetime.date | None]
            at: Mapped[datetime.datetime | None]
            size: Mapped[Size | None] = mapped_column(sa.Enum(Size, native_enum=False))

        self.engine, self.Base, self.Order = engine, Base, Order
        self.orders: Any = upgrade(Order, fields, features, engine=engine)
        self.aio: Any = self.orders.aio

    async def counts(self) -> dict[str, int]:
        found = (await self.aio.stats()).counts
        return {state: n for state, n in found.items() if n}


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def call(*given: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), STUCK))

    return call


@asynccontextmanager
async def shop(
    db: pw.Database, driver: str, features: Any = FEATURES, fields: Any = None, **options: Any
) -> AsyncIterator[Shop]:
    engine = engine_of(db, driver, **options)
    made = Shop(engine, features, fields)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(made.Base.metadata.create_all)
        await made.aio.install()
        yield made
    finally:
        await engine.dispose()


@on_each_driver
@in_a_loop
async def test_a_put_is_part_of_the_session_with_all_features(shared_db, driver):
    features = {**FEATURES, "limit": 2, "lifetime": 1000, "unique": True}
    async with shop(shared_db, driver, features, {"unique": "name"}) as made:
        aio, Order, seen = made.aio, made.Order, []
        made.orders.on_change(lambda order, event, *_: seen.append((order.name, event)))
        async with AsyncSession(made.engine) as session:
            await aio.put(Order(name="back"), on=session)
            await session.rollback()
        assert (await made.counts(), seen) == ({}, [])
        async with AsyncSession(made.engine) as session:
            put = await aio.put(Order(name="a", cents=5), on=session, delay=60)
            assert (put.cents, put.xq_status, put.xq_deadline is None) == (5, "W", False)
            with pytest.raises(xq.Duplicate):
                await aio.put(Order(name="a"), on=session)
            await aio.put_many([{"name": "b"}], on=session)
            with pytest.raises(xq.Full):
                await aio.put(Order(name="c"), on=session)
            assert (await made.counts(), seen) == ({}, [])  # another connection sees nothing yet
            await session.commit()
        assert await made.counts() == {"R": 1, "W": 1}
        assert seen == [("a", "put"), ("b", "put")]


@on_each_driver
@in_a_loop
async def test_an_older_process_goes_on_to_put_in_its_sessions(shared_db, driver):
    async with shop(shared_db, driver, FEATURES) as made:
        await made.aio.put({})
        async with shop(shared_db, driver, {**FEATURES, "events": True}) as newer:
            with pytest.MonkeyPatch.context() as patch:
                a_second_passes(patch)
                async with AsyncSession(made.engine) as session:
                    await made.aio.put(made.Order(name="a"), on=session)
                    session.add(made.Order(name="b", xq_status="R"))
                    await session.commit()
                await made.aio.put_many([{"name": "c"}])
                with pytest.raises(xq.NotInstalled, match="its puts go on"):
                    await made.aio.take()
            assert (await newer.counts(), await newer.aio.check()) == ({"R": 4}, [])


@on_each_driver
@in_a_loop
async def test_a_group_is_part_of_the_session_and_its_then_has_values_of_each_type(shared_db, driver):
    then = {"cents": 2**40, "price": Decimal("12.50"), "weight": 0.1, "paid": True, "name": "it's 5 %s"}
    then |= {"day": datetime.date(2026, 1, 2), "at": datetime.datetime(2026, 1, 2, 3, 4, 5), "size": Size.LARGE}
    async with shop(shared_db, driver, {"groups": True}) as made:
        aio, Order = made.aio, made.Order
        async with AsyncSession(made.engine) as session:
            async with aio.group("import", then=then, on=session) as group:
                await group.put(Order(name="back"))
            await session.rollback()
        assert await made.counts() == {}
        async with AsyncSession(made.engine) as session:
            async with aio.group("import", then=then, on=session) as group:
                await group.put(Order(name="a"))
                await group.put_many([{"name": "b"}])
            await session.commit()
        await aio.ack(await aio.take())
        assert (await aio.group("import").kill(), await aio.group("import").wait(5)) == (1, True)
        (order,) = await aio.by_state("R")
        assert {name: getattr(order, name) for name in then} == then


@on_each_driver
@in_a_loop
async def test_after_its_block_a_group_is_no_part_of_the_session(shared_db, driver):
    async with shop(shared_db, driver, {"groups": True}) as made:
        async with AsyncSession(made.engine) as session:
            async with made.aio.group("import", on=session) as group:
                await group.put({"name": "a"})
            await session.commit()
        await group.put({"name": "b"})
        assert ((await group.stats())["total"], await group.done()) == (2, False)
        assert (await group.kill(), await group.wait(5)) == (2, True)
        assert getattr(made.engine.pool, "checkedout", int)() == 0
        async with AsyncSession(made.engine) as session:
            with pytest.raises(xq.InTransaction):
                await made.aio.group("import", on=session).wait(5)


@on_each_driver
@in_a_loop
async def test_each_coroutine_has_its_own_actor_in_its_session(shared_db, driver):
    async with shop(shared_db, driver, {"history": True}) as made:

        async def act(name: str) -> None:
            async with AsyncSession(made.engine) as session:
                with made.orders.acting(name):
                    await asyncio.sleep(0)
                    await made.aio.put({"name": name}, on=session)
                    await session.commit()

        for names in [("ann",), ("ben",), ("cy",)] if driver == "aiosqlite" else [("ann", "ben", "cy")]:
            await asyncio.gather(*map(act, names))
        assert {row.actor for row in await made.aio.history()} == {"ann", "ben", "cy"}


@on_each_driver
@in_a_loop
async def test_moves_are_part_of_a_connection_s_transaction(shared_db, driver):
    async with shop(shared_db, driver) as made:
        aio = made.aio
        await aio.put_many([{"name": str(n)} for n in range(6)])
        async with made.engine.connect() as connection:
            assert (await aio.take(on=connection)).xq_status == "T"
            await connection.rollback()
        assert await made.counts() == {"R": 6}
        async with made.engine.begin() as connection:
            taken = await aio.take_many(5, on=connection)
            assert (await aio.ack(taken[0], update={"cents": 2**40}, on=connection)).cents == 2**40
            assert (await aio.release(taken[1], delay=60, on=connection)).xq_status == "W"
            assert (await aio.bury(taken[2], on=connection)).xq_status == "B"
            assert (await aio.touch(taken[3], 10, on=connection)).id == taken[3].id
            await aio.kill(taken[4], on=connection)
            assert (await aio.dig(taken[2].id, on=connection)).xq_status == "R"
            with pytest.raises(xq.WrongState):
                await aio.ack(taken[0], on=connection)
            with pytest.raises(xq.NotFound):
                await aio.kill(12345, on=connection)
        assert await made.counts() == {"R": 2, "W": 1, "T": 1, "D": 1}
        async with made.engine.connect() as connection:
            assert len(await aio.ack_many([taken[3]], on=connection)) == 1
            await connection.rollback()
        assert await aio.check() == []
        assert await made.counts() == {"R": 2, "W": 1, "T": 1, "D": 1}


@on_each_driver
@in_a_loop
async def test_values_are_those_that_the_session_reads(shared_db, driver):
    values: dict[str, Any] = {
        "name": "100 %s, 5 %",
        "cents": -(2**33),
        "price": Decimal("12.50"),
        "weight": 2.0,
        "paid": True,
        "day": datetime.date(2024, 2, 29),
        "at": datetime.datetime(2024, 2, 29, 12, 30),
        "size": Size.LARGE,
    }
    async with shop(shared_db, driver) as made, AsyncSession(made.engine) as session:
        put = await made.aio.put(made.Order(**values), on=session)
        assert {name: getattr(put, name) for name in values} == values
        session.expunge_all()
        found = await session.get(made.Order, put.id)
        assert {name: getattr(found, name) for name in values} == values
        if driver != "aiosqlite":  # which stores it as it is
            with pytest.raises(xq.BadValue):
                await made.aio.put({"cents": "many"}, on=session)


@on_each_driver
@in_a_loop
async def test_a_waiter_wakes_after_the_commit(shared_db, driver):
    async with shop(shared_db, driver) as made:
        waiter = asyncio.create_task(made.aio.take(STUCK))
        while not await made.aio.waiting():
            await asyncio.sleep(0.01)
        async with AsyncSession(made.engine, expire_on_commit=False) as session:
            put = await made.aio.put({"name": "x"}, on=session)
            await asyncio.sleep(0.05)
            assert not waiter.done()
            await session.commit()
        assert (await waiter).id == put.id
        assert [uuid for uuid, _ in await made.aio.sessions()] == [made.orders.current_session().uuid]


@on_each_driver
@in_a_loop
async def test_many_coroutines_have_their_own_transactions(shared_db, driver):
    async with shop(shared_db, driver) as made:
        is_file, done = driver == "aiosqlite", asyncio.Semaphore(1)

        async def work(n: int) -> None:
            for _ in range(3):
                async with AsyncSession(made.engine) as session:
                    if is_file:  # one writer at a time
                        await done.acquire()
                    try:
                        await made.aio.put({"cents": n}, on=session)
                        taken = await made.aio.take(on=session)
                        await made.aio.ack(taken, on=session)
                        await (session.commit() if n % 2 else session.rollback())
                    finally:
                        if is_file:
                            done.release()

        await asyncio.gather(*map(work, range(6)))
        assert await made.counts() == {"D": 9}


@on_each_driver
@in_a_loop
async def test_a_cancelled_call_leaves_nothing_of_it_to_commit(shared_db, driver):
    async with shop(shared_db, driver, {**FEATURES, "limit": 100}) as made:
        await made.aio.put({"cents": 1})
        kept = 1
        for step in range(12):
            async with AsyncSession(made.engine) as session:
                await session.execute(sa.text("SELECT 1"))
                call = asyncio.create_task(made.aio.put({"cents": 2}, on=session))
                for _ in range(step):
                    await asyncio.sleep(0)
                call.cancel()
                try:
                    await call
                    kept += 1
                except asyncio.CancelledError:
                    if session.is_active and step:
                        with pytest.raises(sa.exc.PendingRollbackError):
                            await session.commit()
                    await session.rollback()
                else:
                    await session.commit()
        assert (await made.counts())["R"] == kept
        assert await made.aio.check() == []


@on_each_driver
@in_a_loop
async def test_calls_without_on_need_no_more_connections_than_xq_s_own_pool(shared_db, driver):
    async with shop(shared_db, driver, pool_size=1, max_overflow=0) as made:
        async with AsyncSession(made.engine) as session:
            await session.execute(sa.text("SELECT 1"))  # the only connection of the application's pool
            await asyncio.gather(*(made.aio.put({"cents": n}) for n in range(20)))
            async with made.aio.atomic():
                await made.aio.put({"cents": 20})
        assert made.orders.put({"cents": 21}).cents == 21  # without a loop's help
        assert await made.counts() == {"R": 22}


@on_each_driver
@in_a_loop
async def test_a_wait_within_the_session_s_transaction_is_refused(shared_db, driver):
    async with shop(shared_db, driver) as made, AsyncSession(made.engine) as session:
        await made.aio.put({"cents": 1}, on=session)
        for call in (made.aio.take(5, on=session), made.aio.put({"cents": 1}, wait=5, on=session)):
            with pytest.raises(xq.InTransaction):
                await call


@on_each_driver
@in_a_loop
async def test_a_session_in_autocommit_mode_is_refused(shared_db, driver):
    async with shop(shared_db, driver, isolation_level="AUTOCOMMIT") as made, AsyncSession(made.engine) as session:
        with pytest.raises(xq.ConfigurationError, match="AUTOCOMMIT"):
            await made.aio.put({"cents": 1}, on=session)
        assert await made.counts() == {}


@pytest.mark.parametrize("shared_db", ["postgres"], indirect=True)
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@in_a_loop
async def test_a_connection_that_the_server_has_closed_leaves_the_pool(shared_db, driver):
    async with shop(shared_db, driver) as made, AsyncSession(made.engine) as session:
        own = await session.scalar(sa.text("SELECT pg_backend_pid()"))
        async with made.engine.connect() as other:
            await other.execute(sa.text(f"SELECT pg_terminate_backend({own})"))
        with pytest.raises(sa.exc.DBAPIError):
            await made.aio.put({"cents": 1}, on=session)
        await session.rollback()
        await made.aio.put({"cents": 1}, on=session)
        await session.commit()
        assert await made.counts() == {"R": 1}


@on_each_driver
@in_a_loop
async def test_a_session_is_for_its_own_kind_of_call_and_for_its_own_database(shared_db, driver, tmp_path):
    async with shop(shared_db, driver) as made, AsyncSession(made.engine) as session:
        with pytest.raises(xq.BadType, match="await orders.aio.put"):
            made.orders.put({"cents": 1}, on=session)
        with pytest.raises(xq.BadType, match="without aio"):
            await made.aio.put({"cents": 1}, on=Session())
        for call in (made.aio.dig(1, on=Session()), made.aio.put_many([], on=3)):
            with pytest.raises(xq.BadType, match="AsyncSession"):
                await call
        other = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/other.db")
        async with other.connect() as connection:
            with pytest.raises(xq.ConfigurationError, match="and on= is on"):
                await made.aio.put({"cents": 1}, on=connection)
        await other.dispose()
        assert await made.counts() == {}


@in_a_loop
async def test_a_session_of_another_driver_on_the_same_database_joins(shared_db):
    driver = {"SqliteDatabase": "aiosqlite", "PostgresqlDatabase": "asyncpg", "MySQLDatabase": "asyncmy"}
    name = driver[type(shared_db).__name__]
    async with shop(shared_db, name) as made:
        made.orders.parts.store.bind(made.orders.parts.store.known_engine)  # an Engine of the application's
        async with AsyncSession(made.engine) as session:
            await made.aio.put({"cents": 1}, on=session)
            await session.commit()
        assert await made.counts() == {"R": 1}


@in_a_loop
async def test_peewee_s_aio_takes_no_connection_of_a_driver(make_shared):
    Task = make_shared()
    with pytest.raises(xq.BadType, match="without aio"):
        await Task.xq.aio.put(task(), on=object())


# the engine beside


def beside(url: str, **options: Any) -> dict[str, Any]:
    """What the driver of the engine beside is given."""
    store = Shop(create_async_engine(url, **options), FEATURES, None).orders.parts.store
    address = store.address()
    return {**address.parameters, **address.secrets, "password": address.password}


def test_parameters_of_asyncpg_are_translated():
    arguments = {"timeout": 2.5, "command_timeout": 5, "server_settings": {"search_path": "a b", "jit": "off"}}
    assert beside("postgresql+asyncpg://me:secret@here:5433/shop?ssl=verify-full", connect_args=arguments) == {
        "host": "here",
        "port": 5433,
        "user": "me",
        "password": "secret",
        "dbname": "shop",
        "sslmode": "verify-full",
        "connect_timeout": 3,
        "options": r"-c search_path=a\ b -c jit=off",
    }
    url, options = "postgresql+asyncpg:///shop?host=a:1&host=b:2", {"statement_cache_size": 0}
    several = create_async_engine(url, connect_args=options)
    _, found = parameters_of(engine_beside(several))
    assert (found["host"], found["port"], found["prepare_threshold"]) == ("a,b", "1,2", None)
    assert beside("postgresql+asyncpg://here/shop", connect_args={"ssl": False})["sslmode"] == "disable"
    found = beside("mysql+asyncmy://here/shop?charset=utf8mb4", connect_args={"echo": True, "connect_timeout": 3})
    assert (found["charset"], found["connect_timeout"], "echo" in found) == ("utf8mb4", 3, False)


def test_a_listener_of_do_connect_gives_the_parameters_of_the_engine_beside_as_well():
    engine = create_async_engine("postgresql+asyncpg://me@here/shop")
    sa.event.listen(engine.sync_engine, "do_connect", lambda *given: given[-1].update(password="of now"))
    store = Shop(engine, FEATURES, None).orders.parts.store
    assert store.address().password == "of now"


def test_what_an_aiosqlite_engine_sets_when_it_connects_holds_beside_it_too(tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
    store = Shop(engine, FEATURES, None).orders.parts.store

    @sa.event.listens_for(engine.sync_engine, "connect")
    def connected(raw: Any, _: Any) -> None:
        raw.cursor().execute("PRAGMA foreign_keys = 1")

    assert store.execute("PRAGMA foreign_keys") == [(1,)]


APART = ("CREATE SCHEMA IF NOT EXISTS apart", "SET search_path TO apart")
SET = {"asyncpg": APART, "psycopg": APART, "asyncmy": ("SET max_sort_length = 77",)}


@pytest.mark.parametrize(
    ("shared_db", "driver"),
    [("postgres", "asyncpg"), ("postgres", "psycopg"), ("mariadb", "asyncmy"), ("mysql", "asyncmy")],
    indirect=["shared_db"],
)
@pytest.mark.parametrize("commits", [False, True])
@in_a_loop
async def test_what_an_engine_sets_when_it_connects_holds_on_xq_s_own_connections(shared_db, driver, commits):
    engine = engine_of(shared_db, driver)

    @sa.event.listens_for(engine.sync_engine, "connect")
    def connected(raw: Any, _: Any) -> None:
        cursor = raw.cursor()
        for sql in SET[driver]:
            cursor.execute(sql)
        cursor.close()
        if commits:
            raw.commit()

    made = Shop(engine, FEATURES, None)
    async with engine.begin() as connection:
        await connection.run_sync(made.Base.metadata.create_all)
    await made.aio.install()
    await made.aio.put({})
    taken = await made.aio.take()
    assert (await made.aio.ack(taken)).xq_status == "D"
    sql = "SHOW search_path" if driver != "asyncmy" else "SELECT @@max_sort_length"
    assert made.orders.parts.store.execute(sql) == [("apart" if driver != "asyncmy" else 77,)]
    assert made.orders.check() == []
    await engine.dispose()


@on_each_driver
@in_a_loop
async def test_what_an_engine_does_by_its_driver_alone_when_it_connects_is_refused(shared_db, driver):
    engine = engine_of(shared_db, driver)

    @sa.event.listens_for(engine.sync_engine, "connect")
    def register(raw: Any, _: Any) -> None:
        raw.run_async(lambda own: asyncio.sleep(0))

    made = Shop(engine, FEATURES, None)
    with pytest.raises(xq.ConfigurationError, match=r"register, which the AsyncEngine calls.*give upgrade\(\)"):
        await made.aio.put({})
    await engine.dispose()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("sqlite+aiosqlite://", {}, "in memory"),
        ("postgresql+asyncpg://here/shop", {"async_creator": lambda: None}, "a function of yours"),
        (
            "postgresql+asyncpg://here/shop",
            {"connect_args": {"ssl": ssl.create_default_context()}},
            "ssl <ssl",
        ),
        (
            "postgresql+asyncpg://here/shop",
            {"connect_args": {"password": lambda: "made"}},
            "a password that",
        ),
        ("postgresql+asyncpg://here/shop?gsslib=sspi", {}, "gsslib, which xq cannot say to psycopg"),
    ],
)
def test_an_engine_of_which_xq_can_make_none_beside_is_refused(url, options, words):
    with pytest.raises(xq.ConfigurationError, match=words):
        beside(url, **options)
