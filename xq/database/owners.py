"""Release the tasks of ended sessions in all that may own some in a database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from weakref import ref

from xq.core import time
from xq.core.errors import NotInstalled
from xq.core.ports import ErrorKind
from xq.database.database import Database
from xq.database.members import Owner

ATTEMPT = 60.0  # seconds until another attempt to end sessions in a queue where the database has denied that

log = logging.getLogger("xq")


class Owners:
    """What may own tasks in one database."""

    def __init__(self, database: Database) -> None:
        self._database = ref(database)
        # The queues in which this user of the database may not move tasks, and the monotonic time of the next attempt.
        self._denied: dict[str, float] = {}

    def __iter__(self) -> Iterator[Owner]:
        """Yield also those that are not installed."""
        if (database := self._database()) is not None:
            yield from database.owners

    @property
    def installed(self) -> list[Owner]:
        """Those that are installed, the queues first."""
        return sorted((owner for owner in self if owner.installed), key=lambda owner: owner.executor is None)

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
