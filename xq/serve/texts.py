"""What the pages show of numbers, spans of time, moments and values. Task data is hostile: it may be of any size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from xq.core.words import lasting, name_of

CELL: Final = 100  # characters of a value in a list
WHOLE: Final = 50_000  # characters of a value on the page of its task
DEEPEST: Final = 40  # levels of nested data that are shown
HIDDEN: Final = "hidden"


def number(value: float | None) -> str:
    """Return a number with separators: 12,345; 0.25 for a rate below 10."""
    if value is None:
        return ""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def span(value: float | None) -> str:
    """Return seconds in words; "" if there is no such span."""
    return "" if value is None or not math.isfinite(value) else lasting(max(0.0, value))  # clocks differ


def moment(value: float | datetime | None) -> str:
    """Return a moment in UTC, to the second; "" if there is none, or none that a calendar has."""
    if value is None:
        return ""
    try:
        at = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        return (at.astimezone(UTC) if at.tzinfo else at).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""


def state(letter: str | None) -> str:
    """Return the name of a state, for a badge."""
    return name_of(letter) if letter else "no task"


def plain(value: Any, hidden: frozenset[str] = frozenset(), depth: int = 0) -> Any:
    """Return a value as JSON holds it. The values of hidden names are left out, at any depth."""
    if depth > DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {
            str(name): HIDDEN if str(name) in hidden else plain(each, hidden, depth + 1) for name, each in value.items()
        }
    if isinstance(value, (list, tuple, set)):
        return [plain(each, hidden, depth + 1) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(bytes(value)):,} bytes: {bytes(value)[:CELL].hex(' ')}"
    if isinstance(value, str):
        return _covered(value, hidden, depth)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _covered(text: str, hidden: frozenset[str], depth: int) -> Any:
    """Return a text. JSON with a hidden name is returned as data without its value; too long to be read, as hidden."""
    if text.lstrip()[:1] not in ("{", "[", '"') or not any(name in text for name in hidden):
        return text
    if len(text) > WHOLE:
        return HIDDEN
    try:
        return plain(json.loads(text), hidden, depth + 1)
    except (ValueError, RecursionError):
        return text


def parsed(value: Any) -> Any:
    """Return the data of a text that is a JSON object or array, else the value."""
    if isinstance(value, str) and len(value) <= WHOLE and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def text(value: Any, hidden: frozenset[str] = frozenset()) -> str:
    """Return a value as text: the data of JSON indented, in at most `WHOLE` characters."""
    shown = plain(parsed(value), hidden)
    written = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=2, default=str)
    more = len(written) - WHOLE
    return written if more <= 0 else f"{written[:WHOLE]}\n... and {more:,} more characters"


def cell(value: Any, hidden: frozenset[str] = frozenset()) -> str:
    """Return a value in one short line."""
    if value is None:
        return ""
    shown = plain(value, hidden)
    line = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, default=str)
    line = line[: CELL * 4].strip().partition("\n")[0]
    line = "".join(each if each.isprintable() else " " for each in line)
    return line if len(line) <= CELL else f"{line[:CELL]}..."


def listed(words: Iterable[str]) -> str:
    """Return "a, b and c"."""
    found = list(words)
    return " and ".join(filter(None, [", ".join(found[:-1]), *found[-1:]]))
