"""Read extracts with only a database's driver: statements, values, ranges and checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from struct import pack
from typing import Any, ClassVar

from xq.core.clock import EPOCH
from xq.core.errors import BadValue, ConfigurationError
from xq.core.machine import ABSENT
from xq.drivers import connect
from xq.pipeline.scan import SLICE, WHOLE, Checkpoint, Extract, Extracted, Part, parted
from xq.sql.named import beside, filled, quoted

ROWS = 10_000  # fetched at once
PLACE = ("host", "hostaddr", "port", "unix_socket")  # parameters of which a replica has none but its own
FARTHEST = 2**63 - 1  # key
NEAR, WIDER = 10_000, 8  # ids that the first look back goes, and how much farther each next one does


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _shortest(value: float) -> float:
    single = pack("f", value)
    return next(found for digits in range(6, 10) if pack("f", found := float(f"{value:.{digits}g}")) == single)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


# Conversions by (stored type, type). A 32-bit FLOAT becomes the number with its shortest digits.
READ: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("STRING", "TIMESTAMP"): lambda value: _utc(datetime.fromisoformat(value)),
    ("BIGINT", "TIMESTAMP"): lambda value: EPOCH + timedelta(microseconds=value),
    ("TIMESTAMP", "TIMESTAMP"): _utc,
    ("STRING", "DATE"): lambda value: datetime.fromisoformat(value).date(),
    ("BIGINT", "BOOLEAN"): bool,
    ("FLOAT", "DOUBLE"): _shortest,
    ("BINARY", "BINARY"): _bytes,
    ("ARRAY<BIGINT>", "ARRAY<TIMESTAMP>"): lambda values: [
        None if value is None else EPOCH + timedelta(microseconds=value) for value in values
    ],
}


def _all_of(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions))


def reading(column: Extracted) -> Callable[[Any], Any] | None:
    """Return the conversion for stored values that are not NULL; None if they need none."""
    if column.type.startswith("DECIMAL") and column.stored == "STRING":
        return column.decimal
    return READ.get((column.stored, column.type))


@dataclass(frozen=True)
class ExtractReader(Extract):
    """Reads an extract. Each database has a subclass."""

    quotes: ClassVar[str] = '"'
    identity: ClassVar[str] = ""  # SQL: whether the server is a replica, and what identifies the server and database
    shows_more: ClassVar[bool] = False  # whether a read shows rows beyond its `_bounds_now`
    is_of_replica: bool = False

    # statements

    def stock(self, names: Sequence[str] | None = None, among: Part = WHOLE) -> tuple[str, tuple[Extracted, ...]]:
        columns = tuple(map(self._stock, self.chosen(names)))
        return self._statement(columns, among), columns

    def _stock(self, column: Extracted) -> Extracted:
        return replace(column, stored="BOOLEAN") if column.type == "BOOLEAN" else column

    def _statement(self, columns: Sequence[Extracted], part: Part = WHOLE, more: str = "", of: str = "") -> str:
        """Return the SQL that reads a part. `of` is the condition for the rows that the dur_us window reads."""
        relation = filled(self.timed, of=of) if self._is_timed(columns) else self.relation
        listed = ", ".join(f"{column.sql} AS {quoted(column.name, self.quotes)}" for column in columns)
        return f"SELECT {listed} FROM {relation}{self._where(part)}{more}"

    def _where(self, part: Part) -> str:
        order = [self.column(name).sql for name in self.order]
        tests = [self.rows, part.sql, beside(order, part.after, ">"), beside(order, part.until, "<=")]
        if part.span:
            tests.append("{} BETWEEN {} AND {}".format(self.column(self.ranged).sql, *part.span))
        found = _all_of(*tests)
        return f" WHERE {found}" if found else ""

    # the time in the state before, which a window computes

    def _is_timed(self, columns: Sequence[Extracted]) -> bool:
        return bool(self.timed) and any(column.asked for column in columns)

    def _window(self, connection: Any, columns: Sequence[Extracted], part: Part) -> str:
        """Return the condition for the rows that the dur_us window must read for a part: its tasks' rows.

        They begin at the earliest previous transition among these tasks. Keys have no index, so the search widens until
        it has found all.
        """
        where, table = self._where(part), self.relation
        if not where or not self._is_timed(columns):
            return ""
        # + 0: PostgreSQL would look for the least id from the first row on.
        ends = f"SELECT MIN(id + 0), MAX(id + 0), (SELECT MIN(id) FROM {table}) FROM {table}"
        ((low, high, first),) = self._asked(connection, f"{ends}{where}")
        if low is None:
            return " WHERE 1 = 0"
        key, reach = self.column("key").sql, NEAR
        its = f"{key} IN (SELECT {key} FROM {table}{where})"
        while True:
            floor = low - reach
            window = f" WHERE id BETWEEN {floor} AND {high} AND {its}"
            begins = f"SELECT MIN(id) FROM {table}{window} GROUP BY {key}"
            missing = f"{where} AND source <> '{ABSENT}' AND id IN ({begins})"
            if floor <= first or not self._asked(connection, f"SELECT 1 FROM {table}{missing} LIMIT 1"):
                return window
            reach *= WIDER

    # reading

    def _select(self, connection: Any, columns: Sequence[Extracted], part: Part) -> str:
        """Return the statement that reads a part. `connection` already shows the moment to read."""
        return self._statement(columns, part, of=self._window(connection, columns, part))

    def value(self, column: Extracted, stored: Any) -> Any:
        read = reading(column)
        try:
            return stored if read is None or stored is None else read(stored)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise self.misfit(column, stored) from error

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with closing(connect(self.address)) as connection:
            yield connection

    @staticmethod
    def _asked(connection: Any, sql: str) -> list[Any]:
        """Return all rows from a small result."""
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall())

    def on_replica(self, url: str) -> Extract:
        given = self._parameters(url)
        own = {name: value for name, value in self.address.parameters.items() if name not in PLACE}
        password = given.pop("password", self.address.password)
        there = replace(
            self, address=replace(self.address, parameters=own | given, password=password), is_of_replica=True
        )
        found = []
        for each in (self, there):
            with each._connected() as connection:
                found += self._asked(connection, self.identity)
        (_, *its), (is_replica, *other) = found
        if not is_replica or not self._is_of(its, other):
            raise ConfigurationError(f"read_from names no replica of the database of {self.name}: give the URL of one")
        return there

    def _parameters(self, url: str) -> dict[str, Any]:
        """Return the driver's parameters in a URL. Raises BadValue for a database in a file."""
        raise BadValue(f"read_from is a replica's URL: {self.name} is in a file, which has none")

    def _is_of(self, database: Sequence[Any], other: Sequence[Any]) -> bool:
        """Return whether a server may be another one's replica, by what their `identity` tells."""
        return list(database) == list(other)

    # ranges

    def bounds(self) -> tuple[int, int] | None:
        column = self.column(self.ranged).sql
        with self._connected() as connection:
            ((first, last),) = self._asked(connection, f"SELECT MIN({column}), MAX({column}) FROM {self.relation}")
        return None if first is None else (first, last)

    def ranges(self, n: int, among: Part = WHOLE, longest: int = 0) -> list[Part]:
        if (n <= 1 and not longest) or not self.ranged:
            return [among]
        bounds, common = self._bounds_now() if self.order else (self.bounds(), "")
        known = among._replace(sql=_all_of(among.sql, common))
        if bounds is None:
            return [among]
        n = max(n, -((bounds[0] - bounds[1] - 1) // longest)) if longest else n
        spans = parted(bounds, n)
        if not self.order:  # Spark plans a DataFrame once, and later tasks must be in one of its ranges, too
            spans[0] = (-FARTHEST, spans[0][1])
            spans[-1] = (spans[-1][0], max(FARTHEST, bounds[1]))
        return [known._replace(span=span) for span in spans]

    def _bounds_now(self) -> tuple[tuple[int, int] | None, str]:
        """Return a history's bounds, and a condition that excludes rows written later."""
        return self.bounds(), ""

    def _slices(self, columns: Sequence[Extracted], part: Part) -> Iterator[Part]:
        # A long transaction would keep the database from cleaning up what changes in the queue meanwhile. A history's
        # rows that are there, by their bounds and the condition, never change. So slices show the moment at which
        # these were known, whenever they are read; only pruning deletes rows, the oldest first. A window over rows
        # looks back from each slice, so there one statement is cheaper, and a stream's part is short anyway.
        if not self.order or part.until or self._is_timed(columns):
            yield part
            return
        span = part.span
        if span is None:
            span, common = self._bounds_now()
            known = part._replace(sql=_all_of(part.sql, common))
        else:
            known = part
        if span:
            for each in parted(span, -((span[0] - span[1] - 1) // SLICE)):
                yield known._replace(span=each)
        if part.span is None and self.shows_more:
            yield part._replace(sql=_all_of(part.sql, f"id > {span[1]}" if span else ""))

    # checkpoints

    def checkpoint(self, after: Checkpoint = (), limit: int | None = None) -> Checkpoint:
        if not self.order:
            raise BadValue(f"the {self.what} of {self.name} change: only the history has checkpoints")
        with self._connected() as connection:
            found = () if self._is_of_another(connection, after) else self._below_watermark(connection, after, limit)
        if after and found < after:
            raise ConfigurationError(
                f"the history of {self.name} is not the one that was read up to here: it was begun anew. "
                "Begin with a new checkpoint"
            )
        return found

    def _is_of_another(self, connection: Any, checkpoint: Checkpoint) -> bool:
        """Return whether a checkpoint belongs to another history: its row has changed, or older ids are newer than it.

        Pruning deletes the oldest rows first, so only a few rows, if any, are left before a deleted one.
        """
        if not checkpoint or not self.witness:
            return False
        last = self._row(connection, Part(until=checkpoint), "DESC")
        return bool(last) and last != checkpoint and (last[0] == checkpoint[0] or last[-1] > checkpoint[-1])

    @abstractmethod
    def _below_watermark(self, connection: Any, after: Checkpoint, limit: int | None) -> Checkpoint:
        """Return the checkpoint as `checkpoint` does; less than `after` if the history ends before that."""

    def _cut(self, connection: Any, after: Checkpoint, limit: int, until: Checkpoint) -> Checkpoint:
        """Return the checkpoint `limit` rows after another, or `until` if there are fewer."""
        return self._row(connection, Part("", after, until), "ASC", limit - 1) or until

    def _row(self, connection: Any, part: Part, way: str, place: int = 0) -> Checkpoint:
        """Return the checkpoint for the row at index `place` in the order `way` (ASC, DESC); () if there is none."""
        columns = [self.column(name) for name in self.checkpoint_columns]
        by = ", ".join(f"{self.column(name).sql} {way}" for name in self.order)
        more = f" ORDER BY {by} LIMIT 1 OFFSET {place}"
        rows = self._asked(connection, self._statement(columns, part, more))
        return next((tuple(row) for row in rows), ())
