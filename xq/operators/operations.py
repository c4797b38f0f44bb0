"""Operations: what an operator does to all tasks that a filter shows, in chunks, and to a queue as a whole.

An operation is a row of `xq_operation`. Each chunk is one transaction that locks the row, moves its tasks, and writes
how far the operation has come. So a killed process loses nothing, any process goes on where the last chunk ended, and
several that run the same operation move each task once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from xq.core.errors import BadType, BadValue, Error, FeatureOff, NotFound, NotInstalled, shown
from xq.core.machine import Machine
from xq.core.ports import Row
from xq.core.values import Parts, Seconds, Tasks
from xq.engine.finish import Finish
from xq.engine.stats import stats
from xq.engine.steps import Steps
from xq.engine.timers import Batches
from xq.engine.unit import Database
from xq.operators.acting import Acting, By
from xq.operators.filters import Filter, Term, parse
from xq.operators.search import Movable, Search

T = TypeVar("T")

RUNNING, DONE = "running", "done"
# What an operator does to tasks in bulk, and the event of the machine.
ACTS: Final = {name: name for name in ("dig", "kill", "snatch", "restart", "bury")} | {"release": "snatch"}
CHUNK: Final = 500  # tasks of one transaction
LARGEST: Final = 1_000
SHOWN: Final = 20  # tasks of a preview
KEPT: Final = 30 * 86_400  # seconds after its end until the row of an operation is deleted, by the next operation
LOOK: Final = 10_000  # rows that a preview examines


class Preview(NamedTuple):
    """What an operation would move now."""

    tasks: list[Any]  # the first of them
    n: int  # their number
    exact: bool  # whether these are all; else there are at least that many
    looked: int  # rows that were examined; 0 if the counters know


class Operation(Generic[T]):
    """An operation of a queue, as it was when last read. `run` and `step` go on with it, in any process.

    `done` counts the tasks that moved, `skipped` those that the search found and that did not: another call was
    faster, or the database rejected the move. `looked` counts the rows that were examined. `state` is "running", "done"
    or "cancelled". `created` and `updated` are in seconds since 1970.
    """

    id: int | None  # None: of a dry run
    event: str
    filter: str
    options: Mapping[str, Any]
    actor: str | None
    reason: str | None
    chunk: int
    created: float | None
    updated: float | None
    done: int
    skipped: int
    looked: int
    state: str

    def __init__(self, operations: Operations[T], row: Row) -> None:
        self._operations = operations
        self._read(row)

    def _read(self, row: Row) -> None:
        self.id, self.event, self.filter, options, self.actor, self.reason, self.chunk, *rest = row
        created, updated, self._reached, self.done, self.skipped, self.looked, self.state = rest
        self.options = _loaded(options)
        self.created, self.updated = (None if at is None else at / 1_000_000 for at in (created, updated))

    def __repr__(self) -> str:
        return f"<operation {self.id}: {self.event} {self.filter} is {self.state}, {self.done} done>"

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes, for JSON."""
        names = ("id", "event", "filter", "options", "actor", "reason", "chunk", "created", "updated")
        return {name: getattr(self, name) for name in (*names, "done", "skipped", "looked", "state")}

    @property
    def preview(self) -> Preview:
        """What the operation would move now, from its beginning. It examines up to 10,000 rows."""
        return self._operations.preview(self.event, self.filter, self._reached)

    def step(self) -> bool:
        """Move one chunk, in one transaction. Return whether there is more to do.

        Raises BadValue for a dry run, and NotFound if the operation was deleted.
        """
        self._read(self._operations.move_chunk(self._stored))
        return self.state == RUNNING

    def __iter__(self) -> Iterator[Operation[T]]:
        """Move chunk by chunk, and return the operation after each."""
        while self.step():
            yield self
        yield self

    def run(self) -> Operation[T]:
        """Move chunk by chunk until all tasks are moved, or the operation is cancelled."""
        while self.step():
            pass
        return self

    def cancel(self) -> bool:
        """End the operation, also for other processes; what was moved stays. Return whether it was running."""
        row, cancelled = self._operations.cancel(self._stored)
        self._read(row)
        return cancelled

    def refresh(self) -> Operation[T]:
        """Read the operation again."""
        self._read(self._operations.row(self._stored))
        return self

    @property
    def _stored(self) -> int:
        if self.id is None:
            raise BadValue("a dry run moves nothing and is not stored: call act without dry_run")
        return self.id


class Operations(Generic[T]):
    """The operations of one queue."""

    def __init__(
        self,
        database: Database,
        tasks: Tasks[T],
        machine: Machine,
        steps: Steps,
        finish: Finish[T],
        acting: Acting,
        search: Search[T],
    ) -> None:
        self.database = database
        self.tasks = tasks
        self.machine = machine
        self.batches = Batches(steps)
        self.finish = finish
        self.acting = acting
        self.search = search
        self.log = logging.getLogger(f"xq.{database.store.name}")

    # making and reading

    def act(
        self, event: object, filter: object, by: By, chunk: object, dry_run: bool, options: Mapping[str, Any]
    ) -> Operation[T]:
        """Store an operation. Raises BadType, BadValue and FeatureOff."""
        name = self._event(event)
        if not isinstance(filter, str):
            raise BadType(f"a filter is text, not {shown(filter)}: act({name!r}, 'state:buried')")
        if isinstance(chunk, bool) or not isinstance(chunk, int):
            raise BadType(f"chunk is a number of tasks, not {shown(chunk)}")
        if not 1 <= chunk <= LARGEST:
            raise BadValue(f"chunk is a number of tasks from 1 to {LARGEST:,}, not {shown(chunk)}")
        if "at" in options:
            raise BadValue("act takes delay= (seconds), not at=: it moves its tasks in chunks, one after the other")
        given = json.dumps(dict(self.finish.checked(name, options)))
        self._find(name, filter, 1, None)  # raises the errors of the filter
        values = {"event": name, "filter": filter, "options": given, "chunk": chunk, "state": RUNNING}
        if dry_run:
            row = (None, name, filter, given, by.actor, by.reason, chunk, None, None, None, 0, 0, 0, DONE)
            return Operation(self, row)
        made = self.operation(self._add(by, values))
        self._tell(by.told(f"operation {made.id} begins: {name} {filter}"))
        return made

    def note(self, event: str, by: By, options: Mapping[str, Any]) -> None:
        """Store what an operator did to the queue as a whole, in the transaction of that, and log it."""
        if by:
            values = {"event": event, "filter": "", "options": json.dumps(options), "chunk": 0, "state": DONE}
            self._add(by, values)
            self._tell(by.told(" ".join([event, *(str(value) for value in options.values() if value is not None)])))

    def _add(self, by: By, values: Mapping[str, Any]) -> int:
        everything = {**values, "actor": by.actor, "reason": by.reason}
        dialect = self.database.dialect

        def work() -> int:
            self.database.begin_writing()
            self.database.execute(dialect.forget_operations, {"kept_us": KEPT * 1_000_000})
            return int(self.database.execute(dialect.add_operation, everything)[0][0])

        return self.database.unit(work, transaction=True)

    def operations(self, n: int | None) -> list[Operation[T]]:
        found = self.database.execute(self.database.dialect.operations)
        return [Operation(self, row) for row in found[:n]]

    def operation(self, id_: object) -> Operation[T]:
        """Return an operation. Raises BadType and NotFound."""
        if isinstance(id_, bool) or not isinstance(id_, int):
            raise BadType(f"an operation is named by its number, not by {shown(id_)}")
        return Operation(self, self.row(id_))

    def row(self, id_: int, locked: bool = False) -> Row:
        dialect = self.database.dialect
        rows = self.database.execute(dialect.lock_operation if locked else dialect.operation, {"id": id_})
        if not rows:
            raise NotFound(self.database.store.name, id_, what="operation")
        return rows[0]

    def _event(self, event: object) -> str:
        if not isinstance(event, str) or event not in ACTS:
            known = ", ".join(name for name in ACTS if is_offered(self.machine, ACTS[name]))
            raise BadValue(f"act does one of {known} to tasks, not {shown(event)}")
        name = ACTS[event]
        if not self.machine.sources(name):
            self.tasks.refuse_event(name)
        if not is_offered(self.machine, name):
            raise FeatureOff(
                f"act cannot {name} tasks of {self.database.store.name}, whose owners alone may: "
                "give it the feature buried='any'",
                feature="buried",
            )
        return name

    # moving

    def _states(self, event: str) -> tuple[str, ...]:
        """Return the states from which an event moves a task to another state, or into the same one anew."""
        rows = [row for row in self.machine.rows if row.event == event and not row.stays]
        return tuple(dict.fromkeys(row.source for row in rows))

    def _find(self, event: str, filter: str, n: int, after: str | None) -> Movable:
        """Return the next tasks of a filter that an event may move. Their rows, which may be large, are not read."""
        return self.search.movable(self._movable(event, filter), n, after)

    def _movable(self, event: str, filter: str) -> Filter:
        return parse(filter).with_terms(Term("state", ":", self._states(event)))

    def move_chunk(self, id_: int) -> Row:
        """Move the next chunk of an operation in one transaction, and return its row."""
        return self.database.unit(lambda: self._moved_chunk(id_), transaction=True)

    def _moved_chunk(self, id_: int) -> Row:
        self.database.begin_writing()
        now: Operation[T] = Operation(self, self.row(id_, locked=True))
        if now.state != RUNNING:
            return self.row(id_)
        found = self._find(now.event, now.filter, now.chunk, now._reached)
        moved = self._move(now, found.tasks)
        values = {
            "id": id_,
            "reached": found.next,
            "done": now.done + moved,
            "skipped": now.skipped + len(found.tasks) - moved,
            "looked": now.looked + found.looked,
            "state": DONE if found.next is None else RUNNING,
        }
        self.database.execute(self.database.dialect.set_operation, values)
        if values["state"] == DONE:
            self._tell(f"operation {id_} is done: {values['done']:,} tasks moved, {values['skipped']:,} skipped")
        return self.row(id_)

    def _move(self, now: Operation[T], found: Sequence[tuple[Parts, str]]) -> int:
        """Move tasks that a search has found, except those that may not, and return their number."""
        by, moved = By(now.actor, now.reason), 0
        by_state: dict[str, list[Parts]] = {}
        for parts, state in found:
            by_state.setdefault(state, []).append(parts)
        for state, keys in by_state.items():
            try:
                moved += self._moved(by, now.event, state, keys, now.options)
            except Exception as error:
                if not self._is_refused(error):
                    raise
                moved += sum(self._moved_alone(by, now.event, state, parts, now.options) for parts in keys)
        return moved

    def _moved(self, by: By, event: str, state: str, keys: list[Parts], options: Seconds) -> int:
        """Move those of the tasks that are still in this state, all or none, and return their number."""
        block: AbstractContextManager[object] = self.acting.acting(by) if by else self.database.store.atomic(own=True)
        with block:
            return self.finish.those(event, state, keys, options)

    def _moved_alone(self, by: By, event: str, state: str, parts: Parts, options: Seconds) -> int:
        try:
            return self._moved(by, event, state, [parts], options)
        except Exception as error:
            if not self._is_refused(error):
                raise
            self.log.warning("%s cannot move task %r: %s", event, self.tasks.app_key(parts), error)
            return 0

    def _is_refused(self, error: Exception) -> bool:
        """Return whether a task cannot move, though others can."""
        if isinstance(error, Error):
            return not isinstance(error, NotInstalled)
        return self.batches.is_refused(error)

    def cancel(self, id_: int) -> tuple[Row, bool]:
        """Cancel an operation. Return its row, and whether it was running."""

        def work() -> tuple[Row, bool]:
            self.database.begin_writing()
            was_running = self.row(id_, locked=True)[-1] == RUNNING
            if was_running:
                self.database.execute(self.database.dialect.cancel_operation, {"id": id_})
                self._tell(f"operation {id_} is cancelled")
            return self.row(id_), was_running

        return self.database.unit(work, transaction=True)

    # previews

    def preview(self, event: str, filter: str, reached: str | None) -> Preview:
        """Return what `event` would move of the tasks that a filter shows."""
        states = self.search.states_alone(filter)
        if states is not None and reached is None:
            counts = stats(self.database.counters(), self.machine.states).counts
            n = sum(counts[state] for state in self._states(event) if state in states)
            return Preview(self._shown(event, filter, self._find(event, filter, SHOWN, None)), n, exact=True, looked=0)
        first: list[Any] = []
        n = looked = 0
        while looked < LOOK:
            page = self._find(event, filter, LARGEST, reached)
            first = first or self._shown(event, filter, page)
            n, looked, reached = n + len(page.tasks), looked + page.looked, page.next
            if reached is None:
                break
        return Preview(first, n, reached is None, looked)

    def _shown(self, event: str, filter: str, found: Movable) -> list[T]:
        """Return the first tasks that a search has found."""
        return self.search.read(self._movable(event, filter), [key for key, _ in found.tasks[:SHOWN]])

    def _tell(self, line: str) -> None:
        """Log a line at INFO once this transaction is committed."""
        self.database.observers.once_committed(self.database.dialect, lambda: self.log.info("%s", line))


def _loaded(options: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(options)
    return found


def is_offered(machine: Machine, event: str) -> bool:
    """Return whether an operator may move tasks by an event: a bury may be the owner's alone."""
    rows = [row for row in machine.rows if row.event == event]
    return bool(rows) and not any(row.fenced for row in rows)
