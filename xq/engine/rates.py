"""The feature rate: a take charges the token bucket of each task that it takes, in its transaction."""

from __future__ import annotations

import math
from typing import Any, Final

from xq.core import time
from xq.core.connections import Connection, Run
from xq.core.kinds import Row
from xq.core.values import Tasks
from xq.sql.dialect import Dialect

# How often a take may find that another one has taken its task's last token. Within a transaction with an old
# snapshot it always does.
REFUSED: Final = 20


class Rates:
    """A queue's takes with the feature rate."""

    def __init__(self, tasks: Tasks[Any]) -> None:
        self.tasks = tasks
        # The monotonic time when an empty bucket, which hid a task from a take, has a token.
        self.opens_at = math.inf

    def wait_for(self, next_bucket: list[Row]) -> None:
        """Note when an empty bucket has a token. Then look again: one that has got it by now is not among them."""
        ((left,),) = next_bucket
        self.opens_at = math.inf if left is None else time.monotonic() + left / 1_000_000

    def limited(self, dialect: Dialect, run: Run) -> Run:
        """Return `run`, which takes the first task with a token and charges it, repeated for `:n` tasks.

        It takes one task at a time, so that a group's tokens are counted exactly, and an empty group does not
        stop the others. `run` returns a row with only NULLs if the group has become empty meanwhile.
        """
        next_bucket = dialect.query(dialect.queries.next_bucket)

        def several(connection: Connection, values: dict[str, Any]) -> list[Row]:
            n, found, refused = values["n"], list[Row](), 0
            while (n is None or n < 0 or len(found) < n) and refused < REFUSED:
                rows = run(connection, values)
                if not rows:
                    break
                if None in self.tasks.key_of(rows[0]):
                    refused += 1
                else:
                    found += rows
            return found

        def limited(connection: Connection, values: dict[str, Any]) -> list[Row]:
            return several(connection, values) if values["n"] == 1 else connection.atomically(values, several)

        def looking_again(connection: Connection, values: dict[str, Any]) -> list[Row]:
            found = limited(connection, values)
            if not found:
                self.wait_for(next_bucket(connection, values))
                found = limited(connection, values)
            return found

        return looking_again
