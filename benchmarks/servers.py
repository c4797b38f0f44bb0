"""Throwaway servers for programs that measure without xq: a free loopback port, a temporary folder, gone at exit."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql

PATIENCE = 30  # seconds to come up
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Server:
    """A process in a folder of its own. `inside` is a command that runs it elsewhere (ip netns exec ...)."""

    user = "nobody"  # whom it runs as where we are root, which they refuse
    end = signal.SIGTERM  # what tells it to end

    def __init__(self, settings: Mapping[str, object], address: str, inside: Sequence[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="xqb"))  # short: the path of a Unix socket ends at 107 bytes
        self.address, self.port = address, free_port()
        self._settings = dict(settings)
        self._user = pwd.getpwnam(self.user) if os.geteuid() == 0 else None
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.prepare()
        command = [*inside, *self.command(self._settings)]
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **({} if inside else self._as_user()))
        self._until(self.answers)

    def prepare(self) -> None:
        """What is to be made before it can run."""

    def command(self, settings: Mapping[str, object]) -> list[str]:
        raise NotImplementedError

    def answers(self) -> None:
        """Raises while the server cannot be used."""
        raise NotImplementedError

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {"cwd": self.folder}
        return {"cwd": self.folder, "user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                done()
                return
            except (psycopg.Error, pymysql.Error, OSError):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.05)

    def processor_time(self) -> float:
        """The seconds of processor time that all processes of the server have used."""
        ours, ticks = {self.process.pid}, 0
        for _ in range(3):  # a wrapper, the server, its children
            ours |= {pid for pid, parent, _ in _processes() if parent in ours}
        ticks = sum(spent for pid, _, spent in _processes() if pid in ours)
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(self.end)  # through a wrapper as well: ip netns exec becomes the server
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


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


class Postgres(Server):
    end = signal.SIGINT  # without waiting for those who are connected

    def __init__(self, address: str = "127.0.0.1", inside: Sequence[str] = (), **settings: object) -> None:
        self._bin = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        super().__init__(settings, address, inside)

    def prepare(self) -> None:
        how = ["-U", "xq", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"]
        subprocess.run([self._bin / "initdb", "-D", self.folder / "data", *how], check=True, **QUIET, **self._as_user())
        with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 192.0.2.0/24 trust\n")

    def command(self, settings: Mapping[str, object]) -> list[str]:
        given = {"listen_addresses": self.address, "port": self.port, "unix_socket_directories": self.folder}
        given |= {"max_connections": 50, **settings}
        options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *options]
        return command

    def answers(self) -> None:
        self.connect().close()

    def dsn(self, host: str | None = None, port: int | None = None, **options: object) -> str:
        given = {"host": host or self.address, "port": port or self.port, "user": "xq", "dbname": "postgres", **options}
        return " ".join(f"{name}={value}" for name, value in given.items())

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(host=str(self.folder)), autocommit=True, **options)


class MariaDB(Server):
    user = "mysql"

    def __init__(self, address: str = "127.0.0.1", inside: Sequence[str] = (), **settings: object) -> None:
        super().__init__(settings, address, inside)

    def prepare(self) -> None:
        data = f"--datadir={self.folder / 'data'}"
        how = ["--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        if self._user:
            how.append(f"--user={self.user}")
        subprocess.run(["mariadb-install-db", *how], check=True, **QUIET)

    def command(self, settings: Mapping[str, object]) -> list[str]:
        given = {"datadir": self.folder / "data", "socket": self.folder / "s", "bind_address": self.address}
        given |= {"port": self.port, "skip_name_resolve": 1, **settings}
        options = [f"--{name}={value}" for name, value in given.items()]
        return ["mariadbd", "--no-defaults", *([f"--user={self.user}"] if self._user else []), *options]

    def answers(self) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS q")
            cursor.execute("CREATE USER IF NOT EXISTS xq")  # by TCP, with no right beyond its database
            cursor.execute("GRANT ALL ON q.* TO xq")

    def connect(self, **options: Any) -> Any:
        """A connection as administrator."""
        return pymysql.connect(unix_socket=str(self.folder / "s"), user="root", autocommit=True, **options)

    def place(self) -> dict[str, Any]:
        """What pymysql.connect takes."""
        return {"host": self.address, "port": self.port, "user": "xq", "database": "q", "autocommit": True}


class PgBouncer(Server):
    """A pool in front of a Postgres."""

    def __init__(self, postgres: Postgres, **settings: object) -> None:
        self._postgres = postgres
        super().__init__(settings, "127.0.0.1", ())

    def command(self, settings: Mapping[str, object]) -> list[str]:
        given = {"listen_addr": self.address, "listen_port": self.port, "auth_type": "any", **settings}
        lines = ["[databases]", f"postgres = host=127.0.0.1 port={self._postgres.port} user=xq", "[pgbouncer]"]
        (self.folder / "ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in given.items())]))
        return ["pgbouncer", str(self.folder / "ini")]

    def answers(self) -> None:
        psycopg.connect(self.dsn()).close()

    def dsn(self) -> str:
        return self._postgres.dsn(host=self.address, port=self.port)


def answer(connection: Any, statement: str, values: Sequence[object] = ()) -> Any:
    """The first column of the first row that a statement gives, if it gives one."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None
