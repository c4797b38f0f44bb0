"""How the statements of one queue run: named values, the context of its triggers, and what was committed."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from xq.adapters.databases.named import by_position, in_order
from xq.adapters.databases.terms import Terms
from xq.core.compile import Statement
from xq.core.generated import arguments
from xq.core.ports import Connection, Connections, Row, Run, Values

InOrder = Callable[[Mapping[str, Any]], Sequence[Any]]

_savepoints = itertools.count(1)  # numbers of the noted savepoints of this process


class Statements(Terms):
    """Runs SQL with named values on a connection."""

    def query(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> Run:
        """Return a function that runs SQL with named values; `brought` names the values in `rows`, as in `runner`."""
        text, values_of = self.filled(sql, brought, width)
        return lambda connection, values: connection.execute(text, values_of(values))

    def filled(self, sql: str, brought: Sequence[str] = (), width: int = 0) -> tuple[str, InOrder]:
        """Return SQL with the driver's placeholders, and a function that lists their values in this order."""
        text, names = by_position(sql, self.placeholder)
        return text, arguments(names, brought, width) if width else in_order(names)

    def execute(self, store: Connection | Connections, sql: str, values: Values) -> list[Row]:
        """Run SQL with named values."""
        text, names = by_position(sql, self.placeholder)
        return store.execute(text, [values[name] for name in names])

    def change(self, store: Connections, statement: Statement, values: Values, event: str = "") -> int:
        """Run a statement without rows and return how many it changed. `event` is for the triggers."""
        text, values_of = self.filled(statement.sql)

        def run(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return [(connection.change(text, values_of(values)),)]

        ((changed,),) = self.in_context(run, event)(store.ready(), {**values})
        return int(changed)

    @abstractmethod
    def in_context(self, run: Run, event: str) -> Run:
        """Return `run` with the event context of this event."""

    def one_at_a_time(self, store: Connection | Connections, within: bool) -> None:
        """Lock the queue until the transaction ends: callers of this method run one at a time.

        The caller sees what the previous one has committed. If the application's transaction (`within`) has an older
        snapshot, this raises a conflict.
        """
        if self.begin_writing:
            store.change(self.begin_writing)

    # A query whose result differs if other tables are found by the names of the queue's. Its last value is a message if
    # the database hides rows from this user, else NULL.
    found_tables = ""

    # what was committed

    # Creates a temporary table of savepoint numbers, if the database needs one. A rollback removes the number that was
    # noted in it, so a number that is still there was committed.
    savepoints: str
    savepoint_noted: ClassVar[str] = "INSERT INTO xq_savepoint (number) VALUES (:savepoint) RETURNING number"
    savepoint_kept: ClassVar[str] = "DELETE FROM xq_savepoint WHERE number = :savepoint RETURNING number"

    def note_savepoint(self, store: Connections) -> int:
        """Note the innermost savepoint, or the transaction, and return its number for `was_committed`."""
        ((number,),) = self._of_savepoints(store, self.savepoint_noted, next(_savepoints))
        return int(number)

    def was_committed(self, store: Connections, savepoint: int) -> bool:
        """Return whether a noted savepoint was committed. Call it after the end of the transaction."""
        return bool(self._of_savepoints(store, self.savepoint_kept, savepoint))

    def _of_savepoints(self, store: Connections, sql: str, savepoint: int) -> list[Row]:
        if self.savepoints:
            store.execute(self.savepoints)  # each time: rolling back the savepoint that created the table removes it
        return self.execute(store, sql, {"savepoint": savepoint})

    # connections

    def file(self, store: Connections) -> str | None:
        """Return the file that the database is; None if it is in memory or on a server."""
        return None

    def connected(self, store: Connections, connection: Connection) -> None:
        """Do nothing: a server knows all that a connection needs."""
