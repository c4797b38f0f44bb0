"""Numbers, times and values as pages show them. Task data is hostile: it may have any size and depth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context

from xq.core import time
from xq.core.words import NAMES, counted, lasting, name_of
from xq.operators.failures import failure_of
from xq.operators.filters import Term, parse

CELL: Final = 100  # a value's characters in a list
WHOLE: Final = 50_000  # a value's characters on its task's page
HIDDEN: Final = "hidden"


def number(value: float) -> str:
    """Return a number with separators: 12,345; 0.25 for a rate below 10."""
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 1 else 2
    return f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    return "–" if value is None else f"{number(value)}/s"


@pass_context
def state(context: Context, letter: str | None, event: str = "") -> str:
    """Return the word of the page's queue for a state."""
    entry = context.get("entry")
    names = entry.queue.parts.tasks.wording.spelled if entry else NAMES
    return name_of(letter, names, event) if letter else "no task"


def span(seconds: float | None) -> str:
    """Return a time span in words; "" if there is none."""
    return "" if seconds is None or not math.isfinite(seconds) else lasting(max(0.0, seconds))  # clocks differ


def moment(value: Any) -> str:
    """Return a moment in UTC, to the second; "" if there is none, or none that a calendar has."""
    try:
        at = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        return f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S}"
    except (TypeError, OverflowError, ValueError, OSError):
        return ""


def narrowed(filter: str, name: str, *values: object) -> str:
    """Return a filter with one more term, in place of any terms with its name."""
    kept = [term for term in parse(filter) if term.name != name]
    return " ".join(map(str, [*kept, Term(name, ":", tuple(map(str, values)))]))


@dataclass(frozen=True)
class Texts:
    """Shows values as text, except in hidden fields, and except texts that quote a hidden field's name."""

    hidden: frozenset[str] = frozenset()

    @property
    def filters(self) -> dict[str, Any]:
        return {
            "number": number,
            "called": lambda all, text: [now for now in all if text.strip().lower() in now.entry.name.lower()],
            "counted": counted,
            "span": span,
            "moment": moment,
            "zip": zip,
            "narrowed": narrowed,
            "kind": lambda error: failure_of(str(error or "")[: CELL * 4]).error,
            "cell": self.cell,
            "text": self.text,
            "json": lambda fields: _dumped({name: self._shown(each, name) for name, each in fields.items()}, 2),
            "rate": rate,
            "ago": lambda since: "" if since is None else span(time.time() - since),
            "since": lambda since: " ".join(span(max(1, round(time.time() - since))).split()[:2]),
            "state": state,
        }

    def cell(self, value: Any, name: str = "") -> str:
        """Return a value in one short line. `name` is its field, if it has one."""
        line = self._written(value, name, opens="")[: CELL * 4].strip().partition("\n")[0]
        line = "".join(each if each.isprintable() else " " for each in line)
        return line if len(line) <= CELL else f"{line[:CELL]}..."

    def text(self, value: Any, name: str = "") -> str:
        """Return a value as text: JSON indented, in at most `WHOLE` characters."""
        written = self._written(value, name, opens="{[", indent=2)
        more = len(written) - WHOLE
        return written if more <= 0 else f"{written[:WHOLE]}\n... and {more:,} more characters"

    def _written(self, value: Any, name: str, opens: str, indent: int | None = None) -> str:
        """Return a value as text. A text that begins with a character in `opens` is read as JSON."""
        shown = self._shown(value, name)
        if isinstance(shown, str) and (shown.lstrip()[:1] or " ") in opens and len(shown) <= WHOLE:
            with suppress(ValueError, RecursionError):
                return json.dumps(json.loads(shown), ensure_ascii=False, indent=indent)
        return "" if shown is None else shown if isinstance(shown, str) else _dumped(shown, indent)

    def _shown(self, value: Any, name: str) -> Any:
        """Return a field's value, as JSON holds it. One that quotes a hidden name is hidden as a whole."""
        names = {f"{quote}{each}" for each in self.hidden for quote in "\"'"}
        if isinstance(value, (bytes, bytearray, memoryview)):
            names, plain = {*self.hidden}, bytes(value).decode("utf-8", "replace")
            value = f"{len(bytes(value)):,} bytes: {bytes(value)[:CELL].hex(' ')}"
        elif value is None or isinstance(value, (int, float, list, tuple, Mapping)):
            plain = _dumped(value, None)
        else:
            plain = value = str(value)
        if names:
            plain = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), plain)
        return HIDDEN if name in self.hidden or any(each in plain for each in names) else value


def _dumped(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (ValueError, RecursionError):  # nested too deep
        return "..."
