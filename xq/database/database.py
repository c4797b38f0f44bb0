"""A database of this process: one object for all queues of a connection pool, which sessions and threads belong to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, cast

from xq.core.errors import ConfigurationError
from xq.core.forking import at_fork
from xq.core.ports import Connections

_making = threading.RLock()


class Database:
    """A database, as the ORM of this process connects to it. The ORM's own object keeps it alive, and nothing else."""

    def __init__(self, key: tuple[object, ...], store: Connections) -> None:
        self.key = key  # what the ORM connects to
        self.store = store  # its connections, which must not keep the ORM's object alive

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


def _in_child() -> None:
    global _making
    _making = threading.RLock()


at_fork("locks", _in_child)
