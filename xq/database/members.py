"""What databases contain: queues, custom tubes, and the tubes that are not opened. Sessions own their tasks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from xq.core.kinds import R, Row
from xq.database.transactions import RunsQueue


class Awaited(NamedTuple):
    """What callers wait for in a member."""

    a_task: bool  # whether one waits for a task, in a queue that is not paused
    a_token: bool  # whether one waits for what only the time brings
    condition: str  # the SQL condition on which to wake them; "" if some wait for room, or for an end
    since: list[float]  # when those that wait for a task came


class Member(ABC):
    """Something with tasks that sessions own, which the maintenance thread may attend. The defaults do nothing."""

    executor: RunsQueue | None = None  # of a queue
    maintained: object = None  # what the thread attends, the binding of a queue for example; None if it does not

    @property
    @abstractmethod
    def database(self) -> object:
        """The database that has its tasks now; None if it has none yet."""

    @property
    def schema(self) -> str:
        """The schema that the model of a queue names for its table."""
        return ""

    @property
    def source_name(self) -> str:
        """The name by which the database knows a queue; "" if it is none."""
        return ""

    def installed_in(self, database: object) -> bool:
        """Return whether it is installed in the database that it has joined. If not, only call `session_closed`."""
        return True

    def names(self, among: Collection[str]) -> set[str]:
        """Return those of these queues that it maintains without being one."""
        return set()

    # what a session asks that ends

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release the tasks that sessions own, recorded as `event`. Raises NotInstalled."""
        return

    def session_closed(self, own_lost: bool) -> None:
        """Notice that this process has lost or ended a session; `own_lost` if it lost the one that waits."""
        return

    # what the duties ask of those that the thread attends

    @property
    def maintains(self) -> bool:
        """Whether this process moves its due tasks, and reaps."""
        return True

    @property
    def awaited(self) -> Awaited | None:
        """What callers wait for: a task, room or an end; None if there is nobody to wake."""
        return None

    def review(self, records: list[Row] | None, schemas: dict[str, Any]) -> None:
        """Raise NotInstalled if it is not installed any more. `records`: what the tables say now, if they could."""
        return

    def count_observers(self) -> None:
        """Notify the thread of own changes if its notifier does not report them."""
        return

    def begin_read(self) -> int:
        """Return a number for the read that begins now."""
        return 0

    def end_read(self, begun: int, paused: Collection[tuple[str, int]], cancelled: Collection[str]) -> None:
        """Use what was read: the pauses (name, whole), and the names that cancelled tasks have."""
        return

    def fire(self, schedule: str) -> bool:
        """Put the task that a due schedule names. Return False if the put failed."""
        return False

    def resolve(self) -> bool:
        """Release the tasks that in-doubt takes may have taken. Return whether there were such takes."""
        return False

    def wake(self, ready: bool) -> bool:
        """Wake waiters after a commit: one for a task if some are `ready`. Return whether one may find something."""
        return False

    def wake_all(self) -> None:
        """Wake all waiters: each looks at the database itself."""
        return

    def expire(self, left: Mapping[str, float]) -> float:
        """Move some due tasks. `left`: the seconds until each duty is due. Return those until the next run."""
        return math.inf

    def roll_up(self) -> bool:
        """Roll up some counters. Return whether there may be more."""
        return False

    def raise_floors(self) -> bool:
        """Raise the keys at which takes begin to look. Return whether there are any."""
        return False

    def tidy(self) -> None:
        """Delete what says as much when it is gone."""
        return

    # the end

    def leave(self) -> None:
        """Drop the thread and the connections: the database closes."""
        self.maintained = None

    def forked(self) -> None:
        """Reset in a forked child, which has neither threads nor connections."""
        self.maintained = None


def copied(weak: Iterable[R]) -> list[R]:
    """Return a list from weak references. Copying fails, and is retried, if another thread adds one."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue
