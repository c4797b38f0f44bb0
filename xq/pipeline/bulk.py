"""Put millions of tasks from processes without the model: each partition of a job in one transaction, once."""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple
from zlib import crc32

from xq.core import time
from xq.core.clock import microseconds
from xq.core.compile import Statement, change
from xq.core.connections import Address
from xq.core.errors import BadType, BadValue, ConfigurationError, Duplicate, Error, Full, is_integer, shown
from xq.core.kinds import ErrorKind, Row, fits_a_column
from xq.core.machine import ABSENT
from xq.core.options import Catalogue
from xq.core.values import Tasks, chunks
from xq.database.transactions import retried
from xq.drivers.plain import PlainStore
from xq.engine.binding import Definition
from xq.engine.executor import Executor
from xq.pipeline.columns import Alike, Columns, Frame, Sources, pickled
from xq.pipeline.frames import unchanged
from xq.pipeline.sql.tables import LONGEST_JOB, Jobs, jobs
from xq.sql.dialect import Dialect
from xq.sql.installer.installation import Installation

AGE = 86_400.0  # seconds for which an unnamed job's partitions are remembered, for late attempts
TRIES = 20  # attempts to put a partition while other processes make the same keys
PER_INSERT = 500  # rows in one INSERT
VALUES = 5_000  # values in one INSERT
BLOCK = 10_000  # rows that are converted at once
EVERY = 2**63 - 1  # above the number of any partition
# Marks of a job, in a partition's place: it is complete; how many partitions it has; REFUSED - p: other rows for p
WHOLE, NUMBER, REFUSED = -1, -2, -3


@dataclass(frozen=True)
class Bulk:
    """How other processes put tasks into a queue. May be pickled, and needs no model where it is unpickled.

    The address contains the password: use `replace(bulk, address=...)` to send it separately.
    """

    name: str  # the model's, in the application
    address: Address
    dialect: Dialect
    structure: Mapping[str, Any]  # what must be equal in every process
    catalogue: Callable[[], Catalogue]
    sources: Sources
    on_conflict: str
    now: float | None  # by a test's clock

    def __post_init__(self) -> None:
        if self.on_conflict not in ("raise", "skip"):
            raise BadValue(f"on_conflict of a bulk put is 'raise' or 'skip', not {shown(self.on_conflict)}")
        if self.on_conflict != "raise" and not self.dialect.machine.single:
            self.tasks.options.refuse_option("put", "on_conflict")

    @property
    def tasks(self) -> Tasks[Any]:
        store: Any = _Modelless(self.name)
        return Tasks(store, self.dialect.source, self.dialect.machine, self.catalogue)

    def begin(
        self,
        columns: Sequence[str],
        job: str | None = None,
        parts: int | None = None,
        on_done: Literal["skip", "raise"] = "skip",
    ) -> Job:
        """Begin a job whose rows have the given columns: fields, and put's options (delay, ttl, ttr).

        A named job is put once, however often it runs. The database records its number of partitions, `parts`, with the
        first one, and refuses a run with another number. If the job is complete, its partitions put nothing, which the
        log says at WARNING; with on_done="raise" an Error is raised. Creates the table that jobs need. Raises BadValue
        and FeatureOff for columns that put cannot take, NotInstalled, ConfigurationError.
        """
        if job is not None and not (isinstance(job, str) and 0 < len(job) <= LONGEST_JOB and "\0" not in job):
            raise BadValue(f"a job is named by text of 1 to {LONGEST_JOB} characters, not by {shown(job)}")
        if parts is not None and not (is_integer(parts) and 0 < parts < EVERY):
            raise BadValue(f"a job has 1 or more partitions, not {shown(parts)}")
        if on_done not in ("skip", "raise"):
            raise BadValue(f"on_done of a bulk put is 'skip' or 'raise', not {shown(on_done)}")
        new = Job(self, tuple(columns), job or uuid.uuid4().hex, job is not None, parts)
        _ = new.frame  # raises for columns that do not fit
        with new.connected() as store:
            retried(store, partial(self.installed(store).make_jobs, new.sql.create))
            retried(store, lambda: new.change(store, new.sql.forget))
            found = Recorded.of(new.name, new.rows(store)) if job else None
        if found and found.complete:
            if on_done == "raise":
                raise Error(f"{found}: give other rows another name")
            new.log.warning("%s: 0 put", found)
        elif found:
            new.check(0, found.partitions)
        return new

    def installed(self, store: Any) -> Installation:
        """Return the installation, as it is now. Raises NotInstalled."""
        installation = Installation(store, self.dialect, self.structure)
        if error := installation.not_installed():
            raise error
        return installation


class Recorded(NamedTuple):
    """What the database has recorded of a named job."""

    name: str
    partitions: int | None  # how many it has; None if no run has said so
    put: int  # how many of them were put
    rows: int  # that these have, also those that on_conflict="skip" left out
    complete: bool
    at: datetime | None  # when it was completed, in UTC; None if it was not, or by xq 0.2
    refused: tuple[int, ...]  # the partitions for which a later run had other rows

    @classmethod
    def of(cls, name: str, rows: Iterable[Row]) -> Recorded | None:
        """Return what all rows of a job say; None if there are none."""
        found = {part: (n, digest) for part, n, digest in rows}
        put = [n for part, (n, _) in found.items() if part >= 0]
        number, us = found.get(NUMBER, (None, 0))[0], found.get(WHOLE, (0, 0))[1]
        at = datetime.fromtimestamp(us / 1_000_000, UTC) if us else None
        refused = tuple(sorted(REFUSED - part for part in found if part <= REFUSED))
        return cls(name, number, len(put), sum(put), WHOLE in found, at, refused) if found else None

    def __str__(self) -> str:
        at = f" at {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        state = f"was completed{at}" if self.complete else "is not complete"
        of = f" of {self.partitions}" if self.partitions not in (None, self.put) else ""
        return f"the job {self.name} {state}, with {self.rows:,} rows in {self.put}{of} partitions"


@dataclass(frozen=True)
class Job:
    """Rows that are put in partitions, each once. May be pickled: any process puts partitions."""

    bulk: Bulk
    columns: tuple[str, ...]
    name: str
    is_named: bool  # whether the caller named it, and so may run it again
    parts: int | None  # how many partitions it has, if the caller has said so

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    @cached_property
    def sql(self) -> Jobs:
        return jobs(self.bulk.dialect)

    @cached_property
    def frame(self) -> Frame:
        bulk, dialect = self.bulk, self.bulk.dialect
        options = sorted(dialect.machine.options("put"))
        return Frame(bulk.tasks, self.columns, options, bulk.sources, dialect.forever)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        plain: Any = PlainStore(self.bulk.name, self.bulk.address)
        with closing(plain) as store:
            self.bulk.dialect.connected(store, store.ready())
            yield store

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(f"xq.{self.bulk.name}")

    def put(self, part: int, rows: Iterable[Sequence[Any]]) -> int:
        """Put a partition's rows, all or none, in one transaction. Returns how many tasks; 0 if it was put before.

        Partitions are numbered from 0. A row is a tuple or a list of values in the order of the job's columns. Rows
        with the same options are put in their order.

        Raises NotInstalled, BadValue, BadType, Duplicate, Full, and the driver's error for rows that the table refuses;
        Error if an earlier run under this name put the partition with other rows, or had another number of partitions.
        """
        names = ", ".join(self.columns)
        if not isinstance(rows, Iterable):
            raise BadType(f"a partition is an iterable of rows ({names}), not {shown(rows)}")
        blocks = []  # a list, since an iterator would be empty after a conflict
        for some in chunks(rows, BLOCK):
            for row in some:
                if not isinstance(row, (tuple, list)):
                    raise BadType(f"a row is a tuple or a list ({names}), not {shown(row)}")
                if len(row) != len(self.columns):
                    raise BadValue(f"a row has {len(self.columns)} values ({names}), not {len(row)}: {shown(row)}")
            blocks.append([*zip(*some, strict=True)])
        return self.put_blocks(part, blocks)

    def put_blocks(self, part: int, blocks: Iterable[Columns]) -> int:
        """Put a partition as `put` does, from blocks of columns. They are iterated again after a conflict."""
        if not is_integer(part) or part < 0 or not fits_a_column(part - REFUSED):
            raise BadValue(f"a partition is a whole number from 0 on, not {shown(part)}")
        if self.parts and part >= self.parts:
            raise BadValue(f"the job {self.name} has {self.parts} partitions, numbered from 0: there is no {part}")
        size = PER_INSERT
        with self.connected() as store:
            self.bulk.installed(store)
            for _ in range(TRIES):
                try:
                    put = retried(store, partial(_Put(self, store, size).put, part, blocks))
                except Duplicate:
                    if size == 1:
                        raise
                    size = 1  # to name the value
                except Exception as error:
                    if not self._makes_keys or store.classify(error) is not ErrorKind.DUPLICATE:
                        raise
                    last = error  # another process has made the same key
                else:
                    if put is None:
                        raise Error(
                            f"the job {self.name} of {self.bulk.name} was begun with other rows in its partition "
                            f"{part}: give each run the same rows, with the same partitions and order of columns, "
                            "and put mended rows under another name"
                        )
                    self.log.info("%d tasks put: partition %d of the job %s", put, part, self.name)
                    return put
        raise ConfigurationError(f"{self.bulk.name}: the generated keys are taken already") from last

    @property
    def _makes_keys(self) -> bool:
        return self.bulk.dialect.machine.settings.id == "time64"

    def check(self, part: int, number: int | None) -> None:
        """Raise Error if the job's recorded number of partitions is not that of this run."""
        if number is not None and ((self.parts or number) != number or part >= number):
            raise Error(
                f"the job {self.name} of {self.bulk.name} was begun with {number} partitions, and this run has "
                f"{self.parts or f'one numbered {part}'}: give each run the same partitions"
            )

    def commit(self, parts: int | None = None) -> None:
        """Record that all partitions were put: a job with this name puts nothing from now on.

        `parts`: how many partitions a named job has, if `begin` was not told; else they end with the last one that was
        put. Raises Error if one of them is missing, or was refused in this process or another, until a run has put it
        with the rows that it had before.
        """
        if parts is not None and not (is_integer(parts) and 0 <= parts < EVERY):
            raise BadValue(f"a job has 1 or more partitions, not {shown(parts)}")
        if self.is_named:
            with self.connected() as store:
                if WHOLE not in [mark for mark, *_ in self.rows(store, 0)]:
                    self.log.info("%s", retried(store, partial(self._complete, store, parts or self.parts)))

    def _complete(self, store: Any, parts: int | None) -> Recorded | None:
        with store.atomic(own=True):
            parts = max([-1, *(part for part, *_ in self.rows(store))]) + 1 if parts is None else parts
            self.change(store, self.sql.claim, part=NUMBER, n=parts)
            rows = self.rows(store)
            found, there = Recorded.of(self.name, rows), {part for part, *_ in rows}
            assert found is not None
            if found.complete:
                return found
            missing = [part for part in range(min(parts, found.put + 9)) if part not in there][:9]
            if found.partitions != parts or found.put != parts or missing or found.refused:
                why = f"its number of partitions is {max(found.partitions or 0, found.put)}, not {parts}"
                if missing:
                    why = f"of {parts} partitions it lacks {missing}"
                elif found.refused:
                    why = f"a run had other rows for its partitions {[*found.refused[:9]]}: put those of the first run"
                raise Error(f"{found}: {why}")
            self.change(store, self.sql.done, part=WHOLE, n=found.rows)
            return Recorded.of(self.name, self.rows(store))

    def rows(self, store: Any, below: int = EVERY) -> list[Row]:
        """Return the rows of the jobs table about this job: part, n, digest."""
        return self.bulk.dialect.execute(store, self.sql.rows, self.values(below=below))

    def change(self, store: Any, sql: str, **values: Any) -> int:
        """Run SQL on the jobs table, and return how many rows it changed."""
        return self.bulk.dialect.change(store, Statement(sql), self.values(**values))

    def values(self, **values: Any) -> dict[str, Any]:
        return {"now": self.bulk.now, "job": self.name, "age": None if self.is_named else AGE, **values}


class _Put:
    """One attempt to put a partition, by statements with up to `size` rows."""

    def __init__(self, job: Job, store: Any, size: int) -> None:
        self.job = job
        self.store = store
        self.size = size
        self.dialect = job.bulk.dialect
        self.machine = self.dialect.machine
        self._runs: dict[tuple[Any, ...], Any] = {}  # by what rows share, and their number
        self._last = 0  # the last generated key

    def put(self, part: int, blocks: Iterable[Columns]) -> int | None:
        """Return how many tasks were put; None if the partition was put before with other rows."""
        job, sql, put, n, digest = self.job, self.job.sql, 0, 0, 0
        # Before the transaction: on MariaDB it must not read before another attempt has committed.
        marks = {mark: number for mark, number, _ in job.rows(self.store, 0)} if job.is_named else {}
        if WHOLE in marks:
            return 0
        job.check(part, marks.get(NUMBER))
        with self.store.atomic(own=True):
            if self.machine.room:
                self.dialect.one_at_a_time(self.store, False)
            is_new = job.change(self.store, sql.claim, part=part, n=0)
            for columns in blocks:
                n += len(columns[0]) if columns else 0
                rows = zip(*map(_for_digest, columns), strict=True)
                digest += sum(crc32(repr(row).encode()) for row in rows)  # in any order
                if is_new:
                    put += sum(self._put(alike, these) for alike, these in job.frame.alike(columns).items())
            if is_new:
                job.change(self.store, sql.close, part=part, n=n, digest=digest)
            if job.is_named and job.parts:  # this late: others wait for the first partition's row until its commit
                job.change(self.store, sql.claim, part=NUMBER, n=job.parts)
                ((number, _),) = self.dialect.execute(self.store, sql.content, job.values(part=NUMBER))
                job.check(part, number)
            if not is_new and self.dialect.execute(self.store, sql.content, job.values(part=part)) != [(n, digest)]:
                job.change(self.store, sql.claim, part=REFUSED - part, n=n)
                return None
            if REFUSED - part in marks:
                job.change(self.store, sql.drop, part=REFUSED - part)
        return put

    def _put(self, alike: Alike, rows: list[Row]) -> int:
        """Put rows that share their options. Returns how many were put."""
        wide = len(rows[0]) + 1
        most = max(1, min(self.size, min(VALUES, self.dialect.most_values) // wide))
        return sum(self._insert(alike, some) for some in chunks(rows, most))

    def _insert(self, alike: Alike, rows: list[Row]) -> int:
        bulk, dialect, n = self.job.bulk, self.dialect, len(rows)
        unique, limit = self.machine.single, self.machine.room
        values = {"now": bulk.now, "rows": self._with_keys(alike, rows), "adding": n}
        for option, seconds in alike.seconds:
            values |= {option: None if seconds == dialect.forever else seconds, f"own_{option}": seconds}
        try:
            put = len(self._run(alike, n)(self.store.ready(), values))
        except Exception as error:
            if not dialect.moves.is_duplicate(str(error)):
                raise
            put = 0  # MariaDB, which has undone the statement
        if put == n or (put and bulk.on_conflict == "skip"):
            return put
        if n > 1 and bulk.on_conflict == "skip":
            return sum(self._insert(alike, [row]) for row in rows)
        if limit and not dialect.execute(self.store, dialect.moves.has_room(limit), values):
            raise Full(bulk.name, limit.value)
        names = self.job.frame.names(alike)
        value = dialect.source.roles[unique.role].name if unique else ""
        if value not in names:
            raise Error(
                f"of {n} rows of the job {self.job.name} of {bulk.name} the database has taken {put}, so nothing of "
                "their partition was put: is there a trigger that ignores rows?"
            )
        if bulk.on_conflict == "skip":
            return 0
        raise Duplicate(bulk.name, rows[0][names.index(value)], advice=": on_conflict='skip' leaves such tasks out")

    def _with_keys(self, alike: Alike, rows: list[Row]) -> list[Row]:
        if alike.has_key or self.machine.settings.id != "time64":
            return rows
        first = max(self._last + 1, time.time_ns())
        self._last = first + len(rows) - 1
        return [(*row, key) for key, row in enumerate(rows, first)]

    def _run(self, alike: Alike, n: int) -> Any:
        given, names = frozenset(option for option, _ in alike.seconds), self.job.frame.names(alike)
        if not alike.has_key and self.machine.settings.id == "time64":
            names = (*names, self.dialect.source.key[0].name)
        run = self._runs.get((given, names, n))
        if run is None:
            row = self.machine.choose(ABSENT, "put", given)
            assert row is not None
            statement = self.dialect.moves.insert(change(self.machine, row, given), names, n)
            run = self._runs[given, names, n] = self.dialect.moves.runner(statement, row.event, width=len(names))
        return run


def _for_digest(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column with microseconds since 1970 for moments, whose repr has the time zone of a session."""
    if not any(issubclass(kind, (datetime, list)) for kind in {*map(type, column)}):
        return column
    return [_for_digest(value) if isinstance(value, list) else _us(value) for value in column]


def _us(value: Any) -> Any:
    return microseconds("at", value) if isinstance(value, datetime) else value


class _Modelless:
    """What `Tasks` needs from a store for messages, in a process without the model."""

    model = type(None)
    hydrate = hydrate_all = instance = tuple

    def __init__(self, name: str) -> None:
        self.name = name


def bulk(executor: Executor, tasks: Tasks[Any], on_conflict: str) -> Bulk:
    """Return how other processes put tasks into this executor's queue."""
    dialect, store, definition = executor.dialect, executor.store, executor.definition
    machine, table = definition.machine, definition.table
    defaults = tasks.defaults()
    fields = {"key": table.key[0], **table.roles}
    # made with each statement: two processes would make the same keys
    made_later = ("key",) * (machine.settings.id == "time64")
    sources = Sources(
        {name: tasks.known(name).to_database(value) for name, value in defaults.items() if not callable(value)},
        {name: pickled(value) for name, value in defaults.items() if callable(value)},
        {
            fields[role].name: pickled(maker)
            for role, maker in machine.fill.items()
            if role in fields and role not in made_later
        },
    )
    return Bulk(
        store.name,
        store.address(),
        _portable(dialect, definition),
        definition.structure,
        definition.catalogue,
        sources,
        on_conflict,
        None if executor.clock is None else executor.clock.now,
    )


def _portable(dialect: Dialect, definition: Definition) -> Dialect:
    """Return a dialect without references to the model and to functions in the application's features."""
    table, machine = definition.table, copy.copy(definition.machine)
    machine.fill, machine.features = {}, tuple(replace(feature, fill={}) for feature in machine.features)
    fields = {field.name: replace(field, to_database=unchanged, from_database=None) for field in table.fields}
    plain = replace(
        table,
        fields=tuple(fields.values()),
        key=tuple(fields[field.name] for field in table.key),
        roles={role: fields[field.name] for role, field in table.roles.items()},
    )
    return type(dialect)(plain, machine, definition.words, definition.tube_stats)
