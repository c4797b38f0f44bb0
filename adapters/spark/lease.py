"""A lease of tasks: one session takes them, a heartbeat thread touches them, and unfinished ones are released."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import xq
from xq.core.errors import NotFound, NotOwner, SessionLost, WrongState
from xq.core.machine import TAKEN

log = logging.getLogger("xq.spark")

LOST = (NotFound, WrongState, NotOwner)  # errors of a task that this session has lost
TOUCHED = 3  # heartbeats per ttr


@dataclass(slots=True)
class Leased:
    """A leased task, and the seconds it may go without a heartbeat; None for no limit."""

    task: Any
    ttr: float | None
    since: float  # the monotonic time of the last heartbeat


class Lease:
    """The tasks taken within `with Lease(queue) as lease:`. Those not finished are released at its end.

    If ttr times the tasks, a heartbeat thread touches them, on a connection of its own.
    """

    def __init__(self, queue: xq.Queue[Any]) -> None:
        self._queue = queue
        self._names = [field.name for field in queue.store.fields]
        self._leased: dict[Any, Leased] = {}  # by key
        self._lock = threading.Lock()  # no heartbeat runs while tasks are moved
        self._changed, self._over = threading.Event(), False
        self._timer = queue.machine.timer(TAKEN, "runat")
        self._stack = ExitStack()

    def __enter__(self) -> Lease:
        with ExitStack() as stack:
            self._session = stack.enter_context(self._queue.session())
            stack.callback(self._release_after_error)
            if self._timer is not None:
                # In a copy of this context, so that the thread uses this session.
                run = contextvars.copy_context().run
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
        """Return the fields of a task by name, for each kind of the feature retval."""
        if isinstance(task, tuple):
            return dict(zip(self._names, task, strict=True))
        data: Mapping[str, Any] = self._queue.store.data(task) or task
        return data

    def key(self, data: Mapping[str, Any]) -> Any:
        parts = tuple(data[name] for name in self._queue.store.key)
        return parts[0] if len(parts) == 1 else parts

    def take(self, n: int, timeout: float | None) -> dict[Any, Mapping[str, Any]]:
        """Take up to `n` tasks. Returns their fields by key, in order.

        A leased task whose ttr has passed may be taken again. It stays leased and is not returned.
        """
        found: dict[Any, Mapping[str, Any]] = {}
        while not found and (tasks := self._queue.take_many(n, timeout)):
            with self._lock:
                for task in tasks:
                    data = self.data(task)
                    key = self.key(data)
                    if key not in self._leased:
                        found[key] = data
                    self._leased[key] = Leased(task, self._ttr(data), time.monotonic())
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
        """Run `move` with some of the tasks in one transaction. Returns the keys of the finished and of the lost tasks.

        `move` gets the tasks that this session still owns, by key, and returns the keys of those that it finished. It
        is called again without tasks that turn out to be lost.
        """
        with self._lock:
            own = {key: self._leased[key].task for key in keys}
            lost: set[Any] = set()
            while True:
                try:
                    ended = set(self._queue.transaction(partial(move, own)))
                    break
                except SessionLost:
                    raise
                except LOST as error:
                    gone = self._lost_of(error, own)
                    log.info("%s. So are %d more", error, len(gone) - 1)
                    lost |= gone
                    own = {key: task for key, task in own.items() if key not in gone}
            for key in ended | lost:
                del self._leased[key]
            for key in own.keys() - ended:
                self._leased[key].task = key  # the key is enough to release the task, and needs less memory
            return ended, lost

    def _lost_of(self, error: Any, tasks: Collection[Any]) -> set[Any]:
        """Return the lost ones among the tasks, after an error of one of them. Raises other errors."""
        own = {key for key, session, _ in self._queue.taken() if session == self._session.uuid}
        gone = {key for key in tasks if key not in own}
        if error.key not in gone:  # for example of a task with the same key in another queue
            raise error
        return gone

    def release_all(self) -> tuple[set[Any], set[Any]]:
        """Release all leased tasks. Returns the keys of the released and of the lost ones."""

        def release(own: dict[Any, Any]) -> Collection[Any]:
            self._queue.release_many(own.values())
            return own

        return self.finish(release, list(self._leased))

    def _release_after_error(self) -> None:
        """Release the leased tasks after an error, without replacing that error."""
        if self._leased:
            try:
                self.release_all()
            except Exception as error:  # the end of the session releases them, in this process or another
                log.warning("leased tasks could not be released: %s", error)

    def _heartbeat(self) -> None:
        try:
            while not self._over:
                self._changed.wait(self._touch())
                self._changed.clear()
        finally:
            self._queue.store.disconnect()

    def _touch(self) -> float | None:
        """Send the heartbeats that are due. Returns the seconds until the next ones; None for never."""
        with self._lock:
            timed = {key: held for key, held in self._leased.items() if held.ttr is not None}
            if not timed:
                return None
            pause = min(held.ttr for held in timed.values() if held.ttr is not None) / TOUCHED
            now = time.monotonic()
            due: dict[float, dict[Any, Leased]] = {}
            for key, held in timed.items():
                if now - held.since >= pause / 2:
                    due.setdefault(held.since, {})[key] = held
            try:
                self._queue.store.connect()
                for since, same in due.items():
                    self._touch_all(same, now - since)
            except Exception as error:  # lost tasks are found when they are finished
                log.warning("leased tasks could not be touched: %s", error)
            else:
                for same in due.values():
                    for held in same.values():
                        held.since = now
            return pause

    def _touch_all(self, tasks: dict[Any, Leased], seconds: float) -> None:
        while tasks:
            try:
                self._queue.touch_many([held.task for held in tasks.values()], seconds)
                return
            except SessionLost:
                raise
            except LOST as error:
                for key in self._lost_of(error, tasks):
                    tasks.pop(key).ttr = None  # `finish` finds out that it is lost
