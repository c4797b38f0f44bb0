"""A database in this process: one object for all queues that share a connection pool, and what hangs on it.

The ORM's own object keeps it alive, and nothing else: its parts, threads and contexts refer to it weakly.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, cast
from weakref import WeakSet, finalize

from xq.core.connections import Connections, Liveness
from xq.core.ending import Late, left, within
from xq.core.errors import ConfigurationError
from xq.database import sessions
from xq.database.base import BaseDatabase
from xq.database.callers import BLOCKS, ON_A_FILE, ON_A_SERVER, Callers
from xq.database.duties import RETRY, Duties
from xq.database.members import Member, copied
from xq.database.reaper import Reaper
from xq.database.sessions import Sessions
from xq.sql.shared import SharedSql

log = logging.getLogger("xq")

_databases: WeakSet[Database] = WeakSet()  # of this process
_making = threading.RLock()  # held while a database is made, and for a whole fork
_files: list[Any] = []  # the duties of files, whose threads have no connection while this process forks
_paused: list[Any] = []  # locks of one fork: no database makes its parts, or runs a duty, while this process forks
LEAVING = 60.0  # seconds that `close` waits for the maintenance thread to end


class Database(BaseDatabase):
    """A database, as the ORM of this process connects to it, with sessions and their reaper, duties and callers."""

    def __init__(self, key: tuple[object, ...], store: Connections, kinds: Mapping[str, type[SharedSql]]) -> None:
        super().__init__(key, store, kinds)
        self.sessions = Sessions(self)
        self._begin()
        self._when_dropped(self.sessions.dropped)
        _databases.add(self)

    def _begin(self) -> None:
        self.reaper = Reaper(self, self.sessions)
        self.liveness, self._knows_liveness = None, False
        self._lock = threading.RLock()  # held while a part is made, which may connect
        self.duties: Duties | None = None  # of the last thread that was started

    def _when_dropped(self, call: Callable[[], object]) -> None:
        """Call this when the ORM has dropped its object. It must not refer to this one."""
        finalize(self, call).atexit = False

    @staticmethod
    def at(kept: dict[Any, Any], name: Hashable, key: tuple[object, ...], make: Callable[[], Database]) -> Database:
        """Return the database that an ORM keeps in `kept` under this name; by `make`, if its key is another one."""
        with _making:
            found: Database | None = kept.get(name)
            if found is None or found.key != key:
                before, found = found, make()
                for member in () if before is None else before.members:  # they use the same object of the ORM
                    found.join(member)
                kept[name] = found
            return found

    @classmethod
    def of(cls, store: Connections) -> Database:
        """Return the database that these connections now reach. Raises ConfigurationError if there is none yet."""
        if (found := store.database) is None:
            raise ConfigurationError(f"{store.name} has no database yet")
        return cast(Database, found)

    # its members

    def join(self, member: Member) -> None:
        """Keep a member, weakly, when it is made, and when it is bound to this database. It leaves any other one."""
        for database in copied(_databases):
            if database is not self:
                database.joined.discard(member)
        self.joined.add(member)

    def find_liveness(self) -> Liveness | None:
        with self._lock:  # a second object would not hold the locks of the first
            if not self._knows_liveness:
                self._see_schemas()
                self.liveness = found = self.sql.liveness(self.store)
                self._knows_liveness = True
                if found is not None:
                    self._when_dropped(found.close)
                _end_at_exit()
        return self.liveness

    def _see_schemas(self) -> None:
        """Set the schemas whose files are watched, to those with queues: on SQLite each may have a file of its own."""
        self.sql.schemas = ("main", *{queue.schema for queue in self.queues} - {"", "main"})

    # its threads

    def start_duties(self) -> Duties | None:
        """Return the duties, with their thread started if necessary; None if the database can have none."""
        with self._lock:
            if self.duties is None or not self.duties.thread.is_alive():
                self._see_schemas()
                try:
                    notifier = self.sql.notifier(self.store, self.find_liveness())
                except OSError as error:
                    log.warning("no thread can maintain %s: %s", self.store.name, error)
                    return None
                if notifier is None:
                    return None
                found = Duties(self, self.sessions, self.reaper, notifier)
                try:
                    found.thread.start()
                except RuntimeError:  # the system allows no more threads
                    notifier.close()
                    raise
                self.duties = found
                self._when_dropped(found.end)
            return self.duties

    def is_paused(self) -> bool:
        """Return whether the thread has paused because the database is read-only. If so, wake it to check again."""
        duties = self.duties
        if duties is None or not duties.paused or not duties.thread.is_alive():
            return False
        duties.call_for(duties.read_records)
        return True

    @cached_property
    def callers(self) -> Callers:
        """The threads that call the database for coroutines."""
        return Callers(ON_A_FILE if self.sql.is_local else ON_A_SERVER)

    @cached_property
    def blocks(self) -> Callers:
        """The threads that run the open transactions of coroutines."""
        return Callers(BLOCKS)

    @property
    def _all_callers(self) -> list[Callers]:
        return [each for each in vars(self).values() if isinstance(each, Callers)]

    # the end

    def close(self) -> None:
        """End this process's sessions, threads and connections. The next call begins anew."""
        self.end_sessions()
        with self._lock:
            ending, self.duties = self.duties, None
        if ending is not None:
            ending.end()
            if ending.thread is not threading.current_thread():  # as it is for an observer
                ending.thread.join(LEAVING)
        for callers in self._all_callers:
            callers.end()
        for member in self.members:
            member.leave()
        if self.liveness is not None:
            self.liveness.close()

    def end_sessions(self) -> None:
        """End this process's sessions. If that fails, their liveness locks still go with the process."""
        try:
            self.sessions.exit()
        except Exception as error:
            log.debug("a session could not be ended: %s", error)

    def forked(self) -> None:
        """Reset in a forked child, which has none of its parent's threads, and must not close its connections."""
        self.sessions.forked()
        if self.liveness is not None:
            self.liveness.forked()
        if self.duties is not None:
            self.duties.disown()
        for callers in self._all_callers:
            callers.forked()
        self.store.forked()
        self._begin()
        for member in self.members:
            member.forked()


def _at_exit() -> None:
    """End all threads, so that none dies within a statement or leaves its connection open. Then end the sessions.

    A database that does not answer holds up the end for GRACE seconds: then the server releases the tasks.
    """
    try:
        with within(left(ends=True)):
            _end_all()
    except Late as error:
        log.debug("the sessions stay open, as a database is silent: %s", error)


def _end_all() -> None:
    databases = copied(_databases)
    ending = [database.duties for database in databases if database.duties is not None]
    for duties in ending:
        duties.end()
    for duties in ending:
        duties.thread.join(RETRY)
    for callers in [each for database in databases for each in database._all_callers]:
        callers.end()
    for database in databases:
        database.end_sessions()


_ends_at_exit = 0  # the pid of the process that has registered `_at_exit` with multiprocessing


def _end_at_exit() -> None:
    """End the sessions at exit also in children that multiprocessing forks: these do not run atexit."""
    global _ends_at_exit
    if _ends_at_exit != os.getpid():
        _ends_at_exit = os.getpid()
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            multiprocessing.Finalize(None, _at_exit, exitpriority=10)


def _before_fork() -> None:
    """Stop the maintenance threads between two cycles, so that none uses the database or holds a lock in the fork."""
    _making.acquire()  # another thread that forks waits here, too
    databases = copied(_databases)
    _files.extend(each.duties for each in databases if each.duties and each.sql.is_local)
    for duties in _files:
        duties.fork(True)
    locks: list[Any] = [database.duties.working for database in databases if database.duties is not None]
    locks += [database._lock for database in databases]
    _paused.extend(lock for lock in locks if lock.acquire(timeout=RETRY))


def _in_parent() -> None:
    while _paused:
        _paused.pop().release()
    while _files:
        _files.pop().fork(False)
    _making.release()


def _in_child() -> None:
    global _making
    _making = threading.RLock()
    _paused.clear()
    _files.clear()
    sessions.forked()
    for database in copied(_databases):
        try:
            database.forked()
        except Exception:  # the others must not keep what is their parent's
            log.exception("%s could not be reset in a forked child", database.store.name)


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
