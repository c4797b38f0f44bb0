"""Who is compared: hand-written SQL, which is the floor, and xq with more and more switched on.

All have tables of their own in one file, and the same durability. Each can be opened in another process and used by
several threads: what is handed round is a function of a `Place`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peewee as pw

import xq

PATIENCE = 60  # seconds that a writer waits for the others
PAYLOAD = "https://example.org/a/page/of/some/length?with=arguments"
VALUES_AT_ONCE = 500  # rows of one INSERT: beyond, SQLite does not become faster


@dataclass(frozen=True)
class Place:
    """Where a contestant works: a file, a table in it, and what a commit waits for."""

    path: Path
    table: str = "task"
    synchronous: str = "normal"


class Contestant(ABC):
    """A queue in a table. What `take` returns is what `ack` is given."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def connect(self) -> None:  # noqa: B027 - most do so when they are made
        """Open what this thread needs, so that it is not measured."""

    @abstractmethod
    def put(self, payload: str = PAYLOAD) -> object: ...

    @abstractmethod
    def take(self) -> Any: ...

    @abstractmethod
    def ack(self, task: Any) -> None: ...

    def tidy(self) -> None:  # noqa: B027 - most have nothing to tidy
        """What its documentation says to do now and then. Called between the measurements, and not timed."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this thread has open."""


class Batches(Contestant):
    """A queue that moves several tasks at once as well."""

    @abstractmethod
    def put_many(self, n: int) -> object: ...

    @abstractmethod
    def take_many(self, n: int) -> Sequence[Any]: ...

    @abstractmethod
    def ack_many(self, tasks: Sequence[Any]) -> None: ...


class Floor(Batches):
    """What one would write by hand: one index, one statement a call, no owner, no time, no statistics."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._of_thread = threading.local()
        table = place.table
        self._put = f"INSERT INTO {table} (payload, status, priority) VALUES "
        oldest = f"SELECT id FROM {table} WHERE status = 'R' ORDER BY priority, id LIMIT"
        self._take = f"UPDATE {table} SET status = 'T' WHERE id = ({oldest} 1) RETURNING id, payload, priority"
        self._take_many = f"UPDATE {table} SET status = 'T' WHERE id IN ({oldest} ?) RETURNING id, payload, priority"
        self._ack = f"DELETE FROM {table} WHERE id = ? AND status = 'T'"
        self._ack_many = f"DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?)) AND +status = 'T'"
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table} "
            "(id INTEGER PRIMARY KEY, payload TEXT NOT NULL, status TEXT NOT NULL, priority INTEGER NOT NULL)"
        )
        self._connection.execute(
            f"CREATE INDEX IF NOT EXISTS {table}_ready ON {table} (priority, id) WHERE status = 'R'"
        )

    @property
    def _connection(self) -> sqlite3.Connection:
        """The connection of this thread."""
        if not hasattr(self._of_thread, "connection"):
            connection = sqlite3.connect(self.place.path, isolation_level=None, timeout=PATIENCE)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self.place.synchronous}")
            self._of_thread.connection = connection
        opened: sqlite3.Connection = self._of_thread.connection
        return opened

    def connect(self) -> None:
        self._connection.execute("SELECT 1")

    def put(self, payload: str = PAYLOAD) -> object:
        return self._connection.execute(f"{self._put} (?, 'R', 0)", (payload,)).lastrowid

    def take(self) -> Any:
        rows = self._connection.execute(self._take).fetchall()
        return rows[0] if rows else None

    def ack(self, task: Any) -> None:
        if self._connection.execute(self._ack, (task[0],)).rowcount != 1:
            raise LookupError(task)

    def put_many(self, n: int) -> object:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        for first in range(0, n, VALUES_AT_ONCE):
            count = min(VALUES_AT_ONCE, n - first)
            connection.execute(self._put + ", ".join(["(?, 'R', 0)"] * count), [PAYLOAD] * count)
        connection.execute("COMMIT")
        return n

    def take_many(self, n: int) -> Sequence[Any]:
        return sorted(self._connection.execute(self._take_many, (n,)).fetchall(), key=lambda row: (row[2], row[0]))

    def ack_many(self, tasks: Sequence[Any]) -> None:
        keys = json.dumps([task[0] for task in tasks])
        if self._connection.execute(self._ack_many, (keys,)).rowcount != len(tasks):
            raise LookupError(tasks)

    def close(self) -> None:
        self._connection.close()
        del self._of_thread.connection


def model(db: pw.Database, table: str) -> type[pw.Model]:
    """The table of an application, with a field for each role that is measured."""
    fields = {
        "payload": pw.TextField(),
        "status": pw.CharField(default="R"),
        "priority": pw.IntegerField(default=0),
        "owner": pw.TextField(null=True),
        "runat": pw.DoubleField(null=True),
        "attempts": pw.IntegerField(default=0),
        "tube": pw.TextField(null=True),
    }
    meta = type("Meta", (), {"database": db, "table_name": table})
    return type("Task", (pw.Model,), {**fields, "__module__": __name__, "Meta": meta})


class Xq(Batches):
    """xq, with these roles beside status and priority, and these features."""

    def __init__(
        self,
        place: Place,
        roles: Sequence[str] = (),
        features: Mapping[str, Any] | None = None,
        statistics: bool = True,
        database: type[pw.SqliteDatabase] = pw.SqliteDatabase,
    ) -> None:
        super().__init__(place)
        self.db = database(str(place.path), timeout=PATIENCE, pragmas={"synchronous": place.synchronous})
        self.model = model(self.db, place.table)
        mapped = {role: role for role in ("status", "priority", *roles)}
        self.queue: xq.Queue[Any] = xq.upgrade(self.model, mapped, features or {})
        self.db.create_tables([self.model])
        self.queue.stats()  # the first call looks whether all is installed, which it must do before something is not
        if not statistics:
            # There is no option for it: it shows what counting costs. The owner must be a role, since the same
            # triggers clear the side table.
            for event in ("insert", "update", "delete"):
                self.db.execute_sql(f'DROP TRIGGER "{place.table}_xq_{event}"')

    def connect(self) -> None:
        self.db.connect(reuse_if_open=True)

    def put(self, payload: str = PAYLOAD) -> object:
        return self.queue.put({"payload": payload})

    def take(self) -> Any:
        return self.queue.take()

    def ack(self, task: Any) -> None:
        self.queue.ack(task)

    def put_many(self, n: int) -> object:
        return self.queue.put_many([{"payload": PAYLOAD}] * n)

    def take_many(self, n: int) -> Sequence[Any]:
        return self.queue.take_many(n)

    def ack_many(self, tasks: Sequence[Any]) -> None:
        self.queue.ack_many(tasks)

    def close(self) -> None:
        self.db.close()
