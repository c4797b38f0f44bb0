"""The filters by which operators choose tasks: `state:buried tube:mail error:Timeout age>1h`. Pure data.

A filter is text from anybody, so its length and the number of its terms are bounded, and it is read in one pass. Which
fields and states a queue has is not known here: `xq.operators.search` finds that out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from xq.core.errors import BadValue, shown
from xq.core.ports import fits_a_column

LONGEST: Final = 2_000  # characters of a filter
MOST_TERMS: Final = 30
MOST_VALUES: Final = 50  # of all terms: each may be looked for in 10,000 rows
OPERATORS: Final = (">=", "<=", ":", "=", ">", "<")  # the longer ones first
NAME = re.compile(r"[^\W\d]\w{0,99}")
NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?")
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd])")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
QUOTES: Final = "\"'"
GRAMMAR: Final = "a filter is made of terms like state:buried tube:mail error:Timeout age>1h -url:example"


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. A bare word has the name "" and the operator ":"."""

    name: str
    operator: str
    values: tuple[str, ...]  # any of them
    negated: bool = False

    def __str__(self) -> str:
        values = ",".join(map(quoted, self.values))
        return f"{'-' * self.negated}{self.name}{self.operator if self.name else ''}{values}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that must all hold."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def with_terms(self, *terms: Term) -> Filter:
        """Return a filter with more terms."""
        return Filter((*self.terms, *terms))


def quoted(value: object) -> str:
    """Return a value as it stands in a filter: in quotes if it needs them."""
    text = str(value)
    if text and not text.startswith("-") and not any(each.isspace() or each in "\"'\\,:=<>" for each in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse(text: str) -> Filter:
    """Return a text as a filter. Raises BadValue with the term that is wrong and what is possible."""
    if not isinstance(text, str):
        raise BadValue(f"a filter is text, not {shown(text)}: {GRAMMAR}")
    if len(text) > LONGEST:
        raise BadValue(f"a filter has at most {LONGEST:,} characters, and this one has {len(text):,}")
    if not fits_a_column(text) or any("\ud800" <= each <= "\udfff" for each in text):
        raise BadValue("a filter holds no zero byte and no half of a character: no database can look for these")
    terms: list[Term] = []
    at = _blank(text, 0)
    while at < len(text):
        if len(terms) == MOST_TERMS:
            raise BadValue(f"a filter has at most {MOST_TERMS} terms")
        term, at = _term(text, at)
        terms.append(term)
        if sum(len(each.values) for each in terms) > MOST_VALUES:
            raise BadValue(f"a filter has at most {MOST_VALUES} values")
        at = _blank(text, at)
    return Filter(tuple(terms))


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _term(text: str, at: int) -> tuple[Term, int]:
    """Return the term that begins at a place, and the place behind it."""
    start, negated = at, text[at] == "-"
    at += negated
    name, operator = "", ":"
    if found := NAME.match(text, at):
        operator = next((each for each in OPERATORS if text.startswith(each, found.end())), "")
        if operator:
            name, at = found[0], found.end() + len(operator)
    if not name:
        word, at = _value(text, at, start, ends="")
        if not word:
            raise BadValue(f"the term {_shown(text, start)} looks for nothing: write a word behind it, or leave it out")
        return Term("", ":", (word,), negated), at
    values: list[str] = []
    while True:
        value, at = _value(text, at, start, ends=",")
        values.append(value)
        if at >= len(text) or text[at] != ",":
            break
        at += 1
        if len(values) == MOST_VALUES:
            raise BadValue(f"the term {_shown(text, start)} has more than {MOST_VALUES} values")
    if "" in values and (len(values) > 1 or text[at - 1] not in QUOTES):
        raise BadValue(
            f'the term {_shown(text, start)} lacks a value: {name}{operator}VALUE, or {name}:"" for what is empty'
        )
    return Term(name, operator, tuple(dict.fromkeys(values)), negated), at


def _value(text: str, at: int, start: int, ends: str) -> tuple[str, int]:
    """Return the value that begins at a place, and the place behind it. A blank ends it, or a character of `ends`."""
    if at < len(text) and text[at] in QUOTES:
        return _in_quotes(text, at, start, ends)
    first = at
    while at < len(text) and not text[at].isspace() and text[at] not in ends:
        at += 1
    return text[first:at], at


def _in_quotes(text: str, at: int, start: int, ends: str) -> tuple[str, int]:
    quote, at, found = text[at], at + 1, []
    while at < len(text) and text[at] != quote:
        at += text[at] == "\\" and at + 1 < len(text)
        found.append(text[at])
        at += 1
    if at == len(text):
        raise BadValue(f"the term {_shown(text, start)} has a quote {quote} that does not end")
    at += 1
    if at < len(text) and not text[at].isspace() and text[at] not in ends:
        raise BadValue(f"the term {_shown(text, start)} goes on behind its quote: put a blank between two terms")
    return "".join(found), at


def _shown(text: str, start: int) -> str:
    """Return the term that begins at a place, for a message."""
    return shown(text[start : start + 80].split(maxsplit=1)[0] if text[start : start + 80].strip() else "")


def number(term: Term, value: str) -> int | float:
    """Return a value as a number. Raises BadValue."""
    if NUMBER.fullmatch(value):
        found = float(value)
        if "." not in value or found.is_integer():
            whole = int(value.partition(".")[0])
            if fits_a_column(whole):
                return whole
        else:
            return found
    raise BadValue(f"the term {shown(str(term))} needs a number of up to 64 bits, like 5 or 2.5, not {shown(value)}")


def seconds(term: Term, value: str) -> float:
    """Return a value as a span of time in seconds: 90s, 5m, 1h or 2d. Raises BadValue."""
    found = DURATION.fullmatch(value)
    if not found:
        raise BadValue(f"the term {shown(str(term))} needs a span of time like 90s, 5m, 1h or 2d, not {shown(value)}")
    return float(found[1]) * SECONDS[found[2]]
