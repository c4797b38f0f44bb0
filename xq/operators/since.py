"""Since when tasks are in their states, by the tokens of taken tasks and the history of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from xq.core.errors import FeatureOff
from xq.core.machine import TAKEN, Machine
from xq.engine.run import Database
from xq.operators.filters import Term
from xq.sessions.session import owner_of

RECENT = 200_000  # transitions in which the times of tasks are looked up: no index of the history has the keys
TRANSITIONS = 1_000_000  # that a term like age>1h reads
DISORDER = 1_000  # transitions by which the order of the ids may differ from that of the times


class Seen(NamedTuple):
    """What a search reads of a row that it examines."""

    position: tuple[Any, ...]  # in its walk
    columns: tuple[Any, ...]  # of its table, if they are wanted
    key: Any  # as the history has it
    state: str
    token: str | None
    error: str | None  # if it is wanted

    @property
    def taken_at(self) -> float | None:
        return owner_of(self.token)[1] if self.token and self.state == TAKEN else None


class Since:
    """The times of one queue, in seconds since 1970."""

    def __init__(self, database: Database, machine: Machine) -> None:
        self.database = database
        self.kept = machine.settings.history

    def of(self, tasks: Sequence[Seen], low: int | None = None) -> list[float | None]:
        """Return since when each task is in its state, by the transitions after the id `low`; None if nothing tells."""
        dialect, found = self.database.dialect, dict[tuple[str, str], float]()
        asked = [str(task.key) for task in tasks if task.taken_at is None]
        if asked and self.kept is not None:
            low = self.database.run(dialect.questions.newest_transition)[0][0] - RECENT if low is None else low
            values = {"low": low, **{f"h{i}": key for i, key in enumerate(asked)}}
            for key, state, at_us in self.database.run(dialect.questions.last_entries(len(asked)), values):
                found[str(key), state] = at_us / 1_000_000
        return [task.taken_at or found.get((str(task.key), task.state)) for task in tasks]

    def low(self, term: Term, limit: float, at_us: int) -> int:
        """Return an id before all transitions since a time, `limit` seconds ago. Raises BadValue and FeatureOff."""
        if self.kept is None:
            lacks = f"needs the feature 'history', which {self.database.store.name} does not have"
            known = "without it only the time of taken tasks is known: state:taken"
            raise FeatureOff(f"{term.wrong(lacks)}; {known}", feature="history")
        if limit > self.kept:
            raise term.wrong(f"asks for more than the {self.kept:,.0f} s that the history is kept")
        values = {"n": TRANSITIONS, "at_us": at_us}
        ((before, unread),) = self.database.run(self.database.dialect.questions.last_before, values)
        if before is None and unread:
            raise term.wrong(f"asks for more than the last {TRANSITIONS:,} transitions: ask for a shorter time")
        return (before or 0) - DISORDER
