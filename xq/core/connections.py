"""What an ORM, a driver and a connection give: the interfaces that they implement.

Each ORM implements `Store` (adapters/peewee, adapters/django), and its `upgrade` passes it to
`xq.upgrading.build.build`. Only the models of tubes (tubes/tables.py) and those of plain tables
(adapters/peewee/plain.py) belong to an ORM as well. The drivers are in drivers/.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol
from weakref import WeakKeyDictionary

from xq.core.clock import Clock
from xq.core.kinds import ErrorKind, Field, Kind, R, Row, S, T, Values

# A block of `Connections.atomic(own=True)`: "transaction" if only the whole transaction can be undone. "" is none.
OpenBlock = Literal["", "savepoint", "transaction"]
Run = Callable[["Connection", dict[str, Any]], list[Row]]  # a compiled statement, run with its named values


class Notifier(Protocol):
    """Notifies of commits of other processes."""

    unseen: float  # seconds within which there may be a commit that was not reported

    @property
    def reports_own(self) -> bool:
        """Whether it also reports the commits of this process; else this process must wake the thread."""

    def wait(self, seconds: float, eagerly: bool, conditions: Sequence[str] = ()) -> bool:
        """Wait for a notification, so many seconds at most, or until `wake`. True if there may be a commit.

        `eagerly`: a caller waits. A database that cannot notify looks by itself whether one of the `conditions`, in
        SQL, is true. If it cannot, or none is given, it is polled: this returns True at once.
        """

    def expect(self) -> None:
        """A caller of this process begins to wait: notify of commits from now on."""

    def has_changed(self, store: Connections, notified: bool) -> bool:
        """Whether there was a commit since the last call. One that was reported is waited for a little."""

    @property
    def at_rest(self) -> bool:
        """Whether nobody can have committed since the last `has_changed`. False if that cannot be known."""

    def wake(self) -> None:
        """End the `wait` of another thread."""

    def replaced(self) -> bool:
        """Return whether another database has replaced this one since the last call."""

    def close(self) -> None: ...


class Liveness(Protocol):
    """The liveness locks of a process, each of a session: it shows that the process lives.

    The system releases them when the process ends, however it ends. The tasks of a session without one are reaped.
    """

    def acquire(self, uuid: str) -> bool:
        """Acquire the liveness lock of a session. Return False if another process is ending the session."""

    def release(self, uuid: str) -> None:
        """Release the lock, when this was called as often as `acquire`."""

    def alone(self, uuids: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Yield those of these sessions whose locks no process holds. None can acquire one within the block."""

    @property
    def lease(self) -> float | None:
        """The seconds after which a session ends unless it is renewed; None if the locks end with the process."""

    def gone(self, uuids: Sequence[str]) -> list[str]:
        """Return those of these sessions whose locks no process seems to hold."""

    @property
    def intact(self) -> bool:
        """Whether no lock is known to be lost. Must be fast: each take reads it."""

    @property
    def skew(self) -> float:
        """The seconds by which the clock of the database is ahead of this machine's."""

    def is_held(self, uuid: str) -> bool:
        """Return whether this process still holds the lock of a session."""

    def pop_lost(self) -> list[str]:
        """Return the sessions of this process whose locks were lost since the last call."""

    def renew(self) -> bool:
        """Acquire lost locks again. Return whether all other processes have had the time to do so, too."""

    def on_own_connection(self, sql: str, values: Values) -> list[Row] | None:
        """Run a statement on the session connection, and return its rows; None without one, or if it would wait."""

    def announce(self) -> None:
        """Notify other processes to check the locks of the sessions that are registered by now."""

    def there(self) -> bool:
        """Return whether the database exists, without creating it."""

    def close(self) -> None:
        """Close the session connection, if there is one, until it is needed again."""

    def forked(self) -> None:
        """Disown the session connection in a forked child. Its sessions and locks belong to its parent."""


def keep(connection: object) -> None:
    """Keep a connection that a child process has inherited from being closed or freed.

    SQLite would take the child for the parent, and might delete its log.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class Reader(Protocol):
    """Reads a table of xq's own as instances of a model."""

    model: type[Any]

    def instance(self, values: Mapping[str, Any]) -> Any:
        """Return an instance of the model. Values that are not columns become plain attributes."""


Batching = Literal["", "transaction", "pipeline"]
Sent = tuple[str, Sequence[Any]]  # a statement and its values


class Driver(Protocol):
    """One driver, which this module does not import: each connection that is passed in belongs to it."""

    begin: str  # the statement that begins one of xq's own transactions
    errors_end_transactions: bool  # whether an error ends the transaction unless a savepoint protects it
    retryable: frozenset[ErrorKind]  # RETRYABLE, and the other kinds that this driver calls operational

    @property
    def batching(self) -> Batching:
        """What makes an ack together with the next take cheaper than both alone; "" if nothing does."""

    def check(self, connection: Any, advice: str = "") -> str:
        """Return the name of the database that a connection leads to, as in `DIALECTS`.

        Raises ConfigurationError if this driver, or its server, cannot be used.

        `advice` is how the ORM gets connections of this driver, for the error if the connection belongs to another one.
        """

    def in_transaction(self, connection: Any) -> bool:
        """Return whether a transaction is open, also one that the application began."""

    def connect(self, parameters: Mapping[str, Any]) -> Any:
        """Return a new connection in autocommit mode. Raises the driver's errors."""

    def autocommit(self, connection: Any, value: Any) -> Any:
        """Put a connection into autocommit mode (True) or into an earlier mode. Return the mode before."""

    def is_broken(self, connection: Any) -> bool:
        """Return whether the connection is known to be lost."""

    def transaction(self, connection: Any) -> bool | None:
        """Return whether a transaction is open; None if there is none and the connection is known to be lost."""

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        """Run one statement, as a prepared one if the driver supports that."""

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        """Close a connection if `error`, as of a signal handler, interrupted a statement before its result was read.

        Depending on the driver, the connection or the error shows whether the statement is over.
        """

    def rows(self, cursor: Any) -> list[Row]:
        """Return all rows of the statement that a cursor has run; an empty list if it returns none."""

    def classify(self, error: BaseException) -> ErrorKind:
        """Return the kind of an error that this driver, or any other program, raised. Never LOST."""

    def receive(self, connection: Any) -> bool:
        """Return whether the server has notified since the last call. Detects that the connection is lost."""


class PipelineDriver(Driver, Protocol):
    """A driver that sends statements without waiting for their results: one that joins calls by a pipeline."""

    def pipelined(self, cursor: Callable[[], Any], statements: Sequence[Sent]) -> list[list[Row]]:
        """Send statements together, as one transaction, and return the rows of each."""

    def admitted(self, cursor: Callable[[], Any], turn: Sent, look: Sent, then: Sent) -> list[Row]:
        """Run `turn`, and `then` if the query `look` finds a row, as one transaction. Return the rows of `then`.

        After an error the transaction may be open.
        """


class CountingDriver(Driver, Protocol):
    """A driver of MariaDB and MySQL."""

    def inserted(self, cursor: Any) -> tuple[int, int]:
        """Return what `Connection.insert` returns."""


class ServerDriver(Driver, Protocol):
    """A driver of a server. Its methods do not apply to a database file."""

    # What limits the waits for locks in a transaction, by connection: a pooler lends these, so that they keep nothing.
    brief: ClassVar[MutableMapping[Any, str]] = WeakKeyDictionary()

    def limited(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of connect() with those that notice a silent server, and the host first that has answered.

        What the parameters or the environment say stays.
        """

    def reach(self, connect: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
        """Return one of xq's own connections, made by this function with such parameters."""

    def lacks(self, connection: Any) -> Collection[str]:
        """Return the parameters without which a connection may not notice that the machine of its server vanishes."""

    def number(self, connection: Any) -> int:
        """Return the number that the server gave the connection."""

    def fileno(self, connection: Any) -> int:
        """Return the file descriptor of the connection's socket; negative if it is closed."""

    def on_notification(self, connection: Any, call: Callable[[], None]) -> None:
        """Call `call` when a notification arrives while the connection runs a statement."""

    def send(self, connection: Any, sql: str) -> None:
        """Begin a statement. Its result makes the socket readable. For a server that does not notify."""
        return

    def result(self, connection: Any) -> int | None:
        """Read the result of the statement that was sent. Return the number of its rows."""
        return None


@dataclass(frozen=True)
class Connector:
    """Makes connections of a driver, in autocommit mode."""

    open: Callable[[], Any]
    driver: ServerDriver
    # a context in which the driver's errors are raised as the ORM's
    errors: Callable[[], AbstractContextManager[object]]
    failures: tuple[type[Exception], ...]  # the types of these


@dataclass(frozen=True)
class Address:
    """Where a database is: what another process needs to connect without the ORM. May be pickled."""

    engine: str  # as that of `Connections`
    parameters: Mapping[str, Any]  # of the driver's connect()
    password: str | None = field(default=None, repr=False)
    # parameters of connect() that must not be shown, such as the password
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> Address:
        """The address without its secrets."""
        return Address(self.engine, self.parameters)


class Connection(Protocol):
    """The connection of this thread, ready for a call: open, checked and set up, with a known transaction state.

    Use it at once: other code that runs on this connection may begin or end a transaction.
    """

    in_transaction: bool  # whether the application or `atomically` has opened one
    # The block of xq's own that is open. What runs in it joins it. There is a savepoint only within the application's
    # transaction, or if the caller catches the error and goes on.
    open_block: OpenBlock
    briefly: bool  # whether the open transaction may be undone and tried again, so that it waits for rows only briefly
    database: Callable[[], object]  # returns the object that `Store.database` is, of this connection
    context: dict[str, Any]  # the event context of the running statement, which SQLite's triggers read

    @property
    def begins(self) -> bool:
        """Whether the next statement is a transaction of its own, without others."""

    @property
    def pipelines(self) -> bool:
        """Whether statements may be sent together."""

    def admitted(self, turn: Sent, look: Sent, then: Sent) -> list[Row]:
        """As `PipelineDriver.admitted`, if the connection pipelines."""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return all its rows. Raises as `Store.execute`."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement without rows and return how many rows it changed. Raises as `Store.execute`."""

    def insert(self, sql: str, values: Sequence[Any]) -> tuple[int, int]:
        """Run one INSERT of a row. Return the key that the database has made, and the number of warnings.

        Only MariaDB and MySQL tell these. Raises as `Store.execute`.
        """

    def atomically(self, values: dict[str, Any], work: Callable[[Any, dict[str, Any]], R]) -> R:
        """Return `work(self, values)`, run as one transaction; within another one as `open_block` says.

        The ORM does not see this transaction, so `work` must not call the application.
        """

    def as_one(self, first: Callable[[], S], then: Callable[[], R]) -> tuple[S, R]:
        """Return `first()` and `then()`, run as one transaction. Both must catch no error.

        In a pipeline, the statements of `first` are sent with the first one of `then`, and
        the lists of their rows are filled then. They stay empty if `then` handles an error of those. If `first` runs
        statements that need each other's rows, it raises before it sends one.
        """


class Connections(Protocol):
    """The connections of a model's database: one for each thread."""

    name: str  # what the application calls the model

    @property
    def database(self) -> object | None:
        """The object that has the sessions: all models with one connection pool share it. None before there is one."""

    @property
    def engine(self) -> str:
        """The name of the database, for example "sqlite", or of the family that it is of, "innodb".

        Which one of a family it is, `database.product` knows after the first connection. Raises ConfigurationError
        if xq does not support the database.
        """

    def ready(self) -> Connection:
        """Return this thread's connection, opened, checked and set up if it was new or was lost outside a transaction.

        Runs the pending calls of `after_commit` whose transaction the application has committed itself.
        """

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement, with values for its placeholders in their order, and return all its rows.

        Raises BadValue for a value that the driver cannot send, and the ORM's own errors.
        """

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement without rows and return how many rows it changed. Raises as `execute`."""

    def atomic(self, own: bool = False) -> AbstractContextManager[object]:
        """Open one transaction, or a savepoint inside another. It is rolled back if the block raises.

        `own`: the block is xq's alone and catches no error of a statement, so its statements have no savepoints.
        """

    def atomic_if_used(self) -> AbstractContextManager[object]:
        """Open one as `atomic`. With an ORM that has no statements of its own in it, the first call may open it."""

    def joining(self, on: object) -> AbstractContextManager[None]:
        """Have the calls within the block join the caller's transaction `on`, which the caller ends.

        It is a connection of the driver, or what the ORM has for a transaction. Raises BadType for anything else.
        """

    def on_one_connection(self) -> AbstractContextManager[object]:
        """Run the statements of the block on one connection: it takes a lock, or a setting, that the connection has."""

    def in_transaction(self) -> bool:
        """Return whether a transaction is open on this thread's connection, also one that the application began."""

    @property
    def may_wait(self) -> bool:
        """Whether a call may wait: not within a transaction, unless the ORM's test case has opened it."""

    def bookkeeping(self) -> AbstractContextManager[object]:
        """Keep the statements of the block, which are no part of a call, out of the ORM's record of statements."""

    def undo_interrupted(self) -> None:
        """Roll back a transaction of `atomic` that an interrupt left open while it began or ended."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run `call` when the transaction of this thread's connection is committed; at once if none is open.

        If the application commits by itself, the next `ready` after the commit runs it. It may also run although a
        savepoint or the transaction was rolled back.
        """

    def connect(self) -> None:
        """Open a connection for this thread if it has none."""

    def connect_unpooled(self) -> None:
        """Open a connection for this thread if it has none, and withdraw it from the ORM's pool."""

    def disconnect(self) -> None:
        """Close the connection of this thread, or return it to its pool. Does nothing if threads share it."""

    def briefly_connected(self) -> AbstractContextManager[object]:
        """Open a connection for this thread for the block, and close it afterwards unless it was open before."""

    def at_work(self) -> AbstractContextManager[object]:
        """Run the application's function within this block: set up its thread before it and clean up after it.

        Raises LeftOpen if the function left a transaction open, and rolls that back.
        """

    def under_test(self, session: Any) -> AbstractContextManager[None]:
        """Return the context in which a test runs a worker; `session` is its option. Raises ConfigurationError."""

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a test's coroutine on a loop of its own. What it calls is on this thread's connection if the ORM can."""

    def check_apart(self, what: str) -> None:
        """Raise InTransaction for a call that would wait for a transaction of the worker's function that calls."""

    def forked(self) -> None:
        """Forget, in a child process, the inherited connection without using it: it belongs to the parent."""

    @property
    def has_threads(self) -> bool:
        """Whether each thread has a connection of its own."""

    @property
    def no_threads(self) -> str:
        """Why only one thread reaches the database, and the remedy, for an error; "" if others do, too."""

    @property
    def is_private(self) -> bool:
        """Whether only this thread's connection reaches the database: it is in memory, or threads share one."""

    def for_coroutine(self, job: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that runs a job as the ORM has coroutines call the database; None if it has no rule."""

    @property
    def may_share(self) -> bool:
        """Whether calls of several coroutines may run as one: each would go to the same database and schema."""

    def classify(self, error: BaseException) -> ErrorKind:
        """Return the kind of an error."""

    def may_pass(self, error: BaseException) -> bool:
        """Return whether the same call may succeed later, as after a lost connection, a locked row or a full disk."""

    @property
    def driver(self) -> Driver:
        """The driver below the ORM."""

    def connector(self) -> Connector:
        """Return a connector for connections outside the ORM. It keeps no object of the ORM alive."""

    def address(self) -> Address:
        """Return where the database is. Raises ConfigurationError if other processes cannot reach it."""

    # Called before a statement runs on a new connection. Called again after the transaction if it ran within one, and
    # if it returned False: the queue is not bound to this connection's database.
    connected: Callable[[Connection], bool]

    @property
    def in_use(self) -> Any:
        """The driver's connection of this thread; None if none is open."""


class OrmHooks(Protocol):
    """What the base of all ORMs' connections (`OrmConnections` in drivers/stores.py) asks of an ORM.

    An ORM writes these, `engine`, `database`, `ready`, `connector`, and of `Connections` what differs from the base.
    """

    database_error: type[BaseException]  # the class of all its errors, also those of the driver that it has wrapped

    def errors(self) -> AbstractContextManager[object]:
        """Return a block in which the driver's errors are raised as the ORM's."""

    def of_the_driver(self, error: BaseException) -> BaseException:
        """Return the driver's error if the ORM has wrapped it in its own, else `error`."""

    @property
    def _raw(self) -> Any:
        """The driver's connection that the ORM has for this thread; None if none is open."""

    def _atomic(self) -> AbstractContextManager[object]:
        """Open the ORM's transaction, or its savepoint inside another. It is rolled back if the block raises."""

    def _within(self) -> bool:
        """Return whether a transaction is open on this thread's connection, also one of a plain BEGIN."""

    def _after_commit(self, call: Callable[[], None]) -> None:
        """Run `call` after the commit of the transaction that is open, as `Connections.after_commit` says."""

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters of the driver's connect() that other processes can use, too, by their names."""


class Unit(Protocol):
    """The unit of work of a session whose transaction a call joins."""

    def flush(self) -> None:
        """Write what is pending, once for each call."""

    def put(self, tasks: Sequence[Any], asked: Any, trace: str | None) -> Sequence[Any] | None:
        """Put new instances of the model with the session's other changes, and return them; None for other tasks.

        Raises as `Inserts.put_many`.
        """

    def gone(self, task: Any) -> None:
        """Note that the row of a returned task is deleted."""


class TaskModel(Protocol[T]):
    """One model of one ORM: its fields, and instances made of rows."""

    name: str  # what the application calls the model
    model: type[T]
    table: str
    schema: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    installs: str  # how the latter does, where the table is there; "" for by Queue.install()
    downgrades: str  # how an older definition comes back
    forwards: str  # how one that a downgrade has withdrawn does
    merged: str  # in a migration: what to do where one of another branch has added what its definition lacks
    target: str  # what names the queue on the command line
    needed: Mapping[str, str]  # by role, what fields the ORM has for it

    def command(self, name: str) -> str:
        """Return a command of xq with the target, for a message."""

    @property
    def advice(self) -> str:
        """How the table and what the queue needs come into the database."""

    @property
    def unit(self) -> Unit | None:
        """The unit of work that the running call joins; None if it joins none."""

    @property
    def may_fail_to_read(self) -> bool:
        """Whether a row may hold what the application's fields cannot read."""

    def read(self, row: Row, strictly: bool = True) -> Sequence[Any]:
        """Return the application's values of a row, in the order of `fields`.

        Raises BadValue for one that cannot be read; without `strictly` it is returned as the database has it.
        """

    def instance(self, values: Sequence[Any]) -> T:
        """Return a clean instance of the application's values in the order of `fields`."""

    @property
    def hydrate(self) -> Callable[..., T]:
        """A function that makes a clean instance of a row and, if given, the token of its take. Raises as `read`."""

    @property
    def hydrate_all(self) -> Callable[..., list[T]]:
        """A function that makes a list of such instances, of rows that have the same token."""

    def data(self, task: object) -> Mapping[str, Any] | None:
        """Return the values of an instance of the model by field name; None if `task` is not one."""

    def declared_defaults(self) -> dict[str, Any]:
        """Return the model's declared defaults by field name: values, and callables that make them."""

    def reader(self, name: str, table: str, columns: Mapping[str, Kind]) -> Reader:
        """Return a reader of a model `name` for a table beside the application's. The first column is the key."""

    adds_columns: bool  # whether install() adds the columns that xq brings; else migrations of the ORM do

    def bring(self, columns: Mapping[str, tuple[Kind, int | None]]) -> None:
        """Add nullable fields to the model, unless it has them: their kinds, and lengths of texts, by name."""

    @property
    def offers(self) -> Collection[str]:
        """The roles for which the model inherits a field from the ORM's abstract model of xq; else empty."""

    def refer(self, field: Field, check: Callable[[], None]) -> None:
        """Call `check` when the kind of a field is known: a foreign key has that of the key that it refers to."""

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        """Raise ConfigurationError if the ORM itself reads or writes a field in a way that its role does not allow."""

    def is_mine(self, model: type) -> bool:
        """Return whether a class that inherits from the model has the same table."""

    def attribute(self, name: str) -> str | None:
        """Return what the model already has under this attribute name, for a message; None if nothing."""

    def attach(self, name: str, value: object) -> None:
        """Set a class attribute of the model."""

    def with_the_table(self, creating: Callable[[Callable[[], None]], None], dropped: Callable[[], None]) -> None:
        """Have the ORM create the table by `creating`, which is given its own call, and drop it after `dropped`."""

    def guard(self, names: Collection[str]) -> None:
        """Make save() of the model write these fields only if the application has changed or named them."""


class Store(TaskModel[T], Connections, Protocol[T]):
    """One model of one ORM, with its connections."""

    def in_session(self, worker: Any) -> Callable[[Any], Any]:
        """Return what calls a worker's function with its task, and with the option session in a session of its own.

        There xq acks the task, and commits. It also raises LeftOpen for what it can see that `at_work` cannot. Raises
        ConfigurationError if the ORM has no such sessions.
        """

    def check_session(self, maker: Any, around: bool) -> None:
        """Raise ConfigurationError, as workers start, if what makes their sessions has no engine.

        It may have one only within what is `around` each attempt.
        """


class Runs(Protocol):
    """How SQL runs, and is repeated after a conflict: a `Database`, or the `Executor` of a queue."""

    @property
    def clock(self) -> Clock | None: ...
    @property
    def store(self) -> Connections: ...
    def values(self) -> dict[str, Any]: ...
    def run(self, sql: str, /, values: dict[str, Any] | None = None) -> list[Row]: ...
    def transaction(self, work: Callable[[], R], *, locks: bool = True, caught: bool = False) -> R: ...
