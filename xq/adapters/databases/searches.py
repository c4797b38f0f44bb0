"""SQL of the search: walks along an index of a state or along the key, and the tests of filters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xq.adapters.databases.selectors import Selectors
from xq.core.dialect import Walk
from xq.core.machine import READY, TAKEN
from xq.core.ports import INTEGERS, Field

ERROR_SHOWN = 500  # characters of an error of which failures are made


class Searches(Selectors):
    """Queries of the search. They lock nothing, and bind all values. `:tube` is the tube of a walk."""

    # walks

    def by_state_index(self, state: str, of_tube: bool) -> Walk | None:
        """Return the walk along the index of a state: in the order of takes, or, if it has no name, sorted by key.

        None if no index has all tasks in this state.
        """
        index = {TAKEN: self.index_of_taken, "W": "runat"}.get(state, f"oldest_{state}")
        if index not in self.installer.objects.wanted_indexes() or (self.groups and state == READY):
            return None
        mine, roles = self.is_state(state), [self.source.roles[role] for role in self.source.ordered_by]
        # Else a position could not be compared with the row of which it is.
        exact = all(field.kind in INTEGERS and not field.null for field in roles) and self._orders(self.ordered)
        if exact and index.startswith("oldest"):
            if of_tube and state == READY and self._orders([self.roles["tube"]]):
                index, mine = f"{index}_of_tube", f"{mine} AND {self.in_tube}"
            return Walk(state, self._by(index), mine, self.ordered, self.order)
        if state == "W":
            mine += f" AND {self.roles['runat']} IS NOT NULL"  # as the index has it
        return Walk("", self.sorted_alone(self._by(index), mine), mine, self.keys, self._newest_first)

    def _by(self, index: str) -> str:
        return f"{self.table_in_schema}{self.by_index(self.name(index))}"

    def by_keys(self, states: Collection[str], conditions: Sequence[str]) -> Walk:
        """Return the walk along the key, or along some keys."""
        rows, condition = f"{self.table_in_schema}{self.by_primary}", " AND ".join(conditions or ["TRUE"])
        test = self.in_states(states) if states else "FALSE"
        return Walk("", rows, condition if states else "FALSE", self.keys, self._newest_first, test)

    @property
    def _newest_first(self) -> str:
        return ", ".join(f"{key} DESC" for key in self.keys)

    def _orders(self, columns: Sequence[str]) -> bool:
        """Return whether an index of these columns orders rows by their whole values."""
        return True

    def sorted_alone(self, rows: str, condition: str) -> str:
        """Return the FROM clause of rows that the database shall read by the index of a condition, and then sort."""
        return rows

    def number_in(self, walk: Walk) -> str:
        """Return a query of the number of rows of a walk, up to `:n`."""
        some = f"SELECT 1 FROM {walk.rows} WHERE {walk.condition} LIMIT :n"
        return f"SELECT COUNT(*) FROM ({some}) AS xq_some"

    def examined(self, walk: Walk, tests: Sequence[str], goes_on: bool, with_error: bool, whole: bool) -> str:
        """Return a query of up to `:look` rows; if it goes on, of those behind the position `:p0`, `:p1` ...

        Its columns are whether the row passes the tests (1 or 0), the key as in the history, the state, the token, the
        error, the position and, if wanted, all columns of the table.
        """
        behind = f" AND {self.beyond(walk.columns, '>' if walk.name else '<')}" if goes_on else ""
        passes = f"CASE WHEN {' AND '.join([walk.test, *tests])} THEN 1 ELSE 0 END"
        error = f"substr({self.roles['error']}, 1, {ERROR_SHOWN})" if with_error else "NULL"
        key = self.key_in_history([f"{self.table}.{key}" for key in self.keys])
        values = [passes, key, self.letter(self.roles["status"]), self.roles["owner"], error, *walk.columns]
        named = ", ".join(f"{value} AS xq_{i}" for i, value in enumerate(values))  # ORDER BY means the columns
        named += f", {self.columns}" * whole
        where = f"{self.keys_there()}{walk.condition}{behind}"
        return f"SELECT {named} FROM {walk.rows} WHERE {where} ORDER BY {walk.order} LIMIT :look"

    def beyond(self, columns: Sequence[str], operator: str) -> str:
        """Return the condition of a range of an index: these columns are beyond `:p0`, `:p1` ..."""
        return f"({', '.join(columns)}) {operator} ({', '.join(f':p{i}' for i in range(len(columns)))})"

    # tests: conditions that are true or false, never NULL

    place_in_text = "instr"

    def contains(self, field: Field, value: str) -> str:
        """Return the condition that a text contains a bound one. Letters from A to Z equal those from a to z."""
        column, part = self.folded(self.quote(field.column)), self.folded(value)
        return f"COALESCE({self.place_in_text}({column}, {part}) > 0, FALSE)"

    def folded(self, text: str) -> str:
        return f"lower({text})"

    def compares(self, field: Field, operator: str, value: str) -> str:
        """Return the comparison of a column with a bound value; of a text byte by byte."""
        return f"COALESCE({self.exact(self.quote(field.column), field.kind)} {operator} {value}, FALSE)"

    def is_empty(self, field: Field) -> str:
        """Return the condition that a column is NULL, or an empty text."""
        column = self.quote(field.column)
        return f"({column} IS NULL OR {column} = '')" if field.kind == "text" else f"{column} IS NULL"

    # since when a task is in its state

    @property
    def last_before(self) -> str:
        """Last id before `:at_us` among the newest `:n` transitions, and whether there are others."""
        history = self.side("history")
        least = f"(SELECT MAX(id) FROM {history}) - :n"
        before = f"SELECT id FROM {history} WHERE id > {least} AND at_us < :at_us ORDER BY id DESC LIMIT 1"
        return f"SELECT ({before}), EXISTS (SELECT 1 FROM {history} WHERE id <= {least})"

    def last_entries(self, n: int) -> str:
        """Return a query of (key, state, last time in microseconds) of `n` keys of the history, `:h0`, `:h1` ...

        It reads the transitions whose id is greater than `:low`.
        """
        key, keys = self.quote("key"), ", ".join(f":h{i}" for i in range(n))
        return (
            f"SELECT {key}, target, MAX(at_us) FROM {self.side('history')} WHERE id > :low AND source <> target "
            f"AND {key} IN ({keys}) GROUP BY {key}, target"
        )
