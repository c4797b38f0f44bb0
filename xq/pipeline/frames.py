"""Field kinds in a data frame: the Spark type for each, and how a frame's value is stored."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

from xq.core.errors import BadType, BadValue, shown
from xq.core.kinds import INTEGERS, Field


def _integer(value: Any) -> int:
    number = int(value)
    if isinstance(value, str) or number != value:
        raise ValueError("it is not a whole number")
    if not -(2**63) <= number < 2**63:
        raise ValueError("it has more than 64 bits")
    return number


def _text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes are no text")
    return _compact(value) if isinstance(value, (dict, list)) else str(value)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _json(value: Any) -> str:
    """Return a value as compact JSON text. A str must contain JSON; else raises ValueError."""
    return _compact(json.loads(value) if isinstance(value, str) else value)


def _uuid(value: Any) -> uuid.UUID:
    return uuid.UUID(bytes=bytes(value)) if isinstance(value, (bytes, bytearray)) else uuid.UUID(str(value))


def _moment(value: Any) -> datetime:
    """Return a moment in UTC. A datetime without a time zone is read as UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _bool(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError("it is neither true nor false")
    return bool(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("it is not of bytes")
    return bytes(value)


def _date(value: Any) -> Any:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.date() if isinstance(found, datetime) else found


def unchanged(value: Any) -> Any:
    return value


class Framed(NamedTuple):
    """The form that a field kind has in a Spark frame. Values whose type is `native` are stored unchanged."""

    spark: str  # Spark's type
    stored: Callable[[Any], Any]
    native: type | None = None


OTHER: Final = Framed("STRING", unchanged)

# By field kind; if xq has none for the field, by its declared type.
FRAMED: Final[Mapping[str, Framed]] = {
    **dict.fromkeys((*INTEGERS, "INT", "INTEGER", "SMALLINT", "BIGINT"), Framed("BIGINT", _integer, int)),
    **dict.fromkeys(("float", "double"), Framed("DOUBLE", float, float)),
    **dict.fromkeys(("text", "LONGTEXT"), Framed("STRING", _text, str)),
    "uuid": Framed("STRING", lambda value: _uuid(value).hex),
    "datetime": Framed("TIMESTAMP", lambda value: _moment(value).replace(tzinfo=None)),
    "timestamptz": Framed("TIMESTAMP", _moment),
    "decimal": Framed("DECIMAL", lambda value: Decimal(str(value)), Decimal),
    **dict.fromkeys(("BOOL", "BOOLEAN"), Framed("BOOLEAN", _bool, bool)),
    **dict.fromkeys(("JSON", "JSONB"), Framed("STRING", _json)),
    **dict.fromkeys(
        ("BLOB", "BYTEA", "BINARY", "VARBINARY", "MEDIUMBLOB", "LONGBLOB"), Framed("BINARY", _bytes, bytes)
    ),
    "UUIDB": Framed("BINARY", lambda value: _uuid(value).bytes),
    "DATE": Framed("DATE", _date, date),
    "TIME": Framed("STRING", lambda value: time.fromisoformat(value) if isinstance(value, str) else value, time),
}


ELEMENTS: Final[Mapping[str, Framed]] = {  # of PostgreSQL's arrays, by their declared types
    **{name: FRAMED[name] for name in ("INT", "INTEGER", "SMALLINT", "BIGINT", "BOOL", "BOOLEAN", "DATE")},
    **dict.fromkeys(("FLOAT", "REAL", "DOUBLE", "DOUBLE PRECISION"), FRAMED["double"]),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "CHARACTER VARYING"), FRAMED["text"]),
    "UUID": Framed("STRING", _uuid),  # the driver would send a list of texts
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMP WITHOUT TIME ZONE"), FRAMED["datetime"]),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"), FRAMED["timestamptz"]),
}
ARRAY: Final = "ARRAY<"  # how the type of an array begins


def is_beyond(kind: str) -> bool:
    """Return whether Spark lacks a column's type: it is an array's declared type then, as INT[][]."""
    return "[" in kind


def _array(declared: str) -> Framed:
    element = ELEMENTS.get(declared.removesuffix("[]"))
    if element is None:
        return Framed(declared, unchanged)

    def stored(values: Any) -> Any:
        if not isinstance(values, (list, tuple)):
            raise TypeError("it is not a list")
        return [None if value is None else element.stored(value) for value in values]

    return Framed(f"{ARRAY}{element.spark}>", stored)


def framed(field: Field) -> Framed:
    """Return the form that a field has in a frame. An unknown kind is STRING, and its values are stored unchanged."""
    if "[" in field.type:
        return _array(re.sub(r"\([^)]*\)|\d+(?=\])", "", field.type.upper()))
    return FRAMED.get(field.kind) or FRAMED.get(field.type.upper().partition("(")[0]) or OTHER


def type_of(field: Field) -> str:
    found = framed(field).spark
    if found != "DECIMAL":
        return found
    digits, places = field.digits or (38, 18)
    return f"DECIMAL({digits},{places})" if digits <= 38 else "STRING"


def as_stored(queue: str, field: Field, column: Sequence[Any]) -> Sequence[Any]:
    """Convert a frame column's values to what the table stores. Raises BadValue and BadType."""
    _, stored, native = framed(field)
    if set(map(type, column)) <= {native, type(None)}:
        return column
    value: Any = None
    try:
        return [None if (value := each) is None else stored(each) for each in column]
    except (TypeError, AttributeError) as error:
        raise BadType(f"{field.name!r} of {queue} cannot hold {shown(value)}: {error}") from error
    except (ValueError, ArithmeticError) as error:
        raise BadValue(f"{field.name!r} of {queue} cannot hold {shown(value)}: {error}") from error
