"""SQL of the callers that wait for the end of a task."""

from __future__ import annotations

from xq.adapters.databases.terms import Terms
from xq.core.machine import TAKEN


class Waits(Terms):
    """Each waiter is a row of the table of waits. Triggers write to it how the task ended."""

    @property
    def begin_wait(self) -> str:
        """Returns SQL that begins to wait for the end of the task of a key."""
        columns, values = ", ".join(self._parts()), ", ".join(f":{part}" for part in self._parts())
        return (
            f"INSERT INTO {self.waits} ({columns}, waiter, session, since) "
            f"VALUES ({values}, :waiter, :uuid, {self.now})"
        )

    @property
    def end_wait(self) -> str:
        """Returns SQL that ends a wait, and returns event and target (NULL if the task has not ended)."""
        same_key = " AND ".join(f"{part} = :{part}" for part in self._parts())
        return f"DELETE FROM {self.waits} WHERE {same_key} AND waiter = :waiter RETURNING event, target"

    @property
    def ends(self) -> str:
        """Returns a query of the waiters whose task has ended: waiter, event, target."""
        return f"SELECT waiter, event, target FROM {self.waits} WHERE event IS NOT NULL"

    @property
    def waiting(self) -> str:
        """Returns a query of the waits: key, session, time of the start."""
        return f"SELECT {', '.join(self._parts())}, session, since FROM {self.waits} WHERE event IS NULL ORDER BY since"

    @property
    def taken_and_awaited(self) -> str:
        """Returns a query of a session's waiters for taken tasks: waiter, row of the task."""
        columns = ", ".join(f"t.{self.quote(field.column)}" for field in self.source.fields)
        joined = f"{self.waits} AS w JOIN {self.table_in_schema} AS t ON {self.same_wait('w', 't')}"
        taken = self.is_state(TAKEN, f"t.{self.roles['status']}")
        return f"SELECT w.waiter, {columns} FROM {joined} WHERE w.session = :uuid AND w.event IS NULL AND {taken}"

    @property
    def forget_waits(self) -> str:
        return f"DELETE FROM {self.waits} WHERE session IN (:uuids)"
