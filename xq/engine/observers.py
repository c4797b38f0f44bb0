"""Who hears of the changes that this process makes to a queue: told of what is committed, and of nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from xq.core.ports import Connections, Row

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

T = TypeVar("T")

Callback = Callable[[T, str, str, str], object]  # of a task, the event, the state left and the state entered


class Listener(Protocol):
    """What looks for itself when it is told that something changed: being told of what was undone does no harm."""

    @property
    def anybody(self) -> bool:
        """Whether to tell it at all."""

    def changed(self, source: str, target: str, rows: Sequence[Row]) -> None:
        """This process moved tasks, and has committed since."""


class Observers(Generic[T]):
    """Who hears of one queue: callbacks, in the order in which they were added, and those who wait for a signal."""

    def __init__(self, store: Connections) -> None:
        self.store = store
        self.anybody = False  # whether to notify anything at all; `count` keeps it
        self._counting = threading.Lock()
        self.callbacks: tuple[Callback[T], ...] = ()  # replaced as a whole: another thread may be going through it
        # Set by the queue:
        self.read: Callable[[Row], T]  # a row as a task
        self.listeners: tuple[Listener, ...] = ()
        self._log = logging.getLogger(f"xq.{store.name}")

    def count(self) -> None:
        """Note whether there is a callback, or a listener that wants to be notified: to be called when that changes."""
        with self._counting:  # one after the other, so that the last one is right
            self.anybody = bool(self.callbacks) or any(listener.anybody for listener in self.listeners)

    def add(self, callback: Callback[T]) -> None:
        if callback not in self.callbacks:
            self.callbacks = (*self.callbacks, callback)
        self.count()

    def remove(self, callback: Callback[T]) -> None:
        self.callbacks = tuple(other for other in self.callbacks if other != callback)
        self.count()

    def forked(self) -> None:
        """In a child, where another thread of the parent may have been counting."""
        self._counting = threading.Lock()
        self.count()

    def hear(self, dialect: Dialect, event: str, source: str, target: str, rows: Sequence[Row]) -> None:
        """Tell of a change that a statement made, once it is committed."""
        listening = [listener for listener in self.listeners if listener.anybody]
        if listening:
            self.store.after_commit(lambda: self._signal(listening, source, target, rows))
        if self.callbacks:
            self.once_committed(dialect, lambda: self._tell(event, source, target, rows))

    def _signal(self, listening: Sequence[Listener], source: str, target: str, rows: Sequence[Row]) -> None:
        for listener in listening:
            try:
                listener.changed(source, target, rows)
            except Exception as error:  # the change is true already, and a signal that is lost costs time only
                self._log.debug("those who wait were not told of %s-%s: %s", source, target, error)

    def once_committed(self, dialect: Dialect, call: Callable[[], None]) -> None:
        """Call this once what was just written is committed, if it is.

        An ORM keeps what is to be called after the commit when a savepoint is rolled back, or does not see that it
        is: the database is asked.
        """
        if not self.store.in_transaction():
            call()
            return
        savepoint = dialect.note_savepoint(self.store)

        def committed() -> None:
            try:
                kept = dialect.was_committed(self.store, savepoint)
            except Exception:
                self._log.exception("on_change: it is not known whether a change was undone")
                return
            if kept:
                call()

        self.store.after_commit(committed)

    def _tell(self, event: str, source: str, target: str, rows: Sequence[Row]) -> None:
        for row in rows:
            for callback in self.callbacks:
                try:
                    callback(self.read(row), event, source, target)
                except Exception:  # the change is true already
                    self._log.exception("on_change: %r failed for %s %s-%s", callback, event, source, target)
