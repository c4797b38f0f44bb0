"""What it is measured on: a file, or a throwaway server with the settings that its makers ship.

A `Home` is where databases are made and is this process's own; a `Database` is the address of one, and can be handed to
another process.
"""

from __future__ import annotations

import re
import secrets
import shutil
import sqlite3
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import peewee as pw

from benchmarks import machine
from tests import servers

PATIENCE = 60  # seconds that a writer waits for the others
UNDONE = 1_000  # transactions of which InnoDB may still keep the old versions, for it to count as quiet


@dataclass(frozen=True)
class Database(ABC):
    """One database: `where` it is, and whether each commit waits for the disk."""

    where: str
    durable: bool = False

    engine: ClassVar[str]

    @abstractmethod
    def connect(self) -> Any:
        """A new connection of the driver alone, on which each statement is a transaction."""

    @abstractmethod
    def peewee(self) -> pw.Database: ...

    @abstractmethod
    def django(self) -> dict[str, Any]:
        """An entry of Django's setting DATABASES."""

    @abstractmethod
    def numbers(self, n: int) -> str:
        """Something with `n` rows, for a FROM."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that it occupies, without its log."""

    @abstractmethod
    def settle(self) -> None:
        """Have done what the database puts off, so that no contestant pays for the one before."""


@dataclass(frozen=True)
class Sqlite(Database):
    engine = "sqlite"

    @property
    def synchronous(self) -> str:
        return "full" if self.durable else "normal"

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.where, isolation_level=None, timeout=PATIENCE)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        return connection

    def peewee(self) -> pw.Database:
        return pw.SqliteDatabase(self.where, timeout=PATIENCE, pragmas={"synchronous": self.synchronous})

    def django(self) -> dict[str, Any]:
        options = {
            "timeout": PATIENCE,
            "transaction_mode": "IMMEDIATE",
            "init_command": f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {self.synchronous}",
        }
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.where, "OPTIONS": options}

    def numbers(self, n: int) -> str:
        return f"(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}) SELECT i FROM n)"

    def size(self) -> int:
        self.settle()
        return Path(self.where).stat().st_size

    def settle(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the log goes into the file


@dataclass(frozen=True)
class Postgres(Database):
    engine = "postgres"

    @property
    def synchronous_commit(self) -> str:
        return "on" if self.durable else "off"

    @property
    def options(self) -> str:
        return f"-c synchronous_commit={self.synchronous_commit}"

    def connect(self) -> Any:
        import psycopg

        # Prepared from the first call on: 2.7 times as many calls.
        return psycopg.connect(self.where, autocommit=True, prepare_threshold=0, options=self.options)

    def peewee(self) -> pw.Database:
        return pw.PostgresqlDatabase(self.where, prefer_psycopg3=True, options=self.options)

    def django(self) -> dict[str, Any]:
        # psycopg's own default, which Django changes: what comes again is prepared, unless a pooler stands between.
        return on_server("postgresql", self.where, {"options": self.options, "prepare_threshold": 5})

    def numbers(self, n: int) -> str:
        return f"generate_series(1, {n}) AS n (i)"

    def size(self) -> int:
        with closing(self.connect()) as connection:
            ((found,),) = connection.execute("SELECT pg_database_size(current_database())").fetchall()
        return int(found)

    def settle(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute("VACUUM")


@dataclass(frozen=True)
class MariaDB(Database):
    engine = "mariadb"

    @property
    def _address(self) -> Mapping[str, Any]:
        url = urlsplit(self.where)
        login = {"user": url.username or "root", "password": url.password or ""}
        return {"host": url.hostname, "port": url.port, "database": url.path.lstrip("/"), **login}

    def connect(self) -> Any:
        import pymysql

        return pymysql.connect(**self._address, charset="utf8mb4", autocommit=True)

    def peewee(self) -> pw.Database:
        return pw.MySQLDatabase(**self._address)

    def django(self) -> dict[str, Any]:
        import pymysql

        pymysql.install_as_MySQLdb()
        return on_server("mysql", self.where, {})

    def numbers(self, n: int) -> str:
        return f"seq_1_to_{n}"

    def size(self) -> int:
        here = "FROM information_schema.tables WHERE table_schema = database()"
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            if cursor.execute(f"SELECT table_name {here}"):
                cursor.execute(f"ANALYZE TABLE {', '.join(name for (name,) in cursor.fetchall())}")
            cursor.execute(f"SELECT SUM(data_length + index_length) {here}")
            return int(cursor.fetchone()[0] or 0)

    def settle(self) -> None:
        deadline = time.monotonic() + PATIENCE
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            while time.monotonic() < deadline:
                cursor.execute("SHOW GLOBAL STATUS LIKE 'innodb_history_list_length'")
                if int(cursor.fetchone()[1]) < UNDONE:
                    return
                time.sleep(0.01)


@dataclass(frozen=True)
class MySQL(MariaDB):
    engine = "mysql"

    def numbers(self, n: int) -> str:
        ordinals = "COLUMNS (seq FOR ORDINALITY)"
        return f"JSON_TABLE(CONCAT('[0', REPEAT(',0', {n} - 1), ']'), '$[*]' {ordinals}) AS numbers"


def on_server(engine: str, where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of Django's setting DATABASES."""
    url = urlsplit(where)
    login = {"USER": url.username or "root", "PASSWORD": url.password or "", "NAME": url.path.lstrip("/")}
    there = {"HOST": url.hostname or "", "PORT": str(url.port or "")}
    return {"ENGINE": f"django.db.backends.{engine}", **login, **there, "OPTIONS": dict(options)}


def software(db: pw.Database) -> str:
    """The database, if it is on a server its driver too, with their versions."""
    if isinstance(db, pw.SqliteDatabase):
        return f"SQLite {sqlite3.sqlite_version}"
    with db.connection_context():
        ((told,),) = db.execute_sql("SELECT version()").fetchall()
    title, driver = "MariaDB" if "MariaDB" in told else "MySQL", "pymysql"
    if isinstance(db, pw.PostgresqlDatabase):
        title, driver = "PostgreSQL", "psycopg"
    return f"{title} {re.search('[0-9.]+', told)[0]}, {driver} {version(driver)}"  # type: ignore[index]


class Home(ABC):
    """Where databases of one kind are made. They are gone with it."""

    engine: ClassVar[str]
    title: ClassVar[str]  # of its tables in the results
    pace: ClassVar[int]  # how many times as many calls as the slowest one makes it is asked for
    commits: ClassVar[Mapping[bool, str]]  # what says whether a commit waits for the disk

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Why there can be none here, in words; None when there can."""

    @abstractmethod
    def new(self, name: str, durable: bool = False) -> Database:
        """An empty database. All that are used at a time must wait for the same at a commit."""

    @abstractmethod
    def describe(self) -> str:
        """What is measured on: the machine, and the database with its settings."""

    @abstractmethod
    def close(self) -> None: ...


class Files(Home):
    engine, title, pace = "sqlite", "SQLite", 4
    commits = {False: "synchronous=NORMAL", True: "synchronous=FULL"}

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="xq-bench-"))
        self._numbers = count()

    @classmethod
    def missing(cls) -> str | None:
        return None

    def new(self, name: str, durable: bool = False) -> Database:
        return Sqlite(str(self.folder / f"{next(self._numbers)}-{name}.db"), durable)

    def describe(self) -> str:
        return machine.describe(self.folder, software(self.new("none").peewee()))

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # a thread that ends may remove files of its own


class OnServer(Home):
    """A server of one's own, or one that is there and stays. Its settings are its makers', but for those named here."""

    kind: ClassVar[type[servers.Server]]
    database: ClassVar[type[Database]]
    settings: ClassVar[Mapping[str, str]]

    def __init__(self, server: servers.Server | None = None) -> None:
        self._own = server is None
        self._made: list[str] = []
        self.server = server or self.kind(durable=True, **self.settings)
        if self._own:
            self.server.start()

    @classmethod
    def missing(cls) -> str | None:
        return cls.kind.missing()

    def new(self, name: str, durable: bool = False) -> Database:
        made = f"bench_{secrets.token_hex(4)}"
        self.server.create(made)
        self._made.append(made)
        return self.database(self.server.url(made), durable)

    def describe(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        user, database = self.server.ADMINISTRATOR
        own = self.server.peewee(database, user=user)
        return machine.describe(self.server.folder, f"{software(own)}, {settings}")

    def close(self) -> None:
        if self._own:
            self.server.remove()
        else:
            for made in self._made:
                self.server.drop(made)


class PostgresServer(OnServer):
    engine, title, pace = "postgres", "PostgreSQL", 2
    commits = {False: "synchronous_commit=off", True: "synchronous_commit=on"}
    kind, database = servers.Postgres, Postgres
    settings = {"shared_buffers": "512MB", "max_wal_size": "8GB"}


class MariaServer(OnServer):
    engine, title, pace = "mariadb", "MariaDB", 1
    commits = {False: "innodb_flush_log_at_trx_commit=2", True: "innodb_flush_log_at_trx_commit=1"}
    kind, database = servers.MariaDB, MariaDB
    settings = {"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "1G"}

    def new(self, name: str, durable: bool = False) -> Database:
        # It has no such setting for one connection.
        self.server.run("SET " + ", ".join(f"GLOBAL {each}" for each in self.commits[durable].split(", ")))
        return super().new(name, durable)


class MySQLServer(MariaServer):
    engine, title = "mysql", "MySQL"
    commits = {
        False: "innodb_flush_log_at_trx_commit=2, sync_binlog=0",
        True: "innodb_flush_log_at_trx_commit=1, sync_binlog=1",
    }
    kind, database = servers.MySQL, MySQL
    settings = {"innodb_buffer_pool_size": "1G", "innodb_redo_log_capacity": "1G"}


HOMES: dict[str, type[Home]] = {home.engine: home for home in (Files, PostgresServer, MariaServer, MySQLServer)}
