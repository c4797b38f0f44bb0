"""The maintenance of all tubes of a database, by a process that may have opened only some of them.

One statement looks for due and orphaned tasks in many tubes. A tube is opened when it has some.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xq.adapters.tubes import Record, TubeRecords
from xq.core.dialect import Dialect
from xq.core.errors import Error
from xq.core.ports import FAULTS, UNANSWERED, ErrorKind
from xq.handle import Queue
from xq.runtime.maintained import Unopened
from xq.runtime.maintenance import PAUSE
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.sessions import session as sessions
from xq.sessions.records import of_sessions, rows_of

if TYPE_CHECKING:
    from xq.tubes.tube import Tube

EFFORT = 20  # looking at all tubes may take 1/20 of the time of the maintenance thread
LONGEST_REST = 5.0  # seconds between two looks, at most, while the database is written
IDLE = 30.0  # seconds until the next look without a commit: the database's clock may have been set
SKIP = 60.0  # seconds for which a tube that failed is skipped

log = logging.getLogger("xq")


class Upkeep(Unopened):
    """The tubes of one database, for the maintenance thread of a process."""

    def __init__(
        self,
        queue: Queue[Any],
        records: TubeRecords,
        types: Mapping[str, Any],
        open: Callable[[Record], Tube],
        close: Callable[[Record], None],
    ):
        self._queue = queue  # the queue of the records, which has no tasks
        self._records = records
        self._types = types
        self._open = open
        self._close = close
        self._known: Mapping[str, Record] = {}  # by table
        self._dialects: dict[str, Dialect] = {}  # by table
        self._prototypes: dict[str, Dialect] = {}  # by type and options
        self._skipped: dict[str, float] = {}  # the monotonic time until which a table is skipped
        self._due_at: dict[str, float] = {}  # the monotonic time of the next due task of a table
        # By query, thread and connection: the last `commits`, and the monotonic time until which they are valid.
        self._seen: dict[tuple[str, int, int], tuple[list[Any], float]] = {}
        self._next_look = 0.0  # the monotonic time of the next look at all tubes

    def _refresh(self) -> None:
        """Read the records of the tubes."""
        found = {
            table: record
            for table, record in self._records.by_table(self._known).items()
            if isinstance(self._types.get(record.type), Mapping)
        }
        for table in self._known.keys() - found.keys():  # another process has dropped it
            self._close(self._known[table])
        if found.keys() != self._known.keys():
            self._dialects = {table: of for table, of in list(self._dialects.items()) if table in found}
        self._known = found

    @property
    def home(self) -> object | None:
        return self._queue.adapter.store.database

    def names(self, among: Collection[str]) -> set[str]:
        """Return the names among these that are tables of tubes."""
        if not self._known.keys() >= set(among):
            self._refresh()
        return {name for name in among if name in self._known}

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Open the tubes in which these sessions are registered, and release their tasks."""
        database = self._queue.adapter.maintenance.database
        listed = of_sessions(database, database.dialect.records.session_queues, uuids)
        for name in self.names([name for (name,) in listed if name]):
            if (queue := self._opened(name)) is not None:
                sessions.of(self.home).unless_denied(queue, partial(queue.give_back, uuids, event))

    def _opened(self, table: str) -> QueueMaintenance | None:
        """Open a tube and return its part of the maintenance; None if it cannot be opened."""
        record = self._known.get(table)  # another thread may have removed it
        try:
            return None if record is None else self._open(record).maintenance
        except Error as error:
            self._skip(table, error)
            return None

    def _skip(self, table: str, error: Exception) -> None:
        """Skip a tube for a while. Raises the error again unless it concerns this tube only."""
        kind = self._queue.adapter.store.classify(error)
        if not isinstance(error, Error) and kind not in (ErrorKind.DENIED, *FAULTS):
            raise error
        self._skipped[table] = time.monotonic() + SKIP
        log.debug("the tube in %s cannot be maintained: %s", table, error)

    def _dialect(self, table: str) -> Dialect | None:
        """Return the SQL of a tube. Only one tube of each combination of type and options is opened for it."""
        record = self._known.get(table)
        if record is not None and table not in self._dialects:
            kind = json.dumps([record.type, sorted(record.options)])
            if kind not in self._prototypes:
                queue = self._opened(table)
                if queue is None:
                    return None
                self._prototypes[kind] = queue.database.bind().dialect
            self._dialects[table] = self._prototypes[kind].of_table(table)
        return self._dialects.get(table)

    def _may_have_changed(self, query: Callable[[Sequence[Dialect]], str]) -> bool:
        """Return whether there may have been a commit since this thread last ran the query; if so, read the records."""
        sql, now = self._queue.adapter.installation.dialect.looks.commits, time.monotonic()
        commits = self._queue.adapter.store.execute(sql) if sql else []
        key = query.__name__, threading.get_ident(), id(self._queue.adapter.store.in_use)
        before, until = self._seen.get(key, ([], 0.0))
        if commits and commits == before and now < until:
            return False
        self._seen = {of: seen for of, seen in list(self._seen.items()) if seen[1] > now} | {key: (commits, now + IDLE)}
        self._refresh()
        return True

    def _rows(self, query: Callable[[Sequence[Dialect]], str]) -> list[Any]:
        """Return the rows of a query of many tubes at once, each after its table."""
        now, store = time.monotonic(), self._queue.adapter.store
        self._skipped = {table: until for table, until in list(self._skipped.items()) if until > now}
        tables = sorted(self._known.keys() - self._skipped.keys())

        def ask(part: Sequence[tuple[str, Dialect]]) -> list[Any]:
            sql = query([of for _, of in part])
            return store.execute(sql) if sql else []

        def failed(part: Sequence[tuple[str, Dialect]], error: Exception) -> None:
            if len(part) == 1:
                self._skip(part[0][0], error)  # it was just dropped, or is not readable
            elif store.classify(error) in UNANSWERED:
                raise error

        found = [(table, of) for table in tables if (of := self._dialect(table)) is not None]
        return [(table, *row) for (table, _), *row in rows_of(found, ask, failed)]

    def orphans(self) -> set[str]:
        """Return the unregistered sessions that hold tasks of any tube, and open these tubes."""
        query = self._queue.adapter.installation.dialect.records.orphans_of
        if not self._may_have_changed(query):
            return set()
        return {uuid for table, uuid in self._rows(query) if self._opened(table) is not None}

    def expire(self) -> float | None:
        """Move a batch of the due tasks of each tube. Returns the seconds until the next run; None for no need of one.

        Tasks with a known due time are moved then. The next look at all tubes finds those of other processes.
        """
        now = time.monotonic()
        too_early = now < self._next_look
        dialect = self._queue.adapter.installation.dialect
        if not too_early and self._may_have_changed(dialect.looks.next_due_of):
            self._due_at = {}
            for table, seconds in self._rows(dialect.looks.next_due_of):
                if seconds is not None:
                    self._due_at[table] = min(now + float(seconds), self._due_at.get(table, math.inf))
            took = time.monotonic() - now
            self._next_look = now + min(LONGEST_REST, max(PAUSE, EFFORT * took))
        for table in [table for table, at in self._due_at.items() if at <= now]:
            seconds = self._expire(table)
            self._due_at[table] = math.inf if seconds is None else time.monotonic() + seconds
        next_at = min(*self._due_at.values(), self._next_look if too_early else math.inf, math.inf)
        return None if next_at == math.inf else next_at - time.monotonic()

    def _expire(self, table: str) -> float | None:
        """Move a batch of the due tasks of a tube. Returns the seconds until the next; None for never."""
        queue = self._opened(table)
        if queue is None or queue.maintained:  # then the maintenance thread does so anyway
            return None
        try:
            return queue.expire(queue.timers.seconds())
        except Exception as error:
            self._skip(table, error)
            return None
