"""SQL of the statements that change tasks: moves, puts and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xq.adapters.databases.selectors import Selectors
from xq.core.compile import After, Change, Given, Own, Selector, Statement
from xq.core.machine import ABSENT, PLUS_ONE, TAKEN, TOKEN, Guard, Marker
from xq.core.ports import Field


class Writes(Selectors):
    """Compiles changes of the transition table, and puts with their guards, to statements."""

    sets_context: ClassVar[str] = ""  # a server's condition, always true, that passes `:context` to the triggers

    def entered(self, state: str) -> str:
        """Return the new value of the status field, as SQL that may pass the event to the triggers."""
        return self.literal(self.words[state])

    def amount(self, value: Given | Own) -> str:
        if isinstance(value, Given):
            # Only the statement knows when it runs: it may have waited for a lock.
            until = f"CASE WHEN :at > {self.now} THEN :at - {self.now} ELSE 0 END"
            return until if value.name == "at" else f":{value.name}"
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
            return {TOKEN.name: ":owner", PLUS_ONE.name: f"COALESCE({self.roles[role]}, 0) + 1"}[value.name]
        return self.entered(value) if role == "status" else self.literal(value)

    def move(self, rows: Selector, change: Change) -> Statement:
        """Return the statement that moves, deletes or touches rows, and returns them as they are afterwards."""
        if change.target == ABSENT:
            return self.delete(rows, change)
        return self.update(rows, change)

    def update(self, rows: Selector, change: Change) -> Statement:
        where, returning = self.where(rows), f" RETURNING {self.columns}" if rows.way != "all" else ""
        return Statement(
            f"UPDATE {self.table_in_schema} SET {self.sets(change)} WHERE {where}{returning}",
            names=self.brings(change),
            charge=self.charging(self.by_key()) if self.is_charged(rows, change) else "",
        )

    def delete(self, rows: Selector, change: Change) -> Statement:
        where = " AND ".join(filter(None, [self.sets_context, self.where(rows)]))
        returning = f" RETURNING {', '.join(self.last(change))}" if rows.way != "all" else ""
        return Statement(f"DELETE FROM {self.table_in_schema} WHERE {where}{returning}", names=self.brings(change))

    def brings(self, change: Change) -> tuple[str, ...]:
        """Return the names of the values that a change writes to the application's own columns."""
        return tuple(self._parameters[name] for name in change.update)

    def field_of(self, name: str) -> Field:
        """Return the field whose value has this name in a statement (f3, f3_0)."""
        return self.source.fields[int(name[1:].partition("_")[0])]

    def _own(self, change: Change) -> dict[str, str]:
        return {self.column_of[name]: f":{self._parameters[name]}" for name in change.update}

    def sets(self, change: Change) -> str:
        """Return the assignments after SET."""
        written = self._own(change) | self.of_roles(change)
        return ", ".join(f"{column} = {value}" for column, value in written.items())

    def last(self, change: Change, of: str = "") -> list[str]:
        """Return the columns of a deleted row with its update applied; `of` as in `by_key`."""
        own = self._own(change)
        return [own.get(column, f"{of}{column}") for column in self.column_of.values()]

    def of_roles(self, change: Change) -> dict[str, str]:
        """Return the new values of the columns of the mapped roles, as SQL by column."""
        return {
            self.roles[role]: self.written(role, value) for role, value in change.roles.items() if role in self.roles
        }

    def insert(self, change: Change, names: Sequence[str], count: int, guarded: bool = True) -> Statement:
        """Return the statement that puts `count` rows with values for the fields `names`.

        It does not return the rows that a guard rejects. Without guards the database refuses them, if at all.
        """
        roles = self.of_roles(change)
        brought = {self.column_of[name]: f":{self._parameters[name]}" for name in names}
        brought = {column: value for column, value in brought.items() if column not in roles}
        rows = ", ".join(
            "(" + ", ".join([*(f"{value}_{i}" for value in brought.values()), *roles.values()]) + ")"
            for i in range(count)
        )
        values = f"VALUES {rows}"
        conflict = ""
        admitted = ""
        for guard in self.machine.guards if guarded else ():
            if guard.name == "limit":
                values, admitted = self.limited(rows, guard)
            elif guard.name == "unique":
                conflict = self.unless_duplicate(guard)
        return Statement(
            f"INSERT INTO {self.object(self.source.name)} ({', '.join([*brought, *roles])}) {values}{conflict} "
            f"RETURNING {self.columns}",
            names=tuple(f"{self._parameters[name]}_{i}" for i in range(count) for name in names),
            admitted=admitted,
        )

    def write_many(self, names: Sequence[str], count: int) -> Statement:
        """Return the statement that writes the fields `names` of `count` rows in any state, with values for each."""
        rows = [f"_{i}" for i in range(count)]
        sets = []
        for name in names:
            column, value = self.column_of[name], self._parameters[name]
            cases = " ".join(f"WHEN {self.by_key(row=row)} THEN :{value}{row}" for row in rows)
            sets.append(f"{column} = CASE {cases} ELSE {column} END")
        keys = ", ".join(self.tuple_of([f":k{i}{row}" for i in range(len(self.keys))]) for row in rows)
        return Statement(
            f"UPDATE {self.table_in_schema} SET {', '.join(sets)} WHERE {self.key} IN ({keys})",
            names=tuple(f"{self._parameters[name]}{row}" for row in rows for name in names),
        )

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        """Return the rows of an INSERT into a limited queue, and a query that must find a row before it runs.

        The query is empty if the INSERT itself inserts nothing into a full queue.
        """
        return f"SELECT * FROM (VALUES {rows}) WHERE {self.room(guard)}", ""

    def has_room(self, guard: Guard) -> str:
        """Return a query that finds a row if the queue has room for `:adding` tasks."""
        return f"SELECT 1{self.absent_rows} WHERE {self.room(guard)}"

    def room(self, guard: Guard) -> str:
        """Return the condition that a queue has room. It reads the counters, not the tasks."""
        states = ", ".join(f"'{state}'" for state in self.guarded_states(guard))
        counts = self.side("count")
        into, out = (f"CASE WHEN {column} IN ({states}) THEN n ELSE 0 END" for column in ("target", "source"))
        counted = f"(SELECT COALESCE(SUM({into} - {out}), 0) FROM {counts} WHERE tube = '')"
        return f"{counted} + :adding <= {guard.value}"

    def unless_duplicate(self, guard: Guard) -> str:
        """Return the ON CONFLICT clause that skips a row if another task has its unique value."""
        return f" ON CONFLICT ({self.roles[guard.role]}) WHERE {self.in_states(self.guarded_states(guard))} DO NOTHING"

    @property
    def adopt_owners(self) -> str:
        """SQL that copies the tokens of taken tasks from the side table of an earlier layout."""
        owner, beside = self.roles["owner"], self.side("owner")
        taken = f"{self.is_state(TAKEN)} AND {owner} IS NULL"
        token = f"(SELECT xq_o.owner FROM {beside} AS xq_o WHERE {self.same_wait('xq_o', self.table, self.keys)})"
        return f"UPDATE {self.table_in_schema} SET {owner} = {token} WHERE {taken}"
