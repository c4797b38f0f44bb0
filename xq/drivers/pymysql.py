"""pymysql, on MariaDB and MySQL."""

from __future__ import annotations

import io
import re
import select
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from xq.core.connections import Batching, Sent
from xq.core.errors import ConfigurationError
from xq.core.kinds import RETRYABLE, ErrorKind, Row
from xq.drivers import packet
from xq.drivers.base import BaseDriver, is_gone, is_remote, kind_by_class, kinds, of_another
from xq.drivers.packet import SEVERAL

OLDEST: Final = {"mariadb": (10, 6), "mysql": (8, 0, 30)}  # the oldest supported servers
TESTED: Final = {"mysql": "9.7"}  # the only versions that were tested, where other ones are used as much
NAMES: Final = {"mariadb": "MariaDB", "mysql": "MySQL"}
WITHOUT_TRIGGERS = "TiDB", "Vitess"  # what speaks the protocol alone
COLLECTIONS = frozenset({list, tuple, set, frozenset, dict, time.struct_time})
COM_QUERY = 3  # the command in the protocol that runs a statement
TRANSACTION = "BEGIN NOT ATOMIC START TRANSACTION; "  # begins a block of MariaDB's that is a transaction
# MySQL's, where it is xq's own: at REPEATABLE READ one that looks for a row which is not there locks the gap.
READ_COMMITTED = f"{SEVERAL}SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
AS_TRANSACTION: Final = {  # several statements in one round trip; after an error it has to be rolled back
    "mariadb": f"{TRANSACTION}{{}}; COMMIT; END",
    "mysql": f"{READ_COMMITTED}START TRANSACTION; {{}}; COMMIT",
}
# As `PipelineDriver.admitted`. A query apart: in a condition, InnoDB would lock what it reads.
ADMITTED: Final = {
    "mariadb": "BEGIN NOT ATOMIC DECLARE xq_room BOOLEAN; {}; {} INTO xq_room; IF xq_room THEN {}; END IF; END",
    "mysql": "{}; SET @xq_room = NULL; {} INTO @xq_room; DO EXP(IF(@xq_room, 1, 1000)); {}",
}
ROOM = "xq_room"
SHUTDOWN = 1053
FULL = 1690  # a number out of range: how MySQL's way ends itself where there is no room

# Of sockets, as far as the system has them; as `LIMITS` of PostgreSQL.
OPTIONS = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}
SILENCE = 8.0  # seconds without a word from the server after which a second connection asks whether it is there
OF_CLIENTS = 2000  # the least number of an error that no server has sent

KINDS = kinds(
    {
        # A deadlock, also between waiters for an auto-increment lock (1467); a row changed since the transaction's
        # snapshot (1020).
        ErrorKind.CONFLICT: (1213, 1467, 1020),
        ErrorKind.LOCKED: (1205, 3572),
        ErrorKind.DUPLICATE: (1062,),
        ErrorKind.CHECK: (4025, 3819, 1406),
        ErrorKind.READ_ONLY: (1290, 1836),  # --read-only or another server option
        ErrorKind.DENIED: (1044, 1142, 1143, 1227, 1370, 1419),
        # Out of range, not a number, an invalid character, not a date, characters that the column has not (1267, 1270).
        # MySQL's own: a time (1525), JSON (3140).
        ErrorKind.BAD_VALUE: (1264, 1265, 1267, 1270, 1292, 1366, 1367, 1525, 3140),
        # pymysql raises OperationalError for all other numbers, but retrying these never helps: an unknown column or
        # function (1054, 1305), a row too long (1118), several rows where one is needed (1172, 1242), mismatched
        # characters (1300), a field without a value (1364), a division by zero (1365), an unreadable value (1411), an
        # action not allowed in a trigger or rejected by one (1442, 1644), an overflow (1690), a write to a computed
        # column (1906, 3105), one at READ COMMITTED to a statement log (1665).
        ErrorKind.PERMANENT: (1054, 1118, 1172, 1242, 1300, 1305, 1364, 1365, 1411, 1442, 1644, 1665, 1690, 1906, 3105),
    }
)


class _Answers(io.RawIOBase):
    """What a server sends, for as long as it also answers others.

    A limit of seconds would cut off long statements and waits for a lock; and without one, a read waits for ever where
    the system acknowledges for a server that is frozen, or a proxy does.
    """

    def __init__(self, end: Any, is_there: Callable[[], bool]) -> None:
        self._end = end
        self._is_there = is_there
        self._readable = select.poll()
        self._readable.register(end, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        has_decrypted = getattr(self._end, "pending", int)
        while True:
            with suppress(TimeoutError):  # a part of a record of TLS has come
                if has_decrypted() or self._readable.poll(SILENCE * 1000):
                    return int(self._end.recv_into(buffer))
            if self._end.fileno() < 0 or not self._is_there():
                raise TimeoutError(f"no answer for {SILENCE:g} s, and none to a new connection")


class Pymysql(BaseDriver):
    """pymysql, in autocommit."""

    begin = "BEGIN"
    batching: Batching = "pipeline"
    errors_end_transactions = False
    retryable = RETRYABLE | {ErrorKind.DENIED}  # a right may be granted later
    IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS

    def check(self, connection: Any, advice: str = "") -> str:
        if not hasattr(connection, "server_status"):
            raise of_another("MariaDB and MySQL", "pymysql", connection, advice)
        version, product = str(connection.server_version), self.product(connection)
        numbers = re.findall(r"\d+", version.replace("5.5.5-", "", 1))
        if any(each in version for each in WITHOUT_TRIGGERS):
            raise ConfigurationError(f"this is {version}, which has no triggers, by which xq counts")
        if tuple(map(int, numbers[:3])) < (oldest := OLDEST[product]):
            needed = f"{NAMES[product]} {'.'.join(map(str, oldest))}"
            raise ConfigurationError(f"xq needs {needed} or later, this is {version}")
        return product

    def product(self, connection: Any) -> str:
        """Return which of the family a server is, as its handshake has said."""
        return "mariadb" if "MariaDB" in str(connection.server_version) else "mysql"

    def in_transaction(self, connection: Any) -> bool:
        # The status that the server sent last. A lost connection keeps it, hence `open`.
        return bool(connection.open and connection.server_status & self.IN_TRANSACTION)

    def is_broken(self, connection: Any) -> bool:
        return connection is None or not connection.open or is_gone(self.fileno(connection))

    def execute(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        begins = sql == self.begin and self.product(cursor.connection) == "mysql"
        self._run(cursor, f"{READ_COMMITTED}{sql}" if begins else sql, values)

    def _run(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        connection: Any = cursor.connection
        # A value that cannot be encoded raises here, before anything is sent, so the connection stays usable.
        query = self._text(cursor, sql, values).encode(connection.encoding)
        if sql.startswith(TRANSACTION):
            connection.server_status |= self.IN_TRANSACTION  # an error does not tell; a result overwrites it
        try:
            if SEVERAL in sql:
                cursor.xq_found, cursor.rowcount = packet.run(connection, query)
            else:
                cursor.execute(query)
        except packet.OneByOneError:
            self._one_by_one(cursor, sql, values)
        except BaseException as error:
            self.close_if_unfinished(connection, error)
            raise

    def _one_by_one(self, cursor: Any, sql: str, values: Sequence[Any]) -> None:
        found, left = [], list(values)
        for each in packet.statements(sql):
            n = each.replace("%%", "").count("%s")
            if values and not n:
                each = each.replace("%%", "%")  # without values, pymysql leaves both
            self._run(cursor, each, left[:n])
            del left[:n]
            found += self._results(cursor)
        cursor.xq_found = found

    @staticmethod
    def _text(cursor: Any, sql: str, values: Sequence[Any]) -> str:
        if not COLLECTIONS.isdisjoint(map(type, values)):  # pymysql would expand it into several SQL values
            raise TypeError("a collection is no value")
        text: str = cursor.mogrify(sql, values or None)
        return text

    def pipelined(self, cursor: Callable[[], Any], statements: Sequence[Sent]) -> list[list[Row]]:
        made = cursor()
        together = "; ".join(self._text(made, *each) for each in statements)
        self.execute(made, AS_TRANSACTION[self.product(made.connection)].format(together), ())
        found = self._results(made)
        return found + [[]] * (len(statements) - len(found))  # the last statement may return no rows at all

    def close_if_unfinished(self, connection: Any, error: BaseException) -> None:
        # The next statement might read this one's result. And who is told that the server shuts down can roll nothing
        # back any more: an open connection would count as in the transaction for ever.
        if not isinstance(error, connection.Error) or error.args[:1] == (SHUTDOWN,):
            connection._force_close()

    def admitted(self, cursor: Callable[[], Any], turn: Sent, look: Sent, then: Sent) -> list[Row]:
        made = cursor()
        product, texts = self.product(made.connection), (self._text(made, *each) for each in (turn, look, then))
        try:
            self.execute(made, AS_TRANSACTION[product].format(ADMITTED[product].format(*texts)), ())
        except made.connection.Error as error:
            if error.args[0] != FULL or ROOM not in str(error):  # a trigger of the application's, say
                raise
            self.execute(cursor(), "ROLLBACK", ())
            return []
        return self.rows(made)

    def inserted(self, cursor: Any) -> tuple[int, int]:
        return int(cursor.lastrowid), int(cursor._result.warning_count)

    def rows(self, cursor: Any) -> list[Row]:
        found = self._results(cursor)
        return found[0] if found else []

    def _results(self, cursor: Any) -> list[list[Row]]:
        """Return the rows by statement when a whole block has run: one list for each that returns rows."""
        if (there := getattr(cursor, "xq_found", None)) is not None:
            return list(there)
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
        kind = kind_by_class(error)
        if kind is ErrorKind.NOT_DATABASE or not error.args:
            return kind
        if error.args[0] == 1305 and "SAVEPOINT" in str(error):
            return ErrorKind.CONFLICT  # a savepoint is missing because the server rolled the transaction back
        return KINDS.get(error.args[0], kind)

    def autocommit(self, connection: Any, value: Any) -> Any:
        before = connection.get_autocommit()
        if before is not value:
            connection.autocommit(value)
        return before

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
        found = int(connection.next_result())
        while connection._result.has_next:  # a procedure has an answer besides
            connection.next_result()
        return found

    def receive(self, connection: Any) -> bool:
        end, readable = self.fileno(connection), select.poll()
        if end < 0:
            return False
        readable.register(end, select.POLLIN)
        if readable.poll(0):  # without a request MariaDB sends something only when it closes the connection
            connection._force_close()
        return False

    def lacks(self, connection: Any) -> Collection[str]:
        limited = connection._read_timeout or hasattr(connection, "xq_limited")
        return () if limited or not is_remote(self.fileno(connection)) else ("read_timeout",)

    def untested(self, connection: Any) -> str:
        version, tested = str(connection.server_version), TESTED.get(self.product(connection), "")
        return (
            "" if version.startswith(tested) else f"this is {NAMES['mysql']} {version}, and xq was tested on {tested}"
        )

    def limited(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        made = {"connect_timeout": 3, **parameters}
        return {"read_timeout": made["connect_timeout"], **made}  # for what the server says as it connects

    def reach(self, connect: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
        made = connect(**self.limited(parameters))
        by_tls = SILENCE if hasattr(made._sock, "pending") else None  # pymysql sets it anew for each read
        made._read_timeout = parameters.get("read_timeout", by_tls)
        if parameters.get("read_timeout") is None:
            made._rfile.close()
            made._rfile = io.BufferedReader(_Answers(made._sock, partial(self._answers, connect, parameters)))
        for option in OPTIONS.keys() & vars(socket).keys() if not made.unix_socket else ():
            made._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), OPTIONS[option])
        made.xq_limited = True
        return made

    def _answers(self, connect: Callable[..., Any], parameters: Mapping[str, Any]) -> bool:
        import pymysql

        try:
            connect(**self.limited(parameters)).close()
        except pymysql.MySQLError as error:  # that it has too many connections is an answer as well
            return bool(error.args[0] < OF_CLIENTS)
        return True

    def connect(self, parameters: Mapping[str, Any]) -> Any:
        import pymysql

        return self.reach(partial(pymysql.connect, autocommit=True), parameters)
