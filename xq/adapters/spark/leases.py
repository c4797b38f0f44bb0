"""Many tasks taken by their own session, each with a lease, until all are finished or released."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import xq
from xq.api import Queue
from xq.core import time
from xq.core.errors import SessionLost
from xq.runtime.lease import LOST, Heartbeat, Lease, ttr_of, ttr_timer

log = logging.getLogger("xq")


@contextmanager
def leases_of(queue: Queue[Any]) -> Iterator[Leases]:
    """Lease the tasks that are taken within the block, by their own session. Release what is not finished.

    A process that dies loses them: they are reaped as with any session.
    """
    with queue.session() as session:
        leases = Leases(queue, session)
        try:
            yield leases
        finally:
            leases.end()


class Leases:
    """A session's taken tasks."""

    def __init__(self, queue: Queue[Any], session: xq.Session) -> None:
        self._queue = queue
        self._session = session
        self._failed: set[Any] = set()  # keys
        self._heart = Heartbeat(queue.parts.store, self._touch)
        self._leases: dict[Any, Lease] = {}  # by key
        self._timer = ttr_timer(queue.machine)

    def take(self, n: int, timeout: float | None) -> dict[Any, Mapping[str, Any]]:
        """Take up to `n` tasks and return their fields by key, in order. Waits up to `timeout` seconds for the first.

        A task leased before may be taken again after its ttr. It is not returned then.
        """
        found: dict[Any, Mapping[str, Any]] = {}
        while not found and (tasks := self._queue.take_many(n, timeout)):
            with self._heart.lock:
                now = time.monotonic()  # one for all: a heartbeat touches them together
                for task in tasks:
                    data = self._queue.parts.tasks.data(task)
                    parts = tuple(data[name] for name in self._queue.parts.store.key)
                    key = parts[0] if len(parts) == 1 else parts
                    if key in self._leases:
                        self._heart.remove(self._leases[key])
                    else:
                        found[key] = data
                    ttr = (
                        None if self._timer is None else ttr_of(self._timer, data, self._queue.parts.tasks.table.roles)
                    )
                    self._leases[key] = lease = Lease(self._heart, key, task, ttr)
                    lease.touched(now)
                    self._heart.add(lease)
        return found

    def finish(
        self, move: Callable[[dict[Any, Any]], Collection[Any]], keys: Iterable[Any]
    ) -> tuple[set[Any], set[Any]]:
        """Run `move` in one transaction, and return the moved and the lost tasks' keys.

        `move` gets the tasks still leased, by key, and returns the keys that it moved. When a task turns out to be
        lost, the transaction is rolled back and `move` called again without it.
        """
        with self._heart.lock:
            ours = {key: self._leases[key].taken for key in keys}
            lost: set[Any] = set()
            while True:
                try:
                    moved = set(self._queue.transaction(partial(move, ours)))
                    break
                except SessionLost:
                    raise
                except LOST as error:
                    gone = self._lost(error, ours)
                    log.info("%s. So are %d more", error, len(gone) - 1)
                    lost |= gone
                    ours = {key: task for key, task in ours.items() if key not in gone}
            for key in moved | lost:
                self._heart.remove(self._leases.pop(key))
            for key in ours.keys() - moved:
                self._leases[key].taken = key  # enough to release it, and small
            return moved, lost

    def _lost(self, error: Any, tasks: Collection[Any]) -> set[Any]:
        """Return which tasks the session does not own any more. Raises `error` if its task is not among them."""
        mine = {key for key, session, _ in self._queue.taken() if session == self._session.uuid}
        lost = {key for key in tasks if key not in mine}
        if error.key not in lost:  # a task in another queue, for example, with the same key
            raise error
        return lost

    def release(self) -> tuple[set[Any], set[Any]]:
        """Release all tasks. Returns their keys, and the lost ones' keys."""

        def release(ours: dict[Any, Any]) -> Collection[Any]:
            self._queue.release_many(ours.values())
            return ours

        return self.finish(release, list(self._leases))

    def fail(self, keys: Iterable[Any]) -> None:
        """With the feature max_takes, let the end count these takes as lost, as if the process had died."""
        machine = self._queue.machine
        if machine.last_take and machine.settings.reaped:
            self._failed.update(keys)

    def end(self) -> None:
        """End the heartbeat, and release the rest."""
        self._heart.end()
        if self._leases:
            try:
                for key in self._failed & self._leases.keys():
                    del self._leases[key]
                self.release()
                if self._failed:
                    self._session.release()
                    self._session.sessions.leave(self._session, "died")
            except Exception as error:  # the session's end releases them; the block's error is raised
                log.warning("leased tasks could not be released: %s", error)

    def _touch(self, leases: Collection[Lease], seconds: float) -> Collection[Lease]:
        tasks = {lease.task: lease for lease in leases}
        while tasks:
            try:
                self._queue.touch_many([lease.taken for lease in tasks.values()], seconds)
                break
            except SessionLost:
                raise
            except LOST as error:
                for key in self._lost(error, tasks):
                    tasks.pop(key).lose()  # `finish` reports it
        return tasks.values()
