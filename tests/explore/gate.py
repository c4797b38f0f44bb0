"""Cut a program at one of its statements, at the drivers: below xq, and below each ORM.

`GATE.arm(cut)` counts what is sent from then on, and cuts it there; `GATE.disarm()` returns what was sent. Each round
trip of sqlite3, psycopg and pymysql passes, so BEGIN and COMMIT of each ORM do. A kind of cut is done by the database
itself where it can be: a lost connection is a closed one, and a conflict is raised by the server, which rolls back.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

Way = Callable[[], Any]  # called instead of the statement, or after it


class Cut(NamedTuple):
    """Where a run is cut: before or after its k-th statement, counted from 1, and what happens there."""

    kind: str
    k: int
    side: str

    def __str__(self) -> str:
        return f"{self.kind} {self.k} {self.side}"


# The kinds of each engine, with their sides. For a server a kill before a statement is one after the last statement; on
# SQLite rows may be read between the two, and a statement ends with its last row.
ON_SERVERS = {"kill": ("after",), "lost": ("before", "after"), "conflict": ("before",)}
KINDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sqlite": {"kill": ("before", "after"), "busy": ("before",), "io": ("before",)},
    "postgres": ON_SERVERS,
    "mariadb": ON_SERVERS,
}
# Of a server's statements, those that may wait for rows.
WAITS = re.compile(
    r"\s*(insert|update|delete|with|begin not atomic|set statement)\b|.*\bfor (update|share)\b", re.I | re.S
)


def cuts(engine: str, sent: Sequence[str]) -> Iterator[Cut]:
    """Yield all cuts of a run that sends these statements."""
    for k, sql in enumerate(sent, 1):
        for kind, sides in KINDS[engine].items():
            if kind in ("busy", "io") and sql.upper().startswith("ROLLBACK"):
                continue  # SQLite refuses none
            if kind != "conflict" or WAITS.match(sql):
                yield from (Cut(kind, k, side) for side in sides)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Gate:
    """Counts the statements of this process, and cuts the run at one."""

    def __init__(self) -> None:
        self.cut: Cut | None = None
        self._sent: list[str] | None = None
        self._lock = threading.Lock()

    def arm(self, cut: Cut | None = None, sent: list[str] | None = None) -> None:
        self.cut, self._sent = cut, [] if sent is None else sent

    def disarm(self) -> list[str]:
        """Return what was sent since `arm`."""
        sent, self._sent = self._sent, None
        return sent or []

    def pass_by(self, sql: str, send: Way, **ways: Way) -> Any:
        """Send a statement, cut as `ways` say: by `kind_before` in its place, by `kind_after` when it is executed."""
        if self._sent is None:
            return send()
        with self._lock:
            self._sent.append(sql)
            cut = self.cut if self.cut and self.cut.k == len(self._sent) else Cut("", 0, "")
        ways |= {"kill_before": _die, "kill_after": _die}
        try:
            return ways[f"{cut.kind}_before"]() if cut.side == "before" else send()
        finally:  # also if the answer is an error
            if cut.side == "after":
                ways[f"{cut.kind}_after"]()

    def install(self) -> None:
        """Wrap the drivers, for connections that are opened from now on."""
        self._sqlite()
        self._psycopg()
        self._pymysql()

    def _sqlite(self) -> None:
        gate, connect = self, sqlite3.connect

        def fail(text: str, code: int) -> None:
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode = code
            raise error

        busy = partial(fail, "database is locked", sqlite3.SQLITE_BUSY)
        io = partial(fail, "disk I/O error", sqlite3.SQLITE_IOERR)

        def passing(name: str, base: type) -> Any:
            own = getattr(base, name)

            def call(self: Any, sql: str = name.upper(), *args: Any) -> Any:
                given = (sql, *args) if "execute" in name else ()
                if not given and not self.in_transaction:  # it sends nothing
                    return own(self)
                return gate.pass_by(sql, partial(own, self, *given), busy_before=busy, io_before=io)

            return call

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
                names = ("execute", "executemany", "executescript")
                return super().cursor(type("Cursor", (factory,), {name: passing(name, factory) for name in names}))

            commit = passing("commit", sqlite3.Connection)
            rollback = passing("rollback", sqlite3.Connection)

        for module in (sqlite3, sqlite3.dbapi2):
            setattr(module, "connect", partial(connect, factory=Connection))  # noqa: B010, else mypy compares it

    def _psycopg(self) -> None:
        import psycopg

        wait, gate = psycopg.Connection.wait, self

        def waits(connection: Any, gen: Any, *args: Any, **options: Any) -> Any:
            known: dict[str, Any] = gen.gi_frame.f_locals if getattr(gen, "gi_frame", None) else {}
            sql = known.get("query") or getattr(gen, "__name__", "wait")
            send = partial(wait, connection, gen, *args, **options)

            def lose() -> Any:
                with socket.socket(fileno=os.dup(connection.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)
                return send()  # raises what psycopg makes of it

            def lose_answer() -> None:
                connection.pgconn.finish()
                raise psycopg.OperationalError("server closed the connection unexpectedly")

            def conflict() -> Any:
                fails = "DO $$ BEGIN RAISE 'deadlock detected' USING ERRCODE = 'deadlock_detected'; END $$"
                return wait(connection, known["self"]._execute_gen(fails), *args, **options)

            return gate.pass_by(
                sql if isinstance(sql, str) else str(sql),
                send,
                lost_before=lose,
                lost_after=lose_answer,
                conflict_before=conflict,
            )

        setattr(psycopg.Connection, "wait", waits)  # noqa: B010

    def _pymysql(self) -> None:
        import pymysql

        gate, Connection = self, pymysql.connections.Connection
        query = Connection.query

        def passing(name: str, text: str) -> Any:
            own = getattr(Connection, name)

            def call(connection: Any, sql: Any = text, *args: Any, **options: Any) -> Any:
                given = (sql, *args) if name == "query" else ()

                def lose() -> Any:
                    connection._sock.shutdown(socket.SHUT_RDWR)
                    return own(connection, *given, **options)

                def lose_answer() -> None:
                    connection._force_close()
                    raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")

                def conflict() -> Any:
                    query(connection, "ROLLBACK")
                    return query(
                        connection, "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock'"
                    )

                return gate.pass_by(
                    sql.decode(errors="replace") if isinstance(sql, bytes) else sql,
                    partial(own, connection, *given, **options),
                    lost_before=lose,
                    lost_after=lose_answer,
                    conflict_before=conflict,
                )

            return call

        for name in ("query", "commit", "rollback", "begin", "_send_autocommit_mode"):
            setattr(Connection, name, passing(name, name.strip("_")))


GATE = Gate()
