"""An extract's rows as Arrow, converted by column: Spark's own conversion from tuples takes twice as long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from xq.pipeline.frames import ARRAY
from xq.pipeline.scan import Extract, Extracted, Part

STORED = {
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
    "BINARY": pa.binary(),
}
STORED |= {f"{ARRAY}{name}>": pa.list_(kind) for name, kind in STORED.items()}
REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def batches(extract: Extract, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
    """Yield a part's rows as RecordBatches with this schema. Raises as the extract does."""
    names = list(schema.names)
    if fast := extract.arrow(names, part):
        columns, given = fast[0], (batch.columns for batch in fast[1])
    else:
        columns = extract.chosen(names)
        given = (list(zip(*rows, strict=True)) for rows in extract.stored(names, part))
    for stored in given:
        made = [_array(extract, *each) for each in zip(columns, stored, schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(made, schema=schema)


def _array(extract: Extract, column: Extracted, stored: Any, kind: pa.DataType) -> pa.Array:
    try:
        of = STORED.get(column.stored, kind)
        array = stored.cast(of) if isinstance(stored, pa.Array) else pa.array(stored, of)
        if pa.types.is_string(array.type) and pa.types.is_timestamp(kind):
            array = array.cast(pa.timestamp(kind.unit))  # without a time zone, so UTC
        if pa.types.is_float32(array.type):  # uses the shortest digits, as the extract does
            array = array.cast(pa.string())
        return array.cast(kind)
    except REFUSALS:  # some values have an unusual form
        return _one_by_one(extract, column, stored, kind)


def _one_by_one(extract: Extract, column: Extracted, stored: Any, kind: pa.DataType) -> pa.Array:
    stored = stored.to_pylist() if isinstance(stored, pa.Array) else stored
    values = [extract.value(column, value) for value in stored]
    try:
        return pa.array(values, kind)
    except REFUSALS:
        for value, read in zip(stored, values, strict=True):
            try:
                pa.scalar(read, kind)
            except REFUSALS as error:
                raise extract.misfit(column, value) from error
        raise
