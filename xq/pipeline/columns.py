"""Convert data frame columns to table columns, without the model."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from xq.core.errors import BadValue, ConfigurationError, shown
from xq.core.kinds import Field, Row
from xq.core.machine import ABSENT, REMEMBERED
from xq.core.options import seconds_of
from xq.core.values import Tasks, check_role
from xq.pipeline.frames import as_stored, is_beyond, type_of

Columns = Sequence[Sequence[Any]]  # row values, column by column


@dataclass(frozen=True)
class Sources:
    """What supplies the values that a frame lacks, by field name. Functions are `pickled`."""

    defaults: Mapping[str, Any]  # as the table stores them
    anew: Mapping[str, bytes]  # functions without arguments, called for each task
    fill: Mapping[str, bytes]  # functions from the task's values, called for each task without a value


def pickled(made: Callable[..., Any]) -> bytes:
    """Return a function as bytes for another process; empty if it cannot be imported there by its name."""
    with suppress(Exception):  # pickle may fail in any way
        found = pickle.dumps(made)
        return b"" if b"__main__" in found else found
    return b""


def _unpickled(made: bytes, name: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = pickle.loads(made)
        return found
    except Exception as error:
        raise ConfigurationError(
            f"what makes values for {name!r} is not known to this process ({error or 'it could not be sent'}): have it "
            "be a function of a module that is installed here, or bring the column"
        ) from error


class Target(NamedTuple):
    """What a frame's column sets: a field, or an option for put, perhaps in the field that remembers it."""

    field: Field | None
    option: str


class Alike(NamedTuple):
    """What rows share that one statement puts."""

    seconds: tuple[tuple[str, float], ...]  # put's options, by name
    has_key: bool


class Frame:
    """A frame's columns as a queue sees them: fields by name, followed by put's options.

    Raises BadValue and FeatureOff for columns that put cannot take.
    """

    def __init__(
        self, tasks: Tasks[Any], columns: Sequence[str], options: Sequence[str], sources: Sources, forever: float
    ) -> None:
        self.tasks, self.table = tasks, tasks.table
        self.name, self.forever = tasks.store.name, forever
        self.options = tuple(options)
        self.columns = tuple(columns)
        self._places: dict[Target, int] = {}
        for place, column in enumerate(columns):
            target = self._target(column)
            if target in self._places:
                other = columns[self._places[target]]
                raise BadValue(f"the columns {shown(other)} and {shown(column)} set the same: drop one of them")
            self._places[target] = place
        missing = [field.name for field in self.table.key if Target(field, "") not in self._places]
        if missing and tasks.machine.settings.id == "required":
            raise BadValue(f"tasks of {self.name} must bring their keys: there is no column {', '.join(missing)}")
        fields = {field.name: self._of(field) for field in self.table.fields}
        # Made if the frame has no such column, and made for a row without a value in it.
        self._defaults = {fields[n]: v for n, v in sources.defaults.items() if fields[n] not in self._places}
        self._anew = {
            fields[n]: _unpickled(make, n) for n, make in sources.anew.items() if fields[n] not in self._places
        }
        self._fill = {fields[n]: _unpickled(make, n) for n, make in sources.fill.items()}
        self.targets = tuple(dict.fromkeys([*self._places, *self._defaults, *self._anew, *self._fill]))
        self._key = [Target(field, "") for field in self.table.key]
        self._brought = [target for target in self.targets if target.field]

    def _of(self, field: Field) -> Target:
        roles = (role for role in REMEMBERED if role in self.options and self.table.roles.get(role) == field)
        option = next(roles, "")
        return Target(None if option else field, option)

    def _target(self, column: str) -> Target:
        if self.tasks.has(column):
            field = self.tasks.brings(column)
            if is_beyond(kind := type_of(field)):
                raise BadValue(f"no frame can bring {field.name!r} of {self.name}, which is {kind}: drop the column")
            return self._of(field)
        if column in self.options:
            return Target(None, column)
        if self.tasks.options.may_be("put", column):
            self.tasks.options.refuse_option("put", column)
        fields = ", ".join(field.name for field in self.table.fields)
        options = f", nor is it an option of put ({', '.join(self.options)})" if self.options else ""
        raise BadValue(f"{self.name} has no field for the column {shown(column)}: it has {fields}{options}")

    def stored(self, part: Columns) -> dict[Target, Sequence[Any]]:
        """Return some rows as the table stores them. Raises BadValue and BadType."""
        rows = len(part[0]) if part else 0
        found = {target: self._converted(target, part[place]) for target, place in self._places.items()}
        for target, value in self._defaults.items():
            found[target] = self._converted(target, [value] * rows) if target.option else [value] * rows
        for target, make in self._anew.items():
            found[target] = self._converted(target, [make() for _ in range(rows)])
        for target, fill in self._fill.items():
            values = found.get(target) or [None] * rows
            if None in values:
                tasks = (dict(zip(self.columns, row, strict=True)) for row in zip(*part, strict=True))
                new: Sequence[Any] = [
                    fill(task) if value is None else None for value, task in zip(values, tasks, strict=True)
                ]
                new = self._converted(target, new)
                found[target] = [made if value is None else value for value, made in zip(values, new, strict=True)]
        return found

    def _converted(self, target: Target, column: Sequence[Any]) -> Sequence[Any]:
        field, option = target
        if option:
            return [None if value is None else self._seconds(option, value) for value in column]
        assert field is not None
        role = next((role for role, one in self.table.roles.items() if one == field), "")
        if role in ("priority", "tube"):
            for value in column:
                if value is not None:
                    check_role(role, value, field.kind)
        return as_stored(self.name, field, column)

    def _seconds(self, option: str, value: Any) -> float:
        ends = any(detour.option == option for detour in self.tasks.machine.detours)
        seconds = seconds_of(option, float(value) if isinstance(value, Decimal) else value, ends)
        return self.forever if seconds is None else seconds

    def alike(self, part: Columns) -> dict[Alike, list[Row]]:
        """Return some rows' values, ordered as `names` are, by what they share. Raises FeatureOff, BadValue."""
        found = self.stored(part)
        options = [target.option for target in self.targets if target.option]
        seconds = zip(*(found[target] for target in self.targets if target.option), strict=True)
        rows = zip(*(found[target] for target in self._brought), strict=True)
        keys = [self._brought.index(target) for target in self._key if target in self._brought]
        others = [place for place in range(len(self._brought)) if place not in keys]
        together: dict[Alike, list[Row]] = {}
        for _ in range(len(part[0]) if part else 0):
            row = next(rows) if self._brought else ()
            own = next(seconds) if options else ()
            has_key = len(keys) == len(self._key) and None not in [row[place] for place in keys]
            given = tuple([(name, value) for name, value in zip(options, own, strict=True) if value is not None])
            alike = Alike(given, has_key)
            if alike not in together:
                self.tasks.options.choose(ABSENT, "put", dict.fromkeys(dict(given), 1.0))
                if not has_key and self.tasks.machine.settings.id == "required":
                    raise BadValue(f"tasks of {self.name} must bring their keys, and a row has none (id='required')")
                together[alike] = []
            together[alike].append(row if has_key or not keys else tuple([row[place] for place in others]))
        return together

    def names(self, alike: Alike) -> tuple[str, ...]:
        """Return the names of the fields that such rows fill."""
        brought = [target for target in self._brought if alike.has_key or target not in self._key]
        return tuple([target.field.name for target in brought if target.field])
