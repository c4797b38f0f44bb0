"""What an archive changes in the database: it deletes what its files have, and puts tasks back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from xq.core.clock import microseconds
from xq.core.compile import Change, Selector
from xq.core.errors import ConfigurationError, Duplicate, FeatureOff
from xq.core.kinds import REFUSALS, Field, T
from xq.core.machine import ABSENT, Transition
from xq.core.values import Key, chunks, named
from xq.engine.binding import Compiled
from xq.engine.statements import Statements
from xq.pipeline.frames import as_stored
from xq.pipeline.scan import Checkpoint, Extract, Part

DONE = "D"
OUT = Transition(DONE, "archive", ABSENT)
BACK = ("restore", ABSENT, DONE)
LATEST = 2**62  # microseconds
PER_TRANSACTION = 2_000  # tasks that one transaction moves
ROWS = 5_000  # history rows that one statement deletes
VALUES = 5_000  # values in one INSERT


class Written(NamedTuple):
    """A done task in an archive's files."""

    key: Sequence[Any]  # as a data frame has it
    text: str  # as the history has it
    at_us: int | None  # when it was done; None if the history does not show it


class Stays(Exception):
    """A task among these must stay in the table."""


class Archive:
    """One queue's archive, as the database sees it. Rows are deleted only after the files have them."""

    def __init__(self, statements: Statements) -> None:
        self.executor = statements.executor
        self.store = statements.store
        self.machine = statements.machine
        self.statements = statements
        self.log = logging.getLogger(f"xq.{self.store.name}")

    def check(self, what: str) -> None:
        """Raise FeatureOff if the queue keeps no done tasks, or no history that shows when they were done."""
        if DONE not in self.machine.states:
            raise FeatureOff(f"{what} moves done tasks, which a queue keeps with the feature 'keep'", feature="keep")
        if self.machine.settings.history is None:
            raise FeatureOff(
                f"{what} needs to know when a task was done: turn on the feature 'history'", feature="history"
            )

    def check_changes(self) -> None:
        """Raise ConfigurationError within a transaction, and for a table with columns that would be lost."""
        if self.store.in_transaction():
            raise ConfigurationError(
                f"archives of {self.store.name} use many transactions: call this outside of a transaction"
            )
        self.check_columns()

    def check_columns(self) -> None:
        """Raise ConfigurationError for a table with columns that the model does not name."""
        source = self.executor.dialect.source
        there = self.executor.dialect.installer.columns_of(self.store, source.name)
        known = {field.column.lower() for field in source.fields}
        if more := sorted(name for name, made in there.items() if not made and name.lower() not in known):
            raise ConfigurationError(
                f"the table {source.name} has columns that {self.store.name} does not name "
                f"({', '.join(more)}), which would be lost: add fields for them"
            )

    def moment(self, name: str, value: object) -> int:
        """Return a moment in microseconds since 1970: a date means its beginning, None the end of time.

        Raises as `history`.
        """
        return LATEST if value is None else microseconds(name, value)

    @property
    def identity(self) -> dict[str, str]:
        """What identifies this queue among all databases' queues, as JSON values."""
        address = self.store.address()
        names = [name for name in ("unix_socket", "host", "port", "dbname", "database") if address.parameters.get(name)]
        database = " ".join(str(address.parameters[name]) for name in names)
        if address.engine == "sqlite":
            database = os.path.abspath(database)
        return {"queue": self.executor.installation.dialect.source_name, "database": database}

    @property
    def key(self) -> list[str]:
        return [field.name for field in self.executor.dialect.source.key]

    # out

    def forget_done(
        self, tasks: Iterable[Written], history: Extract, until: Checkpoint, begun_us: int
    ) -> tuple[int, Sequence[Written]]:
        """Delete tasks that have not entered D since a history checkpoint older than their files.

        Returns how many were deleted, and the tasks that must stay: the database refuses to delete them, or would use
        their key again. A task that another process moves meanwhile is in neither. Raises ConfigurationError if the
        history is not kept since `begun_us`, a time before the checkpoint: it cannot show then what entered D again.
        """
        gone, refused, again = 0, list[Written](), set[str]()
        for batch in chunks(tasks, PER_TRANSACTION):
            seen, until = until, history.checkpoint(until)
            if seen != until:
                moves = history.read(["key", "target"], Part(after=seen, until=until))
                again.update(key for key, target in moves if target == DONE)
            done = [task for task in batch if task.text not in again]
            n, more = self._in_parts(partial(self._forget, until, begun_us), done)
            gone, refused = gone + n, refused + more
        return gone, refused

    def _forget(self, until: Checkpoint, begun_us: int, tasks: Sequence[Written]) -> int:
        binding, values = self.executor.open(), self.executor.values()
        keys = self._stored(binding.dialect.source.key, [task.key for task in tasks])
        if binding.dialect.queries.highest_key and self.executor.run(binding.dialect.queries.highest_key)[0] in keys:
            raise Stays
        mode, chosen = binding.dialect.moves.by_keys(keys)
        compiled = self.statements.move(binding, OUT.event, Selector(mode, DONE), OUT)
        gone = sum(len(self.executor.run(compiled, {**values, **which})) for which in chosen)
        # The deletion has locked the tasks: if one came to D again before, it shows now.
        if self.executor.run(binding.dialect.queries.done_again(until)):
            raise Stays
        kept = self.machine.settings.history or 0.0
        if self.executor.time_us() - begun_us >= kept * 1e6:
            raise ConfigurationError(
                f"{self.store.name} keeps its history for {kept:g} s, and this archive takes longer: the rest of its "
                "tasks stay. Keep the history longer, or archive less at once (before=)"
            )
        return gone

    def forget_archived(self, ids: Iterable[int]) -> int:
        """Delete history rows. Returns how many were there."""
        binding = self.executor.open()
        deletions = map(binding.dialect.queries.forget_rows, chunks(ids, ROWS))
        each = (binding.changes(self.store, statement) for statement in deletions)
        return sum(n for compiled in each for (n,) in self.executor.run(compiled))

    # back

    def put_back(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> tuple[int, int]:
        """Put tasks with these fields into the table, in D and else as they were.

        Returns how many, and how many others the database refuses. Neither counts tasks whose key is there.
        """
        known = self.statements.tasks.known
        defaults = {name: value for name, value in self.store.declared_defaults().items() if not callable(value)}
        newer = {name: known(name).to_database(value) for name, value in defaults.items() if name not in names}
        every, fields = (*names, *newer), list(map(known, names))
        keys, look = [names.index(name) for name in self.key], self.executor.dialect.queries.look()
        back, refused = 0, 0
        for batch in chunks(rows, max(1, min(PER_TRANSACTION, VALUES // len(every)))):
            stored = [(*row, *newer.values()) for row in self._stored(fields, batch)]
            n, more = self._in_parts(partial(self._put_back, every), stored)
            there = (self.executor.run(look, named(tuple([row[i] for i in keys]))) for row in more)
            back, refused = back + n, refused + sum(not found for found in there)
        return back, refused

    def _put_back(self, names: Sequence[str], rows: Sequence[Key]) -> int:
        binding = self.executor.open()
        statement = binding.dialect.moves.insert(Change(DONE, {"status": DONE}), names, len(rows), guarded=False)
        run = binding.dialect.moves.runner(statement, BACK[0], width=len(names))
        back = self.executor.run(Compiled(statement, run, *BACK), {**self.executor.values(), "rows": rows})
        self.statements.count(binding, *BACK, len(back))
        return len(back)

    def _stored(self, fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> list[Key]:
        """Return a data frame's rows as the table stores them. Raises BadValue and BadType."""
        columns = zip(*rows, strict=True)
        stored = [as_stored(self.store.name, *column) for column in zip(fields, columns, strict=False)]
        return list(zip(*stored, strict=True))

    def _in_parts(self, work: Callable[[Sequence[T]], int], rows: Sequence[T]) -> tuple[int, list[T]]:
        def is_refused(error: Exception) -> bool:
            return isinstance(error, (Stays, Duplicate)) or self.store.classify(error) in REFUSALS

        n, refused = self.executor.in_parts(work, rows, is_refused)
        for _, error in refused:
            if not isinstance(error, Stays):
                self.log.warning("a task stays where it is: %s", error)
        return n, [row for row, _ in refused]
