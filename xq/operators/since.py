"""Since when tasks are in their states, by the tokens of taken tasks and the history of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from xq.core.errors import FeatureOff
from xq.core.machine import TAKEN, Machine
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
    """The times of one queue, in seconds since 1970."""

    def __init__(self, database: Database, machine: Machine) -> None:
        self.database = database
        self.kept = machine.settings.history

    def of(self, tasks: Sequence[Noted], low: int | None = None) -> list[float | None]:
        """Return since when each task is in its state, by the transitions after the id `low`; None if nothing tells."""
        found: dict[tuple[str, str], float] = {}
        asked = [str(task.key) for task in tasks if _taken_at(task) is None]
        if asked and self.kept is not None:
            low = self._newest() - RECENT if low is None else low
            for some in chunks(asked, ASKED):
                values = {"low": low, **{f"h{i}": key for i, key in enumerate(some)}}
                rows = self.database.execute(self.database.dialect.last_entries(len(some)), values)
                found |= {(str(key), state): at_us / 1_000_000 for key, state, at_us in rows}
        return [_taken_at(task) or found.get((str(task.key), task.state)) for task in tasks]

    def _newest(self) -> int:
        return int(self.database.execute(self.database.dialect.newest_transition)[0][0])

    def low(self, term: Term, limit: float, at_us: int) -> int:
        """Return an id before all transitions since a time, `limit` seconds ago. Raises BadValue and FeatureOff."""
        if self.kept is None:
            lacks = f"needs the feature 'history', which {self.database.store.name} does not have"
            known = "without it only the time of taken tasks is known: state:taken"
            raise FeatureOff(f"{term.wrong(lacks)}; {known}", feature="history")
        if limit > self.kept:
            raise term.wrong(f"asks for more than the {self.kept:,.0f} s that the history is kept")
        before, dialect = self._newest() - TRANSITIONS, self.database.dialect
        if rows := self.database.execute(dialect.last_before, {"low": before, "at_us": at_us}):
            return int(rows[0][0]) - DISORDER
        if self.database.execute(dialect.oldest_transition)[0][0] <= before:
            raise term.wrong(f"asks for more than the last {TRANSITIONS:,} transitions: ask for a shorter time")
        return before


def _taken_at(task: Noted) -> float | None:
    return owner_of(task.token)[1] if task.token and task.state == TAKEN else None
