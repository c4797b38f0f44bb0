"""Operations: what an operator does to all tasks that a filter selects, in chunks. Each chunk is one transaction.

An operation stores nothing. If its process is killed, another operation with the same filter moves the other
tasks: its event does not leave the states of those already moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Generic, NamedTuple

from xq.core.acting import By, block, log_act
from xq.core.errors import BadType, BadValue, Duplicate, Error, FeatureOff, NotInstalled, WrongState, shown
from xq.core.kinds import T
from xq.core.options import count_of
from xq.core.values import Key
from xq.engine.several import SeveralMoves
from xq.engine.stats import counts
from xq.operators.acts import ACTS
from xq.operators.filters import Term
from xq.operators.search import EXAMINED, Search

NEW, RUNNING, DONE, CANCELLED = "new", "running", "done", "cancelled"
LARGEST_CHUNK: Final = 1_000  # tasks
SHOWN: Final = 20  # tasks in a preview


class Preview(NamedTuple):
    """What an operation would move now."""

    tasks: list[Any]  # the first ones
    n: int  # their number
    exact: bool  # whether these are all; else there are at least that many
    looked: int  # rows that were examined; 0 if the counters know
    since: list[float | None]  # when each task came into its state, as in `Found`
    unknown: int = 0  # tasks among the examined rows that it leaves out, since their age is not known


class Operation(Generic[T]):
    """An operation on a queue's tasks: `run` it in one thread; any thread may `cancel` it.

    `done` counts the moved tasks. `skipped` counts the tasks that were found and not moved: another call was faster, or
    the database rejected the move. `looked` counts the examined rows. `state` is new, running, done or cancelled. After
    an error, `run` goes on behind the last whole chunk.
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
    state: str

    def __init__(
        self,
        several: SeveralMoves[T],
        search: Search[T],
        event: str,
        filter: str,
        by: By,
        chunk: int,
        options: Mapping[str, Any],
    ) -> None:
        named, machine = several.moves, several.moves.machine
        if not isinstance(event, str) or event not in ACTS:
            known = ", ".join(act.name for act in ACTS.values() if act.moves(machine, machine.states))
            raise BadValue(f"act does one of {known} to tasks, not {shown(event)}")
        self._act = ACTS[event]
        moves = [row for row in machine.rows if row.event == self._act.event]
        if not moves:
            named.tasks.options.refuse_event(event)
        if not self._act.moves(machine, machine.states):
            only = f"only its owner may {event} a task of {named.executor.store.name}"
            raise FeatureOff(f"{only}: give the queue the feature buried='any'", feature="buried")
        if not isinstance(filter, str):
            raise BadType(f"a filter is text, not {shown(filter)}: act({event!r}, 'state:buried')")
        if not 1 <= (size := count_of(chunk)) <= LARGEST_CHUNK:
            raise BadValue(f"chunk is a number of tasks from 1 to {LARGEST_CHUNK:,}, not {shown(chunk)}")
        if "at" in options:
            raise BadValue("act takes delay= (seconds), not at=: it moves its tasks in chunks, one after the other")
        self.event, self.filter, self.chunk = event, filter, size
        self.options = several.checked(self._act.event, options)
        self.actor, self.reason = self._by = by
        self.done = self.skipped = self.looked = 0
        self.state = NEW
        self._several, self._named, self._search = several, named, search
        self._states = tuple(dict.fromkeys(row.source for row in moves if not row.stays))
        self._movable = f"{filter} {Term('state', ':', self._states)}"
        if (number := self.options.get(self._act.option)) is not None:  # a task that has it is not meant, so no move
            self._movable += f" {Term(self._act.option, ':', (f'{Decimal(str(number)):f}',), negated=True)}"
        self._reached: str | None = None  # the cursor behind the last chunk
        if named.store.in_transaction():
            named.executor.begin(locks=True)  # the search reads
        search.movable(self._movable, 1, None)  # raises the filter's errors
        meant = search.meant(self._movable)
        # A task that moves after the search is meant in these states; by an age or a failure it is not, as both change.
        self._meant = () if meant.checks else meant.states

    def __repr__(self) -> str:
        return f"<operation {self.event} {self.filter} is {self.state}, {self.done} done>"

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes, for JSON."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def preview(self) -> Preview:
        """What the operation would move now, from its beginning. It examines up to 10,000 rows."""
        first, meant = self._search.find(self._movable, SHOWN), self._search.meant(self._movable)
        if not (meant.keys or meant.tests or meant.checks):  # it names states alone
            by_state = counts(self._named.executor)
            n = sum(by_state[state] for state in self._states if state in meant.states)
            return Preview(first.tasks, n, exact=True, looked=0, since=first.since)
        page = self._search.movable(self._movable, EXAMINED, None)
        return Preview(first.tasks, len(page.tasks), page.next is None, page.looked, first.since, page.unknown)

    def __iter__(self) -> Iterator[Operation[T]]:
        """Move chunk by chunk, and return the operation after each."""
        what = f"{self.event} {self.filter}"
        if self._act.option not in ("", *self.options):
            raise BadType(f"{self.event} needs {self._act.option}=, a number")
        if self.state == NEW:
            self.state = RUNNING
            log_act(self._named.store, self._by, f"{what} begins")
        while self.state == RUNNING:
            found = self._search.movable(self._movable, self.chunk, self._reached)
            moved = self._move(found.tasks)
            self.done, self.skipped = self.done + moved, self.skipped + len(found.tasks) - moved
            self.looked, self._reached = self.looked + found.looked, found.next
            if found.next is None:
                self.state = DONE
            if self.state != RUNNING:
                told = f"{what} is {self.state}: {self.done:,} tasks moved, {self.skipped:,} skipped"
                log_act(self._named.store, self._by, told)
            yield self

    def _move(self, found: Sequence[tuple[Key, str]]) -> int:
        """Move the tasks, unless they have left the states that the filter means, and return how many moved."""
        named, executor = self._named, self._named.executor

        def move(tasks: Sequence[tuple[Key, str]]) -> int:
            with block(executor.store.database, self._by):
                return self._several.those(self._act.event, tasks, self._meant, self.options)

        def is_refused(error: Exception) -> bool:
            return isinstance(error, Duplicate) or named.in_doubt.unattended.is_refused(error)

        moved, refused = executor.in_parts(move, found, is_refused)
        for (parts, _), error in refused:
            named.log.warning("%s cannot move task %r: %s", self.event, named.tasks.app_key(parts), error)
        return moved

    def run(self) -> Operation[T]:
        """Move chunk by chunk until all tasks are moved, or the operation is cancelled."""
        for _ in self:
            pass
        return self

    def cancel(self) -> None:
        """End the operation after its chunk. The tasks moved so far stay in their new states."""
        if self.state != DONE:
            self.state = CANCELLED


def act_on(queue: Any, name: str, key: object, **options: Any) -> Any:
    """Move one task as an operator does, and return it. An error names what the operator did, not the event."""
    try:
        return getattr(queue, ACTS[name].event)(key, **options)
    except WrongState as error:
        raise WrongState(name, error.key, error.state, error.allowed, queue.parts.tasks.wording) from error


def act_on_keys(queue: Any, name: str, keys: Sequence[Any], by: By, options: Mapping[str, Any]) -> list[Any]:
    """Move tasks as an operator does, in one transaction, but for those that cannot move: their keys, with errors."""
    parts = queue.parts

    def move(some: Sequence[Any]) -> int:
        with block(parts.store.database, by):
            if name == "cancel":  # one by one: the owner of each learns it
                return len([parts.named.cancel(key) for key in some])
            return len(parts.several.many(ACTS[name].event, some, options))

    def is_refused(error: Exception) -> bool:
        of_all = isinstance(error, NotInstalled)
        return not of_all and (isinstance(error, Error) or parts.named.in_doubt.unattended.is_refused(error))

    moved, refused = parts.executor.in_parts(move, keys, is_refused)
    log_act(parts.store, by, f"{name}: {moved:,} tasks moved")
    return list(refused)
