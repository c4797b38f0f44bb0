"""Tables that count how often queues made each transition. Streams fill them, each batch once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.core.kinds import OUTCOME_UNKNOWN, fits_a_column
from xq.engine.executor import Executor
from xq.pipeline.sql import tables

LONGEST = 255  # characters in a table's name
UNITS: Final[Mapping[str, int]] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}  # of buckets, in seconds


class Counted(NamedTuple):
    """How often a transition occurred in a time bucket that begins at this second since 1970."""

    queue: str
    tube: str  # "" for none
    unit: str
    bucket: int
    source: str
    target: str
    event: str
    n: int


class Rollup:
    """A table in a queue's database that counts transitions, the queue's own or others'.

    Its columns are `Counted`'s; all except n are the primary key. A view with the suffix _throughput
    shows for each bucket how many tasks were put, taken, done, buried, killed and expired.
    """

    def __init__(self, executor: Executor, table: str) -> None:
        if not isinstance(table, str):
            raise BadType(f"a table is named by text, not by {shown(table)}")
        if not 0 < len(table) <= LONGEST or not fits_a_column(table):
            raise BadValue(f"a table is named by 1 to {LONGEST} characters, not by {shown(table)}")
        self.table = table
        self.executor = executor

    def install(self, queues: str = "") -> None:
        """Create the table unless it exists, and forget the checkpoint that an earlier table with this name left.

        Raises BadValue as `add` and within a transaction, and ConfigurationError for an existing table with other
        columns.
        """
        executor = self.executor
        if executor.store.in_transaction():
            raise BadValue("stream opens transactions of its own: call it outside of a transaction")
        checkpoints, rollup = tables.checkpoints(executor.dialect), tables.rollup(executor.dialect, self.table)
        self._create(checkpoints.look, checkpoints.create)
        if self._failure(rollup.look):
            executor.run(checkpoints.forget, {"sink": self.table})
            self._create(rollup.look, rollup.create)
        if error := self._failure(rollup.fits):
            raise ConfigurationError(
                f"{self.table} is there, and no table of stream()'s: give one that is not there yet"
            ) from error
        of, _ = executor.transaction(lambda: self._last(_of(queues)), locks=False)
        if not of.endswith(_of(queues)):
            raise BadValue(
                f"{self.table} counts other queues: give these another table and another checkpoint, or begin anew "
                "(drop the table, on PostgreSQL with CASCADE, and the checkpoint)"
            )

    def _failure(self, sql: str) -> Exception | None:
        """Return the error with which the database refuses a query."""
        store = self.executor.store
        self.executor.open()
        try:
            store.execute(sql)
        except Exception as error:
            if store.classify(error) in OUTCOME_UNKNOWN:
                raise
            return error
        return None

    def _create(self, look: str, create: Iterable[str]) -> None:
        """Create a table unless it exists: a user without the right to create tables can use one."""
        if self._failure(look):
            with self.executor.dialect.installer.creating(self.executor.store):
                for sql in create:
                    self.executor.store.execute(sql)

    def _last(self, stream: str) -> tuple[str, int]:
        """Return this table's stream, `stream` if it has none, and its last batch (-1: none). Lock both."""
        executor, sql = self.executor, tables.checkpoints(self.executor.dialect)
        executor.run(sql.begin, {"sink": self.table, "stream": stream})
        ((of, number),) = executor.run(sql.last, {"sink": self.table})
        return str(of), int(number)

    def add(self, stream: str, batch: int, counted: Iterable[Counted], queues: str = "") -> bool:
        """Add the transitions in a stream's batch, once. Returns whether this call added them.

        The transaction that adds them records the batch. `queues` identifies the counted queues. Raises BadValue for a
        batch from another stream or from other queues, and for a batch other than the first if the table has none yet.
        """
        rows, stream = list(counted), stream + _of(queues)
        executor, dialect = self.executor, self.executor.dialect
        one, following = tables.rollup(dialect, self.table).add, tables.checkpoints(dialect).next

        def write() -> bool:
            of, number = self._last(stream)
            if of != stream and number >= 0:
                raise BadValue(
                    f"{self.table} has batches of another stream ({of}, this is {stream}), for example one with "
                    "another checkpoint, and would count rows twice: give another table, or drop this one (on "
                    "PostgreSQL with CASCADE)"
                )
            if batch <= number:
                return False
            if number < 0 < batch:
                raise BadValue(
                    f"{self.table} has nothing of the stream, which has come to its batch {batch}: what came before "
                    "is lost with an earlier table of this name. Begin with a new checkpoint"
                )
            executor.run(following, {"sink": self.table, "stream": stream, "batch": batch})
            for *row, n in rows:
                executor.run(one, dict(zip(Counted._fields, row, strict=False), count=n))
            return True

        return executor.transaction(write, locks=False)


def _of(queues: str) -> str:
    return f" of {sha256(queues.encode()).hexdigest()[:16]}"
