"""The upkeep of all tubes of a database, by a process that may have opened only some of them.

What is due, and which tasks are orphaned, is looked up in many tubes by one statement. A tube is opened when there is
something to do in it.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xq.adapters.tubes import Record, Records
from xq.core.errors import Error
from xq.core.ports import FAULTS, UNANSWERED, ErrorKind
from xq.queue import Queue
from xq.runtime.maintenance import PAUSE, QueueMaintenance

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect
    from xq.tubes.tube import Tube

AT_ONCE = (
    20  # tubes that one statement looks at: SQLite takes 500 parts at most, and PostgreSQL plans more of them longer
)
EFFORT = 20  # looks at all tubes take at most one part in so many of the time of the maintenance thread
LONGEST = 5.0  # seconds between two looks, at most, while the database is written
IDLE = 30.0  # seconds after which all tubes are looked at although nothing was written: the clock may have been set
ABSENT = 60.0  # seconds for which a tube is not looked at that could not be

log = logging.getLogger("xq")


class Upkeep:
    """The tubes of one database, as the maintenance thread of a process sees them (`xq.sessions.liveness.Others`)."""

    def __init__(
        self,
        queue: Queue[Any],
        records: Records,
        types: Mapping[str, Any],
        open: Callable[[Record], Tube],
        close: Callable[[Record], None],
    ):
        self._queue = queue  # of the records, which has no tasks
        self._records = records
        self._types = types
        self._open = open
        self._close = close
        self._known: Mapping[str, Record] = {}  # by table
        self._dialects: dict[str, Dialect] = {}  # by table
        self._prototypes: dict[str, Dialect] = {}  # by type and options
        self._absent: dict[str, float] = {}  # the monotonic time until which a table is not looked at
        self._due_at: dict[str, float] = {}  # the monotonic time at which something falls due in a table
        # By what is looked up, and the connection: its `commits`, and the monotonic time until which they count.
        self._seen: dict[tuple[str, int, int], tuple[list[Any], float]] = {}
        self._look_at = 0.0  # the monotonic time before which not all tubes are looked at anew
        self._texts: dict[str, tuple[Collection[str], list[tuple[list[str], str]]]] = {}  # by what is looked up

    # the tubes

    def _refresh(self) -> None:
        """Read which tubes there are."""
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

    def names(self, of: Collection[str]) -> set[str]:
        """Those of these names that are tables of tubes."""
        if not self._known.keys() >= set(of):
            self._refresh()
        return {name for name in of if name in self._known}

    def open_for(self, session: str) -> None:
        """Open the tubes in which a session may hold tasks."""
        database = self._queue.adapter.installation
        listed = database.dialect.execute(database.store, database.dialect.session_queues, {"uuid": session})
        for name in self.names([name for (name,) in listed if name]):
            self._opened(name)

    def _opened(self, table: str) -> QueueMaintenance | None:
        """What maintains a tube, which is opened; None where that cannot be."""
        record = self._known.get(table)  # another thread may have found it gone
        try:
            return None if record is None else self._open(record).maintenance
        except Error as error:
            self._give_up(table, error)
            return None

    def _give_up(self, table: str, error: Exception) -> None:
        """Look at a tube no more for a while. Raises the error again where it is not that of one tube."""
        kind = self._queue.adapter.store.classify(error)
        if not isinstance(error, Error) and kind not in (ErrorKind.DENIED, *FAULTS):
            raise error
        self._absent[table] = time.monotonic() + ABSENT
        log.debug("the tube in %s cannot be maintained: %s", table, error)

    def _dialect(self, table: str) -> Dialect | None:
        """The SQL of a tube: of those of one type and with the same options only one is opened."""
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

    # looking at all of them

    def _is_news_for(self, ask: Callable[[Sequence[Dialect]], str]) -> bool:
        """Whether anything may have been committed since this was last asked of the tubes, which are read anew then."""
        sql, now = self._queue.adapter.installation.dialect.commits, time.monotonic()
        commits = self._queue.adapter.store.execute(sql) if sql else []
        key = ask.__name__, threading.get_ident(), id(self._queue.adapter.store.in_use)
        before, until = self._seen.get(key, ([], 0.0))
        if commits and commits == before and now < until:
            return False
        self._seen = {of: seen for of, seen in list(self._seen.items()) if seen[1] > now} | {key: (commits, now + IDLE)}
        self._refresh()
        return True

    def _look(self, ask: Callable[[Sequence[Dialect]], str]) -> Iterator[Any]:
        """The rows of a query of many tubes at once, each after its table."""
        now = time.monotonic()
        self._absent = {table: until for table, until in list(self._absent.items()) if until > now}
        tables = self._known.keys() - self._absent.keys()
        known, texts = self._texts.get(ask.__name__, (None, []))
        if known != tables:
            found = [(table, of) for table in sorted(tables) if (of := self._dialect(table)) is not None]
            parts = [found[at : at + AT_ONCE] for at in range(0, len(found), AT_ONCE)]
            texts = [([table for table, _ in part], ask([of for _, of in part])) for part in parts]
            self._texts[ask.__name__] = tables, texts
        for asked_tables, sql in texts:
            try:
                rows = self._queue.adapter.store.execute(sql) if sql else []
            except Exception as error:
                if self._queue.adapter.store.classify(error) in UNANSWERED:
                    raise
                yield from self._look_singly(asked_tables, ask)
            else:
                yield from ((asked_tables[place], *row) for place, *row in rows)

    def _look_singly(self, tables: list[str], ask: Callable[[Sequence[Dialect]], str]) -> Iterator[Any]:
        """One of these cannot be looked at: it has been dropped just now, or may not be read."""
        for table in tables:
            dialect = self._dialect(table)
            try:
                rows = self._queue.adapter.store.execute(sql) if dialect and (sql := ask([dialect])) else []
            except Exception as error:
                self._give_up(table, error)
            else:
                yield from ((table, *row) for _, *row in rows)

    def orphans(self) -> set[str]:
        """The sessions that hold tasks of any tube and are not listed; the tubes are opened."""
        dialect = self._queue.adapter.installation.dialect
        found: set[str] = set()
        if not self._is_news_for(dialect.orphans_of):
            return found
        for table, uuid in self._look(dialect.orphans_of):
            if self._opened(table) is not None:
                found.add(uuid)
        return found

    def expire(self) -> float | None:
        """Move a batch of the due tasks of each tube. Returns the seconds until the next run; None for no need of one.

        What falls due at a time that was seen before is moved then. What another process has set since is found by
        the next look at all tubes.
        """
        now = time.monotonic()
        too_early = now < self._look_at
        dialect = self._queue.adapter.installation.dialect
        if not too_early and self._is_news_for(dialect.next_due_of):
            self._due_at = {}
            for table, seconds in self._look(dialect.next_due_of):
                if seconds is not None:
                    self._due_at[table] = min(now + float(seconds), self._due_at.get(table, math.inf))
            took = time.monotonic() - now
            self._look_at = now + min(LONGEST, max(PAUSE, EFFORT * took))
        for table in [table for table, at in self._due_at.items() if at <= now]:
            seconds = self._expire(table)
            self._due_at[table] = math.inf if seconds is None else time.monotonic() + seconds
        next_at = min(*self._due_at.values(), self._look_at if too_early else math.inf, math.inf)
        return None if next_at == math.inf else next_at - time.monotonic()

    def _expire(self, table: str) -> float | None:
        """Move a batch of the due tasks of a tube. Returns the seconds until the next; None for never."""
        queue = self._opened(table)
        if queue is None or queue.attended:  # then the maintenance thread does so anyway
            return None
        try:
            return queue.expire()
        except Exception as error:
            self._give_up(table, error)
            return None
