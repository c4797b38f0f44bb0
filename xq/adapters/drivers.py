"""The drivers, below any ORM: sqlite3, psycopg 3 and pymysql."""

from __future__ import annotations

import math
import re
import select
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from xq.core.errors import ConfigurationError
from xq.core.ports import PASSING, Address, Driver, ErrorKind, Joins, Row, Sent, ServerDriver

T = TypeVar("T")

PLANNED = 1.0  # seconds after which PostgreSQL plans prepared statements again
OUTDATED = -math.inf  # the time of planning if the prepared statements cannot run any more
SHORT = 4_000  # characters; longer statements differ from call to call, so preparing them does not pay
COLLECTIONS = frozenset({list, tuple, set, frozenset, dict, time.struct_time})
# The events of a socket whose peer has closed it. The operating system reports them without sending anything.
GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
POSTGRES, MARIADB = 130_000, (10, 6)  # the oldest supported servers
COM_QUERY = 3  # the command of MariaDB's protocol that runs a statement
TRANSACTION = "BEGIN NOT ATOMIC START TRANSACTION; "  # begins a block of MariaDB that is a transaction


def as_transaction(sql: str) -> str:
    """Return statements of MariaDB as a block that is a transaction. After an error it has to be rolled back."""
    return f"{TRANSACTION}{sql}; COMMIT; END"


def _kinds(codes: Mapping[ErrorKind, Iterable[T]]) -> Mapping[T, ErrorKind]:
    return {code: kind for kind, of_kind in codes.items() for code in of_kind}


# By the names of PEP 249's exceptions, which drivers and ORMs both use.
OF_CLASSES: Mapping[str, ErrorKind] = {
    "IntegrityError": ErrorKind.CONSTRAINT,
    "OperationalError": ErrorKind.TRANSIENT,
    "InterfaceError": ErrorKind.TRANSIENT,
    "DatabaseError": ErrorKind.PERMANENT,
}

OF_SQLITE = _kinds(
    {
        ErrorKind.DUPLICATE: (
            sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
            sqlite3.SQLITE_CONSTRAINT_ROWID,
            sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        ),
        ErrorKind.CHECK: (sqlite3.SQLITE_CONSTRAINT_CHECK,),
        # Errors of the statement or of the application's triggers: an overflow, a missing table or column.
        ErrorKind.PERMANENT: (sqlite3.SQLITE_ERROR,),
    }
)

OF_POSTGRES = _kinds(
    {
        ErrorKind.CONFLICT: ("40001", "40P01"),  # serialization failure, deadlock
        ErrorKind.LOCKED: ("55P03",),  # lock not available
        ErrorKind.DUPLICATE: ("23505",),
        ErrorKind.CHECK: ("23514", "22001"),
        ErrorKind.READ_ONLY: ("25006",),
        ErrorKind.DENIED: ("42501",),
        # No such operator, a type mismatch, a type that cannot be determined, no such cast.
        ErrorKind.BAD_TYPE: ("42883", "42804", "42P18", "42846"),
        # Not readable as the type, out of its range or encoding, or too long for an index.
        ErrorKind.BAD_VALUE: ("22P02", "22P03", "22P05", "22003", "22007", "22008", "22021", "54000", "0A000"),
        ErrorKind.PERMANENT: ("55000",),  # object not in prerequisite state, which triggers often raise
    }
)
# These states are of their kind only if a function of PostgreSQL whose name begins like this has raised them. A row
# security policy also raises 42501, but for one row. 0A000 (not supported) counts for NaN as an integer only.
RAISED_BY: Mapping[str, str] = {"42501": "aclcheck_error", "0A000": "numeric_"}

OF_MARIADB = _kinds(
    {
        # A deadlock, also between waiters for an auto-increment lock (1467); a row changed since the transaction's
        # snapshot (1020).
        ErrorKind.CONFLICT: (1213, 1467, 1020),
        ErrorKind.LOCKED: (1205,),
        ErrorKind.DUPLICATE: (1062,),
        ErrorKind.CHECK: (4025, 1406),
        ErrorKind.READ_ONLY: (1290, 1836),  # --read-only or another option of the server
        ErrorKind.DENIED: (1044, 1142, 1143, 1227, 1370),
        # Out of range, not a number, an invalid character, not a date.
        ErrorKind.BAD_VALUE: (1264, 1265, 1292, 1366, 1367),
        # pymysql raises OperationalError for all other numbers, but retrying these never helps: an unknown
        # column or function (1054, 1305), a row too long (1118), several rows instead of one (1172, 1242), mismatched
        # collations or characters (1267, 1300), a field without a value (1364), a division by zero (1365), an
        # unreadable value (1411), an action not allowed in a trigger or rejected by one (1442, 1644), an overflow
        # (1690), a write to a computed column (1906).
        ErrorKind.PERMANENT: (1054, 1118, 1172, 1242, 1267, 1300, 1305, 1364, 1365, 1411, 1442, 1644, 1690, 1906),
    }
)


def _kind_by_class(error: BaseException) -> ErrorKind:
    names = {each.__name__ for each in type(error).__mro__}
    return next((kind for name, kind in OF_CLASSES.items() if name in names), ErrorKind.NOT_DATABASE)


def _is_gone(descriptor: int) -> bool:
    """Return whether the peer has closed a connection, or another thread of this process has."""
    if descriptor < 0:
        return True
    end = select.poll()
    end.register(descriptor, GONE)
    return bool(end.poll(0))


def _of_another(server: str, driver: str, connection: Any, advice: str) -> ConfigurationError:
    text = f"xq speaks to {server} through {driver}, this is a connection of {type(connection).__module__}"
    return ConfigurationError(f"{text}: {advice}" if advice else text)


class Sqlite3:
    """sqlite3 of the standard library."""

    # IMMEDIATE: else a transaction that reads first fails if another connection writes before it does.
    begin = "BEGIN IMMEDIATE"
    joins: Joins = "transaction"
    errors_end_transactions = False
    passing = PASSING

    def check(self, connection: Any, advice: str = "") -> None:
        pass

    def in_transaction(self, connection: Any) -> bool:
        try:
            return bool(connection.in_transaction)
        except sqlite3.ProgrammingError:  # it was closed
            return False

    def is_broken(self, connection: Any) -> bool:
        return connection is not None and self.transaction(connection) is None

    def transaction(self, connection: Any) -> bool | None:
        try:
            within: bool = connection.in_transaction
            return within
        except sqlite3.ProgrammingError:  # it was closed
            return None

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        cursor.execute(sql, values)

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        pass  # when a call of sqlite3 ends, the statement is over

    def rows(self, cursor: Any) -> list[Row]:
        # SQLite ends and commits a statement with RETURNING only when all its rows are fetched.
        rows: list[Row] = cursor.fetchall()
        return rows

    def classify(self, error: BaseException) -> ErrorKind:
        if isinstance(error, (OverflowError, UnicodeError)):
            return ErrorKind.BAD_VALUE
        if "binding parameter" in str(error):
            return ErrorKind.BAD_TYPE
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF == sqlite3.SQLITE_READONLY:  # the higher bits give the reason
            return ErrorKind.READ_ONLY
        return OF_SQLITE.get(code) or _kind_by_class(error)

    def receive(self, connection: Any) -> bool:
        return False


class _Server(ServerDriver):
    """The base of the drivers of psycopg and pymysql."""

    def transaction(self, connection: Any) -> bool | None:
        return True if self.in_transaction(connection) else None if self.is_broken(connection) else False


class Psycopg(_Server):
    """psycopg 3, in autocommit."""

    begin = "BEGIN"
    errors_end_transactions = True
    passing = PASSING

    @cached_property
    def joins(self) -> Joins:
        from psycopg import Pipeline

        return "pipeline" if Pipeline.is_supported() else ""

    def __init__(self) -> None:
        self._planned: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # the monotonic time, by connection

    def check(self, connection: Any, advice: str = "") -> None:
        info: Any = getattr(connection, "info", None)
        if not hasattr(connection, "pgconn"):
            raise _of_another("PostgreSQL", "psycopg 3", connection, advice)
        if other := info.parameter_status("crdb_version"):
            raise ConfigurationError(f"xq speaks PostgreSQL, this is {other}")
        if 0 < info.server_version < POSTGRES:  # 0 if the connection is already lost
            raise ConfigurationError(
                f"xq needs PostgreSQL {POSTGRES // 10_000} or later, this is {info.server_version}"
            )

    def in_transaction(self, connection: Any) -> bool:
        return connection.pgconn.transaction_status in (2, 3)  # INTRANS, INERROR

    def is_broken(self, connection: Any) -> bool:
        return connection is None or bool(connection.closed) or _is_gone(connection.fileno())

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        connection: Any = cursor.connection
        try:
            self._execute(cursor, sql, values)
        except BaseException as error:
            self.close_if_unfinished(connection, error)
            raise

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        if connection.pgconn.transaction_status == 1:  # ACTIVE: the statement still runs
            connection.close()

    def _execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        connection: Any = cursor.connection
        if self._prepares(connection):
            self._plan_anew(connection)
        try:
            self._send(cursor, sql, values)
        except Exception as error:
            if not self._is_outdated(error):
                raise
            self._planned[connection] = OUTDATED
            if not self._plan_anew(connection):  # within a transaction, which the error has ended
                raise
            self._send(cursor, sql, values)

    @staticmethod
    def _prepares(connection: Any) -> bool:
        # Applications turn preparing off (prepare_threshold=None) behind a connection pooler such as PgBouncer.
        return connection.prepare_threshold is not None

    def _send(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        own = self._prepares(cursor.connection) and len(sql) < SHORT and bool(values)
        cursor.execute(sql, values or None, prepare=True if own else None)

    def pipelined(self, cursor: Callable[[], Any], statements: Sequence[Sent]) -> list[list[Row]]:
        made = [cursor() for _ in statements]
        connection = made[0].connection
        if self._prepares(connection):
            self._plan_anew(connection)
        try:
            with connection.pipeline():
                for each, (sql, values) in zip(made, statements, strict=True):
                    self._send(each, sql, values)
        except BaseException as error:
            if self._is_outdated(error):
                self._planned[connection] = OUTDATED  # for the next statement
            if connection.pgconn.pipeline_status:
                connection.close()
            self.close_if_unfinished(connection, error)
            raise
        return [self.rows(each) for each in made]

    def admitted(self, cursor: Callable[[], Any], turn: Sent, look: Sent, then: Sent) -> list[Row]:
        # Not an INSERT with a condition: PostgreSQL finds the types of its values only in an INSERT of VALUES.
        *_, room = self.pipelined(cursor, [(self.begin, ()), turn, look])
        if not room:  # not in a pipeline: there psycopg forgets, too late, statements that it prepared after it
            self.execute(cursor(), "ROLLBACK", ())
            return []
        found, *_ = self.pipelined(cursor, [then, ("COMMIT", ())])
        return found

    def _plan_anew(self, connection: Any) -> bool:
        """Discard the plans of prepared statements once per PLANNED seconds. Returns whether it did.

        A plan made for a table that was empty at its last VACUUM reads and sorts the whole table. After a burst of
        100,000 puts a take would need 85 ms instead of 0.15 ms until the next autovacuum
        (`make bench DB=postgres ARGS=burst`).
        """
        now = time.monotonic()
        planned = self._planned.setdefault(connection, now)
        if now <= planned + PLANNED or connection.pgconn.transaction_status not in (0, 2):
            return False
        if planned == OUTDATED:
            with connection.transaction(force_rollback=True):
                pass  # a rollback makes psycopg forget its prepared statements
        else:
            connection.execute("DISCARD PLANS", prepare=False)
        self._planned[connection] = now
        return True

    @staticmethod
    def _is_outdated(error: BaseException) -> bool:
        """Return whether a statement failed because the type of a returned column changed since it was prepared."""
        state: Any = getattr(error, "sqlstate", None)
        return bool(state == "0A000" and error.diag.source_function == "RevalidateCachedQuery")  # type: ignore[attr-defined]

    def rows(self, cursor: Any) -> list[Row]:
        # Not cursor.description, which is slow to compute.
        rows: list[Row] = cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []
        return rows

    def classify(self, error: BaseException) -> ErrorKind:
        if "cannot contain NUL" in str(error) or isinstance(error, (OverflowError, ValueError)):
            return ErrorKind.BAD_VALUE
        if "cannot adapt type" in str(error) or "cannot dump" in str(error):
            return ErrorKind.BAD_TYPE
        state: Any = getattr(error, "sqlstate", None)
        kind = OF_POSTGRES.get(state)
        if kind is None:
            return _kind_by_class(error)
        raised: Any = error.diag  # type: ignore[attr-defined]
        # An error with a context was raised while the statement ran, for example by the application's own trigger.
        otherwise = kind in (ErrorKind.BAD_TYPE, ErrorKind.DENIED) and raised.context
        if otherwise or not str(raised.source_function).startswith(RAISED_BY.get(state, "")):
            return _kind_by_class(error)
        return kind

    def number(self, connection: Any) -> int:
        return int(connection.info.backend_pid)

    def fileno(self, connection: Any) -> int:
        return -1 if connection.closed else int(connection.fileno())

    def on_notification(self, connection: Any, call: Callable[[], None]) -> None:
        connection.add_notify_handler(lambda _: call())

    def receive(self, connection: Any) -> bool:
        server, received = connection.pgconn, False
        try:
            gone = _is_gone(connection.fileno())  # checked before reading, so that its last notifications are read
            server.consume_input()
            while server.notifies():
                received = True
        except connection.Error:  # an exception of a signal handler passes through
            gone = True
        if gone:
            connection.close()
        return received


class Pymysql(_Server):
    """pymysql, in autocommit."""

    begin = "BEGIN"
    joins: Joins = "pipeline"
    errors_end_transactions = False
    passing = PASSING | {ErrorKind.DENIED}  # a right may be granted later
    IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS

    def check(self, connection: Any, advice: str = "") -> None:
        if not hasattr(connection, "server_status"):
            raise _of_another("MariaDB", "pymysql", connection, advice)
        version = str(connection.server_version)
        numbers = re.findall(r"\d+", version.replace("5.5.5-", "", 1))
        if "MariaDB" not in version:
            raise ConfigurationError(
                f"xq speaks MariaDB {'.'.join(map(str, MARIADB))} or later, this is MySQL {version}"
            )
        if tuple(map(int, numbers[:2])) < MARIADB:
            raise ConfigurationError(f"xq needs MariaDB {'.'.join(map(str, MARIADB))} or later, this is {version}")

    def in_transaction(self, connection: Any) -> bool:
        # The status that the server sent last. A lost connection keeps it, hence `open`.
        return bool(connection.open and connection.server_status & self.IN_TRANSACTION)

    def is_broken(self, connection: Any) -> bool:
        return connection is None or not connection.open or _is_gone(self.fileno(connection))

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        connection: Any = cursor.connection
        # A value that cannot be encoded raises here, before anything is sent, so the connection stays usable.
        query = self._text(cursor, sql, values).encode(connection.encoding)
        if sql.startswith(TRANSACTION):
            connection.server_status |= self.IN_TRANSACTION  # an error does not tell; a result overwrites it
        try:
            cursor.execute(query)
        except BaseException as error:
            self.close_if_unfinished(connection, error)
            raise

    @staticmethod
    def _text(cursor: Any, sql: str, values: Sequence[Any]) -> str:
        if not COLLECTIONS.isdisjoint(map(type, values)):  # pymysql would expand it into several SQL values
            raise TypeError("a collection is no value")
        text: str = cursor.mogrify(sql, values or None)
        return text

    def pipelined(self, cursor: Callable[[], Any], statements: Sequence[Sent]) -> list[list[Row]]:
        made = cursor()
        self.execute(made, as_transaction("; ".join(self._text(made, *each) for each in statements)), ())
        found = self._results(made)
        return found + [[]] * (len(statements) - len(found))  # the last statement may return no rows at all

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        if not isinstance(error, connection.Error):  # the next statement might read the result of this one
            connection._force_close()

    def admitted(self, cursor: Callable[[], Any], turn: Sent, look: Sent, then: Sent) -> list[Row]:
        made = cursor()
        before, condition, wanted = (self._text(made, *each) for each in (turn, look, then))
        # A query of its own: in the condition of an IF, InnoDB would lock what it reads.
        room = f"{condition} INTO xq_room; IF xq_room THEN {wanted}; END IF"
        block = f"BEGIN NOT ATOMIC DECLARE xq_room BOOLEAN; {before}; {room}; END"
        self.execute(made, as_transaction(block), ())
        return self.rows(made)

    def rows(self, cursor: Any) -> list[Row]:
        found = self._results(cursor)
        return found[0] if found else []

    def _results(self, cursor: Any) -> list[list[Row]]:
        """Return the rows of each statement of a block that returns rows, once the whole block has run."""
        found: list[list[Row]] = []
        try:
            more: Any = True
            while more:
                if cursor.description:
                    found.append(list(cursor.fetchall()))
                more = cursor.nextset()
        except BaseException as error:
            self.close_if_unfinished(cursor.connection, error)
            raise
        return found

    def classify(self, error: BaseException) -> ErrorKind:
        infinite = "can not be used with MySQL" in str(error)  # inf or nan
        if infinite or isinstance(error, (OverflowError, ValueError)):
            return ErrorKind.BAD_VALUE
        if isinstance(error, (TypeError, AttributeError)):  # pymysql treats values of unknown types as text
            return ErrorKind.BAD_TYPE
        kind = _kind_by_class(error)
        if kind is ErrorKind.NOT_DATABASE or not error.args:
            return kind
        if error.args[0] == 1305 and "SAVEPOINT" in str(error):
            return ErrorKind.CONFLICT  # a savepoint is missing because the server rolled the transaction back
        return OF_MARIADB.get(error.args[0], kind)

    def number(self, connection: Any) -> int:
        return int(connection.thread_id())

    def fileno(self, connection: Any) -> int:
        end = connection._sock  # read once: another thread may close the connection meanwhile
        return -1 if end is None else int(end.fileno())

    def on_notification(self, connection: Any, call: Callable[[], None]) -> None:
        pass  # MariaDB sends no notifications

    def send(self, connection: Any, sql: str) -> None:
        connection._execute_command(COM_QUERY, sql)

    def result(self, connection: Any) -> int:
        return int(connection.next_result())

    def receive(self, connection: Any) -> bool:
        end, readable = self.fileno(connection), select.poll()
        if end < 0:
            return False
        readable.register(end, select.POLLIN)
        if readable.poll(0):  # without a request MariaDB sends something only when it closes the connection
            connection._force_close()
        return False


SERVERS: Mapping[str, ServerDriver] = {"postgres": Psycopg(), "mariadb": Pymysql()}
DRIVERS: Mapping[str, Driver] = {"sqlite": Sqlite3(), **SERVERS}


def connect(address: Address) -> Any:
    """Return a new connection of the driver, in autocommit mode, to an address. Raises the driver's errors."""
    parameters: dict[str, Any] = {**address.parameters, **address.secrets}
    if address.password is not None:
        parameters["password"] = address.password
    if address.engine == "postgres":
        import psycopg

        return psycopg.connect(**parameters, autocommit=True)
    if address.engine == "mariadb":
        import pymysql

        return pymysql.connect(**parameters, autocommit=True)
    return sqlite3.connect(**parameters, isolation_level=None)
