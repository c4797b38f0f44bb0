"""An engine's connections: lent by its pool for a call, or the one that a caller's transaction has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from threading import local
from typing import Any
from weakref import ref

import sqlalchemy as sa
from sqlalchemy import exc

from xq.adapters.sqlalchemy import writes
from xq.adapters.sqlalchemy.asynchronous import parameters_of
from xq.adapters.sqlalchemy.engines import ENGINES
from xq.adapters.sqlalchemy.joined import Joined, join
from xq.adapters.sqlalchemy.lent import Lent, restored
from xq.core.connections import Connector, Driver
from xq.core.errors import ConfigurationError, InTransaction
from xq.core.kinds import ErrorKind
from xq.database.database import Database
from xq.drivers import DRIVERS, SERVERS
from xq.drivers.base import of_login
from xq.drivers.stores import Connection, OrmConnections, in_memory
from xq.sql.dialects import SHARED

# Parameters that only the drivers know, and other programs do not.
OF_DRIVERS = ("autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory", "client_flag")


def database_of(engine: sa.Engine) -> Database:
    """Return an engine's Database: engines made by `execution_options` share it, as they share the pool."""
    url = engine.url
    key = (engine.dialect.name, url.host, url.port, url.database)

    def make() -> Database:
        if engine.dialect.name != "sqlite":
            sa.event.listen(engine, "checkout", restored)
        return Database(key, SqlalchemyConnections("the database", ref(engine)), SHARED)

    return Database.at(vars(engine.dialect), "_xq_database", key, make)


class SqlalchemyConnections(OrmConnections):
    """The connections of an engine. Implements `xq.core.connections.Connections`."""

    database_error = exc.SQLAlchemyError

    def __init__(self, name: str, find: Callable[[], sa.Engine | None]) -> None:
        self.name = name
        self._find = find
        self.of_thread = local()  # of the database's connections: all queues on an engine use them
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
        return joined.outer.dialect if isinstance(joined, Joined) else self.known_engine.dialect

    def _lent(self) -> Lent:
        """Return this thread's connection."""
        database: Any = self.database
        if database is None:
            _ = self.known_engine  # raises
        of_thread = database.store.of_thread
        if (found := getattr(of_thread, "connection", None)) is None:
            found = of_thread.connection = Lent(self, DRIVERS[self.engine], database)
        return found

    def ready(self) -> Connection:
        if (joined := self._joined.get()) is not None:
            return self._as_set_up(joined)
        connection = self._lent()
        connection.store = self
        if (begin := connection.later) is not None:
            connection.later = None
            begin()
        if connection.held:
            connection.in_transaction = connection.driver.in_transaction(connection.raw)
            if connection.set_up is not True:
                connection.prepare()
        return connection

    # errors

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the driver's errors as SQLAlchemy's."""
        try:
            yield
        except Exception as error:
            raise self._wrapped(error)  # noqa: B904

    def _wrapped(self, error: BaseException) -> BaseException:
        dialect: Any = self.dialect
        base: Any = dialect.loaded_dbapi.Error
        if not isinstance(error, base):
            return of_login(error) if isinstance(error, RuntimeError) else error
        joined = self._joined.get()
        lost = isinstance(joined, Joined) and joined.lost_by(error)
        wrapped: Any = exc.DBAPIError.instance("", None, error, base, connection_invalidated=lost, dialect=dialect)
        wrapped.code, wrapped.__cause__ = None, error  # the message ends as the driver's, without a link
        found: BaseException = wrapped
        return found

    def of_the_driver(self, error: BaseException) -> BaseException:
        return error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error

    def classify(self, error: BaseException) -> ErrorKind:
        return ErrorKind.TRANSIENT if isinstance(error, exc.TimeoutError) else super().classify(error)

    @property
    def _raw(self) -> Any:
        connection = self._lent()
        return connection.raw or connection.last

    def on_one_connection(self) -> AbstractContextManager[object]:
        connection = self.ready()
        return connection if isinstance(connection, Lent) else nullcontext()

    # transactions

    _of_the_model: Mapping[str, Any] = {}  # by which a session finds the engine of the model
    _join = join

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        connection: Any = self.ready()
        calls: list[Callable[[], None]] = []
        with connection:
            if connection.in_transaction:
                with connection.savepoint():
                    yield
                return
            connection.calls = calls
            try:
                with connection.transaction():
                    yield
            finally:
                connection.calls = None
        for call in calls:
            call()

    @contextmanager
    def atomic_if_used(self) -> Iterator[None]:
        """Open the transaction at the first call that joins none: the pool may have no other connection for it."""
        with ExitStack() as stack:
            if self.in_transaction():
                stack.enter_context(self.atomic())
                yield
                return
            (connection := self._lent()).later = partial(stack.enter_context, self.atomic())
            try:
                yield
            finally:
                connection.later = None

    def _within(self) -> bool:
        connection = self._lent()
        begun = bool(connection.held) and connection.driver.in_transaction(connection.raw)
        return begun or connection.later is not None

    def undo_interrupted(self) -> None:
        return  # a connection that is given back is rolled back

    def _after_commit(self, call: Callable[[], None]) -> None:
        if (calls := self._lent().calls) is None:
            call()
        else:
            calls.append(call)

    # a thread's connection

    def connect(self) -> None:
        with self.on_one_connection():
            pass

    def connect_unpooled(self) -> None:
        self._lent().keep_own(self)

    def disconnect(self) -> None:
        connection = self._lent()
        if connection.held:
            connection.__exit__()

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
            database_of(engine).store.of_thread = local()  # type: ignore[attr-defined]

    @property
    def has_threads(self) -> bool:
        return not isinstance(self.known_engine.pool, sa.StaticPool)

    @property
    def no_threads(self) -> str:  # type: ignore[override]
        if not self.has_threads:
            return "on the one connection of a StaticPool, where threads would share a transaction: take another pool"
        return "in memory, where each thread has a database of its own: take a file" if self.is_private else ""

    @property
    def is_private(self) -> bool:
        return self.engine == "sqlite" and in_memory(self.known_engine.url.database or "")

    def connector(self) -> Connector:
        engine: Any = ref(self.known_engine)
        driver = SERVERS[self.engine]

        def connect() -> Any:
            fairy = engine().pool.recreate().connect()  # the application's own is not used up by xq's connections
            fairy.detach()
            driver.autocommit(fairy.dbapi_connection, True)
            return fairy.dbapi_connection

        return Connector(connect, driver, self.errors, (exc.SQLAlchemyError,))

    def _parameters(self) -> dict[str, Any]:
        _, given = parameters_of(engine := self.known_engine)
        if self.engine == "sqlite":
            return {"database": engine.url.database or ""}
        return {name: value for name, value in given.items() if name not in OF_DRIVERS}
