"""Done tasks on their way out of a queue, to an archive, and back; and old history on its way out.

A task that leaves is deleted from the table and stands in an outbox beside it, both by one transaction, until whoever
writes the archive says that it is written. One that comes back goes the other way. So each task is at any moment in
the table, in the outbox, or in the archive alone; and whoever is killed leaves what the next one finds and finishes.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import NAMESPACE_OID, uuid4, uuid5

from xq.bulk import Job, bulk
from xq.compile import Statement
from xq.database import Opened, until_nobody_conflicts
from xq.errors import ArchiveBusy, ConfigurationError, Error, FeatureOff
from xq.extract import Condition, Extract, Mark, Stock
from xq.frame import Columns
from xq.machine import ABSENT
from xq.store import Store
from xq.transitions import Transitions

if TYPE_CHECKING:
    from xq.adapters.databases.archives import Outbox

DONE: Final = "D"
BATCH = 2_000  # tasks that one transaction moves
ROWS = 5_000  # of the outbox and the history that one statement deletes
GONE: Final = 1.0  # seconds in which a server notices that a process is gone
POLL: Final = 0.02  # seconds between two tries
LATEST: Final = 2**62  # microseconds
LOADING: Final = "~"  # what the names of runs begin with that are not loaded yet
BITS: Final = 52  # of numbers drawn at random, which a DOUBLE holds
PLACES = 2**32  # rows that a part of a run may have
LOOK = 100_000  # ids of the history that one statement counts

R = TypeVar("R")
Past = Mapping[str, Any]  # which rows of the history are meant: id and xid, up to which it is settled; before_us


class Left(NamedTuple):
    """What became of the tasks that were to leave, or to come back."""

    moved: int
    stayed: int  # changed meanwhile, or kept by the database
    past: Past | None = None  # the history of those that were to leave, from before that of the first that stayed


class Archives:
    """The outbox of one queue. A `run` is one filling of it, by a name of the caller's, of at most 64 characters."""

    def __init__(self, transitions: Transitions) -> None:
        self.database = transitions.database
        self.store = transitions.store
        self.machine = transitions.machine
        self.transitions = transitions
        self.log = logging.getLogger(f"xq.{self.store.name}")
        self._alone: float | None = None  # the number of the call that is alone, if one of this process is

    def check(self, what: str) -> None:
        """Raise FeatureOff where there are no done tasks, or nothing tells since when they are."""
        if DONE not in self.machine.states:
            raise FeatureOff(f"{what} is of done tasks, which stay with the feature 'keep'", feature="keep")
        if self.machine.settings.history is None:
            raise FeatureOff(f"{what} asks when a task was done, and needs the feature 'history'", feature="history")

    def moment(self, name: str, value: object) -> int:
        """A moment, in microseconds since 1970: of a date its beginning, of None the end of time. Raises as history."""
        if value is None:
            return LATEST
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        return self.transitions.tasks.microseconds(name, value)

    @property
    def now_us(self) -> int:
        ((now,),) = self.database.execute(self._outbox.now_us)
        return int(now)

    @property
    def outbox(self) -> str:
        """The name of the table in which tasks are on their way."""
        return self._outbox.name

    @property
    def _outbox(self) -> Outbox:
        return self.database.dialect.outbox

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have no other process move anything to or from an archive of this queue.

        Raises ArchiveBusy where one does; ConfigurationError within a transaction, or for a table that has more columns
        than the model: they would be lost.
        """
        if self.store.in_transaction():
            raise ConfigurationError(
                f"what {self.store.name} archives is moved by many transactions: call it outside of one"
            )
        opened = self.database.open()
        opened.sessions.prove_by(lambda: opened.dialect.proof_of_life(self.store))
        name = str(uuid5(NAMESPACE_OID, f"xq archive {opened.dialect.source_name}"))
        deadline = time.monotonic() + GONE
        while True:
            with opened.sessions.alone(name) as alone:
                if alone:
                    with self._fenced():
                        yield
                    return
            if time.monotonic() > deadline:
                raise ArchiveBusy(self.store.name)
            time.sleep(POLL)

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        # A server that has lost the connection by which others were kept away lets them in, and this goes on.
        number, is_numbered = float(secrets.randbits(BITS)), {"value": float(secrets.randbits(BITS))}
        self.database.execute(self.database.dialect.set_setting, {**self._named("alone"), "value": number})
        self.database.execute(self._outbox.numbered, {**self._named("archived"), **is_numbered})
        self._alone = number
        try:
            yield
        finally:
            self._alone = None

    def check_alone(self) -> None:
        """Raise ArchiveBusy where another has come to be `alone` since; none does before the end of a transaction."""
        if self._alone is not None and self._setting("alone", self.database.dialect.lock) != self._alone:
            raise ArchiveBusy(self.store.name)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this queue from any other, of this database or another, once it has been `alone`; for JSON."""
        parameters = self.store.address().parameters
        database = str(parameters.get("database") or parameters.get("dbname"))
        number = self._setting("archived")
        return {"queue": self.database.dialect.source_name, "database": os.path.basename(database), "number": number}

    def _setting(self, what: str, lock: str = "") -> float | None:
        found = self.database.execute(f"{self._outbox.setting}{lock}", self._named(what))
        return float(found[0][0]) if found else None

    def fits(self) -> bool:
        """Whether the outbox has the columns of the model. Raises ConfigurationError if not, and tasks are in it."""
        outbox, source = self._outbox, self.database.dialect.source
        if outbox.all_columns(self.store) == {field.column.lower() for field in source.fields}:
            return True
        if waiting := self.runs():
            raise ConfigurationError(
                f"{sum(waiting.values())} tasks in {outbox.name} have the columns of another day: restore or "
                f"archive them with the {self.store.name} of that day first"
            )
        return False

    def get_ready(self) -> None:
        """Have an outbox for the columns that the table has now."""
        dialect, outbox = self.database.dialect, self._outbox
        there = dialect.columns_of(self.store, dialect.source.name)
        known = {field.column.lower() for field in dialect.source.fields}
        more = sorted(name for name, made in there.items() if not made and name.lower() not in known)
        if more:
            raise ConfigurationError(
                f"the table {dialect.source.name} has columns that {self.store.name} does not name "
                f"({', '.join(more)}), and they would be lost: give it fields for them"
            )
        if not self.fits():
            self.store.execute(outbox.drop)
            self.turn()  # who knows of no outbox does not look there
        for sql in outbox.made():
            self.store.execute(sql)

    # what is in the outbox

    def runs(self) -> dict[str, int]:
        """How many tasks of each run are in the outbox."""
        outbox = self._outbox
        found = self.database.execute(outbox.runs) if outbox.all_columns(self.store) else []
        return {str(run): int(n) for run, n in found}

    def count(self, run: str) -> int:
        """How many tasks of a run are in the outbox."""
        return self.runs().get(run, 0)

    def forget(self, run: str) -> None:
        """Delete a run from the outbox: what was in it is elsewhere."""
        ((low, high),) = self.database.execute(self._outbox.bounds, {"run": run})
        for first in range(low, high + 1, ROWS) if low is not None else ():
            self._delete(self._outbox.forget, {"run": run, "low": first, "high": first + ROWS - 1})

    def _delete(self, sql: str, values: Mapping[str, Any]) -> int:
        def delete() -> int:
            self._outbox.prepare(self.store)
            return self.database.change(self.database.open(), Statement(sql), {**self.database.values(), **values})

        return self.database.again(delete)

    @property
    def generation(self) -> int:
        """A number that changes whenever what an archive has is about to be deleted here."""
        return int(self._setting("archive") or 0)

    def turn(self) -> None:
        """From here on, what an archive has is deleted here: whoever began to read both before must begin anew."""
        self.database.execute(self._outbox.next_generation, self._named("archive"))

    def _named(self, what: str) -> dict[str, str]:
        return {"name": f"{what} {self.database.dialect.source_name}"[:255]}

    # as other programs read it

    @property
    def _tasks(self) -> Extract:
        return self.database.dialect.extract("tasks", self.store.name, self.store.address(), "")

    @property
    def _history(self) -> Extract:
        return self.database.dialect.extract("history", self.store.name, self.store.address(), "")

    def extract_run(self, run: str) -> Extract:
        """The tasks of a run, with `xq_at_us`: when each was done, in microseconds since 1970."""
        return self._outbox.extract_run(self._tasks, run)

    def extract_tasks(self, without: Sequence[str], generation: int) -> Extract:
        """The tasks of the queue, and those in the outbox but for some runs, with `xq_at_us`, where they are there.

        Reading raises Error when it is done, if by then it is another generation.
        """
        found = self._outbox.extract_all(self._tasks, self._outbox.columns(self.store), without, LOADING)
        return self._while(generation, found)

    def extract_past(self, past: Past) -> Extract:
        """Rows of the history that were `past`."""
        return replace(self._history, rows=self._outbox.old(past))

    def extract_history(self, without: Past | None, generation: int) -> Extract:
        """The history but for some rows that were `past`. Reading raises as in `extract_tasks`."""
        rows = f"NOT ({self._outbox.old(without)})" if without else ""
        return self._while(generation, replace(self._history, rows=rows))

    def _while(self, generation: int, extract: Extract) -> Extract:
        asked = self._outbox.extract_generation(self._tasks, self._named("archive")["name"])
        named = {field.name: getattr(extract, field.name) for field in fields(Extract)}
        nowhere = extract.address.shown
        whole, asked = replace(extract, address=nowhere), replace(asked, address=nowhere)
        return Unturned(**named, of=whole, asked=asked, generation=generation)

    # out

    def gather(self, run: str, before_us: int) -> Left:
        """Move done tasks into the outbox: those that came to D before, and those of which nobody knows when.

        In transactions of a bounded number of them each. Who changes a task meanwhile keeps it: it stays.
        """
        outbox, execute = self._outbox, self.database.execute
        execute(outbox.over)
        # Before the list is made: of who is done later it knows nothing, and that must not go.
        past, mark = self.past(before_us), self._newest_settled()
        create, *more = outbox.leaving(before_us)
        outbox.prepare(self.store)
        for sql in (create, *more):
            execute(sql)
        ((last,),) = execute(outbox.last_number)
        moved = 0
        for low in range(1, last + 1, BATCH):
            numbers = range(low, min(low + BATCH, last + 1))
            moved += self._in_parts(lambda some: self._take_out(run, some, mark), numbers)
        ((stayed, since_us),) = execute(outbox.stayed)
        execute(outbox.over)
        if past and since_us is not None:
            past = {**past, "before_us": min(past["before_us"], since_us)}
        return Left(moved, stayed, past)

    def _take_out(self, run: str, numbers: Sequence[int], mark: int) -> int:
        self.check_alone()
        outbox, values = self._outbox, {"run": run}
        found = self.database.execute(outbox.found, {"low": numbers[0], "high": numbers[-1]})
        if found and not outbox.same_version:
            again = {n for (n,) in self.database.execute(outbox.done_again, {"mark": mark})}
            found = [row for row in found if row[0] not in again]
        if not found:
            return 0
        numbers = [row[0] for row in found]
        opened = self.database.open()
        self.database.change(opened, Statement(outbox.note(numbers)), {**self.database.values(), **values})
        statement, named = outbox.take_out(numbers, [row[1:] for row in found])
        self._moved(opened, statement, {**values, **named}, "archive", DONE, ABSENT, len(numbers))
        self.database.execute(outbox.left(numbers))
        return len(numbers)

    def _moved(
        self,
        opened: Opened,
        statement: Statement,
        values: Mapping[str, Any],
        event: str,
        source: str,
        target: str,
        n: int,
    ) -> None:
        rows = self.database.run(opened, statement, {**self.database.values(), **values}, event, source, target)
        if len(rows) != n:
            raise Error(f"{len(rows)} of {n} tasks of {self.store.name} moved by {event}: nothing of that was done")
        self.transitions.count(opened, event, source, target, n)

    def _in_parts(self, work: Callable[[Sequence[int]], int], numbers: Sequence[int]) -> int:
        """What `work` returns of all numbers, by one transaction, or several where the database refuses some rows."""

        def transaction() -> int:
            self._outbox.prepare(self.store)
            with self.store.atomic():
                return work(numbers)

        try:
            return self.database.again(transaction)
        except Exception as error:
            if not self.store.is_refusal(error):
                raise
            if len(numbers) == 1:
                self.log.warning("a task stays where it is: %s", error)
                return 0
        half = len(numbers) // 2
        return self._in_parts(work, numbers[:half]) + self._in_parts(work, numbers[half:])

    # back

    def loading(self, columns: Sequence[str]) -> Loading:
        """What fills the outbox with rows of an archive. Raises BadValue for columns that the model does not have.

        They count for nothing there until they are `loaded`: of who was killed, workers may go on for a while.
        """
        found = bulk(self.database, self.transitions.tasks, "raise", DONE)
        run, defaults = f"{LOADING}{uuid4().hex}", self.store.declared_defaults()
        newer = {n: value for n, value in defaults.items() if n not in columns and not callable(value)}
        loading = Loading(Job(found, (*columns, *newer), run, True), run, tuple(newer.values()))
        _ = loading.job.frame  # which refuses what does not fit
        return loading

    def loaded(self, loading: Loading, run: str) -> None:
        """From here on what was loaded is that run."""
        ((low, high),) = self.database.execute(self._outbox.bounds, {"run": loading.run})
        values = {"run": loading.run, "new": run}
        while low is not None:
            ((last,),) = self.database.execute(self._outbox.some, {**values, "low": low, "n": ROWS})
            self._delete(self._outbox.rename, {**values, "low": low, "high": last})
            low = last + 1 if last < high else None

    @staticmethod
    def is_loading(run: str) -> bool:
        return run.startswith(LOADING)

    def in_the_way(self, run: str) -> list[Any]:
        """The keys of a run that the table has again, of up to ten."""
        found = self.database.execute(self._outbox.in_the_way, {"run": run})
        return [self.transitions.tasks.app_key(tuple(parts)) for parts in found]

    def put_back(self, run: str) -> Left:
        """Move a run from the outbox back into the table, as D. Those stay whose keys, or more, the table has again."""
        outbox, columns = self._outbox, self._outbox.columns(self.store)
        moved, last = 0, 0
        while True:
            found = self.database.execute(outbox.next_back, {"run": run, "low": last, "n": BATCH})
            if not found:
                return Left(moved, self.count(run))
            numbers = [n for (n,) in found]
            moved += self._in_parts(lambda some: self._put_back(run, columns, some), numbers)
            last = numbers[-1]

    def _put_back(self, run: str, columns: Sequence[str], numbers: Sequence[int]) -> int:
        self.check_alone()
        outbox, values = self._outbox, {"run": run}
        self._moved(
            self.database.open(), outbox.put_back(columns, numbers), values, "restore", ABSENT, DONE, len(numbers)
        )
        self.database.execute(outbox.strike(numbers), values)
        return len(numbers)

    # the history

    @property
    def reads_in_parts(self) -> bool:
        """Whether several readers find all rows that were `past`."""
        return not self._outbox.looks_ahead

    def past(self, before_us: int) -> Past | None:
        """The rows of the history from before a moment that nobody adds to any more; None where there are none."""
        ((top, last_us, xid),) = self.database.execute(self._outbox.settling)
        # A moment that has been: where the ids begin anew, one day, those rows are others.
        mark = {"id": top, "before_us": min(before_us, (last_us or 0) + 1), "xid": xid}
        if top is None:
            return None
        if self._outbox.looks_ahead:
            mark["id"] = self._settled(mark)
        return mark if self.is_there(mark) else None

    def _newest_settled(self) -> int:
        """The id of the history up to which nobody adds to it any more."""
        ((top, _, xid),) = self.database.execute(self._outbox.settling)
        if top is None or not self._outbox.looks_ahead:
            return top or 0
        return self._settled({"id": top, "before_us": LATEST, "xid": xid}) - 1

    def _settled(self, mark: Past) -> int:
        """The first id of those from which on others still write: they are seen before they are committed."""
        for low, high in self._ranges(mark, LOOK):
            while not self._is_settled(mark, low, high):
                if low == high:
                    return low
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self._is_settled(mark, low, middle) else (low, middle)
        return int(mark["id"])

    def _is_settled(self, mark: Past, low: int, high: int) -> bool:
        written = self._count(mark, low, high, self._outbox.look_ahead)
        return written == self._count(mark, low, high, self._outbox.prepare)

    def is_there(self, mark: Past) -> bool:
        """Whether any of these rows is."""
        return self._oldest(mark) is not None

    def _oldest(self, mark: Past) -> int | None:
        ((oldest,),) = self.database.execute(self._outbox.oldest(mark))
        return None if oldest is None else int(oldest)

    def count_past(self, mark: Past) -> int:
        """How many rows of the history these are, with those that are not committed yet."""
        ahead = self._outbox.look_ahead
        return sum(self._count(mark, low, high, ahead) for low, high in self._ranges(mark, LOOK))

    def _count(self, mark: Past, low: int, high: int, prepare: Callable[[Store[Any]], None]) -> int:
        prepare(self.store)
        ((n,),) = self.database.execute(self._outbox.count_old(mark), {"low": low, "high": high})
        return int(n)

    def forget_past(self, mark: Past) -> int:
        """Delete these rows of the history. Returns how many were left."""
        outbox, left = self._outbox, 0
        for low, high in self._ranges(mark, ROWS):
            many = self._count(mark, low, high, outbox.prepare) if outbox.looks_ahead else 0
            left += self._delete(outbox.forget_old(mark), {"low": low, "high": high, "many": many})
        return left

    def _ranges(self, mark: Past, n: int) -> Iterator[tuple[int, int]]:
        oldest = self._oldest(mark)
        for low in range(oldest, mark["id"], n) if oldest is not None else ():
            yield low, low + n - 1


@dataclass(frozen=True)
class Loading:
    """How other processes fill the outbox with a run of an archive. May be pickled."""

    job: Job
    run: str
    newer: tuple[Any, ...]  # defaults of the fields that the archive does not have

    def load(self, rows: Iterable[Columns], part: int) -> int:
        """Write rows, column by column, as a part of the run, of a number that no other has. Returns how many."""
        dialect, frame = self.job.bulk.dialect, self.job.frame
        names = [target.field.column for target in frame.targets if target.field]
        sql, count = dialect.outbox.load(names), 0
        with self.job.connected() as store:
            for some in rows:
                found, _ = frame.stored([*some, *([value] * len(some[0]) for value in self.newer)])
                first = part * PLACES + count
                numbers = range(first, first + len(some[0]))
                values = zip(*(found[target] for target in frame.targets), strict=True)
                whole = [(self.run, n, *row) for n, row in zip(numbers, values, strict=True)]
                until_nobody_conflicts(store, lambda rows=whole: _load(store, sql, rows))  # type: ignore[misc]
                count += len(whole)
        return count

    def keep(self, parts: Iterable[int]) -> None:
        """Forget what is not of these parts: of attempts that have failed, or were one too many."""
        outbox = self.job.bulk.dialect.outbox
        with self.job.connected() as store:
            execute = self.job.bulk.dialect.execute
            ((low, high),) = execute(store, outbox.bounds, {"run": self.run})
            ends = [(part * PLACES, (part + 1) * PLACES - 1) for part in sorted(parts)]
            starts = [0 if low is None else low, *(last + 1 for _, last in ends)]
            for first, last in zip(starts, [*(first - 1 for first, _ in ends), high or 0], strict=True):
                if first <= last:
                    execute(store, outbox.forget, {"run": self.run, "low": first, "high": last})


def _load(store: Any, sql: str, rows: Sequence[Any]) -> None:
    with store.atomic():
        store.load(sql, rows)


@dataclass(frozen=True)
class Unturned(Extract):
    """An extract `of` what an archive does not have, which must not begin to have it before all is read."""

    of: Extract = None  # type: ignore[assignment]
    asked: Extract = None  # type: ignore[assignment]
    generation: int = 0

    def _there(self, extract: Extract) -> Extract:
        return replace(extract, address=self.address)

    @property
    def _whole(self) -> Extract:
        return replace(self._there(self.of), where=self.where)

    def _checked(self, read: Iterable[R]) -> Iterator[R]:
        yield from read
        if max((int(value) for (value,) in self._there(self.asked).read()), default=0) != self.generation:
            raise Error(
                f"what this tells of {self.name} is partly in an archive by now, and partly not any more where it was: "
                "make the DataFrame anew"
            )

    def stock(self, names: Sequence[str] | None = None) -> Stock:
        return self.of.stock(names)

    def bounds(self) -> tuple[int, int] | None:
        return self._there(self.of).bounds()

    def held(self) -> AbstractContextManager[str]:
        return self._there(self.of).held()

    def can(self, condition: Condition) -> bool:
        return self.of.can(condition)

    def stored(
        self,
        names: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        after: Mark = (),
        until: Mark = (),
    ) -> Iterator[Any]:
        return self._checked(self._whole.stored(names, conditions, after, until))

    def value(self, column: Any, stored: Any) -> Any:
        return self.of.value(column, stored)

    def batches(
        self,
        names: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        after: Mark = (),
        until: Mark = (),
    ) -> Iterator[Any] | None:
        found = self._whole.batches(names, conditions, after, until)
        return None if found is None else self._checked(found)

    def ranges(self, n: int) -> list[tuple[Condition, ...]]:
        return self._whole.ranges(n)

    def mark(self, after: Mark = (), limit: int | None = None) -> Mark:
        return self._whole.mark(after, limit)
