"""What the ends of tasks set off in the database, beside what its triggers do: each settler has its own part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from xq.core import time
from xq.core.compile import Selector
from xq.core.connections import Connection, Run
from xq.core.kinds import RETRYABLE, ErrorKind, Row
from xq.core.machine import ABSENT, ENDED, Transition
from xq.engine.binding import Binding
from xq.engine.executor import Begun, Executor

LOOK_EVERY = 1.0  # seconds between two looks for ends that no call of xq has seen
ENDS = (ABSENT, *ENDED, "B")  # the states that a task enters when it ends, or is buried


Put = Callable[[Sequence[object]], list[Any]]


class Linking(NamedTuple):
    """How a call puts tasks of which some wait for others, until a settler readies them."""

    by: str  # the option that they are put by, and the role that holds `how`
    how: str
    put: Callable[[Sequence[object], Put, Put], list[Any]]  # puts tasks, by the second function those that wait


class Settler(Protocol):
    """What follows the ends of tasks, for a feature: `Feature.settler`, made of a queue's `Statements` and `Pauses`."""

    def linking(self, options: dict[str, Any]) -> Linking | None:
        """Remove from a put's options what links its tasks to others, and return it. Raises BadValue and BadType."""
        return None

    def ended(self, begun: Begun, rows: Sequence[Row], event: str, source: str, target: str) -> None:
        """Settle what follows the end of these tasks; `source` is "" if they left several states.

        On SQLite this is called in the transaction of the ends, which no error may undo: what may fail has a savepoint.
        On MariaDB it is called after the commit, and opens a transaction itself. On PostgreSQL the triggers settle.
        """

    def look(self, within: bool) -> int:
        """Settle what follows ends that no call has seen, `within` an open transaction, too. Return how much it was."""


class Settling:
    """A queue's settlers. Without any, its moves are as they would be without this."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.settlers: list[Settler] = []
        self.next_at = 0.0  # the monotonic time of the next look

    def settled(self, binding: Binding, event: str, which: Selector, transition: Transition, run: Run) -> Run:
        """Return `run`, which then also settles what follows the ends of the rows that it returns."""
        settles, target = binding.dialect.settles, transition.target
        if not (self.settlers and settles and transition.follows and target in ENDS and which.state != target):
            return run
        source = "" if which.more else which.state

        def within(connection: Connection, values: dict[str, Any]) -> list[Row]:
            if rows := run(connection, values):
                self._ended((connection, binding), rows, event, source, target)
            return rows

        def after(connection: Connection, values: dict[str, Any]) -> list[Row]:
            if rows := run(connection, values):  # none yet in a pipeline, whose caller settles
                self.settle_later(rows, event, source, target)
            return rows

        return after if settles == "after" else lambda connection, values: connection.atomically(values, within)

    def settle_later(self, rows: Sequence[Row], event: str, source: str, target: str) -> None:
        """Settle after the commit what follows these ends, if that is this database's way."""
        if self.settlers and self.executor.dialect.settles == "after":
            self.executor.store.after_commit(partial(self._ended_before, rows, event, source, target))

    def _ended(self, begun: Begun, rows: Sequence[Row], event: str, source: str, target: str) -> None:
        for settler in self.settlers:
            settler.ended(begun, rows, event, source, target)

    def _ended_before(self, rows: Sequence[Row], event: str, source: str, target: str) -> None:
        try:
            self._ended(self.executor.begin(), rows, event, source, target)
        except Exception:  # the ends are committed, and the maintenance looks
            self.next_at = 0.0

    def may_wait(self, error: Exception) -> bool:
        """Return whether what failed may be left to a later look: the transaction of the ends is intact."""
        kind = self.executor.store.classify(error)
        return kind not in (RETRYABLE | {ErrorKind.NOT_DATABASE})

    def look(self, within: bool = False) -> int:
        """Have each settler look, at most every LOOK_EVERY seconds but under a test's clock. Return what they did."""
        if self.executor.clock is None and time.monotonic() < self.next_at:
            return 0
        self.next_at = time.monotonic() + LOOK_EVERY
        return sum(settler.look(within) for settler in self.settlers)
