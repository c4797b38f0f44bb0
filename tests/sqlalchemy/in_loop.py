"""Runs tests of the queue's methods on `aio`: each call is a transaction of an AsyncConnection, given as `on=`.

`pytest --orm=sqlalchemy --aio=asyncpg`: the methods that change tasks, called outside of a transaction and of a loop,
run as coroutines in a loop of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import peewee as pw

import sqlalchemy as sa
import xq
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from tests.sqlalchemy.maker import with_pragmas

# driver -> the database that it is for
ASYNCHRONOUS: Mapping[str, type[pw.Database]] = {
    "aiosqlite": pw.SqliteDatabase,
    "asyncpg": pw.PostgresqlDatabase,
    "psycopg": pw.PostgresqlDatabase,
    "asyncmy": pw.MySQLDatabase,
}
SCHEMES = {pw.SqliteDatabase: "sqlite", pw.PostgresqlDatabase: "postgresql", pw.MySQLDatabase: "mysql"}
JOINING = ("put", "put_many", "take", "take_many", "ack", "release", "bury", "touch", "ack_many", "release_many")
MORE = ("bury_many", "touch_many", "dig", "kill", "kill_many", "cancel", "snatch", "restart", "switch", "release_all")


def engine(db: Any, driver: str, **options: Any) -> AsyncEngine:
    """Return an AsyncEngine of Peewee's database."""
    scheme = SCHEMES[ASYNCHRONOUS[driver]]
    if scheme == "sqlite":
        url = sa.URL.create("sqlite+aiosqlite", database=str(db.database))
        made = create_async_engine(url, connect_args={"timeout": 20}, **options)
        with_pragmas(made.sync_engine, db._pragmas)
        return made
    given = {name: db.connect_params.get(name) for name in ("host", "port", "password")}
    user = db.connect_params.get("user")
    return create_async_engine(
        sa.URL.create(f"{scheme}+{driver}", username=user, database=db.database, **given), **options
    )


def have_calls_join(driver: str) -> str:
    """Have the queue's methods run in loops from now on. Return the database that the driver is for."""
    for name in (*JOINING, *MORE):
        setattr(xq.Queue, name, _in_a_loop(name, getattr(xq.Queue, name), driver))
    return SCHEMES[ASYNCHRONOUS[driver]].replace("postgresql", "postgres")


def _in_a_loop(name: str, method: Callable[..., Any], driver: str) -> Callable[..., Any]:
    @wraps(method)
    def call(queue: Any, *args: Any, **options: Any) -> Any:
        store = queue.parts.store
        waits = options.keys() & {"on", "wait", "timeout"} or (name in ("take", "take_many") and len(args) > 1)
        if waits or not hasattr(store, "peewee") or _is_running() or store.in_transaction():
            return method(queue, *args, **options)
        given = engine(store.peewee._meta.database, driver, poolclass=sa.NullPool)

        async def joined() -> Any:
            async with given.connect() as on:
                found = await getattr(queue.aio, name)(*args, **options, on=on)
                await on.commit()
            return found

        return asyncio.run(joined())

    return call


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
