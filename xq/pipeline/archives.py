"""Export done tasks to an archive, and restore them.

One transaction deletes a task from the table and inserts it into a staging table. It stays there until the
writer of the archive confirms that it has been written. A restore goes the other way. So each task is in exactly one
place: the table, the staging table or the archive. If a process is killed, the next one completes the export batches
in the staging table.
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
from xq.pipeline.scan import Extract, What
from xq.pipeline.spans import LATEST, ROWS, OldHistory, Watermark, delete

if TYPE_CHECKING:
    from xq.adapters.databases.exports import Exports

DONE: Final = "D"
OUT: Final = ("archive", DONE, ABSENT)
BACK: Final = ("restore", ABSENT, DONE)
BATCH = 2_000  # tasks that one transaction moves
GONE: Final = 1.0  # seconds in which a server detects that a process has ended
POLL: Final = 0.02  # seconds between two tries
COLUMNS: Final = "outbox"  # the setting with the columns of the staging table; the name is that of version 0.1
LOADING: Final = "~"  # the prefix of the names of runs that are still loading
BITS: Final = 52  # of random numbers; a DOUBLE holds so many exactly


class Transferred(NamedTuple):
    """The result of an export or a restore: how many tasks moved."""

    moved: int
    stayed: int  # tasks that changed meanwhile, or that the database refused to move
    watermark: Watermark | None = None  # of the exportable history, up to the first task that stayed


class Archives:
    """The export batches of one queue. A `run` is one of them, named by the caller with up to 64 characters."""

    def __init__(self, steps: Steps) -> None:
        self.database = steps.database
        self.store = steps.store
        self.machine = steps.machine
        self.steps = steps
        self.log = logging.getLogger(f"xq.{self.store.name}")
        self.old = OldHistory(self.database, self.next_generation)
        self._number: float | None = None  # the random number of this process's running call

    def check(self, what: str) -> None:
        """Raise FeatureOff if the queue keeps no done tasks, or no history that shows when they were done."""
        if DONE not in self.machine.states:
            raise FeatureOff(f"{what} moves done tasks, which a queue keeps with the feature 'keep'", feature="keep")
        if self.machine.settings.history is None:
            raise FeatureOff(
                f"{what} needs to know when a task was done: turn on the feature 'history'", feature="history"
            )

    def moment(self, name: str, value: object) -> int:
        """Return a moment in microseconds since 1970; of a date its beginning, of None the end of time.

        Raises as `history`.
        """
        return LATEST if value is None else microseconds(name, value)

    @property
    def now_us(self) -> int:
        ((now,),) = self.database.execute(self._exports.now_us)
        return int(now)

    @property
    def staging_table(self) -> str:
        return self._exports.name

    @property
    def _exports(self) -> Exports:
        return self.database.dialect.exports

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock that allows only one process to move tasks to or from an archive of this queue.

        Raises ArchiveBusy if another process holds it, and ConfigurationError within a transaction.
        """
        if self.store.in_transaction():
            raise ConfigurationError(
                f"archives of {self.store.name} use many transactions: call this outside of a transaction"
            )
        opened = self.database.open()
        opened.sessions.use_liveness(lambda: opened.dialect.liveness(self.store))
        name = str(uuid5(NAMESPACE_OID, f"xq archive {opened.dialect.source_name}"))
        deadline = time.monotonic() + GONE
        while True:
            with opened.sessions.alone(name) as alone:
                if alone:
                    with self._numbered():
                        yield
                    return
            if time.monotonic() > deadline:
                raise ArchiveBusy(self.store.name)
            time.sleep(POLL)

    @contextmanager
    def _numbered(self) -> Iterator[None]:
        # After a lost connection the server may give the lock to another call while this one runs on. The number shows
        # that.
        number, is_numbered = float(secrets.randbits(BITS)), {"value": float(secrets.randbits(BITS))}
        self.database.execute(self.database.dialect.set_setting, {**self._named("alone"), "value": number})
        self.database.execute(self._exports.numbered, {**self._named("archived"), **is_numbered})
        self._number = number
        try:
            yield
        finally:
            self._number = None

    def check_alone(self) -> None:
        """Raise ArchiveBusy if another call has got the lock since. The row lock keeps others out until the commit."""
        if self._number is not None and self._setting("alone", self.database.dialect.lock) != self._number:
            raise ArchiveBusy(self.store.name)

    @property
    def identity(self) -> dict[str, Any]:
        """Return what identifies this queue among those of all databases, as JSON values.

        Needs a call of `alone` before.
        """
        parameters = self.store.address().parameters
        database = str(parameters.get("database") or parameters.get("dbname"))
        number = self._setting("archived")
        return {"queue": self.database.dialect.source_name, "database": os.path.basename(database), "number": number}

    def _setting(self, what: str, lock: str = "") -> float | None:
        found = self.database.execute(f"{self._exports.setting}{lock}", self._named(what))
        return float(found[0][0]) if found else None

    def fits(self) -> bool:
        """Return whether the staging table exists with the current columns, by name and type.

        Raises ConfigurationError if a staging table with other columns contains tasks.
        """
        exports = self._exports
        if exports.is_there(self.store) and self._setting(COLUMNS) == self._columns:
            return True
        if waiting := self.runs():
            raise ConfigurationError(
                f"{sum(waiting.values())} tasks in {exports.name} have the columns of another day: give "
                f"{self.store.name} and its table those of that day, in name and type, archive or restore, and change "
                "them again then"
            )
        return False

    @property
    def _columns(self) -> float:
        """A number that identifies the current columns of the model and the table, with their types."""
        known = sorted(field.column.lower() for field in self.database.dialect.source.fields)
        found = sorted(tuple(map(str, row)) for row in self.store.execute(self._exports.types))
        columns = repr((known, [row for row in found if row[0].lower() in known]))
        return float(int(sha256(columns.encode()).hexdigest(), 16) % 2**BITS)

    def prepare(self) -> None:
        """Create the staging table with the current columns of the table, unless it has them.

        Raises ConfigurationError for a table with columns that the model lacks: they would be lost.
        """
        dialect, exports = self.database.dialect, self._exports
        there = dialect.columns_of(self.store, dialect.source.name)
        known = {field.column.lower() for field in dialect.source.fields}
        more = sorted(name for name, made in there.items() if not made and name.lower() not in known)
        if more:
            raise ConfigurationError(
                f"the table {dialect.source.name} has columns that {self.store.name} does not name "
                f"({', '.join(more)}), which would be lost: add fields for them"
            )
        if not self.fits():
            self.next_generation()  # a reader that has seen no staging table must start again
            for sql in (exports.drop, *exports.made()):
                self.store.execute(sql)
            self.database.execute(dialect.set_setting, {**self._named(COLUMNS), "value": self._columns})

    def runs(self) -> dict[str, int]:
        """Return how many tasks of each run are in the staging table."""
        exports = self._exports
        found = self.database.execute(exports.runs) if exports.is_there(self.store) else []
        return {str(run): int(n) for run, n in found}

    def count(self, run: str) -> int:
        """Return how many tasks of a run are in the staging table."""
        return self.runs().get(run, 0)

    def forget(self, run: str) -> None:
        """Delete a run from the staging table."""
        for low, high in self._in_steps(run):
            delete(self.database, self._exports.forget, {"run": run, "low": low, "high": high})

    def _in_steps(self, run: str) -> Iterator[tuple[int, int]]:
        """Yield the first and last numbers of blocks of ROWS tasks. The numbers of a loaded run have gaps of PLACES."""
        low: int = 0
        while True:
            ((high,),) = self.database.execute(self._exports.some, {"run": run, "low": low, "n": ROWS})
            if high is None:
                return
            yield low, high
            low = high + 1

    def retire(self, run: str) -> None:
        """Delete a run from the staging table after its files are in place in the archive."""
        self.check_alone()
        self.next_generation()
        self.forget(run)

    @property
    def generation(self) -> int:
        """A number that changes before rows which are in an archive are deleted here."""
        return int(self._setting("archive") or 0)

    def next_generation(self) -> None:
        """Increase the generation, before rows that an archive has are deleted here.

        A program that has begun to read the queue and its archive must start again.
        """
        self.database.execute(self._exports.next_generation, self._named("archive"))

    def _named(self, what: str) -> dict[str, str]:
        return {"name": self._exports.setting_of(what)}

    def _extract(self, what: What) -> Extract:
        return self.database.dialect.extract(what, self.store.name, self.store.address(), "")

    def extract_run(self, run: str) -> Extract:
        """Return the tasks of a run, with `xq_at_us`: when each was done, in microseconds since 1970."""
        return self._exports.extract_run(self._extract("tasks"), run)

    def extract_tasks(self, without: Sequence[str], generation: int) -> Extract:
        """Return the tasks of the queue, and those of the staging table except some runs, which have `xq_at_us`.

        Reading raises Error at its end if the generation has changed by then.
        """
        columns = self._exports.columns(self.store)
        found = self._exports.extract_all(self._extract("tasks"), columns, without, LOADING)
        return self._checked(generation, found)

    def extract_old_history(self, watermark: Watermark) -> Extract:
        return replace(self._extract("history"), rows=self._exports.old(watermark))

    def extract_history(self, without: Watermark | None, generation: int) -> Extract:
        """Return the history except the rows below a watermark. Reading raises as in `extract_tasks`."""
        rows = f"NOT ({self._exports.old(without)})" if without else ""
        return self._checked(generation, replace(self._extract("history"), rows=rows))

    def _checked(self, generation: int, extract: Extract) -> Extract:
        reads = self._exports.extract_generation(self._extract("tasks"), self._named("archive")["name"])
        return replace(extract, check=SameGeneration(replace(reads, address=reads.address.shown), generation))

    def stage(self, run: str, before_us: int) -> Transferred:
        """Move done tasks into the staging table: those done before a moment, and those whose time is unknown.

        Each transaction moves a bounded number of tasks. A task that another process changes meanwhile stays in the
        table.
        """
        exports, execute = self._exports, self.database.execute
        execute(exports.drop_batch)
        # Read before the list is made: the list has no tasks that are done later, and their history must stay.
        watermark, newest = self.old.watermark(before_us), self.old.newest_complete_id()
        create, *more = exports.list_batch(before_us)
        exports.prepare(self.store)
        for sql in (create, *more):
            execute(sql)
        ((last,),) = execute(exports.last_number)
        moved = 0
        for low in range(1, last + 1, BATCH):
            numbers = range(low, min(low + BATCH, last + 1))
            moved += self._in_parts(lambda part: self._take_out(run, part, newest), numbers)
        ((stayed, since_us),) = execute(exports.stayed)
        execute(exports.drop_batch)
        if watermark and since_us is not None:
            watermark = {**watermark, "before_us": min(watermark["before_us"], since_us)}
        return Transferred(moved, stayed, watermark)

    def _take_out(self, run: str, numbers: Sequence[int], newest: int) -> int:
        self.check_alone()
        exports, values = self._exports, {"run": run}
        found = self.database.execute(exports.found, {"low": numbers[0], "high": numbers[-1]})
        if found and not exports.same_version:
            redone = {n for (n,) in self.database.execute(exports.done_again, {"after": newest})}
            found = [row for row in found if row[0] not in redone]
        if not found:
            return 0
        numbers = [row[0] for row in found]
        noted = Statement(exports.note(numbers))
        self.database.change(self.database.open(), noted, {**self.database.values(), **values})
        statement, named = exports.take_out(numbers, [row[1:] for row in found])
        self._moved(statement, {**values, **named}, OUT, len(numbers))
        self.database.execute(exports.remove_from_batch(numbers))
        return len(numbers)

    def _moved(self, statement: Statement, values: Mapping[str, Any], change: tuple[str, str, str], n: int) -> None:
        binding, event = self.database.open(), change[0]
        step = self.steps.plain(binding, statement, *change)
        rows = self.database.perform(step, self.store.ready(), {**self.database.values(), **values})
        if len(rows) != n:
            raise Error(
                f"{len(rows)} of {n} tasks of {self.store.name} moved by {event}: the transaction was rolled back"
            )
        self.steps.count(binding, *change, n)

    def _in_parts(self, work: Callable[[Sequence[int]], int], numbers: Sequence[int]) -> int:
        """Return the sum of what `work` returns, in one transaction, or in several if the database refuses some."""

        def transaction() -> int:
            self._exports.prepare(self.store)
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

    def loading(self, columns: Sequence[str]) -> Loading:
        """Return what fills the staging table with rows of an archive.

        Raises BadValue for columns that the model does not have.

        The rows do not count until they are `loaded`: the workers of a killed process may write for a while.
        """
        found = bulk(self.database, self.steps.tasks, "raise")
        run, defaults = f"{LOADING}{uuid4().hex}", self.store.declared_defaults()
        newer = {n: value for n, value in defaults.items() if n not in columns and not callable(value)}
        loading = Loading(Job(found, (*columns, *newer), run, True, as_it_was=True), run, tuple(newer.values()))
        _ = loading.job.frame  # raises for columns that do not fit
        return loading

    def loaded(self, loading: Loading, run: str, n: int) -> None:
        """Rename a loaded batch to this run of `n` tasks. Raises Error if it has another number of tasks.

        That happens if a superseded attempt of a worker has written meanwhile. Its later rows belong to no run.
        """
        for low, high in self._in_steps(loading.run):
            delete(self.database, self._exports.rename, {"run": loading.run, "new": run, "low": low, "high": high})
        if (there := self.count(run)) != n:
            self.forget(run)
            raise Error(f"{there} tasks of {run} were read, and it has {n}: try again")

    @staticmethod
    def is_loading(run: str) -> bool:
        return run.startswith(LOADING)

    def in_the_way(self, run: str) -> list[Any]:
        """Return up to ten keys of a run that the table already has."""
        found = self.database.execute(self._exports.in_the_way, {"run": run})
        return [self.steps.tasks.app_key(tuple(parts)) for parts in found]

    def put_back(self, run: str) -> Transferred:
        """Move a run from the staging table back into the table, as D.

        Tasks stay in the staging table if the database refuses them, for example because the table has their keys
        again.
        """
        self.next_generation()  # a reader that has seen the tasks in an archive must not see them in the table, too
        exports, columns = self._exports, self._exports.columns(self.store)
        moved, last = 0, -1
        while True:
            found = self.database.execute(exports.next_back, {"run": run, "low": last, "n": BATCH})
            if not found:
                return Transferred(moved, self.count(run))
            numbers = [n for (n,) in found]
            moved += self._in_parts(lambda part: self._put_back(run, columns, part), numbers)
            last = numbers[-1]

    def _put_back(self, run: str, columns: Sequence[str], numbers: Sequence[int]) -> int:
        self.check_alone()
        exports, values = self._exports, {"run": run}
        self._moved(exports.put_back(columns, numbers), values, BACK, len(numbers))
        self.database.execute(exports.remove(numbers), values)
        return len(numbers)


@dataclass(frozen=True)
class SameGeneration:
    """Checks at the end of a read that the generation has not changed since its start."""

    generation_extract: Extract  # reads the generation; has no password, since that of the checked extract is used
    generation: int

    def __call__(self, read: Extract) -> None:
        generation_extract = replace(self.generation_extract, address=read.address)
        if max((int(value) for (value,) in generation_extract.read()), default=0) != self.generation:
            raise Error(
                f"an archive or restore of {read.name} ran during the read, so rows may be missing or doubled: create "
                "the DataFrame again"
            )
