"""Since when tasks are in their states, by the tokens of taken tasks and the history of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from xq.core.errors import FeatureOff
from xq.core.machine import TAKEN, Machine
from xq.core.ports import Row
from xq.core.values import chunks
from xq.engine.unit import Database
from xq.operators.filters import Term
from xq.sessions.session import owner_of

RECENT = 200_000  # transitions in which the times of tasks are looked up: no index of the history has the keys
TRANSITIONS = 1_000_000  # that a term like age>1h reads
DISORDER = 1_000  # transitions by which the order of the ids may differ from that of the times
ASKED = 5_000  # keys that one statement looks up


class Noted(NamedTuple):
    """What the history has of a task, and its token."""

    key: Any
    state: str
    token: str | None


class Since:
    """The times of one queue, in microseconds since 1970."""

    def __init__(self, database: Database, machine: Machine) -> None:
        self.database = database
        self.kept = machine.settings.history

    def _run(self, sql: str, **values: Any) -> list[Row]:
        return self.database.execute(sql, values)

    def of(self, tasks: Sequence[Noted], low: int | None = None) -> list[int | None]:
        """Return since when each task is in its state, by the transitions after the id `low`; None if nothing tells."""
        taken = [_taken_at(task) for task in tasks]
        asked = [str(task.key) for task, at in zip(tasks, taken, strict=True) if at is None]
        found: dict[tuple[str, str], int] = {}
        if asked and self.kept is not None:
            dialect = self.database.dialect
            low = self._newest - RECENT if low is None else low
            for some in chunks(asked, ASKED):
                keys = {f"h{i}": key for i, key in enumerate(some)}
                rows = self._run(dialect.last_entries(len(some)), low=low, **keys)
                found |= {(str(key), state): int(at) for key, state, at in rows}
        both = zip(tasks, taken, strict=True)
        return [found.get((str(task.key), task.state)) if at is None else at for task, at in both]

    @property
    def _newest(self) -> int:
        return int(self._run(self.database.dialect.newest_transition)[0][0])

    def low(self, term: Term, limit: float, at_us: int) -> int:
        """Return an id before all transitions since a time, `limit` seconds ago. Raises BadValue and FeatureOff."""
        if self.kept is None:
            lacks = f"needs the feature 'history', which {self.database.store.name} does not have"
            known = "without it only the time of taken tasks is known: state:taken"
            raise FeatureOff(f"{term.wrong(lacks)}; {known}", feature="history")
        if limit > self.kept:
            raise term.wrong(f"asks for more than the {self.kept:,.0f} s that the history is kept")
        dialect = self.database.dialect
        before = self._newest - TRANSITIONS
        if rows := self._run(dialect.last_before, low=before, at_us=at_us):
            return int(rows[0][0]) - DISORDER
        ((oldest,),) = self._run(dialect.oldest_transition)
        if oldest <= before:
            raise term.wrong(f"asks for more than the last {TRANSITIONS:,} transitions: ask for a shorter time")
        return int(oldest) - 1


def _taken_at(task: Noted) -> int | None:
    at = owner_of(task.token)[1] if task.token and task.state == TAKEN else None
    return None if at is None else round(at * 1_000_000)
