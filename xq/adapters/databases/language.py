"""The language of one database, in which all SQL is written: times, words and literals. It names no queue."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from xq.adapters.databases.named import quoted
from xq.core.ports import TIMES, Connections, Kind


class Form(str):
    """SQL with a place for each of some texts, which a call fills in."""

    def __call__(self, *texts: object) -> str:
        return self.format(*texts)


AS_IT_IS = Form("{}")
SHARED_TEXTS = Path(__file__).parent / "shared.sql"


class Language:
    """What SQL says in this database's own way, whatever table it is about."""

    is_local: ClassVar[bool]  # whether the database has one writer at a time, so that no statement locks rows
    most_values: int  # of one statement
    first_schema = ""  # SQL for the schema of a server where xq has its records
    commits = ""  # a query whose result changes with each commit of another connection; "" if there is none
    shared_file: ClassVar[Path] = SHARED_TEXTS  # the texts of shared.sql that the database writes in its own way
    schemas: Collection[str] = ("main",)  # SQLite: those whose files other processes may write

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
    briefly = ""  # the condition, always true, that ends a wait for a locked row after a second
    sets_context = ""  # a server's condition, always true, that passes `:context` to the triggers
    list_kinds: ClassVar[Mapping[str, str]] = {}  # the type of a list's members, by the kind of the key
    read_only = ""  # the condition that the server is read-only; "" if that must be asked of the connection
    json_array = Form("json_array({})")
    place_in_text = "instr"
    folded = Form("lower({})")
    # A query of (holder, seconds, how to end it) of transactions older than `:n` seconds, the oldest first.
    open_transactions = ""

    @contextmanager
    def creating(self, store: Connections, schema: str = "") -> Iterator[None]:
        """Create tables in this block: no other process creates any in the first schema, nor in this one."""
        yield

    def exact(self, column: str, kind: Kind = "text") -> str:
        """Return a column for an exact comparison in any collation. It cannot use an index."""
        return self.exact_text(column) if kind == "text" else column

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
