"""Django's connections: one for each thread, their transactions, and where the database is."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, cached_property, partial
from typing import Any, Final
from weakref import ref

from asgiref.sync import async_to_sync, sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, models, router, transaction
from django.db import Error as DjangoError
from django.db.transaction import TransactionManagementError
from django.db.utils import load_backend
from django.utils.connection import ConnectionDoesNotExist

from xq.core import time
from xq.core.connections import Connector, Driver, OpenBlock, keep
from xq.core.errors import ConfigurationError, LeftOpen
from xq.database.database import Database
from xq.drivers import DRIVERS, SERVERS
from xq.drivers.base import of_login
from xq.drivers.stores import Connection, FileConnection, OrmConnections, PendingCalls
from xq.sql.dialects import SHARED
from xq.sql.migrated import SCHEMAS, SEARCH_PATH

log = logging.getLogger("django.db.backends")  # where Django logs its own statements

ENGINES: Final = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "innodb"}  # Django's vendor -> the dialect

# the dialect -> how Django gets connections from a driver that xq supports
ADVICE: Final = {
    "postgres": "pip install psycopg",
    "innodb": "pip install pymysql, and in the settings: import pymysql; pymysql.install_as_MySQLdb()",
}


OF_TENANTS: Final = (
    "with django-tenants move its app to SHARED_APPS, and have the tenant as utube, or start a worker for each schema "
    """by settings with Django's own backend and OPTIONS = {"options": "-c search_path=..."} (docs/howto/tenants.md)"""
)

# Parameters of a driver's connect() that only Django's own connections use.
OF_DJANGO: Final = frozenset(
    {"context", "cursor_factory", "prepare_threshold", "autocommit", "detect_types", "check_same_thread", "conv"}
)


@cache
def _vendor(backend: str) -> str:
    """Return a database backend's vendor. The backend may be a subclass of Django's under another name."""
    return str(load_backend(backend).DatabaseWrapper.vendor)


def where(connection: Any) -> list[object]:
    """Return which database a connection is to, according to the current settings."""
    there = connection.settings_dict
    return [there["NAME"], there["HOST"], there["PORT"]]


def makes_cursors(connection: Any) -> bool:
    """Return whether a backend has its own way to make cursors: that of django-tenants sets a search_path for each."""
    made = [getattr(type(connection), name).__module__ for name in ("cursor", "_cursor")]
    return not all(module.startswith("django.") for module in made)


@cache
def path_of_threads(alias: str, *there: object) -> Sequence[str]:
    """Return the schemas in the search_path of a new connection, as the threads of a worker have them."""
    own = connections.create_connection(alias)
    try:
        with own.cursor() as cursor:
            cursor.execute(SEARCH_PATH)
            ((path,),) = cursor.fetchall()
    finally:
        own.close()
    return list(path)


def database_of(connection: Any, schema: str = "") -> Database:
    """Return the Database for an alias: the same until its settings name another one, such as the test database.

    There is one more for each schema with tables of xq that new connections do not see.
    """
    alias, key = connection.alias, (connection.alias, connection.vendor, *where(connection), schema)
    known: dict[Any, Database] = vars(connections).setdefault("_xq_databases", {})
    if (found := known.get(key)) is None:
        store = DjangoConnections(f"the database {alias!r}", None, alias, schema)
        found = Database.at(known, key, key, lambda: Database(key, store, SHARED))
        settings = connections.settings.get(alias)
        # This thread's connection may be older than a change to the settings, for example in a test. Other threads
        # need theirs, and its sessions, all the same.
        if settings is not None and where(connection) == [settings["NAME"], settings["HOST"], settings["PORT"]]:
            for other in [other for other in list(known) if other[:-1] != key[:-1] and other[0] == alias]:
                known.pop(other, None)
    return found


def non_atomic(view: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a view so that ATOMIC_REQUESTS makes no transaction around it, on any database."""
    for alias in connections:
        view = transaction.non_atomic_requests(alias)(view)
    return view


class _Immediate(transaction.Atomic):
    """An Atomic that locks SQLite for writing at once: a reader cannot write any more once another has written."""

    def __enter__(self) -> None:
        connection: Any = connections[self.using]
        by_hand = not connection.in_atomic_block and not connection.get_autocommit()
        if by_hand and not connection.connection.in_transaction:
            connection.connection.execute("BEGIN IMMEDIATE")
        if by_hand or connection.in_atomic_block:
            super().__enter__()
            return
        connection._start_transaction_under_autocommit = lambda: connection.cursor().execute("BEGIN IMMEDIATE")
        try:
            super().__enter__()
        finally:
            del connection._start_transaction_under_autocommit


class _Kept(PendingCalls):
    """What xq stores with Django's connection."""

    at: Sequence[object] | None = None  # the database to which xq opened the connection
    is_own = False  # whether the thread has it for itself
    schema = ""  # in which it was at the last call, or its search_path, if the backend sets one

    def __init__(self, wrapper: Any) -> None:
        self.makes_cursors = makes_cursors(wrapper)
        self.connections: dict[DjangoConnections, Connection] = {}


class _Seen:
    """A driver whose statements have observers: `execute_wrapper`, or `connection.queries`."""

    batching = ""  # each statement is seen by itself

    def __init__(self, driver: Driver, connection: Any) -> None:
        self.driver, self.connection = driver, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        """Run a statement as Django runs its own."""
        connection = self.connection

        def execute(sql: str, values: Any, many: bool, context: Any) -> None:
            self.driver.execute(cursor, sql, values)

        for wrapper in reversed(connection.execute_wrappers):
            execute = partial(wrapper, execute)
        begun = time.monotonic()
        try:
            execute(sql, values, False, {"connection": connection, "cursor": cursor})
        finally:
            if connection.queries_logged:
                seconds = time.monotonic() - begun
                connection.queries_log.append({"sql": sql, "time": f"{seconds:.3f}"})
                extra = {"duration": seconds, "sql": sql, "params": values, "alias": connection.alias}
                log.debug("(%.3f) %s; args=%s; alias=%s", seconds, sql, values, connection.alias, extra=extra)


class _SeenConnection(Connection):
    __slots__ = ("kept",)

    def __init__(self, store: DjangoConnections, driver: Any, kept: Connection) -> None:
        self.kept, open_block = kept, kept.open_block
        super().__init__(store, driver, kept.raw, kept.cursor, kept.database())
        self.in_transaction, self.context, self.open_block = kept.in_transaction, kept.context, open_block

    @property
    def open_block(self) -> OpenBlock:
        return self.kept.open_block

    @open_block.setter
    def open_block(self, open_block: OpenBlock) -> None:
        self.kept.open_block = open_block

    def _control(self, sql: str) -> None:
        self.kept._control(sql)


class DjangoConnections(OrmConnections):
    """Django's connections to a database, or to a model's, as `xq.core.connections.Connections`.

    The database is `using`; None asks the routers at each call where to write the model. `apart`: the schema, if new
    connections do not see its tables.
    """

    def __init__(self, name: str, model: type[models.Model] | None, using: str | None, apart: str = "") -> None:
        self.name = name
        self.model: Any = model
        self.using = using
        self.apart = apart
        self._apart: dict[str, str] = {}  # the same of the model's table, by `_Kept.schema`
        vendor = self.connection.vendor
        if vendor not in ENGINES:
            raise ConfigurationError(f"{self.name} is on {vendor}; xq speaks {', '.join(ENGINES)}")
        self._engine = ENGINES[vendor]
        super().__init__()

    def _speaks(self, connection: Any) -> bool:
        """Return whether a connection is, and by its settings still is, to a database from this store's vendor."""
        vendor = connection.vendor
        return ENGINES.get(vendor) == self._engine and _vendor(connection.settings_dict["ENGINE"]) == vendor

    @property
    def alias(self) -> str:
        # Read several times in each call, so the answer is cached if there are no routers.
        return self.using or (router.db_for_write(self.model) if router.routers else DEFAULT_DB_ALIAS)

    @property
    def connection(self) -> Any:
        """Django's connection for this thread, which may not be open."""
        return connections[self.using or self.alias]

    @property
    def database(self) -> Database | None:
        try:
            connection = self.connection
        except ConnectionDoesNotExist:
            return None
        if not self._speaks(connection):
            return None
        return database_of(connection, self.apart or (self._apart.get(self.seen_in, "") if self._apart else ""))

    @property
    def engine(self) -> str:
        connection = self.connection
        if not self._speaks(connection):
            raise ConfigurationError(
                f"{self.name} was upgraded for {self._engine}, and {connection.alias!r} is "
                f"{connection.settings_dict['ENGINE']}: upgrade a model of its own for it"
            )
        return self._engine

    @cached_property
    def driver(self) -> Driver:
        return DRIVERS[self._engine]

    def ready(self) -> Connection:
        if (joined := self._joined.get()) is not None:
            return self._as_set_up(joined)
        if self._left:
            self._run_left()
        wrapper = connections[self.using or self.alias]
        driver, kept = self.driver, vars(wrapper).get("_xq_kept") or self._kept(wrapper)
        connection: Connection | None = kept.connections.get(self)
        within = None if connection is None else self._transaction(wrapper, kept, driver)
        if within is None or connection is None or connection.raw is not wrapper.connection:
            connection = self._open()
            within = self._within()
        if kept.makes_cursors:
            self._follow(wrapper, kept, connection)
        elif "cursor" in vars(wrapper):  # a test or a profiler has replaced it, to forbid the database or to observe it
            wrapper.cursor().close()
        if not within and not wrapper.autocommit and self._engine != "postgres":
            # sqlite3 itself begins a transaction before some statements only, and pymysql does not learn about one from
            # a statement that returns rows.
            wrapper.connection.cursor().execute("BEGIN")
            within = True
        connection.in_transaction = within
        if not within:
            connection.open_block = ""  # an interrupt may have left it
        if connection.set_up is not True:
            self._set_up(connection)
        if kept.calls and not within:
            kept.run_all()
        if wrapper.execute_wrappers or wrapper.queries_logged:
            return _SeenConnection(self, _Seen(driver, wrapper), connection)
        return connection

    @property
    def seen_in(self) -> str:
        """In which schema the connection was at the last call of this thread, if the backend sets one; else ""."""
        return self._kept(self.connection).schema

    def _follow(self, wrapper: Any, kept: _Kept, connection: Connection) -> None:
        """Have the backend prepare the connection as for its own statements, and find out which table they would meet.

        Raises ConfigurationError if xq's own tables are found in another schema than the model's.
        """
        with wrapper.cursor() as cursor:
            if self._engine != "postgres":
                return
            if (here := getattr(wrapper, "schema_name", None)) is None:  # django-tenants saves the query
                cursor.execute(SEARCH_PATH)
                ((path,),) = cursor.fetchall()
                here = ", ".join(path)
        kept.schema = here
        if self.model is not None and here not in self._apart:
            table = wrapper.ops.quote_name(self.model._meta.db_table)
            ((mine, ours),) = connection.execute(SCHEMAS, [table])
            if None not in (mine, ours) and mine != ours:
                raise ConfigurationError(
                    f"{self.name} is in the schema {mine}, and in {here} xq's own tables are found in {ours}, where it "
                    "is not a queue: the apps of all queues belong into one schema, with django-tenants into "
                    "SHARED_APPS (docs/howto/tenants.md)"
                )
            if mine is not None:
                self._apart[here] = "" if mine in path_of_threads(wrapper.alias, *where(wrapper)) else mine
        connection.database = ref(self.database)

    def errors(self) -> Any:
        return self.connection.wrap_database_errors

    @staticmethod
    def _kept(wrapper: Any) -> _Kept:
        kept: _Kept = vars(wrapper).get("_xq_kept") or vars(wrapper).setdefault("_xq_kept", _Kept(wrapper))
        return kept

    @staticmethod
    def _transaction(wrapper: Any, kept: _Kept, driver: Driver) -> bool | None:
        """Return whether a transaction is open on this thread's connection.

        None if the connection is closed or must be closed. Raises as Django if the connection must not be used.
        """
        if wrapper.in_atomic_block:
            wrapper.validate_no_broken_transaction()
            if wrapper.connection is None:
                raise TransactionManagementError("the connection was closed within the transaction")
            return True
        if wrapper.connection is None:
            return None
        within = driver.transaction(wrapper.connection)
        moved = kept.at is not None and kept.at != where(wrapper)  # in a thread that the test runner does not know
        if within is None or (moved and not within):
            wrapper.close()
            return None
        wrapper.ensure_connection()  # which raises in tests without databases, and in coroutines
        return within

    def _open(self) -> Connection:
        """Return this thread's connection; a new one if it is lost and no transaction is open."""
        wrapper, driver, database = self.connection, self.driver, self.database
        if database is None:
            # `self.engine` may raise a more specific error
            raise ConfigurationError(f"{self.name} is on no database of {self.engine}")
        kept = self._kept(wrapper)
        if self._transaction(wrapper, kept, driver) is None:
            try:
                wrapper.ensure_connection()
            except RuntimeError as error:
                raise of_login(error) from error.__cause__
            kept.at = where(wrapper)
        raw, connection = wrapper.connection, kept.connections.get(self)
        if connection is None or connection.raw is not raw:
            database.is_served_by(driver.check(raw, ADVICE.get(self._engine, "")))
            # Not Django's own cursor: it supports one style of marks and no prepared statements.
            kind, cursor = FileConnection if self._engine == "sqlite" else Connection, raw.cursor
            if self._engine == "postgres":
                from psycopg import Cursor

                cursor = partial(Cursor, raw)  # the cursor from Django's connection puts values into the text
            connection = kept.connections[self] = kind(self, driver, raw, cursor, database)
        return connection

    def _atomic(self) -> AbstractContextManager[object]:
        kind = _Immediate if self._engine == "sqlite" else transaction.Atomic
        self._open()  # within a transaction a lost connection could not be replaced
        if not self.connection.in_atomic_block and (connection := self.ready()).open_block:
            return connection.savepoint()  # in a transaction that Django does not see, see `Connection.atomically`
        block: AbstractContextManager[object] = kind(self.alias, savepoint=True, durable=False)
        return block

    def _within(self) -> bool:
        # Django detects no transaction begun by a plain BEGIN, and the driver none before its first statement.
        connection = self.connection
        if connection.in_atomic_block:
            return True
        return connection.connection is not None and self.driver.in_transaction(connection.connection)

    @property
    def may_wait(self) -> bool:
        # A TestCase wraps tests in transactions, and a waiter there polls.
        return not self.in_transaction() or (
            bool(blocks := self.connection.atomic_blocks) and all(block._from_testcase for block in blocks)
        )

    @contextmanager
    def bookkeeping(self) -> Iterator[None]:
        connection = self.connection
        recorded, connection.queries_log = connection.queries_log, deque(maxlen=1)
        try:
            yield
        finally:
            connection.queries_log = recorded

    def _set_up(self, connection: Connection) -> None:
        if connection.in_transaction and connection.set_up is None:
            return
        with self.bookkeeping():
            super()._set_up(connection)

    def undo_interrupted(self) -> None:
        if self._within():
            _abandon_transaction(self.connection)

    def _after_commit(self, call: Callable[[], None]) -> None:
        connection = self.connection
        if connection.in_atomic_block:
            transaction.on_commit(call, using=connection.alias)
        elif self._within():
            self._kept(connection).add(call)
        else:
            call()

    def connect(self) -> None:
        self._open()

    def connect_unpooled(self) -> None:
        self._open()
        self._kept(self.connection).is_own = True

    def disconnect(self) -> None:
        connection = self.connection
        if self._kept(connection).is_own and connection.connection is not None and getattr(connection, "pool", None):
            connection.connection.close()  # so that the pool replaces it: its settings are the thread's
        connection.close()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._close_old()
        # The caller of run_pending, a TestCase for example, has opened these transactions; the function has not.
        callers = [each for each in connections.all(initialized_only=True) if each.in_atomic_block]
        try:
            yield
        finally:
            opened = [each for each in connections.all(initialized_only=True) if each not in callers]
            left = [each for each in opened if self._is_left_open(each)]
            for each in left:
                _abandon_transaction(each)
            self._close_old()
        if left:
            raise LeftOpen(f"the database {left[0].alias!r}")

    @staticmethod
    def _is_left_open(connection: Any) -> bool:
        by_hand = not connection.settings_dict["AUTOCOMMIT"]  # there the query begins a transaction
        if connection.connection is None or by_hand:
            return bool(connection.in_atomic_block)
        if connection.autocommit != connection.settings_dict["AUTOCOMMIT"] or connection.in_atomic_block:
            return True
        with suppress(KeyError, AttributeError):  # if xq does not support the database or the driver
            return DRIVERS[ENGINES[connection.vendor]].in_transaction(connection.connection)
        return False

    def _close_old(self) -> None:
        """Close obsolete connections as Django does around a request, but none within `atomic()`.

        A worker's own connection ends with its thread.
        """
        self.connection.close_at = None
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()

    def forked(self) -> None:
        for connection in connections.all(initialized_only=True):
            is_copied = connection.alias != self.alias and getattr(connection, "is_in_memory_db", bool)()
            if connection.connection is not None and not is_copied:
                keep(connection.connection)
                connection.connection = None
                _forget_transaction(connection)

    def for_coroutine(self, job: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        # In one thread, the request's or the test case's: Django's own asynchronous methods run there.
        return sync_to_async(job)()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        async def run() -> None:
            await coroutine

        async_to_sync(run)()  # whose sync_to_async runs in this thread, which has the test's transaction

    @property
    def may_share(self) -> bool:  # type: ignore[override]
        # Routers and backends go by a variable of the coroutine's context, or of its request's thread.
        return not (self._kept(self.connection).makes_cursors or (self.using is None and router.routers))

    def connector(self) -> Connector:
        if self.apart:
            raise ConfigurationError(
                f"in the schema {self.apart} a queue has no takes, waits and workers in this process, whose own "
                f"connections do not see it: {OF_TENANTS}"
            )
        kind, settings, alias = type(self.connection), self.connection.settings_dict, self.connection.alias
        # A pool has its connections for the application's threads.
        options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
        settings = {**settings, "OPTIONS": options, "AUTOCOMMIT": True}

        def connect() -> Any:
            """Connect as Django does, by the methods of the application's backend and with its signal."""
            own = kind(settings, alias)
            own.connect()
            if makes_cursors(own):
                own.cursor().close()
            return own.connection

        errors = (DjangoError, self.connection.Database.Error)
        return Connector(connect, SERVERS[self._engine], nullcontext, errors)

    def _parameters(self) -> dict[str, Any]:
        given = self.connection.get_connection_params()
        return {name: value for name, value in given.items() if name not in OF_DJANGO}

    database_error = DjangoError

    def of_the_driver(self, error: BaseException) -> BaseException:
        cause = error.__cause__
        # Django's TransactionManagementError has a cause as well, raised by the application.
        return cause if isinstance(error, DjangoError) and isinstance(cause, self.connection.Database.Error) else error

    @property
    def _raw(self) -> Any:
        return self.connection.connection


def _forget_transaction(connection: Any) -> None:
    connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False
    connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []


def _abandon_transaction(connection: Any) -> None:
    _forget_transaction(connection)
    try:
        connection.rollback()
        connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])
    except Exception:
        connection.close()
