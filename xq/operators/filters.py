"""The filters by which operators choose tasks: `state:buried tube:mail error:Timeout age>1h`. Pure data.

A filter is text from anybody, so its length and the number of its terms are bounded, and it is read in one pass. Which
fields and states a queue has is not known here: `xq.operators.terms` finds that out.
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
TERM = re.compile(r"(-?)(?:([^\W\d]\w{0,99})(>=|<=|[:=<>]))?")
QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
BLANK, WORD, VALUE = re.compile(r"\s*"), re.compile(r"\S*"), re.compile(r"[^\s,]*")
NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?")
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd])")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
QUOTES: Final = "\"'"


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
    if len(text) > LONGEST:
        raise BadValue(f"a filter has at most {LONGEST:,} characters, and this one has {len(text):,}")
    if not fits_a_column(text) or any("\ud800" <= each <= "\udfff" for each in text):
        raise BadValue("a filter holds no zero byte and no half of a character: no database can look for these")
    terms: list[Term] = []
    at = _end(BLANK, text, 0)
    while at < len(text):
        if len(terms) == MOST_TERMS:
            raise BadValue(f"a filter has at most {MOST_TERMS} terms")
        term, at = _term(text, at)
        terms.append(term)
        at = _end(BLANK, text, at)
    if sum(len(each.values) for each in terms) > MOST_VALUES:
        raise BadValue(f"a filter has at most {MOST_VALUES} values")
    return Filter(tuple(terms))


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the place behind what a pattern matches at a place."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _term(text: str, start: int) -> tuple[Term, int]:
    """Return the term that begins at a place, and the place behind it."""
    found = TERM.match(text, start)
    negated, name, operator = found.groups("") if found else ("", "", "")
    at, values = _end(TERM, text, start), list[str]()
    while not values or (name and text.startswith(",", at)):
        value, at = _value(text, at + bool(values), start, "," * bool(name))
        values.append(value)
    if values == [""] and not name:
        raise BadValue(f"the term {_shown(text, start)} looks for nothing: write a word behind it, or leave it out")
    if "" in values and (len(values) > 1 or text[at - 1] not in QUOTES):
        example = f'{name}{operator}VALUE, or {name}:"" for what is empty'
        raise BadValue(f"the term {_shown(text, start)} lacks a value: {example}")
    return Term(name, operator or ":", tuple(dict.fromkeys(values)), bool(negated)), at


def _value(text: str, at: int, start: int, ends: str) -> tuple[str, int]:
    """Return the value that begins at a place, and the place behind it. A blank ends it, or a character of `ends`."""
    if not text.startswith(tuple(QUOTES), at):
        end = _end(VALUE if ends else WORD, text, at)
        return text[at:end], end
    found = QUOTED.match(text, at)
    if not found:
        raise BadValue(f"the term {_shown(text, start)} has a quote {text[at]} that does not end")
    behind = text[found.end() : found.end() + 1]
    if behind and not behind.isspace() and behind not in ends:
        raise BadValue(f"the term {_shown(text, start)} goes on behind its quote: put a blank between two terms")
    return re.sub(r"\\(.)", r"\1", found[2], flags=re.DOTALL), found.end()


def _shown(text: str, start: int) -> str:
    """Return the term that begins at a place, for a message."""
    return shown(text[start : _end(WORD, text, start)][:80])


def number(term: Term, value: str) -> int | float:
    """Return a value as a number. Raises BadValue."""
    if NUMBER.fullmatch(value):
        found = float(value) if float(value) % 1 else int(value.partition(".")[0])
        if isinstance(found, float) or fits_a_column(found):
            return found
    raise BadValue(f"the term {shown(str(term))} needs a number of up to 64 bits, like 5 or 2.5, not {shown(value)}")


def seconds(term: Term, value: str) -> float:
    """Return a value as a span of time in seconds: 90s, 5m, 1h or 2d. Raises BadValue."""
    found = DURATION.fullmatch(value)
    if not found:
        raise BadValue(f"the term {shown(str(term))} needs a span of time like 90s, 5m, 1h or 2d, not {shown(value)}")
    return float(found[1]) * SECONDS[found[2]]
