"""SQL for the statements that change tasks: moves, puts and deletions, and a selector's rows."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal
from uuid import UUID

from xq.core.compile import After, Change, Charge, Given, Later, Own, Selector, Statement
from xq.core.connections import Run
from xq.core.kinds import fits_a_column
from xq.core.machine import ABSENT, PLUS_ONE, READY, TAKEN, TOKEN, Guard, Lacks, Marker, Sql
from xq.core.tokens import UUID_LENGTH
from xq.sql.heads import Heads
from xq.sql.named import filled
from xq.sql.rows import Rows
from xq.sql.terms import UNIQUE


class TaskMoves(ABC):
    """Compiles changes in the transition table, and puts with their guards, to statements."""

    def __init__(self, terms: Rows) -> None:
        self.terms = terms

    deletes_unread = False  # whether a deletion that returns no row is faster

    @cached_property
    def has_dirty_heads(self) -> bool:
        """Whether heads may be dirty, so that a take must refresh them to find all tasks."""
        return self.terms.heads is not None and bool(self.terms.heads.any_dirty)

    @cached_property
    def may_pass_by(self) -> bool:
        """Whether a take may skip a ready task because another statement has locked its row or its head."""
        return self.has_dirty_heads

    # which rows

    def where(self, rows: Selector) -> str:
        """Return the condition for a statement that moves rows."""
        if rows.mode in ("key", "keys"):
            return f"{self.named(rows)}{self.fence(rows)}{self.terms.briefly * rows.briefly}"
        if rows.mode in ("all", "each"):
            return self.terms.in_states((rows.state, *rows.more)) if rows.more else self.terms.is_state(rows.state)
        some = self.select(", ".join(self.terms.keys), rows)
        return f"{self.terms.key} {'=' if rows.mode == 'first' else 'IN'} ({some})"

    def named(self, rows: Selector, by_key: bool = False) -> str:
        """Return the condition that finds a key's row, or the rows in a key list, in the state.

        With `by_key` no index that begins with the status can find it.
        """
        # A list is found by key: an index that begins with the status would read all taken tasks.
        status = self.terms.not_by_index(self.terms.roles["status"]) if by_key or rows.mode == "keys" else ""
        state = self.terms.is_state(rows.state, status)
        due = f" AND {self.terms.due(rows)}" if rows.column else ""
        if rows.mode == "key":
            holds = "".join(f" AND {self.condition(each)}" for each in rows.when)
            return f"{self.terms.by_key()} AND {state}{due}{self.terms.lost(rows)}{holds}"
        return f"{self.terms.keys_listed(len(self.terms.keys) + (rows.fence == 'takes'))} AND {state}{due}"

    def condition(self, when: Lacks | Sql) -> str:
        """Return a condition on a row as SQL."""
        if isinstance(when, Lacks):
            return self.terms.lacks(f"COALESCE({self.terms.roles[when.role]}, '')", f":{when.name}")
        return self._filled(when.parts[0], self.terms.now)

    def fence(self, rows: Selector, owner: str = "") -> str:
        """Return the fence: a condition that only this session's rows, or rows with their token, are meant."""
        owner = owner or self.terms.roles["owner"]
        if rows.fence == "takes":  # found by key, as above: a take may have many tasks
            columns = [*self.terms.keys, self.terms.not_by_index(owner)]
            return f" AND {self.terms.in_list(columns, columns, len(columns))}"
        return {
            "": "",
            "session": f" AND substr({owner}, 1, {UUID_LENGTH + 1}) = :session",
            "take": f" AND {owner} = :token",
        }[rows.fence]

    def heads_for(self, rows: Selector) -> Heads | None:
        """Return the heads if the selector finds these rows by them, else None."""
        return self.terms.heads if rows.state == READY and rows.mode in ("first", "oldest") else None

    def select(self, columns: str, rows: Selector) -> str:
        """Return a query for rows without their keys, which locks them: the first one, or the first `n`."""
        if heads := self.heads_for(rows):
            return heads.select(columns, rows)
        by, chosen = self.terms.choice(rows)
        # A take waits for no other, so it skips what others have locked.
        some = f"WHERE {chosen} LIMIT {self.terms.limit(rows)}{self.terms.skip}"
        return f"SELECT {columns} FROM {self.terms.table_in_schema}{by} {some}"

    def listed(self, keys: Sequence[Sequence[Any]], tokens: Sequence[str] = ()) -> str | None:
        """Return keys, each with its token if given, as the value `:keys`, in JSON; None if that is not possible."""
        columns = [*zip(*keys, strict=True)]
        if not self.terms.lists_keys or not all(map(_is_listed, columns)):
            return None
        columns += [tuple(tokens)] * bool(tokens)
        return json.dumps([*zip(*columns, strict=True)] if len(columns) > 1 else columns[0], default=str)

    @cached_property
    def _key_values(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.terms.keys))]

    def by_keys(
        self, keys: Sequence[Sequence[Any]], tokens: Sequence[str] = ()
    ) -> tuple[Literal["key", "keys"], list[dict[str, Any]]]:
        """Return the mode that finds these rows, and the values of each statement: one if it can list them."""
        if len(keys) > 1 and (listed := self.listed(keys, tokens)):
            return "keys", [{"keys": listed}]
        return "key", [dict(zip(self._key_values, parts, strict=True)) for parts in keys]

    # queries

    def listing(self, rows: Selector) -> str:
        """Return a query for these rows' keys."""
        return f"SELECT {', '.join(self.terms.keys)} FROM {self.terms.table_in_schema} WHERE {self.where(rows)}"

    @property
    def lock_task(self) -> str:
        """SQL that locks a key's task until the transaction ends, and returns a row if it has. It does not wait.

        It is "" without row locks: the transaction has locked all.
        """
        return ""

    def lock_all(self, states: Iterable[str]) -> str:
        """Return SQL that locks the tasks in some states against moves until the transaction ends."""
        return self.terms.begin_writing

    def holders(self, guard: Guard, n: int) -> str:
        """Return a query for the tasks that have the unique values `:unique0`, `:unique1` ..., each with its number."""
        column, value = self.unique_column(guard)
        values = [filled(value, unique=f":unique{i}") for i in range(n)]
        number = f"CASE {column} {' '.join(f'WHEN {value} THEN {i}' for i, value in enumerate(values))} END"
        held = f"{column} IN ({', '.join(values)}) AND {self.terms.in_states(self.terms.guarded_states(guard))}"
        return f"SELECT {self.terms.columns}, {number} FROM {self.terms.read_by(UNIQUE)} WHERE {held}{self.terms.lock}"

    def unique_column(self, guard: Guard) -> tuple[str, str]:
        """Return the column in which unique values are compared, and `:unique` as its value."""
        return self.terms.roles[guard.role], ":unique"

    # what is written

    def entered(self, state: str, left: Sequence[str] = ()) -> str:
        """Return the new status value, SQL that may pass the event to the triggers; `left`: the old states."""
        return self.terms.literal(self.terms.words[state])

    def amount(self, value: Given | Own) -> str:
        if isinstance(value, Given):
            # Only the statement knows when it runs: it may have waited for a lock.
            until = f"CASE WHEN :at > {self.terms.now} THEN :at - {self.terms.now} ELSE 0 END"
            return until if value.name == "at" else f":{value.name}"
        if value.role:
            own = self.terms.roles[value.role]
            own = own if value.default is None else f"COALESCE({own}, {self.terms.literal(value.default)})"
            return f"NULLIF({own}, {self.terms.never})"
        return self.terms.literal(value.default)

    def all_written(self, values: Mapping[str, Any]) -> str:
        """Return a query for the new values of roles' columns."""
        return "SELECT " + ", ".join(self.written(role, value) for role, value in values.items())

    def written(self, role: str, value: Any) -> str:
        """Return the new value for a role's column, as SQL."""
        if isinstance(value, Given):
            return self.amount(value)
        if isinstance(value, After):
            terms, kind = self.terms, self.terms.kind(role)
            since = [terms.now if base == "now" else terms.seconds(kind, terms.roles[base]) for base in value.since]
            start = since[0] if len(since) == 1 else f"COALESCE({', '.join(since)})"
            return self.terms.moment(kind, " + ".join([start, *map(self.amount, value.seconds)]))
        if isinstance(value, Later):
            terms, at = self.terms, self.written(role, value.at)
            is_later = f"{terms.seconds(terms.kind(role), terms.roles[role])} < {terms.seconds(terms.kind(role), at)}"
            return f"CASE WHEN {is_later} THEN {at} ELSE {terms.roles[role]} END"
        if isinstance(value, Sql):
            now = self.terms.moment(self.terms.kind(role), self.terms.now)
            return self.terms.joined([self._filled(part, now) for part in value.parts])
        if isinstance(value, Marker):
            return {TOKEN.name: ":owner", PLUS_ONE.name: f"COALESCE({self.terms.roles[role]}, 0) + 1"}[value.name]
        return self.terms.literal(value)

    def _filled(self, part: str, now: str) -> str:
        return part.format(now=now, now_us=self.terms.now_us, **self.terms.column_of | self.terms.roles)

    def move(self, rows: Selector, change: Change) -> Statement:
        """Return the statement that moves, deletes or touches rows, and returns them as they are afterwards."""
        return self.delete(rows, change) if change.target == ABSENT else self.update(rows, change)

    def update(self, rows: Selector, change: Change) -> Statement:
        updated = f"UPDATE {self.terms.table_in_schema} SET {self.sets(rows, change)} WHERE {self.where(rows)}"
        return Statement(
            updated if rows.mode == "all" else self.returned(updated, self.terms.columns),
            names=self.brings(change),
            charge_each=charge.sql if (charge := self.charge(rows, change, self.terms.by_key())) else "",
        )

    def charge(self, rows: Selector, change: Change, task: str) -> Charge | None:
        """Return what a change to these rows charges for the one that the condition `task` finds."""
        charges = self.terms.charges if (*rows[:2], change.target) == ("first", READY, TAKEN) else None
        return charges.charge(task) if charges else None

    def delete(self, rows: Selector, change: Change) -> Statement:
        where = " AND ".join(filter(None, [self.terms.sets_context, self.where(rows)]))
        deleted = f"DELETE FROM {self.terms.table_in_schema} WHERE {where}"
        returned = deleted if rows.mode == "all" else self.returned(deleted, ", ".join(self.last(change)))
        return Statement(returned, names=self.brings(change))

    def returned(self, sql: str, columns: str) -> str:
        """Return a statement that writes rows as one that returns columns of these."""
        return f"{sql} RETURNING {columns}"

    def brings(self, change: Change) -> tuple[str, ...]:
        """Return the names of the values that a change writes to the application's own columns."""
        return tuple(self.terms.parameters[name] for name in change.update)

    def _own(self, change: Change) -> dict[str, str]:
        return {self.terms.column_of[name]: f":{self.terms.parameters[name]}" for name in change.update}

    def sets(self, rows: Selector, change: Change) -> str:
        """Return the assignments after SET."""
        written = (own := self._own(change)) | self.of_roles(change, (rows.state, *rows.more)) | own
        same = self.terms.roles["status"]  # of a touch that writes nothing
        return ", ".join(f"{column} = {value}" for column, value in (written or {same: same}).items())

    def last(self, change: Change, of: str = "") -> list[str]:
        """Return a deleted row's columns with its update applied; `of` as in `by_key`."""
        own = self._own(change)
        return [own.get(column, f"{of}{column}") for column in self.terms.column_of.values()]

    def of_roles(self, change: Change, left: Sequence[str] = ()) -> dict[str, str]:
        """Return the mapped roles' new values, as SQL by column; `left` as in `entered`."""
        there = self.terms.roles
        written = {there[role]: self.written(role, value) for role, value in change.roles.items() if role in there}
        entered = {there["status"]: self.entered(change.target, left)} if "status" in change.roles else {}
        return written | entered

    def insert(self, change: Change, names: Sequence[str], count: int, guarded: bool = True) -> Statement:
        """Return the statement that puts `count` rows with values for the fields `names`.

        It does not return the rows that a guard rejects. Without guards the database refuses them, if at all.
        """
        roles = self.of_roles(change)
        brought = {self.terms.column_of[name]: f":{self.terms.parameters[name]}" for name in names}
        brought = {column: value for column, value in brought.items() if column not in roles}
        rows = ", ".join(
            "(" + ", ".join([*(f"{value}_{i}" for value in brought.values()), *roles.values()]) + ")"
            for i in range(count)
        )
        machine, values, admitted = self.terms.machine, f"VALUES {rows}", ""
        if guarded and machine.room:
            values, admitted = self.limited(rows, machine.room)
        conflict = self.unless_duplicate(machine.single) if guarded and machine.single else ""
        inserted = f"INSERT INTO {self.terms.table_in_schema} ({', '.join([*brought, *roles])}) {values}{conflict}"
        return Statement(
            self.returned(inserted, self.terms.columns),
            names=tuple(f"{self.terms.parameters[name]}_{i}" for i in range(count) for name in names),
            admitted=admitted,
        )

    def put_later(self, change: Change, literals: Mapping[str, str]) -> tuple[str, str, str]:
        """Return SQL that puts a task with these literals, by column, SQL that does so unless another one has its
        unique value then, and a query for that one; "" without such a value.

        One that is taken skips nothing: it may have read what is old by then, and so the database refuses.
        """
        terms, written = self.terms, {**literals, **self.of_roles(change)}
        put = f"INSERT INTO {terms.table_in_schema} ({', '.join(written)}) SELECT {', '.join(written.values())}"
        unique = terms.machine.single
        if not unique or not (own := literals.get(terms.roles[unique.role])):
            return put, put, ""
        column, value = self.unique_column(unique)
        states = terms.guarded_states(unique)
        held = f"{column} = {filled(value, unique=own)} AND {terms.in_states(states)}"
        holder = f"SELECT 1 FROM {terms.table_in_schema} WHERE {held}"
        does_it = terms.in_states(state for state in states if state != TAKEN)
        return put, f"{put}{terms.absent_rows} WHERE NOT EXISTS ({holder} AND {does_it})", holder

    def write_many(self, names: Sequence[str], count: int) -> Statement:
        """Return the statement that writes the fields `names` in `count` rows in any state, with values for each."""
        rows = [f"_{i}" for i in range(count)]
        sets = []
        for name in names:
            column, value = self.terms.column_of[name], self.terms.parameters[name]
            cases = " ".join(f"WHEN {self.terms.by_key(row=row)} THEN :{value}{row}" for row in rows)
            sets.append(f"{column} = CASE {cases} ELSE {column} END")
        keys = ", ".join(self.terms.tuple_of([f":k{i}{row}" for i in range(len(self.terms.keys))]) for row in rows)
        return Statement(
            f"UPDATE {self.terms.table_in_schema} SET {', '.join(sets)} WHERE {self.terms.key} IN ({keys})",
            names=tuple(f"{self.terms.parameters[name]}{row}" for row in rows for name in names),
        )

    def limited(self, rows: str, guard: Guard) -> tuple[str, str]:
        """Return the rows of an INSERT into a limited queue, and a query that must find a row before it runs.

        The query is empty if the INSERT itself inserts nothing into a full queue.
        """
        return f"SELECT * FROM (VALUES {rows}) WHERE {self.room(guard)}", ""

    def has_room(self, guard: Guard) -> str:
        """Return a query that finds a row if the queue has room for `:adding` tasks."""
        return f"SELECT 1{self.terms.absent_rows} WHERE {self.room(guard)}"

    def room(self, guard: Guard) -> str:
        """Return the condition that a queue has room. It reads the counters, not the tasks."""
        states = ", ".join(f"'{state}'" for state in self.terms.guarded_states(guard))
        counts = self.terms.side("count")
        into, out = (f"CASE WHEN {column} IN ({states}) THEN n ELSE 0 END" for column in ("target", "source"))
        counted = f"(SELECT COALESCE(SUM({into} - {out}), 0) FROM {counts} WHERE tube = '')"
        return f"{counted} + :adding <= {guard.value}"

    def unless_duplicate(self, guard: Guard) -> str:
        """Return the ON CONFLICT clause that skips a row if another task has its unique value."""
        held = self.terms.in_states(self.terms.guarded_states(guard))
        return f" ON CONFLICT ({self.terms.roles[guard.role]}) WHERE {held} DO NOTHING"

    @abstractmethod
    def is_duplicate(self, refusal: str) -> bool:
        """Return whether a database error's message names the index by which one task has a value."""

    @abstractmethod
    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        """Return a function that runs a statement's parts on a connection. `event` is for the triggers.

        A put has `width` values for each task. They are in the value `rows`, one tuple per task, not under their names.
        """


def _is_listed(parts: Sequence[Any]) -> bool:
    """Return whether JSON holds these column values exactly, as a database reads them."""
    types = {*map(type, parts)}
    if types == {int}:
        return fits_a_column(min(parts)) and fits_a_column(max(parts))
    return types == {UUID} or (types == {str} and all(map(fits_a_column, parts)))
