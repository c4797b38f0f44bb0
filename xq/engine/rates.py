"""The feature rate: a take charges the token bucket of each task that it takes, in its transaction."""

from __future__ import annotations

import math
import time
from typing import Any

from xq.core.machine import Guard
from xq.core.ports import Connection, Row, Run
from xq.core.values import Tasks, named
from xq.engine.unit import Binding


class Empty(Exception):
    """Another transaction has taken the last token of the bucket of this task meanwhile."""

    def __init__(self, bucket: object) -> None:
        self.bucket = bucket


class Rates:
    """The takes of a queue with the feature rate."""

    def __init__(self, tasks: Tasks[Any], guard: Guard) -> None:
        self.tasks = tasks
        table = tasks.table
        self._place = table.fields.index(table.roles[guard.role]) if guard.role else None
        # The monotonic time at which a take may find a task that it has just not found, since its bucket was empty.
        self.opens_at = math.inf

    def wait_for(self, next_bucket: list[Row]) -> None:
        """Note when an empty bucket has a token. Then look again: one that has got it by now is not among them."""
        ((left,),) = next_bucket
        self.opens_at = math.inf if left is None else time.monotonic() + left / 1_000_000

    def limited(self, binding: Binding, run: Run) -> Run:
        """Return `run`, which takes the first task with a token, repeated for `:n` tasks, each charged.

        It takes one task at a time, so that the tokens of a group are counted exactly, and an empty group does not
        stop the others.
        """
        dialect = binding.dialect
        add, next_bucket = dialect.query(dialect.add_bucket), dialect.query(dialect.next_bucket)
        charge, in_order = dialect.filled(dialect.charge_bucket)
        clock = dialect.query(dialect.time_us)

        def one(connection: Connection, values: dict[str, Any]) -> list[Row]:
            if values["now"] is None:  # one time for the take and its charge
                ((now_us,),) = clock(connection, values)
                values = {**values, "now": now_us / 1_000_000}
            rows = run(connection, values)
            for row in rows:
                bucket = None if self._place is None else row[self._place]
                if bucket is not None or self._place is None:
                    mine = {**values, **named(self.tasks.key_of(row))}
                    add(connection, mine)
                    if not connection.change(charge, in_order(mine)):
                        raise Empty(bucket)
            return rows

        def several(connection: Connection, values: dict[str, Any]) -> list[Row]:
            n, found, empty = values["n"], list[Row](), set[object]()
            while n is None or n < 0 or len(found) < n:
                try:
                    rows = connection.atomically(values, one, caught=bool(dialect.lock))
                except Empty as error:
                    if error.bucket in empty:  # an old snapshot of the application's transaction shows a token
                        break
                    empty.add(error.bucket)
                    continue
                if not rows:
                    break
                found += rows
            return found

        def limited(connection: Connection, values: dict[str, Any]) -> list[Row]:
            found = connection.atomically(values, several)
            if not found:
                self.wait_for(next_bucket(connection, values))
                found = connection.atomically(values, several)
            return found

        return limited
