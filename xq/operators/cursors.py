"""Cursors of the search: a position in an index as text for URLs. Anybody may send one, so all of it is checked."""

from __future__ import annotations

import base64
import decimal
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from xq.core.errors import BadValue, shown
from xq.core.ports import INTEGERS, NUMBERS, Kind, fits_a_column

LONGEST = 16_000  # characters


def write(walk: str, after: bool, position: Sequence[Any]) -> str:
    """Return the cursor of a place: the name of a walk, whether it is after the row, and the row's position."""
    content = [walk, int(after), *map(_written, position)]
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(cursor: str) -> tuple[str, bool, tuple[Any, ...]]:
    """Return what `write` was given. Raises ValueError."""
    if len(cursor) > LONGEST or not re.fullmatch("[A-Za-z0-9_-]*", cursor):
        raise ValueError
    try:
        walk, after, *values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        position = tuple(map(_read, values))
    except (TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ValueError from error
    if after not in (0, 1):
        raise ValueError
    return walk, bool(after), position


def _written(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b": bytes(value).hex()}
    kinds: list[tuple[type, str]] = [(uuid.UUID, "u"), (decimal.Decimal, "d")]
    kinds += [(datetime, "t"), (date, "y")]  # a datetime is a date too
    for kind, tag in kinds:
        if isinstance(value, kind):
            return {tag: value.isoformat() if isinstance(value, date) else str(value)}
    raise BadValue(f"a search cannot go on behind the value {shown(value)} of an index: no cursor holds it")


READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "b": bytes.fromhex,
    "u": uuid.UUID,
    "d": decimal.Decimal,
    "t": datetime.fromisoformat,
    "y": date.fromisoformat,
}


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, text),) = value.items()
    return READ[tag](text)


def fits(kind: Kind, value: Any) -> bool:
    """Return whether a value of a cursor may be compared with a column of this kind."""
    if isinstance(value, bool) or value is None or isinstance(value, (list, dict)):
        return False
    if isinstance(value, str):
        fit = fits_a_column(value) and not any("\ud800" <= each <= "\udfff" for each in value)
        return fit and kind not in NUMBERS
    if isinstance(value, int):
        return kind in NUMBERS and fits_a_column(value)
    if isinstance(value, (float, decimal.Decimal)):
        return kind in NUMBERS and kind not in INTEGERS
    return kind not in NUMBERS and kind != "text"
