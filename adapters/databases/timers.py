"""When the next timer of a queue passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Self

from xq.adapters.databases.history import History
from xq.adapters.databases.named import filled
from xq.adapters.databases.rows import Rows


class Timers(Rows, History):
    """The times at which tasks fall due, and rows of the history are to be pruned."""

    def _first_due(self, alias: str = "") -> list[str]:
        """Queries for the time at which the first task falls due by each timer: one row, or none."""
        return [
            f"SELECT {self.seconds(self.kind(row.due), self.roles[row.due])}{alias} "
            f"FROM {self.table_in_schema}{self.by_index(self.name(row.due))} "
            f"WHERE {self.is_state(row.source)} AND {self.roles[row.due]} IS NOT NULL "
            f"ORDER BY {self.roles[row.due]} LIMIT 1"
            for row in self.machine.due
        ]

    def _due_beside(self) -> list[str]:
        """Queries for the times at which something else falls due, as `at`."""
        times = []
        if self.history_kept < math.inf:
            # Rows of the history pass one by one: a tenth later many go at once.
            late = self.history_kept + max(1.0, self.history_kept / 10)
            history = self.side("history")
            oldest = f"SELECT at_us FROM {history} WHERE {self._not_newest} ORDER BY id LIMIT 1"
            times.append(f"SELECT ({oldest}) / 1000000.0 + {late!r} AS at")
        if self.groups and self.groups.any_dirty:
            times.append(f"SELECT ({self.groups.any_dirty}) AS at")
        return times

    @cached_property
    def next_due(self) -> str:
        """In how many seconds something falls due in this queue: less than none for what is late, NULL for never.

        Nothing where nothing ever does.
        """
        times = " UNION ALL ".join([*(f"SELECT ({time}) AS at" for time in self._first_due()), *self._due_beside()])
        return f"SELECT MIN(at) - {self.now} FROM ({times}) AS times" if times else ""

    def next_due_of(self, queues: Sequence[Self]) -> str:
        """In how many seconds something falls due in each of several queues, after its place among them.

        Any number of rows for each, or none. By the clock of the database: no named value stands there.
        """
        now = filled(self.now, now="NULL")
        times = [
            (place, time)
            for place, queue in enumerate(queues)
            for time in [*queue._first_due(" AS at"), *queue._due_beside()]
        ]
        return " UNION ALL ".join(
            f"SELECT {place} AS place, at - {now} AS seconds FROM ({time}) AS of_{i}"
            for i, (place, time) in enumerate(times)
        )
