"""What the pages show of numbers, times and values. Task data is hostile: it may be of any size and depth."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from xq.core.words import lasting, name_of
from xq.operators.failures import failure_of
from xq.operators.filters import Term, parse

CELL: Final = 100  # characters of a value in a list
WHOLE: Final = 50_000  # characters of a value on the page of its task
DEEPEST: Final = 40  # levels of nested data that are shown
HIDDEN: Final = "hidden"


def number(value: float) -> str:
    """Return a number with separators: 12,345; 0.25 for a rate below 10."""
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 1 else 2
    return f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    return "–" if value is None else f"{number(value)}/s"


def span(seconds: float | None) -> str:
    """Return a span of time in words; "" if there is none."""
    return "" if seconds is None or not math.isfinite(seconds) else lasting(max(0.0, seconds))  # clocks differ


def moment(value: Any) -> str:
    """Return a moment in UTC, to the second; "" if there is none, or none that a calendar has."""
    try:
        at = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        return f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S}"
    except (TypeError, OverflowError, ValueError, OSError):
        return ""


def narrowed(filter: str, name: str, *values: object) -> str:
    """Return a filter with one more term, in the place of those of its name."""
    kept = [term for term in parse(filter) if term.name != name]
    return " ".join(map(str, [*kept, Term(name, ":", tuple(map(str, values)))]))


@dataclass(frozen=True)
class Texts:
    """Shows values as text, without those of hidden names: fields, and what JSON has under such a name."""

    hidden: frozenset[str] = frozenset()

    @property
    def filters(self) -> dict[str, Any]:
        """The filters of the templates."""
        return {
            "number": number,
            "span": span,
            "moment": moment,
            "zip": zip,
            "narrowed": narrowed,
            "kind": lambda error: failure_of(str(error or "")[: CELL * 4]).error,
            "cell": self.cell,
            "text": self.text,
            "json": lambda fields: self._written(fields, "", opens="", indent=2),
            "rate": rate,
            "ago": lambda since: "" if since is None else span(time.time() - since),
            "since": lambda since: " ".join(span(max(1, round(time.time() - since))).split()[:2]),
            "state": lambda letter: name_of(letter) if letter else "no task",
            "spans": lambda steps: [(step.target, step.seconds or 0.0) for step in steps],
            "atleast": max,
        }

    def cell(self, value: Any, name: str = "") -> str:
        """Return a value, that of the field `name` if it is one, in one short line."""
        line = self._written(value, name, opens="")[: CELL * 4].strip().partition("\n")[0]
        line = "".join(each if each.isprintable() else " " for each in line)
        return line if len(line) <= CELL else f"{line[:CELL]}..."

    def text(self, value: Any, name: str = "") -> str:
        """Return a value as text: JSON indented, in at most `WHOLE` characters."""
        written = self._written(value, name, opens="{[", indent=2)
        more = len(written) - WHOLE
        return written if more <= 0 else f"{written[:WHOLE]}\n... and {more:,} more characters"

    def _written(self, value: Any, name: str, opens: str, indent: int | None = None) -> str:
        shown = HIDDEN if name in self.hidden else "" if value is None else self._plain(value, 0, opens)
        return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=indent, default=str)

    def _plain(self, value: Any, depth: int, opens: str = "") -> Any:
        """Return a value as JSON holds it. A text that begins with one of `opens` is read as JSON."""
        if depth > DEEPEST:
            return "..."
        if isinstance(value, Mapping):
            pairs = ((str(name), each) for name, each in value.items())
            return {name: HIDDEN if name in self.hidden else self._plain(each, depth + 1) for name, each in pairs}
        if isinstance(value, (list, tuple, set)):
            return [self._plain(each, depth + 1) for each in value]
        if isinstance(value, (bytes, bytearray, memoryview)):
            if any(name.encode("utf-8", "replace") in bytes(value) for name in self.hidden):
                return HIDDEN
            return f"{len(bytes(value)):,} bytes: {bytes(value)[:CELL].hex(' ')}"
        if not isinstance(value, str):
            return value if value is None or isinstance(value, (bool, int, float)) else str(value)
        begins = value.lstrip()[:1] or " "
        if begins not in '{["' and any(f"{quote}{name}" in value for name in self.hidden for quote in "\"'"):
            return HIDDEN  # JSON that a message quotes
        may_hide = begins in '{["' and any(name in value or "\\u" in value for name in self.hidden)
        if not may_hide and (begins not in opens or len(value) > WHOLE):
            return value
        try:
            return self._plain(json.loads(value), depth + 1) if len(value) <= WHOLE else HIDDEN
        except (ValueError, RecursionError):
            return HIDDEN if may_hide else value
