"""Names and named values in SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

# A named value, or quoted text, which contains none.
NAMED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|:(?P<name>[^\W\d]\w*)""")


@lru_cache(maxsize=1000)
def by_position(sql: str, placeholder: str) -> tuple[str, tuple[str, ...]]:
    """Return SQL with a driver's placeholder for each named value, and the names in their order.

    Positional values are faster than named ones, which the driver would look up.
    """
    names: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        names.append(found["name"])
        return placeholder

    text = NAMED.sub(replaced, sql.replace("%", "%%") if placeholder == "%s" else sql)
    return (text, tuple(names)) if names else (sql, ())  # without values, a driver does not interpret %


def filled(sql: str, **texts: str) -> str:
    """Return SQL with some named values replaced by SQL."""
    return NAMED.sub(lambda found: texts.get(found["name"] or "", found[0]), sql)


def listed(sql: str, name: str, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return SQL with one named value for each in `values` in place of `:name`, and these values."""
    each = {f"{name}{i}": value for i, value in enumerate(values)}
    return filled(sql, **{name: ", ".join(f":{one}" for one in each)}), each


def quoted(name: str, quotes: str) -> str:
    """Return a table's or column's name in these quotes."""
    return quotes + name.replace(quotes, quotes * 2) + quotes


def beside(order: Sequence[str], checkpoint: Sequence[int], way: str) -> str:
    """Return the condition that a history row is after a checkpoint (`way` is >), or not after it (<=)."""
    if not checkpoint:
        return ""
    numbers = [str(int(number)) for number in checkpoint[: len(order)]]
    # The first comparison is for the index.
    return f"{order[0]} {way[0]}= {numbers[0]} AND ({', '.join(order)}) {way} ({', '.join(numbers)})"
