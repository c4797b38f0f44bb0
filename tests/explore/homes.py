"""Where programs run: a process's queue on one database, and fresh databases by a copy of an installed one."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import peewee as pw

import xq
from tests.explore.zygote import STUCK, Zygote
from tests.servers import MariaDB, Postgres, Server, shared
from xq.adapters.peewee.connections import database_of
from xq.testing import Clock

if TYPE_CHECKING:
    from tests.explore.calls import Call

START = 1_700_000_000.0  # when each program begins
FIELDS = {"utube", "tube", "job", "priority"}  # what puts may bring, beside options
SERVERS: Mapping[str, type[Server]] = {"postgres": Postgres, "mariadb": MariaDB}
Address = Mapping[str, Any]  # the engine, and what Peewee's class is given


def nothing(world: World) -> None:
    """Do nothing: what is there before a call, or is to be done after it."""


def connect(address: Address) -> pw.Database:
    engine, name, where = address["engine"], address["name"], address["where"]
    if engine == "sqlite":
        return pw.SqliteDatabase(name, timeout=1)
    if engine == "postgres":
        return pw.PostgresqlDatabase(name, prefer_psycopg3=True, **where)
    return pw.MySQLDatabase(name, ssl_disabled=True, **where)


def model(db: pw.Database) -> Any:
    class Task(xq.Task):
        name = pw.TextField()
        size = pw.IntegerField(default=0)
        job = pw.CharField(null=True)
        utube = pw.CharField(null=True)

        class Meta:
            database = db

    return Task


class World:
    """One process: its queue `q`, the clock, what it took last (`t`), and the ledger outside of the database."""

    def __init__(self, address: Address, features: Mapping[str, Any], ledger: str = os.devnull) -> None:
        self.db, self.clock = connect(address), Clock(START)
        self.engine = address["engine"]
        self.q = self.queue(features)
        self.t: list[Any] = []
        self._numbers = itertools.count()
        self.ledger = ledger
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def queue(self, features: Mapping[str, Any]) -> Any:
        """Another handle to the queue, by these features."""
        roles = {role: role for role in ("priority", "tube", "attempts", "error")}
        roles |= {role: name for role, name in (("unique", "job"), ("utube", "utube")) if role in features}
        return xq.upgrade(model(self.db), roles, features, clock=self.clock)

    def note(self, what: str, *names: Any) -> None:
        """Add a line to the ledger."""
        os.write(self._ledger, f"{json.dumps([what, *names])}\n".encode())

    def reap(self) -> None:
        """Reap, as the maintenance thread does: under a test's clock there is none."""
        self.q.stats()
        reaper = database_of(self.db).reaper
        reaper.reap()
        while reaper.more:
            reaper.reap()

    # what is there before a call: each returns the world

    def row(self, **fields: Any) -> dict[str, Any]:
        """A new task, by a name that no other has."""
        return {"name": f"task {next(self._numbers)}", **fields}

    def rows(self, n: int, **fields: Any) -> list[dict[str, Any]]:
        return [self.row(**fields) for _ in range(n)]

    def put(self, n: int = 1, **given: Any) -> Self:
        fields = {name: given.pop(name) for name in FIELDS & given.keys()}
        return self.do("put_many", self.rows(n, **fields), **given)

    def take(self, n: int = 1, **options: Any) -> Self:
        self.t = self.q.take_many(n, **options)
        self.note("had", *[task.name for task in self.t])
        return self

    def tick(self, seconds: float) -> Self:
        self.clock.tick(seconds)
        return self

    def do(self, event: str, *args: Any, **options: Any) -> Self:
        """Call a method, for what it leaves."""
        getattr(self.q, event)(*args, **options)
        return self


class Home:
    """Fresh databases of a kind: what calls find is made once, and copied."""

    def __init__(self, engine: str, zygote: Zygote, folder: Path) -> None:
        self.engine, self.zygote, self.folder = engine, zygote, folder
        self._made: dict[str, str] = {}  # by what a call finds, the name of the database that has it

    def fresh(self, call: Call) -> Address:
        """Return a database in which the call's queue is installed, or only its table is there."""
        if call.base not in self._made:
            name = self._made[call.base] = f"explored_{len(self._made)}"
            self.make(name, call)
        return self.copy(self._made[call.base], call)

    def make(self, name: str, call: Call) -> None:
        self.zygote.run("make", address=self.address(name), name=call.name)

    def copy(self, name: str, call: Call) -> Address:
        raise NotImplementedError

    def address(self, name: str) -> Address:
        raise NotImplementedError

    def settle(self, address: Address) -> None:
        """Wait until the database has noticed that a process is gone."""
        raise NotImplementedError

    def close(self) -> None:
        return


class File(Home):
    """SQLite: a copy of a file."""

    def address(self, name: str) -> Address:
        return {"engine": self.engine, "name": str(self.folder / f"{name}.db"), "where": {}}

    def copy(self, name: str, call: Call) -> Address:
        found = self.address("run")
        for end in ("", "-wal", "-shm", "-xq"):
            with suppress(FileNotFoundError):
                os.remove(found["name"] + end)
        shutil.copyfile(self.address(name)["name"], found["name"])
        return found

    def settle(self, address: Address) -> None:
        with suppress(FileNotFoundError):
            os.utime(f"{address['name']}-xq", (0, 0))  # beside a new lock file no process is taken for dead


class OnServer(Home):
    """A server: the tables are emptied, and filled with what they had, 30 times as fast as to create a database."""

    # The connections to the database but this one. Its process closes a connection, and the server notices it later.
    OTHERS: ClassVar[Mapping[str, str]] = {
        "postgres": "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "mariadb": "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    }

    def __init__(self, engine: str, zygote: Zygote, folder: Path) -> None:
        super().__init__(engine, zygote, folder)
        self.server = shared(SERVERS[engine])
        self._kept: dict[str, tuple[pw.Database, dict[str, list[Any]]]] = {}  # a connection, and the rows of each table

    def address(self, name: str) -> Address:
        where = {"host": self.server.host, "port": self.server.port, "user": self.server.USER}
        return {"engine": self.engine, "name": name, "where": where}

    def make(self, name: str, call: Call) -> None:
        self._drop(name)
        self.server.create(name)
        super().make(name, call)
        db = connect(self.address(name))
        tables = ["task", *({*db.get_tables()} - {"task"})]  # first: its triggers write to the others
        self._kept[name] = db, {table: db.execute_sql(f"SELECT * FROM {table}").fetchall() for table in tables}

    def copy(self, name: str, call: Call) -> Address:
        if call.recovers is not nothing:  # it changes more than rows
            self.make(name, call)
        db, rows = self._kept[name]
        with db.atomic():
            for emptied in rows:
                db.execute_sql(f"DELETE FROM {emptied}")
            for table, row in ((table, row) for table, kept in rows.items() for row in kept):
                db.execute_sql(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)
        return self.address(name)

    def settle(self, address: Address) -> None:
        db, _ = self._kept[address["name"]]
        deadline = time.monotonic() + STUCK
        while db.execute_sql(self.OTHERS[self.engine]).fetchall():
            assert time.monotonic() < deadline, "the connections of a process that is gone do not end"
            time.sleep(0.001)

    def close(self) -> None:
        for name in list(self._kept):
            self._drop(name)

    def _drop(self, name: str) -> None:
        if name in self._kept:
            self._kept.pop(name)[0].close()
        self.server.drop(name)


HOMES: Mapping[str, type[Home]] = {"sqlite": File, **dict.fromkeys(SERVERS, OnServer)}
