"""The filters by which operators choose tasks: `state:buried tube:mail error:Timeout age>1h`. Pure data.

Any user may write a filter: its length and its number of terms are bounded, and it is read in one pass. Which fields
and states a queue has is not known here: `xq.operators.terms` finds that out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from xq.core.errors import BadValue, shown
from xq.core.kinds import fits_a_column

LONGEST_FILTER: Final = 2_000  # characters
MOST_VALUES: Final = 50  # in all terms: each may be looked for in 10,000 rows
NAME: Final = r"([^\W\d]\w{0,99})(>=|<=|[:=<>])"
QUOTED: Final = r"""(?:"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+')"""
VALUE: Final = rf"""(?:{QUOTED}|[^\s,"'][^\s,]*+)"""
WORD: Final = rf"""(?!{NAME})({QUOTED}|[^\s"'-]\S*+)"""
TERM = re.compile(rf"(-?)(?:{NAME}({VALUE}(?:,{VALUE})*+)|{WORD})(?:\s++|$)", re.DOTALL)
NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?")
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd])")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. A bare word has the name "" and the operator ":"."""

    name: str
    operator: str
    values: tuple[str, ...]  # the field has any of them
    negated: bool = False

    def wrong(self, why: str) -> BadValue:
        return BadValue(f"the term {shown(str(self))} {why}")

    def __str__(self) -> str:
        values = ",".join(map(quoted, self.values))
        return f"{'-' * self.negated}{self.name}{self.operator if self.name else ''}{values}"


def quoted(value: object) -> str:
    """Return a value as it stands in a filter: in quotes if it needs them."""
    text = str(value)
    if text and not text.startswith("-") and not any(each.isspace() or each in "\"'\\,:=<>" for each in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse(text: str) -> list[Term]:
    """Return a filter's terms, which must all hold. Raises BadValue with the one that is wrong."""
    if len(text) > LONGEST_FILTER:
        raise BadValue(f"a filter has at most {LONGEST_FILTER:,} characters, and this one has {len(text):,}")
    if not fits_a_column(text) or any("\ud800" <= each <= "\udfff" for each in text):
        raise BadValue("a filter holds no zero byte and no half of a character: no database can look for these")
    terms: list[Term] = []
    rest = text.lstrip()
    while rest:
        found = TERM.match(rest)
        negated, name, operator, values, *_, word = found.groups("") if found else [""] * 7
        if not found or word in ('""', "''"):
            raise BadValue(
                f"the term {shown(rest.partition(' ')[0][:80])} is none: write a word, NAME:VALUE or NAME>VALUE. "
                'A value with a blank, a comma or a quote stands in quotes, and NAME:"" means that it is empty'
            )
        each = map(_plain, re.findall(VALUE, values, re.DOTALL) or [word])
        terms.append(Term(name, operator or ":", tuple(dict.fromkeys(each)), bool(negated)))
        rest = rest[found.end() :]
    if sum(len(each.values) for each in terms) > MOST_VALUES:
        raise BadValue(f"a filter has at most {MOST_VALUES} values")
    return terms


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] in "\"'" else value


def number(term: Term, value: str) -> int | float:
    """Return a value as a number. Raises BadValue."""
    if NUMBER.fullmatch(value):
        found = float(value) if "." in value else int(value)
        if isinstance(found, float) or fits_a_column(found):
            return found
    raise term.wrong(f"needs a number of up to 64 bits, like 5 or 2.5, not {shown(value)}")


def seconds(term: Term, value: str) -> float:
    """Return a value as seconds: 90s, 5m, 1h or 2d. Raises BadValue."""
    found = DURATION.fullmatch(value)
    if not found:
        raise term.wrong(f"needs a span of time like 90s, 5m, 1h or 2d, not {shown(value)}")
    return float(found[1]) * SECONDS[found[2]]
