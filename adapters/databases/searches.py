"""SQL of the search: walks along the indexes of a queue, by keyset, and the tests of filters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from xq.adapters.databases.objects import Objects
from xq.core.machine import READY, TAKEN
from xq.core.ports import Field, Kind
from xq.sessions.session import UUID_LENGTH

ERROR_SHOWN = 500  # characters of an error of which failures are made


@dataclass(frozen=True, slots=True)
class Sorted:
    """A column, or an expression, by which an index orders rows."""

    sql: str
    kind: Kind
    nullable: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows in the order of an index. The last columns are the key."""

    name: str  # in cursors
    by: str  # an index hint
    condition: str  # that all rows of the index, or of a range of it, meet: a LIMIT bounds what is read
    columns: tuple[Sorted, ...]
    test: str = ""  # of the rows that are meant
    # Of the walk along the key: the states for which it is there, and a query of the number, up to `:n`, of the tasks
    # in this state that an index has; "" if it has none.
    rest: Mapping[str, str] = field(default_factory=dict)
    is_stable: bool = True  # whether no call moves a row along it


class _Covered(NamedTuple):
    """The walks of a state by its indexes, the condition of its rows that are in none of these, and their number."""

    walks: Sequence[Walk]
    rest: str = ""
    counted: str = ""


class Searches(Objects):
    """Queries of the search. They lock nothing, and bind all values. `:tube` and `:utube` are those of the filter."""

    has_partial_indexes = True
    nulls_first = True  # in an index without a clause

    # walks

    def walks(self, states: Sequence[str], fixed: Collection[str]) -> list[Walk]:
        """Return the walks that together reach each row in these states once: by their indexes, then by the key.

        `fixed` names the roles (tube, utube) of which the filter wants one value: an index that begins with that role
        reads only its rows.
        """
        covered = {state: self._covered(state, fixed) for state in states}
        rest = {state: each for state, each in covered.items() if each.rest}
        found = [walk for each in covered.values() for walk in each.walks]
        if rest:
            test = " OR ".join(each.rest for each in rest.values())
            counted = {state: each.counted for state, each in rest.items()}
            found.append(Walk("key", self.by_primary, "", self._key_columns, f"({test})", counted))
        return found

    def by_keys(self, condition: str, test: str) -> Walk:
        """Return the walk along some keys."""
        return Walk("key", self.by_primary, condition, self._key_columns, test)

    def _covered(self, state: str, fixed: Collection[str]) -> _Covered:
        indexes, mine = self._indexes(), self.is_state(state)
        by_key = _Covered((), mine)
        if state == READY and self.groups:
            covered = self._ready_of_groups(mine, fixed)
        elif state == READY and "tube" in fixed and self._orders([self.roles["tube"]]):
            index = f"oldest_{READY}_of_tube"
            covered = _Covered([self._walk(index, f"{mine} AND {self.in_tube}", self._ordered_columns)])
        elif f"oldest_{state}" in indexes:
            covered = _Covered([self._walk(f"oldest_{state}", mine, self._ordered_columns)])
        elif "runat" in indexes and (state == TAKEN or self.machine.timer(state, "runat")):
            covered = self._by_runat(state)
        elif state == TAKEN and "taken" in indexes:
            owner = Sorted(self.owner_for_range, "text", True, self.nulls_first)
            covered = _Covered([self._walk("taken", mine, (owner, *self._key_columns), state)])
        else:
            return by_key
        return covered if all(self._orders([c.sql for c in walk.columns]) for walk in covered.walks) else by_key

    def _ready_of_groups(self, mine: str, fixed: Collection[str]) -> _Covered:
        """Return the walks of ready tasks with the feature utube: those with a utube have an index of their own."""
        assert self.groups
        role, others = self.groups.role, self.groups.for_others(mine)
        oldest = self._walk(f"oldest_{READY}", others, self._ordered_columns)
        called = Sorted(self.groups.called_of_index, self.kind("utube"), False)
        of_one = f"{mine} AND {role} IS NOT NULL"
        if "utube" in fixed:
            of_one += f" AND {called.sql} = {self.groups.called(':utube')}"
            return _Covered([self._walk("utube", of_one, self._ordered_columns)])
        if others == mine:  # it has them all
            return _Covered([oldest])
        return _Covered([self._walk("utube", of_one, (called, *self._ordered_columns)), oldest])

    def _by_runat(self, state: str) -> _Covered:
        """Return the walk along the timers. The index of a timer may lack tasks that have none."""
        role, mine = self.roles["runat"], self.is_state(state)
        condition = self._indexes()["runat"][1]
        whole = not self.has_partial_indexes or (state == TAKEN and condition.startswith(self.is_state(TAKEN)))
        at = Sorted(role, self.kind("runat"), whole, self.nulls_first)
        there = "" if whole else f" AND {role} IS NOT NULL"
        walk = self._walk("runat", f"{mine}{there}", (at, *self._key_columns), state)
        rest = f"{mine} AND {role} IS NULL"
        if whole:
            return _Covered([walk])
        some = f"SELECT 1 FROM {self.table_in_schema}{walk.by} WHERE {walk.condition} LIMIT :n"
        return _Covered([walk], f"({rest})", f"SELECT COUNT(*) FROM ({some}) AS xq_some")

    def _walk(self, index: str, condition: str, columns: tuple[Sorted, ...], state: str = "") -> Walk:
        name = f"{index}_{state}" if state else index
        return Walk(
            name, self.by_index(self.name(index)), condition, columns, is_stable=index not in ("runat", "taken")
        )

    def _orders(self, columns: Sequence[str]) -> bool:
        """Return whether an index of these columns orders rows by their whole values."""
        return True

    @property
    def _key_columns(self) -> tuple[Sorted, ...]:
        return tuple(Sorted(sql, field.kind) for sql, field in zip(self.keys, self.source.key, strict=True))

    @property
    def _ordered_columns(self) -> tuple[Sorted, ...]:
        roles = [(self.roles[role], self.source.roles[role]) for role in self.source.ordered_by]
        return (*(Sorted(sql, field.kind, field.null) for sql, field in roles), *self._key_columns)

    # positions

    def segments(self, walk: Walk, position: Sequence[Any] | None, back: bool, including: bool) -> list[str]:
        """Return the conditions of the rows behind a position, nearest first. Together they are all these rows.

        The values of the position are `:p0`, `:p1` ... Each condition is a range of the index: rows that equal the
        first values, and are beyond the next one. An OR of them, or a comparison of rows, would be no range.
        """
        if position is None:
            return [""]
        found = []
        last = len(walk.columns) - 1
        for place in range(last, -1, -1):
            equal = [
                f"{column.sql} IS NULL" if value is None else f"{column.sql} = :p{i}"
                for i, (column, value) in enumerate(zip(walk.columns[:place], position, strict=False))
            ]
            beyond = _beyond(walk.columns[place], place, position[place], back, including and place == last)
            found += [" AND ".join(["", *equal, each]) for each in beyond]
        return found

    def examined(self, walk: Walk, segment: str, back: bool, tests: Sequence[str], extras: Sequence[str]) -> str:
        """Return a query of up to `:look` rows: their position, whether they pass the tests (1 or 0), the extras."""
        all_tests = [*filter(None, [walk.test]), *tests]
        passes = f"CASE WHEN {' AND '.join(all_tests)} THEN 1 ELSE 0 END" if all_tests else "1"
        values = [*(self.position(column) for column in walk.columns), passes, *extras]
        named = ", ".join(f"{value} AS xq_{i}" for i, value in enumerate(values))  # ORDER BY means the columns
        order = ", ".join(self._in_order(column, back) for column in walk.columns)
        return (
            f"SELECT {named} FROM {self.table_in_schema}{walk.by} "
            f"WHERE {self.keys_there()}{walk.condition or 'TRUE'}{segment} ORDER BY {order} LIMIT :look"
        )

    def position(self, column: Sorted) -> str:
        """Return the value of a column such that it can be sent back and compares as equal."""
        return column.sql

    def _in_order(self, column: Sorted, back: bool) -> str:
        return f"{column.sql} DESC" if back else column.sql

    def chosen(self, n: int, states: Sequence[str], tests: Sequence[str]) -> str:
        """Return a query of `n` rows by key (`:k0_0`, ...) that are in these states and pass the tests.

        After the columns come the key as in the history, the state and the token; then the key as in a position.
        """
        keys = " OR ".join(f"({self.by_key(row=f'_{i}')})" for i in range(n))
        state = self.in_states(states, self.not_by_index(self.roles["status"]))
        again = ", ".join(self.position(column) for column in self._key_columns)
        where = " AND ".join([f"({keys})", state, *tests])
        noted = f"{self.noted_key}, {self.noted_state}, {self.roles['owner']}"
        return f"SELECT {self.columns}, {noted}, {again} FROM {self.table_in_schema}{self.by_primary} WHERE {where}"

    # tests: conditions that are true or false, never NULL

    def column_of(self, field: Field) -> str:
        return self.quote(field.column)

    def contains(self, column: str, value: str) -> str:
        """Return the condition that a text contains a bound one. Letters from A to Z equal those from a to z."""
        return f"COALESCE(instr({self.folded(column)}, {self.folded(value)}) > 0, FALSE)"

    def folded(self, text: str) -> str:
        return f"lower({text})"

    def equals(self, field: Field, value: str) -> str:
        """Return the condition that a column equals a bound value; a text byte by byte."""
        return f"COALESCE({self.exact(self.column_of(field), field.kind)} = {value}, FALSE)"

    def compares(self, column: str, operator: str, value: str) -> str:
        return f"COALESCE({column} {operator} {value}, FALSE)"

    def is_empty(self, field: Field) -> str:
        """Return the condition that a column is NULL, or an empty text."""
        column = self.column_of(field)
        return f"({column} IS NULL OR {column} = '')" if field.kind == "text" else f"{column} IS NULL"

    def is_key(self, row: str) -> str:
        return f"({self.by_key(row=row)})"

    def is_of_session(self, value: str) -> str:
        """Return the condition that a token begins with a session's uuid and a slash: the bound value."""
        return f"COALESCE(substr({self.roles['owner']}, 1, {UUID_LENGTH + 1}) = {value}, FALSE)"

    # what else is read of a row

    @property
    def start_of_error(self) -> str:
        return f"substr({self.column_of(self.source.roles['error'])}, 1, {ERROR_SHOWN})"

    @property
    def noted_key(self) -> str:
        """Returns the key as the history has it."""
        return self.key_in_history([f"{self.table}.{key}" for key in self.keys])

    @property
    def noted_state(self) -> str:
        return self.letter(self.roles["status"])

    @property
    def oldest_transition(self) -> str:
        return f"SELECT COALESCE(MIN(id), 0) FROM {self.side('history')}"

    @property
    def time_after(self) -> str:
        """Returns a query of the time, in microseconds, of the first transition whose id is greater than `:since`."""
        return f"SELECT at_us FROM {self.side('history')} WHERE id > :since ORDER BY id LIMIT 1"

    def last_entries(self, n: int) -> str:
        """Return a query of (key, state, last time in microseconds) of `n` keys of the history, `:h0`, `:h1` ...

        It reads the transitions whose id is greater than `:low`.
        """
        key, keys = self.quote("key"), ", ".join(f":h{i}" for i in range(n))
        return (
            f"SELECT {key}, target, MAX(at_us) FROM {self.side('history')} WHERE id > :low AND source <> target "
            f"AND {key} IN ({keys}) GROUP BY {key}, target"
        )

    def entries(self, states: Sequence[str]) -> str:
        """Return a query of (key, state, last time in microseconds) of up to `:n` tasks that have entered these states.

        It reads the transitions whose id is greater than `:since`, at `:at_us` or later.
        """
        key, listed = self.quote("key"), ", ".join(f"'{state}'" for state in states)
        return (
            f"SELECT {key}, target, MAX(at_us) FROM {self.side('history')} WHERE id > :since AND at_us >= :at_us "
            f"AND source <> target AND target IN ({listed}) GROUP BY {key}, target LIMIT :n"
        )


def _beyond(column: Sorted, place: int, value: Any, back: bool, including: bool) -> list[str]:
    """Return the conditions of the values that come behind one in the order of an index, the nearest first."""
    nulls_are_behind = column.nullable and column.nulls_first == back
    if value is None:
        return [] if nulls_are_behind else [f"{column.sql} IS NOT NULL"]
    compared = f"{column.sql} {'<' if back else '>'}{'=' * including} :p{place}"
    return [compared, f"{column.sql} IS NULL"] if nulls_are_behind else [compared]
