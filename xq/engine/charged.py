"""Takes that are charged for each task, in their transaction, and may find that another one was faster."""

from __future__ import annotations

from typing import Any, Final

from xq.core.connections import Connection, Run
from xq.core.kinds import Row
from xq.core.values import Tasks

# How often a take may find that another one has charged what it needs. Within a transaction with an old snapshot it
# always does.
REFUSED: Final = 20


def charged(tasks: Tasks[Any], run: Run) -> Run:
    """Return `run`, which takes the first task and charges it, repeated for `:n` tasks.

    It takes one task at a time, so that each is charged exactly, and one that cannot be does not stop the others. `run`
    returns a row with only NULLs for such a task.
    """

    def several(connection: Connection, values: dict[str, Any]) -> list[Row]:
        n, found, refused = values["n"], list[Row](), 0
        while (n is None or n < 0 or len(found) < n) and refused < REFUSED:
            rows = run(connection, values)
            if not rows:
                break
            if None in tasks.key_of(rows[0]):
                refused += 1
            else:
                found += rows
        return found

    def take(connection: Connection, values: dict[str, Any]) -> list[Row]:
        return several(connection, values) if values["n"] == 1 else connection.atomically(values, several)

    return take
