"""Named values in SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

# A named value, or what is quoted, in which there is none.
NAMED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|:(?P<name>[^\W\d]\w*)""")


@lru_cache(maxsize=1000)
def by_position(sql: str, mark: str) -> tuple[str, tuple[str, ...]]:
    """SQL with a driver's mark in place of each named value, and the names in the order of the marks.

    By position, because a driver looks each name up among all others.
    """
    names: list[str] = []

    def marked(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        names.append(found["name"])
        return mark

    text = NAMED.sub(marked, sql.replace("%", "%%") if mark == "%s" else sql)
    return (text, tuple(names)) if names else (sql, ())  # without values, a driver leaves its marks alone


def filled(sql: str, **texts: str) -> str:
    """SQL with a text in place of some of the names that stand where values do."""
    return NAMED.sub(lambda found: texts.get(found["name"] or "", found[0]), sql)


def picked(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return what gives the values of these names."""
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda values: (values[names[0]],)) if names else (lambda values: ())
