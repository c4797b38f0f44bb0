"""Operations: what an operator does to all tasks that a filter shows, in chunks, each of which is one transaction.

Nothing of an operation is stored. What it has left, because its process was killed, say, another one with the same
filter moves: the tasks that were moved are in states that its event does not leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from xq.core.acting import By, block
from xq.core.errors import BadType, BadValue, Duplicate, FeatureOff, WrongState, shown
from xq.core.machine import Machine
from xq.core.values import Parts, count_of
from xq.engine.finish import Finish
from xq.engine.stats import stats
from xq.operators.filters import Term
from xq.operators.search import LOOK, Search

T = TypeVar("T")

NEW, RUNNING, DONE, CANCELLED = "new", "running", "done", "cancelled"
# What an operator does to tasks in bulk, and the event of the machine: a release takes tasks from any session.
ACTS: Final = {"dig": "dig", "release": "snatch", "restart": "restart", "bury": "bury", "kill": "kill"}
CHUNK: Final = 500  # tasks of one transaction
LARGEST: Final = 1_000
SHOWN: Final = 20  # tasks of a preview


class Preview(NamedTuple):
    """What an operation would move now."""

    tasks: list[Any]  # the first of them
    n: int  # their number
    exact: bool  # whether these are all; else there are at least that many
    looked: int  # rows that were examined; 0 if the counters know
    since: list[float | None]  # when each of the tasks came into its state, as of `Found`


class Operation(Generic[T]):
    """An operation on the tasks of a queue: `run` it in one thread; any thread may `cancel` it.

    `done` counts the tasks that moved, `skipped` those that the search found and that did not: another call was
    faster, or the database rejected the move. `looked` counts the rows that were examined. After an error, `run` goes
    on behind the last whole chunk.
    """

    event: str
    filter: str
    options: Mapping[str, Any]
    actor: str | None
    reason: str | None
    chunk: int
    done: int
    skipped: int
    looked: int

    def __init__(
        self, operations: Operations[T], event: str, filter: str, by: By, chunk: int, options: Mapping[str, Any]
    ) -> None:
        self.event, self.filter, self.chunk, self.options = event, filter, chunk, options
        self.actor, self.reason = self.by = by
        self.done = self.skipped = self.looked = 0
        self.movable = f"{filter} {Term('state', ':', operations.states(event))}"
        self._operations = operations
        self._reached: str | None = None  # the cursor behind the last chunk
        self._state, self._is_cancelled = NEW, False

    @property
    def state(self) -> str:
        """The text "new", "running", "done" or "cancelled"."""
        return CANCELLED if self._is_cancelled and self._state != DONE else self._state

    def __repr__(self) -> str:
        return f"<operation {self.event} {self.filter} is {self.state}, {self.done} done>"

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes, for JSON."""
        names = ("event", "filter", "options", "actor", "reason", "chunk", "done", "skipped", "looked", "state")
        return {name: getattr(self, name) for name in names}

    @property
    def preview(self) -> Preview:
        """What the operation would move now, from its beginning. It examines up to 10,000 rows."""
        by, first = self._operations, self._operations.search.find(self.movable, SHOWN)
        states = by.search.states_alone(self.filter)
        if states is not None:
            counts = stats(by.database.counters(), by.machine.states).counts
            n = sum(counts[state] for state in by.states(self.event) if state in states)
            return Preview(first.tasks, n, exact=True, looked=0, since=first.since)
        page = by.search.movable(self.movable, LOOK, None)
        return Preview(first.tasks, len(page.tasks), page.next is None, page.looked, first.since)

    def __iter__(self) -> Iterator[Operation[T]]:
        """Move chunk by chunk, and return the operation after each."""
        what, operations = f"{self.event} {self.filter}", self._operations
        if self.state == NEW:
            operations.tell(self.by, f"{what} begins")
        while self.state not in (DONE, CANCELLED):
            self._state = RUNNING
            found = operations.search.movable(self.movable, self.chunk, self._reached)
            moved = operations.move(self, found.tasks)
            self.done, self.skipped = self.done + moved, self.skipped + len(found.tasks) - moved
            self.looked, self._reached = self.looked + found.looked, found.next
            if found.next is None:
                self._state = DONE
            if self.state != RUNNING:
                operations.tell(self.by, f"{what} is {self.state}: {self.done:,} tasks moved, {self.skipped:,} skipped")
            yield self

    def run(self) -> Operation[T]:
        """Move chunk by chunk until all tasks are moved, or the operation is cancelled."""
        for _ in self:
            pass
        return self

    def cancel(self) -> None:
        """End the operation after its chunk; what was moved stays."""
        self._is_cancelled = True


class Operations(Generic[T]):
    """Makes the operations of one queue, and ascribes what a block of calls does."""

    def __init__(self, finish: Finish[T], search: Search[T]) -> None:
        self.finish, self.search = finish, search
        self.database, self.machine, self.log = finish.database, finish.machine, finish.log

    @contextmanager
    def acting(self, by: By) -> Iterator[None]:
        """Run the block as one transaction of this thread, and ascribe the transitions that xq makes within it."""
        store = self.database.store
        with store.atomic():
            self.database.begin_writing()
            with block(store.database, by):
                yield
            if by and self.machine.settings.history is None:
                self.tell(by, "acted")

    def tell(self, by: By, what: str) -> None:
        """Log at INFO what an operator did, once this transaction is committed."""
        line = f"{by.actor or 'an operator'}: {what}{f': {by.reason}' if by.reason else ''}"
        self.database.observers.once_committed(self.database.dialect, lambda: self.log.info("%s", line))

    def act(self, name: object, filter: object, by: By, chunk: object, options: Mapping[str, Any]) -> Operation[T]:
        """Return an operation. Raises BadType, BadValue and FeatureOff."""
        if not isinstance(name, str) or name not in ACTS:
            known = ", ".join(act for act in ACTS if is_offered(self.machine, ACTS[act]))
            raise BadValue(f"act does one of {known} to tasks, not {shown(name)}")
        if not self.machine.sources(ACTS[name]):
            self.finish.tasks.refuse_event(name)
        if not is_offered(self.machine, ACTS[name]):
            only = f"only its owner may {name} a task of {self.database.store.name}"
            raise FeatureOff(f"{only}: give the queue the feature buried='any'", feature="buried")
        if not isinstance(filter, str):
            raise BadType(f"a filter is text, not {shown(filter)}: act({name!r}, 'state:buried')")
        if not 1 <= (size := count_of(chunk)) <= LARGEST:
            raise BadValue(f"chunk is a number of tasks from 1 to {LARGEST:,}, not {shown(chunk)}")
        if "at" in options:
            raise BadValue("act takes delay= (seconds), not at=: it moves its tasks in chunks, one after the other")
        operation = Operation(self, name, filter, by, size, dict(self.finish.checked(ACTS[name], options)))
        self.search.movable(operation.movable, 1, None)  # raises the errors of the filter
        return operation

    def states(self, event: str) -> tuple[str, ...]:
        """Return the states from which an event moves a task to another state, or into the same one anew."""
        rows = [row for row in self.machine.rows if row.event == ACTS[event] and not row.stays]
        return tuple(dict.fromkeys(row.source for row in rows))

    def move(self, operation: Operation[T], found: Sequence[tuple[Parts, str]]) -> int:
        """Move those of the tasks that are still in these states, in one transaction, and return their number.

        If the database rejects one, move each half by itself, and skip that one.
        """
        by_state: dict[str, list[Parts]] = {}
        for parts, state in found:
            by_state.setdefault(state, []).append(parts)
        store, those, event = self.database.store, self.finish.those, ACTS[operation.event]

        def move() -> int:
            self.database.begin_writing()
            with block(store.database, operation.by):
                return sum(those(event, state, keys, operation.options) for state, keys in by_state.items())

        try:
            return self.database.unit(move, transaction=True, caught=True)
        except Exception as error:
            if not (isinstance(error, Duplicate) or self.finish.batches.is_refused(error)):
                raise
            if len(found) > 1:
                half = len(found) // 2
                return self.move(operation, found[:half]) + self.move(operation, found[half:])
            key = self.finish.tasks.app_key(found[0][0])
            self.log.warning("%s cannot move task %r: %s", operation.event, key, error)
            return 0


def act_on(queue: Any, name: str, key: object) -> Any:
    """Move one task as an operator does, and return it. An error names what the operator did, not the event."""
    try:
        return getattr(queue, ACTS[name])(key)
    except WrongState as error:
        raise WrongState(name, error.key, error.state, error.allowed, queue.adapter.tasks.wording) from error


def is_offered(machine: Machine, event: str) -> bool:
    """Return whether an operator may move tasks by an event: a bury may be the owner's alone."""
    rows = [row for row in machine.rows if row.event == event]
    return bool(rows) and not any(row.fenced for row in rows)
