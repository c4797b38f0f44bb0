"""How statements run on a connection: with named values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xq.adapters.databases.language import Language
from xq.adapters.databases.named import by_position, in_order
from xq.core.generated import arguments
from xq.core.ports import Connection, Connections, Row, Run, Values

InOrder = Callable[[Mapping[str, Any]], Sequence[Any]]


class Statements(Language):
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

    # connections

    def file(self, store: Connections) -> str | None:
        """Return the file that the database is; None if it is in memory or on a server."""
        return None

    def connected(self, store: Connections, connection: Connection) -> None:
        """Do nothing: a server knows all that a connection needs."""
