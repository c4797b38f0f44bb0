"""The records of a task and its signals: lines of JSON in its column `xq_steps`, to which xq only appends.

    {"step":"charge","at":1764547200000000,"value":{"paid":4200}}
    {"sleep":"cool off","at":1764547201000000,"for":172800000000}
    {"wait":"approved","at":1764720001000000,"for":259200000000}
    {"timeout":"approved","at":1764979201000000}
    {"signal":"approved","at":1764979300000000,"value":{"by":"ann"}}

Each is a newline and JSON without one, in ASCII: so SQL appends without a read, and finds `\\n{"signal":"approved",`.
`at` is microseconds since 1970 by the database, and `for` a time span in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from xq.core.errors import BadType, BadValue, shown

MOST: Final = 32_768  # octets of a task's records, and as many of its signals
LONGEST_SIGNAL: Final = 8_192  # octets
LONGEST_NAME: Final = 255  # characters
SIGNAL: Final = "signal"
NAMED: Final = ("step", "sleep")  # the kinds of records that share their names


class Line(NamedTuple):
    """A record, or a signal."""

    kind: str  # step, sleep, wait, timeout or signal
    name: str
    fields: Mapping[str, Any]
    text: str  # with its newline

    @property
    def at(self) -> float:
        """When it was made, in seconds since 1970."""
        return float(self.fields["at"]) / 1e6

    @property
    def until(self) -> int | None:
        """Until when it waits, in microseconds since 1970; None for ever."""
        return None if (span := self.fields.get("for")) is None else int(self.fields["at"]) + int(span)


def read(text: str | None) -> Iterator[Line]:
    """Yield the lines of a column, in their order."""
    for each in (text or "").split("\n")[1:]:
        fields = json.loads(each)
        kind, name = next(iter(fields.items()))
        yield Line(kind, name, fields, f"\n{each}")


def octets(lines: Iterator[Line] | list[Line], signals: bool) -> int:
    """Return how many octets the signals among some lines have, or the records."""
    return sum(len(line.text) for line in lines if (line.kind == SIGNAL) == signals)


def signals_alone(text: str | None) -> str | None:
    """Return a column without its records."""
    return "".join(line.text for line in read(text) if line.kind == SIGNAL) or None


def without(text: str | None, name: str) -> str | None:
    """Return a column without a step, or a sleep, and the records after it. Raises BadValue for an unknown name."""
    lines = list(read(text))
    place = next((at for at, line in enumerate(lines) if line.kind in NAMED and line.name == name), None)
    if place is None:
        known = ", ".join(shown(line.name) for line in lines if line.kind in NAMED)
        raise BadValue(f"the task has no step {shown(name)} to do again: it has {known or 'none'}")
    return "".join(line.text for at, line in enumerate(lines) if at < place or line.kind == SIGNAL) or None


def mark(kind: str, name: str) -> str:
    """Return the text with which a line begins, and no other."""
    return f"\n{{{json.dumps(kind)}:{json.dumps(name)},"


def named(what: str, name: object) -> str:
    """Return the name of a step or a signal. Raises BadType and BadValue."""
    if not isinstance(name, str):
        raise BadType(f"a {what} is named by text, not by {shown(name)}")
    if not 0 < len(name) <= LONGEST_NAME:
        raise BadValue(f"a {what} has a name of 1 to {LONGEST_NAME} characters, not {shown(name)}")
    if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
        raise BadValue(f"a {what} has a name that every database can hold, not {shown(name)}")
    return str.__str__(name)


def dumped(value: Any) -> str:
    """Return a value as JSON on one line. Raises BadValue with the place of what JSON cannot hold."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        place = unfit(value, "")
        raise BadValue(f"JSON cannot hold it: {place or error}") from error
    if place := unfit(value, ""):  # a key that JSON would turn into text
        raise BadValue(f"JSON cannot hold it: {place}")
    return text


def unfit(value: Any, place: str, depth: int = 0) -> str:
    """Return where a value has something that JSON cannot hold, and what; "" if it has nothing of the kind."""
    if isinstance(value, Mapping) and isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                return f"the key {shown(key)} of {place or 'it'} is no text"
            if depth < 100 and (found := unfit(each, f"{place}[{key!r}]", depth + 1)):
                return found
        return ""
    if isinstance(value, (list, tuple)):
        faults = (unfit(each, f"{place}[{at}]", depth + 1) for at, each in enumerate(value) if depth < 100)
        return next(filter(None, faults), "")
    if value is None or isinstance(value, (bool, int, str)):
        return ""
    if isinstance(value, float):
        return "" if value - value == 0 else f"{place or 'it'} is {value!r}"
    return f"{place or 'it'} is {shown(value)}, of type {type(value).__name__}"
