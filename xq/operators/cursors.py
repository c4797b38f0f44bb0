"""Cursors of the search: a position as text for URLs. Anybody may send one, so all of it is checked."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from xq.core.errors import BadType, BadValue, shown
from xq.core.ports import fits_a_column
from xq.core.values import Tasks

if TYPE_CHECKING:
    from xq.adapters.databases.searches import Walk


class Place(NamedTuple):
    """A place between two rows of a walk: before or after the row at a position."""

    after: bool
    position: tuple[Any, ...]  # whole numbers, and the key


def write(tasks: Tasks[Any], walk: Walk, place: Place) -> str:
    """Return the cursor of a place."""
    width = len(tasks.table.key)
    key = tasks.app_key(place.position[-width:])
    written = tasks.key_as_text([key] if width == 1 else key)
    text = json.dumps([walk.name, int(place.after), *place.position[:-width], written])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(tasks: Tasks[Any], walk: Walk, cursor: object) -> Place:
    """Return the place of a cursor. Raises BadType and BadValue."""
    if not isinstance(cursor, str):
        raise BadType(f"a cursor is text that find() has returned, not {shown(cursor)}")
    with suppress(ValueError, TypeError, RecursionError, BadType):
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        name, after, *numbers, key = json.loads(text)
        whole = all(type(number) is int and fits_a_column(number) for number in numbers)
        if name == walk.name and after in (0, 1) and whole and len(numbers) == len(walk.fields) - len(tasks.table.key):
            return Place(bool(after), (*numbers, *tasks.identify(tasks.key_in_text(key))[0]))
    raise BadValue(f"{shown(cursor[:80])} is no cursor of this filter: find() returns them; begin without one")
