"""The terms in which the SQL of one queue is written: names, literals, times, states and keys."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

from xq.adapters.databases.named import quoted
from xq.core import dialect as interface
from xq.core.errors import ConfigurationError
from xq.core.machine import ABSENT, Guard, Machine
from xq.core.ports import HISTORY, TIMES, Field, Kind, Row, Table, beside

GUARDS = ("limit", "rate", "unique", "utube")


class Form(str):
    """SQL with a place for each of some texts, which a call fills in."""

    def __call__(self, *texts: object) -> str:
        return self.format(*texts)


AS_IT_IS = Form("{}")


class Terms(interface.Dialect, ABC):
    """The table of a queue, its roles, its states and its keys, as SQL."""

    def __init__(
        self, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str] = ()
    ) -> None:
        for guard in machine.guards:
            if guard.name not in GUARDS:
                raise ConfigurationError(
                    f"no database keeps the guard {guard.name!r}: they keep {' and '.join(GUARDS)}"
                )
        self.source = table
        self.machine = machine
        self.words = words
        self.letters = {words[state]: state for state in machine.states}
        self.tube_stats = tuple(tube_stats)
        self.roles = {role: self.quote(field.column) for role, field in table.roles.items()}
        self.source_name = f"{table.schema}.{table.name}" if table.schema else table.name
        self.keys = tuple(self.quote(field.column) for field in table.key)
        self.parts = [f"k{i}" for i in range(len(self.keys))]  # the columns of a key in xq's own tables
        self.table = self.quote(table.name)
        self.key = self.tuple_of(self.keys)
        self.column_of = {field.name: self.quote(field.column) for field in table.fields}
        self.columns = ", ".join(self.column_of.values())
        self.parameters = {field.name: f"f{i}" for i, field in enumerate(table.fields)}

    # time

    now: str  # SQL of the seconds since 1970: `:now` if it is given, else by the clock of the database
    now_us: str  # `now` as a whole number of microseconds

    # By the kinds of columns that hold no seconds since 1970: such a value of them, and the inverse.
    moments: ClassVar[Mapping[Kind, Form]]
    times: ClassVar[Mapping[Kind, Form]]

    def moment(self, kind: Kind, seconds: str) -> str:
        """Return seconds since 1970 as a value of a column of this kind."""
        return self.moments.get(kind, AS_IT_IS)(seconds)

    def seconds(self, kind: Kind, column: str) -> str:
        """Return a column's value as seconds since 1970: the inverse of `moment`."""
        return self.times.get(kind, AS_IT_IS)(column)

    def bound(self, kind: Kind) -> str:
        """Return now, for a comparison with a column of this kind."""
        return self.moment(kind, self.now) if kind in TIMES else self.now

    # keys in the history

    json_array = Form("json_array({})")

    def key_in_history(self, parts: Sequence[str]) -> str:
        """Return SQL of a key as the history stores it, from the stored parts."""
        alone = len(parts) == 1
        stored = [self.in_history(field, part, alone) for field, part in zip(self.source.key, parts, strict=True)]
        return stored[0] if alone else self.json_array(", ".join(stored))

    @abstractmethod
    def in_history(self, field: Field, part: str, alone: bool) -> str:
        """Return a part of a key as the history stores it; `alone` if the key has no other."""

    # words

    differ: Form  # the condition that two values differ; NULL equals NULL
    as_text = Form("CAST({} AS TEXT) COLLATE BINARY")  # as xq's tables hold a value in a key; compared byte by byte
    exact_text = AS_IT_IS  # a text that compares byte by byte
    ended = Form("'-' || {}")  # the token that SQL writes when it ends a task by its token
    whole = AS_IT_IS  # a number cast so that the driver returns an int
    varying = Form("TEXT")  # the type of text of up to so many characters in xq's tables
    quotes = '"'  # around names
    number_alone = text_alone = Form("+{}")  # a column in a form for which the planner uses no index
    hint = Form("")  # makes the planner read a table by the index of this name
    never: str  # SQL of "never" in a role that stores seconds, where NULL means the default
    forever: float = math.inf  # the same, as a value
    placeholder: str  # of a value, as the driver writes it
    longest_name: int | None = None  # in bytes
    layout: str  # the version of installed objects; raise it with each change of triggers, indexes or side tables
    long_text = "TEXT"  # the type of a text of any length
    double = "DOUBLE PRECISION"
    dashed = Form("{0}")  # a UUID as text, also if it is stored as 32 digits
    engine = ""  # table options of CREATE TABLE
    create_view = "CREATE VIEW IF NOT EXISTS"
    absent_rows = ""  # the FROM clause that a SELECT without a table needs for a condition
    by_primary = ""  # the hint that makes the planner read a table by its key
    lock = ""  # the clause that locks the rows of a SELECT; SQLite has one writer, which locks the file
    skip = ""  # as `lock`, and skips what others have locked
    begin_writing = ""  # a write that changes nothing: it acquires the lock of a writer before the first read
    afresh = ""  # a locking clause that makes a SELECT read the last committed rows, not the transaction's snapshot
    not_held = ""  # the condition that no heartbeat keeps the ttr of a taken task from passing
    session_of_owner = ""  # SQL of the session of a taken task, or ''
    briefly = ""  # the condition, always true, that ends a wait for a locked row after a second
    sets_context = ""  # a server's condition, always true, that passes `:context` to the triggers
    list_kinds: ClassVar[Mapping[str, str]] = {}  # the type of a list's members, by the kind of the key
    read_only = ""  # the condition that the server is read-only; "" if that must be asked of the connection

    def not_by_index(self, column: str) -> str:
        """Return a column in a form for which the planner uses no index."""
        number = column == self.roles["status"] and self.source.roles["status"].kind != "text"
        return (self.number_alone if number else self.text_alone)(column)

    def by_index(self, name: str) -> str:
        """Return the hint that makes the planner read a table by this index."""
        return self.hint(self.quote(name))

    def read_by(self, suffix: str) -> str:
        """Return the table, for FROM, that is read by its index of this suffix."""
        return f"{self.table_in_schema}{self.by_index(self.name(suffix))}"

    def on_conflict(self, key: str, update: str = "") -> str:
        """Return the clause by which an INSERT updates, or skips, an existing row."""
        return f" ON CONFLICT ({key}) DO {f'UPDATE SET {update}' if update else 'NOTHING'}"

    def quote(self, name: str) -> str:
        return quoted(name, self.quotes)

    @staticmethod
    def literal(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)

    def in_any_mode(self, text: str) -> str:
        """Return a literal to store that no setting of the connection changes."""
        return self.literal(text)

    @staticmethod
    def tuple_of(parts: Sequence[str]) -> str:
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    # names

    def name(self, suffix: str) -> str:
        """Return the name of an object of this queue."""
        return beside(self.source.name, suffix, self.longest_name)

    def in_schema(self, schema: str) -> Self:
        """Return a copy whose SQL finds the tables in another schema; for triggers."""
        found = copy.copy(self)
        found.source = replace(self.source, schema=schema)
        for name in list(vars(found)):
            if isinstance(getattr(type(self), name, None), cached_property):
                del vars(found)[name]
        return found

    def of_table(self, name: str) -> Self:
        """Return a copy for another table with the same columns."""
        return type(self)(replace(self.source, name=name), self.machine, self.words, self.tube_stats)

    @property
    def schema(self) -> str:
        """SQL of the schema of the table."""
        return self.quote(self.source.schema or "main")

    def object(self, name: str) -> str:
        """Return a name, quoted, in the schema of the table."""
        return f"{self.quote(self.source.schema)}.{self.quote(name)}" if self.source.schema else self.quote(name)

    def side(self, suffix: str) -> str:
        """Return a table of this queue by the suffix of its name, for example count, wait or history."""
        return self.object(self.name(suffix))

    # values of columns

    def exact(self, column: str, kind: Kind = "text") -> str:
        """Return a column for an exact comparison in any collation. It cannot use an index."""
        return self.exact_text(column) if kind == "text" else column

    def exactly(self, column: str, test: str, kind: Kind = "text") -> str:
        """Return an exact test of a column that can use an index."""
        return f"{column} {test}"

    def is_state(self, state: str, column: str = "") -> str:
        return self.exactly(column or self.roles["status"], f"= {self.literal(self.words[state])}", self.kind("status"))

    def in_states(self, states: Iterable[str], column: str = "") -> str:
        words = ", ".join(self.literal(self.words[state]) for state in states)
        return self.exactly(column or self.roles["status"], f"IN ({words})", self.kind("status"))

    def letter(self, column: str) -> str:
        """Return SQL of the letter of a stored status; X for a foreign one."""
        cases = " ".join(f"WHEN {self.literal(self.words[s])} THEN '{s}'" for s in self.machine.states)
        return f"CASE {self.exact(column, self.kind('status'))} {cases} ELSE '{ABSENT}' END"

    def kind(self, role: str) -> Kind:
        return self.source.roles[role].kind

    def state(self, row: Row) -> str | None:
        """Return the letter of a returned row; None if its status is foreign."""
        status = self.source.fields.index(self.source.roles["status"])
        return self.letters.get(row[status])

    def counted(self, column: str) -> str:
        """Return the condition that a tube has counters of its own."""
        return self.exactly(column, f"IN ({', '.join(map(self.literal, self.tube_stats))})")

    # the search

    place_in_text = "instr"
    folded = Form("lower({})")
    # A query of (holder, seconds, how to end it) of transactions older than `:n` seconds, the oldest first.
    open_transactions = ""
    schema_version = ""  # a query of a number that each change of the schema changes, where one may drop the triggers

    def indexed(self, column: str) -> str:
        """Return a column of an index, or the prefix of it that an index can hold."""
        return column

    def sorted_alone(self, rows: str, condition: str) -> str:
        """Return the FROM clause of rows that the database shall read by the index of a condition, and then sort."""
        return rows

    def beyond(self, columns: Sequence[str], operator: str) -> str:
        """Return the condition of a range of an index: these columns are beyond `:p0`, `:p1` ..."""
        return f"({', '.join(columns)}) {operator} ({', '.join(f':p{i}' for i in range(len(columns)))})"

    # the history

    history_columns: ClassVar[Mapping[str, Kind]] = HISTORY
    history_order: ClassVar[tuple[str, ...]] = ("id",)

    @property
    def has_history(self) -> bool:
        return self.machine.settings.history is not None

    @property
    def history_kept(self) -> float:
        """For how many seconds the rows of the history are kept (inf: for ever)."""
        kept = self.machine.settings.history
        return math.inf if kept is None else kept

    def is_acted(self, event: str) -> bool:
        """Return whether a transition by this event is that of an actor: what falls due in its block is not."""
        return bool(event) and all(row.event != event for row in self.machine.due)

    # rows

    def same_wait(self, alias: str, version: str, columns: Sequence[str] = ()) -> str:
        """Return the condition that a row of the waits, or one with its key in `columns`, has the key of a version."""
        dot, pairs = f"{alias}." if alias else "", zip(columns or self.parts, self.keys, strict=True)
        return " AND ".join(f"{dot}{column} = {version}.{key}" for column, key in pairs)

    def by_key(self, of: str = "", row: str = "") -> str:
        """Return the condition of a row by key. `of` prefixes the columns, `row` ends the values' names."""
        parts = enumerate(zip(self.keys, self.source.key, strict=True))
        return " AND ".join(self.exactly(f"{of}{key}", f"= :k{i}{row}", field.kind) for i, (key, field) in parts)

    @property
    def in_tube(self) -> str:
        return self.exactly(self.roles["tube"], "= :tube")

    def keys_there(self, of: str = "") -> str:
        """Return the start of a condition that excludes NULL keys, if the database allows them; `of` as in `by_key`."""
        return ""

    def guarded_states(self, guard: Guard) -> list[str]:
        """Return the states of a guard that this queue has."""
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
