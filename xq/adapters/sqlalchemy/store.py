"""A mapped class or a table of SQLAlchemy: its fields, and instances made from rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncEngine

from xq.adapters.sqlalchemy.connections import SqlalchemyConnections, database_of, engine_of, watch
from xq.adapters.sqlalchemy.testing import under_test
from xq.adapters.sqlalchemy.unit import Guard, Unit
from xq.adapters.sqlalchemy.worker import run_in
from xq.adapters.stores import Connection, OrmModel
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.core.generated import hydrators
from xq.core.kinds import Field, Kind
from xq.core.tokens import TOKEN_ATTRIBUTE

M = TypeVar("M")

# The kind of a column by its type: the first that fits counts.
KINDS: Sequence[tuple[type[Any], Kind]] = (
    (sa.Enum, "text"),
    (sa.String, "text"),
    (sa.Boolean, "other"),
    (sa.BigInteger, "bigint"),
    (sa.Integer, "integer"),
    (sa.Double, "double"),
    (sa.Float, "float"),
    (sa.Numeric, "decimal"),
    (sa.Uuid, "uuid"),
    (sa.DateTime, "datetime"),
)
NATIVE: Mapping[type[Any], type] = {
    sa.Integer: int,
    sa.BigInteger: int,
    sa.SmallInteger: int,
    sa.String: str,
    sa.Text: str,
    sa.Float: float,
    sa.Double: float,
}
TYPES: Mapping[Kind, Callable[[int | None], Any]] = {
    "bigauto": lambda _: sa.BigInteger(),
    "bigint": lambda _: sa.BigInteger(),
    "integer": lambda _: sa.Integer(),
    "double": lambda _: sa.Double(),
    "text": lambda length: sa.String(length) if length else sa.Text(),
}
# How a value becomes one of the type: xq has keys as texts, too.
PARSERS: Sequence[tuple[type[Any], Callable[[Any], Any]]] = (
    (sa.Uuid, UUID),
    (sa.DateTime, datetime.fromisoformat),
    (sa.Date, date.fromisoformat),
    (sa.Time, time.fromisoformat),
    (sa.Numeric, Decimal),
)
NATIVE_ENUMS = ("postgresql", "mysql", "mariadb")
# The servers' drivers make the values of these.
SAFE = (sa.Boolean, sa.DateTime, sa.Date, sa.Numeric, sa.Uuid)
# What psycopg tells of a result's column, for types that ask it.
CODES: Mapping[Kind, int] = {"decimal": 1700, "float": 701, "double": 701}


class SqlalchemyModel(OrmModel[M]):
    """A mapped class. Implements `xq.core.connections.TaskModel`."""

    adds_columns = True
    offers: Collection[str] = ()
    needed: Mapping[str, str] = {
        "runat": "a Double or BigInteger (seconds since 1970), or a DateTime (UTC; on PostgreSQL with timezone=True)",
    }
    dialect: sa.Dialect  # of the engine, or that of the transaction that a call joins

    def __init__(self, model: type[M]) -> None:
        self.mapper = mapper = _mapper_of(model)
        table: Any = mapper.local_table
        self.model, self.name, self.mapped = mapper.class_, mapper.class_.__name__, table
        self.table, self.schema = table.name, table.schema or ""
        self.advice = (
            f"{self.name}.metadata.create_all(engine) creates the table, and {self.name}'s queue.install() the rest"
        )
        self._read_fields()
        self.key = tuple(mapper.get_property_by_column(column).key for column in mapper.primary_key)

    def _read_fields(self) -> None:
        vars(self).pop("_readers", None)
        mappers = self.mapper.self_and_descendants  # these have the same table
        found = {
            prop.key: prop.columns[0]
            for mapper in mappers
            for prop in mapper.column_attrs
            if isinstance(prop.columns[0], sa.Column)
        }
        order = {column: place for place, column in enumerate(self.mapped.columns)}
        self._columns = dict(sorted(found.items(), key=lambda pair: order[pair[1]]))
        self._names = [*self._columns]
        self.fields = tuple(self._field(name, column) for name, column in self._columns.items())
        self._polymorphic = (
            self._names.index(self.mapper.get_property_by_column(on).key)
            if ((on := self.mapper.polymorphic_on) is not None and isinstance(on, sa.Column))
            else None
        )
        self._key_at = [self._names.index(self.mapper.get_property_by_column(c).key) for c in self.mapper.primary_key]
        self._make_hydration()

    def _field(self, name: str, column: sa.Column[Any]) -> Field:
        kind = _kind(column)
        plain = type(column.type) in NATIVE
        return Field(
            name=name,
            column=column.name,
            kind=kind,
            type=str(column.type.compile(dialect=_apart(self.dialect))),
            null=bool(column.nullable),
            max_length=getattr(column.type, "length", None) if kind == "text" else None,
            to_database=lambda value: self._to_database(name, column, value),
            from_database=None if plain else self._reader(kind, column),
            native=NATIVE.get(type(column.type)),
            digits=(column.type.precision or 0, column.type.scale or 0) if kind == "decimal" else None,  # type: ignore[attr-defined]
            computed=column.computed is not None,
            declared=type(column.type).__name__,
        )

    def _to_database(self, name: str, column: sa.Column[Any], value: Any) -> Any:
        if isinstance(value, sa.ClauseElement) or hasattr(value, "__clause_element__"):
            raise BadValue(f"xq writes plain values, not the SQL expression {shown(value)}")
        if isinstance(value, (list, tuple, set, frozenset, dict)) and type(column.type) in NATIVE:
            raise BadType(f"{name!r} holds one value, not {shown(value)}")
        value = _parsed(column.type, value)
        dialect = _apart(self.dialect) if isinstance(column.type, sa.Uuid) else self.dialect
        process = column.type.dialect_impl(dialect).bind_processor(dialect)
        made = process(value) if process else value
        # MariaDB has the type, and its drivers do not know it.
        return made.hex if isinstance(made, UUID) and self.engine == "mariadb" else made

    def _reader(self, kind: Kind, column: sa.Column[Any]) -> Callable[[Any], Any] | None:
        made: dict[Any, Any] = {}

        def read(value: Any) -> Any:
            dialect = self.dialect
            if dialect not in made:
                made[dialect] = column.type.dialect_impl(dialect).result_processor(dialect, CODES.get(kind))
            return made[dialect](value) if made[dialect] else value

        return read

    @property
    def may_fail_to_read(self) -> bool:
        return not all(_is_safe(column.type, self.engine) for column in self._columns.values())

    engine: str

    def bring(self, columns: Mapping[str, tuple[Kind, int | None]]) -> None:
        for name, (kind, length) in columns.items():
            if name not in self.mapped.columns:
                self.mapped.append_column(sa.Column(name, TYPES[kind](length), nullable=True))
            if name not in self.mapper.attrs:
                self.mapper.add_property(name, orm.deferred(self.mapped.columns[name], group="xq"))
        self._read_fields()

    def _make_hydration(self) -> None:
        """Replace hydration by generated functions: what is loaded is the same, in fewer steps."""
        mapper = self.mapper
        for name in ("hydrate", "hydrate_all"):
            vars(self).pop(name, None)
        loaded = {*self._names}
        if mapper.polymorphic_on is not None or any(prop.key not in loaded for prop in mapper.column_attrs):
            return  # the class differs by row, or there are attributes to expire
        manager = mapper.class_manager
        lines = ["made = new()", "state, data = made._sa_instance_state, made.__dict__"]
        lines += [f"data[{name!r}] = values[{place}]" for place, name in enumerate(self._names)]
        lines += [f"state.key = model, ({''.join(f'values[{at}], ' for at in self._key_at)}), None"]
        lines += ["if events.load:", "    events.load(state, None)"]
        known = {"new": manager.new_instance, "events": manager.dispatch, "model": mapper.base_mapper.class_}
        make, make_all = hydrators(lines, TOKEN_ATTRIBUTE, **known)
        if self._readers:
            self.hydrate = lambda row, token=None: make(self.read(row), token)  # type: ignore[method-assign]
            self.hydrate_all = lambda rows, token=None: make_all(map(self.read, rows), token)  # type: ignore[method-assign]
        else:
            self.hydrate, self.hydrate_all = make, make_all  # type: ignore[method-assign]

    def instance(self, values: Sequence[Any]) -> M:
        mapper = self.mapper
        if self._polymorphic is not None:
            mapper = mapper.polymorphic_map.get(values[self._polymorphic], mapper)
        made: Any = mapper.class_manager.new_instance()
        state = sa.inspect(made)
        its = {name: value for name, value in zip(self._names, values, strict=True) if name in mapper.columns}
        state.dict.update(its)
        orm.make_transient_to_detached(made)
        mapper.class_manager.dispatch.load(state, None)
        read: M = made
        return read

    def data(self, task: object) -> Mapping[str, Any] | None:
        if not isinstance(task, self.model):
            return None
        state: Any = sa.inspect(task)
        values: Mapping[str, Any] = state.dict
        if state.key is None:
            return {name: values[name] for name in self._names if values.get(name) is not None}
        values = {**dict(zip(self.key, state.identity, strict=True)), **values}  # a commit expires the key, too
        return {name: values[name] for name in self._names if name in values}

    def declared_defaults(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, column in self._columns.items():
            default: Any = column.default
            if default is None or default.is_sequence or default.is_clause_element:
                continue
            found[name] = (lambda call=default.arg: call(None)) if default.is_callable else default.arg
        return found

    def reader(self, name: str, table: str, columns: Mapping[str, Kind]) -> SqlalchemyReader:
        return SqlalchemyReader(name, table, self.schema, columns)

    def is_mine(self, model: type) -> bool:
        return any(mapper.class_ is model for mapper in self.mapper.self_and_descendants)

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        column = self._columns[roles["status"].name]
        if isinstance(column.type, sa.Enum) and column.type.native_enum and self.dialect.name in NATIVE_ENUMS:
            raise ConfigurationError(
                f"{self.name}.{roles['status'].name} is an enum of {self.dialect.name} itself, to which xq cannot add "
                "a state, and which it cannot compare: declare it as sqlalchemy.Enum(..., native_enum=False)"
            )

    def stored(self, fields: Mapping[str, Any], statuses: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return `statuses=` with what the column stores in place of an enum's members."""
        name = fields.get("status", "")
        column = self._columns.get(name)
        if statuses is None or column is None:
            return None if statuses is None else dict(statuses)
        return {
            state: self._to_database(name, column, word) if isinstance(word, Enum) else word
            for state, word in statuses.items()
        }

    def attribute(self, name: str) -> str | None:
        if name in self.mapper.attrs:
            return "a mapped attribute"
        found = any(name in vars(base) for base in self.model.__mro__ if base is not object)
        return "an attribute" if found else None

    def with_the_table(self, creating: Callable[[Callable[[], None]], None], dropped: Callable[[], None]) -> None:
        """Do nothing: migrations, or `install`, make what the queue needs."""

    def named_fields(self, fields: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return `fields=` with the names of attributes in place of mapped attributes and columns."""
        return {role: getattr(named, "key", named) for role, named in (fields or {}).items()}


class SqlalchemyStore(SqlalchemyModel[M], SqlalchemyConnections):
    """A mapped class and its engine. Implements `xq.core.connections.Store`."""

    guarded: Guard

    def __init__(self, model: type[M], unbound: sa.Dialect | None = None) -> None:
        self._engine: sa.Engine | None = None
        self._unbound = unbound or DEFAULT  # until there is an engine
        self._unit: ContextVar[Unit | None] = ContextVar("xq_unit", default=None)
        SqlalchemyConnections.__init__(self, getattr(model, "__name__", str(model)), lambda: self._engine)
        SqlalchemyModel.__init__(self, model)

    @property
    def dialect(self) -> sa.Dialect:  # type: ignore[override]
        return self._unbound if self._engine is None else super().dialect

    @property
    def unit(self) -> Unit | None:  # type: ignore[override]
        return self._unit.get()

    def guard(self, names: Collection[str]) -> None:
        self.guarded = Guard(self)

    @contextmanager
    def joining(self, on: object) -> Iterator[None]:
        session = on() if isinstance(on, orm.scoped_session) else on
        unit = Unit(self, session) if isinstance(session, orm.Session) else None
        with super().joining(session):
            token = self._unit.set(unit)
            try:
                yield
            finally:
                self._unit.reset(token)

    def ready(self) -> Connection:
        if (unit := self._unit.get()) is not None:
            unit.flush()
        return super().ready()

    def under_test(self, session: Any) -> AbstractContextManager[None]:
        return under_test(self, session)

    def bind(self, engine: sa.Engine | AsyncEngine) -> None:
        """Have the queue use an engine from now on."""
        used = engine_of(engine)
        if "schema_translate_map" in engine.get_execution_options():
            raise ConfigurationError(
                f"the engine of {self.name} has a schema_translate_map, which xq's statements do not read: name the "
                "schema in __table_args__ = {'schema': ...}, or use a connection whose search_path has it"
            )
        self._engine = used
        database_of(self._engine)
        watch(engine.sync_engine if isinstance(engine, AsyncEngine) else engine)
        self._read_fields()  # their types have other names there

    def in_session(self, worker: Any) -> Callable[[Any], Any]:
        return run_in(self, worker)


def _parsed(kind: Any, value: Any) -> Any:
    """Return a value as the type has it. Raises ValueError, TypeError and OverflowError for what is none."""
    native = NATIVE.get(type(kind))
    if native is int and type(value) in (float, str):
        number = int(value)
        if type(value) is float and number != value:
            raise ValueError(f"{value} is no whole number")
        return number
    if native is float and type(value) is str:
        return float(value)
    if type(value) is not str or native is not None or getattr(kind, "as_uuid", True) is False:
        return value
    return next((parse(value) for base, parse in PARSERS if isinstance(kind, base)), value)


DEFAULT: sa.Dialect = sa.engine.default.StrCompileDialect()


def _mapper_of(model: Any) -> orm.Mapper[Any]:
    """Return the mapper of a class, or of one that is made for a table. Raises ConfigurationError."""
    if isinstance(model, sa.Table):
        if not model.primary_key.columns:
            raise ConfigurationError(f"the table {model.name} has no primary key: a queue needs one to name its tasks")
        return orm.registry().map_imperatively(type(model.name, (), {"metadata": model.metadata}), model)
    mapper = sa.inspect(model, raiseerr=False)
    if not isinstance(mapper, orm.Mapper):
        raise ConfigurationError(f"upgrade takes a mapped class or a Table of SQLAlchemy, not {shown(model)}")
    name = mapper.class_.__name__
    others = {other.local_table for other in mapper.base_mapper.self_and_descendants}
    if len(others) > 1:
        raise ConfigurationError(
            f"{name} is mapped by joined inheritance to {', '.join(sorted(map(str, others)))}: a queue needs one "
            "table, which may have a foreign key to these, or single-table inheritance"
        )
    if mapper.inherits is not None:
        base = mapper.base_mapper.class_.__name__
        raise ConfigurationError(f"{name} is in the table of {base}: upgrade {base}, whose tasks come back as {name}")
    if not isinstance(mapper.local_table, sa.Table):
        raise ConfigurationError(f"{name} is mapped to {mapper.local_table}: a queue needs one table")
    return mapper


def _apart(dialect: sa.Dialect) -> sa.Dialect:
    """Return another dialect in place of one that does not know its server yet: it would keep what it says now."""
    return dialect if getattr(dialect, "server_version_info", None) else type(dialect)()


class SqlalchemyReader:
    """A mapped class for one of xq's tables. Implements `xq.core.connections.Reader`."""

    def __init__(self, name: str, table: str, schema: str, columns: Mapping[str, Kind]) -> None:
        (first, kind), *others = columns.items()
        made = [sa.Column(first, TYPES[kind](None), primary_key=True)]
        made += [sa.Column(column, TYPES[kind](None)) for column, kind in others]
        registry = orm.registry()
        self.model: type[Any] = type(name, (), {})
        registry.map_imperatively(self.model, sa.Table(table, registry.metadata, *made, schema=schema or None))

    def instance(self, values: Mapping[str, Any]) -> Any:
        made: Any = self.model()
        columns = sa.inspect(self.model).column_attrs.keys()
        for name in values.keys() - {*columns}:
            setattr(made, name, values[name])
        for name in columns:
            orm.attributes.set_committed_value(made, name, values.get(name))
        return made


def _is_safe(kind: Any, engine: str) -> bool:
    """Return whether a type reads whatever a column may hold: a driver makes the value, or nothing does."""
    return type(kind) in NATIVE or (type(kind) in SAFE and engine != "sqlite")


def _kind(column: sa.Column[Any]) -> Kind:
    other: Kind = "other"
    held = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    kind = next((kind for base, kind in KINDS if isinstance(held, base)), other)
    if column.table is not None and column is column.table.autoincrement_column:
        return "bigauto" if kind == "bigint" else "auto"
    return "timestamptz" if kind == "datetime" and getattr(held, "timezone", False) else kind
