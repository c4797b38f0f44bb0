"""The queue of one process, and fresh databases: copies of an installed one."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import peewee as pw

import xq
from tests.conftest import SERVERS
from tests.explore.zygote import STUCK, Zygote
from tests.servers import shared
from tests.steps import note
from xq.database.database import Database
from xq.testing import Clock

if TYPE_CHECKING:
    from tests.explore.calls import Call

START = 1_700_000_000.0  # when each program begins
FIELDS = {"utube", "tube", "job", "priority"}  # the fields that put() takes, beside options
Address = Mapping[str, Any]  # the engine, and what Peewee's class is given


def nothing(world: World) -> None:
    """Do nothing before a call, or after it."""


CONNECTS: Mapping[str, Callable[..., pw.Database]] = {
    "sqlite": partial(pw.SqliteDatabase, timeout=1),
    "postgres": partial(pw.PostgresqlDatabase, prefer_psycopg3=True),
    **dict.fromkeys(("mariadb", "mysql"), partial(pw.MySQLDatabase, ssl_disabled=True)),
}


def connect(address: Address) -> pw.Database:
    return CONNECTS[address["engine"]](address["name"], **address["where"])


def model(db: pw.Database) -> Any:
    class Task(xq.Task):
        name = pw.TextField()
        size = pw.IntegerField(default=0)
        job = pw.CharField(null=True)
        utube = pw.CharField(null=True)

        class Meta:
            database = db

    return Task


def paid(db: pw.Database) -> Any:
    """Return the model of a table of the application's own."""
    meta = type("Meta", (), {"database": db})
    return type("Paid", (pw.Model,), {"name": pw.CharField(), "Meta": meta})


class World:
    """One process: its queue `q`, its clock, the tasks that it took last (`t`), and a ledger outside the database."""

    def __init__(self, address: Address, features: Mapping[str, Any], ledger: str = os.devnull) -> None:
        self.db, self.clock = connect(address), Clock(START)
        self.engine, self.table = address["engine"], "task"
        self.q = self.queue(features)
        self.t: list[Any] = []
        self._numbers = itertools.count()
        self.ledger = Path(ledger)
        self.named: Callable[[Mapping[str, Any]], str] = lambda row: row["name"]
        self.tubes: Any = None
        self.tube: Any = None

    def queue(self, features: Mapping[str, Any]) -> Any:
        """Return another handle to the queue, with these features."""
        roles = {role: role for role in ("priority", "tube", "attempts", "error")}
        roles |= {role: name for role, name in (("unique", "job"), ("utube", "utube")) if role in features}
        return xq.upgrade(model(self.db), roles, features, clock=self.clock)

    def note(self, what: str, *names: Any) -> None:
        """Add a line to the ledger."""
        note(self.ledger, json.dumps([what, *names]))

    def reap(self) -> None:
        """Reap like the maintenance thread, which does not run under a test's clock."""
        self.q.stats()
        reaper = Database.of(self.q.parts.store).reaper
        reaper.reap()
        while reaper.more:
            reaper.reap()

    # the state before a call: each method returns the world

    def row(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of a new task with a unique name."""
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
        """Call a method of the queue, and drop its result."""
        getattr(self.q, event)(*args, **options)
        return self


class Run(NamedTuple):
    """How a job ended, what it returned, the statements that it sent, and what it left."""

    ended: str
    told: Any
    sent: Sequence[str]
    digest: dict[str, Any]


class Home:
    """Run programs on fresh databases of one kind, here SQLite: a file is made once, and copied for each run."""

    def __init__(self, engine: str, zygote: Zygote, folder: Path) -> None:
        self.engine, self.zygote, self.folder = engine, zygote, folder
        self.runs, self.known = 0, dict[Any, Any]()  # the references of pairs
        self._made: dict[str, str] = {}  # from Call.base to the name of the database

    def run(self, job: str, call: Call, **given: Any) -> Run:
        """Run a job on a fresh database, and recover in a fresh process."""
        ledger, sent = self.folder / "ledger", self.folder / "sent"
        for file in (ledger, sent):
            file.write_text("")
        kept = str(ledger) if job == "run" else os.devnull
        where: dict[str, Any] = {"address": self.fresh(call), "name": call.name, "ledger": kept}
        ended, told = self.zygote.run(job, **where, **given) or ("killed", None)
        self.settle(where["address"])
        self.runs += 1
        digest = self.zygote.run("recover", **where)
        return Run(ended, told, [*map(json.loads, sent.read_text().splitlines())], digest)

    def fresh(self, call: Call) -> Address:
        """Return a database in which the call's queue is installed, or only its tables are there."""
        if call.base not in self._made:
            self.make(name := f"explored_{len(self._made)}", call)
            self._made[call.base] = name
        return self.copy(self._made[call.base], call)

    def make(self, name: str, call: Call) -> None:
        self.zygote.run("make", address=self.address(name), name=call.name)

    def address(self, name: str) -> Address:
        return {"engine": self.engine, "name": str(self.folder / f"{name}.db"), "where": {}}

    def copy(self, name: str, call: Call) -> Address:
        found = self.address("run")
        for end in ("", "-wal", "-shm", "-xq"):
            Path(found["name"] + end).unlink(missing_ok=True)
        shutil.copyfile(self.address(name)["name"], found["name"])
        return found

    def settle(self, address: Address) -> None:
        """Wait until the database has detected the end of a process."""
        with suppress(FileNotFoundError):
            os.utime(f"{address['name']}-xq", (0, 0))  # xq takes no process for dead while the lock file is new

    def close(self) -> None:
        return


class OnServer(Home):
    """A server: each run empties and refills the tables. To create a database takes 30 times as long."""

    # The other connections to the database: a server detects the end of a process late.
    OTHERS: ClassVar[Mapping[str, str]] = {
        "postgres": "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        **dict.fromkeys(
            ("mariadb", "mysql"),
            "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
        ),
    }

    def __init__(self, engine: str, zygote: Zygote, folder: Path) -> None:
        super().__init__(engine, zygote, folder)
        self.server = shared(SERVERS[engine])
        self._kept: dict[str, tuple[pw.Database, dict[str, list[Any]]]] = {}  # a connection, and the rows by table

    def address(self, name: str) -> Address:
        where = {"host": self.server.host, "port": self.server.port, "user": self.server.USER}
        return {"engine": self.engine, "name": name, "where": where}

    def make(self, name: str, call: Call) -> None:
        self._drop(name)
        self.server.create(name)
        super().make(name, call)
        db = connect(self.address(name))
        # First a queue's table: its triggers write to the others.
        tables = sorted(db.get_tables(), key=lambda table: not table.endswith("task"))
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


HOMES: Mapping[str, type[Home]] = {"sqlite": Home, **dict.fromkeys(SERVERS, OnServer)}
