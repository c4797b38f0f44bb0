"""Write each batch of a stream once: the transaction that writes it also records it as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from xq.core.errors import BadType, BadValue, ConfigurationError, Error, shown
from xq.core.ports import PASSING, UNANSWERED, Row, fits_a_column
from xq.engine.unit import Database

LONGEST = 255  # characters of the name of a sink, and of a stream
UNITS: Final[Mapping[str, int]] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}  # of buckets, in seconds


class Counted(NamedTuple):
    """How often a transition occurred in a bucket of time that begins at this second since 1970."""

    queue: str
    tube: str  # "" for none
    unit: str
    bucket: int
    source: str
    target: str
    event: str
    n: int


class Throughput(NamedTuple):
    """What happened to the tasks of a queue in a span of time that begins at this second since 1970."""

    bucket: int
    put: int
    taken: int
    done: int
    buried: int
    killed: int
    expired: int


class _Table(Protocol):
    create: tuple[str, ...]
    look: str


def _create(database: Database, table: _Table, first: Callable[[], None] = lambda: None) -> None:
    """Create a table, after calling `first`, unless it exists.

    A user without the right to create tables can use one.
    """
    opened, store = database.open(), database.store
    try:
        store.execute(table.look)
    except Exception as error:
        if store.classify(error) in UNANSWERED:
            raise
        first()
        with opened.dialect.creating(store):
            for sql in table.create:
                store.execute(sql)


class Checkpoints:
    """The checkpoints of the sinks in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def install(self) -> None:
        """Create their table unless it exists. Raises BadValue within a transaction, which creating it might commit."""
        if self.database.store.in_transaction():
            raise BadValue("write_batch opens transactions of its own: call it outside of a transaction")
        _create(self.database, self.database.dialect.checkpoints)

    def claim(self, sink: str, stream: str) -> str:
        """Record the stream of a sink unless it has one. Returns the recorded stream."""
        database, sql = self.database, self.database.dialect.checkpoints

        def write() -> str:
            database.execute(sql.begin, {"sink": sink, "stream": stream})
            ((of, _),) = database.execute(sql.last, {"sink": sink})
            return str(of)

        self.install()
        return database.unit(write, transaction=True)

    def write_batch(
        self, sink: str, stream: str, batch: int, work: Callable[[], object], first: Callable[[], object] | None = None
    ) -> bool:
        """Work as `Pipeline.write_batch`; call `first` before `work` if the sink has no batch yet."""
        for name, value in {"sink": sink, "stream": stream}.items():
            if not isinstance(value, str):
                raise BadType(f"a {name} is named by text, not by {shown(value)}")
            if not 0 < len(value) <= LONGEST or not fits_a_column(value):
                raise BadValue(f"a {name} is named by 1 to {LONGEST} characters, not by {shown(value)}")
        if isinstance(batch, bool) or not isinstance(batch, int):
            raise BadType(f"a batch is a whole number, not {shown(batch)}")
        if batch < 0 or not fits_a_column(batch):
            raise BadValue(f"a batch is a number from 0 to 2**63 - 1, not {batch}")
        if not callable(work):
            raise BadType(f"write_batch calls a function, not {shown(work)}")
        self.install()
        database, sql = self.database, self.database.dialect.checkpoints
        values = {"sink": sink, "stream": stream, "batch": batch}

        def write() -> bool:
            database.execute(sql.begin, values)
            ((of, number),) = database.execute(sql.last, values)
            if of != stream and number >= 0:
                raise BadValue(
                    f"the sink {sink!r} has batches of another stream ({of}, this is {stream}), for example one "
                    "with another checkpoint, and would get rows twice: give this sink another name, "
                    "or drop the table that stream() made (on PostgreSQL with CASCADE)"
                )
            if batch <= number:
                return False
            database.execute(sql.next, values)
            if number < 0 and first is not None:
                first()
            work()
            return True

        return database.unit(write, transaction=True)

    def forget(self, sink: str) -> None:
        database = self.database
        self.install()
        database.unit(lambda: database.execute(database.dialect.checkpoints.forget, {"sink": sink}), transaction=True)


class Rollup:
    """A table in the database of a queue that counts transitions, of that queue or of others.

    Its columns are those of `Counted`; all of them except n are the primary key. A view with the suffix _throughput
    shows for each bucket how many tasks were put, taken, done, buried, killed and expired.
    """

    def __init__(self, database: Database, table: str) -> None:
        if not isinstance(table, str):
            raise BadType(f"a table is named by text, not by {shown(table)}")
        if not 0 < len(table) <= LONGEST or not fits_a_column(table):
            raise BadValue(f"a table is named by 1 to {LONGEST} characters, not by {shown(table)}")
        self.table = table
        self.database = database
        self.checkpoints = Checkpoints(database)

    def install(self, queues: str = "") -> None:
        """Create the table unless it exists, and forget the checkpoints of an earlier table of this name.

        Raises BadValue as `add`, and ConfigurationError for an existing table with other columns.
        """
        self.checkpoints.install()
        sql, store = self.database.dialect.rollup(self.table), self.database.store
        _create(self.database, sql, lambda: self.checkpoints.forget(self.table))
        try:
            store.execute(sql.fits)
        except Exception as error:
            if store.classify(error) in UNANSWERED:
                raise
            raise ConfigurationError(
                f"{self.table} is there, and no table of stream()'s: give one that is not there yet"
            ) from error
        if not self.checkpoints.claim(self.table, _of(queues)).endswith(_of(queues)):
            raise BadValue(
                f"{self.table} counts other queues: give these another table and another checkpoint, or begin anew "
                "(drop the table, on PostgreSQL with CASCADE, and the checkpoint)"
            )

    def add(self, stream: str, batch: int, counted: Iterable[Counted], queues: str = "") -> bool:
        """Add the transitions of a batch of a stream, once. Returns whether this call added them.

        `queues` identifies the queues that are counted. Raises BadValue for a batch of another stream or of other
        queues, and for a batch other than the first if the table has none before it.
        """
        rows = list(counted)
        sql = self.database.dialect.rollup(self.table)

        def first() -> None:
            if batch:
                raise BadValue(
                    f"{self.table} has nothing of the stream, which has come to its batch {batch}: what came before "
                    "is lost with an earlier table of this name. Begin with a new checkpoint"
                )

        def write() -> None:
            for *row, n in rows:
                self.database.execute(sql.add, dict(zip(Counted._fields, row, strict=False), count=n))

        return self.checkpoints.write_batch(self.table, stream + _of(queues), batch, write, first)

    # reading

    def newest(self, queue: str) -> dict[str, int]:
        """Return the newest bucket of a queue, by its unit. Raises ConfigurationError if the table cannot be read."""
        sql = self.database.dialect.rollup(self.table).newest
        found = {unit: self._read(sql, {"queue": queue, "unit": unit})[0][0] for unit in UNITS}
        return {unit: int(bucket) for unit, bucket in found.items() if bucket is not None}

    def throughput(
        self, queue: str, unit: str, since: int, until: int, width: int, tubes: Sequence[str] = ()
    ) -> list[Throughput]:
        """Return the throughput of a queue from `since` until `until`, summed to spans of `width` seconds.

        Counts the buckets of this unit, and with `tubes` only those of these tubes. Spans without a transition are left
        out. Raises ConfigurationError if the table cannot be read.
        """
        sql = self.database.dialect.rollup(self.table).throughput(width, len(tubes))
        values = {"queue": queue, "unit": unit, "since": since, "until": until}
        rows = self._read(sql, values | {f"v{i}": tube for i, tube in enumerate(tubes)})
        return sorted(Throughput(*map(int, row)) for row in rows)

    def _read(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        try:
            return self.database.execute(sql, values)
        except Exception as error:
            if isinstance(error, Error) or self.database.store.classify(error) in UNANSWERED | PASSING:
                raise
            why = f"{error}".partition("\n")[0]
            raise ConfigurationError(
                f"the table {self.table} cannot be read ({why}): start xq.spark.stream() with it, or name another"
            ) from error


def _of(queues: str) -> str:
    return f" of {sha256(queues.encode()).hexdigest()[:16]}"
