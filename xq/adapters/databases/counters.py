"""SQL of the counters of a queue, which triggers write and `stats` reads."""

from __future__ import annotations

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
    def add_counter(self) -> str:
        return (
            f"INSERT INTO {self.side('count')} (tube, source, target, n) "
            f"VALUES (:tube, :source, :target, :count){self.on_conflict('tube, source, target', 'n = n + :count')}"
        )

    @property
    def moved_key(self) -> str:
        return " OR ".join(self.differ(f"OLD.{key}", f"NEW.{key}") for key in self.keys)
