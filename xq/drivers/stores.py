"""What all ORMs' stores share: error kinds, prepared connections, and models."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Final, Generic, NoReturn, TypeVar, cast
from weakref import ref

from xq.core.connections import Address, CountingDriver, Driver, OpenBlock, OrmHooks, PipelineDriver, Sent, Unit
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.core.kinds import REFUSALS, ErrorKind, Field, R, Row, S
from xq.core.tokens import TOKEN_ATTRIBUTE

M = TypeVar("M")
Ahead = list[tuple[str, Sequence[Any], list[Row]]]  # statements and their values, each with the list for its rows

log = logging.getLogger("xq")

# Parameters of connect() that must not be shown, besides the password: they are, or may contain, keys' passwords.
SECRETS: Final = frozenset(
    {"sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key", "ssl", "ssl_key_password"}
)

# The server has answered: these kinds are kept although the connection is lost (see ErrorKind).
ANSWERS: Final = REFUSALS | {ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.READ_ONLY}
RAISED: Final[Mapping[ErrorKind, type[Exception]]] = {ErrorKind.BAD_VALUE: BadValue, ErrorKind.BAD_TYPE: BadType}


class BaseStore(ABC):
    """The base of all stores: runs a text on this thread's connection, and classifies its errors.

    It detects the ORM's errors and lost connections itself, and asks the driver for the other kinds.
    """

    database_error: type[BaseException]  # the class for all its errors

    @property
    @abstractmethod
    def driver(self) -> Driver: ...

    @property
    @abstractmethod
    def in_use(self) -> Any:
        """The driver's connection that this thread uses; None if none is open."""

    @property
    def has_threads(self) -> bool:
        return True

    def of_the_driver(self, error: BaseException) -> BaseException:
        """Return the driver's error if the ORM has wrapped it in its own, else `error`."""
        return error

    @abstractmethod
    def ready(self) -> Connection: ...

    @abstractmethod
    def atomic(self, own: bool = False) -> AbstractContextManager[object]: ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.ready().execute(sql, values)

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self.ready().change(sql, values)

    def bookkeeping(self) -> AbstractContextManager[object]:
        return nullcontext()  # for those that record no statements

    def on_one_connection(self) -> AbstractContextManager[object]:
        return nullcontext()  # a thread keeps its connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection that this thread used last is lost."""
        return self.driver.is_broken(self.in_use)

    def classify(self, error: BaseException) -> ErrorKind:
        if not isinstance(error, self.database_error):
            return ErrorKind.NOT_DATABASE
        kind = self.driver.classify(self.of_the_driver(error))
        return ErrorKind.LOST if kind not in ANSWERS and self.is_lost else kind

    def may_pass(self, error: BaseException) -> bool:
        return self.classify(error) in self.driver.retryable

    def failed(self, error: BaseException) -> NoReturn:
        """Raise a statement's error: as BadValue or BadType if a value caused it, else unchanged."""
        raised = RAISED.get(self.driver.classify(self.of_the_driver(error)))
        if raised is not None:
            raise raised(f"the database cannot hold a value given: {error}") from error
        raise error


def in_memory(name: Any) -> bool:
    """Return whether an SQLite database is in memory. One without a name (None) is not known yet."""
    path = os.fspath("later" if name is None else name)
    return path in ("", ":memory:") or "mode=memory" in path or path.startswith("file::memory:")


class NoPipelineError(Exception):
    """The first call needs its rows before the second begins. It has sent nothing."""


class Connection:
    """One thread's connection. Implements `xq.core.connections.Connection`."""

    __slots__ = (
        "ahead",
        "briefly",
        "context",
        "cursor",
        "database",
        "depth",
        "driver",
        "gathers",
        "idle",
        "in_transaction",
        "open_block",
        "raw",
        "set_up",
        "store",
    )

    def __init__(self, store: BaseStore, driver: Driver, raw: Any, cursor: Callable[[], Any], database: object) -> None:
        self.store = store
        self.driver = driver
        self.raw = raw
        self.cursor = cursor
        self.database: Callable[[], object] = ref(database)
        self.context: dict[str, Any] = {}
        self.in_transaction = False
        self.briefly = False
        self.depth = 0  # of xq's savepoints
        self.open_block: OpenBlock = ""
        self.ahead: Ahead = []  # statements that are sent with the next one
        self.idle: Any = None  # a cursor of a FileConnection that no statement uses
        self.gathers = False  # whether the next statement is one of these
        self.set_up: bool | None = False  # None: in a transaction, which may be rolled back: again after it

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self.gathers:
            rows: list[Row] = []
            self.ahead.append((sql, values, rows))
            return rows
        try:
            if self.ahead and not self.in_transaction:
                return self._send_ahead((sql, values))[-1]
            made = self.cursor()
            self.driver.execute(made, sql, values)
            return self.driver.rows(made)
        except BaseException as error:
            if not self.in_transaction:
                self.undo(error)
            self.store.failed(error)

    @property
    def pipelines(self) -> bool:
        return self.driver.batching == "pipeline"

    @property
    def begins(self) -> bool:
        return not (self.in_transaction or self.gathers or self.ahead)

    def _send_ahead(self, *more: tuple[str, Sequence[Any]]) -> list[list[Row]]:
        ahead, self.ahead = self.ahead, []
        found = cast(PipelineDriver, self.driver).pipelined(
            self.cursor, [*((sql, values) for sql, values, _ in ahead), *more]
        )
        for (*_, rows), its in zip(ahead, found, strict=False):
            rows += its
        return found

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        try:
            made = self.cursor()
            self.driver.execute(made, sql, values)
            return int(made.rowcount)
        except BaseException as error:
            self.store.failed(error)

    def insert(self, sql: str, values: Sequence[Any]) -> tuple[int, int]:
        try:
            made = self.cursor()
            self.driver.execute(made, sql, values)
            return cast(CountingDriver, self.driver).inserted(made)
        except BaseException as error:
            self.store.failed(error)

    def _control(self, sql: str) -> None:
        """Begin or end a transaction."""
        try:
            self.driver.execute(self.cursor(), sql, ())
        except BaseException as error:
            self.store.failed(error)

    @contextmanager
    def transaction(self, how: str = "") -> Iterator[None]:
        try:
            self._control(self.driver.begin + how)
            yield
            self._control("COMMIT")
        except BaseException as error:
            self.undo(error)
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.depth += 1
        name = f"xq_{self.depth}"  # of few texts: asyncpg prepares each one
        try:
            self._control(f"SAVEPOINT {name}")
            yield
            self._control(f"RELEASE SAVEPOINT {name}")
        except BaseException:
            with suppress(Exception):  # after a deadlock MariaDB has rolled back the transaction with its savepoints
                self._control(f"ROLLBACK TO SAVEPOINT {name}")
            raise
        finally:
            self.depth -= 1

    def atomically(self, values: dict[str, Any], work: Callable[[Any, dict[str, Any]], R]) -> R:
        if self.in_transaction:
            if self.open_block:
                return work(self, values)
            with self.store.atomic(own=True):
                return work(self, values)
        if self.gathers:  # its statements depend on each other's rows
            raise NoPipelineError
        ahead, self.ahead = self.ahead, []
        try:
            self._control(self.driver.begin)
            self.in_transaction, self.open_block = True, "transaction"
            for sql, its, rows in ahead:
                rows += self.execute(sql, its)
            found = work(self, values)
            self._control("COMMIT")
        except BaseException as error:
            for *_, rows in ahead:
                rows.clear()
            self.undo(error)
            self.store.failed(error)
        finally:
            self.in_transaction, self.open_block = False, ""
        return found

    def as_one(self, first: Callable[[], S], then: Callable[[], R]) -> tuple[S, R]:
        if self.pipelines:
            return self._in_a_pipeline(first, then)
        return self.atomically({}, lambda *_: (first(), then()))

    def admitted(self, turn: Sent, look: Sent, then: Sent) -> list[Row]:
        return self._whole(lambda: cast(PipelineDriver, self.driver).admitted(self.cursor, turn, look, then))

    def _whole(self, run: Callable[[], R]) -> R:
        try:
            return run()
        except BaseException as error:
            self.undo(error)
            self.store.failed(error)

    def _in_a_pipeline(self, first: Callable[[], S], then: Callable[[], R]) -> tuple[S, R]:
        self.gathers = True
        try:
            started = first()
            self.gathers = False
            found = then()
            if self.ahead:  # it sent no statement outside of a transaction
                self._whole(self._send_ahead)
            return started, found
        finally:
            self.gathers, self.ahead = False, []

    def undo(self, error: object = None) -> None:
        """Roll back, unless the database has already done so or the connection is lost."""
        driver = self.driver
        try:
            if driver.in_transaction(self.raw) and not driver.is_broken(self.raw):
                self._control("ROLLBACK")
        except Exception as failure:
            log.debug("a transaction could not be rolled back after %r: %s", error, failure)
            if driver.in_transaction(self.raw):
                driver.receive(self.raw)  # detects that it is lost; else it would still count as in the transaction


class FileConnection(Connection):
    """A connection to an SQLite file, where a new cursor for each statement would cost a tenth of a call.

    Its statements use one cursor after the other. An application's function that SQL calls may run a statement itself,
    so others do not get a cursor in use.
    """

    __slots__ = ()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor, self.idle = self.idle, None
        try:
            if cursor is None:
                cursor = self.cursor()
            # SQLite ends and commits a statement with RETURNING only when all its rows are fetched.
            rows: list[Row] = cursor.execute(sql, values).fetchall()
        except BaseException as error:
            if cursor is not None:
                cursor.close()  # an interrupt may have come before the fetch: no later statement would commit
            self.store.failed(error)
        self.idle = cursor
        return rows

    def _control(self, sql: str) -> None:
        self.execute(sql)


class JoinedConnection(Connection):
    """The connection of a caller's transaction (`on=`), which the caller ends."""

    __slots__ = ("after_commit",)

    def __init__(
        self, store: BaseStore, driver: Driver, raw: Any, database: object, after_commit: Callable[[Any], None]
    ) -> None:
        super().__init__(store, driver, raw, raw.cursor, database)
        self.after_commit = after_commit  # has a call run after the commit
        self.in_transaction = True

    @property
    def pipelines(self) -> bool:
        return False

    def prepare(self) -> None:
        """Set the connection up."""
        self.store._set_up(self)  # type: ignore[attr-defined]

    def interrupted(self) -> None:
        """Have the caller roll the transaction back: a call was interrupted. The driver may have ended it already."""


class PendingCalls:
    """One thread's calls, which wait until the application's own transaction ends.

    The ORM does not see a plain COMMIT: the next call of the queue detects that the transaction has ended.
    """

    calls: Sequence[Callable[[], None]] = ()

    def add(self, call: Callable[[], None]) -> None:
        self.calls = [*self.calls, call]

    def run_all(self) -> None:
        calls, self.calls = self.calls, ()
        for call in calls:
            call()


class OrmConnections(BaseStore, OrmHooks):
    """The base of all ORMs' connections. Implements `xq.core.connections.Connections`, and asks for `OrmHooks`."""

    name: str
    connected: Callable[[Any], bool]

    # what each ORM has beside
    connect: Callable[[], None]
    disconnect: Callable[[], None]

    def __init__(self) -> None:
        self.connected = lambda connection: False
        self._joined: ContextVar[JoinedConnection | None] = ContextVar("xq_joined", default=None)
        self._left: list[tuple[Any, PendingCalls]] = []  # connections that were joined, and what waits for their commit

    @contextmanager
    def joining(self, on: object) -> Iterator[None]:
        if self._left:
            self._run_left()
        outer, joined = self._joined.get(), self._join(on)
        joined.depth = outer.depth if outer else 0
        token = self._joined.set(joined)
        try:
            if not joined.driver.in_transaction(joined.raw) and self.engine == "sqlite":
                joined._control(joined.driver.begin)  # the driver begins one only before some statements
            joined.prepare()
            yield
        except BaseException as error:
            if not isinstance(error, Exception):
                joined.interrupted()
            raise
        finally:
            self._joined.reset(token)

    def _join(self, on: Any) -> JoinedConnection:
        """Return the connection of a caller's transaction. Raises BadType if it is none."""
        if not (hasattr(on, "cursor") and hasattr(on, "commit")):
            raise BadType(f"on is a connection of {self.engine}'s driver with an open transaction, not {shown(on)}")
        product, database = self.driver.check(on), self.database
        if database is not None:  # else what sets the connection up says which one is missing
            database.is_served_by(product)
        calls = next((calls for raw, calls in self._left if raw is on), None)
        if calls is None:
            self._left.append((on, calls := PendingCalls()))
        return JoinedConnection(self, self.driver, on, database, calls.add)

    def _run_left(self) -> None:
        """Run what waits for the commit of connections that were joined: their transactions have ended."""
        for entry in list(self._left):
            raw, calls = entry
            if not self.driver.in_transaction(raw):
                self._left.remove(entry)
                calls.run_all()

    @property
    @abstractmethod
    def engine(self) -> str: ...

    @property
    @abstractmethod
    def database(self) -> Any: ...

    @property
    def in_use(self) -> Any:
        return self._raw if (joined := self._joined.get()) is None else joined.raw

    def in_transaction(self) -> bool:
        return self._joined.get() is not None or self._within()

    @property
    def may_wait(self) -> bool:
        return not self.in_transaction()

    def after_commit(self, call: Callable[[], None]) -> None:
        joined = self._joined.get()
        (self._after_commit if joined is None else joined.after_commit)(call)

    def failed(self, error: BaseException) -> NoReturn:
        try:
            with self.errors():
                raise error
        except BaseException as raised:
            super().failed(raised)

    def address(self) -> Address:
        engine, given = self.engine, self._parameters()
        if engine == "sqlite":
            if in_memory(given["database"]):
                raise ConfigurationError(f"{self.name} is in memory, where no other process sees it: use a file")
            file = os.fspath(given["database"])
            given["database"] = file if file.startswith("file:") else os.path.abspath(file)
        for ours, theirs in (("database", "db"), ("password", "passwd")):
            if theirs in given:
                given[ours] = given.pop(theirs)
        password = given.pop("password", None)
        secrets = {name: given.pop(name) for name in SECRETS & given.keys()}
        return Address(engine, given, password, secrets)

    @contextmanager
    def atomic(self, own: bool = False) -> Iterator[None]:
        block: OpenBlock = "" if not own else "savepoint" if self.in_transaction() else "transaction"
        ahead: Ahead = []
        try:
            with self._atomic() if (joined := self._joined.get()) is None else joined.savepoint():
                connection = self.ready()
                before = connection.open_block
                try:
                    connection.open_block = block
                    ahead, connection.ahead = connection.ahead, ahead
                    for sql, values, rows in ahead:
                        rows += connection.execute(sql, values)
                    yield
                finally:
                    connection.open_block = before
        except BaseException:
            for *_, rows in ahead:  # they were rolled back
                rows.clear()
            raise

    def atomic_if_used(self) -> AbstractContextManager[object]:
        return self.atomic()

    def _set_up(self, connection: Connection) -> None:
        """Set a connection up once. If a transaction is open, set it up again afterwards: it may be rolled back."""
        before = connection.set_up
        if connection.in_transaction and before is None:
            return
        connection.set_up = None if connection.in_transaction else True
        done = False
        try:
            done = self.connected(connection)
        finally:
            if not done:  # it raised, or the queue is not bound to this database yet
                connection.set_up = before

    def _as_set_up(self, joined: JoinedConnection) -> JoinedConnection:
        if joined.set_up is False:  # the queue was not bound before this call
            joined.prepare()
        return joined

    def in_session(self, worker: Any) -> Callable[[Any], Any]:
        if worker.options.session is not None:
            raise ConfigurationError(
                f"session= is a sessionmaker of SQLAlchemy, for its queues: {self.name} has none. Call ack in the "
                "function's own transaction"
            )
        function: Callable[[Any], Any] = worker.function
        return function

    def check_session(self, maker: Any, around: bool) -> None:
        return

    def under_test(self, session: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        asyncio.run(coroutine)

    def check_apart(self, what: str) -> None:
        return  # a call uses the function's own connection

    no_threads = ""
    may_share = True

    @property
    def is_private(self) -> bool:
        return False

    def for_coroutine(self, job: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        return None

    @contextmanager
    def briefly_connected(self) -> Iterator[None]:
        if self.in_use is not None:
            yield
            return
        self.connect()
        try:
            yield
        finally:
            self.disconnect()


class OrmModel(ABC, Generic[M]):
    """The base of all ORMs' models. Implements `xq.core.connections.TaskModel`."""

    model: type[M]
    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    installs = merged = ""
    downgrades = "run xq install --downgrade, or call install(downgrade=True)"
    forwards = "run xq install, or call install(forward=True)"
    unit: Unit | None = None
    program, target = "xq", "TARGET"  # the command line, and the queue's name there; TARGET if none is known

    def command(self, name: str) -> str:
        return f"{self.program} {name} {self.target}"

    @cached_property
    def _readers(self) -> list[tuple[int, Callable[[Any], Any]]]:
        return [(i, field.from_database) for i, field in enumerate(self.fields) if field.from_database]

    def read(self, row: Row, strictly: bool = True) -> Sequence[Any]:
        if strictly and (place := getattr(row, "place", None)) is not None:  # an UnreadRow has it
            raise self._unreadable(row, place, "by the driver")
        if not self._readers:
            return row[: len(self.fields)]
        values = list(row[: len(self.fields)])
        for index, read in self._readers:
            try:
                values[index] = read(values[index])
            except Exception as error:
                if strictly:
                    raise self._unreadable(values, index, f"({error})") from error
        return values

    def _unreadable(self, values: Sequence[Any], index: int, why: str) -> BadValue:
        key = [value for value, field in zip(values, self.fields, strict=False) if field.name in self.key]
        return BadValue(
            f"the row {shown(key[0] if len(key) == 1 else tuple(key))} of {self.name} holds {shown(values[index])} in "
            f"{self.fields[index].name!r}, which cannot be read {why}: mend it with plain SQL, or kill it"
        )

    @abstractmethod
    def instance(self, values: Sequence[Any]) -> M:
        """Return a clean instance with the application's values, given in the order of `fields`."""

    def hydrate(self, row: Row, token: str | None = None) -> M:
        made = self.instance(self.read(row))
        if token is not None:
            setattr(made, TOKEN_ATTRIBUTE, token)
        return made

    def hydrate_all(self, rows: Iterable[Row], token: str | None = None) -> list[M]:
        return [self.hydrate(row, token) for row in rows]

    def refer(self, field: Field, check: Callable[[], None]) -> None:
        check()

    def check_roles(self, roles: Mapping[str, Field]) -> None:
        """Do nothing: the fields' kinds suffice. An ORM may check more."""

    def attach(self, name: str, value: object) -> None:
        setattr(self.model, name, value)
