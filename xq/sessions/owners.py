"""What may own tasks: queues, custom tubes, and tubes not opened. It releases the tasks of ended sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol
from weakref import WeakSet, ref

from xq.core import time
from xq.core.dialect import Runs
from xq.core.errors import NotInstalled
from xq.core.ports import ErrorKind, R

ATTEMPT = 60.0  # seconds until another attempt to end sessions in a queue where the database has denied that

log = logging.getLogger("xq")


class Owner(Protocol):
    """What may own tasks of sessions: a queue, the tubes that this process has not opened, or a custom tube."""

    executor: Runs | None = None  # of a queue

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


class Owners:
    """What may own tasks in one database."""

    def __init__(self, database: object) -> None:
        self._database = ref(database)
        # The queues in which this user of the database may not move tasks, and the monotonic time of the next attempt.
        self._denied: dict[str, float] = {}

    def __iter__(self) -> Iterator[Owner]:
        """Yield also those that are not installed."""
        if (database := self._database()) is not None:
            yield from (owner for owner in members_of(owners) if owner.home is database)

    @property
    def installed(self) -> list[Owner]:
        """Those that are installed, the queues first."""
        return sorted((owner for owner in self if owner.installed), key=lambda owner: owner.executor is None)

    @property
    def databases(self) -> Iterator[Runs]:
        """That of each queue that is installed. Not kept: they refer to the database object."""
        return (owner.executor for owner in self if owner.executor is not None and owner.installed)

    def give_back(self, uuids: Sequence[str], event: str) -> None:
        """Release the tasks of ended sessions, recorded as `event`."""
        for owner in self.installed:
            self.unless_denied(owner, partial(owner.give_back, uuids, event))

    def is_denied(self, queue: str) -> bool:
        """Return whether this user of the database may not move tasks in a queue: tried ATTEMPT seconds ago at most."""
        return time.monotonic() < self._denied.get(queue, 0.0)

    def unless_denied(self, owner: Owner, work: Callable[[], object]) -> None:
        """Call `work` in a queue. Skip one that was dropped just now, or in which this user may not move tasks.

        A process whose user may do so reaps the sessions there.
        """
        if self.is_denied(owner.source_name):
            return
        try:
            work()
        except NotInstalled:
            pass
        except Exception as error:
            if owner.executor is None or owner.executor.store.classify(error) is not ErrorKind.DENIED:
                raise
            name = owner.executor.store.name
            level = logging.DEBUG if owner.source_name in self._denied else logging.WARNING
            log.log(level, "%s: other processes reap its sessions, as this one may not: %s", name, error)
            self._denied[owner.source_name] = time.monotonic() + ATTEMPT
