"""Cursors of the search: a position as text for URLs. Anybody may send one, so all of it is checked."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from xq.core.errors import BadType, BadValue, shown
from xq.core.ports import INTEGERS, NUMBERS, Field, fits_a_column

LONGEST = 16_000  # characters
BYTES: Final = (bytes, bytearray, memoryview)
READ: Final[Mapping[str, Callable[[str], Any]]] = {
    **{kind.__name__: kind for kind in (int, float, str, Decimal, uuid.UUID)},
    **{kind.__name__: kind.fromisoformat for kind in (datetime, date)},
    **{kind.__name__: bytes.fromhex for kind in BYTES},
}


class Place(NamedTuple):
    """A place between two rows of a walk: before or after the row at a position."""

    after: bool
    position: tuple[Any, ...]


def write(name: str, place: Place) -> str:
    """Return the cursor of a place in the walk of a name."""
    parts = [(type(part).__name__, part.hex() if isinstance(part, BYTES) else str(part)) for part in place.position]
    if not all(kind in READ for kind, _ in parts):
        raise BadValue(f"a search cannot go on behind the key {shown(place.position)}: no cursor holds it")
    return base64.urlsafe_b64encode(json.dumps([name, int(place.after), *parts]).encode()).decode().rstrip("=")


def read(cursor: object, name: str, fields: Sequence[Field]) -> Place:
    """Return the place of a cursor in the walk of a name, along these fields. Raises BadType and BadValue."""
    if not isinstance(cursor, str):
        raise BadType(f"a cursor is text that find() has returned, not {shown(cursor)}")
    with suppress(ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        text = base64.b64decode(cursor[:LONGEST] + "=" * (-len(cursor) % 4), b"-_", validate=True)
        walk, after, *parts = json.loads(text)
        position = tuple([READ[kind](part) for kind, part in parts])
        fit = all(_fits(field, value) for field, value in zip(fields, position, strict=True))
        if fit and walk == name and after in (0, 1):
            return Place(bool(after), position)
    raise BadValue(f"{shown(cursor[:80])} is no cursor of this filter: find() returns them; begin without one")


def _fits(field: Field, value: Any) -> bool:
    """Return whether a value may be compared with a column."""
    if isinstance(value, str):
        fit = fits_a_column(value) and not any("\ud800" <= each <= "\udfff" for each in value)
        return fit and field.kind not in NUMBERS
    if isinstance(value, (int, float, Decimal)):
        is_whole = isinstance(value, int) and fits_a_column(value)
        return is_whole if field.kind in INTEGERS else field.kind in NUMBERS
    return field.kind not in NUMBERS and field.kind != "text"
