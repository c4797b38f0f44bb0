"""The seam to a database: what xq asks of the program that owns the table.

Each ORM is an implementation of `Store` (adapters/peewee.py, adapters/django), whose `upgrade` hands it to
`xq.build.build`. Beside them only the models of the tubes (adapters/tubes.py) are an ORM's. The drivers are below
(adapters/drivers.py).
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Literal, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")

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
    "datetime0",  # of whole seconds: one without a precision, as a dialect sees it
    "timestamptz",
    "decimal",
    "other",
]
INTEGERS: Final[tuple[Kind, ...]] = ("auto", "bigauto", "integer", "bigint")
TIMES: Final[tuple[Kind, ...]] = ("datetime", "timestamptz")
MARK = "_xq_take"  # the attribute of an instance that carries the token of its take
Row = Sequence[Any]
Values = Mapping[str, Any]  # by name


def fits_a_column(value: object) -> bool:
    """Whether every database holds it as it is: an integer of at most 64 bits, or text without a zero byte."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) and "\0" not in value


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the application's table, and how its values travel."""

    name: str
    column: str
    kind: Kind
    type: str  # as the ORM declares it
    null: bool
    max_length: int | None
    to_database: Callable[[Any], Any]
    from_database: Callable[[Any], Any] | None  # None: the driver's value is the application's
    native: object  # the type of values that are the same to the application and to the driver, if there is one
    digits: tuple[int, int] | None = None  # of a decimal: in all, and after the point
    computed: bool = False  # by the database, from other columns: nobody writes it


@dataclass(frozen=True)
class Table:
    """The application's table as the queue sees it: `roles` maps what the queue needs to the fields that hold it."""

    name: str
    schema: str
    fields: tuple[Field, ...]
    key: tuple[Field, ...]
    roles: Mapping[str, Field]


class Writes(Protocol):
    """Tells that somebody may have written to a database."""

    unseen: float  # seconds within which there may be more than was told of

    @property
    def tells(self) -> bool:
        """Whether it tells of what this process itself commits; else it must be called."""

    def wait(self, seconds: float, eagerly: bool) -> bool:
        """Whether a write was told of, or this process called, within so many seconds.

        Where nobody tells, it is to be looked for: often, when somebody waits (`eagerly`).
        """

    def expect(self) -> None:
        """Somebody of this process begins to wait: what is committed from here on is of interest."""

    def has_changed(self, store: Store[Any], told: bool) -> bool:
        """Whether somebody has committed since this was last asked. What was told of is waited for a little."""

    def call(self) -> None:
        """End the wait of another thread."""

    def replaced(self) -> bool:
        """Whether something else is in the place of the database since this was last asked."""

    def close(self) -> None: ...


HISTORY: Final[Mapping[str, Kind]] = {  # the table of transitions, where the feature keeps one
    "id": "bigauto",  # in the order of the commits
    "at_us": "bigint",  # microseconds since 1970
    "key": "text",  # as the application writes it; one of several parts as a JSON array
    "tube": "text",
    "source": "text",
    "target": "text",
    "event": "text",  # "write" when another program, or the application itself, wrote
    "owner": "text",  # the mark of the take that begins or ends
    "attempt": "bigint",
}


SUFFIX = 24  # bytes for what is added to the name of a table, where names must be short


def beside(table: str, suffix: str, longest: int | None = None) -> str:
    """The name of something of xq's that belongs to a table, in at most so many bytes."""
    if longest is not None and len(table.encode()) > longest - SUFFIX:
        short = table.encode()[: longest - SUFFIX - 9].decode(errors="ignore")
        table = f"{short}~{hashlib.sha256(table.encode()).hexdigest()[:8]}"
    return f"{table}_xq_{suffix}"


def keep(connection: object) -> None:
    """Never close, nor free, a connection that a child has inherited.

    SQLite would believe that it is the parent, and may delete its log.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class Reader(Protocol):
    """What reads a table of xq's own."""

    model: type[Any]

    def instance(self, values: Mapping[str, Any]) -> Any:
        """An instance of the model, which carries what is not a column as a plain attribute."""


class ErrorKind(Enum):
    """What kind of error a statement raised.

    If the connection is gone, the kinds above LOST still apply, since the server answered; the others become LOST.
    """

    CONFLICT = auto()  # a deadlock or a serialization failure, which undid the transaction: retry it
    LOCKED = auto()  # a server gave up waiting for a lock, and undid the statement only
    DUPLICATE = auto()  # another row has this key or this unique value
    CONSTRAINT = auto()  # the row breaks any other constraint of the table
    READ_ONLY = auto()  # the server, the file or the transaction accepts no writes
    LOST = auto()  # the connection is gone, or could not be made: the statement may have been applied
    DENIED = auto()  # the user lacks a privilege, whichever the row
    BAD_TYPE = auto()  # the driver cannot send a value of this type, or the database cannot compare it with the column
    BAD_VALUE = auto()  # the type of the column cannot hold the value
    PERMANENT = auto()  # any other error that a retry raises again
    TRANSIENT = auto()  # any other error that a retry may not raise: the disk is full, SQLite's file is locked
    NOT_DATABASE = auto()  # not raised by the database, its driver or the ORM


REFUSALS: Final = frozenset({ErrorKind.DUPLICATE, ErrorKind.CONSTRAINT})
# The statement, its values or the row are at fault.
FAULTS: Final = REFUSALS | {ErrorKind.BAD_TYPE, ErrorKind.BAD_VALUE, ErrorKind.PERMANENT}
# The database has not reported what became of the statement.
UNANSWERED: Final = frozenset({ErrorKind.LOST, ErrorKind.NOT_DATABASE})
# The same statement may succeed later.
PASSING: Final = frozenset(
    {ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.READ_ONLY, ErrorKind.LOST, ErrorKind.TRANSIENT}
)


class Driver(Protocol):
    """One driver. Imports nothing of it: a connection that is handed over tells enough."""

    begin: str  # the statement that begins a transaction of xq's own
    errors_end_transactions: bool  # whether an error undoes a transaction but for what a savepoint saves
    passing: frozenset[ErrorKind]  # PASSING, and what else this driver calls operational

    def check(self, connection: Any, advice: str = "") -> None:
        """Raise ConfigurationError when this driver, or its server, cannot be used.

        `advice` is how the ORM comes to have connections of this driver, where this is another's.
        """

    def in_transaction(self, connection: Any) -> bool:
        """Whether a transaction is open, by whomever."""

    def is_broken(self, connection: Any) -> bool:
        """Whether a connection is known to be gone."""

    def transaction(self, connection: Any) -> bool | None:
        """Return whether a transaction is open; None if there is none and the connection is known to be gone."""

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        """Run one statement, prepared where the driver can."""

    def query(self, cursor: Callable[[], Any], sql: str, values: Sequence[Any]) -> list[Row]:
        """Run one statement to its end on a new cursor and return its rows."""

    def affected(self, cursor: Callable[[], Any], sql: str, values: Sequence[Any]) -> int:
        """Run one statement without rows on a new cursor and return how many it changed."""

    def load(self, cursor: Any, sql: str, rows: Sequence[Row]) -> None:
        """Write many rows, by a statement of which the dialect knows that the driver loads by it."""

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        """Close a connection on which `error` was raised in the middle of a statement, unless that is over.

        By the handler of a signal, say: nobody has read the answer. Of some drivers the connection tells whether the
        statement is over, of others the error.
        """

    def rows(self, cursor: Any) -> list[Row]:
        """All rows of the statement that a cursor has run, or none."""

    def classify(self, error: BaseException) -> ErrorKind:
        """Return the kind of an error that this driver, or any other program, raised. Never LOST."""

    def hear(self, connection: Any) -> bool:
        """Whether a server has told something since this was last asked. Finds out when the connection is gone.

        Of a connection that nobody uses meanwhile.
        """


class ServerDriver(Driver, Protocol):
    """One driver of a server, of whose connections some are asked what nobody asks a file."""

    def number(self, connection: Any) -> int:
        """Its number, as the server said when it was opened."""

    def fileno(self, connection: Any) -> int:
        """The descriptor of its socket; negative when it is closed."""

    def on_told(self, connection: Any, call: Callable[[], None]) -> None:
        """Call this when the server tells something while the connection is asked something else."""


@dataclass(frozen=True)
class Connector:
    """Makes connections of a driver, in autocommit."""

    open: Callable[[], Any]
    driver: ServerDriver
    errors: Callable[[], AbstractContextManager[object]]  # in which the driver's errors become the ORM's
    is_failure: Callable[[BaseException], bool]  # whether an error is one of those


@dataclass(frozen=True)
class Address:
    """Where a database is: what another process needs to reach it without the ORM. May be pickled."""

    engine: str  # the name of the dialect
    parameters: Mapping[str, Any]  # of the driver's connect()
    password: str | None = field(default=None, repr=False)
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)  # more parameters, which nobody is to see

    @property
    def shown(self) -> Address:
        """What anybody may see of it."""
        return Address(self.engine, self.parameters)


class Connection(Protocol):
    """The connection of this thread, ready for a call: open, checked, set up, its transaction's state known.

    It is to be used at once: what else runs on this thread's connection may begin or end a transaction.
    """

    in_transaction: bool  # of the application, or of `atomically`
    of: Callable[[], object]  # returns the database object that it belongs to, as `Store.database`
    context: dict[str, Any]  # what triggers read on SQLite: the event of the statement that runs

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement to its end and return its rows. Raises as `Store.execute`."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement without rows and return how many it changed. Raises as `Store.execute`."""

    def atomically(self, work: Callable[[Connection, dict[str, Any]], R], values: dict[str, Any]) -> R:
        """Return `work(self, values)`, run as one transaction, or as a savepoint in the one that is open.

        The ORM does not learn of the transaction: `work` must not call the application.
        """


class Store(Protocol[T]):
    """One model of one ORM, with its connection."""

    name: str  # what the application calls the model
    model: type[T]
    table: str
    schema: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    advice: str  # how the table and what the queue needs come into the database
    installs: str  # how the latter does, where the table is there; "" for by Queue.install()
    needed: Mapping[str, str]  # by role, what fields the ORM has for it

    @property
    def database(self) -> object | None:
        """What sessions belong to: the same object for all models on one connection pool; None while there is none."""

    @property
    def engine(self) -> str:
        """The name of the dialect: "sqlite". Raises ConfigurationError for a database that xq does not speak."""

    @property
    def may_fail_to_read(self) -> bool:
        """Whether a row may hold what the application's fields cannot read."""

    def ready(self) -> Connection:
        """Return this thread's connection: opened, checked and set up if it was not, or was lost outside a transaction.

        Calls that wait for a commit which the application has made by itself are made.
        """

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement to its end, with values for its marks in their order, and return its rows.

        Raises BadValue for a value that the driver cannot send, and the ORM's own errors.
        """

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement that returns no rows, and tell how many it changed. Raises as `execute`."""

    def atomic(self) -> AbstractContextManager[object]:
        """One transaction, or a savepoint inside the application's; undone when the block raises."""

    def in_transaction(self) -> bool:
        """Whether a transaction is open on this thread's connection, by whomever."""

    @property
    def may_wait(self) -> bool:
        """Whether a call may wait for others: not within a transaction, unless the ORM's tests have put it around."""

    def undo_interrupted(self) -> None:
        """Undo what is left open of a transaction of `atomic` which was interrupted while it began or ended."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this when the transaction that is open on this thread's connection is committed, at once when none is.

        At the latest with the next `ready` after the commit, where the application commits by itself. It may be
        called, too, for what was undone: with a savepoint, or with a transaction that the application rolled back.
        """

    def connect(self) -> None:
        """Open a connection for this thread, where it has none."""

    def connect_apart(self) -> None:
        """Open a connection for this thread, where it has none, and withdraw it from the ORM's pool."""

    @property
    def own_connection(self) -> Any:
        """The driver's connection of this thread; None where none is open, or threads share one."""

    def disconnect(self) -> None:
        """Close the connection of this thread, or return it to its pool. Does nothing where threads share it."""

    def briefly_connected(self) -> AbstractContextManager[object]:
        """Have a connection of this thread in the block, and close it after, unless it was open before."""

    def at_work(self) -> AbstractContextManager[object]:
        """Around a worker's call of the application's function: what that needs of its thread, and leaves to it.

        Raises LeftOpen where that is a transaction, which is undone.
        """

    def forked(self) -> None:
        """In a child: forget the connection that it has inherited, which is its parent's, and never touch it."""

    @property
    def has_threads(self) -> bool:
        """Whether other threads may have connections of their own."""

    def classify(self, error: BaseException) -> ErrorKind:
        """Return the kind of an error."""

    def may_pass(self, error: BaseException) -> bool:
        """Whether the same may succeed later, as when a connection was lost, a row is locked or a disk is full.

        Not where the database has found fault with a statement, its values or a row.
        """

    @property
    def driver(self) -> Driver:
        """What differs between the drivers below the ORM."""

    def connector(self) -> Connector:
        """What makes connections that the ORM knows nothing of. Keeps nothing of the ORM's alive."""

    def address(self) -> Address:
        """Where the database is. Raises ConfigurationError where no other process can reach it."""

    # Called when a statement is about to run on a new connection; again, when that was within a transaction, after it,
    # or when it returned False: the queue is not bound to the database of this connection.
    connected: Callable[[Connection], bool]

    @property
    def in_use(self) -> Any:
        """The driver's connection of this thread, None where none is open."""

    def function(self, name: str, arguments: int, function: Callable[..., Any]) -> None:
        """Let SQL on this thread's connection, where its driver can do that, call a function in this process.

        SQL may call it once for a whole statement.
        """

    def read(self, row: Row) -> Sequence[Any]:
        """The application's values from a row in the order of `fields`. Raises BadValue for what cannot be read."""

    @property
    def hydrate(self) -> Callable[..., T]:
        """Returns what makes a clean instance of a row, and of the token of its take, if one is given.

        It raises BadValue for what cannot be read.
        """

    def data(self, task: object) -> Mapping[str, Any] | None:
        """What an instance of the model holds, by field name; None when `task` is none."""

    def defaults(self) -> dict[str, Any]:
        """The model's own defaults, by field name, made anew."""

    def declared_defaults(self) -> dict[str, Any]:
        """The model's own defaults, by field name: values, and callables that make them."""

    def reader(self, name: str, table: str, columns: Mapping[str, Kind]) -> Reader:
        """A model called `name` of a table beside the application's, on whatever database that one is on.

        The first column is its key.
        """

    base: str  # the public name of the ORM's abstract model that has a field for every role

    @property
    def offers(self) -> Collection[str]:
        """The roles for which the model inherits a field of that name from `base`; none where it does not inherit."""

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        """Raise ConfigurationError where the ORM reads or writes a field otherwise than the queue does in this role."""

    def is_mine(self, model: type) -> bool:
        """Whether a class that inherits from the model is of the same table."""

    def attribute(self, name: str) -> str | None:
        """What of the application's own already has this name on the model, if anything."""

    def attach(self, name: str, value: object) -> None:
        """Set a class attribute."""

    def with_the_table(self, creating: Callable[[Callable[[], None]], None], dropped: Callable[[], None]) -> None:
        """Have the ORM create the table by `creating`, which is given its own call, and drop it after `dropped`."""
