"""Notify callbacks and listeners when this process has committed changes to a queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol

from xq.core.connections import Connections
from xq.core.kinds import Row, T

Callback = Callable[[T, str, str, str], object]  # task, event, source state, target state


class Listener(Protocol):
    """An object that looks at the database when notified, so a notification after a rollback is harmless."""

    @property
    def anybody(self) -> bool:
        """Whether it needs notifications now."""

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """Handle a transition that this process has committed."""


class Observers(Generic[T]):
    """One queue's observers: callbacks, called in the order in which they were added, and listeners."""

    def __init__(self, store: Connections, read: Callable[[Row], T]) -> None:
        self.store = store
        self.read = read  # converts a row to a task
        self.anybody = False  # whether to notify anything at all; set by `count`
        self._counting = threading.Lock()
        # Run around each put, with a function that puts and takes the role trace's value, and the number of tasks.
        self.around_put: Callable[[Callable[[str | None], list[T]], int], list[T]] | None = None
        self.around_work: Callable[..., Any] | None = None  # `Worker.around` for each worker to come
        self.callbacks: tuple[Callback[T], ...] = ()  # replaced as a whole: another thread may iterate over it
        self.listeners: tuple[Listener, ...] = ()
        self._log = logging.getLogger(f"xq.{store.name}")

    def count(self) -> None:
        """Set `anybody`. Call it when the callbacks change, or when a listener's need for notifications does."""
        with self._counting:  # one at a time, so that the latest result remains
            self.anybody = bool(self.callbacks) or any(listener.anybody for listener in self.listeners)

    def listen(self, *listeners: Listener) -> None:
        self.listeners = (*self.listeners, *listeners)
        self.count()

    def add(self, callback: Callback[T]) -> None:
        if callback not in self.callbacks:
            self.callbacks = (*self.callbacks, callback)
        self.count()

    def remove(self, callback: Callback[T]) -> None:
        self.callbacks = tuple(other for other in self.callbacks if other != callback)
        self.count()

    def forked(self) -> None:
        """Replace the lock in a forked child: one of the parent's threads may have held it."""
        self._counting = threading.Lock()
        self.count()

    def notify(self, event: str, source: str, target: str, rows: Sequence[Row]) -> None:
        """Notify the observers once a statement's change is committed."""
        listening = [listener for listener in self.listeners if listener.anybody]
        if listening:
            self.store.after_commit(lambda: self._signal(listening, source, target, rows))
        if self.callbacks:
            self.store.after_commit(lambda: self._tell(event, source, target, rows))

    def _signal(self, listening: Sequence[Listener], source: str, target: str, rows: Sequence[Row]) -> None:
        for listener in listening:
            try:
                listener.changed(source, target, rows)
            except Exception as error:  # the change is committed, and a lost notification costs only time
                self._log.debug("the waiters were not notified of %s-%s: %s", source, target, error)

    def _tell(self, event: str, source: str, target: str, rows: Sequence[Row]) -> None:
        for row in rows:
            for callback in self.callbacks:
                try:
                    callback(self.read(row), event, source, target)
                except Exception:  # the change is committed
                    self._log.exception("on_change: %r failed for %s %s-%s", callback, event, source, target)
