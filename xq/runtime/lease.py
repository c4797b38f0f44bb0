"""A lease: tasks that one session has taken, kept alive by a heartbeat, and released when the block ends."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from xq.core.errors import NotFound, NotOwner, SessionLost, WrongState
from xq.core.machine import TAKEN

if TYPE_CHECKING:
    from xq.queue import Queue

log = logging.getLogger("xq")

LOST = (NotFound, WrongState, NotOwner)  # the errors of a task that this session does not own any more
HEARTBEATS = 3  # in a ttr


@dataclass(slots=True)
class LeasedTask:
    """A task of a lease, its ttr in seconds (None: without limit), and the monotonic time of its last heartbeat."""

    task: Any
    ttr: float | None
    touched_at: float


class Lease:
    """The tasks that are taken within `with Lease(queue) as lease:`. Its end releases those that are not finished.

    The lease takes by a session of its own. If ttr times the tasks, a thread touches them at a third of their ttr, on
    its own connection. A process that dies loses the lease: its tasks are reaped like those of any session.
    """

    def __init__(self, queue: Queue[Any]) -> None:
        self._queue = queue
        self._store = queue.adapter.store
        self._names = [field.name for field in self._store.fields]
        self._tasks: dict[Any, LeasedTask] = {}  # by key
        self._lock = threading.Lock()  # no heartbeat while tasks are moved
        self._changed, self._over = threading.Event(), False
        self._timer = queue.machine.timer(TAKEN, "runat")
        self._stack = ExitStack()

    def __enter__(self) -> Lease:
        with ExitStack() as stack:
            self._session = stack.enter_context(self._queue.session())
            stack.callback(self._release_rest)
            if self._timer is not None:
                run = contextvars.copy_context().run  # the thread touches by the session of this context
                thread = threading.Thread(target=run, args=(self._heartbeat,), name="xq heartbeat", daemon=True)
                thread.start()
                stack.callback(thread.join)
                stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)

    def _end(self) -> None:
        self._over = True
        self._changed.set()

    def data(self, task: Any) -> Mapping[str, Any]:
        """Return the fields of a task by name, in any form that the feature retval gives it."""
        if isinstance(task, tuple):
            return dict(zip(self._names, task, strict=True))
        data: Mapping[str, Any] = self._store.data(task) or task
        return data

    def _key(self, data: Mapping[str, Any]) -> Any:
        parts = tuple(data[name] for name in self._store.key)
        return parts[0] if len(parts) == 1 else parts

    def take(self, n: int, timeout: float | None) -> dict[Any, Mapping[str, Any]]:
        """Take up to `n` tasks and return their fields by key, in order. Waits up to `timeout` seconds for the first.

        A task of this lease whose ttr has passed may be taken again. It stays in the lease and is not returned.
        """
        found: dict[Any, Mapping[str, Any]] = {}
        while not found and (tasks := self._queue.take_many(n, timeout)):
            with self._lock:
                for task in tasks:
                    data = self.data(task)
                    key = self._key(data)
                    if key not in self._tasks:
                        found[key] = data
                    self._tasks[key] = LeasedTask(task, self._ttr(data), time.monotonic())
            self._changed.set()
        return found

    def _ttr(self, data: Mapping[str, Any]) -> float | None:
        roles = self._queue.roles
        if self._timer is None or data[roles["runat"]] is None:
            return None
        own = data.get(roles.get(self._timer.option, ""))
        return self._timer.default if own is None else float(own)

    def finish(
        self, move: Callable[[dict[Any, Any]], Collection[Any]], keys: Iterable[Any]
    ) -> tuple[set[Any], set[Any]]:
        """Run `move` in one transaction, and return the keys of the tasks that it moved and of the tasks that are lost.

        `move` gets the tasks that the lease still has, by key, and returns the keys of those that it moved. When a task
        turns out to be lost, the transaction is rolled back and `move` called again without it.
        """
        with self._lock:
            ours = {key: self._tasks[key].task for key in keys}
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
                del self._tasks[key]
            for key in ours.keys() - moved:
                self._tasks[key].task = key  # enough to release it, and small
            return moved, lost

    def _lost(self, error: Any, tasks: Collection[Any]) -> set[Any]:
        """Return which of the tasks the session does not own any more. Raises `error` if its task is none of them."""
        mine = {key for key, session, _ in self._queue.taken() if session == self._session.uuid}
        lost = {key for key in tasks if key not in mine}
        if error.key not in lost:  # a task of another queue, for example, with the same key
            raise error
        return lost

    def release(self) -> tuple[set[Any], set[Any]]:
        """Release all tasks of the lease. Returns the keys of those, and of the lost ones."""

        def release(ours: dict[Any, Any]) -> Collection[Any]:
            self._queue.release_many(ours.values())
            return ours

        return self.finish(release, list(self._tasks))

    def _release_rest(self) -> None:
        if self._tasks:
            try:
                self.release()
            except Exception as error:  # the end of the session releases them; the error of the block is raised
                log.warning("tasks of a lease could not be released: %s", error)

    # the heartbeat

    def _heartbeat(self) -> None:
        try:
            while not self._over:
                self._changed.wait(self._touch())
                self._changed.clear()
        finally:
            self._store.disconnect()

    def _touch(self) -> float | None:
        """Touch the tasks whose heartbeat is due. Returns the seconds until the next one; None if no task has a ttr."""
        with self._lock:
            timed = {key: leased for key, leased in self._tasks.items() if leased.ttr is not None}
            if not timed:
                return None
            pause = min(leased.ttr for leased in timed.values() if leased.ttr is not None) / HEARTBEATS
            now = time.monotonic()
            due: dict[float, dict[Any, LeasedTask]] = {}  # by the time of the last heartbeat
            for key, leased in timed.items():
                if now - leased.touched_at >= pause / 2:
                    due.setdefault(leased.touched_at, {})[key] = leased
            try:
                self._store.connect()
                for touched_at, tasks in due.items():
                    self._touch_all(tasks, now - touched_at)
            except Exception as error:  # of the database: `finish` finds out what was lost
                log.warning("tasks of a lease could not be touched: %s", error)
            else:
                for tasks in due.values():
                    for leased in tasks.values():
                        leased.touched_at = now
            return pause

    def _touch_all(self, tasks: dict[Any, LeasedTask], seconds: float) -> None:
        while tasks:
            try:
                self._queue.touch_many([leased.task for leased in tasks.values()], seconds)
                return
            except SessionLost:
                raise
            except LOST as error:
                for key in self._lost(error, tasks):
                    tasks.pop(key).ttr = None  # `finish` reports it
