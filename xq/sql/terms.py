"""The terms in which one queue's SQL is written: names, literals, times, states and keys."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

from xq.core.compile import Statement
from xq.core.connections import Connection, Connections, Run
from xq.core.errors import ConfigurationError
from xq.core.kinds import HISTORY, Field, Kind, Row, Table, Values, beside
from xq.core.machine import ABSENT, Guard, Machine
from xq.sql.language import Language
from xq.sql.shared import SharedSql

UNIQUE: Final = "unique"  # the suffix of the index by which one task has a value, whatever its guard is called


class Terms(Language):
    """A queue's table, its roles, its states and its keys, as SQL."""

    def __init__(
        self, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str] = ()
    ) -> None:
        kept = [slice.guard for slice in machine.slices]
        for guard in machine.guards:
            if not guard.checks and guard.name not in kept:
                raise ConfigurationError(
                    f"no database keeps the guard {guard.name!r}: it has no checks=, and no slice has it as its guard"
                )
        self.source = table
        self.machine = machine
        self.words = words
        self.letters = {words[state]: state for state in machine.states}
        self.tube_stats = tuple(tube_stats)
        self.roles = {role: self.quote(field.column) for role, field in table.roles.items()}
        self.source_name = f"{table.schema}.{table.name}" if table.schema else table.name
        self.keys = tuple(self.quote(field.column) for field in table.key)
        self.parts = [f"k{i}" for i in range(len(self.keys))]  # a key's columns in xq's own tables
        self.table = self.quote(table.name)
        self.key = self.tuple_of(self.keys)
        self.column_of = {field.name: self.quote(field.column) for field in table.fields}
        self.columns = ", ".join(self.column_of.values())
        self.parameters = {field.name: f"f{i}" for i, field in enumerate(table.fields)}

    shared_kind: type[SharedSql]
    no_limit: int | None  # on rows, as a value for LIMIT

    @cached_property
    def shared(self) -> SharedSql:
        return self.shared_kind()

    # keys in the history

    def key_in_history(self, parts: Sequence[str]) -> str:
        """Return SQL for a key as the history stores it, from the stored parts."""
        alone = len(parts) == 1
        stored = [self.in_history(field, part, alone) for field, part in zip(self.source.key, parts, strict=True)]
        return stored[0] if alone else self.json_array(", ".join(stored))

    @abstractmethod
    def in_history(self, field: Field, part: str, alone: bool) -> str:
        """Return a key's part as the history stores it; `alone` if the key has no other."""

    not_held = ""  # the condition that no heartbeat keeps a taken task's ttr from passing
    session_of_owner = ""  # SQL for a taken task's session, or ''

    def not_by_index(self, column: str) -> str:
        """Return a column in a form for which the planner uses no index."""
        number = column == self.roles["status"] and self.source.roles["status"].kind != "text"
        return (self.number_alone if number else self.text_alone)(column)

    def by_index(self, name: str) -> str:
        """Return the hint that makes the planner read a table by this index."""
        return self.hint(self.quote(name))

    def read_by(self, suffix: str) -> str:
        """Return the table, for FROM, that is read by its index with this suffix."""
        return f"{self.table_in_schema}{self.by_index(self.name(suffix))}"

    def per_row(self, value: str) -> str:
        """Return a value in a query within the one for tasks, which the database must run for each of them."""
        return value

    def its(self, role: str) -> str:
        """Return a role's column of the table, by its full name."""
        return f"{self.table}.{self.roles[role]}"

    def holds(self, role: str, *values: Any) -> str:
        """Return the condition, TRUE or FALSE, that a task's role is one of these values, whatever the collation."""
        listed = f"IN ({', '.join(map(self.literal, values))})"
        return f"COALESCE({self.exactly(self.value_of(role, self.its(role)), listed, self.kind(role))}, FALSE)"

    # names

    def name(self, suffix: str) -> str:
        """Return the name for this queue's object."""
        return beside(self.source.name, suffix, self.longest_name)

    def in_schema(self, schema: str) -> Self:
        """Return a copy whose SQL finds the tables in another schema; for triggers."""
        found = copy.copy(self)
        found.source = replace(self.source, schema=schema)
        for name in list(vars(found)):
            if isinstance(getattr(type(self), name, None), cached_property):
                del vars(found)[name]
        return found

    def in_full(self, store: Connections) -> Self:
        """Return a copy whose SQL finds its tables also where a program finds others by their plain names."""
        if self.settles:  # xq itself runs what is stored, also in a copy of the database with another name
            return self
        ((here,),) = store.execute(f"SELECT {self.first_schema}")
        return self.in_schema(self.source.schema or here)

    def of_table(self, name: str) -> Self:
        """Return a copy for another table with the same columns."""
        return type(self)(replace(self.source, name=name), self.machine, self.words, self.tube_stats)

    @property
    def schema(self) -> str:
        """SQL for the table's schema."""
        return self.quote(self.source.schema or "main")

    def object(self, name: str) -> str:
        """Return a name, quoted, in the table's schema."""
        return f"{self.quote(self.source.schema)}.{self.quote(name)}" if self.source.schema else self.quote(name)

    def side(self, suffix: str) -> str:
        """Return this queue's side table by the suffix in its name, for example count, wait or history."""
        return self.object(self.name(suffix))

    # values of columns

    def exactly(self, column: str, test: str, kind: Kind = "text") -> str:
        """Return an exact test on a column that can use an index."""
        return f"{column} {test}"

    def is_state(self, state: str, column: str = "") -> str:
        return self.exactly(column or self.roles["status"], f"= {self.literal(self.words[state])}", self.kind("status"))

    def in_states(self, states: Iterable[str], column: str = "") -> str:
        words = ", ".join(self.literal(self.words[state]) for state in states)
        return self.exactly(column or self.roles["status"], f"IN ({words})", self.kind("status"))

    def letter(self, column: str) -> str:
        """Return SQL for the letter that a stored status stands for; X for a foreign one."""
        cases = " ".join(f"WHEN {self.literal(self.words[s])} THEN '{s}'" for s in self.machine.states)
        return f"CASE {self.exact(column, self.kind('status'))} {cases} ELSE '{ABSENT}' END"

    def kind(self, role: str) -> Kind:
        return self.source.roles[role].kind

    def state(self, row: Row) -> str | None:
        """Return the letter for a row's status; None if it is foreign."""
        status = self.source.fields.index(self.source.roles["status"])
        return self.letters.get(row[status])

    def value_of(self, role: str, column: str) -> str:
        """Return a role's column; one that holds UUIDs as text with dashes, however it is stored."""
        return self.dashed(column) if self.kind(role) == "uuid" else column

    def counted(self, column: str) -> str:
        """Return the condition that a tube has its own counters."""
        tube = self.value_of("tube", column)
        return self.exactly(tube, f"IN ({', '.join(map(self.literal, self.tube_stats))})")

    # the search

    schema_version = ""  # a query for a number that changes with the schema, where such a change may drop the triggers

    def indexed(self, column: str) -> str:
        """Return an index column, or the prefix that an index can hold."""
        return column

    def sorted_alone(self, rows: str, condition: str) -> str:
        """Return the FROM clause for rows that the database shall read by a condition's index, and then sort."""
        return rows

    def beyond(self, columns: Sequence[str], operator: str, first: str = "") -> str:
        """Return the condition for an index range: these columns are beyond `:p0`, `:p1` ...; `first`: of the first."""
        values = [f":p{i}" for i in range(len(columns))]
        if not first:
            return f"({', '.join(columns)}) {operator} ({', '.join(values)})"
        others = f"({', '.join(columns[1:])}) {operator} ({', '.join(values[1:])})"
        return f"({columns[0]} {first}= :p0 AND ({columns[0]} {first} :p0 OR {others}))"

    # the history

    history_columns: ClassVar[Mapping[str, Kind]] = HISTORY
    history_order: ClassVar[tuple[str, ...]] = ("id",)
    position: ClassVar[str] = "id"  # SQL: what rises from commit to commit, NULL until it is known; "" if nothing does

    @property
    def has_history(self) -> bool:
        return self.machine.settings.history is not None

    @property
    def since_before(self) -> str:
        """SQL for the microseconds since the task's previous transition; NULL if it was absent."""
        before = f"LAG(at_us) OVER (PARTITION BY {self.quote('key')} ORDER BY id)"
        return f"CASE WHEN source <> '{ABSENT}' THEN {self.elapsed(before)} END"

    @property
    def history_kept(self) -> float:
        """For how many seconds the history's rows are kept (inf: for ever)."""
        kept = self.machine.settings.history
        return math.inf if kept is None else kept

    def is_acted(self, event: str) -> bool:
        """Return whether transitions by this event have an actor: what falls due in an actor's block has none."""
        return bool(event) and not any(row.event == event for row in self.machine.rows if row.due or row.loses)

    # rows

    def same_wait(self, alias: str, version: str) -> str:
        """Return the condition that a row in the waits has a version's key."""
        dot, pairs = f"{alias}." if alias else "", zip(self.parts, self.keys, strict=True)
        return " AND ".join(f"{dot}{column} = {version}.{key}" for column, key in pairs)

    def by_key(self, of: str = "", row: str = "") -> str:
        """Return the condition that finds a row by key. `of` prefixes the columns, `row` ends the values' names."""
        parts = enumerate(zip(self.keys, self.source.key, strict=True))
        return " AND ".join(self.exactly(f"{of}{key}", f"= :k{i}{row}", field.kind) for i, (key, field) in parts)

    @property
    def in_tube(self) -> str:
        return self.is_in_tube(self.roles["tube"])

    def is_in_tube(self, column: str) -> str:
        kind = self.kind("tube")
        return self.exactly(column, f"= {self.undashed(':tube') if kind == 'uuid' else ':tube'}", kind)

    def keys_there(self, of: str = "") -> str:
        """Return the start of a condition that excludes NULL keys, if the database allows them; `of` as in `by_key`."""
        return ""

    def guarded_states(self, guard: Guard) -> list[str]:
        """Return the guard's states that this queue has."""
        return [state for state in self.machine.states if state in guard.states]

    def field_of(self, name: str) -> Field:
        """Return the field whose value has this name in a statement (f3, f3_0)."""
        return self.source.fields[int(name[1:].partition("_")[0])]

    @property
    def table_in_schema(self) -> str:
        return self.object(self.source.name)

    @property
    def waits(self) -> str:
        return self.side("wait")

    # statements

    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement without rows and return how many it changed. `event` is for the triggers."""
        text, values_of = self.filled(statement.sql)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return [(connection.change(text, values_of(values)),)]

        ((changed,),) = self.in_context(run, event)(store.ready(), {**values})
        return int(changed)

    def stored_context(self, event: str) -> str:
        """Return the event context of what a stored text makes; "" where a text has none."""
        return ""

    @abstractmethod
    def in_context(self, run: Run, event: str) -> Run:
        """Return `run` with this event's context."""

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        """Lock the queue until the transaction ends: this method's callers run one at a time.

        The caller sees what the previous one has committed. If the application's transaction (`within`) has an older
        snapshot, this raises a conflict.
        """
        if self.begin_writing:
            store.change(self.begin_writing)

    # A query whose result differs if the queue's names find other tables. Its last value is a message if
    # the database hides rows from this user, else NULL.
    found_tables = ""
