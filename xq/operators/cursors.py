"""Cursors of the search: a position as text for URLs. Anybody may send one, so all of it is checked."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from xq.core.errors import BadValue, shown
from xq.core.ports import INTEGERS, NUMBERS, Field, fits_a_column

LONGEST = 16_000  # characters
BYTES: Final = (bytes, bytearray, memoryview)
READ: Final[Mapping[str, Callable[[str], Any]]] = {
    **{kind.__name__: kind for kind in (int, float, str, Decimal, uuid.UUID)},
    **{kind.__name__: kind.fromisoformat for kind in (datetime, date)},
    **{kind.__name__: bytes.fromhex for kind in BYTES},
}


def write(name: str, after: bool, position: Sequence[Any]) -> str:
    """Return the cursor of a place: the name of a walk, whether it is after the row, and the row's position."""
    parts = [(type(value).__name__, value.hex() if isinstance(value, BYTES) else str(value)) for value in position]
    if not all(kind in READ for kind, _ in parts):
        raise BadValue(f"a search cannot go on behind the key {shown(position)}: no cursor holds it")
    return base64.urlsafe_b64encode(json.dumps([name, int(after), *parts]).encode()).decode().rstrip("=")


def read(cursor: str, name: str, fields: Sequence[Field]) -> tuple[bool, tuple[Any, ...]]:
    """Return what `write` was given for the walk of that name and those fields. Raises ValueError."""
    if len(cursor) > LONGEST:
        raise ValueError
    try:
        walk, after, *parts = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
        position = tuple([READ[kind](text) for kind, text in parts])
        fit = all(_fits(field, value) for field, value in zip(fields, position, strict=True))
    except (TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ValueError from error
    if walk != name or after not in (0, 1) or not fit:
        raise ValueError
    return bool(after), position


def _fits(field: Field, value: Any) -> bool:
    """Return whether a value may be compared with a column."""
    if isinstance(value, str):
        fit = fits_a_column(value) and not any("\ud800" <= each <= "\udfff" for each in value)
        return fit and field.kind not in NUMBERS
    if isinstance(value, (int, float, Decimal)):
        is_whole = isinstance(value, int) and fits_a_column(value)
        return is_whole if field.kind in INTEGERS else field.kind in NUMBERS
    return field.kind not in NUMBERS and field.kind != "text"
