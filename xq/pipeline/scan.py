"""What a queue holds, as other programs read it: columns with their types, without the model and the ORM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar, get_args

from xq.core.errors import BadValue, shown
from xq.core.ports import Address

What = Literal["tasks", "history", "stats", "live", "buried"]
WHATS: Final[tuple[What, ...]] = get_args(What)
Test = Literal["=", "<", "<=", ">", ">=", "in", "not in", "null", "not null", "starts"]
TESTS: Final[tuple[Test, ...]] = get_args(Test)

R = TypeVar("R")

# Up to where a history is read: the values of `marked`, of the last row that is; where rows are read, those of `order`
# are enough. () is before the first.
Mark = tuple[int, ...]


class Condition(NamedTuple):
    """A test of a column: the value is a list for "in" and "not in", and None for "null" and "not null".

    What is compared with a TIMESTAMP is a datetime, by UTC unless it says otherwise, or a date, which is its beginning.
    """

    column: str
    test: Test
    value: Any = None


class Part(NamedTuple):
    """Which rows of an extract are read: those that meet all conditions, after one mark and up to another."""

    conditions: tuple[Condition, ...] = ()
    after: Mark = ()
    until: Mark = ()


WHOLE: Final = Part()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an extract.

    Types are Spark's: BIGINT, STRING, DOUBLE, BOOLEAN, TIMESTAMP, DATE, DECIMAL(p,s), BINARY. What is a TIMESTAMP and
    stored as BIGINT is microseconds since 1970; as STRING, or without a zone, it is UTC.
    """

    name: str
    type: str
    sql: str  # within the relation
    stored: str  # the type in which a driver returns it
    exact: str = ""  # SQL that the database compares as Spark does; "" where it does not
    relation: str = ""  # the one that has it, where the others do not need that

    @property
    def asked(self) -> bool:
        """Whether it is read only where it is named, for what it costs."""
        return bool(self.relation)

    @property
    def declared(self) -> str:
        """As a schema of Spark's has it."""
        return f"{quoted(self.name)} {self.type}"

    def decimal(self, value: Any) -> Decimal:
        """A value of a DECIMAL, with as many places as that has."""
        places = int(self.type.rstrip(")").partition(",")[2])
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-places))


class Stock(NamedTuple):
    """All rows for a stock driver of a database, which filters them as Spark does."""

    sql: str
    columns: tuple[Column, ...]  # `stored` as such a driver has them, whatever the time zone of its program
    begin: str  # what a connection begins with


@dataclass(frozen=True)
class Extract(ABC):
    """A relation of one queue: its tasks, its history or its statistics. May be pickled, and read wherever that is.

    A program that has it needs the driver of the database and nothing of the application. Reading raises the driver's
    errors, and BadValue for a stored value that is not of its column's type. One read is one statement, and so tells of
    one moment; several are told apart, and of one moment, by what `ranges` returns.
    """

    what: What
    name: str  # what the application calls the model
    address: Address
    relation: str
    rows: str  # which rows of it are meant: SQL, or ""
    columns: tuple[Column, ...]
    order: tuple[str, ...] = ()  # the columns by which rows are settled, whoever else writes; () where none are
    witness: tuple[str, ...] = ()  # what tells a row from the one in its place in a history that was begun anew
    ranged: str = ""  # the column of which ranges are read apart
    where: tuple[Condition, ...] = ()  # which of those rows
    snapshot: str = ""  # of PostgreSQL, exported by a transaction that is still open: what is read is as that saw it
    check: Callable[[Extract], None] | None = None  # called with this when rows were read to the end: it may raise

    def column(self, name: str) -> Column:
        """Raises BadValue."""
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise BadValue(f"there is no column {shown(name)} in the {self.what} of {self.name}: there are {known}")

    def chosen(self, names: Sequence[str] | None = None) -> tuple[Column, ...]:
        """The columns of these names; None: all but those that are read only where they are named. Raises BadValue."""
        if names is None:
            return tuple(column for column in self.columns if not column.asked)
        return tuple(map(self.column, names))

    def only(self, conditions: Iterable[Condition]) -> Self:
        """Those of the rows that meet these as well. Raises BadValue for one that cannot be tested exactly."""
        more = tuple(conditions)
        for condition in more:
            self.ensure(condition)
        return replace(self, where=(*self.where, *more))

    @property
    def marked(self) -> tuple[str, ...]:
        """The columns whose values are a mark."""
        return (*self.order, *self.witness)

    @abstractmethod
    def stock(self, names: Sequence[str] | None = None) -> Stock:
        """How a program reads all rows, whatever `where` says, that knows nothing of xq and has Java's driver."""

    @abstractmethod
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest value of the column `ranged`, as they are now; None where there is no row."""

    @abstractmethod
    def held(self) -> AbstractContextManager[str]:
        """A snapshot that is open within the block; "" where a database shows several connections no common moment."""

    @abstractmethod
    def ensure(self, condition: Condition) -> None:
        """Raises BadValue for a test that is none, and for what the database does not test exactly as Spark does."""

    def read(self, names: Sequence[str] | None = None, part: Part = WHOLE) -> Iterator[tuple[Any, ...]]:
        """The rows of a part, in no order, and in bounded memory.

        Values are int, str, float, bool, datetime (UTC), date, Decimal, bytes and None.
        """
        columns = self.chosen(names)
        for rows in self.stored(names, part):
            for row in rows:
                yield tuple(map(self.value, columns, row))

    def stored(self, names: Sequence[str] | None = None, part: Part = WHOLE) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The same as the driver returns them, some thousand at a time."""
        return self._checked(self._stored(self.chosen(names), part))

    @abstractmethod
    def _stored(self, columns: Sequence[Column], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]: ...

    def _checked(self, read: Iterator[R]) -> Iterator[R]:
        yield from read
        if self.check:
            self.check(self)

    @abstractmethod
    def value(self, column: Column, stored: Any) -> Any:
        """The value of what the driver returned. Raises BadValue where it is not of the column's type."""

    def misfit(self, column: Column, stored: Any) -> BadValue:
        """What is raised for a stored value that is not of the column's type."""
        return BadValue(
            f"{column.name} of {self.name} holds {shown(stored)}, which is no {column.type}: "
            "mend it with plain SQL, or read other columns"
        )

    def batches(self, names: Sequence[str] | None = None, part: Part = WHOLE) -> Iterator[Any] | None:
        """The same as `stored`, as Arrow's RecordBatches, in the types in which columns are stored or near ones.

        None where no driver of this machine makes them, or they would be slower.
        """
        found = self._batches(self.chosen(names), part)
        return None if found is None else self._checked(found)

    def _batches(self, columns: Sequence[Column], part: Part) -> Iterator[Any] | None:
        return None

    @abstractmethod
    def ranges(self, n: int) -> list[Part]:
        """Up to `n` parts, each row at most in one, as they are at this moment, whoever writes.

        One part where the database can show several readers no common moment.
        """

    @abstractmethod
    def mark(self, after: Mark = (), limit: int | None = None) -> Mark:
        """How far the history is settled, at most `limit` rows after a mark: no row comes up to there any more.

        `after` itself where nothing is. Raises BadValue for an extract that is not settled row by row, and
        ConfigurationError where the history has begun anew since `after`.
        """


def quoted(name: str) -> str:
    """The name of a column as Spark's schemas and expressions have it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def parted(bounds: tuple[int, int], n: int) -> list[tuple[int, int]]:
    """Up to `n` ranges of whole numbers, of about the same length, that make up one; both ends are in it."""
    first, last = bounds
    n = max(1, min(n, last - first + 1))
    ends = [first + (last - first + 1) * i // n for i in range(n + 1)]
    return [(low, high - 1) for low, high in pairwise(ends)]
