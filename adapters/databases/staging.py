"""SQL of bulk puts: a staging table holds the tasks of a job until one statement puts them all.

A batch is the rows of one attempt of one partition of a job. Its number is an id of the table of jobs. A row with a
mark in that table shows that a job was put. The rows of a batch are one range of the staging table, in their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from xq.adapters.databases.named import filled
from xq.core.compile import Change, PutShape, Statement
from xq.core.machine import Guard
from xq.core.ports import Field

if TYPE_CHECKING:
    from xq.adapters.databases.dialect import Dialect
    from xq.adapters.databases.objects import Object

JOB = "job"  # the suffix of the table of jobs
PLACES = 2**32  # rows that a batch may have
MINE = ":first <= s.xq_n AND s.xq_n < :last"  # the rows of one batch


class Staging:
    """The SQL of one queue's bulk puts.

    Named values: `job`, `batch`, `now`, `age` (seconds), `first` (inclusive) and `last` (exclusive) places in the
    staging table, `base` (the number before the first generated key).
    """

    longest = 200  # characters of the name of a job

    def __init__(self, of: Dialect) -> None:
        self.of = of
        self.options = tuple(sorted(of.machine.options("put")))
        fields = [(field.column, field.type) for field in of.source.fields]
        shape = hashlib.sha256(repr((fields, self.options)).encode()).hexdigest()[:8]
        self.suffix = f"stage_{shape}"  # a model with other fields has another staging table
        self.stage, self.jobs = of.side(self.suffix), of.side(JOB)

    @property
    def tables(self) -> list[Object]:
        of, name = self.of, self.of.varying(self.longest)
        jobs = f"batch {of.serial}, job {name} NOT NULL, mark {name} UNIQUE, since DOUBLE PRECISION NOT NULL"
        return [
            of.side_table(JOB, f"({jobs}){of.engine}"),
            of.side_table(self.suffix, *of.stage_body("xq_n", list(map(self.option, self.options)))),
        ]

    @staticmethod
    def option(name: str) -> str:
        return f"xq_{name}"

    # batches

    @staticmethod
    def first(batch: int) -> int:
        """Return the place of the first row of a batch."""
        return batch * PLACES

    @property
    def begin(self) -> str:
        return f"INSERT INTO {self.jobs} (job, since) VALUES (:job, {self.of.now}) RETURNING batch"

    @property
    def goes_on(self) -> str:
        """Returns a query that finds a row if a batch has not ended, and blocks its end until the transaction ends."""
        mine = "batch = :batch AND job = :job AND mark IS NULL"  # a number may be reused
        return f"SELECT 1 FROM {self.jobs} WHERE {mine}{self.of.lock}"

    def load(self, columns: Iterable[str]) -> str:
        """Return the bulk load of the staging table: the places, and values of these columns."""
        return self.of.loading(self.stage, [self.of.quote(column) for column in ("xq_n", *columns)])

    @property
    def mark(self) -> str:
        """Returns SQL that marks a job as put. It writes no row if the job was marked before."""
        once = self.of.on_conflict("mark")
        return f"INSERT INTO {self.jobs} (job, mark, since) VALUES (:job, :job, {self.of.now}){once}"

    @property
    def unmark(self) -> str:
        return f"DELETE FROM {self.jobs} WHERE mark = :job"

    @property
    def over(self) -> str:
        """Returns a query of the batches of a job, and of old batches that other jobs have left."""
        return f"SELECT batch FROM {self.jobs} WHERE mark IS NULL AND (job = :job OR since < {self.of.now} - :age)"

    @property
    def end(self) -> tuple[str, str]:
        """Returns SQL that ends a batch, so that it accepts no more rows, and SQL that deletes its rows."""
        rows = MINE.replace("s.", "")
        return f"DELETE FROM {self.jobs} WHERE batch = :batch", f"DELETE FROM {self.stage} WHERE {rows}"

    @property
    def staged(self) -> str:
        return f"SELECT COUNT(*) FROM {self.stage} AS s WHERE {MINE}"

    # putting

    def _rows(self, shape: PutShape, alone: Sequence[str]) -> str:
        """Return the staged rows of a shape; with `alone`, numbered within the rows that are equal in these columns."""
        given = {self.option(option): option in shape.given for option in self.options}
        keys = dict.fromkeys(self.of.keys, shape.has_key)
        brings = "".join(f" AND s.{name} IS {'NOT ' * there}NULL" for name, there in (given | keys).items())
        rows = f"{self.stage} AS s WHERE {MINE}{brings}"
        if not alone:
            return rows
        turn = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(alone)} ORDER BY s.xq_n) AS xq_turn"
        return f"(SELECT s.*, {turn} FROM {rows}) AS s WHERE 1 = 1"

    def _free(self, change: Change, guard: Guard | None) -> tuple[list[str], str]:
        """Return the columns in which a row must be unique, and the condition that no task has its unique value."""
        of = self.of
        if guard is None:
            return [], ""
        value = f"s.{of.roles[guard.role]}"
        holder = filled(of.has_unique_value(guard, "t."), unique=value)
        free = f"NOT EXISTS (SELECT 1 FROM {of.table_in_schema} AS t WHERE {holder})"
        if change.target in guard.states:
            free = f"xq_turn = 1 AND {free}"
        return [of.exact(value, of.kind(guard.role))], f"({value} IS NULL OR ({free}))"

    def put(self, change: Change, columns: Sequence[Field], shape: PutShape, guard: Guard | None) -> Statement:
        """Return the statement that puts the rows of a shape of one batch, except duplicates of a unique value."""
        of = self.of
        alone, free = self._free(change, guard)
        keys = [field.column for field in of.source.key]
        written = {
            of.quote(f.column): f"s.{of.quote(f.column)}" for f in columns if shape.has_key or f.column not in keys
        }
        if not shape.has_key and of.machine.settings.id == "time64":
            written[of.keys[0]] = f"{of.whole(':base')} + ROW_NUMBER() OVER (ORDER BY s.xq_n)"
        values = {f"own_{name}": f"s.{self.option(name)}" for name in self.options}
        values |= {name: f"NULLIF(s.{self.option(name)}, {of.never})" for name in self.options}
        written |= {column: filled(value, **values) for column, value in of.of_roles(change).items()}
        written[of.roles["status"]] = of.literal(of.words[change.target])
        rows = " AND ".join(filter(None, [self._rows(shape, alone), of.sets_context_once, free]))
        return Statement(
            f"INSERT INTO {of.object(of.source.name)} ({', '.join(written)}) "
            f"SELECT {', '.join(written.values())} FROM {rows} ORDER BY s.xq_n"
        )

    def in_the_way(self, change: Change, shape: PutShape, guard: Guard) -> str:
        """Return a query of one value of the role unique that another task, or another row, has."""
        alone, free = self._free(change, guard)
        value = f"s.{self.of.roles[guard.role]}"
        return f"SELECT {value} FROM {self._rows(shape, alone)} AND NOT {free} LIMIT 1"

    def overfull(self, guard: Guard) -> str:
        """Return a query that finds a row if the queue has more tasks than its limit."""
        return f"SELECT 1{self.of.absent_rows} WHERE {self.of.counted_in(guard)} > {guard.value}"
