"""Maintenance for a database's tubes that this process may not have opened.

One statement asks many tubes. A tube is opened when it has due or orphaned tasks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from xq.core import time
from xq.core.clock import Clock
from xq.core.compile import EVERYWHERE
from xq.core.errors import Error
from xq.core.kinds import OUTCOME_UNKNOWN, PERMANENT, ErrorKind, R
from xq.database.base import LOCKED
from xq.database.database import Database
from xq.database.duties import PAUSE
from xq.database.members import Member
from xq.database.records import of_sessions, rows_of
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.sql.dialect import Dialect
from xq.tubes.tables import Record, TubeRecords
from xq.tubes.tube import Tube

EFFORT = 20  # looking at all tubes may take 1/20 of the maintenance thread's time
LONGEST_REST = 5.0  # seconds between two looks, at most, while the database is written
IDLE = 30.0  # seconds until the next look without a commit: the database's clock may have been set
SKIP = 60.0  # seconds for which a tube that failed is skipped

log = logging.getLogger("xq")


@dataclass(eq=False)
class UnopenedTube:
    """A tube in the database, which the maintenance knows by its record alone."""

    record: Record
    dialect: Dialect | None = None
    due_at: float = math.inf  # when its next task is due, in monotonic time, as of the last look
    skipped_until: float = 0.0  # a monotonic time


class UnopenedTubes(Member):
    """The tubes of one database, for the maintenance thread of a process."""

    def __init__(
        self,
        records: TubeRecords,
        types: Mapping[str, Any],
        open: Callable[[Record], Tube],
        close: Callable[[Record], None],
        clock: Clock | None,
    ):
        self._records, self._types, self._open, self._close = records, types, open, close
        self._clock = clock  # a test's clock runs no thread
        self._tubes: Mapping[str, UnopenedTube] = {}  # by table
        self._prototypes: dict[tuple[str, ...], Dialect] = {}  # by type and options
        self._seen: object = None  # the connection of the last look, and its number of commits then
        # The monotonic times of the next look: after a commit, and without one; and of the next search for orphans.
        self._next_look = self._seen_until = self._search_at = 0.0

        self._attended = False  # whether the thread attends them without a queue

    @property
    def database(self) -> Database:
        return self._records.database

    def installed_in(self, database: object) -> bool:
        return self._records.are_there()

    @property
    def maintained(self) -> bool:
        """Whether the thread attends them: since `attend`, or with any queue."""
        return self._attended or any(queue.maintained for queue in self.database.queues)

    @maintained.setter
    def maintained(self, attended: object) -> None:
        self._attended = bool(attended)

    def attend(self) -> None:
        """Start the thread if necessary, which attends them without a queue, too."""
        if self.maintains and not self._attended and (duties := self.database.start_duties()) is not None:
            self._attended = True
            duties.call_for(duties.expire)

    @property
    def maintains(self) -> bool:
        return self._clock is None and not self.database.supervised

    def _refresh(self) -> None:
        before = self._tubes
        found = [record for record in self._records if isinstance(self._types.get(record.type), Mapping)]
        self._tubes = {record.table: before.get(record.table) or UnopenedTube(record) for record in found}
        for table in before.keys() - self._tubes.keys():  # another process has dropped it
            self._close(before[table].record)

    def names(self, among: Collection[str]) -> set[str]:
        """Return the names of tubes' tables among these."""
        if not self._tubes.keys() >= set(among):
            self._refresh()
        return self._tubes.keys() & among

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Open the tubes in which these sessions are registered, and release their tasks."""
        database = self.database
        listed = of_sessions(database, database.sql, database.sql.session_queues, uuids)
        self.names([name for (name,) in listed if name])
        for tube in [tube for (name,) in listed if (tube := self._tubes.get(name))]:
            if (queue := self._try(tube, lambda queue: queue)) is not None:
                database.unless_denied(queue, partial(queue.give_back, uuids, event))

    def _try(self, tube: UnopenedTube, work: Callable[[QueueMaintenance], R]) -> R | None:
        """Open a tube, and return the result of `work` with its queue. If either fails, skip the tube for a while."""
        try:
            return work(self._open(tube.record).maintenance)
        except Exception as error:
            self._skip(tube, error)
            return None

    def _skip(self, tube: UnopenedTube, error: Exception) -> None:
        """Skip a tube for a while. Raises the error again unless it concerns this tube only."""
        kind = self.database.store.classify(error)
        if not isinstance(error, Error) and kind not in (ErrorKind.DENIED, ErrorKind.LOCKED, *PERMANENT):
            raise error
        tube.skipped_until = time.monotonic() + (LOCKED if kind is ErrorKind.LOCKED else SKIP)
        log.debug("the tube in %s cannot be maintained: %s", tube.record.table, error)

    def _dialect(self, tube: UnopenedTube) -> Dialect | None:
        """Return the SQL of a tube. Only one tube of each combination of type and options is opened for it."""
        if tube.dialect is None:
            kind = tube.record.type, *sorted(tube.record.options)
            prototype = self._prototypes.get(kind) or self._try(tube, lambda queue: queue.executor.installation.dialect)
            if prototype is not None:
                self._prototypes[kind] = prototype
                tube.dialect = prototype.of_table(tube.record.table)
        return tube.dialect

    def _rows(self, query: Callable[[Sequence[Any]], str]) -> list[Any]:
        """Return the rows that a query on many tubes finds at once, each after its tube."""
        now, store = time.monotonic(), self.database.store

        def ask(part: Sequence[UnopenedTube]) -> list[Any]:
            sql = query([tube.dialect for tube in part])
            return store.execute(sql) if sql else []

        def failed(part: Sequence[UnopenedTube], error: Exception) -> None:
            if len(part) == 1:
                self._skip(part[0], error)  # it was just dropped, or is not readable
            elif store.classify(error) in OUTCOME_UNKNOWN:
                raise error

        asked = [tube for tube in self._tubes.values() if tube.skipped_until <= now and self._dialect(tube)]
        return rows_of(asked, ask, failed)

    def _look(self, now: float) -> None:
        """Read the tubes' records, and when each is due. Open those with orphaned tasks, so the reaper asks them.

        The orphaned tasks are searched for at one look in LONGEST_REST seconds.
        """
        self._refresh()
        sql, searches = self.database.sql, now >= self._search_at
        for tube in self._tubes.values():
            tube.due_at = math.inf
        for tube, _, seconds in self._rows(
            lambda dialects: sql.upkeep_of([(each, True, False, EVERYWHERE) for each in dialects])
        ):
            if seconds is not None:
                tube.due_at = min(tube.due_at, now + float(seconds))
        for tube, _ in self._rows(sql.orphans_of) if searches else ():
            self._try(tube, bool)
        if searches:
            self._search_at = now + LONGEST_REST
        self._seen_until = now + IDLE if searches else self._search_at
        self._next_look = now + min(LONGEST_REST, max(PAUSE, EFFORT * (time.monotonic() - now)))

    def expire(self, left: Mapping[str, float] = MappingProxyType({})) -> float:
        """Move a batch of the due tasks of each tube, at the times that the last look at all tubes has found."""
        now, store = time.monotonic(), self.database.store
        early = now < self._next_look
        if not early:
            seen = id(store.in_use), store.execute(self.database.sql.commits)
            if seen != self._seen or now >= self._seen_until:
                self._look(now)
                self._seen = seen
        for tube in [tube for tube in self._tubes.values() if tube.due_at <= now]:
            seconds = self._try(tube, self._expire)
            tube.due_at = time.monotonic() + (math.inf if seconds is None else seconds)
        next_at = min([self._next_look if early else math.inf, *(tube.due_at for tube in self._tubes.values())])
        return next_at - time.monotonic()

    @staticmethod
    def _expire(queue: QueueMaintenance) -> float:
        return math.inf if queue.maintained else queue.expire(queue.timers.left())  # the thread attends it anyway
