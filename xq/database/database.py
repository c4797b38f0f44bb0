"""A database of this process: one object for all queues of a connection pool, which sessions and threads belong to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, cast

from xq.adapters.databases.shared import SharedSql
from xq.core.clock import Clock
from xq.core.errors import ConfigurationError, NotInstalled
from xq.core.forking import at_fork
from xq.core.ports import OUTCOME_UNKNOWN, REFUSALS, Connections, ErrorKind, Row
from xq.database.members import Owner, members_of, owners
from xq.database.transactions import Transactions

_making = threading.RLock()


class Database(Transactions):
    """A database, as the ORM of this process connects to it. The ORM's own object keeps it alive, and nothing else."""

    def __init__(self, key: tuple[object, ...], store: Connections) -> None:
        self.key = key  # what the ORM connects to
        self.store = store  # its connections, which must not keep the ORM's object alive
        self._kinds: Mapping[str, type[SharedSql]] = {}

    @classmethod
    def at(
        cls, kept: dict[Any, Any], name: Hashable, key: tuple[object, ...], connect: Callable[[], Connections]
    ) -> Database:
        """Return the database that an ORM keeps in `kept` under this name: a new one if that has another key."""
        with _making:
            found: Database | None = kept.get(name)
            if found is None or found.key != key:
                found = kept[name] = cls(key, connect())
            return found

    @classmethod
    def of(cls, store: Connections) -> Database:
        """Return the database that these connections now reach. Raises ConfigurationError if there is none yet."""
        if (found := store.database) is None:
            raise ConfigurationError(f"{store.name} has no database yet")
        return cast(Database, found)

    def speaks(self, kinds: Mapping[str, type[SharedSql]]) -> None:
        """Set the SQL of each engine: before the first text runs."""
        self._kinds = kinds

    @cached_property
    def sql(self) -> SharedSql:
        """The SQL of what its queues share. It names no queue."""
        return self._kinds[self.store.engine]()

    @property
    def sql_of_files(self) -> SharedSql:
        """The same, for what watches the files that have its queues: one in a schema of SQLite may have its own."""
        self.sql.schemas = ("main", *{queue.schema for queue in self.queues} - {"", "main"})
        return self.sql

    # what belongs to it

    @property
    def owners(self) -> list[Owner]:
        """What may own tasks in it, installed or not."""
        return [owner for owner in members_of(owners) if owner.home is self]

    @property
    def queues(self) -> list[Owner]:
        return [owner for owner in self.owners if owner.executor is not None]

    @property
    def is_installed(self) -> bool:
        """Whether a queue of this process is installed in it, and so the tables that all share."""
        return any(queue.installed for queue in self.queues)

    @property
    def clock(self) -> Clock | None:
        """The clock of a test, if each queue that is in use has one."""
        clocks = [queue.executor.clock for queue in self.queues if queue.executor and queue.executor.bound]
        return clocks[0] if clocks and None not in clocks else None

    # running SQL

    def values(self) -> dict[str, Any]:
        """Return the named values that every text may use: the time of a test's clock, or None."""
        return {"now": None if (clock := self.clock) is None else clock.now}

    def run(self, sql: str, values: dict[str, Any] | None = None) -> list[Row]:
        """Run a text of `sql`, with the values of `values()` beside its own, and return the rows.

        Outside of a transaction, retry it after a conflict (a deadlock). Raises NotInstalled if the tables are gone.
        """
        run, given = self.sql.query(sql), {**self.values(), **(values or {})}
        connection = self.store.ready()
        within = connection.in_transaction
        return self.explained(lambda: run(connection, given), lambda: run(self.store.ready(), given), within)

    @property
    def begin_writing(self) -> str:
        return self.sql.begin_writing

    def explain(self, error: Exception) -> None:
        # After these a look would wait for the same lock again, or query within a transaction that cannot.
        known = (ErrorKind.LOCKED, ErrorKind.CONFLICT, *REFUSALS, *OUTCOME_UNKNOWN, ErrorKind.DENIED)
        aborted = self.store.driver.errors_end_transactions and self.store.in_transaction()
        if aborted or self.store.classify(error) in known:
            return
        try:
            with self.store.bookkeeping():
                self.store.execute(self.sql.queues)
        except Exception as another:
            if self.store.classify(another) is ErrorKind.NOT_DATABASE:
                raise
            if self.store.classify(another) is ErrorKind.PERMANENT:
                missing = [f"there is no table {self.sql.table}"]
                raise NotInstalled(self.store.name, missing, "install() a queue in it") from error


def _in_child() -> None:
    global _making
    _making = threading.RLock()


at_fork("locks", _in_child)
