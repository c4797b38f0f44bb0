"""SQL of the counters of a queue, which triggers write and `stats` reads."""

from __future__ import annotations

from collections.abc import Sequence

from xq.adapters.databases.terms import Terms
from xq.core.machine import Guard


class Counters(Terms):
    """A row of the counters is a transition and its number.

    The rows of the tube '' count all tasks; each tube of `tube_stats` also has rows. A row whose source is '' counts
    the tasks that existed before counting began.
    """

    def counted(self, column: str) -> str:
        """Return the condition that a tube has counters of its own."""
        return self.exactly(column, f"IN ({', '.join(map(self.literal, self.tube_stats))})")

    def counted_in(self, guard: Guard) -> str:
        """Return a query of the number of tasks in the states of a guard. It reads the counters, not the tasks."""
        states = ", ".join(f"'{state}'" for state in self.guarded_states(guard))
        counts = self.side("count")
        into, out = (f"CASE WHEN {column} IN ({states}) THEN n ELSE 0 END" for column in ("target", "source"))
        return f"(SELECT COALESCE(SUM({into} - {out}), 0) FROM {counts} WHERE tube = '')"

    @property
    def counters(self) -> str:
        """Return a query of tube, source, target, number of transitions, and number of rows that make it up."""
        return f"SELECT tube, source, target, n, 1 FROM {self.side('count')}"

    def many_counters_of(self, queues: Sequence[Counters], many: int) -> str:
        """Return a query of the indexes of the queues with more rows of counters than that; "" if rows never add up."""
        return ""

    @property
    def add_counter(self) -> str:
        return (
            f"INSERT INTO {self.side('count')} (tube, source, target, n) "
            f"VALUES (:tube, :source, :target, :count){self.on_conflict('tube, source, target', 'n = n + :count')}"
        )

    @property
    def audit(self) -> str:
        """Return a query of the counters and of the actual numbers of tasks (source NULL). It reads the whole table."""
        actual = f"SELECT tube, NULL AS source, state AS target, n, 0 FROM ({self.actual_counts}) AS actual"
        return f"{self.counters} UNION ALL {actual}"

    @property
    def actual_counts(self) -> str:
        """Return a query of tube, letter and actual number of tasks. It reads the whole table."""
        letter = self.letter(self.roles["status"])
        states = self.in_states(self.machine.states)
        rows = f"FROM {self.table_in_schema} WHERE {states}"
        everything = f"SELECT '' AS tube, {letter} AS state, COUNT(*) AS n {rows} GROUP BY 1, 2"
        if not self.tube_stats:
            return everything
        tube, counted = self.exact(self.roles["tube"]), self.counted(self.roles["tube"])
        return f"{everything} UNION ALL SELECT {tube}, {letter}, COUNT(*) {rows} AND {counted} GROUP BY 1, 2"

    @property
    def count_what_is_there(self) -> str:
        """Return SQL that counts the existing tasks, unless counting has begun."""
        return (
            f"INSERT INTO {self.side('count')} (tube, source, target, n) "
            f"SELECT tube, '', state, n FROM ({self.actual_counts}) AS actual "
            f"WHERE NOT EXISTS ({self.begun})"
        )

    @property
    def begun(self) -> str:
        """Return a query that finds a row if counting has begun."""
        return f"SELECT 1 FROM {self.side('count')}"

    @property
    def moved_key(self) -> str:
        return " OR ".join(self.differ(f"OLD.{key}", f"NEW.{key}") for key in self.keys)
