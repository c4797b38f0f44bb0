"""Cursors of the search: a position as text for URLs. Anybody may send one, so all of it is checked."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from xq.core.errors import BadType, BadValue, shown
from xq.core.ports import INTEGERS, NUMBERS, Field, fits_a_column

LONGEST: Final = 16_000  # characters


class Place(NamedTuple):
    """A place between two rows of a walk: before or after the row at a position."""

    after: bool
    position: tuple[Any, ...]


def write(name: str, place: Place) -> str:
    """Return the cursor of a place in the walk of a name."""
    text = json.dumps([name, int(place.after), *map(_written, place.position)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(cursor: object, name: str, fields: Sequence[Field]) -> Place:
    """Return the place of a cursor in the walk of a name, along these fields. Raises BadType and BadValue."""
    if not isinstance(cursor, str):
        raise BadType(f"a cursor is text that find() has returned, not {shown(cursor)}")
    with suppress(ValueError, TypeError, RecursionError):
        text = base64.b64decode(cursor[:LONGEST] + "=" * (-len(cursor) % 4), b"-_", validate=True)
        walk, after, *parts = json.loads(text)
        if walk == name and after in (0, 1):
            return Place(bool(after), tuple([_read(field, part) for field, part in zip(fields, parts, strict=True)]))
    raise BadValue(f"{shown(cursor[:80])} is no cursor of this filter: find() returns them; begin without one")


def _written(part: Any) -> Any:
    """Return a part as JSON can hold it: bytes as a list of their digits, a UUID, a decimal or a time as text."""
    if isinstance(part, (bytes, bytearray, memoryview)):
        return [part.hex()]
    return part if isinstance(part, (int, float)) else str(part)


def _read(field: Field, part: Any) -> Any:
    """Return a part that may be compared with a column. Raises ValueError and TypeError."""
    if isinstance(part, list) and field.kind not in (*NUMBERS, "text"):
        return bytes.fromhex(*part)
    wanted = int if field.kind in INTEGERS else (int, float, str) if field.kind in NUMBERS else str
    if isinstance(part, bool) or not isinstance(part, wanted) or not (isinstance(part, float) or fits_a_column(part)):
        raise ValueError
    str(part).encode()  # raises ValueError for half of a character
    return part
