"""An engine's connections: lent by its pool for a call, or the one that a caller's transaction has."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any, NoReturn
from weakref import ref

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session, scoped_session

from xq.adapters.databases.dialects import SHARED
from xq.adapters.databases.migrated import WAL
from xq.adapters.drivers import DRIVERS, SERVERS
from xq.adapters.sqlalchemy import writes
from xq.adapters.sqlalchemy.asynchronous import driver_of, engine_beside, listen, parameters_of
from xq.adapters.stores import SECRETS, Connection, JoinedConnection, OrmConnections
from xq.core.connections import Address, Connector, Driver
from xq.core.errors import BadType, ConfigurationError, InTransaction, shown
from xq.core.kinds import ErrorKind, R, Row
from xq.database.database import Database

ENGINES: Mapping[str, str] = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mariadb", "mariadb": "mariadb"}
PORTS: Mapping[str, int] = {"postgres": 5432, "mariadb": 3306}
CALLS = "xq_after_commit"  # a connection's entry in `info`
MODE = "xq_autocommit"  # another: the driver, and the mode that the application's transactions need
SHARING = (sa.StaticPool, sa.pool.SingletonThreadPool)  # pools whose connections several have at once
_BORROWS: ContextVar[bool] = ContextVar("xq_borrows", default=False)  # whether it is xq that asks the pool
DRIVER_NAMES: Mapping[str, str] = {"sqlite": "pysqlite", "postgres": "psycopg", "mariadb": "pymysql"}


def engine_of(given: Any) -> sa.Engine:
    """Return the engine that xq uses for what the application gives. Raises ConfigurationError."""
    if isinstance(given, AsyncEngine):
        return engine_beside(given)
    if not isinstance(given, sa.Engine):
        raise ConfigurationError(f"engine is an Engine or an AsyncEngine of SQLAlchemy, not {shown(given)}")
    name, driver = given.dialect.name, given.dialect.driver
    if name not in ENGINES:
        raise ConfigurationError(f"the engine is on {name}; xq speaks {', '.join(dict.fromkeys(ENGINES))}")
    wanted = DRIVER_NAMES[ENGINES[name]]
    if driver != wanted:
        raise ConfigurationError(
            f"the engine uses the driver {driver}: xq takes {wanted}, as in create_engine('{name}+{wanted}://...')"
        )
    listen(given)
    return given


def place_of(engine: sa.Engine) -> tuple[object, ...]:
    """Return where an engine's database is: the same for all drivers."""
    kept = vars(engine.dialect)
    if (place := kept.get("_xq_place")) is None:
        listen(engine)
        try:
            given = parameters_of(engine)
        except ConfigurationError:  # the URL of one with a function that connects is said to be right
            arguments, named = engine.dialect.create_connect_args(engine.url)
            given = [*arguments], {**named}
        kind, values = ENGINES[engine.dialect.name], given[1]
        database = next((values[name] for name in ("database", "dbname", "db") if name in values), None)
        port = values.get("port") or PORTS.get(kind)
        place = (kind, values.get("unix_socket") or values.get("host"), port and str(port), database)
        if kind == "sqlite":
            place = (kind, os.path.abspath(str(given[0][0]).removeprefix("file:")))
        kept["_xq_place"] = place
    found: tuple[object, ...] = place
    return found


def database_of(engine: sa.Engine) -> Database:
    """Return an engine's Database: engines made by `execution_options` share it, as they share the pool."""
    url = engine.url
    key = (engine.dialect.name, url.host, url.port, url.database)

    def make() -> Database:
        return Database(key, SqlalchemyConnections("the database", ref(engine)), SHARED)

    return Database.at(vars(engine.dialect), "_xq_database", key, make)


class _Lent(Connection):
    """A thread's connection, which has one of the pool's only while a statement or a block of xq's own needs it."""

    __slots__ = ("_asked", "_depth", "_fairy", "_rest")

    store: SqlalchemyConnections

    def __init__(self, store: SqlalchemyConnections, driver: Driver, database: object) -> None:
        super().__init__(store, driver, None, _nothing, database)
        self._depth = 0
        self._fairy: Any = None  # the pool's connection
        # What a statement that borrows a connection writes into its event context, and what is there without one.
        self._asked = self._rest = self.context

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Have a connection of the pool within the block."""
        if self._depth == 0:
            self._borrow()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._give_back()

    def _borrow(self) -> None:
        store, driver = self.store, self.driver
        token = _BORROWS.set(True)
        try:
            self._fairy = fairy = store.check_out(driver)
            self.raw = raw = fairy.dbapi_connection
            info = fairy.info
            if MODE not in info:
                info[MODE] = driver, driver.autocommit(raw, True)
        except Exception as error:
            store._raise(error)
        finally:
            _BORROWS.reset(token)
        self.cursor = raw.cursor
        if (context := info.get(store)) is None:
            context = self._prepared()
        else:
            self.set_up = True
        if context and not self._rest:
            self._rest = {name: value for name, value in context.items() if name != "xq_event_context"}
            self._asked = {**self._rest}
        if self._asked:
            context.update(self._asked)
        self.context = context

    def _prepared(self) -> dict[str, Any]:
        """Set up a connection that the pool has opened, and return its event context."""
        self.set_up, self.context, self._depth = False, {}, 1  # what sets it up runs on it
        try:
            self.driver.check(self.raw)
            if self.store.engine == "sqlite":  # as install() sets it, which a migration cannot, in its transaction
                with suppress(exc.SQLAlchemyError):
                    self.execute(WAL)
            self.store._set_up(self)
        except BaseException:
            self._give_back()
            raise
        finally:
            self._depth = 0
        if self.set_up:
            self._fairy.info[self.store] = self.context
        return self.context

    def _give_back(self) -> None:
        """Give the connection back to the pool. It stays in autocommit mode until the application has it."""
        fairy, raw, store = self._fairy, self.raw, self.store
        if self._rest:
            self.context.update(self._rest)
        self._fairy, self.raw, self.cursor, self.context = None, None, _nothing, self._asked
        self.in_transaction, self.open_block = False, ""
        store._local.last, within = raw, self.driver.transaction(raw)
        store._local.lost = within is None
        if within is None:
            fairy.invalidate()
            return
        if within:  # an interrupt left it
            raw.rollback()
        if store.shares:
            _restore(raw, fairy)
        fairy.close()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._depth or self.gathers:
            return super().execute(sql, values)
        self._borrow()
        self._depth = 1
        try:
            return super().execute(sql, values)
        finally:
            self._depth = 0
            self._give_back()

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        with self.lent():
            return super().change(sql, values)

    def atomically(self, values: dict[str, Any], work: Callable[[Any, dict[str, Any]], R]) -> R:
        with self.lent():
            return super().atomically(values, work)

    def _whole(self, run: Callable[[], R]) -> R:
        with self.lent():
            return super()._whole(run)


def _nothing() -> None:
    raise AssertionError("no connection is lent")


class _Joined(JoinedConnection):
    """The connection of a caller's session."""

    __slots__ = ("outer",)

    def __init__(self, *of_connection: Any) -> None:
        *given, self.outer = of_connection
        super().__init__(*given)

    def interrupted(self) -> None:
        with suppress(Exception):
            if self.driver.batching == "transaction":  # SQLite: rows that are not read keep the lock, also when closed
                self.raw.rollback()
        self.outer.invalidate()  # as SQLAlchemy does: the coroutine was cancelled, and a statement may still run


class _OfThread(threading.local):
    connection: _Lent | None = None
    last: Any = None  # the driver's connection that was lent last
    lost: bool = False  # whether it was lost when it was given back
    calls: list[Callable[[], None]] | None = None  # after the commit of the open block of xq's own


class SqlalchemyConnections(OrmConnections):
    """The connections of an engine. Implements `xq.core.connections.Connections`."""

    database_error = exc.SQLAlchemyError

    def __init__(self, name: str, find: Callable[[], sa.Engine | None]) -> None:
        self.name = name
        self._find = find
        self._local = _OfThread()
        self._known: tuple[sa.Engine | None, Database | None] = (None, None)
        super().__init__()

    @property
    def known_engine(self) -> sa.Engine:
        if (engine := self._find()) is None:
            raise ConfigurationError(f"{self.name} has no engine yet: upgrade it with engine=, or call bind(engine)")
        return engine

    @property
    def database(self) -> Database | None:
        engine, (known, database) = self._find(), self._known
        if engine is not known:
            database = None if engine is None else database_of(engine)
            self._known = engine, database
        return database

    @property
    def engine(self) -> str:
        return ENGINES[self.known_engine.dialect.name]

    @property
    def driver(self) -> Driver:
        return DRIVERS[self.engine] if (joined := self._joined.get()) is None else joined.driver

    @property
    def dialect(self) -> sa.Dialect:
        """The dialect of the connection that a call uses."""
        joined = self._joined.get()
        return joined.outer.dialect if isinstance(joined, _Joined) else self.known_engine.dialect

    def ready(self) -> Connection:
        if (joined := self._joined.get()) is not None:
            return joined
        connection, database = self._local.connection, self.database
        if connection is None or connection.database() is not database:
            _ = self.known_engine  # raises if there is none
            connection = self._local.connection = _Lent(self, self.driver, database)
        if connection._depth:
            connection.in_transaction = connection.driver.in_transaction(connection.raw)
        elif not connection.set_up:
            with connection.lent():
                pass
        return connection

    # the pool's connections

    @property
    def shares(self) -> bool:
        """Whether several have one connection of the pool at once."""
        return isinstance(self.known_engine.pool, SHARING)

    def check_out(self, driver: Driver) -> Any:
        """Return a connection of the pool on which no transaction is open."""
        engine = self._find() or self.known_engine
        if type(engine.pool) is sa.StaticPool:  # which would roll it back when it is given back
            self._check_shared(driver.transaction(engine.pool.connection.dbapi_connection))
        while True:
            fairy = engine.raw_connection()
            if (within := driver.transaction(fairy.dbapi_connection)) is False:
                return fairy
            if within is None:  # the server has closed it
                fairy.invalidate()
            elif self.shares:
                fairy.close()
                self._check_shared(within)
            else:  # SQLAlchemy leaves it open where SQLite has refused a COMMIT
                fairy.rollback()
                return fairy

    def _check_shared(self, within: bool | None) -> None:
        if within:
            pool = type(self.known_engine.pool).__name__
            raise ConfigurationError(
                f"{self.name}'s calls and its sessions share one connection ({pool}), on which a transaction is open: "
                "make the call part of it, as in put(order, on=session)"
            )

    # errors

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the driver's errors as SQLAlchemy's."""
        try:
            yield
        except Exception as error:
            raised = self._wrapped(error)
            if raised is error:
                raise
            raise raised from error

    def _wrapped(self, error: BaseException) -> BaseException:
        dialect: Any = self.dialect
        base: Any = dialect.loaded_dbapi.Error
        if not isinstance(error, base):
            return error
        wrapped: Any = exc.DBAPIError.instance("", None, error, base, dialect=dialect)
        wrapped.code = None  # the message ends as the driver's, without a link
        found: BaseException = wrapped
        return found

    def failed(self, error: BaseException) -> NoReturn:
        raised = self._wrapped(error)
        if raised is not error:
            raised.__cause__ = error
        super().failed(raised)

    def of_the_driver(self, error: BaseException) -> BaseException:
        return error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error

    def classify(self, error: BaseException) -> ErrorKind:
        return ErrorKind.TRANSIENT if isinstance(error, exc.TimeoutError) else super().classify(error)

    @property
    def in_use(self) -> Any:
        if (joined := self._joined.get()) is not None:
            return joined.raw
        connection = self._local.connection
        return (connection and connection.raw) or self._local.last

    @property
    def is_lost(self) -> bool:
        connection = self._local.connection
        if self._joined.get() is None and (connection is None or connection.raw is None):
            return self._local.lost
        return super().is_lost

    def on_one_connection(self) -> AbstractContextManager[object]:
        connection = self.ready()
        return connection.lent() if isinstance(connection, _Lent) else nullcontext()

    # transactions

    def _join(self, on: Any) -> JoinedConnection:
        if isinstance(on, scoped_session):
            on = on()
        if hasattr(on, "run_sync"):
            raise BadType(f"{type(on).__name__} is for the methods of aio: await orders.aio.put(order, on=session)")
        if not isinstance(on, (Session, sa.Connection)):
            raise BadType(f"on is a Session or a Connection of SQLAlchemy, not {shown(on)}")
        outer = on.connection(**self._of_the_model) if isinstance(on, Session) else on
        mine = self.known_engine
        if outer.dialect is not mine.dialect and place_of(outer.engine) != place_of(mine):
            raise ConfigurationError(f"{self.name} is on {mine.url}, and on= is on {outer.engine.url}")
        if not outer.in_transaction():
            outer.begin()
        writes.wrote(outer)
        driver, raw = driver_of(outer.dialect), outer.connection.dbapi_connection
        driver.check(raw)
        watch(outer.engine)
        calls = outer.info.setdefault(CALLS, _Calls())
        return _Joined(self, driver, raw, self.database, calls.append, outer)

    _of_the_model: Mapping[str, Any] = {}  # by which a session finds the engine of the model

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        connection: Any = self.ready()
        with connection.lent():
            if self.driver.in_transaction(connection.raw):
                with connection.savepoint():
                    yield
                return
            calls = self._local.calls = []
            connection._control(self.driver.begin)
            try:
                yield
                connection._control("COMMIT")
            except BaseException as error:
                connection._undo(error)
                self._raise(error)
            finally:
                self._local.calls = None
        for call in calls:
            call()

    def _raise(self, error: BaseException) -> NoReturn:
        raised = self._wrapped(error)
        if raised is error:
            raise error
        raise raised from error

    def in_transaction(self) -> bool:
        if self._joined.get() is not None:
            return True
        connection = self._local.connection
        return bool(connection and connection._depth and self.driver.in_transaction(connection.raw))

    @property
    def may_wait(self) -> bool:
        return not self.in_transaction()

    def undo_interrupted(self) -> None:
        return  # a connection that is given back is rolled back

    def after_commit(self, call: Callable[[], None]) -> None:
        if (joined := self._joined.get()) is not None:
            joined.after_commit(call)
        elif self._local.calls is not None:
            self._local.calls.append(call)
        else:
            call()

    # a thread's connection

    def connect(self) -> None:
        if self._joined.get() is None:
            with self.on_one_connection():
                pass

    def connect_unpooled(self) -> None:
        connection = self._of_thread
        if self._joined.get() is None and not connection._depth:
            connection._borrow()
            connection._depth = 1
            connection._fairy.detach()  # which keeps it in autocommit mode: nobody else gets it

    def disconnect(self) -> None:
        connection = self._local.connection
        if connection is not None and connection._depth:
            connection._depth = 0
            connection._give_back()

    @property
    def _of_thread(self) -> Any:
        return self.ready()

    def at_work(self) -> AbstractContextManager[None]:
        return nullcontext()

    def check_apart(self, what: str) -> None:
        if not self.in_transaction() and writes.open_writes():
            raise InTransaction(
                what,
                "",
                f"{what} would wait for the transaction in which the function has written, or be kept when that is "
                f"rolled back: make it part of it, as in {what}(order, on=session)",
            )

    def forked(self) -> None:
        if (engine := self._find()) is not None:
            of_application: sa.Engine = vars(engine.dialect).get("_xq_given", engine)
            of_application.dispose(close=False)
        self._local = _OfThread()

    @property
    def has_threads(self) -> bool:
        return not isinstance(self.known_engine.pool, sa.StaticPool)

    @property
    def no_threads(self) -> str:  # type: ignore[override]
        if self.is_private:
            return "in memory, where each thread has a database of its own: take a file"
        return ""

    @property
    def is_private(self) -> bool:
        name = self.known_engine.url.database
        return self.engine == "sqlite" and (name in (None, "", ":memory:") or "mode=memory" in str(name))

    def connector(self) -> Connector:
        engine = ref(self.known_engine)

        def connect() -> Any:
            found: Any = engine()
            fairy: Any = found.pool.recreate().connect()  # the application's own is not used up by xq's connections
            raw = fairy.driver_connection
            fairy.detach()
            DRIVERS[ENGINES[found.dialect.name]].autocommit(raw, True)
            return raw

        return Connector(connect, SERVERS[self.engine], self.errors, (exc.SQLAlchemyError,))

    def address(self) -> Address:
        engine, kind = self.known_engine, self.engine
        _, given = parameters_of(engine)
        if kind == "sqlite":
            if self.is_private:
                raise ConfigurationError(f"{self.name} is in memory, where no other process sees it: use a file")
            name = str(engine.url.database)
            return Address(kind, {"database": name if name.startswith("file:") else os.path.abspath(name)})
        given.pop("context", None), given.pop("client_flag", None)
        if "db" in given:
            given["database"] = given.pop("db")
        password, passwd = (given.pop(name, None) for name in ("password", "passwd"))
        secrets = {name: given.pop(name) for name in SECRETS & given.keys()}
        return Address(kind, given, password or passwd, secrets)


class _Calls(list[Callable[[], None]]):
    """What runs after the commit of a caller's transaction: SQLAlchemy has no event after it."""

    committing = False


def _committing(connection: sa.Connection) -> None:
    writes.committed(connection)
    if calls := connection.info.get(CALLS):
        calls.committing = True


def _rolled_back(connection: sa.Connection) -> None:
    writes.rolled_back(connection)
    if not connection.invalidated:  # else the pool has forgotten it
        connection.info.pop(CALLS, None)


def _over(info: Any) -> None:
    """Run what waits for a commit, when the connection goes back to its pool or begins anew."""
    calls: Any = info.pop(CALLS, None)
    for call in calls if calls and calls.committing else ():
        call()


def watch(engine: sa.Engine) -> None:
    """Learn of the ends of the callers' transactions on an engine."""
    if vars(engine.dialect).setdefault("_xq_watches", None) is not None:
        return
    vars(engine.dialect)["_xq_watches"] = True
    sa.event.listen(engine, "commit", _committing)
    sa.event.listen(engine, "rollback", _rolled_back)
    sa.event.listen(engine, "begin", writes.began)
    sa.event.listen(engine, "after_cursor_execute", writes.executed)
    sa.event.listen(engine, "begin", lambda connection: _over(connection.info))
    sa.event.listen(engine, "checkin", lambda raw, record: _over(record.info))
    sa.event.listen(engine, "checkout", _checked_out)


def _checked_out(raw: Any, record: Any, _: object) -> None:
    if not _BORROWS.get():
        _restore(raw, record)


def _restore(raw: Any, of: Any) -> None:
    """Put a connection that xq has had into the mode that the application's transactions need."""
    if (found := of.info.pop(MODE, None)) is not None:
        driver, mode = found
        try:
            driver.autocommit(raw, mode)
        except Exception as error:
            raise exc.DisconnectionError from error  # then the pool opens another one
