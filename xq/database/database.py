"""A database of this process: one object for all queues of a connection pool, and what hangs on it.

The ORM's own object keeps it alive, and nothing else: its parts, threads and contexts refer to it weakly.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, cast
from weakref import WeakSet, finalize

from xq.core.errors import ConfigurationError
from xq.core.forking import at_fork
from xq.core.ports import Connections, Liveness
from xq.database import sessions
from xq.database.base import BaseDatabase
from xq.database.members import copied
from xq.database.reaper import Reaper
from xq.database.sessions import Sessions

log = logging.getLogger("xq")

_databases: WeakSet[Database] = WeakSet()  # of this process
_lock = threading.RLock()  # held while a database, or a part of one, is made
before_exit: list[Callable[[], None]] = []  # called at exit, before the sessions end


class Database(BaseDatabase):
    """A database, as the ORM of this process connects to it, with its sessions and their reaper."""

    def __init__(self, key: tuple[object, ...], store: Connections) -> None:
        super().__init__(key, store)
        self.sessions = Sessions(self)
        self._begin()
        self._when_dropped(self.sessions.dropped)
        _databases.add(self)

    def _begin(self) -> None:
        self.reaper = Reaper(self, self.sessions)
        self.known_liveness, self._knows_liveness = None, False

    def _when_dropped(self, call: Callable[[], object]) -> None:
        """Call this when the ORM has dropped its object. It must not refer to this one."""
        finalize(self, call).atexit = False

    @classmethod
    def at(
        cls, kept: dict[Any, Any], name: Hashable, key: tuple[object, ...], connect: Callable[[], Connections]
    ) -> Database:
        """Return the database that an ORM keeps in `kept` under this name: a new one if that has another key."""
        with _lock:
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

    @property
    def liveness(self) -> Liveness | None:
        return self.find_liveness() if not self._knows_liveness and self.is_installed else self.known_liveness

    def find_liveness(self) -> Liveness | None:
        with _lock:  # a second object would not hold the locks of the first
            if not self._knows_liveness:
                self.known_liveness = found = self.sql_of_files.liveness(self.store)
                self._knows_liveness = True
                if found is not None:
                    self._when_dropped(found.close)
                _end_at_exit()
        return self.known_liveness

    # the end

    def forked(self) -> None:
        """Reset in a forked child, which has none of its parent's threads, and must not close its connections."""
        self.sessions.forked()
        if self.known_liveness is not None:
            self.known_liveness.forked()
        self._begin()


def _at_exit() -> None:
    for call in before_exit:
        call()
    for database in copied(_databases):
        try:
            database.sessions.exit()
        except Exception as error:  # its liveness locks go with the process
            log.debug("a session could not be ended at exit: %s", error)


_ends_at_exit = 0  # the pid of the process that has registered `_at_exit` with multiprocessing


def _end_at_exit() -> None:
    """End the sessions at exit also in children that multiprocessing forks: these do not run atexit."""
    global _ends_at_exit
    if _ends_at_exit != os.getpid():
        _ends_at_exit = os.getpid()
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing.Finalize(None, _at_exit, exitpriority=10)


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()
    sessions.forked()
    for database in copied(_databases):
        database.forked()


atexit.register(_at_exit)
at_fork("sessions", _in_child)
