"""Running a row of the table of transitions: the statement that moves the tasks meant, and what is counted of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from xq.core.compile import Rows
from xq.core.errors import Duplicate
from xq.core.machine import ABSENT, Machine, Transition
from xq.core.ports import Row
from xq.core.values import Seconds, Tasks
from xq.engine.database import Database, Opened
from xq.engine.stats import apart

BATCH = 1_000  # tasks that one statement moves, or rows that one looks up


class Call(NamedTuple):
    """What a caller asks for, checked: an event, its options, and fields of the application to write."""

    event: str
    seconds: Seconds = {}
    fields: Mapping[str, Any] = {}
    to: str | None = None  # the state, where the caller names one


class Transitions:
    """The transitions of one queue."""

    def __init__(self, database: Database, tasks: Tasks[Any], machine: Machine) -> None:
        self.database = database
        self.store = database.store
        self.tasks = tasks
        self.machine = machine
        self._unique = machine.guard("unique")
        self._counts = machine.settings.counts_events

    def choose(self, state: str, call: Call) -> Transition:
        """The one that a call means in a state. Raises FeatureOff and BadValue for what that does not take."""
        return self.tasks.choose(state, call.event, call.seconds, call.to)

    def run(
        self, opened: Opened, call: Call, which: Rows, transition: Transition, values: Mapping[str, Any]
    ) -> list[Row]:
        """Have these tasks make a transition, and return their rows. Raises Duplicate."""
        statement = opened.statements.move(which, transition, frozenset(call.seconds), tuple(call.fields))
        whole = {**self.database.values(call.seconds), **values}
        if call.fields:
            whole.update(zip(statement.names, call.fields.values(), strict=True))
        event = call.event if transition.enters else ""
        source = "" if which.more else transition.source
        run: Callable[[], list[Row]] = partial(
            self.database.run, opened, statement, whole, event, source, transition.target
        )
        if self._counts and call.event:
            run = self.counting(opened, call.event, transition, run, several=bool(which.more))
        if self._unique is None:  # what an update brings only the database may find fault with
            return self.database.guarded(run) if call.fields else run()
        with self._telling_duplicates():
            return self.database.guarded(run)

    def counting(
        self, opened: Opened, event: str, transition: Transition, run: Callable[[], list[Row]], several: bool = False
    ) -> Callable[[], list[Row]]:
        """`run`, which also counts the event of the rows that it returns, where it is not the usual one.

        They may leave `several` states. Observers hear of it where no state is entered.
        """
        if not several and not self.counts_apart(event, transition):
            return run
        return partial(self.database.whole, partial(self._counted, opened, event, transition, run))

    def counts_apart(self, event: str, *transitions: Transition) -> bool:
        """Whether an event is to be counted by itself, since it is not the usual one of all these transitions."""
        return self._counts and not all(self.machine.is_usual(event, t.source, t.target) for t in transitions)

    def _counted(self, opened: Opened, event: str, transition: Transition, run: Callable[[], list[Row]]) -> list[Row]:
        rows, target = run(), transition.target
        sources = Counter(opened.dialect.state(row) or "" for row in rows) if target == ABSENT else Counter()
        for source, n in (sources or {transition.source: len(rows)}).items():
            self.count(opened, event, source, target, n)
        if rows and not transition.enters:
            self.database.observers.hear(opened.dialect, event, transition.source, target, rows)
        return rows

    def count(self, opened: Opened, event: str, source: str, target: str, n: int) -> None:
        """Count the event of so many transitions, where events are counted and it is not the usual one."""
        if n and self._counts and not self.machine.is_usual(event, source, target):
            opened.installation.add_counter(*apart(event, source, target), n)

    @contextmanager
    def _telling_duplicates(self) -> Iterator[None]:
        """A move back into the states of the feature unique may meet another task with the same value."""
        try:
            yield
        except Exception as error:
            if self._unique and self.store.is_refusal(error):
                if self.database.dialect.is_duplicate(self._unique, str(error)):
                    raise Duplicate(self.store.name) from error
            raise
