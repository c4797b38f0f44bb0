"""Tasks in hand: taken by a session of their own, touched as long as they are, and given back where they are left."""

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

GONE = (NotFound, WrongState, NotOwner)  # what is raised of a task that is not ours any more
TOUCHED = 3  # times in a ttr


@dataclass(slots=True)
class Held:
    """A task, and how long it may be in hand without being touched: None for ever."""

    task: Any
    ttr: float | None
    since: float  # the monotonic time


class Hand:
    """What is taken of a queue within `with Hand(queue) as hand:`. It goes back at the end, but for what was finished.

    Where ttr times the tasks a thread touches them, on a connection of its own.
    """

    def __init__(self, queue: xq.Queue[Any]) -> None:
        self._queue = queue
        self._names = [field.name for field in queue.adapter.store.fields]
        self._held: dict[Any, Held] = {}  # by key
        self._lock = threading.Lock()  # of the tasks: nothing is touched while they are moved
        self._changed, self._over = threading.Event(), False
        self._timer = queue.machine.timer(TAKEN, "runat")
        self._stack = ExitStack()

    def __enter__(self) -> Hand:
        with ExitStack() as stack:
            self._session = stack.enter_context(self._queue.session())
            stack.callback(self._leave)
            if self._timer is not None:
                # In the context of this thread, and so by its session.
                run = contextvars.copy_context().run
                thread = threading.Thread(target=run, args=(self._touch_in_time,), name="xq touches", daemon=True)
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
        """The fields of a task, by name, whatever the feature retval makes of it."""
        if isinstance(task, tuple):
            return dict(zip(self._names, task, strict=True))
        data: Mapping[str, Any] = self._queue.adapter.store.data(task) or task
        return data

    def key(self, data: Mapping[str, Any]) -> Any:
        parts = tuple(data[name] for name in self._queue.adapter.store.key)
        return parts[0] if len(parts) == 1 else parts

    def take(self, n: int, timeout: float | None) -> dict[Any, Mapping[str, Any]]:
        """Take up to `n` tasks: their fields, by key, in order.

        What has come to be ready although it was in hand, its ttr having run out, is in hand again, and not returned.
        """
        found: dict[Any, Mapping[str, Any]] = {}
        while not found and (tasks := self._queue.take_many(n, timeout)):
            with self._lock:
                for task in tasks:
                    data = self.data(task)
                    key = self.key(data)
                    if key not in self._held:
                        found[key] = data
                    self._held[key] = Held(task, self._ttr(data), time.monotonic())
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
        """Have `move` move some of these tasks in one transaction, and return the keys of those, and of those lost.

        It gets the tasks that are still ours, by key, and returns the keys of those that it moved. It is called again
        without those that turn out not to be ours any more.
        """
        with self._lock:
            ours = {key: self._held[key].task for key in keys}
            lost: set[Any] = set()
            while True:
                try:
                    ended = set(self._queue.transaction(partial(move, ours)))
                    break
                except SessionLost:
                    raise
                except GONE as error:
                    gone = self._gone(error, ours)
                    log.info("%s. So are %d more", error, len(gone) - 1)
                    lost |= gone
                    ours = {key: task for key, task in ours.items() if key not in gone}
            for key in ended | lost:
                del self._held[key]
            for key in ours.keys() - ended:
                self._held[key].task = key  # that is enough to release it, and small
            return ended, lost

    def _gone(self, error: Any, tasks: Collection[Any]) -> set[Any]:
        """Those of the tasks that are not ours any more, as an error has told of one. Raises it where that is none."""
        mine = {key for key, session, _ in self._queue.taken() if session == self._session.uuid}
        gone = {key for key in tasks if key not in mine}
        if error.key not in gone:  # that of a task of another queue, say, which has the same key
            raise error
        return gone

    def give_back(self) -> tuple[set[Any], set[Any]]:
        """Release all that is in hand, and return the keys of what was, and of what is another's by now."""

        def release(ours: dict[Any, Any]) -> Collection[Any]:
            self._queue.release_many(ours.values())
            return ours

        return self.finish(release, list(self._held))

    def _leave(self) -> None:
        """Give back what is in hand as it is left by an error, which is the one to be raised."""
        if self._held:
            try:
                self.give_back()
            except Exception as error:  # then the end of the session gives it back, here or in another process
                log.warning("tasks in hand could not be released: %s", error)

    # in time

    def _touch_in_time(self) -> None:
        try:
            while not self._over:
                self._changed.wait(self._touch())
                self._changed.clear()
        finally:
            self._queue.adapter.store.disconnect()

    def _touch(self) -> float | None:
        """Touch what will not wait for the next time. Returns in how many seconds that is; None for never."""
        with self._lock:
            timed = {key: held for key, held in self._held.items() if held.ttr is not None}
            if not timed:
                return None
            pause = min(held.ttr for held in timed.values() if held.ttr is not None) / TOUCHED
            now = time.monotonic()
            apart: dict[float, dict[Any, Held]] = {}
            for key, held in timed.items():
                if now - held.since >= pause / 2:
                    apart.setdefault(held.since, {})[key] = held
            try:
                self._queue.adapter.store.connect()
                for since, alike in apart.items():
                    self._touch_all(alike, now - since)
            except Exception as error:  # of the database: what is lost by that, its end tells
                log.warning("tasks in hand could not be touched: %s", error)
            else:
                for alike in apart.values():
                    for held in alike.values():
                        held.since = now
            return pause

    def _touch_all(self, tasks: dict[Any, Held], seconds: float) -> None:
        while tasks:
            try:
                self._queue.touch_many([held.task for held in tasks.values()], seconds)
                return
            except SessionLost:
                raise
            except GONE as error:
                for key in self._gone(error, tasks):
                    tasks.pop(key).ttr = None  # whoever finishes it finds out
