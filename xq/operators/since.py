"""Since when tasks are in their states: by their tokens, the role finished, and the history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from xq.core.errors import FeatureOff
from xq.core.machine import ENDED, TAKEN, Machine
from xq.core.tokens import owner_of
from xq.engine.executor import Executor
from xq.operators.failures import Failure, failure_of
from xq.operators.filters import Term
from xq.operators.questions import Questions

RECENT = 200_000  # transitions in which tasks' times are looked up: no index on the history has the keys
TRANSITIONS = 1_000_000  # that a term like age>1h reads
DISORDER = 1_000  # transitions by which the order by id may differ from the order by time


class Seen(NamedTuple):
    """What a search reads from a row that it examines."""

    position: tuple[Any, ...]  # in its walk
    columns: tuple[Any, ...]  # in its table, if they are wanted
    key: Any  # as the history has it
    state: str
    token: str | None
    error: str | None  # if it is wanted
    finished: float | None  # in seconds since 1970, if the role is mapped
    function: str | None  # what it runs, with the error

    @property
    def failure(self) -> Failure:
        """The group of its error."""
        return failure_of(self.error, self.function)

    @property
    def since(self) -> float | None:
        """Since when it is in its state, as the row itself has it."""
        if self.state in ENDED:
            return self.finished
        return owner_of(self.token)[1] if self.token and self.state == TAKEN else None


class Since:
    """When one queue's tasks came into their states, in seconds since 1970."""

    def __init__(self, executor: Executor, machine: Machine) -> None:
        self.executor = executor
        self.kept = machine.settings.history
        self.in_rows = {TAKEN, *(ENDED if "finished" in machine.roles else ())}  # states whose rows have the time

    @property
    def questions(self) -> Questions:
        return Questions(self.executor.dialect)

    def of(self, tasks: Sequence[Seen], low: int | None = None) -> list[float | None]:
        """Return since when each task is in its state, by the transitions after the id `low`; None if not known."""
        found = dict[tuple[str, str], float]()
        asked = [str(task.key) for task in tasks if task.since is None]
        if asked and self.kept is not None:
            low = self.newest() - RECENT if low is None else low
            values = {"low": low, **{f"h{i}": key for i, key in enumerate(asked)}}
            for key, state, at_us in self.executor.run(self.questions.last_entries(len(asked)), values):
                found[str(key), state] = at_us / 1_000_000
        return [task.since or found.get((str(task.key), task.state)) for task in tasks]

    def newest(self) -> int:
        return int(self.executor.run(self.questions.newest_transition)[0][0])

    def low(self, term: Term, limit: float, at_us: int, states: Collection[str]) -> tuple[int | None, bool]:
        """Return an id before all transitions since a time, `limit` seconds ago, and whether there are earlier ones.

        If there are, a task without a transition since that time is in its state for longer. None: the rows have the
        time, by the states. Raises BadValue and FeatureOff.
        """
        if self.in_rows.issuperset(states):
            return None, False
        if self.kept is None:
            lacks = f"needs the feature 'history', which {self.executor.store.name} does not have"
            known = "without it only that of taken tasks is known (state:taken), and of ended ones by the role finished"
            raise FeatureOff(f"{term.wrong(lacks)}; {known}", feature="history")
        if limit > self.kept:
            raise term.wrong(f"asks for more than the {self.kept:,.0f} s that the history is kept")
        values = {"n": TRANSITIONS, "at_us": at_us}
        ((before, unread),) = self.executor.run(self.questions.last_before, values)
        if before is None and unread:
            raise term.wrong(f"asks for more than the last {TRANSITIONS:,} transitions: ask for a shorter time")
        return (before or 0) - DISORDER, before is not None
