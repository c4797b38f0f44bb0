"""Read a queue's history: the table of its transitions."""

from __future__ import annotations

from datetime import date
from typing import Any

from xq.core.clock import microseconds
from xq.core.connections import Reader
from xq.core.kinds import HISTORY, beside
from xq.core.values import Tasks, named
from xq.engine.executor import Executor


class History:
    """One queue's history, which the feature history keeps."""

    def __init__(self, executor: Executor, tasks: Tasks[Any]) -> None:
        self.executor = executor
        self.tasks = tasks
        self.machine = tasks.machine
        self._readers: dict[tuple[str, ...], Reader] = {}  # by the names that the table and its columns have

    @property
    def reader(self) -> Reader:
        """The reader for the history table, with the names in the model's current database if it has one.

        Raises FeatureOff.
        """
        store = self.executor.store
        self.check()
        table, columns = beside(store.table, "history"), HISTORY
        if store.database is not None:
            dialect = self.executor.open(installed=False).dialect
            table, columns = dialect.name("history"), dialect.history_columns
        name = (table, *columns)
        if name not in self._readers:
            self._readers[name] = store.reader(f"{store.name}History", table, columns)
        return self._readers[name]

    def check(self, what: str = "history") -> None:
        """Raise FeatureOff if `what` is the history and the queue keeps none."""
        if what == "history" and self.machine.settings.history is None:
            self.tasks.options.refuse_event("history")

    def read(
        self,
        key: object,
        since: float | date | None,
        until: float | date | None,
        after: int | None = None,
        before: int | None = None,
    ) -> list[Any]:
        """Return a task's transitions (`key` None: all tasks') between two moments, in order.

        A moment is in seconds since 1970, a datetime or a date. Rows up to the id `after`, and from the id `before` on,
        are not read. Raises FeatureOff, BadType and BadValue.
        """
        instance = self.reader.instance
        values: dict[str, Any] = {} if key is None else named(self.tasks.identify(key)[0])
        moments, ids = {"since": since, "until": until}, {"after": after, "before": before}
        values |= {name: microseconds(name, at) for name, at in moments.items() if at is not None}
        values |= {name: id for name, id in ids.items() if id is not None}
        asked = tuple(name for name, value in {"key": key, **moments, **ids}.items() if value is not None)
        dialect = self.executor.dialect
        names = [*dialect.history_columns, "dur_us"]
        rows = self.executor.run(dialect.queries.history(asked), values)
        return [instance(dict(zip(names, row, strict=True))) for row in rows]
