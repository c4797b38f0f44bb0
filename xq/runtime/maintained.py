"""What the maintenance of a database asks of a queue, and of the tubes that this process has not opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from xq.sessions.records import Owner

if TYPE_CHECKING:
    from xq.engine.run import Database
    from xq.engine.take import Takes
    from xq.runtime.schedules import Schedules
    from xq.runtime.waiters import Waiting


class Maintained(Protocol):
    """A queue that a maintenance thread attends."""

    database: Database
    takes: Takes[Any]
    waiting: Waiting[Any]
    schedules: Schedules[Any]
    maintained: object  # the binding for which the thread attends it; None if it does not

    @property
    def maintains(self) -> bool: ...
    @property
    def home(self) -> object | None: ...
    @property
    def source_name(self) -> str: ...
    def expire(self, seconds: float | None) -> float | None: ...
    def leave(self) -> None: ...
    def forked(self) -> None: ...


class Unopened(Owner, Protocol):
    """The tubes of a database: the thread maintains also those that this process has not opened."""

    def expire(self) -> float | None:
        """Move a batch of the due tasks of each. Return the seconds until the next run; None for no need of one."""
