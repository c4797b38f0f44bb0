"""How one database writes times, words and literals, and runs SQL with named values. Nothing here names a queue."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

from xq.core.connections import Connection, Connections, Liveness, Notifier, Run
from xq.core.generated import arguments, runner
from xq.core.kinds import TIMES, WIDE, Kind, Row, Values
from xq.sql.named import by_position, quoted

InOrder = Callable[[Mapping[str, Any]], Sequence[Any]]


class Form(str):
    """SQL with a place for each text that a call fills in."""

    def __call__(self, *texts: object) -> str:
        return self.format(*texts)


AS_IT_IS = Form("{}")
SHARED_TEXTS = Path(__file__).parent / "shared.sql"


class Language(ABC):
    """SQL in this database's own way, whatever table it is about; it runs on a store's connections."""

    database: ClassVar[str]  # its name, as in DIALECTS
    family: ClassVar[str]  # whose SQL it has: its name, or that of several databases, "innodb"
    product: ClassVar[str] = ""  # its name in messages, where the family has several
    collation: ClassVar[str] = ""  # compares byte by byte, to the last space; "" if all do
    is_local: ClassVar[bool]  # whether the database has one writer at a time, so that no statement locks rows
    most_values: int  # of one statement
    first_schema = ""  # SQL for the schema of a server where xq has its records
    # When what the ends of tasks set off is settled (`engine/settle.py`): "within" their transaction, or "after" its
    # commit; "" where the triggers settle it.
    settles: ClassVar[str] = "within"
    takes_in_block: ClassVar[bool] = False  # whether a take is a block with variables; `on_conflict` takes no WHERE
    partial_indexes: ClassVar[bool] = True  # else the status is the first column of an index on some states
    commits = ""  # a query whose result changes with each commit on another connection; "" if there is none
    shared_file: ClassVar[Path] = SHARED_TEXTS  # the texts in shared.sql that the database writes in its own way
    schemas: Collection[str] = ("main",)  # SQLite: those whose files other processes may write

    # time

    now: str  # SQL for the seconds since 1970: `:now` if it is given, else by the database's clock
    now_us: str  # `now` as whole microseconds
    server_start = "0"  # SQL for when the server was started, in seconds since 1970; a file has none
    instant: Form  # microseconds since 1970 as a time in UTC, as readers of views expect it

    # By column kind, where the column holds no seconds since 1970: seconds as its value, and the inverse.
    moments: ClassVar[Mapping[Kind, Form]]
    times: ClassVar[Mapping[Kind, Form]]

    def moment(self, kind: Kind, seconds: str) -> str:
        """Return seconds since 1970 as a value for a column of this kind."""
        return self.moments.get(kind, AS_IT_IS)(seconds)

    def seconds(self, kind: Kind, column: str) -> str:
        """Return a column's value as seconds since 1970: the inverse of `moment`."""
        return self.times.get(kind, AS_IT_IS)(column)

    def bound(self, kind: Kind) -> str:
        """Return now, for a comparison with a column of this kind."""
        return self.moment(kind, self.now) if kind in TIMES else self.now

    # words

    differ: Form  # the condition that two values differ; NULL equals NULL
    as_text = Form("CAST({} AS TEXT) COLLATE BINARY")  # a key's value as xq's tables hold it; compared byte by byte
    exact_text = AS_IT_IS  # a text that compares byte by byte
    ended = Form("'-' || {}")  # the token that SQL writes when it ends a task by its token
    elapsed = Form("at_us - {}")  # the microseconds of a history row since a time
    in_seconds = Form("({}) / 1e6")  # microseconds as seconds, with a fraction
    greatest = Form("GREATEST({}, {})")
    whole = AS_IT_IS  # a number cast so that the driver returns an int
    varying = Form("TEXT")  # the type for text of up to so many characters in xq's tables
    quotes = '"'  # around names
    number_alone = text_alone = Form("+{}")  # a column in a form for which the planner uses no index
    new_value = Form("excluded.{}")  # the value for a column that `on_conflict` did not insert
    variable = AS_IT_IS  # a variable, where a take is a block
    hint = Form("")  # makes the planner read a table by the index with this name
    never: str  # SQL for "never" in a role that stores seconds, where NULL means the default
    forever: float = math.inf  # the same, as a value
    placeholder: str  # for a value, as the driver writes it
    longest_name: int | None = None  # in bytes
    layout: str  # the version of installed objects; raise it with each change to triggers, indexes or side tables
    long_text = "TEXT"  # the type for a text of any length
    wide_text = "TEXT"  # the type for text that may be longer than 65,535 bytes
    double = "DOUBLE PRECISION"
    undashed = Form("replace({}, '-', '')")  # the text of a UUID as a column for UUIDs has it
    dashed = Form("{0}")  # a UUID as text, also if it is stored as 32 digits
    engine = ""  # table options of CREATE TABLE
    create_view = "CREATE VIEW IF NOT EXISTS"
    absent_rows = ""  # the FROM clause that a SELECT without a table needs for a condition
    by_primary = ""  # the hint that makes the planner read a table by its key
    lock = ""  # the clause that locks the rows of a SELECT; SQLite has one writer, which locks the file
    skip = ""  # as `lock`, and skips what others have locked
    begin_writing = ""  # a write that changes nothing: it acquires the writer's lock before the first read
    afresh = ""  # a locking clause that makes a SELECT read the last committed rows, not the transaction's snapshot
    briefly = ""  # the condition, always true, that ends a wait for a locked row after a second
    sets_context = ""  # a server's condition, always true, that passes `:context` to the triggers
    list_kinds: ClassVar[Mapping[str, str]] = {}  # the type of a list's members, by the key's kind
    read_only = ""  # the condition that the server is read-only; "" if that must be asked of the connection
    json_array = Form("json_array({})")
    as_literal = Form("quote({0})")  # a value as the text of a literal; {1} is the type of the column that it is for
    column_types = ""  # a query of the columns of `:name` and their types, where `as_literal` needs them
    place_in_text = "instr"
    lacks = Form("instr({}, {}) = 0")  # the condition that a text has nowhere another one, byte by byte
    folded = Form("lower({})")
    # A query for transactions older than `:n` seconds, the oldest first: (holder, seconds, how to end it).
    open_transactions = ""
    overriding = ""  # stands before the VALUES of an INSERT that writes keys which the database else makes

    @contextmanager
    def creating(self, store: Connections, schema: str = "") -> Iterator[None]:
        """Create tables in this block: no other process creates any in the first schema, nor in this one."""
        yield

    def exact(self, column: str, kind: Kind = "text") -> str:
        """Return a column for an exact comparison in any collation. It cannot use an index."""
        return self.exact_text(column) if kind == "text" else column

    def declare(self, names: Sequence[str], kind: str, value: str = "") -> str:
        """Return the statement that gives variables of a block a value, or NULL."""
        return ""

    def returning(self, *columns: str) -> str:
        """Return the end of a DELETE, in its WHERE clause, that has it return columns."""
        return f" RETURNING {', '.join(columns)}"

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

    def literals(self, store: Connections, table: str, values: Mapping[str, Any]) -> dict[str, str]:
        """Return values, by the columns that they are for, as literals of SQL that is stored."""
        types, found = dict[str, str](), dict[str, str]()
        if self.column_types:
            types = dict(map(tuple, self.execute(store, self.column_types, {"name": table})))
        for column, value in values.items():
            if value is None:
                found[column] = "NULL"
            elif isinstance(value, (bytes, bytearray, memoryview)) and not types:
                found[column] = f"X'{bytes(value).hex()}'"
            else:
                asked = f"SELECT {self.as_literal(':f0', types.get(column, ''))}"
                ((found[column],),) = self.execute(store, asked, {"f0": value})
        return found

    def in_any_mode(self, text: str) -> str:
        """Return a literal to store that no connection setting changes."""
        return self.literal(text)

    def joined(self, texts: Sequence[str]) -> str:
        """Return several texts as one, as SQL."""
        return " || ".join(texts)

    def of_limit(self, text: str) -> str:
        """Return the key of a value's limit, as SQL, from the text of the value in xq's tables."""
        return self.as_text(f"'=' || {text}")

    @staticmethod
    def key_of_limit(value: str) -> str:
        """Return the key of a value's limit. That of the queue's is "", which no value has."""
        return f"={value}"

    def of_length(self, length: int) -> str:
        """Return the type for text of up to so many characters."""
        return self.wide_text if length >= WIDE else self.varying(length)

    @staticmethod
    def tuple_of(parts: Sequence[str]) -> str:
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    # statements

    def query(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> Run:
        """Return a function that runs SQL with named values; `brought` names the values in `rows`, as in `runner`."""
        return runner(*by_position(sql, self.placeholder), brought, width)

    def filled(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> tuple[str, InOrder]:
        """Return SQL with the driver's placeholders, and a function that lists their values in this order."""
        text, names = by_position(sql, self.placeholder)
        if width:
            return text, arguments(names, brought, width)
        if len(names) > 1:
            return text, itemgetter(*names)
        return text, (lambda values: (values[names[0]],)) if names else (lambda values: ())

    def execute(self, store: Connection | Connections, sql: str, values: Values) -> list[Row]:
        """Run SQL with named values."""
        text, names = by_position(sql, self.placeholder)
        return store.execute(text, [values[name] for name in names])

    # connections

    def file(self, store: Connections) -> str | None:
        """Return the file that the database is; None if it is in memory or on a server."""
        return None

    def connected(self, store: Connections, connection: Connection) -> None:
        """Set up a store's new connection."""
        return  # a server knows all that a connection needs

    def wait_briefly(self, store: Connections, connection: Any) -> None:
        """Have the connection of this thread, which no other thread gets, wait for a lock for a second at most."""
        return  # SQLite has one lock, of the file

    @abstractmethod
    def liveness(self, store: Connections) -> Liveness | None:
        """Return the liveness locks of sessions; None if no other process can reach the database."""

    @abstractmethod
    def notifier(self, store: Connections, liveness: Any) -> Notifier | None:
        """Return what notifies when other processes commit; None if no other process can write."""

    @abstractmethod
    def gone(self, store: Connections, uuids: Sequence[str]) -> list[str]:
        """Return the given sessions whose process has ended. It ends none, and returns none if denied the query."""

    @abstractmethod
    def only_reads(self, store: Connections) -> bool:
        """Return whether the database reports this connection as read-only. Some users may write all the same."""
