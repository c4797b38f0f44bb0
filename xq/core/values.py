"""Check and convert what callers bring: keys, tasks and updates."""

from __future__ import annotations

import decimal
import math
import numbers
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Generic, NamedTuple, cast

from xq.core import generated
from xq.core.connections import TaskModel
from xq.core.errors import BadType, BadValue, FeatureOff, is_integer, shown
from xq.core.kinds import INTEGERS, Field, Kind, Row, T, Table
from xq.core.machine import MANAGED, REMEMBERED, ROLE_DEFAULTS, Machine
from xq.core.options import CallOptions, Catalogue, Spans, seconds_of
from xq.core.schema import ROLES
from xq.core.tokens import TOKEN_ATTRIBUTE
from xq.core.words import PLAIN, Wording

Key = tuple[Any, ...]  # a key's parts, as the database holds them
SHAPES = 500  # one queue's cached shapes: a put has one for each set of fields, in the task's order
_NOTHING: Mapping[str, Any] = {}
# What sets a role that update= may not set.
_SET_BY = {"tube": "; release(tube=...) moves it", "attempts": "; release(attempts=...) and dig(fresh=True) set it"}
_SET_BY |= {"priority": "; reprioritise() changes it"}


class Taken(NamedTuple):
    """A taken task: its key, as the database holds it, and the take's token."""

    parts: Key
    token: str | None


@dataclass(slots=True, eq=False)  # not a NamedTuple, which takes four times as long to make
class New:
    """Tasks that are put by one statement: they have the same fields and the same seconds."""

    tasks: list[Mapping[str, Any]]  # by field name, as the application writes them; only tasks whose key is made
    brought: tuple[str, ...]  # the names under which the caller gave values
    names: tuple[str, ...]  # the fields' names in a row
    rows: list[tuple[Any, ...]]  # their values, as the database takes them
    own: Mapping[str, float | None]  # each task's seconds, by option
    made_keys: bool = False

    def values(self, name: str) -> list[Any]:
        """Return a field's values, one for each row; None if the rows do not have it."""
        if name not in self.names:
            return [None] * len(self.rows)
        place = self.names.index(name)
        return [row[place] for row in self.rows]

    def at(self, places: Sequence[int]) -> New:
        """Return the tasks at these places."""
        tasks = [self.tasks[place] for place in places] if len(self.tasks) == len(self.rows) else []
        return replace(self, tasks=tasks, rows=[self.rows[place] for place in places])

    def with_default(self, name: str, value: Any) -> New:
        """Return the same tasks with this value in a field, except where they bring another one."""
        if name not in self.names:
            rows = [(*row, value) for row in self.rows]
            return replace(self, brought=(*self.brought, name), names=(*self.names, name), rows=rows)
        at = self.names.index(name)
        rows = [row if row[at] else (*row[:at], value, *row[at + 1 :]) for row in self.rows]
        return replace(self, brought=tuple(dict.fromkeys((*self.brought, name))), rows=rows)


@dataclass(slots=True, eq=False)
class Shape:
    """How tasks with the same fields become rows: compiled for the first task."""

    fields: tuple[str, ...] | None  # the fields' names if the task uses column names, else None
    keys: tuple[str, ...]  # the names that the key's fields have, if the task brings them
    defaults: Mapping[str, Any]  # the model's, by field name: values, and callables that make them
    called: tuple[str, ...]  # the names whose default is made by a call
    names: tuple[str, ...]  # the fields' names in a row
    row: Callable[[Mapping[str, Any]], tuple[Any, ...]]  # makes a row from a task with its defaults
    # Makes the rows of the tasks, from a place in a list on, that have this shape; None if each is looked at by itself.
    rows: Callable[[Sequence[object], int], list[tuple[Any, ...]]] | None
    own: tuple[tuple[str, str], ...]  # options, and the fields that remember them


class Tasks(Generic[T]):
    """One queue's tasks on their way in and out. Runs no SQL."""

    def __init__(
        self,
        store: TaskModel[T],
        table: Table,
        machine: Machine,
        off: Callable[[], Catalogue],
        wording: Wording = PLAIN,
    ) -> None:
        self.store = store
        self.table = table
        self.machine = machine
        self.wording = wording
        self.options = CallOptions(store.name, machine, off, wording, self._refuse_field)
        self._fields = {field.column: field for field in table.fields} | {field.name: field for field in table.fields}
        # A column in another role, or in `moved`, is the application's as well.
        self._role_of = {field.name: role for role, field in table.roles.items() if role in ROLES.keys() - {"moved"}}
        self._names = [field.name for field in table.fields]
        self._key_is_read = any(field.from_database for field in table.key)
        self._only_key = table.key[0] if len(table.key) == 1 else None
        self._keys = frozenset(field.name for field in table.key)
        self._managed = frozenset(field.name for role, field in table.roles.items() if role in MANAGED)
        self._not_brought = self._managed | {field.name for field in table.fields if field.computed}
        # The queue writes these itself, so a model's default must not replace them.
        self._never_default = self._managed | self._keys if "key" in machine.fill else self._managed
        self._key_at = [table.fields.index(field) for field in table.key]
        self._order_at = [*(table.fields.index(table.roles[role]) for role in table.ordered_by), *self._key_at]
        self._order = itemgetter(*self._order_at)
        # Returns a row's key as the application writes it.
        self.app_key_of: Callable[[Row], Any] = (
            (lambda row: self.app_key(self.key_of(row))) if self._key_is_read else itemgetter(*self._key_at)
        )
        self._shapes: dict[tuple[Any, ...], Shape] = {}  # by the names under which a task brings values
        self._updated: dict[tuple[object, ...], list[Field]] = {}  # whether an error is set, names -> the fields
        # Makes from a row's values what the feature `retval` says.
        self._made: Callable[[Sequence[Any]], T] = {
            "model": store.instance,
            "dict": lambda values: dict(zip(self._names, values, strict=True)),
            "tuple": tuple,
        }[machine.settings.retval]  # type: ignore[assignment]
        # Returns a row so, with its take's token if an instance can hold it. Raises BadValue if it cannot be read.
        is_model, made = machine.settings.retval == "model", self._made
        self.read: Callable[..., T] = store.hydrate if is_model else lambda row, token=None: made(store.read(row))
        # Returns several rows so, all with the same token.
        self.read_all: Callable[..., list[T]] = (
            store.hydrate_all if is_model else lambda rows, token=None: list(map(self.read, rows))
        )

    def tube(self, name: object, call: str = "take(tube=)") -> str | None:
        """Return the name of a tube that a call means, a UUID as text with dashes.

        Raises FeatureOff, BadType and BadValue.
        """
        if name is None:
            return None
        if "tube" not in self.machine.roles:
            raise FeatureOff(
                f"{call} needs the role 'tube': map it to a field, as in fields={{'tube': 'tube'}}", role="tube"
            )
        kind = self.table.roles["tube"].kind
        check_role("tube", name, kind)
        return str(self._uuid(name)) if kind == "uuid" else cast(str, name)

    def tube_of(self, value: Any) -> Any:
        """Return the value of a task's tube as `tube` names it. Whatever else is in the column stays as it is."""
        with suppress(BadType, BadValue):
            return self.tube(value)
        return value

    def _uuid(self, name: object) -> uuid.UUID:
        try:
            return uuid.UUID(str(name))
        except ValueError:
            raise BadValue(f"a tube of {self.store.name} is named by a UUID, not by {shown(name)}") from None

    def returned(self, row: Row, token: str | None = None) -> T:
        """Return a row as `read`; where a value cannot be read, as the database has it, and without the token."""
        try:
            return self.read(row, token)
        except BadValue:
            return self._made(self.store.read(row, strictly=False))

    def returned_all(self, rows: Sequence[Row]) -> list[T]:
        try:
            return self.read_all(rows)
        except BadValue:
            return list(map(self.returned, rows))

    def row_of(self, task: object, fields: Mapping[str, Any]) -> Row | None:
        """Return the row of a task as the caller has it, with fields that have these values; None if it lacks any."""
        data = self.store.data(task)
        if data is None or not all(field.reads_sent for field in self.table.fields):
            return None
        try:
            values = [(field, data[field.name]) for field in self.table.fields]
            return [fields[f.name] if f.name in fields else self._converted(f, value) for f, value in values]
        except (KeyError, BadType, BadValue):
            return None

    def in_role(self, task: T, role: str) -> Any:
        """Return a returned task's value in a role; None if the role is not mapped."""
        field = self.table.roles.get(role)
        return None if field is None else self.data(task)[field.name]

    def data(self, task: Any) -> Mapping[str, Any]:
        """Return a returned task's fields by name, in whatever form the feature retval gives it."""
        if isinstance(task, tuple):
            return dict(zip(self._names, task, strict=True))
        data: Mapping[str, Any] = self.store.data(task) or task
        return data

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """Return the parts of a row's key, as the database holds them."""
        return tuple([row[place] for place in self._key_at])

    def app_keys(self, keys: Sequence[Key]) -> list[Any]:
        """Return keys as the application writes them."""
        if self._key_is_read or self._only_key is None:
            return [self.app_key(parts) for parts in keys]
        return [part for (part,) in keys]

    def app_key(self, parts: Key) -> Any:
        """Return a key as the application writes it."""
        if self._key_is_read:
            with suppress(Exception):  # one that cannot be read is as the database has it
                key = zip(self.table.key, parts, strict=True)
                parts = tuple([field.from_database(part) if field.from_database else part for field, part in key])
        return parts[0] if len(parts) == 1 else parts

    def sort(self, rows: list[Row]) -> None:
        """Sort rows as take does: by priority, NULL being lower than any number, then by key."""
        try:
            rows.sort(key=self._order)
        except (TypeError, decimal.InvalidOperation):  # a column has NULLs, values with several types, or NaN
            rows.sort(key=lambda row: [_ranked(row[place]) for place in self._order_at])
        if self.machine.settings.highest_first:
            rows.sort(key=lambda row: _ranked(row[self._order_at[0]]), reverse=True)

    def identify(self, task: object) -> tuple[tuple[Any, ...], str | None]:
        """Return the key that a caller means, as the database holds it, and its take's token or None.

        Raises BadType and BadValue.
        """
        data = self.store.data(task)  # first: an application acks almost always what it has taken
        if data is None:
            return task if isinstance(task, Taken) else (self._key_named(task), None)
        if (field := self._only_key) is None:
            parts = self._key([data.get(field.name) for field in self.table.key])
        else:
            value = data.get(field.name)
            # As _key_part does.
            if not (type(value) is int is field.native and -(2**63) <= value < 2**63):
                value = self._key_part(field, value)
            parts = (value,)
        return parts, getattr(task, TOKEN_ATTRIBUTE, None)

    def _key_named(self, task: object) -> Key:
        """Return the key that a caller names otherwise than by an instance. Raises BadType and BadValue."""
        if isinstance(task, Mapping):
            missing = [field.name for field in self.table.key if field.name not in task]
            if missing:
                raise BadValue(
                    f"a task of {self.store.name} is named by its key, and {missing[0]!r} is not in {shown(task)}"
                )
            return self._key([task[field.name] for field in self.table.key])
        if isinstance(task, tuple) and len(task) == len(self._names) and len(task) != len(self.table.key):
            return self._key([task[place] for place in self._key_at])
        if len(self.table.key) == 1:
            return self._key([task])
        if not isinstance(task, tuple) or len(task) != len(self.table.key):
            names = ", ".join(field.name for field in self.table.key)
            raise BadType(f"a key of {self.store.name} is a tuple ({names}), not {shown(task)}")
        return self._key(list(task))

    def _key(self, parts: list[Any]) -> tuple[Any, ...]:
        return tuple([self._key_part(field, part) for field, part in zip(self.table.key, parts, strict=True)])

    def _key_part(self, field: Field, value: Any) -> Any:
        if type(value) is field.native and (field.native is not int or -(2**63) <= value < 2**64):
            return value
        if value is None:
            raise self._bad_key(field, "is missing: give a key, or a task that has one")
        if field.kind in INTEGERS:
            is_fraction = isinstance(value, numbers.Number) and not isinstance(value, numbers.Integral)
            if is_fraction or isinstance(value, (bool, str, bytes)):  # ack(7.9) must not ack 7
                raise self._bad_key(field, f"is an integer, not {shown(value)}")
        elif field.kind == "text" and not isinstance(value, str):
            if not isinstance(value, uuid.UUID):
                raise self._bad_key(field, f"is text, not {shown(value)}")
            value = str(value)
        key = self._converted(field, value)
        if field.kind in INTEGERS and not isinstance(key, int):
            raise self._bad_key(field, f"is an integer, not {shown(value)}")
        if field.kind in INTEGERS and not -(2**63) <= key < 2**64:  # MariaDB's BIGINT may be UNSIGNED
            raise BadValue(f"the key {field.name!r} of {self.store.name} is an integer of at most 64 bits")
        try:
            hash(key)
        except TypeError:
            raise self._bad_key(field, f"cannot be {shown(value)}") from None
        return key

    def _bad_key(self, field: Field, why: str) -> BadType:
        return BadType(f"the key {field.name!r} of {self.store.name} {why}")

    def new_many(self, tasks: Sequence[object]) -> list[New]:
        """Return new tasks, in order: successive ones with the same fields and the same seconds together.

        Raises BadValue and BadType.
        """
        together: list[New] = []
        place = 0
        while place < len(tasks):
            new = self.new(tasks[place])
            place += 1
            shape = self._shapes.get(new.brought)
            if shape is not None and shape.rows is not None:
                alike = shape.rows(tasks, place)
                new.rows.extend(alike)
                place += len(alike)
            last = together[-1] if together else None
            if last is not None and (last.brought, last.names, last.own) == (new.brought, new.names, new.own):
                last.rows.extend(new.rows)
                last.tasks.extend(new.tasks)
            else:
                together.append(new)
        return together

    def new(self, task: object) -> New:
        """Return one new task; its key may still have to be made.

        `task` is a mapping, an instance, or a sequence with the values in field order. Raises BadValue and BadType.
        """
        brought: dict[str, Any] = task if type(task) is dict else self.brought(task)
        names = tuple(brought)
        shape = self._shapes.get(names) or self._shape(names)
        if shape.fields is not None:
            return self.new(dict(zip(shape.fields, brought.values(), strict=True)))
        for name in shape.keys:
            if brought[name] is None:  # put makes the missing key
                return self.new({other: value for other, value in brought.items() if other != name})
        values = brought
        if shape.defaults:
            values = {**shape.defaults, **brought}
            for name in shape.called:
                values[name] = values[name]()
        row, own = shape.row, _NOTHING
        if shape.own:
            own = {role: seconds_of(role, values[name]) for role, name in shape.own if values[name] is not None}
        return New([values], names, shape.names, [row(values)], own)

    def _shape(self, names: tuple[Any, ...]) -> Shape:
        """Compile how tasks with these names become rows. Raises BadValue for a name that a task cannot bring."""
        fields = tuple([self.brings(name).name for name in names])
        if fields != names:
            shape = Shape(fields, (), {}, (), (), tuple, None, ())
        else:
            defaults = {name: default for name, default in self.defaults().items() if name not in names}
            roles, fill = self.table.roles, self.machine.fill
            makers = {roles[role].name: maker for role, maker in fill.items() if role in roles}
            columns = tuple(dict.fromkeys([*defaults, *names, *makers]))
            values = [self._value(name, makers.get(name)) for name in columns]
            keys = tuple([name for name in names if name in self._keys])
            own = tuple([(role, name) for name in columns if (role := self._role_of.get(name, "")) in REMEMBERED])
            makes_key = "key" in fill and len(keys) < len(self._keys)
            shape = Shape(
                None,
                keys,
                defaults,
                tuple([name for name, default in defaults.items() if callable(default)]),
                columns,
                generated.row(values),
                None if own or makes_key else generated.rows(values, names, keys, defaults),
                own,
            )
        if len(self._shapes) >= SHAPES:
            self._shapes.clear()
        self._shapes[names] = shape
        return shape

    def _value(self, name: str, maker: Callable[[Mapping[str, Any]], Any] | None) -> generated.Value:
        field, role = self._fields[name], self._role_of.get(name)
        # In these roles a value of the field's own type may still be wrong: NaN, or a negative number of seconds.
        checked = name in self._keys or role in REMEMBERED or (role == "priority" and field.native is not int)
        return generated.Value(name, None if checked else field.native, partial(self._sent, field), maker)

    def _sent(self, field: Field, value: Any) -> Any:
        """Convert a new task's value for the database. Raises BadType and BadValue."""
        role = self._role_of.get(field.name)
        if role and value is not None:
            related = hasattr(value, "_meta")
            check_role(role, self._converted(field, value) if related else value, field.kind)
            if role in REMEMBERED:
                seconds_of(role, value)
        return self._key_part(field, value) if field.name in self._keys else self._converted(field, value)

    def brought(self, task: object) -> dict[str, Any]:
        """Return the values that a new task brings, by name. Raises BadValue and BadType."""
        data = self.store.data(task)
        if data is not None:
            return {name: value for name, value in data.items() if name not in self._not_brought}
        if isinstance(task, Mapping):
            return dict(task)
        if isinstance(task, Sequence) and not isinstance(task, (str, bytes, bytearray)):
            own = {field.name for field in self.table.own.values()}
            names = [name for name in self._names if name not in own]
            if len(task) not in (len(names), len(self._names)):
                raise BadValue(
                    f"a task of {self.store.name} as a sequence has {len(names)} values ({', '.join(names)}), "
                    f"not {len(task)}"
                )
            optional = self._keys | self._not_brought
            names = names if len(task) == len(names) else self._names
            return {n: v for n, v in zip(names, task, strict=True) if v is not None or n not in optional}
        raise BadType(
            f"put takes a mapping, a {self.store.name}, or a sequence of values, "
            f"not {type(task).__name__}: {shown(task)}"
        )

    def has(self, name: str) -> bool:
        """Return whether a field, or its column, has this name."""
        return name in self._fields

    def _refuse_field(self, name: str) -> None:
        """Raise BadValue or BadType if put gets an option named like a field."""
        if self.has(name):
            self.brings(name)  # raises for a field that only the queue writes
            raise BadType(f"put takes a task of {self.store.name} as a mapping: put({{{name!r}: ...}})")

    def defaults(self) -> dict[str, Any]:
        """Return a new task's defaults, by field name: values, and callables that make them."""
        declared, roles = self.store.declared_defaults(), self.table.roles
        own = {roles[role].name: value for role, value in ROLE_DEFAULTS.items() if role in roles}
        return {name: value for name, value in declared.items() if name not in self._never_default} | own

    def known(self, name: object) -> Field:
        """Return a field by its name, or by its column's. Raises BadValue."""
        field = self._fields.get(name) if isinstance(name, str) else None
        if field is None:
            raise BadValue(f"{self.store.name} has no field {shown(name)}: it has {', '.join(self._names)}")
        return field

    def _written(self, name: object) -> Field:
        """Return a field as `known` does. Raises BadValue also for one that the database computes."""
        field = self.known(name)
        if field.computed:
            raise BadValue(f"the database computes {field.name!r} of {self.store.name} from other fields: leave it out")
        return field

    def brings(self, name: object) -> Field:
        """Return a field as `known` does. Raises BadValue also for one that a new task cannot bring."""
        field = self._written(name)
        if field.name in self._managed:
            role = self._role_of[field.name]
            instead = ", and for a time use delay= or at=" if role == "runat" else ""
            raise BadValue(
                f"leave {field.name!r} out{instead}: it is the queue's own ({role}), which only the queue writes"
            )
        return field

    def with_keys(self, new: New) -> New:
        """Return new tasks with keys, made for those without one. Raises BadValue if each task must bring its key."""
        missing = [field for field in self.table.key if field.name not in new.names]
        maker = self.machine.fill.get("key")
        if missing and maker:
            (field,) = missing
            keys = [self._key_part(field, maker(dict(task))) for task in new.tasks]
            rows = [(*row, key) for row, key in zip(new.rows, keys, strict=True)]
            return replace(new, names=(*new.names, field.name), rows=rows, made_keys=True)
        if missing and self.machine.settings.id == "required":
            names = ", ".join(field.name for field in missing)
            raise BadValue(f"a task of {self.store.name} must bring its key (id='required'): {names} is missing")
        return new

    def called(
        self, event: str, options: Mapping[str, Any], update: object, sets: tuple[str, ...] = ()
    ) -> tuple[Spans, dict[str, Any]]:
        """Return a call's options in seconds, and the values that it writes, also by options, by field name.

        Raises FeatureOff, BadType and BadValue.
        """
        own = self.options.writes(event) if options else ()
        seconds = self.options.check(event, {name: options[name] for name in options if name not in own})
        fields = {} if update is None else self.updates(update, sets)
        for name in own:
            roles = self._roles_by(event, name, options.get(name))
            fields |= self.updates({self.table.roles[role].name: value for role, value in roles.items()}, (*roles,))
        return seconds, fields

    def _roles_by(self, event: str, option: str, value: object) -> dict[str, Any]:
        """Return the roles that an option writes, and their values. A task that begins anew has no error."""
        role = option
        if option == "fresh":
            if not (value is None or isinstance(value, bool)):
                raise BadType(f"fresh is True or False, not {shown(value)}")
            role, value = "attempts", 0 if value else None
        if value is None and role not in self.machine.sets.get(event, ()):
            return {}
        if role not in self.table.roles:
            raise FeatureOff(f"{event}({option}=) needs the role {role!r}: map it to a field", role=role)
        check_role(role, value, kind := self.table.roles[role].kind)
        value = self._uuid(value) if kind == "uuid" else value
        error = self.table.roles.get("error") if role == "attempts" else None
        return {role: value} | ({"error": None if error.null else ""} if error else {})

    def updates(self, update: object, sets: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the values in `update=`, converted, by field name. Only xq itself `sets` roles, such as error.

        Raises BadType and BadValue.
        """
        if update is None:
            return {}
        if type(update) is not dict and not isinstance(update, Mapping):
            raise BadType(f"update is a mapping of fields to values, not {shown(update)}")
        fields = self._updated.get((sets, *update))
        if fields is None:
            fields = self._updated[sets, *update] = [self._updatable(name, sets) for name in update]
        return {
            field.name: value if type(value) is field.native else self._converted(field, value)
            for field, value in zip(fields, update.values(), strict=True)
        }

    def _updatable(self, name: object, sets: tuple[str, ...]) -> Field:
        field = self._written(name)
        role = self._role_of.get(field.name)
        if role and role not in sets:
            its = f"{shown(name)} is the queue's {role}{_SET_BY.get(role, '')}"
            raise BadValue(f"update sets the application's own fields: {its}")
        if field in self.table.key:
            raise BadValue(f"update cannot change the key {shown(name)}")
        return field

    def _converted(self, field: Field, value: Any) -> Any:
        if value is None or type(value) is field.native:
            return value
        try:
            converted = field.to_database(value)
            if field.from_database and field.reads_sent:
                field.from_database(converted)  # a value that cannot be read back must not be written
        except BadValue:
            raise
        except (TypeError, AttributeError) as error:
            raise BadType(f"{field.name!r} of {self.store.name} cannot hold {shown(value)}: {error}") from error
        except Exception as error:  # a field may raise any exception; decimal's names a class only
            why = "" if isinstance(error, ArithmeticError) else f": {error}"
            raise BadValue(f"{field.name!r} of {self.store.name} cannot hold {shown(value)}{why}") from error
        return converted


def check_role(role: str, value: Any, kind: Kind) -> None:
    """Raise BadType or BadValue for a value that a new task cannot have in a role."""
    if role == "priority":
        if type(value) is int:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
            raise BadType(f"the priority is a number, not {shown(value)}")
        if value.is_nan() if isinstance(value, decimal.Decimal) else value != value:
            raise BadValue("the priority is a number that can be ordered, not NaN")
    elif role == "tube" and not isinstance(value, (str, uuid.UUID) if kind == "uuid" else str):
        raise BadType(f"a tube is named by text, not by {shown(value)}")
    elif role == "attempts":
        if not is_integer(value):
            raise BadType(f"attempts is an integer, not {shown(value)}")
        if not 0 <= value < 2**31:  # an integer of each database holds it
            raise BadValue(f"attempts is an integer from 0 to {2**31 - 1:,}, not {shown(value)}")


def named(parts: Key) -> dict[str, Any]:
    """Return a key as a statement's named values."""
    return {"k0": parts[0]} if len(parts) == 1 else {f"k{i}": part for i, part in enumerate(parts)}


def numbered(keys: Iterable[Key]) -> dict[str, Any]:
    """Return several keys as a statement's named values."""
    return {f"{name}_{n}": part for n, parts in enumerate(keys) for name, part in named(parts).items()}


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of up to `size` items."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def _ranked(value: Any) -> tuple[int, Any]:
    """Return a sort key that orders values with mixed types as databases do: NULL, numbers, NaN, text, bytes."""
    if isinstance(value, decimal.Decimal) and value.is_nan():
        return 1, math.inf
    rank = 0 if value is None else 2 if isinstance(value, str) else 3 if isinstance(value, bytes) else 1
    return rank, 0 if value is None else value
