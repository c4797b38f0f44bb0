"""SQL for the limits of features: numbers in a side table, which the statements and triggers that need them read.

A row is a default, as the latest install() has written it, or was set, and then wins. The queue's own has no value;
where a value has none of its own, the queue's applies. The row without a feature counts the changes, on servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from xq.sql.terms import Terms

PER_INSERT: Final = 500  # rows


class Limits:
    """One queue's limits."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.table = terms, terms.side("limit")

    def of(self, feature: str, key: str, column: str = "n") -> str:
        """Return SQL for the limit that applies to a value, by its key as SQL ('': the queue's)."""
        found = f"(SELECT xq_i.{column} FROM {self.table} AS xq_i WHERE xq_i.feature = '{feature}' AND xq_i.value = "
        each = [f"{found}{one} ORDER BY xq_i.is_set DESC LIMIT 1)" for one in dict.fromkeys([key, "''"])]
        guard = self.terms.machine.guard(feature)
        assert guard
        return f"COALESCE({', '.join(each)}, {guard.unset})"

    def applies(self, feature: str) -> str:
        """Return a query for the limit that applies to the value with the key `:value`."""
        return f"SELECT {self.of(feature, ':value')}"

    def key_of(self, value: str | None) -> str:
        """Return the key of a value, and of the queue."""
        return "" if value is None else self.terms.key_of_limit(value)

    @property
    def defaults(self) -> Iterator[str]:
        """SQL that writes the defaults of this definition in place of others."""
        terms, literal = self.terms, self.terms.in_any_mode
        rows = [
            f"('{guard.name}', {literal(self.key_of(value))}, 0, {'NULL' if value is None else literal(value)}, "
            f"{limit.n}, {limit.slack}, {literal(json.dumps(limit.given))})"
            for guard in terms.machine.limited
            for value, limit in guard.limits.items()
        ]
        yield f"DELETE FROM {self.table} WHERE is_set = 0"
        for i in range(0, len(rows), PER_INSERT):
            columns = "feature, value, is_set, label, n, slack, given"
            yield f"INSERT INTO {self.table} ({columns}) VALUES {', '.join(rows[i : i + PER_INSERT])}"
