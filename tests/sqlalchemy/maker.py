"""Queues of SQLAlchemy for the tests of Peewee's: the Peewee model is another program that writes the table.

A transaction that Peewee has opened is the one that the queue's calls join, as by `on=`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import peewee as pw

import sqlalchemy as sa
from sqlalchemy import orm
from tests.conftest import Maker
from tests.support.life import end_threads
from xq.adapters.peewee.model import FIELDS, PeeweeModel
from xq.adapters.peewee.task import LongText
from xq.adapters.sqlalchemy.store import SqlalchemyStore
from xq.core.kinds import WIDE, Kind
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.drivers import DRIVERS
from xq.drivers.stores import JoinedConnection, PendingCalls
from xq.upgrading.build import build

TYPES: Mapping[type, Callable[[Any], Any]] = {
    pw.BigAutoField: lambda _: sa.BigInteger(),
    pw.BigIntegerField: lambda _: sa.BigInteger(),
    pw.SmallIntegerField: lambda _: sa.SmallInteger(),
    pw.IntegerField: lambda _: sa.Integer(),
    pw.TextField: lambda _: sa.Text(),
    pw.CharField: lambda field: sa.String(field.max_length),
    pw.DoubleField: lambda _: sa.Double(),
    pw.FloatField: lambda _: sa.Float(),
    pw.DateTimeField: lambda _: sa.DateTime(),
    pw.DateField: lambda _: sa.Date(),
    pw.UUIDField: lambda _: sa.Uuid(),
    pw.BooleanField: lambda _: sa.Boolean(),
    pw.BlobField: lambda _: sa.LargeBinary(),
    pw.DecimalField: lambda field: sa.Numeric(field.max_digits, field.decimal_places),
}


class Converted(sa.TypeDecorator[Any]):
    """The type of a field whose class converts its values."""

    impl = sa.Text
    cache_ok = False

    def __init__(self, field: Any, impl: Any) -> None:
        super().__init__()
        self.field, self.impl = field, impl

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        value = self.field.db_value(value)
        return value.value if isinstance(value, pw.Value) else getattr(value, "obj", value)  # of a Binary

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return self.field.python_value(value)


def type_of(field: Any) -> Any:
    if isinstance(field, pw.ForeignKeyField):
        return type_of(field.rel_field)
    for base in type(field).__mro__:
        if base in TYPES:
            made = TYPES[base](field)
            alike = all(getattr(type(field), name) is getattr(base, name) for name in ("db_value", "python_value"))
            return made if alike or isinstance(field, pw.AutoField) else Converted(field, made)
    return Converted(field, sa.Text())


class Row:
    """What tests ask of a task, in Peewee's words."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    @property
    def _pk(self) -> Any:
        key = sa.inspect(type(self)).primary_key_from_instance(self)
        return key[0] if len(key) == 1 else tuple(key)

    def get_id(self) -> Any:
        return self._pk

    @property
    def __data__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_sa_instance_state", TOKEN_ATTRIBUTE)}

    def __eq__(self, other: object) -> bool:
        return type(self).__name__ == type(other).__name__ and bool(self._pk == other._pk)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._pk)


WRITES = ("_meta", "update")  # of the Peewee model's, by which tests write


def mapped(model: Any) -> Any:
    meta = model._meta
    keys = {field.name for field in meta.get_primary_keys()}
    columns = [
        sa.Column(
            field.column_name,
            type_of(field),
            key=field.name,
            primary_key=field.name in keys,
            autoincrement=isinstance(field, (pw.AutoField, pw.IdentityField)),
            nullable=field.null,
            default=field.default,
        )
        for field in meta.sorted_fields
    ]
    found = type(model.__name__, (Row,), {name: getattr(model, name) for name in WRITES})
    orm.registry().map_imperatively(found, sa.Table(meta.table_name, sa.MetaData(), *columns, schema=meta.schema))
    return found


def engine_of(db: Any) -> sa.Engine:
    """The engine of a database, by Peewee's parameters of now."""
    given = {**db.connect_params}
    if isinstance(db, pw.SqliteDatabase):
        return _engine(f"sqlite:///{db.database}", tuple(given.items()), tuple(db._pragmas))  # type: ignore[attr-defined]
    given.pop("isolation_level", None)
    name = "postgresql+psycopg" if isinstance(db, pw.PostgresqlDatabase) else "mysql+pymysql"
    named = "dbname" if isinstance(db, pw.PostgresqlDatabase) else "database"
    return _engine(f"{name}://", tuple({**given, named: db.database}.items()), ())


@cache
def _engine(url: str, parameters: Any, pragmas: Any) -> sa.Engine:
    return with_pragmas(sa.create_engine(url, connect_args=dict(parameters)), pragmas)


def with_pragmas(engine: sa.Engine, pragmas: Any) -> sa.Engine:
    @sa.event.listens_for(engine, "connect")
    def connected(raw: Any, _: Any) -> None:
        for name, value in pragmas:
            raw.cursor().execute(f"PRAGMA {name} = {value}")

    return engine


@cache
def _both(raised: type, name: str) -> type:
    """An error's class that is Peewee's as well."""
    return type(name, (raised, getattr(pw, name)), {})


class Store(SqlalchemyStore[Any]):
    """The store of a mapped class that is made of a Peewee model."""

    def __init__(self, model: Any) -> None:
        self.peewee = model
        super().__init__(mapped(model))
        self._joined: Any = Beside(self)
        self.bind(engine_of(model._meta.database))

    @property
    def _engine(self) -> Any:
        return engine_of(self.peewee._meta.database)

    @_engine.setter
    def _engine(self, value: Any) -> None:
        return

    def _wrapped(self, error: BaseException) -> BaseException:
        found = super()._wrapped(error)
        if isinstance(found, sa.exc.DBAPIError) and hasattr(pw, name := type(found).__name__):
            found.__class__ = _both(type(found), name)  # type: ignore[arg-type]
        return found

    def bring(self, columns: Mapping[str, tuple[Kind, int | None]]) -> None:
        super().bring(columns)
        for name, (kind, length) in columns.items():
            if name not in self.peewee._meta.fields:
                options = {} if length in (None, WIDE) else {"max_length": length}
                field: Any = pw.CharField if options else LongText if length else FIELDS[kind]
                self.peewee._meta.add_field(name, field(null=True, **options))

    def data(self, task: object) -> Mapping[str, Any] | None:
        if isinstance(task, self.peewee):
            return PeeweeModel.data(SimpleNamespace(model=self.peewee), task)  # type: ignore[arg-type]
        return super().data(task)

    def is_mine(self, model: type) -> bool:
        return model in (self.model, self.peewee)

    def attach(self, name: str, value: object) -> None:
        super().attach(name, value)
        setattr(self.peewee, name, value)

    def with_the_table(self, creating: Callable[[Callable[[], None]], None], dropped: Callable[[], None]) -> None:
        def after(create: Callable[[], None]) -> None:
            create()  # on Peewee's connection
            creating(lambda: None)
            self.peewee.select().exists()  # SQLite reads the schema anew at a statement that runs, at no other

        PeeweeModel.with_the_table(SimpleNamespace(model=self.peewee), after, dropped)  # type: ignore[arg-type]

    def guard(self, names: Collection[str]) -> None:
        PeeweeModel.guard(SimpleNamespace(model=self.peewee, key=self.key), names)  # type: ignore[arg-type]


class Beside:
    """In place of the store's context variable: has the calls join what Peewee has open on this thread."""

    def __init__(self, store: Any) -> None:
        self._store, self._given = store, store._joined
        self.set, self.reset = self._given.set, self._given.reset

    def get(self) -> Any:
        if (given := self._given.get()) is not None:
            return given
        store, db = self._store, self._store.peewee._meta.database
        mine = (
            vars(db._state)
            .setdefault("beside", {})
            .setdefault(id(store), SimpleNamespace(on=None, calls=PendingCalls()))
        )
        if db._state.closed or not DRIVERS[store.engine].in_transaction(db._state.conn):
            if mine.on is not None:
                mine.on = None
                mine.calls.run_all()
            return None
        on = (db._state.conn, *db._state.transactions[:1])
        if mine.on != on:
            mine.on = on
            managed = on[1:] and not isinstance(on[1], pw._manual)
            calls = db.after_commit if managed else mine.calls.add
            mine.joined = JoinedConnection(store, DRIVERS[store.engine], on[0], store.database, calls)
            store._set_up(mine.joined)
        return mine.joined


def key_of(named: Any) -> Any:
    return named.name if isinstance(named, pw.Field) else named


class SqlalchemyMaker(Maker):
    def upgrade(self, model: Any, fields: Any, features: Any, **options: Any) -> Any:
        return build(Store(model), {role: key_of(named) for role, named in fields.items()}, features, **options)

    def close(self) -> None:
        """No thread keeps a connection of the pool after a call."""
        end_threads()
        pool: Any = engine_of(self.db).pool
        assert pool.checkedout() == 0, pool.status()
        pool.dispose()
