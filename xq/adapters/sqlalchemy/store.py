"""A mapped class or a table of SQLAlchemy: its fields, and instances made from rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial
from typing import Any, TypeVar, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects.mysql import MEDIUMTEXT
from sqlalchemy.exc import CompileError
from sqlalchemy.ext.asyncio import AsyncEngine

from xq.adapters.sqlalchemy import testing
from xq.adapters.sqlalchemy.connections import SqlalchemyConnections, database_of
from xq.adapters.sqlalchemy.engines import engine_of
from xq.adapters.sqlalchemy.joined import check_schema, watch
from xq.adapters.sqlalchemy.unit import InstanceRules, Unit
from xq.adapters.sqlalchemy.worker import prepare, run_in
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.core.generated import hydrators
from xq.core.kinds import WIDE, Field, Kind
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.drivers.stores import Connection, OrmModel

M = TypeVar("M")

# The kind of a column by its type: the first that fits counts.
KINDS: Sequence[tuple[type[Any], Kind]] = (
    (sa.String, "text"),
    (sa.BigInteger, "bigint"),
    (sa.Integer, "integer"),
    (sa.Double, "double"),
    (sa.Float, "float"),
    (sa.Numeric, "decimal"),
    (sa.Uuid, "uuid"),
    (sa.DateTime, "datetime"),
)
NATIVE: Mapping[type[Any], type] = {
    **dict.fromkeys((sa.Integer, sa.BigInteger, sa.SmallInteger), int),
    **dict.fromkeys((sa.String, sa.Text), str),
    **dict.fromkeys((sa.Float, sa.Double), float),
}
WIDE_TEXT = sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")
TYPES: Mapping[Kind, Callable[[int | None], Any]] = {
    "bigauto": lambda _: sa.BigInteger(),
    "bigint": lambda _: sa.BigInteger(),
    "integer": lambda _: sa.Integer(),
    "double": lambda _: sa.Double(),
    "text": lambda length: sa.String(length) if length else sa.Text(),
}
# How a value becomes one of the type: xq has keys as texts, too.
PARSERS: Sequence[tuple[type[Any], Callable[[Any], Any]]] = (
    (sa.Integer, int),
    (sa.Float, float),
    (sa.Uuid, UUID),
    (sa.DateTime, datetime.fromisoformat),
    (sa.Date, date.fromisoformat),
    (sa.Time, time.fromisoformat),
    (sa.Numeric, Decimal),
)
# The servers' drivers make the values of these, and nothing those of NATIVE, so that reading one never fails.
SAFE = (sa.Boolean, sa.DateTime, sa.Date, sa.Numeric, sa.Uuid)
# What psycopg tells of a result's column, for types that ask it.
CODES: Mapping[Kind, int] = {"decimal": 1700, "float": 701, "double": 701}


class SqlalchemyStore(OrmModel[M], SqlalchemyConnections):
    """A mapped class and its engine. Implements `xq.core.connections.Store`."""

    adds_columns = True
    offers: Collection[str] = ()
    forwards = "run alembic upgrade or xq install with it, or call install(forward=True)"
    needed: Mapping[str, str] = {
        "runat": "a Double or BigInteger (seconds since 1970), or a DateTime (UTC; on PostgreSQL with timezone=True)",
    }
    guarded: InstanceRules

    def __init__(self, model: type[M], unbound: sa.Dialect | None = None) -> None:
        self._engine: sa.Engine | None = None
        self._unbound = unbound or DEFAULT  # until there is an engine
        self._unit: ContextVar[Unit | None] = ContextVar("xq_unit", default=None)
        self.mapper = mapper = _mapper_of(model)
        self.model, self.mapped = mapper.class_, (table := cast(sa.Table, mapper.local_table))
        self.table, self.schema = table.name, table.schema or ""
        SqlalchemyConnections.__init__(self, self.model.__name__, lambda: self._engine)
        self.advice = (
            f"{self.name}.metadata.create_all(engine) creates the table, and {self.name}'s queue.install() the rest"
        )
        self.key = tuple(mapper.get_property_by_column(column).key for column in mapper.primary_key)
        # Where a session reads on a replica, it finds the engine for writes by the statement.
        self._of_the_model = {"bind_arguments": {"mapper": mapper, "clause": sa.update(table)}}
        self._read_fields()

    def _read_fields(self) -> None:
        vars(self).pop("_readers", None)
        mappers = self.mapper.self_and_descendants  # these have the same table
        names = {prop.columns[0]: prop.key for mapper in mappers for prop in mapper.column_attrs}
        self._columns = {names[column]: column for column in self.mapped.columns if column in names}
        self._names = [*self._columns]
        self.fields = tuple(self._field(name, column) for name, column in self._columns.items())
        self._make_hydration()

    def _field(self, name: str, column: sa.Column[Any]) -> Field:
        kind = _kind(column)
        return Field(
            name=name,
            column=column.name,
            kind=kind,
            type=self._declared(column),
            null=bool(column.nullable),
            max_length=getattr(column.type, "length", None) if kind == "text" else None,
            to_database=lambda value: self._to_database(name, column, value),
            from_database=None if type(column.type) in NATIVE else self._reader(kind, column),
            native=NATIVE.get(type(column.type)),
            digits=(column.type.precision or 0, column.type.scale or 0) if kind == "decimal" else None,  # type: ignore[attr-defined]
            computed=column.computed is not None,
            reads_sent=not isinstance(column.type, sa.TypeDecorator),  # psycopg, say, wraps JSON and bytes
            declared=type(column.type).__name__,
        )

    def _declared(self, column: sa.Column[Any]) -> str:
        try:
            declared = str(column.type.compile(dialect=_apart(self.dialect)))
            return re.sub(r"\(.*\)", "", declared) if _kind(column) == "other" else declared  # BINARY(16), say
        except CompileError:  # of another database, as JSONB: Alembic's revisions have the SQL of each
            return type(column.type).__name__.upper()

    def _to_database(self, name: str, column: sa.Column[Any], value: Any) -> Any:
        if isinstance(value, sa.ClauseElement) or hasattr(value, "__clause_element__"):
            raise BadValue(f"xq writes plain values, not the SQL expression {shown(value)}")
        if isinstance(value, (list, tuple, set, frozenset, dict)) and type(column.type) in NATIVE:
            raise BadType(f"{name!r} holds one value, not {shown(value)}")
        value = _parsed(column.type, value)
        dialect = _apart(self.dialect) if isinstance(column.type, sa.Uuid) else self.dialect
        process = column.type.dialect_impl(dialect).bind_processor(dialect)
        made = process(value) if process else value
        if isinstance(getattr(made, "obj", None), bytes):  # a memoryview, or psycopg's Binary
            made = made.obj
        # MariaDB has the type, and its drivers do not know it.
        return made.hex if isinstance(made, UUID) and self.engine == "innodb" else made

    def _reader(self, kind: Kind, column: sa.Column[Any]) -> Callable[[Any], Any] | None:
        @cache
        def of(dialect: sa.Dialect) -> Callable[[Any], Any]:
            return column.type.dialect_impl(dialect).result_processor(dialect, CODES.get(kind)) or (lambda value: value)

        return lambda value: of(self.dialect)(value)

    @property
    def may_fail_to_read(self) -> bool:
        safe = {*NATIVE} if self.engine == "sqlite" else {*NATIVE, *SAFE}
        return not safe.issuperset(type(column.type) for column in self._columns.values())

    def bring(self, columns: Mapping[str, tuple[Kind, int | None]]) -> None:
        for name, (kind, length) in columns.items():
            if name not in self.mapped.columns:
                made = WIDE_TEXT if length == WIDE else TYPES[kind](length)
                self.mapped.append_column(sa.Column(name, made, nullable=True))
            if name not in self.mapper.attrs:
                self.mapper.add_property(name, orm.deferred(self.mapped.columns[name], group="xq"))
        self._read_fields()

    def _make_hydration(self) -> None:
        """Replace hydration by generated functions: what is loaded is the same, in fewer steps."""
        mapper = self.mapper
        loaded = {*self._names}
        if mapper.polymorphic_on is not None or any(prop.key not in loaded for prop in mapper.column_attrs):
            return  # the class differs by row, or there are attributes to expire
        manager, key = mapper.class_manager, [self._names.index(name) for name in self.key]
        lines = ["made = new()", "state, data = made._sa_instance_state, made.__dict__"]
        lines += [f"data[{name!r}] = values[{place}]" for place, name in enumerate(self._names)]
        lines += [f"state.key = model, ({''.join(f'values[{at}], ' for at in key)}), None"]
        lines += ["if events.load:", "    events.load(state, None)"]
        known = {"new": manager.new_instance, "events": manager.dispatch, "model": mapper.base_mapper.class_}
        make, make_all = hydrators(lines, TOKEN_ATTRIBUTE, **known)
        if self._readers:
            self.hydrate = lambda row, token=None: make(self.read(row), token)  # type: ignore[method-assign]
            self.hydrate_all = lambda rows, token=None: make_all(map(self.read, rows), token)  # type: ignore[method-assign]
        else:
            self.hydrate, self.hydrate_all = make, make_all  # type: ignore[method-assign]

    def instance(self, values: Sequence[Any]) -> M:
        mapper, its = self.mapper, dict(zip(self._names, values, strict=True))
        if mapper.polymorphic_on is not None:
            kind = its.get(mapper.get_property_by_column(mapper.polymorphic_on).key)
            mapper = mapper.polymorphic_map.get(kind, mapper)
        made: Any = mapper.class_manager.new_instance()
        state = sa.inspect(made)
        state.dict.update({name: value for name, value in its.items() if name in mapper.columns})
        orm.make_transient_to_detached(made)
        mapper.class_manager.dispatch.load(state, None)
        read: M = made
        return read

    def data(self, task: object) -> Mapping[str, Any] | None:
        if not isinstance(task, self.model):
            return None
        state, values = orm.attributes.instance_state(task), vars(task)
        if (key := state.key) is None:
            values = {**self._related(values), **values} if self._relations.keys() & values.keys() else values
            return {name: values[name] for name in self._names if values.get(name) is not None}
        if self.key[0] not in values:  # a commit expires the key, too
            values = {**dict(zip(self.key, key[1], strict=True)), **values}
        return {name: values[name] for name in self._names if name in values}

    @cached_property
    def _relations(self) -> Mapping[str, Any]:
        """The relationships that a session writes, by name."""
        mappers = self.mapper.self_and_descendants
        return {name: each for mapper in mappers for name, each in mapper.relationships.items() if not each.viewonly}

    def _related(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a new instance's many-to-ones. Raises BadValue for what only a session writes."""
        found, names = dict[str, Any](), {column: name for name, column in self._columns.items()}
        for name in self._relations.keys() & values.keys():
            other, prop = values[name], self._relations[name]
            if other is None or (prop.uselist and not other):
                continue
            key: dict[str, Any] = {"": None}
            if prop.direction is orm.MANYTOONE and (its := orm.attributes.instance_state(other)).key:
                attribute = its.mapper.get_property_by_column
                known = {
                    attribute(column): each for column, each in zip(its.mapper.primary_key, its.key[1], strict=True)
                }
                pairs = [(names[column], attribute(remote)) for column, remote in prop.local_remote_pairs]
                key = {column: known.get(remote, its.dict.get(remote.key)) for column, remote in pairs}
            if None in key.values():
                raise BadValue(
                    f"{name!r} of a new {self.name} is written by a session only: make the put a part of one, as in "
                    "put(order, on=session)"
                )
            found |= key
        return found

    def declared_defaults(self) -> dict[str, Any]:
        defaults: list[tuple[str, Any]] = [(name, column.default) for name, column in self._columns.items()]
        found = [(name, it) for name, it in defaults if it and not (it.is_sequence or it.is_clause_element)]
        counted = self.mapper.version_id_generator and self.mapper.version_id_col
        first = {name: 1 for name, column in self._columns.items() if column is counted}
        return first | {name: partial(it.arg, None) if it.is_callable else it.arg for name, it in found}

    def reader(self, name: str, table: str, columns: Mapping[str, Kind]) -> SqlalchemyReader:
        return SqlalchemyReader(name, table, self.schema, columns)

    def is_mine(self, model: type) -> bool:
        return any(mapper.class_ is model for mapper in self.mapper.self_and_descendants)

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        column = self._columns[roles["status"].name]
        if isinstance(column.type, sa.Enum) and column.type.native_enum and self.dialect.supports_native_enum:
            raise ConfigurationError(
                f"{self.name}.{roles['status'].name} is an enum of {self.dialect.name} itself, to which xq cannot add "
                "a state, and which it cannot compare: declare it as sqlalchemy.Enum(..., native_enum=False)"
            )

    def stored(self, fields: Mapping[str, Any], statuses: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return `statuses=` with what the column stores in place of an enum's members."""
        name = fields.get("status", "")
        if statuses is None or (column := self._columns.get(name)) is None:
            return None if statuses is None else {**statuses}
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
        """Return `fields=` with the names of attributes in place of mapped attributes and columns.

        What the unit of work writes at each change has a role as well: the counter of versions, and a moment with a
        time zone that has onupdate=.
        """
        roles = {role: getattr(named, "key", named) for role, named in (fields or {}).items()}
        free = {name: column for name, column in self._columns.items() if name not in roles.values()}
        counter, count = self.mapper.version_id_col, cast("Any", self.mapper.version_id_generator)
        found = {
            "version": next((name for name, column in free.items() if count and column is counter), ""),
            "moved": next((name for name, each in free.items() if each.onupdate and _kind(each) == "timestamptz"), ""),
        }
        if found["version"] and (count(None), count(1)) != (1, 2):
            raise ConfigurationError(f"SQL cannot count the versions of {self.name}: leave version_id_generator out")
        return {role: name for role, name in found.items() if name} | roles

    # the engine

    @property
    def dialect(self) -> sa.Dialect:
        return self._unbound if self._engine is None else super().dialect

    @property
    def unit(self) -> Unit | None:  # type: ignore[override]
        return self._unit.get()

    def guard(self, names: Collection[str]) -> None:
        self.guarded = InstanceRules(self)
        known = len(self.mapped.columns)

        def inherits(mapper: Any, inheriting: type[Any]) -> None:
            if mapper.local_table is not self.mapped or len(self.mapped.columns) > known:
                raise ConfigurationError(
                    f"{inheriting.__name__} adds columns to {self.name}, which is a queue already: call "
                    f"upgrade({self.name}, ...) below the classes that inherit from it"
                )

        sa.event.listen(self.model, "instrument_class", inherits, propagate=True)

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
        return testing.under_test(self, session)

    def for_coroutine(self, job: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        return testing.on_its_connection(self, job)

    def bind(self, engine: sa.Engine | AsyncEngine) -> None:
        """Have the queue use an engine from now on."""
        used = engine_of(engine)
        check_schema(self.name, engine)
        self._engine = used
        database_of(used)
        testing.bound(self)
        watch(engine.sync_engine if isinstance(engine, AsyncEngine) else engine)
        for field, column in zip(self.fields, self._columns.values(), strict=True):
            object.__setattr__(field, "type", self._declared(column))  # it has another name there

    def in_session(self, worker: Any) -> Callable[[Any], Any]:
        return run_in(self, worker)

    def check_session(self, maker: Any, around: bool) -> None:
        if maker is not None:
            prepare(self, maker, around)


def _parsed(kind: Any, value: Any) -> Any:
    """Return a value as the type has it. Raises ValueError, TypeError and OverflowError for what is none."""
    if isinstance(kind, sa.Integer) and type(value) is float:
        if (number := int(value)) != value:
            raise ValueError(f"{value} is no whole number")
        return number
    if type(value) is not str or getattr(kind, "as_uuid", True) is False:
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


def _kind(column: sa.Column[Any]) -> Kind:
    other: Kind = "other"
    held = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    kind = next((kind for base, kind in KINDS if isinstance(held, base)), other)
    if column.table is not None and column is column.table.autoincrement_column:
        return "bigauto" if kind == "bigint" else "auto"
    return "timestamptz" if kind == "datetime" and getattr(held, "timezone", False) else kind
