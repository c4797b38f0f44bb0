"""An AsyncEngine: the engine that xq derives from it, and the drivers of its sessions' connections."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from inspect import signature
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncEngine

from xq.core.connections import Driver
from xq.core.errors import ConfigurationError, shown
from xq.core.kinds import ErrorKind, Row
from xq.drivers import DRIVERS
from xq.drivers.base import BaseDriver
from xq.drivers.postgres import OLDEST, Psycopg
from xq.drivers.pymysql import COLLECTIONS, Pymysql
from xq.drivers.sqlite import Sqlite3
from xq.drivers.stores import in_memory

SAME = ("host", "port", "user", "password", "passfile", "target_session_attrs", "krbsrvname")
PSYCOPG: Mapping[str, str] = {"database": "dbname", **{name: name for name in SAME}}  # by asyncpg's names
OF_ASYNCPG = frozenset({"direct_tls", "gsslib", "service", "servicefile"})  # how it connects, in its own way
POOL: Mapping[str, Any] = {"pool_size": 4, "max_overflow": 9}  # callers' threads; their blocks, and maintenance
OF_DIALECTS = ("sqlalchemy.engine.", "sqlalchemy.util.")  # modules of listeners that an engine itself brings
INSTEAD = "give upgrade() an Engine of the same database beside: calls with on= join the sessions of this one as well"


# the parameters that an engine connects by

_asks: ContextVar[bool] = ContextVar("xq_asks", default=False)


class _Told(Exception):
    """What `parameters_of` asks for."""


def _tell(dialect: sa.Dialect, record: object, arguments: list[Any], parameters: dict[str, Any]) -> None:
    if _asks.get():
        raise _Told(arguments, parameters)


def listen(engine: sa.Engine) -> None:
    """Have `parameters_of` know an engine."""
    if not vars(engine.dialect).get("_xq_tells"):
        vars(engine.dialect)["_xq_tells"] = True
        sa.event.listen(engine, "do_connect", _tell)


def parameters_of(engine: sa.Engine) -> tuple[list[Any], dict[str, Any]]:
    """Return what an engine gives to its driver's connect(): by its URL, connect_args and listeners of do_connect.

    Raises ConfigurationError if a function of the application's makes its connections.
    """
    token = _asks.set(True)
    try:
        engine.pool.recreate().connect().close()
    except _Told as told:
        arguments, parameters = told.args
        return arguments, parameters
    except exc.MissingGreenlet:
        pass
    finally:
        _asks.reset(token)
    raise ConfigurationError(
        f"a function of yours makes the engine's connections, of which xq knows nothing: {INSTEAD}"
    )


# the engine that calls without on= use


def engine_beside(engine: AsyncEngine) -> sa.Engine:
    """Return the engine of the same database that xq's own threads use: one for each AsyncEngine."""
    given, kept = engine.sync_engine, vars(engine.dialect)
    made: sa.Engine | None = kept.get("_xq_beside")
    if made is not None:
        return made
    url, name = given.url, given.dialect.driver
    if name not in ASYNCHRONOUS:
        raise ConfigurationError(f"xq knows the asynchronous drivers {', '.join(ASYNCHRONOUS)}, not {name}: {INSTEAD}")
    if name == "aiosqlite" and in_memory(url.database or ""):
        raise ConfigurationError("the AsyncEngine is in memory, where no other connection reaches it: take a file")
    _, driver, translated = ASYNCHRONOUS[name]
    pool = {"poolclass": sa.NullPool} if isinstance(given.pool, sa.NullPool) else POOL
    made = sa.create_engine(url.set(drivername=f"{url.get_backend_name()}+{driver}", query={}), **pool)

    def connecting(dialect: sa.Dialect, record: object, *before: Any) -> Any:
        arguments, parameters = parameters_of(given)
        parameters = translated(parameters)
        _tell(dialect, record, arguments, parameters)
        connect, server = partial(dialect.connect, *arguments), SYNCHRONOUS[driver]
        return server.reach(connect, parameters) if isinstance(server, BaseDriver) else connect(**parameters)

    def connected(raw: Any, record: object) -> None:  # the application's SET search_path, say, or PRAGMA
        mode = SYNCHRONOUS[driver].autocommit(raw, True)
        for listener in given.pool.dispatch.connect:
            try:
                if not listener.__module__.startswith(OF_DIALECTS):
                    listener(raw, record)
            except (AttributeError, TypeError) as error:
                raw.close()
                raise ConfigurationError(
                    f"{getattr(listener, '__qualname__', listener)}, which the AsyncEngine calls when it connects, "
                    f"fails on xq's own connections, which are of {driver} ({error}): {INSTEAD}"
                ) from error
        SYNCHRONOUS[driver].autocommit(raw, mode)

    def disposed(engine: sa.Engine) -> None:  # a forked child must not end what it has inherited
        made.dispose(close=os.getpid() == process)

    process = os.getpid()
    listen(given)
    sa.event.listen(made, "do_connect", connecting)
    sa.event.listen(made, "connect", connected)
    parameters_of(made)  # raises if it cannot connect so
    sa.event.listen(given, "engine_disposed", disposed)
    kept["_xq_beside"], vars(made.dialect)["_xq_given"] = made, given
    return made


def _of_psycopg(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of asyncpg as those of psycopg. Raises ConfigurationError for what that does not take."""
    ssl, refused = given.get("ssl"), [*OF_ASYNCPG & given.keys()]
    if callable(given.get("password")):
        refused.append("a password that is a function")
    if not (ssl is None or ssl is False or isinstance(ssl, str)):
        refused.append(f"ssl {shown(ssl)}")
    if refused:
        raise ConfigurationError(
            f"the AsyncEngine connects with {', '.join(refused)}, which xq cannot say to psycopg: {INSTEAD}"
        )
    made = {PSYCOPG[name]: value for name, value in given.items() if name in PSYCOPG}
    made |= {name: ",".join(map(str, value)) for name, value in made.items() if isinstance(value, (list, tuple))}
    if "timeout" in given:
        made["connect_timeout"] = math.ceil(float(given["timeout"]))
    if 0 in (given.get("statement_cache_size"), given.get("prepared_statement_cache_size")):  # as behind PgBouncer
        made["prepare_threshold"] = None
    if ssl is not None:
        made["sslmode"] = ssl or "disable"
    if settings := given.get("server_settings"):
        texts = {name: str(value).replace("\\", "\\\\").replace(" ", "\\ ") for name, value in settings.items()}
        made["options"] = " ".join(f"-c {name}={text}" for name, text in texts.items())
    return made


def _of_pymysql(given: Mapping[str, Any]) -> dict[str, Any]:
    import pymysql

    known, names = signature(pymysql.connect).parameters, {"db": "database", "passwd": "password"}
    return {names.get(name, name): value for name, value in given.items() if name in known}


def _alike(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a driver that is the synchronous one, too, without what only the other one knows."""
    other = {"async_creator_fn", "cursor_factory", "row_factory", "iter_chunk_size", "loop"}
    return {name: value for name, value in given.items() if name not in other}


# the drivers of connections that SQLAlchemy has adapted: their calls await in the greenlet of the session


class _Adapted:
    """A driver's methods for adapted connections; what they only look at is in the driver's own."""

    def check(self, connection: Any, advice: str = "") -> str:
        found: str = super().check(connection.driver_connection, advice)  # type: ignore[misc]
        return found

    def in_transaction(self, connection: Any) -> bool:
        return bool(super().in_transaction(connection.driver_connection))  # type: ignore[misc]

    def is_broken(self, connection: Any) -> bool:
        return bool(super().is_broken(connection.driver_connection))  # type: ignore[misc]

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        cursor.execute(sql, values or None)

    def rows(self, cursor: Any) -> list[Row]:
        found: list[Row] = cursor.fetchall()
        cursor.close()  # reads what follows
        return found


class Aiosqlite(_Adapted, Sqlite3):
    """sqlite3 in a thread of aiosqlite."""

    def transaction(self, connection: Any) -> bool | None:
        try:
            return bool(connection.in_transaction)
        except (ValueError, sqlite3.ProgrammingError):  # it was closed
            return None


class AsyncPsycopg(_Adapted, Psycopg):
    """psycopg's AsyncConnection."""


class Asyncmy(_Adapted, Pymysql):
    """asyncmy."""

    def in_transaction(self, connection: Any) -> bool:
        return not self.is_broken(connection) and bool(connection.driver_connection.get_transaction_status())

    def is_broken(self, connection: Any) -> bool:
        return not connection.driver_connection.connected

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        if not COLLECTIONS.isdisjoint(map(type, values)):  # it would expand it into several SQL values
            raise TypeError("a collection is no value")
        super().execute(cursor, sql, values)  # asyncmy allows several statements
        while cursor.description is None and cursor._cursor._result.has_next:
            cursor.nextset()

    def inserted(self, cursor: Any) -> tuple[int, int]:
        return super().inserted(cursor._cursor)


class Asyncpg(_Adapted, Psycopg):
    """asyncpg, given values of the types that psycopg would say."""

    def check(self, connection: Any, advice: str = "") -> str:
        version = connection.driver_connection.get_server_version()
        if version[0] * 10_000 < OLDEST:
            raise ConfigurationError(f"xq needs PostgreSQL {OLDEST // 10_000} or later, this is {version[0]}")
        return "postgres"

    def in_transaction(self, connection: Any) -> bool:
        return bool(connection.driver_connection.is_in_transaction())

    def is_broken(self, connection: Any) -> bool:
        return bool(connection.driver_connection.is_closed())

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        cursor.execute(_numbered(sql, tuple(map(_type, values))) if values else sql, tuple(values))

    def rows(self, cursor: Any) -> list[Row]:
        return list(map(tuple, super().rows(cursor)))

    def classify(self, error: BaseException) -> ErrorKind:
        kind, state = super().classify(error), getattr(error, "sqlstate", None)
        if "invalid input for query argument" in str(error):  # it does not fit the type of its place
            return ErrorKind.BAD_VALUE
        if kind is ErrorKind.NOT_DATABASE and state:
            return ErrorKind.TRANSIENT if state.startswith(TRANSIENT) else ErrorKind.PERMANENT
        return kind

    def _told(self, error: BaseException) -> tuple[str | None, str | None]:
        cause: Any = error.__cause__
        return getattr(cause, "context", None), getattr(cause, "server_source_function", None)


TRANSIENT = ("08", "26", "28", "34", "40", "53", "54", "55", "57", "58", "F0")  # classes of sqlstates
TYPES: Mapping[type, str] = {bool: "bool", float: "float8", Decimal: "numeric", UUID: "uuid", bytes: "bytea"}
TIMES: Mapping[type, str] = {date: "date", time: "time", timedelta: "interval"}


def _type(value: Any) -> str:
    """Return the type by which psycopg sends a value; "" if the server finds it out."""
    kind = type(value)
    if kind is str or value is None:
        return ""
    if isinstance(value, int) and kind is not bool:
        size = value.bit_length()
        return "int4" if size < 32 else "int8" if size < 64 else "numeric"
    if isinstance(value, datetime):
        return "timestamptz" if value.tzinfo else "timestamp"
    return next((name for each, name in {**TYPES, **TIMES}.items() if isinstance(value, each)), "")


@lru_cache(2000)
def _numbered(sql: str, types: tuple[str, ...]) -> str:
    """Return SQL with %s as $1::type."""
    first, *others = sql.split("%s")
    placed = (f"${n}{kind and '::'}{kind}{text}" for n, (kind, text) in enumerate(zip(types, others, strict=True), 1))
    return (first + "".join(placed)).replace("%%", "%")


# By SQLAlchemy's name: the driver, that of the engine beside, and how this takes its parameters.
ASYNCHRONOUS: Mapping[str, tuple[Driver, str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "aiosqlite": (Aiosqlite(), "pysqlite", _alike),
    "psycopg": (AsyncPsycopg(), "psycopg", _alike),
    "asyncpg": (Asyncpg(), "psycopg", _of_psycopg),
    "asyncmy": (Asyncmy(), "pymysql", _of_pymysql),
}
SYNCHRONOUS: Mapping[str, Driver] = {
    "pysqlite": DRIVERS["sqlite"],
    "psycopg": DRIVERS["postgres"],
    "pymysql": DRIVERS["innodb"],
}


def driver_of(dialect: sa.Dialect) -> Driver:
    """Return the driver for the connections of the caller's transactions. Raises ConfigurationError."""
    known = {name: driver for name, (driver, *_) in ASYNCHRONOUS.items()} if dialect.is_async else SYNCHRONOUS
    if dialect.driver not in known:
        raise ConfigurationError(
            f"on= takes no {'AsyncSession' if dialect.is_async else 'Session'} of the driver {dialect.driver}, "
            f"only of {', '.join(known)}"
        )
    return known[dialect.driver]
