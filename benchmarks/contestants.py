"""Who is compared: hand-written SQL, which is the floor, and xq with more and more switched on.

Each has a database of its own, and the same durability. Each can be opened in another process and used by
several threads: what is handed round is a function of a `Place`.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import peewee as pw

import xq
from benchmarks.databases import Database

PAYLOAD = "https://example.org/a/page/of/some/length?with=arguments"
VALUES_AT_ONCE = 500  # rows of one INSERT: beyond, SQLite does not become faster


@dataclass(frozen=True)
class Place:
    """Where a contestant works."""

    database: Database
    table: str = "task"


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


class UnattendedMoves(Contestant):
    """A queue that moves several tasks at once as well."""

    @abstractmethod
    def put_many(self, n: int) -> object: ...

    @abstractmethod
    def take_many(self, n: int) -> Sequence[Any]: ...

    @abstractmethod
    def ack_many(self, tasks: Sequence[Any]) -> None: ...


class Floor(UnattendedMoves):
    """What one would write by hand for this database: one index, no owner, no time, no statistics.

    A connection and a cursor for each thread, which are kept.
    """

    key: ClassVar[str]  # the type of a key that the database counts up
    index: ClassVar[str]

    def __init__(self, place: Place, made: bool = False) -> None:
        """Makes the table as well, unless it is there already."""
        super().__init__(place)
        self._of_thread = threading.local()
        self.table = place.table
        columns = "payload TEXT NOT NULL, status VARCHAR(255) NOT NULL, priority INTEGER NOT NULL"
        if not made:
            self._run(f"CREATE TABLE IF NOT EXISTS {self.table} (id {self.key} PRIMARY KEY, {columns})")
            self._run(f"CREATE INDEX IF NOT EXISTS {self.table}_ready ON {self.table} {self.index}")

    @property
    def _cursor(self) -> Any:
        if not hasattr(self._of_thread, "cursor"):
            self._of_thread.connection = self.place.database.connect()
            self._of_thread.cursor = self._of_thread.connection.cursor()
        return self._of_thread.cursor

    def _run(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement, and return the cursor."""
        cursor = self._cursor
        cursor.execute(sql, values)
        return cursor

    def connect(self) -> None:
        self._run("SELECT 1").fetchall()

    def take(self) -> Any:
        return next(iter(self.take_many(1)), None)

    def close(self) -> None:
        if hasattr(self._of_thread, "cursor"):
            self._of_thread.connection.close()
            del self._of_thread.connection, self._of_thread.cursor


def in_order(rows: Sequence[Any]) -> Sequence[Any]:
    """Rows of id, payload, priority as they are to be done."""
    return sorted(rows, key=lambda row: (row[2], row[0]))


class SqliteFloor(Floor):
    """One statement a call."""

    key = "INTEGER"
    index = "(priority, id) WHERE status = 'R'"

    def __init__(self, place: Place, made: bool = False) -> None:
        super().__init__(place, made)
        table = self.table
        self._put = f"INSERT INTO {table} (payload, status, priority) VALUES "
        oldest = f"SELECT id FROM {table} WHERE status = 'R' ORDER BY priority, id LIMIT"
        self._take = f"UPDATE {table} SET status = 'T' WHERE id = ({oldest} 1) RETURNING id, payload, priority"
        self._take_many = f"UPDATE {table} SET status = 'T' WHERE id IN ({oldest} ?) RETURNING id, payload, priority"
        self._ack = f"DELETE FROM {table} WHERE id = ? AND status = 'T'"
        self._ack_many = f"DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?)) AND +status = 'T'"

    def put(self, payload: str = PAYLOAD) -> object:
        return self._run(f"{self._put} (?, 'R', 0)", (payload,)).lastrowid

    def take(self) -> Any:
        rows = self._run(self._take).fetchall()
        return rows[0] if rows else None

    def ack(self, task: Any) -> None:
        if self._run(self._ack, (task[0],)).rowcount != 1:
            raise LookupError(task)

    def put_many(self, n: int) -> object:
        self._run("BEGIN IMMEDIATE")
        for first in range(0, n, VALUES_AT_ONCE):
            count = min(VALUES_AT_ONCE, n - first)
            self._run(self._put + ", ".join(["(?, 'R', 0)"] * count), [PAYLOAD] * count)
        self._run("COMMIT")
        return n

    def take_many(self, n: int) -> Sequence[Any]:
        return in_order(self._run(self._take_many, (n,)).fetchall())

    def ack_many(self, tasks: Sequence[Any]) -> None:
        if self._run(self._ack_many, (json.dumps([task[0] for task in tasks]),)).rowcount != len(tasks):
            raise LookupError(tasks)


class PostgresFloor(Floor):
    """One statement a call, prepared; takers pass by the rows that others have locked."""

    key = "INTEGER GENERATED ALWAYS AS IDENTITY"
    index = "(priority, id) WHERE status = 'R'"

    def __init__(self, place: Place, made: bool = False) -> None:
        super().__init__(place, made)
        table = self.table
        self._put = f"INSERT INTO {table} (payload, status, priority) VALUES (%s, 'R', 0) RETURNING id"
        self._put_many = (
            f"INSERT INTO {table} (payload, status, priority) SELECT payload, 'R', 0 "
            "FROM unnest(%s::text[]) AS brought (payload) RETURNING id"
        )
        oldest = f"SELECT id FROM {table} WHERE status = 'R' ORDER BY priority, id LIMIT"
        locked = "FOR UPDATE SKIP LOCKED"
        returning = f"RETURNING {table}.id, payload, priority"
        # For a single one a little faster than the join, which a batch needs.
        self._take = f"UPDATE {table} SET status = 'T' WHERE id = ({oldest} 1 {locked}) {returning}"
        self._take_many = (
            f"WITH picked AS MATERIALIZED ({oldest} %s {locked}) "
            f"UPDATE {table} SET status = 'T' FROM picked WHERE {table}.id = picked.id {returning}"
        )
        self._ack = f"DELETE FROM {table} WHERE id = %s AND status = 'T'"
        self._ack_many = f"DELETE FROM {table} WHERE id = ANY(%s) AND status = 'T'"

    def put(self, payload: str = PAYLOAD) -> object:
        return self._run(self._put, (payload,)).fetchone()

    def take(self) -> Any:
        return self._run(self._take).fetchone()

    def ack(self, task: Any) -> None:
        if self._run(self._ack, (task[0],)).rowcount != 1:
            raise LookupError(task)

    def put_many(self, n: int) -> object:
        return self._run(self._put_many, ([PAYLOAD] * n,)).fetchall()

    def take_many(self, n: int) -> Sequence[Any]:
        return in_order(self._run(self._take_many, (n,)).fetchall())

    def ack_many(self, tasks: Sequence[Any]) -> None:
        if self._run(self._ack_many, ([task[0] for task in tasks],)).rowcount != len(tasks):
            raise LookupError(tasks)


class MariaFloor(Floor):
    """One statement a call, but for take: UPDATE returns no rows, and so a transaction reads, changes, commits."""

    key = "INTEGER AUTO_INCREMENT"
    index = "(status, priority, id)"  # there are no partial ones

    def __init__(self, place: Place, made: bool = False) -> None:
        super().__init__(place, made)
        table = self.table
        self._put = f"INSERT INTO {table} (payload, status, priority) VALUES "
        self._oldest = (
            f"SELECT id, payload, priority FROM {table} WHERE status = 'R' "
            "ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED"
        )
        self._taken = f"UPDATE {table} SET status = 'T' WHERE id IN %s"
        self._ack = f"DELETE FROM {table} WHERE id = %s AND status = 'T'"
        self._ack_many = f"DELETE FROM {table} WHERE id IN %s AND status = 'T'"

    def put(self, payload: str = PAYLOAD) -> object:
        return self._run(f"{self._put} (%s, 'R', 0)", (payload,)).lastrowid

    def put_many(self, n: int) -> object:
        return self._run(self._put + ", ".join(["(%s, 'R', 0)"] * n), [PAYLOAD] * n).lastrowid

    def take_many(self, n: int) -> Sequence[Any]:
        self._run("BEGIN")
        rows: Sequence[Any] = self._run(self._oldest, (n,)).fetchall()
        if rows:
            self._run(self._taken, ([row[0] for row in rows],))
        self._run("COMMIT")
        return rows

    def ack(self, task: Any) -> None:
        if self._run(self._ack, (task[0],)).rowcount != 1:
            raise LookupError(task)

    def ack_many(self, tasks: Sequence[Any]) -> None:
        if self._run(self._ack_many, ([task[0] for task in tasks],)).rowcount != len(tasks):
            raise LookupError(tasks)


FLOORS: Mapping[str, type[Floor]] = {
    "sqlite": SqliteFloor,
    "postgres": PostgresFloor,
    "mariadb": MariaFloor,
    "mysql": MariaFloor,
}


def floor(place: Place, made: bool = False) -> Floor:
    """The floor of the database that the place is in."""
    return FLOORS[place.database.engine](place, made)


def counted_floor(place: Place) -> Floor:
    """The floor's statements on a table where xq's triggers count: what is left to xq's own layer."""
    Xq(place, roles=("owner",)).close()
    return floor(place, made=True)


def model(db: pw.Database, table: str) -> type[pw.Model]:
    """The table of an application, with a field for each role that is measured."""
    fields = {
        "payload": pw.TextField(),
        "status": pw.CharField(default="R"),
        "priority": pw.IntegerField(default=0),
        "owner": pw.TextField(null=True),
        "runat": pw.DoubleField(null=True),
        "attempts": pw.IntegerField(default=0, constraints=[pw.SQL("DEFAULT 0")]),  # for statements without it
        "tube": pw.TextField(null=True),
        "utube": pw.CharField(null=True),
    }
    meta = type("Meta", (), {"database": db, "table_name": table})
    return type("Task", (pw.Model,), {**fields, "__module__": __name__, "Meta": meta})


class OfXq(UnattendedMoves):
    """A queue of xq, on whatever ORM."""

    queue: xq.Queue[Any]

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


class Existing(OfXq):
    """On the table of an application, which has a column for the status, and gets those of xq by install()."""

    def __init__(self, place: Place, features: Mapping[str, Any] | None = None) -> None:
        super().__init__(place)
        self.db = place.database.peewee()
        fields = {"payload": pw.TextField(), "status": pw.CharField(default="R")}
        meta = type("Meta", (), {"database": self.db, "table_name": place.table})
        self.model: Any = type("Task", (pw.Model,), {**fields, "__module__": __name__, "Meta": meta})
        self.db.create_tables([self.model])
        self.queue = xq.upgrade(self.model, {"status": "status"}, features or {})
        self.queue.install()
        self.queue.stats()

    def connect(self) -> None:
        self.db.connect(reuse_if_open=True)

    def close(self) -> None:
        self.db.close()


class Xq(OfXq):
    """On a model of Peewee, with these roles beside status and priority, and these features."""

    def __init__(
        self,
        place: Place,
        roles: Sequence[str] = (),
        features: Mapping[str, Any] | None = None,
        statistics: bool = True,
    ) -> None:
        super().__init__(place)
        self.db = place.database.peewee()
        self.model = model(self.db, place.table)
        mapped = {role: role for role in ("status", "priority", *roles)}
        self.queue = xq.upgrade(self.model, mapped, features or {})
        self.db.create_tables([self.model])
        self.queue.install()  # on some databases Peewee silently does nothing if the table exists
        self.queue.stats()  # the first call looks whether all is installed, which it must do before something is not
        if not statistics:
            # There is no option for it: it shows what counting costs.
            dialect: Any = self.queue.parts.executor.dialect
            for item in dialect.installer.objects.mine():
                if item.kind == "trigger":
                    self.db.execute_sql(item.drop)
            # Else it sees a second later that they are missing.
            for executor in (self.queue.parts.executor, self.queue.parts.inserts.executor):
                executor.review = lambda *_: None  # type: ignore[method-assign]

    def connect(self) -> None:
        self.db.connect(reuse_if_open=True)

    def close(self) -> None:
        self.db.close()
