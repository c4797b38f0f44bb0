"""Who hears of the changes that this process makes to a queue: told of what is committed, and of nothing else."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from xq.store import Row, Store

if TYPE_CHECKING:
    from xq.adapters.databases.sql import Dialect

T = TypeVar("T")

Callback = Callable[[T, str, str, str], object]  # of a task, the event, the state left and the state entered

_numbers = itertools.count(1)  # of the changes within transactions, in this process


class Observers(Generic[T]):
    """The callbacks of one queue, in the order in which they were added."""

    def __init__(self, store: Store[T]) -> None:
        self.store = store
        self.callbacks: tuple[Callback[T], ...] = ()  # replaced as a whole: another thread may be going through it
        self.read: Callable[[Row], T]  # a row as a task
        self._log = logging.getLogger(f"xq.{store.name}")

    def add(self, callback: Callback[T]) -> None:
        if callback not in self.callbacks:
            self.callbacks = (*self.callbacks, callback)

    def remove(self, callback: Callback[T]) -> None:
        self.callbacks = tuple(other for other in self.callbacks if other != callback)

    def hear(self, dialect: Dialect, event: str, source: str, target: str, rows: Sequence[Row]) -> None:
        """Tell of a change that a statement made, once it is committed.

        An ORM keeps what is to be called after the commit when a savepoint is rolled back, or does not see that it
        is. So each change within a transaction has a number in a table of the connection, which goes with it.
        """
        if not self.store.in_transaction():
            self._tell(event, source, target, rows)
            return
        number = {"number": next(_numbers)}
        self.store.execute(dialect.numbers)
        self.store.execute(dialect.add_number, number)

        def committed() -> None:
            try:
                self.store.execute(dialect.numbers)  # the table itself goes with its savepoint, too
                there = self.store.change(dialect.take_number, number)
            except Exception:
                self._log.exception("on_change: it is not known whether %s %s-%s was undone", event, source, target)
                return
            if there:
                self._tell(event, source, target, rows)

        self.store.after_commit(committed)

    def _tell(self, event: str, source: str, target: str, rows: Sequence[Row]) -> None:
        for row in rows:
            for callback in self.callbacks:
                try:
                    callback(self.read(row), event, source, target)
                except Exception:  # the change is true already
                    self._log.exception("on_change: %r failed for %s %s-%s", callback, event, source, target)
