"""The seam to Peewee, and `xq.upgrade`."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet, ref

import peewee as pw
from playhouse import pool

from xq.adapters.drivers import DRIVERS, SERVERS
from xq.adapters.stores import SECRETS, Connection, FileConnection, OrmStore, Waiting
from xq.adapters.task import Task
from xq.build import as_decorator, build
from xq.core.clock import Clock
from xq.core.errors import BadType, BadValue, ConfigurationError, LeftOpen, shown
from xq.core.generated import hydrator
from xq.core.ports import MARK, Address, Connector, Driver, Field, Kind, Store, keep
from xq.queue import Queue
from xq.sessions.session import held_by

T = TypeVar("T")
M = TypeVar("M", bound=pw.Model)

KINDS: dict[str, Kind] = {
    "AUTO": "auto",
    "BIGAUTO": "bigauto",
    "INT": "integer",
    "SMALLINT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "VARCHAR": "text",
    "CHAR": "text",
    "TEXT": "text",
    "UUID": "uuid",
    "DATETIME": "datetime",
    "TIMESTAMP": "datetime",
    "TIMESTAMPTZ": "timestamptz",
    "DECIMAL": "decimal",
    **{f"INT GENERATED {when} AS IDENTITY": "auto" for when in ("BY DEFAULT", "ALWAYS")},
    **{f"BIGINT GENERATED {when} AS IDENTITY": "bigauto" for when in ("BY DEFAULT", "ALWAYS")},
}

# What a driver returns for these is what the application sees, and what is of this very type it takes as it is; the
# fields' own conversion would copy it.
NATIVE: Mapping[type[pw.Field[Any]], type] = {
    pw.AutoField: int,
    pw.BigAutoField: int,
    pw.IdentityField: int,
    pw.IntegerField: int,
    pw.BigIntegerField: int,
    pw.SmallIntegerField: int,
    pw.CharField: str,
    pw.TextField: str,
    pw.DoubleField: float,
    pw.FloatField: float,
}

# What psycopg's connect() takes and no other program understands.
OF_PSYCOPG = frozenset({"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"})

# The drivers take these as they are.
PLAIN = frozenset({type(None), bool, int, float, str, bytes})

# the dialect -> how a database comes to have connections of the driver that xq speaks through
ADVICE: Mapping[str, str] = {"postgres": "give the database prefer_psycopg3=True"}

ENGINES: Mapping[str, type[pw.Database]] = {
    "sqlite": pw.SqliteDatabase,
    "postgres": pw.PostgresqlDatabase,
    "mariadb": pw.MySQLDatabase,
}


class _Watched:
    """Before a class of Peewee's: leaves no connection behind on which a statement of that was interrupted."""

    db: Any

    def __init__(self, database: pw.Database, driver: Driver, *begin: str) -> None:
        super().__init__(database, *begin)  # type: ignore[call-arg]
        self._driver = driver

    def _begin(self) -> None:
        self._run(super()._begin)  # type: ignore[misc]

    def commit(self, begin: bool = True) -> None:
        self._run(super().commit, begin)  # type: ignore[misc]

    def rollback(self, begin: bool = True) -> None:
        self._run(super().rollback, begin)  # type: ignore[misc]

    def _run(self, statement: Callable[..., None], *values: object) -> None:
        connection = self.db.connection()
        try:
            statement(*values)
        except BaseException as error:
            self._driver.close_if_unfinished(connection, _of_the_driver(error))
            raise


class _Transaction(_Watched, pw._transaction):
    """As Peewee's own, but the error that ended it is what is raised.

    When a file cannot be written, SQLite rolls back by itself, and refuses to do so again; a connection that is gone
    has rolled back as well.
    """

    def __init__(self, database: pw.Database, driver: Driver) -> None:
        super().__init__(database, driver, *driver.begin.split()[1:])

    def __enter__(self) -> _Transaction:
        self._begin()
        self.db.push_transaction(self)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.db.pop_transaction()  # below it may be a `manual_commit`, in which the application has begun nothing
        if exc_type:
            self.rollback(False)
            return
        try:
            self.commit(False)
        except Exception:
            self.rollback(False)
            raise

    def rollback(self, begin: bool = True) -> None:
        connection = self.db.connection()
        try:
            if self._driver.in_transaction(connection) and not self._driver.is_broken(connection):
                super().rollback(begin)
                return
        except pw.PeeweeException:
            if not self._driver.is_broken(connection):
                raise
        if self._driver.in_transaction(connection):
            self._driver.hear(connection)  # that it is gone: else it would seem to be in the transaction until used
        self.db._clear_commit_callbacks()


class _Savepoint(_Watched, pw._savepoint):
    """As Peewee's own, but the error that ended it is what is raised.

    MariaDB undoes the whole transaction in a deadlock, with its savepoints, and refuses to go back to one.
    """

    def commit(self, begin: bool = True) -> None:
        try:
            super().commit(begin)
        except BaseException:  # Peewee goes back for an Exception only
            self.rollback(begin=False)
            raise

    def rollback(self, begin: bool = True) -> None:
        with suppress(pw.PeeweeException):
            super().rollback(begin)


class _Local(threading.local, Waiting):
    """What a store keeps of each thread."""

    connection: Connection | None = None
    lost: bool = False  # whether xq has closed a connection that was gone, and has no other yet


def _is_manual(transaction: object) -> bool:
    """Whether the application begins and ends by itself what there may be of a transaction."""
    return transaction is None or isinstance(transaction, pw._manual)


def _settle_at_the_end(database: Any, local: _Local) -> None:
    """Have Peewee's own commit() and rollback(), which notify no one, make the calls that wait in this thread."""
    waiting: WeakSet[_Local] | None = vars(database).get("_xq_waiting")
    if waiting is not None:
        waiting.add(local)
        return
    waiting = database._xq_waiting = WeakSet([local])
    plain = type(database).commit, type(database).rollback
    of = ref(database)

    def then_settle(end: Callable[[Any], None]) -> Callable[[], None]:
        def ended() -> None:
            end(of())
            for each in held_by(waiting):
                each.settle()

        return ended

    database.commit, database.rollback = map(then_settle, plain)


class PeeweeStore(OrmStore[M]):
    """A Peewee model as a `xq.core.ports.Store`.

    The model's database is looked up at each call, so a DatabaseProxy may be initialised later and `bind()` works.
    """

    def __init__(self, model: type[M]) -> None:
        if not (isinstance(model, type) and issubclass(model, pw.Model)):
            raise ConfigurationError(f"upgrade takes a Peewee model, not {shown(model)}")
        if model is Task:
            raise ConfigurationError("xq.Task is abstract and has no table: upgrade the models that inherit from it")
        meta = model._meta
        if meta.primary_key is False:
            raise ConfigurationError(f"{model.__name__} has no primary key: a queue needs one to name its tasks")
        self.model = model
        self._meta = meta
        self.name = model.__name__
        self.table = meta.table_name
        self.schema = meta.schema or ""
        self.advice = (
            f"db.create_tables([{self.name}]) creates a new table, with all that the queue needs; "
            "to one that is there add its columns first"
        )
        self.fields = tuple(_field(field) for field in meta.sorted_fields)
        self.key = tuple(field.name for field in meta.get_primary_keys())
        self._names = [field.name for field in self.fields]
        self._plain = model.__init__ is pw.Model.__init__
        self.may_fail_to_read = bool(self._readers) or not self._plain
        if self._plain:
            self._make_hydration()
        self._local = _Local()
        self._engines: dict[type, str] = {}
        self.connected: Callable[[Any], bool] = lambda connection: False

    @property
    def database(self) -> pw.Database:
        database = self._meta.database
        return database.obj if isinstance(database, pw.Proxy) else database

    @property
    def _known_database(self) -> pw.Database:
        database = self.database
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
            self._engines[kind] = found[0]
        return self._engines[kind]

    @property
    def driver(self) -> Driver:
        return DRIVERS[self.engine]

    def ready(self) -> Connection:
        local = self._local
        database: Any = self._meta.database
        if isinstance(database, pw.Proxy):
            database = database.obj
        connection = local.connection
        if (
            connection is None
            or connection.of() is not database
            or connection.raw is not database._state.conn  # type: ignore[attr-defined]
            or (within := connection.driver.transaction(connection.raw)) is None
        ):
            connection = local.connection = self._connection()
            within = connection.driver.in_transaction(connection.raw)
        connection.in_transaction = within
        if connection.set_up is not True:
            self._set_up(connection)
        if local.calls and not within:
            local.settle()
        return connection

    def failed(self, error: BaseException) -> NoReturn:
        try:
            with pw.__exception_wrapper__:  # type: ignore[attr-defined]
                raise error
        except BaseException as raised:
            super().failed(raised)

    def _checked(self) -> Connection:
        """Return the connection of this thread.

        Raises InterfaceError where the application must open it, ConfigurationError where xq does not know its driver.
        """
        local, database, driver = self._local, self._known_database, self.driver
        if database.is_closed() and not (database.autoconnect or local.lost):
            raise pw.InterfaceError(
                f"the connection of {self.name} is closed, and its database has autoconnect=False: call connect() first"
            )
        raw: Any = database.connection()
        connection = local.connection
        if connection is None or connection.raw is not raw or connection.of() is not database:
            driver.check(raw, ADVICE.get(self.engine, ""))
            kind = FileConnection if self.engine == "sqlite" else Connection
            local.connection = connection = kind(self, driver, raw, raw.cursor, database)
            local.lost = False
        return connection

    def _connection(self) -> Connection:
        """The connection of this thread; a new one where it is known to be gone and nothing depends on it."""
        database, driver = self._known_database, self.driver
        state: Any = database._state  # type: ignore[attr-defined]
        contexts = state.ctx  # which the application has entered, and which Peewee forgets with a connection
        try:
            connection = self._checked()
            if database.in_transaction() or driver.transaction(connection.raw) is not None:
                return connection
            with suppress(Exception):  # pymysql's "Already closed": Peewee forgets it all the same
                database.close()
            self._local.lost = True
            return self._checked()
        finally:
            state.ctx = contexts

    def atomic(self) -> AbstractContextManager[object]:
        database = self._known_database
        if _is_manual(database.top_transaction()) and not self.in_transaction():
            self._connection()
            return _Transaction(database, self.driver)
        return _Savepoint(database, self.driver)

    def undo_interrupted(self) -> None:
        database = self._known_database
        while isinstance(database.top_transaction(), _Transaction):
            database.pop_transaction()
        if _is_manual(database.top_transaction()) and self.in_transaction():
            _Transaction(database, self.driver).rollback(begin=False)

    def in_transaction(self) -> bool:
        # The driver knows of those as well that were begun by a plain BEGIN.
        return not self._known_database.is_closed() and self.driver.in_transaction(self._checked().raw)

    @property
    def may_wait(self) -> bool:
        return not self.in_transaction()

    def after_commit(self, call: Callable[[], None]) -> None:
        database = self._known_database
        transaction = database.top_transaction()
        if not self.in_transaction():
            call()
        elif _is_manual(transaction):
            self._local.add(call)
            _settle_at_the_end(database, self._local)
        else:
            database.after_commit(call)

    def function(self, name: str, arguments: int, function: Callable[..., Any]) -> None:
        self._known_database.connection().create_function(name, arguments, function, deterministic=True)

    def connect(self) -> None:
        self._known_database.connect(reuse_if_open=True)

    def connect_apart(self) -> None:
        self.connect()
        database: Any = self._known_database
        if isinstance(database, pool.PooledDatabase):
            # A pool's close_all() and close_stale() close the connections of other threads, too. libpq frees one at
            # once: a thread in the middle of a statement would then read what the server sends to the next connection.
            with database._pool_lock:
                database._in_use.pop(database.conn_key(database.connection()), None)
                database._pool_available.notify()

    def disconnect(self) -> None:
        if not self.has_threads:  # it is the others' as well, and with it an in-memory database would go
            return
        database: Any = self._known_database
        connection, pooled = self.in_use, isinstance(database, pool.PooledDatabase)
        withdrawn = pooled and connection is not None and database.conn_key(connection) not in database._in_use
        database.close()
        if withdrawn:
            database._close_raw(connection)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        if not self.has_threads:  # what is open there may be another thread's
            yield
            return
        try:
            yield
        finally:
            left = self._known_database.top_transaction() is not None or self.in_transaction()
            if left:
                self._abandon()
        if left:
            raise LeftOpen(f"the database of {self.name}")

    def _abandon(self) -> None:
        database = self._known_database
        while database.top_transaction() is not None:
            database.pop_transaction()
        _Transaction(database, self.driver).rollback(begin=False)

    def forked(self) -> None:
        database: Any = self.database
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
        return bool(self._known_database.thread_safe)

    # roles

    base = "xq.Task"

    @property
    def offers(self) -> Collection[str]:
        return [field.name for field in Task._meta.sorted_fields] if issubclass(self.model, Task) else ()

    # errors

    needed: Mapping[str, str] = {
        "runat": "a DoubleField or BigIntegerField (seconds since 1970) or a DateTimeField (UTC), or PostgreSQL's "
        "DateTimeTZField; a FloatField is single precision, which moves a timestamp by minutes",
    }
    database_error = pw.PeeweeException

    def of_the_driver(self, error: BaseException) -> BaseException:
        return _of_the_driver(error)

    @property
    def in_use(self) -> Any:
        database = self._known_database
        return None if database.is_closed() else database.connection()

    def connector(self) -> Connector:
        kind, database = ENGINES[self.engine], ref(self._known_database)

        def connect() -> Any:
            # Of the class below a pool, whose connections are to be given back.
            return kind._connect(database())  # type: ignore[attr-defined]

        def errors() -> Any:
            return pw.__exception_wrapper__  # type: ignore[attr-defined]

        return Connector(connect, SERVERS[self.engine], errors, lambda error: isinstance(error, pw.PeeweeException))

    def address(self) -> Address:
        database: Any = self._known_database
        name, parameters, engine = os.fspath(database.database), dict(database.connect_params), self.engine
        if engine == "sqlite":
            if name in ("", ":memory:") or "mode=memory" in name or name.startswith("file::memory:"):
                raise ConfigurationError(f"{self.name} is in memory, where no other process sees it: use a file")
            parameters |= {"database": name if name.startswith("file:") else os.path.abspath(name)}
            return Address(engine, parameters | {"timeout": database._timeout})
        if engine == "postgres":
            from psycopg.conninfo import conninfo_to_dict

            named = {name: value for name, value in parameters.items() if name not in OF_PSYCOPG}
            is_url = name.startswith(("postgresql://", "postgres://"))
            parameters = dict(conninfo_to_dict(name, **named) if is_url else {"dbname": name, **named})
        else:
            parameters["database"] = name
        password, passwd = (parameters.pop(name, None) for name in ("password", "passwd"))
        secrets = {name: parameters.pop(name) for name in SECRETS & parameters.keys()}
        return Address(engine, parameters, password or passwd, secrets)

    def instance(self, values: Sequence[Any]) -> M:
        made = self.model(__no_default__=1, **dict(zip(self._names, values, strict=True)))
        made._dirty.clear()  # type: ignore[attr-defined]
        return made

    def _make_hydration(self) -> None:
        """Have `hydrate` make plain instances as Peewee would, without a call for each of them."""
        make = hydrator(self.model, self._names, MARK)
        self.hydrate = make if not self._readers else lambda row, token=None: make(self.read(row), token)  # type: ignore[method-assign]

    def data(self, task: object) -> Mapping[str, Any] | None:
        if not isinstance(task, self.model):
            return None
        data: Mapping[str, Any] = task.__data__
        if not task.__rel__:
            return data
        # What was saved after it was assigned has a key by now.
        others = {name: other for name, other in task.__rel__.items() if data.get(name) is None}
        return {**data, **others} if others else data

    def defaults(self) -> dict[str, Any]:
        defaults: dict[str, Any] = self.model._meta.get_default_dict()
        return defaults

    def declared_defaults(self) -> dict[str, Any]:
        return {field.name: default for field, default in self._meta.defaults.items()}

    def reader(self, name: str, table: str, columns: Mapping[str, Kind]) -> PeeweeReader:
        return PeeweeReader(self.model, name, table, columns)

    def is_mine(self, model: type) -> bool:
        return model is self.model

    def attribute(self, name: str) -> str | None:
        meta = self.model._meta
        if name in meta.combined:
            return "a field"
        if any(field.backref == name for field in meta.backrefs):
            return "the back-reference of a foreign key"
        if any(name in vars(base) for base in self.model.__mro__ if base not in (pw.Model, object)):
            return "an attribute"
        return "an attribute of Peewee's Model" if hasattr(pw.Model, name) else None

    def with_the_table(self, creating: Callable[[Callable[[], None]], None], dropped: Callable[[], None]) -> None:
        # save() of an instance read earlier must not write back a status that the queue has moved on.
        self.model._meta.only_save_dirty = True
        schema: Any = self.model._schema  # type: ignore[attr-defined]
        drop_all = schema.drop_all

        def drop(*args: Any, **options: Any) -> None:
            dropped()
            drop_all(*args, **options)

        schema.drop_all = drop
        model: Any = self.model
        create_table = model.create_table.__func__

        def create(cls: Any, /, *args: Any, **options: Any) -> None:
            if cls is model:
                creating(lambda: create_table(cls, *args, **options))
            else:  # one that inherits from it, and is no queue
                create_table(cls, *args, **options)

        model.create_table = classmethod(create)


def _of_the_driver(error: BaseException) -> BaseException:
    """What the driver raised, where Peewee has put its own error around it, be it twice."""
    inner = getattr(error, "orig", None) if isinstance(error, pw.PeeweeException) else None
    return _of_the_driver(inner) if isinstance(inner, BaseException) else error


FIELDS: Mapping[Kind, type[pw.Field[Any]]] = {
    "bigauto": pw.BigAutoField,
    "bigint": pw.BigIntegerField,
    "integer": pw.IntegerField,
    "text": pw.TextField,
}


class PeeweeReader:
    """A model of a table beside that of another model, as a `xq.core.ports.Reader`."""

    def __init__(self, beside: type[pw.Model], name: str, table: str, columns: Mapping[str, Kind]) -> None:
        class Metadata(pw.Metadata):
            """Its database is that of the other model, which may be bound, or bound anew, later."""

            @property
            def database(self) -> Any:
                return beside._meta.database

            @database.setter
            def database(self, value: object) -> None:
                pass

        meta = {"table_name": table, "schema": beside._meta.schema, "model_metadata_class": Metadata}
        fields = {column: FIELDS[kind](null=True) for column, kind in list(columns.items())[1:]}
        first, kind = next(iter(columns.items()))
        key = {first: FIELDS[kind](primary_key=True)}
        self.model: type[pw.Model] = type(name, (pw.Model,), {**key, **fields, "Meta": type("Meta", (), meta)})

    def instance(self, values: Mapping[str, Any]) -> pw.Model:
        made = self.model(**values)
        made._dirty.clear()  # type: ignore[attr-defined]
        return made


def _field(field: pw.Field[Any]) -> Field:
    # A TimestampField stores ticks of its own and a foreign key the type of what it points to.
    declared = str(field.field_type).partition("(")[0].upper()  # without a precision, as in DATETIME(6)
    kind = "other" if isinstance(field, pw.TimestampField) else KINDS.get(declared, "other")
    held: Any = field.rel_field if isinstance(field, pw.ForeignKeyField) else field
    reads = type(held).python_value is not pw.Field.python_value or type(held).adapt is not pw.Field.adapt
    return Field(
        name=field.name,
        column=field.column_name,
        kind=kind,
        type=field.field_type,
        null=field.null,
        max_length=getattr(field, "max_length", None),
        to_database=_to_database(field),
        from_database=field.python_value if reads and type(held) not in NATIVE else None,
        native=NATIVE.get(type(field)),
        digits=_digits(field),
    )


def _digits(field: pw.Field[Any]) -> tuple[int, int] | None:
    decimal = field.rel_field if isinstance(field, pw.ForeignKeyField) else field
    return (decimal.max_digits, decimal.decimal_places) if isinstance(decimal, pw.DecimalField) else None


def _to_database(field: pw.Field[Any]) -> Callable[[Any], Any]:
    convert = field.db_value
    single = type(field) in NATIVE

    def to_database(value: Any) -> Any:
        converted = convert(value)
        if type(converted) in PLAIN:
            return converted
        if isinstance(converted, pw.Cast) and converted is not value:  # of a JSONField
            raise BadValue(
                f"Peewee writes {field.name!r} for MySQL, which MariaDB does not understand: "
                "give the database mariadb=True, as in MySQLDatabase(.., mariadb=True)"
            )
        if single and isinstance(converted, (list, tuple, set, frozenset, dict)):
            # Some drivers make SQL of these that fits what stands around it.
            raise BadType(f"{field.name!r} holds one value, not {shown(value)}")
        return _plain(converted)

    return to_database


def _plain(value: Any) -> Any:
    """What the driver is given: some fields wrap their value for Peewee's own query builder."""
    if isinstance(value, pw.Value):
        return value.value
    if type(value).__name__ == "Binary":  # what psycopg would have around bytes, and takes without
        return value.obj
    if isinstance(value, (pw.Model, type)):
        raise BadType(f"{shown(value)} is of another model than the field takes")
    if isinstance(value, pw.Function) and value.name == "json" and value.arguments:
        # SQLite's json(text) leaves the white space out, and so compares equal to what Peewee writes.
        return json.dumps(json.loads(value.arguments[0]), separators=(",", ":"))
    if isinstance(value, pw.Node):
        raise BadValue(f"xq writes plain values, not the SQL expression {shown(value)}")
    return value


def upgrade(
    model: type[T],
    fields: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[T], object] | None = None,
    workers: int = 1,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Queue[T]:
    """Give a model the power of a queue. Touches no database: it may stand at import time.

    `fields` maps roles to fields of the model, by name or as the field: status is required, the features say
    which others. A model that inherits from `xq.Task` has fields for them: `fields` is for those that you map yourself.
    `features` maps the names of features to their values. `statuses` maps the letters of the states
    to what the application stores in the status field. `tube_stats` names the tubes that are counted one by one.
    `worker` is what `Page.xq.run()` calls with each task, in `workers` threads (see `Queue.worker`).
    `methods` puts the verbs on the model (a sequence: only these). `clock` is for tests.

    The model's only_save_dirty is set, so that save() writes what the application changed and never moves a task
    back. Raises ConfigurationError, which says what does not fit.
    """
    store: Store[T] = PeeweeStore(model)  # type: ignore[type-var]
    return build(
        store,
        fields,
        features,
        statuses=statuses,
        tube_stats=tube_stats,
        worker=worker,
        workers=workers,
        methods=methods,
        clock=clock,
    )


def queue(
    fields: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    *,
    statuses: Mapping[str, str | int] | None = None,
    tube_stats: Sequence[str] | None = None,
    worker: Callable[[Any], object] | None = None,
    workers: int = 1,
    methods: bool | Sequence[str] = True,
    clock: Clock | None = None,
) -> Callable[[type[T]], type[T]]:
    """upgrade, as a class decorator: `@xq.queue(fields={"status": "status"}, features={"keep": True})`.

    Above a model that inherits from `xq.Task`: `@xq.queue(features={"keep": True})`.
    """
    options = {
        "statuses": statuses,
        "tube_stats": tube_stats,
        "worker": worker,
        "workers": workers,
        "methods": methods,
        "clock": clock,
    }
    return as_decorator(upgrade, fields, features, options)
