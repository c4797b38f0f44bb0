"""The kinds of columns and of errors, and the small types of rows, fields and tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Literal, TypeVar

T = TypeVar("T")  # a task: an instance of the application's model
R = TypeVar("R")  # what a call returns
S = TypeVar("S")

Kind = Literal[
    "auto",
    "bigauto",
    "integer",
    "bigint",
    "float",
    "double",
    "text",
    "uuid",
    "datetime",
    "datetime0",  # a DATETIME of whole seconds: a dialect sees a column without a precision like this
    "timestamptz",
    "decimal",
    "other",
]
NUMBERED: Final[tuple[Kind, ...]] = ("auto", "bigauto")  # by the database
INTEGERS: Final[tuple[Kind, ...]] = (*NUMBERED, "integer", "bigint")
NUMBERS: Final[tuple[Kind, ...]] = ("integer", "bigint", "float", "double", "decimal", "auto", "bigauto")
TIMES: Final[tuple[Kind, ...]] = ("datetime", "timestamptz")
BYTES: Final = ("BLOB", "BYTEA", "BINARY", "VARBINARY", "UUIDB")  # the history has such keys in hexadecimal digits
HISTORY: Final[Mapping[str, Kind]] = {  # the table of transitions of a queue with the feature `history`
    "id": "bigauto",  # in the order of the commits
    "at_us": "bigint",  # microseconds since 1970
    "key": "text",  # as the application writes it; a key of several parts as a JSON array
    "tube": "text",
    "source": "text",
    "target": "text",
    "event": "text",  # "write" if another program, or the application itself, wrote the row
    "owner": "text",  # the token of the take that begins or ends
    "attempt": "bigint",
    "actor": "text",  # who ran an operator's transition (`Page.xq.acting`), and why; NULL for all others
    "reason": "text",
}
Row = Sequence[Any]


class UnreadRow(tuple[Any, ...]):
    """A row with the text of a value that the driver cannot read, such as PostgreSQL's timestamp infinity."""

    place: int  # of the last such value


Values = Mapping[str, Any]  # by name


def fits_a_column(value: object) -> bool:
    """Return whether every database can hold an integer (64 bits) or text (no zero byte) exactly."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) and "\0" not in value


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the application's table, and how its values are converted."""

    name: str
    column: str
    kind: Kind
    type: str  # as the ORM declares it
    null: bool
    max_length: int | None
    to_database: Callable[[Any], Any]
    from_database: Callable[[Any], Any] | None  # None: the application gets the driver's value unchanged
    native: object  # the type of values that need no conversion either way, if there is one
    digits: tuple[int, int] | None = None  # of a decimal: in total, and after the point
    computed: bool = False  # the database computes it from other columns, so no statement writes it
    reads_sent: bool = True  # whether from_database reads what to_database returns, as it does the driver's values
    declared: str = ""  # its type in the database, where a model that was made of the table has none; for messages


WIDE: Final = 2**24 - 1  # bytes of a text that MariaDB's TEXT cannot hold: a MEDIUMTEXT
ORDERED_BY: Final = ("priority",)
SUFFIX = 24  # bytes reserved for the suffix of a table's name, on databases that limit names


def own_name(role: str) -> str:
    """Return the name of the field, and column, of xq's own for a role."""
    return f"xq_{role}"


def beside(table: str, suffix: str, longest: int | None = None) -> str:
    """Return the name of one of xq's objects that belongs to a table, of at most `longest` bytes."""
    if longest is not None and len(table.encode()) > longest - SUFFIX:
        short = table.encode()[: longest - SUFFIX - 9].decode(errors="ignore")
        table = f"{short}~{hashlib.sha256(table.encode()).hexdigest()[:8]}"
    return f"{table}_xq_{suffix}"


@dataclass(frozen=True)
class Table:
    """The application's table as the queue sees it: `roles` maps the queue's roles to fields."""

    name: str
    schema: str
    fields: tuple[Field, ...]
    key: tuple[Field, ...]
    roles: Mapping[str, Field]

    @property
    def own(self) -> dict[str, Field]:
        """The roles whose columns xq brings, and their fields."""
        return {role: field for role, field in self.roles.items() if field.name == own_name(role)}

    @property
    def ordered_by(self) -> list[str]:
        """The roles by which a take orders tasks, lower values first, before their key."""
        return [role for role in ORDERED_BY if role in self.roles]


class ErrorKind(Enum):
    """What kind of error a statement raised.

    If the connection is gone, the kinds above LOST still apply, since the server answered; the others become LOST.
    """

    CONFLICT = auto()  # a deadlock or a serialization failure, which undid the transaction: retry it
    LOCKED = auto()  # a server gave up waiting for a lock, and undid the statement only
    DUPLICATE = auto()  # another row has this key or this unique value
    CHECK = auto()  # a CHECK, or the length of its column, forbids a value of the row
    CONSTRAINT = auto()  # the row breaks any other constraint of the table
    READ_ONLY = auto()  # the server, the file or the transaction accepts no writes
    LOST = auto()  # the connection is gone, or could not be made: the statement may have been applied
    DENIED = auto()  # the user lacks a privilege, whichever the row
    BAD_TYPE = auto()  # the driver cannot send a value of this type, or the database cannot compare it with the column
    BAD_VALUE = auto()  # the type of the column cannot hold the value
    PERMANENT = auto()  # any other error that a retry raises again
    TRANSIENT = auto()  # any other error that a retry may not raise: the disk is full, SQLite's file is locked
    NOT_DATABASE = auto()  # not raised by the database, its driver or the ORM


REFUSALS: Final = frozenset({ErrorKind.DUPLICATE, ErrorKind.CHECK, ErrorKind.CONSTRAINT})
# The statement, its values or the row are at fault.
PERMANENT: Final = REFUSALS | {ErrorKind.BAD_TYPE, ErrorKind.BAD_VALUE, ErrorKind.PERMANENT}
# The database has not reported what became of the statement.
OUTCOME_UNKNOWN: Final = frozenset({ErrorKind.LOST, ErrorKind.NOT_DATABASE})
# The same statement may succeed later.
RETRYABLE: Final = frozenset(
    {ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.READ_ONLY, ErrorKind.LOST, ErrorKind.TRANSIENT}
)
