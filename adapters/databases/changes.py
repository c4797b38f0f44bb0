"""Statements that change tasks: moves, puts and deletions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from xq.adapters.databases.counters import Counters
from xq.adapters.databases.rows import Rows
from xq.core.compile import After, Change, Given, Own, Selector, Statement
from xq.core.machine import ABSENT, PLUS_ONE, TAKEN, TOKEN, Guard, Marker
from xq.core.ports import Field


class Changes(Rows, Counters):
    """What a row of the transition table writes, and the guards of a put."""

    @abstractmethod
    def remembering(self, rows: Selector, statement: Statement) -> Statement:
        """A statement that takes these rows, and what writes down beside the table who took them."""

    @property
    def told_first(self) -> str:
        """Return the beginning of the condition of a DELETE, which passes its event to the triggers."""
        return ""

    def entered(self, state: str) -> str:
        """Return the new value of the status field, as SQL that may pass the event to the triggers."""
        return self.literal(self.words[state])

    def amount(self, value: Given | Own) -> str:
        if isinstance(value, Given):
            return f":{value.name}"
        if value.role:
            own = self.roles[value.role]
            own = own if value.default is None else f"COALESCE({own}, {self.literal(value.default)})"
            return f"NULLIF({own}, {self.never})"
        return self.literal(value.default)

    def written(self, role: str, value: Any) -> str:
        """Return the new value of the column of a role, as SQL."""
        if isinstance(value, Given):
            return self.amount(value)
        if isinstance(value, After):
            kind = self.kind(role)
            since = [self.now if base == "now" else self.seconds(kind, self.roles[base]) for base in value.since]
            start = since[0] if len(since) == 1 else f"COALESCE({', '.join(since)})"
            return self.moment(kind, " + ".join([start, *map(self.amount, value.seconds)]))
        if isinstance(value, Marker):
            return {
                TOKEN.name: ":owner",
                PLUS_ONE.name: f"COALESCE({self.roles[role]}, 0) + 1",
            }[value.name]
        return self.entered(value) if role == "status" else self.literal(value)

    def move(self, rows: Selector, change: Change) -> Statement:
        """Move rows to another state, or delete them, or prolong their state. Returns them as they then are."""
        if change.target == ABSENT:
            return self.delete(rows, change)
        statement = self.update(rows, change)
        beside = change.roles.get("status") == TAKEN and "owner" not in self.roles
        return self.remembering(rows, statement) if beside else statement

    def update(self, rows: Selector, change: Change) -> Statement:
        where, returning = self.where(rows), f" RETURNING {self.columns}" if rows.way != "all" else ""
        return Statement(
            f"UPDATE {self.table_in_schema} SET {self.sets(change)} WHERE {where}{returning}", names=self.brings(change)
        )

    def delete(self, rows: Selector, change: Change) -> Statement:
        where = f"{self.told_first}{self.where(rows)}"
        returning = f" RETURNING {', '.join(self.last(change))}" if rows.way != "all" else ""
        return Statement(f"DELETE FROM {self.table_in_schema} WHERE {where}{returning}", names=self.brings(change))

    def brings(self, change: Change) -> tuple[str, ...]:
        """The named values of the application's own columns that a change writes."""
        return tuple(self._parameters[name] for name in change.update)

    def field_of(self, name: str) -> Field:
        """The field whose value has this name in a statement (f3, f3_0)."""
        return self.source.fields[int(name[1:].partition("_")[0])]

    def _own(self, change: Change) -> dict[str, str]:
        return {self.quote(self._column(name)): f":{self._parameters[name]}" for name in change.update}

    def sets(self, change: Change) -> str:
        """What follows SET."""
        written = self._own(change) | self.of_roles(change)
        return ", ".join(f"{column} = {value}" for column, value in written.items())

    def last(self, change: Change, of: str = "") -> list[str]:
        """The columns of a row that is deleted, as it last was, its update applied; `of` as in `by_key`."""
        own = self._own(change)
        columns = [self.quote(field.column) for field in self.source.fields]
        return [own.get(column, f"{of}{column}") for column in columns]

    def of_roles(self, change: Change) -> dict[str, str]:
        """Return the new values of the columns of the mapped roles, as SQL by column."""
        return {
            self.roles[role]: self.written(role, value) for role, value in change.roles.items() if role in self.roles
        }

    def _column(self, name: str) -> str:
        return next(field.column for field in self.source.fields if field.name == name)

    def insert(self, change: Change, names: Sequence[str], count: int) -> Statement:
        """Put `count` rows that bring values for the fields `names`. What is refused by a guard is not returned."""
        roles = self.of_roles(change)
        brought = {self.quote(self._column(name)): f":{self._parameters[name]}" for name in names}
        brought = {column: value for column, value in brought.items() if column not in roles}
        rows = ", ".join(
            "(" + ", ".join([*(f"{value}_{i}" for value in brought.values()), *roles.values()]) + ")"
            for i in range(count)
        )
        values = f"VALUES {rows}"
        conflict = ""
        admitted = ""
        for guard in self.machine.guards:
            if guard.name == "limit":
                values, admitted = self.limited(rows, guard)
            elif guard.name == "unique":
                conflict = self.unless_held(guard)
        return Statement(
            f"INSERT INTO {self.object(self.source.name)} ({', '.join([*brought, *roles])}) {values}{conflict} "
            f"RETURNING {self.columns}",
            names=tuple(f"{self._parameters[name]}_{i}" for i in range(count) for name in names),
            admitted=admitted,
        )

    def write_many(self, names: Sequence[str], count: int) -> Statement:
        """Write the fields `names` of `count` rows, into each its own, whatever their states."""
        rows = [f"_{i}" for i in range(count)]
        sets = []
        for name in names:
            column, value = self.quote(self._column(name)), self._parameters[name]
            cases = " ".join(f"WHEN {self.by_key(row=row)} THEN :{value}{row}" for row in rows)
            sets.append(f"{column} = CASE {cases} ELSE {column} END")
        keys = ", ".join(self._tuple([f":k{i}{row}" for i in range(len(self.keys))]) for row in rows)
        return Statement(
            f"UPDATE {self.table_in_schema} SET {', '.join(sets)} WHERE {self.key} IN ({keys})",
            names=tuple(f"{self._parameters[name]}{row}" for row in rows for name in names),
        )

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        """What an INSERT inserts as long as there is room, and what must return a row before, where that is needed."""
        return f"SELECT * FROM (VALUES {rows}) WHERE {self.room(guard)}", ""

    def room(self, guard: Guard) -> str:
        return f"{self.counted_in(guard)} + :adding <= {guard.value}"

    def unless_held(self, guard: Guard) -> str:
        """What follows an INSERT that shall insert nothing where a unique value is held."""
        return f" ON CONFLICT ({self.roles[guard.role]}) WHERE {self.in_states(self.holding(guard))} DO NOTHING"

    @property
    def adopt_owners(self) -> str:
        """SQL that copies the tokens of taken tasks from the side table, which is there, to the role owner."""
        owner = self.roles["owner"]
        taken = f"{self.is_state(TAKEN)} AND {owner} IS NULL"
        return f"UPDATE {self.table_in_schema} SET {owner} = {self._owner_beside} WHERE {taken}"
