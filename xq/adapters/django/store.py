"""Django's Store: an app's model, on Django's own connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from uuid import UUID

from django.apps.registry import Apps
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import expressions
from django.db.models.base import ModelState
from django.db.models.fields.related import lazy_related_operation
from django.db.models.fields.related_descriptors import ForeignKeyDeferredAttribute
from django.db.models.query_utils import DeferredAttribute
from django.db.models.signals import post_init, pre_init

from xq.adapters.django.connections import OF_TENANTS, DjangoConnections
from xq.adapters.django.lookup import APP, is_app_missing
from xq.adapters.django.stale_saves import guard
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.core.generated import hydrators, mapping
from xq.core.kinds import WIDE, Field, Kind, Row
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.drivers.stores import OrmModel

M = TypeVar("M", bound=models.Model)


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

# A key's kind -> the kind of a column that refers to it.
REFERRED: Final[Mapping[Kind, Kind]] = {"auto": "integer", "bigauto": "bigint"}

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


# Django's connections make the values for these fields themselves, so no conversion of one raises.
SAFE: Final[Mapping[str, Collection[type]]] = {
    "sqlite": (models.BooleanField, models.DateTimeField, models.DateField, models.TimeField),
    "postgres": (models.JSONField,),
    "innodb": (models.BooleanField, models.DateTimeField),
}

OWN_FIELDS: Final[Mapping[str, Callable[..., models.Field[Any, Any]]]] = {  # for the columns that xq brings
    "text": models.TextField,
    "double": models.FloatField,
    "integer": models.IntegerField,
}

PLAIN: Final = (DeferredAttribute, ForeignKeyDeferredAttribute)  # attributes that only hold the value that was set


class DjangoStore(OrmModel[M], DjangoConnections):
    """A Django model as a `xq.core.connections.Store`.

    It uses the database `using`; None asks the routers at each call where to write.
    """

    needed: Mapping[str, str] = {
        "runat": "a FloatField or BigIntegerField (seconds since 1970) or a DateTimeField (UTC)",
    }
    program = "manage.py xq"
    installs = (
        "manage.py makemigrations and migrate install the queue as its model defines it; where processes differ, give "
        "all of them the same definition first"
    )

    @property
    def advice(self) -> str:
        advice, here = "manage.py migrate makes the table, and installs the queue", self.seen_in
        return f"{advice}, in the schema {here}. Where each tenant's schema has one: {OF_TENANTS}" if here else advice

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
        DjangoConnections.__init__(self, model.__name__, model, using)
        self.forwards = "run manage.py migrate with it"
        self.target = meta.label
        self.downgrades = f"run {self.command('install')} --downgrade with it"
        if is_app_missing():
            self.installs = f"add {APP!r} to INSTALLED_APPS. Then {self.installs}"
        # Django has no other way to name a schema
        self.schema, _, self.table = _unquoted(meta.db_table, '"').rpartition('"."')
        self.adds_columns = not meta.managed
        self._read_fields()
        self.key = tuple(field.name for field in getattr(meta, "pk_fields", None) or [meta.pk])
        plain = model.__init__ is models.Model.__init__
        self._guarded: Sequence[str] = ()
        self._is_plain = (
            plain
            and model.from_db.__func__ is models.Model.from_db.__func__
            and all(type(vars(model).get(name)) in PLAIN for name in self._attnames)
        )
        self._is_made_plainly = plain

    def bring(self, columns: Mapping[str, tuple[Kind, int | None]]) -> None:
        for name, (kind, length) in columns.items():
            if name not in {field.name for field in self._concrete}:
                field = OWN_FIELDS[kind] if length in (None, WIDE) else partial(models.CharField, max_length=length)
                field(null=True, blank=True, editable=False).contribute_to_class(self.model, name)
        self._read_fields()

    def _read_fields(self) -> None:
        meta = self.model._meta
        self._concrete = tuple(meta.concrete_fields)
        self._attnames = [field.attname for field in self._concrete]
        self._attributes = [(field.name, field.attname) for field in self._concrete]
        self._relations = [field for field in self._concrete if field.is_relation]
        # A new instance's values in fields that Django, or the database, fills on save.
        self._filled = [(field.name, nothing) for field in self._concrete if (nothing := _nothing(field))]
        self.fields = tuple(map(self._field, self._concrete))

    @cached_property
    def _readers(self) -> list[tuple[int, Callable[[Any], Any]]]:
        # Computed late: a foreign key's target is known only after all models are loaded.
        related = {i for i, field in enumerate(self._concrete) if field.is_relation and not self._converters(field)}
        return [(i, read) for i, read in super()._readers if i not in related]

    @cached_property
    def may_fail_to_read(self) -> bool:
        if getattr(self.model, "only_xq_writes", False):
            return False
        read = [self._concrete[index] for index, _ in self._readers]
        return not (self._is_made_plainly and all(map(self._is_safe, read)))

    def _is_safe(self, field: Any) -> bool:
        # A table that Django manages accepts nothing but JSON there.
        is_json = type(field) is models.JSONField and self.model._meta.managed
        return (is_json or type(field) in SAFE[self._engine]) and getattr(field, "decoder", None) is None

    def instance(self, values: Sequence[Any]) -> M:
        read: M = self.model.from_db(self.alias, self._attnames, values)
        return read

    def hydrate(self, row: Row, token: str | None = None) -> M:
        # The application's code runs when an instance is made.
        if not self._is_plain or pre_init.receivers or post_init.receivers:
            return super().hydrate(row, token)
        made: M = self._hydrators[0](self.read(row) if self._readers else row, token)
        return made

    def hydrate_all(self, rows: Iterable[Row], token: str | None = None) -> list[M]:
        if not self._is_plain or pre_init.receivers or post_init.receivers:
            return super().hydrate_all(rows, token)
        made: list[M] = self._hydrators[1](map(self.read, rows) if self._readers else rows, token)
        return made

    @cached_property
    def _hydrators(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Functions that make plain instances as Model.from_db() does, but faster."""
        guarded = mapping(self._guarded, [self._attnames.index(name) for name in self._guarded])
        attributes = mapping(self._attnames, range(len(self._attnames)))
        lines = [
            "made, state = new(model), ModelState()",
            f"state.__dict__ = {{'db': store.using or store.alias, 'adding': False, 'xq': {guarded}}}",
            f"made.__dict__ = {{'_state': state, **{attributes}}}",
        ]
        made = {"new": self.model.__new__, "model": self.model, "ModelState": ModelState}
        return hydrators(lines, TOKEN_ATTRIBUTE, **made, store=self)

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

    def declared_defaults(self) -> dict[str, Any]:
        return dict(self._defaults)

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        """A new instance's values as Django sets them, without fields that the database fills."""
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

    @property
    def offers(self) -> Collection[str]:
        from xq.adapters.django.task_fields import TaskFields  # models are loaded by now

        return [field.name for field in TaskFields._meta.fields] if issubclass(self.model, TaskFields) else ()

    def refer(self, field: Field, check: Callable[[], None]) -> None:
        relation = next((each for each in self._relations if each.name == field.name and not each.primary_key), None)

        def resolve(held: Any) -> None:
            if held.is_relation:  # to a model that may not be loaded yet
                lazy_related_operation(lambda *_: resolve(held.target_field), held.model, held.remote_field.model)
                return
            kind = KINDS.get(held.get_internal_type(), "other")
            length = held.max_length if kind == "text" else None
            known = {"kind": REFERRED.get(kind, kind), "type": self._declared(relation), "max_length": length}
            for name, value in known.items():
                object.__setattr__(field, name, value)  # no statement was made yet
            check()

        if relation is None:
            check()
        else:
            resolve(relation)

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        zone = self.connection.timezone_name
        for role, field in roles.items():
            if field.kind == "datetime" and zone != "UTC":
                raise ConfigurationError(
                    f"role {role!r}: Django writes {self.name}.{field.name} in the time zone {zone} to this database, "
                    "and a queue writes UTC: set USE_TZ = True and no TIME_ZONE of the database, or take a FloatField "
                    "(seconds since 1970)"
                )

    def with_moved(self, fields: Any) -> Any:
        """Return `fields` with the role moved for a DateTimeField with auto_now, if it can have that and none is named.

        Where Django writes another time zone than UTC, moves leave the field as it is.
        """
        named = fields if isinstance(fields, Mapping) else {}
        found = [field.name for field in self._concrete if isinstance(field, models.DateTimeField) and field.auto_now]
        free = [name for name in found if name not in {*self.key, *map(str, named.values())}]
        fits = self._engine == "postgres" or self.connection.timezone_name == "UTC"
        return {**named, "moved": free[0]} if free and fits and "moved" not in named else fields

    def guard(self, names: Collection[str]) -> None:
        """Make save() write these fields only if the application has changed them."""
        keys = [field.attname for field in self._concrete if field.name in self.key]
        roles = [field for field in self._concrete if field.name in {*names} - {*self.key}]
        self._guarded = [*keys, *(field.attname for field in roles)]
        guard(self.model, keys, roles)

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
            column=_unquoted(field.column, "`" if self._engine == "innodb" else '"'),
            kind=kind,
            type="" if related else self._declared(held),
            null=field.null,
            max_length=getattr(held, "max_length", None) if kind == "text" else None,
            to_database=partial(self._to_database, field),
            from_database=self._from_database(field) if related or reads else None,
            native=NATIVE.get(type(field)),
            digits=decimal,
            computed=_is_generated(field),
            declared=type(field).__name__,
        )

    def _declared(self, field: Any) -> str:
        """Return a column's type as Django declares it.

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
        """Return a function that reads a value as Django does. It resolves a foreign key's target on first use."""
        found: list[Any] = []
        makes_numbers = self._engine == "sqlite" and isinstance(field, models.DecimalField)

        def read(value: Any) -> Any:
            if not found:
                column = field.get_col(self.table)
                found.append((column, self._converters(field)))
            column, converters = found[0]
            connection = self.connection
            # Used to validate a value by reading it back before the database has stored it:
            if hasattr(value, "obj") and hasattr(value, "dumps"):  # psycopg's wrapper for a JSON value
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
        if self._engine == "innodb":  # its drivers accept and return UUIDs as objects, and Django's backend uses text
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
    """Return the types that an unsaved instance's values have in fields filled by Django or the database."""
    by_django = [type(None)] if _is_of_now(field) else []
    by_database = [expressions.DatabaseDefault] if getattr(field, "has_db_default", lambda: False)() else []
    return (*by_django, *by_database)


def _is_generated(field: Any) -> bool:
    """Return whether a field is a GeneratedField (Django 5.0 and later)."""
    return bool(getattr(field, "generated", False))


def _unquoted(name: str, quote: str) -> str:
    """Return a name as it is in the database: Django uses a quoted one unchanged."""
    return name[1:-1] if len(name) > 2 and name.startswith(quote) and name.endswith(quote) else name


FIELDS: Final[Mapping[Kind, type]] = {
    "bigauto": models.BigAutoField,
    "bigint": models.BigIntegerField,
    "integer": models.IntegerField,
    "text": models.TextField,
}


class DjangoReader:
    """A model for a table beside another model's, as a `xq.core.connections.Reader`. Migrations do not see it."""

    def __init__(self, beside: DjangoStore[Any], name: str, table: str, columns: Mapping[str, Kind]) -> None:
        class Manager(models.Manager):
            """A manager on the other model's database."""

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
