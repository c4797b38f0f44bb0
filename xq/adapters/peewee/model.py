"""A Peewee model: its fields, and instances made from rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import peewee as pw

from xq.adapters.peewee.task import LongText, ShortText, Task
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.core.generated import hydrators, mapping
from xq.core.kinds import WIDE, Field, Kind
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.drivers.stores import OrmModel

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

# The driver's values for these fields need no conversion when read, nor do values of exactly this type when written.
# The fields' own conversion would copy them.
NATIVE: Mapping[type[pw.Field[Any]], type] = {
    pw.AutoField: int,
    pw.BigAutoField: int,
    pw.IdentityField: int,
    pw.IntegerField: int,
    pw.BigIntegerField: int,
    pw.SmallIntegerField: int,
    pw.CharField: str,
    ShortText: str,
    LongText: str,
    pw.TextField: str,
    pw.DoubleField: float,
    pw.FloatField: float,
}

# These fields' conversions accept any value from any driver. The others below accept any value from their own
# driver, which makes the objects itself.
SAFE = (pw.BooleanField, pw.DateTimeField, pw.DateField)
SAFE_BY_ENGINE: Mapping[str, Collection[type[pw.Field[Any]]]] = {
    "sqlite": SAFE,
    "postgres": (*SAFE, pw.DecimalField, pw.UUIDField, pw.TimeField, pw.JSONField),
    "innodb": (*SAFE, pw.DecimalField),
}

# The drivers accept these types.
PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class PeeweeModel(OrmModel[M]):
    """A Peewee model. Implements `xq.core.connections.TaskModel`."""

    adds_columns = True
    needed: Mapping[str, str] = {
        "runat": "a DoubleField or BigIntegerField (seconds since 1970) or a DateTimeField (UTC), or PostgreSQL's "
        "DateTimeTZField; a FloatField is single precision, which moves a timestamp by minutes",
    }

    def __init__(self, model: type[M]) -> None:
        if not (isinstance(model, type) and issubclass(model, pw.Model)):
            raise ConfigurationError(
                f"xq.upgrade takes a Peewee model, not {shown(model)}; xq.adapters.django.upgrade takes one of Django, "
                "and xq.adapters.sqlalchemy.upgrade a mapped class of SQLAlchemy or SQLModel"
            )
        if model is Task:
            raise ConfigurationError("xq.Task is abstract and has no table: upgrade the models that inherit from it")
        meta = model._meta
        if meta.primary_key is False:
            raise ConfigurationError(f"{model.__name__} has no primary key: a queue needs one to name its tasks")
        if meta.temporary:
            seen = "only the connection that makes such a table sees it, and a queue has several: leave temporary out"
            raise ConfigurationError(f"{model.__name__} is temporary (class Meta): {seen}, or use xq_memory in tests")
        self.model = model
        self.name = model.__name__
        self.table = meta.table_name
        self.schema = meta.schema or ""
        self.advice = f"db.create_tables([{self.name}]) creates the table, with all that the queue needs"
        self._read_fields()
        self.key = tuple(field.name for field in meta.get_primary_keys())

    def bring(self, columns: Mapping[str, tuple[Kind, int | None]]) -> None:
        for name, (kind, length) in columns.items():
            if name not in self.model._meta.fields:
                wide = LongText(null=True) if length == WIDE else None
                field = wide or (ShortText(max_length=length, null=True) if length else FIELDS[kind](null=True))
                self.model._meta.add_field(name, field)
        self._read_fields()

    def _read_fields(self) -> None:
        vars(self).pop("_readers", None)
        model, meta = self.model, self.model._meta
        self.fields = tuple(_field(field) for field in meta.sorted_fields)
        self._names = [field.name for field in self.fields]
        is_plain = model.__init__ in (pw.Model.__init__, _init)
        read = _conversions(type(_held(meta.fields[self._names[index]])) for index, _ in self._readers)
        # The engines on which a row may hold what the fields cannot read.
        safe = {engine for engine, fields in SAFE_BY_ENGINE.items() if is_plain and read <= _conversions(fields)}
        self.may_fail_on = SAFE_BY_ENGINE.keys() - safe
        if is_plain:
            self._make_hydration()

    @property
    def offers(self) -> Collection[str]:
        return [field.name for field in Task._meta.sorted_fields] if issubclass(self.model, Task) else ()

    def instance(self, values: Sequence[Any]) -> M:
        made = self.model(__no_default__=1, **dict(zip(self._names, values, strict=True)))
        made._dirty.clear()  # type: ignore[attr-defined]
        return made

    def _make_hydration(self) -> None:
        """Replace hydration by generated functions: they make plain instances as Peewee does, but faster."""
        data = mapping(self._names, range(len(self._names)))
        lines = ["made = new(model)", f"made.__data__ = {data}", "made.__rel__ = {}", "made._dirty = set()"]
        make, make_all = hydrators(lines, TOKEN_ATTRIBUTE, new=self.model.__new__, model=self.model)
        if self._readers:
            self.hydrate = lambda row, token=None: make(self.read(row), token)  # type: ignore[method-assign]
            self.hydrate_all = lambda rows, token=None: make_all(map(self.read, rows), token)  # type: ignore[method-assign]
        else:
            self.hydrate, self.hydrate_all = make, make_all  # type: ignore[method-assign]

    def data(self, task: object) -> Mapping[str, Any] | None:
        if not isinstance(task, self.model):
            return None
        data: Mapping[str, Any] = task.__data__
        if task.__rel__:  # related instances whose keys it lacks: they were saved after their assignment
            data = {**data, **{name: other for name, other in task.__rel__.items() if data.get(name) is None}}
        return data

    def declared_defaults(self) -> dict[str, Any]:
        return {field.name: default for field, default in self.model._meta.defaults.items()}

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
            else:  # a model that inherits from this one and is no queue
                create_table(cls, *args, **options)

        model.create_table = classmethod(create)

    def guard(self, names: Collection[str]) -> None:
        model: Any = self.model
        model._meta.xq_guarded = frozenset(names) - {*self.key}
        if issubclass(model, Saving):
            return
        # Directly above Peewee's Model, where save() sees what the application's own save() has changed.
        bases = model.__bases__
        last = max(place for place, base in enumerate(bases) if issubclass(base, pw.Model))
        kept = bases[: last + (bases[last] is not pw.Model)]
        model.__bases__ = (*kept, Saving, *bases[last + 1 :])


def _guarded(self: Any) -> frozenset[str]:
    return getattr(self._meta, "xq_guarded", frozenset())  # none for a model that inherits and is no queue


def _init(self: Any, *args: Any, __no_default__: Any = None, **values: Any) -> None:
    """Build an instance as Peewee does. A default in a queue's field is no change by the application."""
    pw.Model.__init__(self, __no_default__=__no_default__)
    self._dirty -= _guarded(self)
    for name, value in values.items():
        setattr(self, name, value)


def _save(self: Any, force_insert: bool = False, only: Any = None) -> Any:
    """Save as Peewee does. An UPDATE leaves out queue fields that the application has neither changed nor named.

    So save() on an instance read earlier does not overwrite a status that the queue has changed since.
    """
    meta = self._meta
    guarded = _guarded(self) - self._dirty
    if guarded and only is None and not (force_insert or meta.only_save_dirty) and self._pk is not None:
        only = [name for name in self.__data__ if name not in guarded]
        if {*only} <= {field.name for field in meta.get_primary_keys()}:
            return False  # Peewee would raise, since it has nothing to write
    return pw.Model.save(self, force_insert, only)


# Made without Peewee's metaclass, which would give it a table and a key.
Saving: Any = type.__new__(
    type(pw.Model), "Saving", (pw.Model,), {"__init__": _init, "save": _save, "__module__": __name__}
)


FIELDS: Mapping[Kind, type[pw.Field[Any]]] = {
    "bigauto": pw.BigAutoField,
    "bigint": pw.BigIntegerField,
    "integer": pw.IntegerField,
    "double": pw.DoubleField,
    "text": pw.TextField,
}


class PeeweeReader:
    """A model for one of xq's tables, in another model's database. Implements `xq.core.connections.Reader`."""

    def __init__(self, beside: type[pw.Model], name: str, table: str, columns: Mapping[str, Kind]) -> None:
        class Metadata(pw.Metadata):
            """Returns the other model's current database, which the application may bind later."""

            @property
            def database(self) -> Any:
                return beside._meta.database

            @database.setter
            def database(self, value: object) -> None:
                pass

        meta = {"table_name": table, "schema": beside._meta.schema, "model_metadata_class": Metadata}
        (first, kind), *others = columns.items()
        fields = {column: FIELDS[kind](null=True) for column, kind in others}
        key = {first: FIELDS[kind](primary_key=True)}
        self.model: type[pw.Model] = type(name, (pw.Model,), {**key, **fields, "Meta": type("Meta", (), meta)})

    def instance(self, values: Mapping[str, Any]) -> pw.Model:
        made = self.model(**values)
        made._dirty.clear()  # type: ignore[attr-defined]
        return made


def _conversions(fields: Iterable[type[pw.Field[Any]]]) -> set[tuple[Any, Any]]:
    """Return how the classes read values: one that inherits it from another one reads as the other does."""
    return {(field.python_value, field.adapt) for field in fields}


def _held(field: Any) -> Any:
    """Return the field whose values a column holds."""
    return field.rel_field if isinstance(field, pw.ForeignKeyField) else field


def _field(field: pw.Field[Any]) -> Field:
    # A TimestampField stores integer ticks, not a time, although its type is an integer type.
    declared = str(field.field_type).partition("(")[0].upper()  # without a precision, as in DATETIME(6)
    if isinstance(dimensions := getattr(field, "dimensions", None), int):  # an ArrayField, with its elements' type
        declared += "[]" * dimensions
    kind = "other" if isinstance(field, pw.TimestampField) else KINDS.get(declared, "other")
    held = _held(field)
    reads = type(held).python_value is not pw.Field.python_value or type(held).adapt is not pw.Field.adapt
    return Field(
        name=field.name,
        column=field.column_name,
        kind=kind,
        # A column may be without a type.
        type=declared if dimensions else "" if field.field_type == pw.Field.field_type else field.field_type,
        null=field.null,
        max_length=getattr(_held(field), "max_length", None),
        to_database=_to_database(field),
        from_database=field.python_value if reads and type(held) not in NATIVE else None,
        native=NATIVE.get(type(field)),
        digits=(held.max_digits, held.decimal_places) if isinstance(held, pw.DecimalField) else None,
        declared=getattr(field, "declared", type(field).__name__),
    )


def _to_database(field: pw.Field[Any]) -> Callable[[Any], Any]:
    convert = field.db_value
    single = type(field) in NATIVE

    def to_database(value: Any) -> Any:
        converted = convert(value)
        if type(converted) in PLAIN:
            return converted
        if isinstance(converted, pw.Cast) and converted is not value:  # a JSONField's for MySQL: MariaDB takes its text
            converted = converted.node
        if single and isinstance(converted, (list, tuple, set, frozenset, dict)):
            # Some drivers would expand a collection into SQL that is valid in its place.
            raise BadType(f"{field.name!r} holds one value, not {shown(value)}")
        return _plain(converted)

    return to_database


def _plain(value: Any) -> Any:
    """Return the driver's value for a converted one: some fields wrap it for Peewee's query builder."""
    if isinstance(value, pw.Value):
        return value.value
    if type(value).__name__ == "Binary":  # psycopg's wrapper for bytes, which it does not need
        return value.obj
    if isinstance(value, (pw.Model, type)):
        raise BadType(f"{shown(value)} is of another model than the field takes")
    if isinstance(value, pw.Function) and value.name == "json" and value.arguments:
        # SQLite's json(text) removes white space; without it the value equals the value that Peewee writes.
        return json.dumps(json.loads(value.arguments[0]), separators=(",", ":"))
    if isinstance(value, pw.Node):
        raise BadValue(f"xq writes plain values, not the SQL expression {shown(value)}")
    return value
