"""The members of databases, whose tasks sessions own: queues, custom tubes, and the tubes that are not opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from weakref import WeakSet

from xq.core.dialect import RunsQueue
from xq.core.ports import R


class Member(ABC):
    """Something in a database whose tasks sessions own: a queue, a custom tube, or the tubes that are not opened."""

    executor: RunsQueue | None = None  # of a queue

    @property
    @abstractmethod
    def database(self) -> object:
        """The database that has its tasks now; None if it has none yet."""

    @property
    def schema(self) -> str:
        """The schema of the table of a queue, as its model says."""
        return ""

    @property
    def source_name(self) -> str:
        """The name of the queue in the database; "" if it is none."""
        return ""

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


members: WeakSet[Member] = WeakSet()  # of all databases of this process


def copied(weak: Iterable[R]) -> list[R]:
    """Return a list of a collection of weak references. Copying fails, and is retried, if another thread adds one."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue
