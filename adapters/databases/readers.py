"""Readers of extracts, which need only the driver of a database: conditions, values, ranges and checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from struct import pack
from typing import Any, ClassVar

from xq.adapters.databases.named import by_position, filled
from xq.adapters.drivers import connect
from xq.core.errors import BadValue, ConfigurationError, shown
from xq.core.machine import ABSENT
from xq.pipeline.scan import TESTS, WHOLE, Checkpoint, Column, Condition, Extract, Part, Stock, parted

ROWS = 10_000  # fetched at once
NEAR, WIDER = 10_000, 8  # ids that the first look back goes, and how much farther each next one does
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Window = tuple[int, int] | None  # the first and the last id; None: all


def _where(tests: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _shortest(value: float) -> float:
    single = pack("f", value)
    return next(found for digits in range(6, 10) if pack("f", found := float(f"{value:.{digits}g}")) == single)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


# Conversions by (stored type, type). A FLOAT of 32 bits becomes the number with its shortest digits.
READ: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("STRING", "TIMESTAMP"): lambda value: _utc(datetime.fromisoformat(value)),
    ("BIGINT", "TIMESTAMP"): lambda value: EPOCH + timedelta(microseconds=value),
    ("TIMESTAMP", "TIMESTAMP"): _utc,
    ("STRING", "DATE"): lambda value: datetime.fromisoformat(value).date(),
    ("BIGINT", "BOOLEAN"): bool,
    ("FLOAT", "DOUBLE"): _shortest,
    ("BINARY", "BINARY"): _bytes,
}


def reading(column: Column) -> Callable[[Any], Any] | None:
    """Return the conversion of stored values that are not NULL; None if they need none."""
    if column.type.startswith("DECIMAL") and column.stored == "STRING":
        return column.decimal
    return READ.get((column.stored, column.type))


# By the type of a column: the types of values that it is compared with, and their name in messages.
COMPARED: Mapping[str, tuple[Any, str]] = {
    "BIGINT": (int, "a whole number of 64 bits"),
    "DOUBLE": ((int, float), "a number"),
    "DECIMAL": (Decimal, "a Decimal"),
    "STRING": (str, "text without NUL"),
    "BOOLEAN": (bool, "True or False"),
    "DATE": (date, "a date"),
    "TIMESTAMP": (date, "a datetime (by UTC unless it says otherwise) or a date"),
}


def _compared(column: Column) -> tuple[Any, str]:
    return COMPARED.get(column.type.partition("(")[0], ((), "nothing"))


def _comparable(column: Column, value: Any) -> Any:
    """Return Spark's value in the form that the database compares with the column.

    Raises ValueError or OverflowError if the comparison would not be exact.
    """
    if isinstance(value, date) and column.type == "TIMESTAMP":
        at = _utc(value if isinstance(value, datetime) else datetime(value.year, value.month, value.day))
        at = at.astimezone(UTC)
        return (at - EPOCH) // timedelta(microseconds=1) if column.stored == "BIGINT" else at.replace(tzinfo=None)
    kind, _ = _compared(column)
    if not isinstance(value, kind) or isinstance(value, bool) != (column.type == "BOOLEAN"):
        raise ValueError("a value of another type")
    if isinstance(value, datetime) or (isinstance(value, str) and "\0" in value):
        raise ValueError("a value of another type, or one that no database takes")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a number of more than 64 bits")
    if isinstance(value, (float, Decimal)) and not isfinite(value):
        raise ValueError("no number")
    return value


@dataclass(frozen=True)
class ExtractReader(Extract):
    """Reads an extract. Each database has a subclass."""

    placeholder_of_driver: ClassVar[str] = "%s"

    # statements

    def stock(self, names: Sequence[str] | None = None) -> Stock:
        columns = tuple(map(self._stock, self.chosen(names)))
        sql, _ = replace(self, where=())._statement(columns)
        return Stock(sql, columns, self._begin)

    @property
    @abstractmethod
    def _begin(self) -> str:
        """Returns the first statement of a stock driver's connection."""

    def _stock(self, column: Column) -> Column:
        """Return a column for a stock driver, whose program filters by the name alone."""
        if column.type == "STRING":
            return replace(column, sql=column.exact or column.sql)
        return replace(column, stored="BOOLEAN") if column.type == "BOOLEAN" else column

    def _statement(
        self, columns: Sequence[Column], part: Part = WHOLE, more: str = "", window: Window = None
    ) -> tuple[str, dict[str, Any]]:
        """Return SQL and its named values."""
        values: dict[str, Any] = {}
        tests, relation = self._tests(part, values), self._computed(columns, part)
        if relation:
            relation = filled(relation, of=self._of(window, tests))
            tests += self._tests(part, values, asked=True)  # conditions of computed columns come last
        listed = ", ".join(f"{column.sql} AS {self._quoted(column.name)}" for column in columns)
        return f"SELECT {listed} FROM {relation or self.relation}{_where(tests)}{more}", values

    def _tests(self, part: Part, values: dict[str, Any], asked: bool = False) -> list[str]:
        """Return the conditions of a part: those of the computed columns (`asked`), or all others."""
        conditions = (*self.where, *part.conditions)
        tests = [self._test(each, values) for each in conditions if self.column(each.column).asked == asked]
        if asked:
            return tests
        if part.after:
            tests.append(self._beside(part.after, ">", values))
        if part.until:
            tests.append(self._beside(part.until, "<=", values))
        return [self.rows, *tests] if self.rows else tests

    # the columns that a window computes

    def _computed(self, columns: Sequence[Column], part: Part) -> str:
        """Return the relation that computes columns of a read; "" if the read needs none."""
        tested = (self.column(condition.column) for condition in (*self.where, *part.conditions))
        return next((column.relation for column in (*columns, *tested) if column.asked), "")

    def _is_windowed(self, columns: Sequence[Column], part: Part) -> bool:
        """Return whether a read computes columns of a part of the rows. Then it must ask for the window before."""
        return bool(self._computed(columns, part) and self._tests(part, {}))

    def _of(self, window: Window, tests: Sequence[str]) -> str:
        """Return the condition of the rows that a window reads: those of the tasks of a part."""
        if not tests:
            return ""
        key, between = self.column("key").sql, [f"id BETWEEN {window[0]} AND {window[1]}"] if window else []
        return _where([*between, f"{key} IN (SELECT {key} FROM {self.relation}{_where(tests)})"])

    def _window(self, connection: Any, columns: Sequence[Column], part: Part) -> Window:
        """Return the ids of the rows that a window must read to compute columns of a part.

        The window begins at the earliest previous transition of the tasks of the part. Keys have no index, so the
        search widens until it has found all of them.
        """
        if not self._is_windowed(columns, part):
            return None
        values: dict[str, Any] = {}
        tests, table = self._tests(part, values), self.relation
        # + 0: PostgreSQL would look for the least id from the first row on.
        ends = f"SELECT MIN(id + 0), MAX(id + 0), (SELECT MIN(id) FROM {table}) FROM {table}"
        ((low, high, first),) = self._asked(connection, f"{ends}{_where(tests)}", values)
        if low is None:
            return (0, -1)
        reach = NEAR
        while (floor := low - reach) > first:
            begins = f"SELECT MIN(id) FROM {table}{self._of((floor, high), tests)} GROUP BY {self.column('key').sql}"
            missing = [*tests, f"source <> '{ABSENT}'", f"id IN ({begins})"]
            if not self._asked(connection, f"SELECT 1 FROM {table}{_where(missing)} LIMIT 1", values):
                break
            reach *= WIDER
        return (floor, high)

    def _beside(self, checkpoint: Checkpoint, way: str, values: dict[str, Any]) -> str:
        """Return the condition that a row is after a checkpoint (`way` is >), or not after it (<=)."""
        columns = [self.column(name).sql for name in self.order]
        names = [self._named(values, part) for part in checkpoint[: len(columns)]]
        if len(columns) == 1:
            return f"{columns[0]} {way} {names[0]}"
        # The first comparison is for the index.
        return f"{columns[0]} {way[0]}= {names[0]} AND ({', '.join(columns)}) {way} ({', '.join(names)})"

    @staticmethod
    def _named(values: dict[str, Any], value: Any) -> str:
        name = f"v{len(values)}"
        values[name] = value
        return f":{name}"

    @staticmethod
    def _quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def ensure(self, condition: Condition) -> None:
        column, (_, test, value) = self.column(condition.column), condition
        if test not in TESTS:
            raise BadValue(f"the tests of where are {', '.join(TESTS)}, not {shown(test)}")
        if test in ("null", "not null"):
            return
        if not column.exact:
            raise BadValue(
                f"the database does not compare {column.name} ({column.type}) exactly as Spark does: leave it out of "
                "where, and filter the DataFrame instead"
            )
        if test == "starts" and column.type != "STRING":
            raise BadValue(f"starts is a test of text, and {column.name} is no text but {column.type}")
        several = test in ("in", "not in")
        if several and not (isinstance(value, (list, tuple)) and 0 < len(value) <= 1000):
            raise BadValue(f"{test} wants a list of 1 to 1000 values, not {shown(value)}")
        for each in value if several else [value]:
            try:
                _comparable(column, each)
            except (ValueError, OverflowError) as error:
                _, wanted = _compared(column)
                raise BadValue(f"{column.name} is compared with {wanted}, not with {shown(each)}") from error

    def _test(self, condition: Condition, values: dict[str, Any]) -> str:
        column, test = self.column(condition.column), condition.test
        if test in ("null", "not null"):
            return f"{column.sql} IS {test.upper()}"
        exact = column.exact or column.sql
        several = condition.value if test in ("in", "not in") else [condition.value]
        given = [self._named(values, _comparable(column, value)) for value in several]
        if test == "starts":
            return f"SUBSTR({exact}, 1, {len(condition.value)}) = {given[0]}"
        right = f"({', '.join(given)})" if test in ("in", "not in") else given[0]
        tested = f"{exact} {test.upper()} {right}"
        if test in ("=", "in") and exact != column.sql:  # also the loose test, which may use an index
            tested = f"{column.sql} {test.upper()} {right} AND {tested}"
        return tested

    # reading

    def _prepared(self, connection: Any, columns: Sequence[Column], part: Part) -> tuple[str, list[Any]]:
        """Return the statement that reads a part, and its values. `connection` is at the moment of the read."""
        sql, named = self._statement(columns, part, window=self._window(connection, columns, part))
        text, order = by_position(sql, self.placeholder_of_driver)
        return text, [named[name] for name in order]

    def value(self, column: Column, stored: Any) -> Any:
        read = reading(column)
        try:
            return stored if read is None or stored is None else read(stored)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise self.misfit(column, stored) from error

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with closing(connect(self.address)) as connection:
            yield connection

    def _asked(self, connection: Any, sql: str, values: Mapping[str, Any]) -> list[Any]:
        """Return all rows of a small result."""
        text, order = by_position(sql, self.placeholder_of_driver)
        cursor = connection.cursor()
        cursor.execute(text, *([[values[name] for name in order]] if order else []))
        return list(cursor.fetchall())

    # apart

    def bounds(self) -> tuple[int, int] | None:
        with self._connected() as connection:
            ((first, last),) = self._asked(connection, f"SELECT {self._least_and_most} FROM {self.relation}", {})
        return None if first is None else (first, last)

    @contextmanager
    def shared_snapshot(self) -> Iterator[str]:
        yield ""

    def ranges(self, n: int) -> list[Part]:
        if n <= 1 or not self.ranged or not (self.order or self.snapshot):
            return [WHOLE]
        bounds, common = self._bounds_now()
        if bounds is None:
            return [WHOLE]
        return [
            Part((Condition(self.ranged, ">=", low), Condition(self.ranged, "<=", high), *common))
            for low, high in parted(bounds, n)
        ]

    @property
    def _least_and_most(self) -> str:
        column = self.column(self.ranged).sql
        return f"MIN({column}), MAX({column})"

    def _bounds_now(self) -> tuple[tuple[int, int] | None, tuple[Condition, ...]]:
        """Return the bounds, and conditions that exclude rows written later."""
        return self.bounds(), ()

    # checkpoints

    def checkpoint(self, after: Checkpoint = (), limit: int | None = None) -> Checkpoint:
        if not self.order:
            raise BadValue(f"the {self.what} of {self.name} change: only the history has checkpoints")
        with self._connected() as connection:
            whole = replace(self, where=())
            found = () if whole._is_of_another(connection, after) else whole._below_watermark(connection, after, limit)
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
        """Return the checkpoint of the row `limit` rows after a checkpoint, or `until` if there are fewer."""
        return self._row(connection, Part((), after, until), "ASC", limit - 1) or until

    def _row(self, connection: Any, part: Part, way: str, place: int = 0) -> Checkpoint:
        """Return the checkpoint of the row at index `place` in the order `way` (ASC, DESC); () if there is none."""
        columns = [self.column(name) for name in self.checkpoint_columns]
        by = ", ".join(f"{self.column(name).sql} {way}" for name in self.order)
        more = f" ORDER BY {by} LIMIT 1 OFFSET {place}"
        rows = self._asked(connection, *self._statement(columns, part, more))
        return next((tuple(row) for row in rows), ())
