"""What may own tasks of sessions, of all databases of this process: queues, custom tubes, and tubes not opened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol
from weakref import WeakSet

from xq.core.ports import R
from xq.database.transactions import RunsQueue


class Owner(Protocol):
    """What may own tasks of sessions: a queue, the tubes that this process has not opened, or a custom tube."""

    executor: RunsQueue | None = None  # of a queue

    @property
    def schema(self) -> str:
        """The schema of the table of a queue, as its model says."""
        return ""

    @property
    def source_name(self) -> str:
        """The name of the queue in the database; "" if it is none."""
        return ""

    @property
    def home(self) -> object:
        """The object that sessions belong to, of the database that has its tasks now; None if it has none."""

    @property
    def installed(self) -> bool:
        """Whether it is installed there. If not, only `session_closed` may be called."""
        return True

    def names(self, among: Collection[str]) -> set[str]:
        """Return those of these queues that it maintains without being one."""
        return set()

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release the tasks of sessions, recorded as `event`. Raises NotInstalled."""
        return

    def session_closed(self, own_lost: bool) -> None:
        """Notice that a session of this process has ended; `own_lost` if it is the one that waits, and was lost."""
        return


owners: WeakSet[Owner] = WeakSet()  # all of this process


def members_of(weak: Iterable[R]) -> list[R]:
    """Return a list of a collection of weak references. Copying fails, and is retried, if another thread adds one."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue
