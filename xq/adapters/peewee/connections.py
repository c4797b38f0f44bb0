"""A Peewee database's connections (one for each thread), their transactions, and its address."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from typing import Any
from weakref import ref

import peewee as pw
from playhouse import pool

from xq.core.connections import Connector, Driver, keep
from xq.core.errors import ConfigurationError, LeftOpen
from xq.database.database import Database
from xq.drivers import DRIVERS, SERVERS
from xq.drivers.base import of_login
from xq.drivers.stores import Connection, FileConnection, OrmConnections, PendingCalls, in_memory
from xq.sql.dialects import SHARED

# Parameters only for psycopg's connect(): libpq, and so other programs, do not know them.
OF_PSYCOPG = frozenset({"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"})

# By dialect: how to make Peewee use the driver that xq supports.
DRIVER_NAMES: Mapping[str, str] = {"postgres": "psycopg", "innodb": "pymysql"}
EXTRAS: Mapping[str, str] = {"postgres": "postgres", "innodb": "mariadb"}
ADVICE: Mapping[str, str] = {
    "postgres": "pip install '.[postgres]' in the checkout of xq, and prefer_psycopg3=True of the database"
}

ENGINES: Mapping[str, type[pw.Database]] = {
    "sqlite": pw.SqliteDatabase,
    "postgres": pw.PostgresqlDatabase,
    "innodb": pw.MySQLDatabase,
}

# playhouse classes that do not work as their drivers or servers do, and why.
UNSUPPORTED: Mapping[str, str] = {
    "SqliteQueueDatabase": "which has no transactions: take SqliteDatabase, with a timeout=",
    "APSWDatabase": "whose driver is apsw: take SqliteDatabase",
    "CockroachDatabase": "whose server has neither PostgreSQL's triggers nor LISTEN: take PostgreSQL",
    "AsyncDatabaseMixin": "which only coroutines may call: take Peewee's own class of this database, and "
    "call the queue by Model.xq.aio",
}
# By the pragmas that a connection must not set, the permitted values.
PRAGMAS: Mapping[str, Collection[str]] = {"journal_mode": ("wal",), "locking_mode": ("normal",)}


class _Own(pw._transaction):
    """A transaction of xq's own on Peewee's stack, for which the application's blocks within it are savepoints."""


def database_of(found: Any) -> Database:
    """Return a Peewee database's Database: the same until `init()` gives another name, host or port."""
    name, parameters, mine = found.database, found.connect_params, vars(found)
    database: Database | None = mine.get("_xq_database")
    if database is None or database.key[0] is not name or mine.get("_xq_parameters") != parameters:
        key = (name, *map(parameters.get, ("host", "port", "unix_socket")))
        if database is not None and database.key != key and isinstance(found, pool.PooledDatabase):
            found.close_idle()  # they are to the database before
        store = PeeweeConnections("the database", ref(found))
        database = Database.at(mine, "_xq_database", key, lambda: Database(key, store, SHARED))
        mine["_xq_parameters"] = dict(parameters)
    return database


class _OfThread(PendingCalls):
    """The state that a store keeps for a thread."""

    connection: Connection | None = None
    lost: bool = False  # whether xq has closed a lost connection and not opened another yet


class _Local(threading.local):
    """The one store attribute that differs by thread: each access to such an attribute costs."""

    def __init__(self) -> None:
        self.state = _OfThread()


def _is_manual(transaction: object) -> bool:
    """Return whether the application itself begins and ends transactions: Peewee has none open, or manual_commit."""
    return transaction is None or isinstance(transaction, pw._manual)


class PeeweeConnections(OrmConnections):
    """A Peewee database's connections, or a model's. Implements `xq.core.connections.Connections`.

    Each call finds the database, so the application may initialize a DatabaseProxy later, or call `bind()`.
    """

    database_error = pw.PeeweeException

    def __init__(self, name: str, find: Callable[[], Any]) -> None:
        self.name = name
        self._find = find
        self._local = _Local()
        self._engines: dict[type, str] = {}
        super().__init__()

    @property
    def _database(self) -> pw.Database | None:
        database = self._find()
        return database.obj if isinstance(database, pw.Proxy) else database

    @property
    def database(self) -> Database | None:
        database = self._find()  # as `_database`, which each look would enter
        if isinstance(database, pw.Proxy):
            database = database.obj
        return None if database is None else database_of(database)

    @property
    def _known_database(self) -> pw.Database:
        database: pw.Database | None = self._find()  # as `_database`, which each look would enter
        if isinstance(database, pw.Proxy):
            database = database.obj
        if database is None:
            raise ConfigurationError(f"{self.name} has no database yet: bind it, or initialize its DatabaseProxy")
        return database

    @property
    def engine(self) -> str:
        kind = type(self._known_database)
        if kind not in self._engines:
            found = [engine for engine, base in ENGINES.items() if issubclass(kind, base)]
            if not found:
                known = ", ".join(base.__name__ for base in ENGINES.values())
                raise ConfigurationError(f"{self.name} is on {kind.__name__}; xq speaks {known}")
            for base in kind.__mro__:
                if base.__name__ in UNSUPPORTED and base.__module__.startswith("playhouse."):
                    raise ConfigurationError(f"{self.name} is on {kind.__name__}, {UNSUPPORTED[base.__name__]}")
            self._engines[kind] = found[0]
        return self._engines[kind]

    @property
    def driver(self) -> Driver:
        return DRIVERS[self.engine]

    def ready(self) -> Connection:
        if (joined := self._joined.get()) is not None:
            return self._as_set_up(joined)
        if self._left:
            self._run_left()
        mine = self._local.state
        database: Any = self._find()
        connection = mine.connection
        if isinstance(database, pw.Proxy):
            database = database.obj
        if (
            connection is None
            or database is None
            or connection.database() is not database_of(database)
            or connection.raw is not database._state.conn
            or (within := connection.driver.transaction(connection.raw)) is None
        ):
            connection = mine.connection = self._connection()
            within = connection.driver.in_transaction(connection.raw)
        connection.in_transaction = within
        if not within:
            connection.open_block = ""  # an interrupt may have left it
        if connection.set_up is not True:
            self._set_up(connection)
        if mine.calls and not within:
            mine.run_all()
        return connection

    @staticmethod
    def errors() -> Any:
        return pw.__exception_wrapper__  # type: ignore[attr-defined]

    def of_the_driver(self, error: BaseException) -> BaseException:
        inner = getattr(error, "orig", None) if isinstance(error, pw.PeeweeException) else None  # maybe wrapped twice
        return self.of_the_driver(inner) if isinstance(inner, BaseException) else error

    def _checked(self) -> Connection:
        """Return this thread's connection, opened if necessary.

        Raises InterfaceError if it is closed and autoconnect is off, and ConfigurationError for an unsupported driver.
        """
        mine, database, driver = self._local.state, self._known_database, self.driver
        if database.is_closed() and not (database.autoconnect or mine.lost):
            raise pw.InterfaceError(
                f"the connection of {self.name} is closed, and its database has autoconnect=False: call connect() first"
            )
        try:
            raw: Any = database.connection()
        except pw.ImproperlyConfigured as error:  # names another driver than xq's
            needed = f"needs the driver {DRIVER_NAMES[self.engine]}, which is not installed"
            told = f"{self.name} {needed}: pip install '.[{EXTRAS[self.engine]}]' in the checkout of xq"
            raise ConfigurationError(told) from error
        except RuntimeError as error:
            raise of_login(error) from error.__cause__
        connection, current = mine.connection, database_of(database)
        if connection is not None and connection.raw is raw and connection.database() is not current:
            getattr(database, "manual_close", database.close)()  # another thread called init(): not back into the pool
            raw = database.connection()
        if connection is None or connection.raw is not raw or connection.database() is not current:
            current.is_served_by(driver.check(raw, ADVICE.get(self.engine, "")))
            self._check_pragmas(database)
            kind = FileConnection if self.engine == "sqlite" else Connection
            mine.connection = connection = kind(self, driver, raw, raw.cursor, current)
            mine.lost = False
        return connection

    def _check_pragmas(self, database: Any) -> None:
        """Raise ConfigurationError if each connection locks the file, or ends its log, for all others."""
        for name, value in () if self.is_private else getattr(database, "_pragmas", ()):
            if str(value).lower() not in PRAGMAS.get(str(name).lower(), (str(value).lower(),)):
                (only,) = PRAGMAS[name.lower()]
                raise ConfigurationError(
                    f"the database of {self.name} has {name} = {value} in its pragmas, and then threads and processes "
                    f"lock each other out: leave it out, or set it to {only}"
                )

    def _connection(self) -> Connection:
        """Return this thread's connection. Replaces a lost one unless Peewee has a transaction open on it."""
        database, driver = self._known_database, self.driver
        state: Any = database._state  # type: ignore[attr-defined]
        contexts = state.ctx  # that the application has entered; Peewee clears them when it closes a connection
        try:
            connection = self._checked()
            if database.in_transaction() or driver.transaction(connection.raw) is not None:
                return connection
            with suppress(Exception):  # pymysql raises "Already closed"; Peewee drops the connection all the same
                database.close()
            self._local.state.lost = True
            return self._checked()
        finally:
            state.ctx = contexts

    @property
    def _raw(self) -> Any:
        database = self._known_database
        return None if database.is_closed() else database.connection()

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        connection, database = self.ready(), self._known_database
        if connection.in_transaction or not _is_manual(database.top_transaction()):
            with connection.savepoint():
                yield
            return
        level = getattr(database, "_isolation_level", None)
        begin = f" ISOLATION LEVEL {database._adapter.isolation_level_str(level)}" if level else ""  # type: ignore[attr-defined]
        try:
            with connection.transaction(begin):
                database.push_transaction(_Own(database))
                try:
                    yield
                finally:
                    database.pop_transaction()
        except BaseException:
            database._clear_commit_callbacks()  # type: ignore[attr-defined]
            raise
        database._run_commit_callbacks()  # type: ignore[attr-defined]

    def undo_interrupted(self) -> None:
        database = self._known_database
        while isinstance(database.top_transaction(), _Own):
            database.pop_transaction()
        if _is_manual(database.top_transaction()) and self._within():
            self._roll_back()

    def _roll_back(self) -> None:
        self._checked().undo()
        self._known_database._clear_commit_callbacks()  # type: ignore[attr-defined]

    def _within(self) -> bool:
        # The driver, unlike Peewee, also sees a transaction that a plain BEGIN has opened.
        connection, database = self._local.state.connection, self._known_database
        if connection is not None and connection.raw is database._state.conn:  # type: ignore[attr-defined]
            return connection.driver.in_transaction(connection.raw)  # the usual case, in fewer steps
        return not database.is_closed() and self.driver.in_transaction(self._checked().raw)

    def _after_commit(self, call: Callable[[], None]) -> None:
        database = self._known_database
        transaction = database.top_transaction()
        if not self._within():
            call()
        elif _is_manual(transaction):
            self._local.state.add(call)
        else:
            database.after_commit(call)

    def connect(self) -> None:
        self._known_database.connect(reuse_if_open=True)

    def connect_unpooled(self) -> None:
        self.connect()
        database: Any = self._known_database
        if isinstance(database, pool.PooledDatabase):
            # A pool's close_all() and close_stale() also close other threads' connections. libpq frees the
            # socket at once, so a thread within a statement might read the next connection's data.
            with database._pool_lock:
                database._in_use.pop(database.conn_key(database.connection()), None)
                database._pool_available.notify()

    def disconnect(self) -> None:
        if not self.has_threads:  # the threads share it, and an in-memory database ends with it
            return
        database: Any = self._known_database
        connection, pooled = self.in_use, isinstance(database, pool.PooledDatabase)
        withdrawn = pooled and connection is not None and database.conn_key(connection) not in database._in_use
        database.close()
        if withdrawn:
            database._close_raw(connection)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        left = False
        try:
            yield
        finally:
            database: Any = self._known_database
            # Of threads that share a connection, another may have the transaction open.
            if database.thread_safe and (left := bool(database._state.transactions or self.in_transaction())):
                while database.top_transaction() is not None:
                    database.pop_transaction()
                self._roll_back()
        if left:
            raise LeftOpen(f"the database of {self.name}")

    def forked(self) -> None:
        database: Any = self._database
        if database is None:
            return
        inherited = [] if database.is_closed() else [database.connection()]
        if isinstance(database, pool.PooledDatabase):
            inherited += [connection for *_, connection in database._connections]
            inherited += [used.connection for used in database._in_use.values()]
            database._connections, database._in_use = [], {}
        for connection in inherited:
            keep(connection)
        database._state.reset()

    @property
    def has_threads(self) -> bool:
        """Raises ConfigurationError if the application has replaced Peewee's per-thread state by a shared one."""
        database: Any = self._known_database
        state = database._state
        if database.thread_safe and not isinstance(state, threading.local) and _is_shared(state):
            raise ConfigurationError(
                f"several threads would have to share one connection of {self.name}: the application has replaced "
                f"database._state by a {type(state).__name__}, which is the same in new threads. Leave Peewee's own"
            )
        return bool(database.thread_safe)

    @property
    def no_threads(self) -> str:  # type: ignore[override]
        database: Any = self._known_database
        remedy = "take a file, or call the worker in this thread by xq.testing.run_pending"
        if self.engine == "sqlite" and not self.has_threads and database.connect_params.get("check_same_thread", True):
            return f"on a connection of one thread: give its database check_same_thread=False, {remedy}"
        if self.engine == "sqlite" and self.has_threads and in_memory(database.database):
            if "cache=shared" not in os.fspath(database.database):
                return f"in memory, where each thread has a database of its own: {remedy}"
        return ""

    @property
    def is_private(self) -> bool:
        database: Any = self._known_database
        return not database.thread_safe or (self.engine == "sqlite" and in_memory(database.database))

    def connector(self) -> Connector:
        database: Callable[[], Any] = ref(self._known_database)
        _ = self.has_threads  # raises for a state that they would share

        def connect() -> Any:
            # By the application's own methods, but on a copy: else its pool would count the connection, or its thread
            # would use it.
            own = copy(database())
            own._state, own._lock = type(own._state)(), threading.Lock()
            if isinstance(own, pool.PooledDatabase):
                own._connections, own._in_use, own._max_connections = [], {}, 0
            own.connect()
            return own.connection()

        return Connector(connect, SERVERS[self.engine], self.errors, (pw.PeeweeException,))

    def _parameters(self) -> dict[str, Any]:
        database: Any = self._known_database
        name, given, engine = os.fspath(database.database), database.connect_params, self.engine
        if engine != "postgres":
            return {**given, "database": name, **({"timeout": database._timeout} if engine == "sqlite" else {})}
        from psycopg.conninfo import conninfo_to_dict

        named = {name: value for name, value in given.items() if name not in OF_PSYCOPG}
        is_url = name.startswith(("postgresql://", "postgres://"))
        return dict(conninfo_to_dict(name, **named) if is_url else {"dbname": name, **named})


def _is_shared(state: Any) -> bool:
    """Return whether two new threads get the same state, as from a context variable's default."""
    seen = list[object]()

    def look() -> None:
        with suppress(AttributeError, LookupError):
            seen.append(state.xq_seen)
        state.xq_seen = True

    for thread in (threading.Thread(target=look), threading.Thread(target=look)):
        thread.start()
        thread.join()
    return bool(seen)
