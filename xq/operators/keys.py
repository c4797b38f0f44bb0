"""Keys as a person writes them: in a command, a filter or a URL."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from xq.core.errors import BadValue, shown
from xq.core.kinds import BYTES, INTEGERS, Field
from xq.core.values import Tasks


def key_in_text(tasks: Tasks[Any], text: str) -> Any:
    """Return the key that a person wrote, as methods take it: several parts are a JSON array. Raises BadValue."""
    fields, given = tasks.table.key, [text]
    if len(fields) > 1:
        given = []
        with suppress(ValueError, RecursionError):
            given = json.loads(text)
        if not isinstance(given, list) or len(given) != len(fields):
            names = ", ".join(field.name for field in fields)
            raise BadValue(f"a key of {tasks.store.name} is a JSON array of {names}, not {shown(text)}")
    parts = tuple(_part_in_text(field, str(part)) for field, part in zip(fields, given, strict=True))
    return parts[0] if len(parts) == 1 else parts


def key_as_text(parts: Sequence[Any]) -> str:
    """Return a key, in the parts that the application has, as `key_in_text` reads it."""
    texts = [part_as_text(part) for part in parts]
    return str(texts[0]) if len(texts) == 1 else json.dumps(texts, default=str)


def part_as_text(part: Any) -> Any:
    """Return a part of a key as a person writes it: bytes in hexadecimal digits, as the history has them."""
    return bytes(part).hex().upper() if isinstance(part, (bytes, bytearray, memoryview)) else part


def _part_in_text(field: Field, text: str) -> Any:
    if field.type.upper() in BYTES:
        for read in (bytes.fromhex, uuid.UUID):
            with suppress(Exception):  # the application's own type converts what it knows
                if not isinstance(field.to_database(part := read(text)), uuid.UUID):
                    return part
        raise BadValue(f"the key {field.name!r} is hexadecimal digits, as 00FF27, or a UUID, not {shown(text)}")
    if field.kind not in INTEGERS:
        return text
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise BadValue(f"the key {field.name!r} is a whole number of up to 64 bits, not {shown(text)}")
    return int(text)
