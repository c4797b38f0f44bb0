"""Task moves on SQLite."""

from __future__ import annotations

from typing import Any

from xq.core.compile import Statement
from xq.core.connections import Connection, Run
from xq.core.kinds import Row
from xq.sql.moves import TaskMoves


class SqliteMoves(TaskMoves):
    """It has one writer at a time, so a statement chooses its rows without locking them."""

    def is_duplicate(self, refusal: str) -> bool:
        source, unique = self.terms.source, self.terms.machine.single
        column = unique and source.roles[unique.role].column
        return unique is not None and refusal.endswith(f"UNIQUE constraint failed: {source.name}.{column}")

    def runner(self, statement: Statement, event: str = "", width: int = 0) -> Run:
        run = self.terms.query(statement.sql, statement.names, width)
        # A put, which has a width, and a take leave no guarded state and end no task: only a history reads the event.
        if event and (self.terms.has_history or not (width or event == "take")):
            run = self.terms.in_context(run, event)
        return self._charging(run, self.terms.query(statement.charge_each)) if statement.charge_each else run

    def _charging(self, take: Run, charge: Run) -> Run:
        """Return `take`, which then charges its task. No other connection can meanwhile."""
        clock, places = (
            self.terms.query(self.terms.shared.time_us),
            [self.terms.source.fields.index(field) for field in self.terms.source.key],
        )

        def charged(connection: Connection, values: dict[str, Any]) -> list[Row]:
            if values["now"] is None:  # one time for the take and its charge
                ((now_us,),) = clock(connection, values)
                values = {**values, "now": now_us / 1_000_000}
            rows = take(connection, values)
            for row in rows:
                charge(connection, {**values, **{f"k{i}": row[place] for i, place in enumerate(places)}})
            return rows

        return lambda connection, values: connection.atomically(values, charged)
