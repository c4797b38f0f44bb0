"""Put millions of tasks from processes without the model: stage them beside the table, then put all at once."""

from __future__ import annotations

import copy
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from xq.adapters.plain import PlainStore
from xq.core.compile import PutShape, Statement, change
from xq.core.errors import BadValue, ConfigurationError, Duplicate, Error, Full, shown
from xq.core.machine import ABSENT, Machine
from xq.core.ports import Address, ErrorKind, Row, Table
from xq.core.values import Catalogue, Tasks
from xq.engine.install import Installation
from xq.engine.unit import Database, unit_of_work
from xq.pipeline.columns import Columns, Frame, Sources, pickled
from xq.pipeline.frames import unchanged

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect

CHUNK = 10_000  # rows that one transaction stages
AGE = 86_400.0  # seconds after which staged rows count as abandoned
TRIES = 20  # attempts to put a job while other processes put the same keys or unique values


@dataclass(frozen=True)
class Staged:
    """What one call of `Job.stage` has written. Small, and may be pickled. It has no effect unless committed."""

    batch: int
    rows: int
    shapes: frozenset[PutShape]
    order: int  # tasks are put in this order of calls, and within a call in that of the rows


@dataclass(frozen=True)
class Bulk:
    """How other processes put tasks into a queue. May be pickled, and needs no model where it is unpickled.

    The address contains the password: use `replace(bulk, address=...)` to send it separately.
    """

    name: str  # of the model, in the application
    address: Address
    dialect: Dialect
    structure: Mapping[str, Any]  # what must be equal in every process
    catalogue: Callable[[], Catalogue]
    sources: Sources
    on_conflict: str
    now: float | None  # the time of a test's clock

    def __post_init__(self) -> None:
        if self.on_conflict not in ("raise", "skip"):
            raise BadValue(f"on_conflict of a bulk put is 'raise' or 'skip', not {shown(self.on_conflict)}")
        if self.on_conflict != "raise" and not self.dialect.machine.guard("unique"):
            self.tasks.refuse_option("put", "on_conflict")

    @property
    def tasks(self) -> Tasks[Any]:
        store: Any = _Modelless(self.name)
        return Tasks(store, self.dialect.source, self.dialect.machine, self.catalogue)

    def begin(self, columns: Sequence[str], job: str | None = None) -> Job:
        """Begin a job of rows with these columns: fields, and options of put (delay, ttl, ttr).

        A named job is put once, however often it runs. Creates the two tables that jobs need. Raises BadValue and
        FeatureOff for columns that put cannot take, NotInstalled, ConfigurationError.
        """
        longest = self.dialect.staging.longest
        if job is not None and not (isinstance(job, str) and 0 < len(job) <= longest and "\0" not in job):
            raise BadValue(f"a job is named by text of 1 to {longest} characters, not by {shown(job)}")
        new = Job(self, tuple(columns), job or uuid.uuid4().hex, job is not None)
        _ = new.frame  # raises for columns that do not fit
        with new.connected() as store:
            installation = Installation(store, self.dialect, self.structure)
            if error := installation.not_installed():
                raise error
            unit_of_work(store, installation.make_stage)
        return new


@dataclass(frozen=True)
class Job:
    """Rows that are put all at once, or not at all. May be pickled: any process stages, and one of them commits."""

    bulk: Bulk
    columns: tuple[str, ...]
    name: str
    is_named: bool  # whether the caller named it, and so may run it again
    as_it_was: bool = False  # whether the rows are those of restored tasks

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    @cached_property
    def frame(self) -> Frame:
        bulk, dialect = self.bulk, self.bulk.dialect
        options = dialect.staging.options
        return Frame(bulk.tasks, self.columns, options, bulk.sources, self.as_it_was, dialect.forever)

    @property
    def _log(self) -> logging.Logger:
        return logging.getLogger(f"xq.{self.bulk.name}")

    @contextmanager
    def connected(self) -> Iterator[Any]:
        plain: Any = PlainStore(self.bulk.name, self.bulk.address)
        with closing(plain) as store:
            self.bulk.dialect.connected(store, store.ready())
            yield store

    def stage(self, parts: Iterable[Columns], order: int = 0) -> Staged:
        """Write rows beside the table, where no consumer sees them, in transactions of up to 10,000 rows each.

        Each part is a sequence of columns in the order of the job's. Raises BadValue and BadType.
        """
        staging, targets = self.bulk.dialect.staging, self.frame.targets
        load = staging.load([t.field.column if t.field else staging.option(t.option) for t in targets])
        rows, shapes = 0, set[PutShape]()
        with self.connected() as store:
            ((batch,),) = self._execute(store, staging.begin)
            for part in _chunks(parts):
                found, of_shapes = self.frame.stored(part)
                first = staging.first(batch) + rows
                places = range(first, first + len(part[0]))
                staged = list(zip(places, *(found[target] for target in targets), strict=True))
                unit_of_work(store, partial(self._load, store, batch, load, staged))
                rows, shapes = rows + len(places), shapes | of_shapes
        return Staged(batch, rows, frozenset(shapes), order)

    def _load(self, store: Any, batch: int, load: str, rows: Sequence[Row]) -> None:
        with store.atomic():
            if not self._execute(store, self.bulk.dialect.staging.goes_on, batch=batch):
                raise Error(f"the job {self.name} of {self.bulk.name} has ended: it was put, or aborted")
            store.load(load, rows)

    def commit(self, staged: Iterable[Staged]) -> int:
        """Put all that was staged, in one transaction. Returns how many tasks; 0 if the job was put before.

        Of each call of `stage`, rows with the same options are put together, in their order. Staged rows that are not
        in `staged` are deleted. A million tasks take some seconds, during which SQLite blocks all other writers.

        Raises Duplicate and Full, which leave the queue unchanged; Error if staged rows are missing (begin the job
        again); and the driver's error for rows that the table refuses.
        """
        in_order = sorted(staged, key=lambda one: one.order)
        with self.connected() as store:
            last: Exception | None = None
            for _ in range(TRIES):
                try:
                    put = unit_of_work(store, lambda: self._put_all(store, in_order))
                    break
                except Exception as error:
                    # Another process has put the same unique value or generated key since this transaction looked.
                    if store.classify(error) is not ErrorKind.DUPLICATE or not self._may_be_retried(in_order, error):
                        raise
                    last = error
            else:
                raise ConfigurationError(
                    f"{self.bulk.name}: the generated keys, or unique values, are taken already"
                ) from last
        try:
            self._end()
        except Exception as error:  # the tasks are committed: a caller that saw this error might put them again
            self._log.warning("%d tasks were put; later jobs delete their staged rows: %s", put, error)
        return put

    def abort(self) -> None:
        """Give the job up and delete its staged rows. A job that was put, or is just being put, is not affected."""
        self._end()

    def _may_be_retried(self, staged: Sequence[Staged], error: Exception) -> bool:
        dialect, guard = self.bulk.dialect, self.bulk.dialect.machine.guard("unique")
        if guard and dialect.is_duplicate(guard, str(error)):
            return True
        return dialect.machine.settings.id == "time64" and any(not s.has_key for one in staged for s in one.shapes)

    def _put_all(self, store: Any, staged: Sequence[Staged]) -> int:
        dialect, staging = self.bulk.dialect, self.bulk.dialect.staging
        limit = dialect.machine.guard("limit")
        with store.atomic():
            if limit:
                dialect.one_at_a_time(store, False)
            if not dialect.change(store, Statement(staging.mark), self._values(job=self.name)):
                rows = sum(one.rows for one in staged)
                self._log.warning("the job %s was put before: none of its %d rows is put again", self.name, rows)
                return 0
            # Another process that ends a batch locks this row first, and waits. So the rows counted here are those put
            # below.
            there = [bool(self._execute(store, staging.goes_on, batch=one.batch)) for one in staged]
            put, base = 0, 0
            for one, goes_on in zip(staged, there, strict=True):
                first = staging.first(one.batch)
                values = self._values(first=first, last=first + one.rows)
                ((found,),) = self._execute(store, staging.staged, **values)
                if not goes_on or found != one.rows:
                    raise Error(
                        f"rows that the job {self.name} of {self.bulk.name} has staged are gone, so nothing was put: "
                        f"it was aborted, or began {AGE / 3600:.0f} hours ago, or the server crashed. Run it again"
                    )
                inserted = 0
                for shape in sorted(one.shapes, key=repr):
                    base = max(base, time.time_ns())
                    inserted += self._put(store, shape, {**values, "base": base})
                    base += one.rows
                if inserted != one.rows and self.bulk.on_conflict != "skip":
                    raise Error(
                        f"of {one.rows} rows that the job {self.name} of {self.bulk.name} has staged the database has "
                        f"taken {inserted}, so nothing was put: is there a trigger that ignores rows?"
                    )
                put += inserted
            if limit and self._execute(store, staging.overfull(limit)):
                raise Full(self.bulk.name, limit.value, put)
        return put

    def _put(self, store: Any, shape: PutShape, values: Mapping[str, Any]) -> int:
        """Put the rows of one shape of a batch."""
        dialect, staging, frame = self.bulk.dialect, self.bulk.dialect.staging, self.frame
        machine, guard = dialect.machine, dialect.machine.guard("unique")
        row = machine.choose(ABSENT, "put", shape.given)
        assert row is not None
        written = change(machine, row, shape.given)
        fields = [target.field for target in frame.targets if target.field]
        unique = guard if guard and dialect.source.roles[guard.role] in fields else None
        if unique and self.bulk.on_conflict != "skip":
            for (value,) in self._execute(store, staging.in_the_way(written, shape, unique), **values):
                raise Duplicate(self.bulk.name, value, advice=": on_conflict='skip' leaves such tasks out")
            unique = None  # a duplicate that another process puts meanwhile raises, too
        return dialect.change(store, staging.put(written, fields, shape, unique), values, row.event)

    def _end(self) -> None:
        """Delete the staged rows of this job, and abandoned ones of others."""
        staging = self.bulk.dialect.staging
        with self.connected() as store:
            for (batch,) in self._execute(store, staging.over, age=AGE):
                unit_of_work(store, partial(self._end_batch, store, batch))
            if not self.is_named:
                self.bulk.dialect.change(store, Statement(staging.unmark), self._values(job=self.name))

    def _end_batch(self, store: Any, batch: int) -> None:
        staging = self.bulk.dialect.staging
        values = self._values(batch=batch, first=staging.first(batch), last=staging.first(batch + 1))
        with store.atomic():
            for sql in staging.end:
                self.bulk.dialect.change(store, Statement(sql), values)

    def _values(self, **values: Any) -> dict[str, Any]:
        return {"now": self.bulk.now, "job": self.name, **values}

    def _execute(self, store: Any, sql: str, **values: Any) -> list[Any]:
        return self.bulk.dialect.execute(store, sql, self._values(**values))


class _Modelless:
    """The part of a store that `Tasks` needs for messages, in a process without the model."""

    model = type(None)
    hydrate = hydrate_all = tuple

    def __init__(self, name: str) -> None:
        self.name = name


def _chunks(parts: Iterable[Columns]) -> Iterator[Columns]:
    for part in parts:
        for start in range(0, len(part[0]) if part else 0, CHUNK):
            yield part if len(part[0]) <= CHUNK else [column[start : start + CHUNK] for column in part]


def bulk(database: Database, tasks: Tasks[Any], on_conflict: str) -> Bulk:
    """Return how other processes put tasks into the queue of a database."""
    dialect, store, definition = database.dialect, database.store, database.definition
    machine, table = definition.machine, definition.table
    defaults = {name: value for name, value in store.declared_defaults().items() if tasks.may_have_default(name)}
    fields = {"key": table.key[0], **table.roles}
    # made at the commit: two processes would make the same keys
    made_at_commit = ("key",) * (machine.settings.id == "time64")
    sources = Sources(
        {name: tasks.known(name).to_database(value) for name, value in defaults.items() if not callable(value)},
        {name: pickled(value) for name, value in defaults.items() if callable(value)},
        {
            fields[role].name: pickled(maker)
            for role, maker in machine.fill.items()
            if role in fields and role not in made_at_commit
        },
    )
    return Bulk(
        store.name,
        store.address(),
        _portable(dialect, table, machine, definition.words, definition.tube_stats),
        definition.structure,
        definition.catalogue,
        sources,
        on_conflict,
        None if database.clock is None else database.clock.now,
    )


def _portable(
    dialect: Dialect, table: Table, machine: Machine, words: Mapping[str, str | int], tube_stats: Sequence[str]
) -> Dialect:
    """Return a dialect without references to the model and to the functions of the application's features."""
    fields = {field.name: replace(field, to_database=unchanged, from_database=None) for field in table.fields}
    plain = copy.copy(machine)
    plain.fill, plain.features = {}, tuple(replace(feature, fill={}) for feature in machine.features)
    return type(dialect)(
        replace(
            table,
            fields=tuple(fields.values()),
            key=tuple(fields[field.name] for field in table.key),
            roles={role: fields[field.name] for role, field in table.roles.items()},
        ),
        plain,
        words,
        tube_stats,
    )
