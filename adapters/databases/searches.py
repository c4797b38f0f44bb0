"""SQL of the search: walks along an index of a state or along the key, and the tests of filters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xq.adapters.databases.objects import Objects
from xq.core.machine import READY, TAKEN
from xq.core.ports import INTEGERS, Field

ERROR_SHOWN = 500  # characters of an error of which failures are made


@dataclass(frozen=True, slots=True)
class Walk:
    """An order of rows in which a page goes on at a position: the values of `fields`, of which the last are the key."""

    name: str  # in cursors
    rows: str  # the FROM clause
    condition: str  # of the rows that are read: a LIMIT bounds their number
    fields: tuple[Field, ...]  # NOT NULL
    test: str = "TRUE"  # of the rows that are meant
    newest_first: bool = True


class Searches(Objects):
    """Queries of the search. They lock nothing, and bind all values. `:tube` is the tube of a walk."""

    # walks

    def in_order(self, state: str, of_tube: bool) -> Walk | None:
        """Return the walk along the tasks in a state in the order of takes; None if no index orders them all so."""
        index, mine = f"oldest_{state}", self.is_state(state)
        if of_tube and state == READY and self._orders([self.roles["tube"]]):
            index, mine = f"{index}_of_tube", f"{mine} AND {self.in_tube}"
        roles = [self.source.roles[role] for role in self.source.ordered_by]
        if any(field.null or field.kind not in INTEGERS for field in roles):
            return None  # a position could not be compared with the row of which it is
        if not self._has_index(state, index) or not self._orders(self.ordered):
            return None
        rows = f"{self.table_in_schema}{self.by_index(self.name(index))}"
        return Walk(state, rows, mine, (*roles, *self.source.key), newest_first=False)

    def of_few(self, state: str) -> Walk | None:
        """Return the walk along the key of the tasks in a state that an index has, which the database sorts."""
        mine, timed = self.is_state(state), [each for each in self.timed_columns if self.machine.timer(state, each)]
        index = self.index_of_taken if state == TAKEN else f"oldest_{state}"
        if timed and index not in self._indexes():
            index, mine = timed[0], f"{mine} AND {self.roles[timed[0]]} IS NOT NULL"
        if not self._has_index(state, index):
            return None
        rows = self.sorted_alone(f"{self.table_in_schema}{self.by_index(self.name(index))}", mine)
        return Walk("", rows, mine, self.source.key)

    def by_keys(self, states: Collection[str], conditions: Sequence[str]) -> Walk:
        """Return the walk along the key, or along some keys."""
        rows, condition = f"{self.table_in_schema}{self.by_primary}", " AND ".join(conditions) or "TRUE"
        if not states:
            return Walk("", rows, "FALSE", self.source.key)
        return Walk("", rows, condition, self.source.key, self.in_states(states))

    def _has_index(self, state: str, index: str) -> bool:
        """Return whether there is an index of that name, which utubes do not divide."""
        return index in self._indexes() and not (self.groups and state == READY)

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

    def examined(self, walk: Walk, tests: Sequence[str], operator: str, back: bool, with_error: bool) -> str:
        """Return a query of up to `:look` rows behind the position `:p0`, `:p1` ..., by `operator`; "" is the start.

        Its columns are the position, whether the row passes the tests (1 or 0), the key as in the history, the state,
        the token and the error.
        """
        columns = [self.column_of(field) for field in walk.fields]
        behind = f" AND {self.beyond(columns, operator)}" if operator else ""
        passes = f"CASE WHEN {' AND '.join([walk.test, *tests])} THEN 1 ELSE 0 END"
        error = f"substr({self.roles['error']}, 1, {ERROR_SHOWN})" if with_error else "NULL"
        values = [*map(self.position, walk.fields), passes, *self._noted, error]
        named = ", ".join(f"{value} AS xq_{i}" for i, value in enumerate(values))  # ORDER BY means the columns
        order = ", ".join(self.in_order_of(column, walk.newest_first != back) for column in columns)
        return (
            f"SELECT {named} FROM {walk.rows} "
            f"WHERE {self.keys_there()}{walk.condition}{behind} ORDER BY {order} LIMIT :look"
        )

    def beyond(self, columns: Sequence[str], operator: str) -> str:
        """Return the condition of a range of an index: these columns are beyond `:p0`, `:p1` ..."""
        return f"({', '.join(columns)}) {operator} ({', '.join(f':p{i}' for i in range(len(columns)))})"

    def in_order_of(self, column: str, descending: bool) -> str:
        return f"{column} DESC" if descending else column

    def position(self, field: Field) -> str:
        """Return the value of a column such that it can be sent back and compares as equal."""
        return self.column_of(field)

    def chosen(self, n: int, states: Sequence[str], tests: Sequence[str]) -> str:
        """Return a query of `n` rows by key (`:k0_0`, ...) that are in these states and pass the tests.

        After the columns come the key as in the history, the state and the token; then the key as in a position.
        """
        keys = " OR ".join(f"({self.by_key(row=f'_{i}')})" for i in range(n))
        state = self.in_states(states, self.not_by_index(self.roles["status"]))
        more = ", ".join([*self._noted, *map(self.position, self.source.key)])
        where = " AND ".join([f"({keys})", state, *tests])
        return f"SELECT {self.columns}, {more} FROM {self.table_in_schema}{self.by_primary} WHERE {where}"

    @property
    def _noted(self) -> list[str]:
        """Returns what the history has of a task: its key and its state; and its token."""
        key = self.key_in_history([f"{self.table}.{key}" for key in self.keys])
        return [key, self.letter(self.roles["status"]), self.roles["owner"]]

    # tests: conditions that are true or false, never NULL

    def column_of(self, field: Field) -> str:
        return self.quote(field.column)

    place_in_text = "instr"

    def contains(self, field: Field, value: str) -> str:
        """Return the condition that a text contains a bound one. Letters from A to Z equal those from a to z."""
        column, part = self.folded(self.column_of(field)), self.folded(value)
        return f"COALESCE({self.place_in_text}({column}, {part}) > 0, FALSE)"

    def folded(self, text: str) -> str:
        return f"lower({text})"

    def compares(self, field: Field, operator: str, value: str) -> str:
        """Return the comparison of a column with a bound value; of a text byte by byte."""
        return f"COALESCE({self.exact(self.column_of(field), field.kind)} {operator} {value}, FALSE)"

    def is_empty(self, field: Field) -> str:
        """Return the condition that a column is NULL, or an empty text."""
        column = self.column_of(field)
        return f"({column} IS NULL OR {column} = '')" if field.kind == "text" else f"{column} IS NULL"

    # since when a task is in its state

    @property
    def oldest_transition(self) -> str:
        return f"SELECT COALESCE(MIN(id), 0) FROM {self.side('history')}"

    @property
    def last_before(self) -> str:
        """Returns a query of the last id up to `:at_us` among the transitions whose id is greater than `:low`."""
        return f"SELECT id FROM {self.side('history')} WHERE id > :low AND at_us < :at_us ORDER BY id DESC LIMIT 1"

    def last_entries(self, n: int) -> str:
        """Return a query of (key, state, last time in microseconds) of `n` keys of the history, `:h0`, `:h1` ...

        It reads the transitions whose id is greater than `:low`.
        """
        key, keys = self.quote("key"), ", ".join(f":h{i}" for i in range(n))
        return (
            f"SELECT {key}, target, MAX(at_us) FROM {self.side('history')} WHERE id > :low AND source <> target "
            f"AND {key} IN ({keys}) GROUP BY {key}, target"
        )
