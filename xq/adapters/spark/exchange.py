"""Convert tasks to a DataFrame, and a DataFrame's rows to field values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import xq
from xq.adapters.spark.arrow import STORED
from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import Field
from xq.pipeline.frames import as_stored, unchanged
from xq.pipeline.scan import Extracted

ERROR = "xq_error"
JSON = ("JSON", "JSONB")


@dataclass(frozen=True, slots=True)
class Result:
    """A task's result: the fields to write, and an error or None."""

    update: Mapping[str, Any]
    error: str | None


class Exchange:
    """One queue's tasks as DataFrames with the columns of `format("xq")`, and their results."""

    def __init__(self, queue: xq.Queue[Any]) -> None:
        fields = {field.name: field for field in queue.parts.store.fields}
        self._name, self._key = queue.name, queue.parts.store.key
        columns = queue.pipeline.extract("tasks").chosen()
        self._schema = ", ".join(column.declared for column in columns)
        self._arrow = pa.schema([(column.name, _arrow_type(column)) for column in columns])
        self._fields = {column.name: (column, fields.get(column.name)) for column in columns}

    def sent(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a taken task's fields, by column, as Spark holds them."""
        return {
            name: "Taken" if field is None else _sent(column, field, data[name])
            for name, (column, field) in self._fields.items()
        }

    def made(self, spark: SparkSession, tasks: list[dict[str, Any]]) -> DataFrame:
        """Return tasks as a DataFrame, by Arrow: Spark's own way from tuples checks and pickles each value."""
        arrays = [pa.array([task[field.name] for task in tasks], field.type) for field in self._arrow]
        return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=self._arrow), self._schema)

    def results(self, frame: DataFrame, sent: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Result]:
        """Return the sent tasks' results; both are by key. Raises BadType and BadValue."""
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
        keys = {self._key_in(task): key for key, task in sent.items()}
        found: dict[Any, Result] = {}
        some = frame.limit(len(keys) + 1)  # one row more means a repeated task, or one from another batch
        for received in _rows(some):
            values = dict(zip(names, received, strict=True))
            part = self._key_in(values)
            if part not in keys:
                raise BadValue(f"work returned a row of {shown(part)}, which is not the key of a task in its batch")
            key = keys[part]
            if key in found:
                raise BadValue(f"work returned two rows of the task {shown(key)}")
            error = values.pop(ERROR, None)
            before = sent[key]
            update = {name: self._app(name, value) for name, value in values.items() if value != before[name]}
            found[key] = Result(update, None if error is None else str(error))
        return found

    def _key_in(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([values[name] for name in self._key])

    def _app(self, name: str, value: Any) -> Any:
        """Return a Spark value as the application writes it. Raises BadValue and BadType."""
        column, field = self._fields[name]
        if field is None:
            raise BadValue(f"{name!r} is the queue's own: set {ERROR} to decide what becomes of a task")
        if column.type not in ("STRING", "BINARY"):
            # raises for a value that SQLite would store, but xq could not read again
            as_stored(self._name, field, [value])
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


def _sent(column: Extracted, field: Field, value: Any) -> Any:
    """Return an application's value as Spark holds it."""
    if value is None:
        return None
    if column.type == "TIMESTAMP" and isinstance(value, datetime):
        return _in_utc(value)
    if column.type == "STRING" and field.kind == "other" and field.type.upper() in JSON:
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
MADE: Mapping[str, Callable[[Any], Any]] = {"BIGINT": int, "DOUBLE": float, "BOOLEAN": bool, "BINARY": bytes}


def _rows(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield a frame's rows, by Arrow. Its times have a time zone, except zoneless ones."""
    table = frame.toArrow()
    columns = (column.to_pylist(maps_as_pydicts="strict") for column in table.columns)
    read = [
        [_in_utc(value) if isinstance(value, datetime) else value for value in values]
        if pa.types.is_timestamp(column.type)
        else values
        for column, values in zip(table.columns, columns, strict=True)
    ]
    yield from zip(*read, strict=True)


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
