"""Done tasks on their way out of a queue, to an archive, and back.

A task that leaves is deleted from the table and stands in an outbox beside it, both by one transaction, until whoever
writes the archive says that it is written. One that comes back goes the other way. So each task is at any moment in
the table, in the outbox, or in the archive alone; and whoever is killed leaves what the next one finds and finishes.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import NAMESPACE_OID, uuid4, uuid5

from xq.core.compile import Statement
from xq.core.errors import ArchiveBusy, ConfigurationError, Error, FeatureOff
from xq.core.machine import ABSENT
from xq.core.ports import REFUSALS
from xq.core.values import microseconds
from xq.engine.steps import Steps
from xq.pipeline.bulk import Job, bulk
from xq.pipeline.loading import Loading
from xq.pipeline.scan import Extract
from xq.pipeline.spans import LATEST, ROWS, OldHistory, Past, delete

if TYPE_CHECKING:
    from xq.adapters.databases.exports import Exports

DONE: Final = "D"
OUT: Final = ("archive", DONE, ABSENT)
BACK: Final = ("restore", ABSENT, DONE)
BATCH = 2_000  # tasks that one transaction moves
GONE: Final = 1.0  # seconds in which a server notices that a process is gone
POLL: Final = 0.02  # seconds between two tries
LOADING: Final = "~"  # what the names of runs begin with that are not loaded yet
BITS: Final = 52  # of numbers drawn at random, which a DOUBLE holds


class Left(NamedTuple):
    """What became of the tasks that were to leave, or to come back."""

    moved: int
    stayed: int  # changed meanwhile, or kept by the database
    past: Past | None = None  # the history of those that were to leave, from before that of the first that stayed


class Archives:
    """The outbox of one queue. A `run` is one filling of it, by a name of the caller's, of at most 64 characters."""

    def __init__(self, steps: Steps) -> None:
        self.database = steps.database
        self.store = steps.store
        self.machine = steps.machine
        self.steps = steps
        self.log = logging.getLogger(f"xq.{self.store.name}")
        self.old = OldHistory(self.database, self.turn)
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
        return microseconds(name, value)

    @property
    def now_us(self) -> int:
        ((now,),) = self.database.execute(self._outbox.now_us)
        return int(now)

    @property
    def outbox(self) -> str:
        """The name of the table in which tasks are on their way."""
        return self._outbox.name

    @property
    def _outbox(self) -> Exports:
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
        opened.sessions.use_liveness(lambda: opened.dialect.liveness(self.store))
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
        """Whether there is an outbox of the columns of today, in name and type.

        Raises ConfigurationError if there is one of others, and tasks are in it.
        """
        outbox = self._outbox
        if outbox.is_there(self.store) and self._setting("outbox") == self._columns:
            return True
        if waiting := self.runs():
            raise ConfigurationError(
                f"{sum(waiting.values())} tasks in {outbox.name} have the columns of another day: give "
                f"{self.store.name} and its table those of that day, in name and type, archive or restore, and change "
                "them again then"
            )
        return False

    @property
    def _columns(self) -> float:
        """A number that tells the columns of model and table, with their types, from those of another day."""
        known = sorted(field.column.lower() for field in self.database.dialect.source.fields)
        found = sorted(tuple(map(str, row)) for row in self.store.execute(self._outbox.types))
        told = repr((known, [row for row in found if row[0].lower() in known]))
        return float(int(sha256(told.encode()).hexdigest(), 16) % 2**BITS)

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
            self.turn()  # who knows of no outbox does not look there
            for sql in (outbox.drop, *outbox.made()):
                self.store.execute(sql)
            self.database.execute(dialect.set_setting, {**self._named("outbox"), "value": self._columns})

    # what is in the outbox

    def runs(self) -> dict[str, int]:
        """How many tasks of each run are in the outbox."""
        outbox = self._outbox
        found = self.database.execute(outbox.runs) if outbox.is_there(self.store) else []
        return {str(run): int(n) for run, n in found}

    def count(self, run: str) -> int:
        """How many tasks of a run are in the outbox."""
        return self.runs().get(run, 0)

    def forget(self, run: str) -> None:
        """Delete a run from the outbox: what was in it is elsewhere."""
        for low, high in self._in_steps(run):
            delete(self.database, self._outbox.forget, {"run": run, "low": low, "high": high})

    def _in_steps(self, run: str) -> Iterator[tuple[int, int]]:
        """The first and last numbers of ROWS tasks after ROWS tasks; a run that was loaded has gaps of PLACES."""
        low: int = 0
        while True:
            ((high,),) = self.database.execute(self._outbox.some, {"run": run, "low": low, "n": ROWS})
            if high is None:
                return
            yield low, high
            low = high + 1

    def retire(self, run: str) -> None:
        """Delete a run from the outbox that has come into its place in an archive."""
        self.check_alone()
        self.turn()
        self.forget(run)

    @property
    def generation(self) -> int:
        """A number that changes whenever what an archive has is about to be deleted here."""
        return int(self._setting("archive") or 0)

    def turn(self) -> None:
        """From here on, what an archive has is deleted here: whoever began to read both before must begin anew."""
        self.database.execute(self._outbox.next_generation, self._named("archive"))

    def _named(self, what: str) -> dict[str, str]:
        return {"name": self._outbox.setting_of(what)}

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
        return replace(extract, check=Unturned(replace(asked, address=asked.address.shown), generation))

    # out

    def gather(self, run: str, before_us: int) -> Left:
        """Move done tasks into the outbox: those that came to D before, and those of which nobody knows when.

        In transactions of a bounded number of them each. Who changes a task meanwhile keeps it: it stays.
        """
        outbox, execute = self._outbox, self.database.execute
        execute(outbox.over)
        # Before the list is made: of who is done later it knows nothing, and that must not go.
        past, mark = self.old.past(before_us), self.old.newest_settled()
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
        noted = Statement(outbox.note(numbers))
        self.database.change(self.database.open(), noted, {**self.database.values(), **values})
        statement, named = outbox.take_out(numbers, [row[1:] for row in found])
        self._moved(statement, {**values, **named}, OUT, len(numbers))
        self.database.execute(outbox.left(numbers))
        return len(numbers)

    def _moved(self, statement: Statement, values: Mapping[str, Any], change: tuple[str, str, str], n: int) -> None:
        binding, event = self.database.open(), change[0]
        step = self.steps.plain(binding, statement, *change)
        rows = self.database.perform(step, self.store.ready(), {**self.database.values(), **values})
        if len(rows) != n:
            raise Error(f"{len(rows)} of {n} tasks of {self.store.name} moved by {event}: nothing of that was done")
        self.steps.count(binding, *change, n)

    def _in_parts(self, work: Callable[[Sequence[int]], int], numbers: Sequence[int]) -> int:
        """What `work` returns of all numbers, by one transaction, or several where the database refuses some rows."""

        def transaction() -> int:
            self._outbox.prepare(self.store)
            with self.store.atomic():
                return work(numbers)

        try:
            return self.database.unit(transaction)
        except Exception as error:
            if self.store.classify(error) not in REFUSALS:
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
        found = bulk(self.database, self.steps.tasks, "raise")
        run, defaults = f"{LOADING}{uuid4().hex}", self.store.declared_defaults()
        newer = {n: value for n, value in defaults.items() if n not in columns and not callable(value)}
        loading = Loading(Job(found, (*columns, *newer), run, True, as_it_was=True), run, tuple(newer.values()))
        _ = loading.job.frame  # which refuses what does not fit
        return loading

    def loaded(self, loading: Loading, run: str, n: int) -> None:
        """From here on what was loaded is that run, of n tasks. Raises Error where it has others than those.

        As where an attempt of a worker that counts no more has written meanwhile: what it writes later is no run's.
        """
        for low, high in self._in_steps(loading.run):
            delete(self.database, self._outbox.rename, {"run": loading.run, "new": run, "low": low, "high": high})
        if (there := self.count(run)) != n:
            self.forget(run)
            raise Error(f"{there} tasks of {run} were read, and it has {n}: try again")

    @staticmethod
    def is_loading(run: str) -> bool:
        return run.startswith(LOADING)

    def in_the_way(self, run: str) -> list[Any]:
        """The keys of a run that the table has again, of up to ten."""
        found = self.database.execute(self._outbox.in_the_way, {"run": run})
        return [self.steps.tasks.app_key(tuple(parts)) for parts in found]

    def put_back(self, run: str) -> Left:
        """Move a run from the outbox back into the table, as D. Those stay whose keys, or more, the table has again."""
        self.turn()  # who has read it where it was in an archive must not read it in the table, too
        outbox, columns = self._outbox, self._outbox.columns(self.store)
        moved, last = 0, -1
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
        self._moved(outbox.put_back(columns, numbers), values, BACK, len(numbers))
        self.database.execute(outbox.strike(numbers), values)
        return len(numbers)


@dataclass(frozen=True)
class Unturned:
    """The check that an archive has not begun to have what it had not, before all of that was read."""

    asked: Extract  # the generation, at no address: a password is where that of what is read is
    generation: int

    def __call__(self, read: Extract) -> None:
        asked = replace(self.asked, address=read.address)
        if max((int(value) for (value,) in asked.read()), default=0) != self.generation:
            raise Error(
                f"what this tells of {read.name} is partly in an archive by now, and partly not any more where it was: "
                "make the DataFrame anew"
            )
