"""Liveness locks: each shows that the process of a session lives. Tasks of a session without one are reaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from xq.core.ports import Row

R = TypeVar("R")


def members_of(weak: Iterable[R]) -> list[R]:
    """Return a list of a collection of weak references. Copying fails, and is retried, if another thread adds one."""
    while True:
        try:
            return list(weak)
        except RuntimeError:
            continue


class Liveness(Protocol):
    """The liveness locks of a process. The system releases them when the process ends, however it ends."""

    def acquire(self, uuid: str) -> bool:
        """Acquire the liveness lock of a session. Return False if another process is ending the session."""

    def release(self, uuid: str) -> None:
        """Release the lock, when this was called as often as `acquire`."""

    def alone(self, uuids: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Yield those of these sessions whose locks no process holds. None can acquire one within the block."""

    @property
    def lease(self) -> float | None:
        """The seconds after which a session ends unless it is renewed; None if the locks end with the process."""

    def gone(self, uuids: Sequence[str]) -> list[str]:
        """Return those of these sessions whose locks no process seems to hold."""

    @property
    def intact(self) -> bool:
        """Whether no lock is known to be lost. Must be fast: each take reads it."""

    @property
    def skew(self) -> float:
        """The seconds by which the clock of the database is ahead of this machine's."""

    def is_held(self, uuid: str) -> bool:
        """Return whether this process still holds the lock of a session."""

    def pop_lost(self) -> list[str]:
        """Return the sessions of this process whose locks were lost since the last call."""

    def renew(self) -> bool:
        """Acquire lost locks again. Return whether all other processes have had the time to do so, too."""

    def on_own_connection(self, sql: str, values: Mapping[str, object]) -> list[Row] | None:
        """Run a statement, with named values, on the session connection, and return its rows.

        Returns None if there is no such connection, or if the statement would have to wait.
        """

    def announce(self) -> None:
        """Notify other processes to check the locks of the sessions that are registered by now."""

    def there(self) -> bool:
        """Return whether the database exists, without creating it."""

    def close(self) -> None:
        """Close the session connection, if there is one, until it is needed again."""
