"""The Store of Django: a model of an app, on Django's own connections."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property, partial
from types import SimpleNamespace
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from django.apps.registry import Apps
from django.core.exceptions import FieldDoesNotExist
from django.db import (
    DEFAULT_DB_ALIAS,
    close_old_connections,
    connections,
    models,
    router,
    transaction,
)
from django.db import Error as DjangoError
from django.db.models import expressions
from django.db.models.base import ModelState
from django.db.models.fields.related_descriptors import ForeignKeyDeferredAttribute
from django.db.models.query_utils import DeferredAttribute
from django.db.models.signals import post_init, pre_init
from django.db.transaction import TransactionManagementError
from django.db.utils import load_backend
from django.utils.connection import ConnectionDoesNotExist

from xq.adapters.django.guard import Read, guard
from xq.adapters.django.lookup import APP, is_app_missing
from xq.adapters.drivers import DRIVERS, SERVERS, connect
from xq.adapters.stores import SECRETS, Connection, FileConnection, OrmStore, Waiting
from xq.core.errors import BadType, BadValue, ConfigurationError, LeftOpen, shown
from xq.core.ports import Address, Connector, Driver, Field, Kind, Row, keep

M = TypeVar("M", bound=models.Model)

log = logging.getLogger("django.db.backends")  # where Django logs its own statements

ENGINES: Final = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mariadb"}  # Django's vendor -> the dialect

# the dialect -> how Django gets connections of a driver that xq supports
ADVICE: Final = {
    "postgres": "pip install psycopg",
    "mariadb": "pip install pymysql, and in the settings: import pymysql; pymysql.install_as_MySQLdb()",
}

KINDS: Final[Mapping[str, Kind]] = {  # by get_internal_type()
    "AutoField": "auto",
    "SmallAutoField": "auto",
    "BigAutoField": "bigauto",
    "IntegerField": "integer",
    "SmallIntegerField": "integer",
    "PositiveIntegerField": "integer",
    "PositiveSmallIntegerField": "integer",
    "BigIntegerField": "bigint",
    "PositiveBigIntegerField": "bigint",
    "FloatField": "double",
    "CharField": "text",
    "TextField": "text",
    "SlugField": "text",
    "UUIDField": "uuid",
    "DateTimeField": "datetime",
    "DecimalField": "decimal",
}

# For these kinds the application gets the driver's value, and a value of this very type is sent unchanged.
NATIVE: Final[Mapping[type, type]] = {
    models.AutoField: int,
    models.BigAutoField: int,
    models.SmallAutoField: int,
    models.IntegerField: int,
    models.BigIntegerField: int,
    models.SmallIntegerField: int,
    models.PositiveIntegerField: int,
    models.PositiveBigIntegerField: int,
    models.PositiveSmallIntegerField: int,
    models.FloatField: float,
    models.CharField: str,
    models.TextField: str,
    models.SlugField: str,
    models.EmailField: str,
    models.URLField: str,
}

# Parameters of a driver's connect() that only Django's own connections use.
OF_DJANGO: Final = frozenset(
    {"context", "cursor_factory", "prepare_threshold", "autocommit", "detect_types", "check_same_thread", "conv"}
)

PLAIN: Final = (DeferredAttribute, ForeignKeyDeferredAttribute)  # attributes that only hold the value that was set


@cache
def _vendor(backend: str) -> str:
    """Return the vendor of a database backend, which may be a subclass of Django's under another name."""
    return str(load_backend(backend).DatabaseWrapper.vendor)


def where(connection: Any) -> list[object]:
    """Return which database a connection is to, according to the current settings."""
    there = connection.settings_dict
    return [there["NAME"], there["HOST"], there["PORT"]]


class Place:
    """The database of an alias, to which sessions and threads of xq belong. The test database is another one."""

    _known: WeakValueDictionary[tuple[str, ...], Place] = WeakValueDictionary()

    def __init__(self, connection: Any) -> None:
        self.alias = connection.alias
        self.vendor = connection.vendor  # the settings may have changed since the connection was opened
        self.at = where(connection)

    @classmethod
    def of(cls, connection: Any) -> Place:
        """Return the same object for all connections to a database."""
        name = (connection.alias, connection.vendor, *map(str, where(connection)))
        place = cls._known.get(name)
        return place if place is not None else cls._known.setdefault(name, cls(connection))

    def is_of(self, connection: Any) -> bool:
        """Return whether the settings of a connection still name this database."""
        same = connection.alias == self.alias and connection.vendor == self.vendor
        return same and self.is_in(connection.settings_dict)

    def is_in(self, settings: Mapping[str, Any]) -> bool:
        """Return whether these settings name this database."""
        name, host, port = self.at
        return bool(settings["NAME"] == name and settings["HOST"] == host and settings["PORT"] == port)

    def __repr__(self) -> str:
        return f"<database {self.alias!r}: {self.at[0]}>"


class _Immediate(transaction.Atomic):
    """An Atomic that locks SQLite for writing at once: a reader that writes later fails if another has written."""

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


class _Kept(Waiting):
    """What xq stores with a connection of Django's."""

    at: Sequence[object] | None = None  # the database to which xq opened the connection

    def __init__(self) -> None:
        self.connections: dict[DjangoStore[Any], Connection] = {}


class _Watched:
    """A driver for connections with observers: `execute_wrapper`, `connection.queries`, or a replaced `cursor`."""

    def __init__(self, driver: Driver, connection: Any) -> None:
        self._driver = driver
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def query(self, cursor: Callable[[], Any], sql: str, values: Sequence[Any]) -> list[Row]:
        return self._driver.rows(self._run(cursor, sql, values))

    def affected(self, cursor: Callable[[], Any], sql: str, values: Sequence[Any]) -> int:
        return int(self._run(cursor, sql, values).rowcount)

    def _run(self, cursor: Callable[[], Any], sql: str, values: Sequence[Any]) -> Any:
        made = cursor()
        _execute_seen(self._connection, made, sql, values, self._driver)
        return made


class DjangoStore(OrmStore[M]):
    """A Django model as a `xq.core.ports.Store`.

    It uses the database `using`; None asks the routers at each call for the database of writes.
    """

    needed: Mapping[str, str] = {
        "runat": "a FloatField or BigIntegerField (seconds since 1970) or a DateTimeField (UTC)",
    }
    installs = (
        "manage.py migrate installs it, where a migration has its InstallQueue (manage.py xq_makemigration); where "
        "processes differ, give all of them the same definition first"
    )
    advice = "manage.py migrate makes the table, and what the queue needs by the operation InstallQueue of a migration"

    def __init__(self, model: type[M], using: str | None = None) -> None:
        if not (isinstance(model, type) and issubclass(model, models.Model)):
            raise ConfigurationError(f"upgrade takes a model of Django's, not {shown(model)}")
        meta = model._meta
        name = model.__name__
        if meta.abstract:
            raise ConfigurationError(f"{name} is abstract and has no table: upgrade the models that inherit from it")
        if meta.proxy:
            concrete = meta.concrete_model.__name__
            raise ConfigurationError(f"{name} is a proxy: upgrade {concrete}, whose table it is")
        if meta.parents:
            raise ConfigurationError(
                f"{name} has some of its fields in the table of another model, but a task is one row: make it inherit "
                "from an abstract model, or refer to the other one by a OneToOneField"
            )
        self.model = model
        self.name = name
        self.using = using
        if is_app_missing():
            self.installs = f"add {APP!r} to INSTALLED_APPS. Then {self.installs}"
        self._places: dict[str, Place] = {}  # by alias; the sessions of a place end with it
        self._engine = self._find_engine()
        # Django has no other way to name a schema
        self.schema, _, self.table = _unquoted(meta.db_table, '"').rpartition('"."')
        self._concrete = tuple(meta.concrete_fields)
        self._attnames = [field.attname for field in self._concrete]
        self._attributes = [(field.name, field.attname) for field in self._concrete]
        self._relations = [field for field in self._concrete if field.is_relation]
        # The values of a new instance in fields that Django, or the database, fills on save.
        self._filled = [(field.name, nothing) for field in self._concrete if (nothing := _nothing(field))]
        self.fields = tuple(map(self._field, self._concrete))
        self.key = tuple(field.name for field in getattr(meta, "pk_fields", None) or [meta.pk])
        plain = model.__init__ is models.Model.__init__
        self._guarded: Sequence[str] = ()
        self._is_plain = (
            plain
            and model.from_db.__func__ is models.Model.from_db.__func__
            and all(type(vars(model).get(name)) in PLAIN for name in self._attnames)
        )
        self._is_made_plainly = plain
        self.connected: Callable[[], bool] = lambda: False

    def _find_engine(self) -> str:
        vendor = self.connection.vendor
        if vendor not in ENGINES:
            raise ConfigurationError(f"{self.name} is on {vendor}; xq speaks {', '.join(ENGINES)}")
        return ENGINES[vendor]

    def _speaks(self, connection: Any) -> bool:
        """Return whether a connection is, and by its settings still is, to a database of this store's vendor."""
        vendor = connection.vendor
        return ENGINES.get(vendor) == self._engine and _vendor(connection.settings_dict["ENGINE"]) == vendor

    @cached_property
    def _readers(self) -> list[tuple[int, Callable[[Any], Any]]]:
        # Computed late: the target of a foreign key is known only after all models are loaded.
        apart = {i for i, field in enumerate(self._concrete) if field.is_relation and not self._converters(field)}
        return [(i, read) for i, read in super()._readers if i not in apart]

    @property
    def may_fail_to_read(self) -> bool:
        if getattr(self.model, "only_xq_writes", False):
            return False
        return bool(self._readers) or not self._is_made_plainly

    @property
    def alias(self) -> str:
        """The alias of the database in the settings."""
        # Read several times in each call, so the answer is cached if there are no routers.
        return self.using or (router.db_for_write(self.model) if router.routers else DEFAULT_DB_ALIAS)

    @property
    def connection(self) -> Any:
        """Django's connection of this thread, which may not be open."""
        return connections[self.alias]

    @property
    def database(self) -> Place | None:
        try:
            connection = self.connection
        except ConnectionDoesNotExist:
            return None
        place = self._places.get(connection.alias)
        if place is None or not place.is_of(connection):
            if not self._speaks(connection):
                return None
            before, place = place, Place.of(connection)
            settings = connections.settings.get(connection.alias)
            # This thread's connection may be older than a change of the settings, for example in a test. Other threads
            # need the place, and its sessions, all the same.
            if before is None or (settings is not None and not before.is_in(settings)):
                self._places[connection.alias] = place
        return place

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
        wrapper = self.connection
        driver, kept = self.driver, vars(wrapper).get("_xq_kept") or self._kept(wrapper)
        connection: Connection | None = kept.connections.get(self)
        within = None if connection is None else self._transaction(wrapper, kept, driver)
        if within is None or connection is None or connection.raw is not wrapper.connection:
            connection = self._open()
            within = self._within(wrapper, driver)
        if "cursor" in vars(wrapper):  # a test or a profiler has replaced it, to forbid the database or to observe it
            wrapper.cursor().close()
        if not within and not wrapper.autocommit and self._engine != "postgres":
            # sqlite3 itself begins a transaction before some statements only, and pymysql does not learn of one from a
            # statement that returns rows.
            wrapper.connection.cursor().execute("BEGIN")
            within = True
        connection.in_transaction = within
        if connection.set_up is not True:
            self._set_up(connection)
        if kept.calls and not within:
            kept.settle()
        if wrapper.execute_wrappers or wrapper.queries_logged:
            watched = Connection(self, _Watched(driver, wrapper), connection.raw, connection.cursor, connection.of())
            watched.in_transaction = within
            return watched
        return connection

    def failed(self, error: BaseException) -> NoReturn:
        try:
            with self.connection.wrap_database_errors:
                raise error
        except BaseException as raised:
            super().failed(raised)

    @staticmethod
    def _kept(wrapper: Any) -> _Kept:
        found: _Kept | None = vars(wrapper).get("_xq_kept")
        if found is None:
            found = wrapper._xq_kept = _Kept()
        return found

    @staticmethod
    def _transaction(wrapper: Any, kept: _Kept, driver: Driver) -> bool | None:
        """Return whether a transaction is open on the connection of this thread.

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
        """Return the connection of this thread; a new one if it is lost and no transaction is open."""
        wrapper, driver, place = self.connection, self.driver, self.database
        if place is None:
            # `self.engine` may raise a more specific error
            raise ConfigurationError(f"{self.name} is on no database of {self.engine}")
        kept = self._kept(wrapper)
        if self._transaction(wrapper, kept, driver) is None:
            wrapper.ensure_connection()
            driver.check(wrapper.connection, ADVICE.get(self._engine, ""))
            kept.at = where(wrapper)
        raw, connection = wrapper.connection, kept.connections.get(self)
        if connection is None or connection.raw is not raw:
            # Not Django's own cursor: it supports one style of marks and no prepared statements.
            kind = FileConnection if self._engine == "sqlite" else Connection
            cursor = raw.cursor if self._engine == "sqlite" else partial(_bare_cursor, raw)
            connection = kept.connections[self] = kind(self, driver, raw, cursor, place)
        return connection

    def function(self, name: str, arguments: int, function: Callable[..., Any]) -> None:
        self._open().raw.create_function(name, arguments, function, deterministic=True)

    def atomic(self) -> AbstractContextManager[object]:
        kind = _Immediate if self._engine == "sqlite" else transaction.Atomic
        self._open()  # within a transaction a lost connection could not be replaced
        block: AbstractContextManager[object] = kind(self.alias, savepoint=True, durable=False)
        return block

    def in_transaction(self) -> bool:
        connection = self.connection
        return self._within(connection, self.driver)

    @property
    def may_wait(self) -> bool:
        # A TestCase wraps tests in transactions, and a waiter there polls.
        return not self.in_transaction() or (
            bool(blocks := self.connection.atomic_blocks) and all(block._from_testcase for block in blocks)
        )

    @staticmethod
    def _within(connection: Any, driver: Driver) -> bool:
        # Django does not know transactions begun by a plain BEGIN, and the driver not those that begin with the next
        # statement.
        if connection.in_atomic_block:
            return True
        return connection.connection is not None and driver.in_transaction(connection.connection)

    def undo_interrupted(self) -> None:
        connection = self.connection
        if not connection.in_atomic_block and not self.in_transaction():
            return
        _abandon_transaction(connection)

    def after_commit(self, call: Callable[[], None]) -> None:
        connection = self.connection
        if connection.in_atomic_block:
            transaction.on_commit(call, using=connection.alias)
        elif self.in_transaction():
            self._kept(connection).add(call)
        else:
            call()

    def connect(self) -> None:
        self._open()

    def connect_apart(self) -> None:
        self._open()

    def disconnect(self) -> None:
        self.connection.close()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._close_old()
        try:
            yield
        finally:
            left = [each for each in connections.all(initialized_only=True) if self._is_left_open(each)]
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
        """Close obsolete connections as Django does around a request.

        A worker's own connection ends with its thread.
        """
        self.connection.close_at = None
        close_old_connections()

    def forked(self) -> None:
        connection = self.connection
        if connection.connection is None:
            return
        keep(connection.connection)
        connection.connection = None
        _forget_transaction(connection)

    @property
    def has_threads(self) -> bool:
        return True

    def connector(self) -> Connector:
        address, driver = self.address(), SERVERS[self._engine]
        errors = (DjangoError, self.connection.Database.Error)
        return Connector(partial(connect, address), driver, nullcontext, lambda error: isinstance(error, errors))

    def address(self) -> Address:
        connection, engine = self.connection, self._engine
        given = connection.get_connection_params()
        parameters = {name: value for name, value in given.items() if name not in OF_DJANGO}
        if engine == "sqlite":
            file = os.fspath(parameters["database"])
            if connection.is_in_memory_db():
                raise ConfigurationError(f"{self.name} is in memory, where no other process sees it: use a file")
            parameters["database"] = file if file.startswith("file:") else os.path.abspath(file)
        elif engine == "mariadb":
            for ours, theirs in (("database", "db"), ("password", "passwd")):
                if theirs in parameters:
                    parameters[ours] = parameters.pop(theirs)
        password = parameters.pop("password", None)
        secrets = {name: parameters.pop(name) for name in SECRETS & parameters.keys()}
        return Address(engine, parameters, password, secrets)

    database_error = DjangoError

    def of_the_driver(self, error: BaseException) -> BaseException:
        cause = error.__cause__
        # Django's TransactionManagementError has a cause as well, an error of the application.
        return cause if isinstance(error, DjangoError) and isinstance(cause, self.connection.Database.Error) else error

    @property
    def in_use(self) -> Any:
        return self.connection.connection

    def instance(self, values: Sequence[Any]) -> M:
        if not self._is_plain or pre_init.receivers or post_init.receivers:
            read: M = self.model.from_db(self.alias, self._attnames, values)
            return read
        # What from_db() does, in half the time.
        model: Any = self.model
        instance = model.__new__(model)
        state = instance._state = ModelState()
        state.db, state.adding = self.alias, False
        attributes = instance.__dict__
        attributes.update(zip(self._attnames, values, strict=True))
        state.xq = Read(instance.pk, {name: attributes[name] for name in self._guarded})
        return instance

    def data(self, task: object) -> Mapping[str, Any] | None:
        if not isinstance(task, self.model):
            return None
        attributes = task.__dict__  # it lacks deferred fields
        data = {name: attributes[attribute] for name, attribute in self._attributes if attribute in attributes}
        for field in self._relations:
            # an object that was unsaved then may have a key by now
            if data.get(field.name) is None and field.is_cached(task):
                data[field.name] = field.get_cached_value(task)
        for name, nothing in self._filled:
            if name in data and isinstance(data[name], nothing):
                del data[name]
        return data

    def defaults(self) -> dict[str, Any]:
        return {name: value() if callable(value) else value for name, value in self.declared_defaults().items()}

    def declared_defaults(self) -> dict[str, Any]:
        return dict(self._defaults)

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        """Return the values of a new instance, as Django sets them, without those that the database itself fills."""
        found: dict[str, Any] = {}
        for field in self._concrete:
            if _is_of_now(field):
                found[field.name] = partial(field.pre_save, SimpleNamespace(), True)
            elif field.has_default():
                found[field.name] = field.default
            elif self._begins_empty(field):
                found[field.name] = ""
        return found

    @staticmethod
    def _begins_empty(field: Any) -> bool:
        filled = bool(_nothing(field)) or _is_generated(field)
        return bool(field.empty_strings_allowed and not field.null and not filled and not field.primary_key) and (
            field.get_default() == ""
        )

    def reader(self, name: str, table: str, columns: Mapping[str, Kind]) -> DjangoReader:
        return DjangoReader(self, name, table, columns)

    def is_mine(self, model: type) -> bool:
        return getattr(getattr(model, "_meta", None), "concrete_model", None) is self.model

    def attribute(self, name: str) -> str | None:
        try:
            self.model._meta.get_field(name)
            return "a field"
        except FieldDoesNotExist:
            pass
        if name in self._attnames:
            return "the column of a foreign key"
        if any(name in vars(base) for base in self.model.__mro__ if base not in (models.Model, object)):
            return "an attribute"
        return "an attribute of Django's Model" if hasattr(models.Model, name) else None

    def with_the_table(self, creating: Callable[[Callable[[], None]], None], dropped: Callable[[], None]) -> None:
        """Do nothing: migrations create and drop tables."""

    base = "xq.adapters.django.TaskFields"

    @property
    def offers(self) -> Collection[str]:
        from xq.adapters.django.task_fields import TaskFields  # models are loaded by now

        return [field.name for field in TaskFields._meta.fields] if issubclass(self.model, TaskFields) else ()

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        zone = self.connection.timezone_name
        for role, field in roles.items():
            if field.kind == "datetime" and zone != "UTC":
                raise ConfigurationError(
                    f"role {role!r}: Django writes {self.name}.{field.name} in the time zone {zone} to this database, "
                    "and a queue writes UTC: set USE_TZ = True and no TIME_ZONE of the database, or take a FloatField "
                    "(seconds since 1970)"
                )

    def guard(self, names: Collection[str]) -> None:
        """Make save() write these fields only if the application has changed them."""
        self._guarded = [field.attname for field in self._concrete if field.name in names]
        guard(self.model, self._guarded)

    def _field(self, field: Any) -> Field:
        connection = self.connection
        related = field.is_relation  # the related model may not be loaded yet
        kind: Kind = "other" if related else KINDS.get(field.get_internal_type(), "other")
        if kind == "datetime" and connection.vendor == "postgresql":
            kind = "timestamptz"
        converters = [] if related else self._converters(field)
        reads = bool(converters) or hasattr(field, "from_db_value")
        held = field.output_field if _is_generated(field) else field
        decimal = (held.max_digits, held.decimal_places) if kind == "decimal" else None
        return Field(
            name=field.name,
            column=_unquoted(field.column, "`" if self._engine == "mariadb" else '"'),
            kind=kind,
            type="" if related else self._declared(held),
            null=field.null,
            max_length=getattr(held, "max_length", None) if kind == "text" else None,
            to_database=partial(self._to_database, field),
            from_database=self._from_database(field) if related or reads else None,
            native=NATIVE.get(type(field)),
            digits=decimal,
            computed=_is_generated(field),
        )

    def _declared(self, field: Any) -> str:
        """Return the type of a column as Django declares it.

        Django would ask MariaDB whether it has a UUID type, but upgrading a model must not connect to a server.
        """
        connection = self.connection
        usual = getattr(type(connection), "_data_types", None)
        if usual is None or "data_types" in vars(connection):
            return field.db_type(connection) or ""
        try:
            vars(connection)["data_types"] = usual
            return field.db_type(connection) or ""
        finally:
            del vars(connection)["data_types"]

    def _converters(self, field: Any) -> list[Callable[..., Any]]:
        column, connection = field.get_col(self.table), self.connection
        return [*connection.ops.get_db_converters(column), *column.get_db_converters(connection)]

    def _from_database(self, field: Any) -> Callable[[Any], Any] | None:
        """Return a function that reads a value as Django does. The target of a foreign key is resolved on first use."""
        found: list[Any] = []
        makes_numbers = self._engine == "sqlite" and isinstance(field, models.DecimalField)

        def read(value: Any) -> Any:
            if not found:
                column = field.get_col(self.table)
                found.append((column, self._converters(field)))
            column, converters = found[0]
            connection = self.connection
            # Used to validate a value by reading it back before the database has stored it:
            if hasattr(value, "obj") and hasattr(value, "dumps"):  # psycopg's wrapper of a JSON value
                value = (value.dumps or json.dumps)(value.obj)
            elif makes_numbers and isinstance(value, (str, Decimal)):
                value = float(value)
            for convert in converters:
                value = convert(value, column, connection)
            return value

        return read

    def _to_database(self, field: Any, value: Any) -> Any:
        if hasattr(value, "resolve_expression"):
            raise BadValue(f"xq writes plain values, not the SQL expression {shown(value)}")
        if isinstance(value, models.Model):
            if not field.is_relation or not isinstance(value, field.remote_field.model):
                raise BadType(f"{shown(value)} is of another model than the field takes")
            value = getattr(value, field.target_field.attname)
            if value is None:
                raise BadValue(f"{field.name!r} refers to an instance that was never saved")
        elif isinstance(value, type):
            raise BadType(f"{field.name!r} holds a value, not {shown(value)}")
        stored = field.get_db_prep_save(value, connection=self.connection)
        if self._engine == "mariadb":  # its drivers accept and return UUIDs as objects, and Django's backend uses text
            if isinstance(field, models.DateTimeField) and isinstance(stored, str):
                return datetime.fromisoformat(stored)
            if isinstance(stored, UUID):
                return str(stored)
        if isinstance(stored, int) and type(stored) not in (int, bool):
            return int(stored)  # psycopg's own integer types, one per size
        if isinstance(stored, str) and type(stored) is not str:
            return str.__str__(stored)  # the text of a member of TextChoices
        return stored


def _is_of_now(field: Any) -> bool:
    return getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)


def _nothing(field: Any) -> tuple[type, ...]:
    """Return the types of the values that an unsaved instance has in fields filled by Django or the database."""
    by_django = [type(None)] if _is_of_now(field) else []
    by_database = [expressions.DatabaseDefault] if getattr(field, "has_db_default", lambda: False)() else []
    return (*by_django, *by_database)


def _is_generated(field: Any) -> bool:
    """Return whether a field is a GeneratedField (Django 5.0 and later)."""
    return bool(getattr(field, "generated", False))


def _unquoted(name: str, quote: str) -> str:
    """Return a name as it is in the database: Django uses a quoted one unchanged."""
    return name[1:-1] if len(name) > 2 and name.startswith(quote) and name.endswith(quote) else name


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


def _bare_cursor(connection: Any) -> Any:
    if hasattr(connection, "pgconn"):
        return _plain_cursors()(connection)  # Django's own cursor puts values into the text
    return connection.cursor()


@cache
def _plain_cursors() -> Any:
    from psycopg import Cursor

    return Cursor


def _execute_seen(connection: Any, cursor: Any, sql: str, values: Sequence[Any], driver: Driver) -> None:
    """Run a statement as Django runs its own, visible to `execute_wrapper` and `connection.queries`."""

    def execute(sql: str, values: Any, many: bool, context: Any) -> None:
        driver.execute(cursor, sql, values)

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


FIELDS: Final[Mapping[Kind, type]] = {
    "bigauto": models.BigAutoField,
    "bigint": models.BigIntegerField,
    "integer": models.IntegerField,
    "text": models.TextField,
}


class DjangoReader:
    """A model of a table beside that of another model, as a `xq.core.ports.Reader`. Migrations do not see it."""

    def __init__(self, beside: DjangoStore[Any], name: str, table: str, columns: Mapping[str, Kind]) -> None:
        class Manager(models.Manager):
            """A manager on the database of the other model."""

            def get_queryset(self) -> Any:
                return super().get_queryset().using(beside.alias)

        meta = {
            "app_label": beside.model._meta.app_label,
            "apps": Apps(),
            "base_manager_name": "objects",
            "db_table": table,
            "managed": False,
        }
        (first, kind), *others = columns.items()
        fields: dict[str, Any] = {column: FIELDS[kind](null=True) for column, kind in others}
        key = {first: FIELDS[kind](primary_key=True)}
        attributes = {"__module__": __name__, "objects": Manager(), "Meta": type("Meta", (), meta)}
        self.model: type[models.Model] = type(name, (models.Model,), {**key, **fields, **attributes})

    def instance(self, values: Mapping[str, Any]) -> models.Model:
        columns = {field.attname for field in self.model._meta.concrete_fields}
        made = self.model(**{name: value for name, value in values.items() if name in columns})
        for name in values.keys() - columns:
            setattr(made, name, values[name])
        made._state.adding = False
        return made
