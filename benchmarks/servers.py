"""The throwaway servers of the tests, for programs that measure without xq: a database, its drivers, what it uses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from tests import servers


class Measured(servers.Server):
    """A server with an empty database `q`. `inside` are the first words of commands that run elsewhere (ip netns)."""

    def __init__(self, *, host: str = "127.0.0.1", inside: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(**settings)
        self.host, self._inside = host, list(inside)

    def start(self) -> None:
        super().start()
        self.create("q")

    def connect(self) -> Any:
        """The administrator's own connection, by way of the socket."""
        raise NotImplementedError

    def _how(self) -> dict[str, Any]:
        how = super()._how()
        if (
            self._inside and (self.folder / "data").exists()
        ):  # it needs root to go there, and says itself who it is then
            return {name: value for name, value in how.items() if name not in ("user", "group", "extra_groups")}
        return how

    def processor_time(self) -> float:
        """The seconds of processor time that all processes of the server have used."""
        assert self._server
        found = list(_processes())
        ours = {self._server.pid}
        ours |= {pid for pid, parent, _ in found if parent in ours}
        return sum(ticks for pid, _, ticks in found if pid in ours) / os.sysconf("SC_CLK_TCK")


def _processes() -> list[tuple[int, int, int]]:
    """Each process: its id, its parent's, and the ticks that it and its dead children have used."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        found.append((int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15]))))
    return found


class Postgres(Measured, servers.Postgres):
    def _command(self) -> list[str]:
        return [*self._inside, *super()._command()]

    def _make(self) -> None:
        super()._make()
        with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 192.0.2.0/24 trust\n")

    def peewee(self, database: str, **options: Any) -> Any:
        return super().peewee(database, **{"host": str(self.folder)} | options)  # from here, wherever it listens

    def place(self) -> str:
        """What psycopg.connect takes."""
        return self.url("q")

    def connect(self) -> psycopg.Connection[Any]:
        where = f"host={self.folder} port={self.port} user={self.ADMINISTRATOR[0]} dbname=q"
        return psycopg.connect(where, autocommit=True)


class MariaDB(Measured, servers.MariaDB):
    def _command(self) -> list[str]:
        return [*self._inside, *super()._command()]

    def peewee(self, database: str, **options: Any) -> Any:
        return super().peewee(database, **{"unix_socket": str(self.folder / "socket")} | options)

    def place(self) -> dict[str, Any]:
        """What pymysql.connect takes."""
        where = {"host": self.host, "port": self.port, "user": self.USER, "database": "q"}
        return where | {"autocommit": True, "ssl_disabled": True}

    def connect(self) -> Any:
        socket = str(self.folder / "socket")
        return pymysql.connect(unix_socket=socket, user=self.ADMINISTRATOR[0], database="q", autocommit=True)


def answer(connection: Any, statement: str, values: Sequence[object] = ()) -> Any:
    """The first column of the first row that a statement gives, if it gives one."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement, values or None)
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None
