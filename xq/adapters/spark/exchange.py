"""Convert tasks to a DataFrame, and a DataFrame's rows to field values."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import xq
from xq.adapters.spark.arrow import STORED
from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import Field
from xq.pipeline.frames import ARRAY, as_stored, unchanged
from xq.pipeline.scan import Extracted

ERROR = "xq_error"
JSON = ("JSON", "JSONB")


class Result(NamedTuple):
    """A task's result: the fields to write, and an error or None."""

    update: Mapping[str, Any]
    error: str | None


class Exchange:
    """One queue's tasks as DataFrames with the columns of `format("xq")`, and their results."""

    def __init__(self, queue: xq.Queue[Any]) -> None:
        fields = {field.name: field for field in queue.parts.store.fields}
        self._name, self._key = queue.name, queue.parts.store.key
        own = {field.name for field in queue.parts.tasks.table.own.values()}  # where xq_error would be a result
        columns = [column for column in queue.pipeline.extract("tasks").chosen() if column.name not in own]
        self._schema = ", ".join(column.declared for column in columns)
        self._arrow = pa.schema([(column.name, _arrow_type(column)) for column in columns])
        self._fields = {column.name: (column, fields.get(column.name)) for column in columns}

    def sent(self, tasks: Collection[Mapping[str, Any]]) -> pa.Table:
        """Return taken tasks' fields, by column, as Spark holds them."""
        arrays = []
        for name, (column, field) in self._fields.items():
            if field is None:
                values: list[Any] = ["Taken"] * len(tasks)
            else:
                values = [data[name] for data in tasks]
                if not (set(map(type, values)) <= {AS_THEY_ARE.get(column.type), type(None)} and not _is_json(field)):
                    values = [_sent(column, field, value) for value in values]
            arrays.append(pa.array(values, self._arrow.field(name).type))
        return pa.Table.from_arrays(arrays, schema=self._arrow)

    def made(self, spark: SparkSession, sent: pa.Table) -> DataFrame:
        """Return sent tasks as a DataFrame, by Arrow: Spark's own way from tuples checks and pickles each value."""
        return spark.createDataFrame(sent, self._schema)

    def results(self, frame: DataFrame, sent: pa.Table, keys: Sequence[Any]) -> dict[Any, Result]:
        """Return the results of the sent tasks, whose keys are in the same order. Raises BadType and BadValue."""
        if not isinstance(frame, DataFrame):
            raise BadType(f"work returns a DataFrame, not {shown(frame)}")
        names = frame.columns
        for name in self._key:
            if name not in names:
                raise BadValue(f"work returns the key of each task: {name!r} is not in ({', '.join(names)})")
        for name in names:
            if names.count(name) > 1:
                raise BadValue(f"work returned two columns called {name!r}")
            if name != ERROR and name not in self._fields:
                known = ", ".join(self._fields)
                raise BadValue(
                    f"work returned {name!r}, which is neither a field of {self._name} ({known}) nor {ERROR}"
                )
        received = _columns(frame.limit(len(keys) + 1).toArrow())  # one row more is a repeated task, or a foreign one
        before = _columns(sent.select([name for name in names if name != ERROR]))
        places = {part: place for place, part in enumerate(zip(*[before[name] for name in self._key], strict=True))}
        found: dict[int, dict[str, Any]] = {}
        for part in zip(*[received[name] for name in self._key], strict=True):
            if part not in places:
                raise BadValue(f"work returned a row of {shown(part)}, which is not the key of a task in its batch")
            if places[part] in found:
                raise BadValue(f"work returned two rows of the task {shown(keys[places[part]])}")
            found[places[part]] = {}
        errors = received.pop(ERROR, [None] * len(found))
        for name in received.keys() - self._key:
            for (place, update), value, error in zip(found.items(), received[name], errors, strict=True):
                if value != before[name][place] and not (error is not None and value is None):  # it has no result
                    update[name] = self._app(name, value)
        return {
            keys[place]: Result(update, None if error is None else str(error))
            for (place, update), error in zip(found.items(), errors, strict=True)
        }

    def _app(self, name: str, value: Any) -> Any:
        """Return a Spark value as the application writes it. Raises BadValue and BadType."""
        column, field = self._fields[name]
        if field is None:
            raise BadValue(f"{name!r} is the queue's own: set {ERROR} to decide what becomes of a task")
        if column.type not in ("STRING", "BINARY"):
            # raises for a value that SQLite would store, but xq could not read again
            as_stored(self._name, field, [value])
        if column.type.startswith(ARRAY):
            return as_stored(self._name, field, [value])[0]
        if isinstance(value, datetime) and field.kind != "timestamptz":
            return value.replace(tzinfo=None)  # stored without a time zone, in UTC
        if isinstance(value, str) and field.type.upper() in JSON:
            try:
                return json.loads(value)
            except ValueError as error:
                raise BadValue(f"{name!r} is JSON, not {shown(value)}: {error}") from error
        if field.from_database and value is not None and field.kind != "uuid" and column.type in ("STRING", "BIGINT"):
            return field.from_database(value)
        return value


def _arrow_type(column: Extracted) -> pa.DataType:
    if column.type.startswith("DECIMAL"):
        digits, places = map(int, column.type.removeprefix("DECIMAL(").rstrip(")").split(","))
        return pa.decimal128(digits, places)
    return STORED[column.type]


def _is_json(field: Field) -> bool:
    return field.kind == "other" and field.type.upper() in JSON


def _sent(column: Extracted, field: Field, value: Any) -> Any:
    """Return an application's value as Spark holds it."""
    if value is None:
        return None
    if column.type == "TIMESTAMP" and isinstance(value, datetime):
        return _in_utc(value)
    if column.type == "ARRAY<STRING>":
        return [each if each is None else str(each) for each in value]
    if column.type == "STRING" and _is_json(field):
        return json.dumps(value)
    if column.type == "STRING" and field.kind != "text":
        return str(value)
    if column.type in PLAIN and not isinstance(value, PLAIN[column.type]):
        value = field.to_database(value)
    if column.type.startswith("DECIMAL"):
        return column.decimal(value)
    return MADE.get(column.type, unchanged)(value)


PLAIN: Mapping[str, Any] = {
    "STRING": str,
    "BIGINT": int,
    "DOUBLE": (int, float),
    "BOOLEAN": (bool, int),
    "BINARY": (bytes, bytearray, memoryview),
}
AS_THEY_ARE: Mapping[str, type] = {"STRING": str, "BIGINT": int, "DOUBLE": float, "BOOLEAN": bool, "BINARY": bytes}
MADE: Mapping[str, Callable[[Any], Any]] = {"BIGINT": int, "DOUBLE": float, "BOOLEAN": bool, "BINARY": bytes}


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    """Return a table's values by column. Its times have a time zone, except zoneless ones."""
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist(maps_as_pydicts="strict")
        if pa.types.is_timestamp(column.type):
            values = [_in_utc(value) if isinstance(value, datetime) else value for value in values]
        found[name] = values
    return found


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
