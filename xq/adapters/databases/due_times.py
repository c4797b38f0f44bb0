"""SQL of the time at which the next timer of a queue passes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Self

from xq.adapters.databases.history_table import HistoryTable
from xq.adapters.databases.named import filled
from xq.adapters.databases.selectors import Selectors
from xq.core.machine import READY, Transition


class DueTimes(Selectors, HistoryTable):
    """The times at which tasks are due, and at which the history is to be pruned."""

    def _first_due(self, timers: Iterable[Transition], alias: str = "") -> list[str]:
        """Return queries of the earliest time of each timer: one row, or none."""
        return [
            f"SELECT {self.seconds(self.kind(row.due), self.roles[row.due])}{alias} "
            f"FROM {self.table_in_schema}{self.by_index(self.name(row.due))} "
            f"WHERE {self.is_state(row.source)} AND {self.roles[row.due]} IS NOT NULL "
            f"ORDER BY {self.roles[row.due]} LIMIT 1"
            for row in timers
        ]

    def _due_beside(self) -> list[str]:
        """Return queries of the times of other duties, as `at`."""
        times = []
        if self.history_kept < math.inf:
            # Rows of the history expire one by one. Waiting a tenth longer prunes many at once.
            late = self.history_kept + max(1.0, self.history_kept / 10)
            history = self.side("history")
            oldest = f"SELECT at_us FROM {history} WHERE {self._not_newest} ORDER BY id LIMIT 1"
            times.append(f"SELECT ({oldest}) / 1000000.0 + {late!r} AS at")
        if self.times_unowned:
            times.append(f"SELECT ({self.any_untimed}) AS at")
        return times

    @property
    def _any_dirty(self) -> str:
        return self.groups.any_dirty if self.groups else ""

    @cached_property
    def next_due(self) -> str:
        """Returns a query of the seconds until the next duty of this queue: negative if it is late, NULL for never.

        If groups may be dirty, a second column is whether one is. Returns "" if the queue has no timers.
        """
        is_dirty = f", EXISTS ({self._any_dirty})" if self._any_dirty else ""
        return self._soonest(self._first_due(self.machine.due), self._due_beside(), is_dirty)

    @cached_property
    def next_to_ready(self) -> str:
        """Returns a query of the seconds until a task becomes ready by itself; a dirty group is late, "" is never."""
        is_dirty = [f"SELECT ({self._any_dirty}) AS at"] if self._any_dirty else []
        return self._soonest(self._first_due(timer for timer in self.machine.due if timer.target == READY), is_dirty)

    def _soonest(self, first: Iterable[str], beside: Iterable[str], more: str = "") -> str:
        times = " UNION ALL ".join([*(f"SELECT ({time}) AS at" for time in first), *beside])
        if not times:
            return f"SELECT NULL{more}" if more else ""
        return f"SELECT MIN(at) - {self.now}{more} FROM ({times}) AS times"

    def next_due_of(self, queues: Sequence[Self | None]) -> str:
        """Return a query of (index of the queue, seconds until a duty) for several queues, without those that are None.

        Each queue has any number of rows. It uses the clock of the database, and no named values.
        """
        times = [(place, seconds) for place, queue in enumerate(queues) if queue for seconds in queue._times_left]
        return " UNION ALL ".join(f"SELECT {place} AS place, {seconds}" for place, seconds in times)

    @cached_property
    def _times_left(self) -> list[str]:
        """Returns the parts of queries, after SELECT, of the seconds until each duty of this queue."""
        now = filled(self.now, now="NULL")
        dirty = [f"SELECT ({self._any_dirty}) AS at"] if self._any_dirty else []
        times = [*self._first_due(self.machine.due, " AS at"), *self._due_beside(), *dirty]
        return [f"at - {now} AS seconds FROM ({time}) AS times" for time in times]

    @cached_property
    def _found_ready(self) -> str:
        return f"0.0, 1 FROM ({filled(self.any_ready, now='NULL')}) AS ready"

    @cached_property
    def anything(self) -> str:
        """Returns a condition that is true if a take might find a task, or a timer has passed."""
        now = filled(self.now, now="NULL")
        due = (f"COALESCE(({at}) <= {now}, FALSE)" for at in self._first_due(self.machine.due))
        return " OR ".join([f"EXISTS ({filled(self.any_ready, now='NULL')})", *due])

    def upkeep_of(self, queues: Sequence[tuple[Self, bool, bool]]) -> str:
        """Return a query of (index of the queue, seconds, whether it is about ready tasks) for several queues, or "".

        A queue has a row with the seconds until its next duty (NULL for never) if the first flag is set; if the second
        one is, and a take might find a task, it has a row for that.
        """
        due = self.next_due_of([queue if timed else None for queue, timed, _ in queues])
        left = [f"SELECT place, MIN(seconds) AS seconds, 0 AS ready FROM ({due}) AS due GROUP BY place"] if due else []
        looks = [f"SELECT {place}, {queue._found_ready}" for place, (queue, _, looks) in enumerate(queues) if looks]
        return " UNION ALL ".join(left + looks)
