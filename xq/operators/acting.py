"""Who moves tasks, and why: an operator's transitions have an actor and a reason in the history."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from xq.core.errors import BadType, BadValue, shown
from xq.core.machine import Machine
from xq.core.ports import LONGEST_ACTOR, LONGEST_REASON, Row, fits_a_column
from xq.core.values import Tasks, chunks, named
from xq.engine.unit import Database

AT_ONCE: Final = 500  # transitions that one statement ascribes


def checked(what: str, value: object, longest: int) -> str | None:
    """Return an actor or a reason. Raises BadType and BadValue."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadType(f"{what} is text, not {shown(value)}")
    if not value.strip() or len(value) > longest or not fits_a_column(value):
        raise BadValue(f"{what} is a text of 1 to {longest:,} characters without a zero byte, not {shown(value)}")
    return value


@dataclass(frozen=True)
class By:
    """Who acts, and why."""

    actor: str | None
    reason: str | None

    @classmethod
    def of(cls, actor: object, reason: object) -> By:
        """Return both, checked. Raises BadType and BadValue."""
        return cls(checked("actor", actor, LONGEST_ACTOR), checked("reason", reason, LONGEST_REASON))

    def __bool__(self) -> bool:
        return self.actor is not None or self.reason is not None

    def __str__(self) -> str:
        return self.actor or "an operator"

    def told(self, what: str) -> str:
        """Return a line for the log."""
        return f"{self}: {what}{f': {self.reason}' if self.reason else ''}"


@dataclass
class Block:
    """The transitions of an open block of `acting`."""

    by: By
    since: int  # the id in the history before the first of them
    lines: list[str] = field(default_factory=list)  # for the log, without a history


class Acting:
    """Ascribes the transitions of a block to an actor: in the history, or without one in the log."""

    def __init__(self, database: Database, tasks: Tasks[Any], machine: Machine) -> None:
        self.database = database
        self.tasks = tasks
        self.has_history = machine.settings.history is not None
        self.by_time = {row.event for row in machine.due}  # a take or a dig of the block may move what fell due
        self.log = logging.getLogger(f"xq.{database.store.name}")

    @contextmanager
    def acting(self, by: By) -> Iterator[None]:
        """Run the block as one transaction of this thread, and ascribe the transitions that xq makes within it."""
        database, observers = self.database, self.database.observers
        with database.store.atomic():
            database.begin_writing()
            dialect = database.dialect
            newest = int(database.execute(dialect.newest_transition)[0][0]) if self.has_history else 0
            block = Block(by, newest)
            with observers.within_transaction(partial(self._moved, block)):
                yield
            if block.lines:
                observers.once_committed(dialect, partial(self._tell, block))

    def _moved(self, block: Block, event: str, rows: Sequence[Row]) -> None:
        if event in self.by_time:
            return
        if not self.has_history:
            block.lines += [block.by.told(f"{event} {shown(self.tasks.app_key_of(row))}") for row in rows]
            return
        keys = dict.fromkeys(map(self.tasks.key_of, rows))
        newest = block.since
        for batch in chunks(list(keys), AT_ONCE):
            newest = max(newest, self._ascribe(block, batch))
        block.since = newest

    def _ascribe(self, block: Block, keys: Sequence[tuple[Any, ...]]) -> int:
        """Ascribe the last transition of each of these tasks, and return the greatest id.

        This transaction has locked the tasks, so no other one writes a later transition of them.
        """
        dialect, execute = self.database.dialect, self.database.execute
        values: dict[str, Any] = {"since": block.since}
        for place, parts in enumerate(keys):
            values |= {f"{name}_{place}": part for name, part in named(parts).items()}
        ids = [int(row[0]) for row in execute(dialect.last_of(len(keys)), values)]
        if not ids:
            return block.since  # of a touch, say
        marked = {"actor": block.by.actor, "reason": block.by.reason}
        execute(dialect.ascribe(len(ids)), {**marked, **{f"id{place}": id_ for place, id_ in enumerate(ids)}})
        return max(ids)

    def _tell(self, block: Block) -> None:
        for line in block.lines:
            self.log.info("%s", line)
