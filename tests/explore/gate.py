"""Cut a program at one of its statements, at the drivers: below xq, and below each ORM.

`GATE.arm(cut, path)` counts the statements from then on, writes them to the file, and cuts at one. Each round trip of
sqlite3, psycopg, pymysql and asyncmy counts, in an event loop or not, BEGIN and COMMIT of each ORM included. Where it
can, the database itself does what the cut is: a lost connection is closed, and the server raises the conflict and rolls
back.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Send = Callable[[], Any]
Ways = Mapping[str, Callable[[Any, Send], Any]]  # by kind and side, with the connection and what sends the statement


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
    "mysql": ON_SERVERS,
}
# The statements that may wait for row locks on a server, but for those single ones by which a process registers.
WAITS = re.compile(
    r"(?!.*\b(into|from) xq_(alive|session)\b)"
    r"(\s*(set statement \S+ = \S+ for )?(insert|update|delete|with|begin not atomic)\b|.*\bfor (update|share)\b)",
    re.I | re.S,
)


def cuts(engine: str, sent: Sequence[str]) -> Iterator[Cut]:
    """Yield all cuts of a run that sends these statements."""
    for k, sql in enumerate(sent, 1):
        for kind, sides in KINDS[engine].items():
            if kind in ("busy", "io") and sql.upper().startswith("ROLLBACK"):
                continue  # SQLite never fails there
            if kind != "conflict" or WAITS.match(sql):
                yield from (Cut(kind, k, side) for side in sides)


class Gate:
    """Counts the statements of this process, and cuts the run at one."""

    def __init__(self) -> None:
        self.cut: Cut | None = None
        self.path: Path | None = None  # where the statements are written: another process may read them
        self._n = 0
        self._lock = threading.Lock()

    def arm(self, cut: Cut | None, path: Path | None) -> None:
        self.cut, self.path, self._n = cut, path, 0

    def disarm(self) -> None:
        self.path = None

    def wrap(self, owner: Any, name: str, sql_of: Callable[..., Any], ways: Ways, in_a_loop: bool = False) -> None:
        """Have each call of a driver's method pass, if `sql_of` returns the statement that it sends."""
        own = getattr(owner, name)

        def call(connection: Any, *args: Any, **options: Any) -> Any:
            with self._cut(
                sql_of(connection, *args), partial(own, connection, *args, **options), connection, ways
            ) as way:
                return way()

        async def awaited(connection: Any, *args: Any, **options: Any) -> Any:
            with self._cut(
                sql_of(connection, *args), partial(own, connection, *args, **options), connection, ways
            ) as way:
                return await way()

        setattr(owner, name, awaited if in_a_loop else call)

    @contextmanager
    def _cut(self, sql: Any, send: Send, connection: Any, ways: Ways) -> Iterator[Send]:
        if not (sql and self.path):
            yield send
            return
        told = sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
        with self._lock, open(self.path, "a") as file:
            file.write(f"{json.dumps(told)}\n")
            self._n += 1
            cut = self.cut if self.cut and self.cut.k == self._n else Cut("", 0, "")
            if cut.kind == "conflict" and not WAITS.match(told):  # this run has sent others than the reference
                cut = Cut("", 0, "")
        way = partial(ways[f"{cut.kind} {cut.side}"], connection, send) if cut.kind else send
        try:
            yield way if cut.side == "before" else send
        finally:  # also if the answer is an error
            if cut.side == "after":
                way()


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


KILLS: Ways = {"kill before": _die, "kill after": _die}


def _sqlite() -> None:
    connect = sqlite3.connect

    def fails(text: str, code: int, *_: Any) -> None:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        raise error

    busy = partial(fails, "database is locked", sqlite3.SQLITE_BUSY)
    io = partial(fails, "disk I/O error", sqlite3.SQLITE_IOERR)
    ways: Ways = {**KILLS, "busy before": busy, "io before": io}

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
            passing = type("Cursor", (factory,), {})
            for name in ("execute", "executemany", "executescript"):
                GATE.wrap(passing, name, lambda _, sql, *args: sql, ways)
            return super().cursor(passing)

    for name in ("COMMIT", "ROLLBACK"):  # outside of a transaction they send nothing
        GATE.wrap(Connection, name.lower(), lambda db, name=name: name * db.in_transaction, ways)
    for module in (sqlite3, sqlite3.dbapi2):
        setattr(module, "connect", partial(connect, factory=Connection))  # noqa: B010, else mypy compares it


def _psycopg(Connection: Any, in_a_loop: bool) -> None:
    wait = Connection.wait
    deadlock = "DO $$ BEGIN RAISE 'deadlock detected' USING ERRCODE = 'deadlock_detected'; END $$"

    def sql_of(_: Any, gen: Any, *args: Any) -> Any:
        known: dict[str, Any] = gen.gi_frame.f_locals if getattr(gen, "gi_frame", None) else {}
        return known.get("query") or getattr(gen, "__name__", "wait")

    def lose(connection: Any, send: Send) -> Any:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        return send()  # raises what psycopg makes of it

    def lose_answer(connection: Any, _: Send) -> None:
        connection.pgconn.finish()
        raise connection.OperationalError("server closed the connection unexpectedly")

    def conflict(connection: Any, _: Send) -> Any:
        return wait(connection, connection.cursor()._execute_gen(deadlock))

    ways: Ways = {**KILLS, "lost before": lose, "lost after": lose_answer, "conflict before": conflict}
    GATE.wrap(Connection, "wait", sql_of, ways, in_a_loop)


def _mysql(Connection: Any, in_a_loop: bool) -> None:
    query = Connection.query
    deadlock = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock'"

    def lose(connection: Any, send: Send) -> Any:
        end = connection._transport.get_extra_info("socket") if in_a_loop else connection._sock
        end.shutdown(socket.SHUT_RDWR)
        return send()

    def lose_answer(connection: Any, _: Send) -> None:
        (connection.close if in_a_loop else connection._force_close)()
        raise connection.OperationalError(2013, "Lost connection to MySQL server during query")

    def conflict(connection: Any, _: Send) -> Any:
        return query(connection, f"BEGIN NOT ATOMIC ROLLBACK; {deadlock}; END")

    ways: Ways = {**KILLS, "lost before": lose, "lost after": lose_answer, "conflict before": conflict}
    GATE.wrap(Connection, "query", lambda _, sql, *args: sql, ways, in_a_loop)
    for name in ("commit", "rollback", "begin", "_send_autocommit_mode"):
        GATE.wrap(Connection, name, lambda *_, name=name: name.strip("_"), ways, in_a_loop)


GATE = Gate()


def install() -> None:
    """Wrap the drivers, for connections that are opened from now on."""
    import asyncmy
    import psycopg
    import pymysql

    _sqlite()  # aiosqlite's, too
    _psycopg(psycopg.Connection, in_a_loop=False)
    _psycopg(psycopg.AsyncConnection, in_a_loop=True)
    _mysql(pymysql.connections.Connection, in_a_loop=False)
    _mysql(asyncmy.connection.Connection, in_a_loop=True)
