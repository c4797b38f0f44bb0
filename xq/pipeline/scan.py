"""A queue's contents for other programs: columns with their types, without the model and the ORM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, NamedTuple, get_args

from xq.core.connections import Address
from xq.core.errors import BadValue, shown
from xq.pipeline.frames import is_beyond

What = Literal["tasks", "history", "stats"]
WHATS: Final[tuple[What, ...]] = get_args(What)

# How far a history has been read: the `checkpoint_columns` values in the last read row. A position between rows needs
# only the `order` values. () is before the first row.
Checkpoint = tuple[int, ...]


class Part(NamedTuple):
    """Which rows to read from an extract: by a condition, after one checkpoint and up to another."""

    sql: str = ""  # made by the reader, from numbers and names of states
    after: Checkpoint = ()
    until: Checkpoint = ()
    span: tuple[int, int] | None = None  # the least and the greatest value in the column `ranged`


WHOLE: Final = Part()
STATE: Final = "xq_state"  # the column of a task's state, as a word
SLICE: Final = 200_000  # ids of a history that one transaction reads


@dataclass(frozen=True, slots=True)
class Extracted:
    """An extract's column.

    The types are Spark's: BIGINT, STRING, DOUBLE, BOOLEAN, TIMESTAMP, DATE, DECIMAL(p,s), BINARY, ARRAY<one of these>.
    A TIMESTAMP that is stored as BIGINT is microseconds since 1970; one stored as STRING, or without a time zone, is
    UTC.
    """

    name: str
    type: str
    sql: str  # an expression within the relation
    stored: str  # the type in which a driver returns it
    asked: bool = False  # whether it is read only if it is named
    words: tuple[str, ...] = ()  # the only texts that it has, which databases compare as Spark does

    @property
    def declared(self) -> str:
        """The column in a Spark schema. Raises BadValue for an array that Spark cannot hold."""
        if is_beyond(self.type):
            raise BadValue(
                f"{self.name!r} is {self.type}, and no array of whole numbers, floats, booleans, text, UUIDs, dates or "
                "timestamps: name the other columns (columns=)"
            )
        return f"{quoted(self.name)} {self.type}"

    def decimal(self, value: Any) -> Decimal:
        """Return a DECIMAL value with as many decimal places as the column."""
        places = int(self.type.rstrip(")").partition(",")[2])
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-places))


@dataclass(frozen=True)
class Extract(ABC):
    """One queue's tasks, history or statistics as a relation. May be pickled and read in another process.

    The reading program needs the database's driver and nothing from the application. Reading raises the driver's
    errors, and BadValue for a stored value that does not fit its column's type. One read shows one moment: it is one
    statement, or of a history several, of rows that do not change.
    """

    what: What
    name: str  # the model's, in the application
    address: Address
    relation: str
    rows: str  # SQL that selects its rows, or ""
    columns: tuple[Extracted, ...]
    order: tuple[str, ...] = ()  # the columns in which a history's watermark advances; () for other extracts
    witness: tuple[str, ...] = ()  # the columns that detect a history that was begun again
    ranged: str = ""  # the column whose ranges are read separately
    timed: str = ""  # the relation with dur_us, by a window over the rows `:of` a part
    begin: ClassVar[str] = ""  # the first statement on a JDBC connection

    @abstractmethod
    def on_replica(self, url: str) -> Extract:
        """Return what reads the same from a replica of the database, by its URL. What that lacks is the database's own.

        Raises BadValue with SQLite, and ConfigurationError for what is no replica of this database.
        """

    def column(self, name: str) -> Extracted:
        """Return the column with this name. Raises BadValue."""
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise BadValue(f"there is no column {shown(name)} in the {self.what} of {self.name}: there are {known}")

    def chosen(self, names: Sequence[str] | None = None) -> tuple[Extracted, ...]:
        """Return the columns with these names; None: all except the ones read only if named. Raises BadValue."""
        if names is None:
            return tuple(column for column in self.columns if not column.asked)
        return tuple(map(self.column, names))

    def condition(self, name: str, sign: str, *values: int | str) -> str:
        """Return the SQL that compares a column with integers, or with names of states."""
        return f"{self.column(name).sql} {sign} ({', '.join(map(repr, values))})"

    @property
    def checkpoint_columns(self) -> tuple[str, ...]:
        """The columns whose values make up a checkpoint."""
        return (*self.order, *self.witness)

    @abstractmethod
    def stock(self, names: Sequence[str] | None = None, among: Part = WHOLE) -> tuple[str, tuple[Extracted, ...]]:
        """Return the SQL by which a program with JDBC and without xq reads all rows of a part, and its columns.

        Their `stored` types are what such a driver returns, whatever its program's time zone.
        """

    @abstractmethod
    def bounds(self) -> tuple[int, int] | None:
        """Return the least and the greatest value in the column `ranged`; None if there is no row."""

    def read(self, names: Sequence[str] | None = None, part: Part = WHOLE) -> Iterator[tuple[Any, ...]]:
        """Yield a part's rows, in no order, and in bounded memory.

        Values are int, str, float, bool, datetime (UTC), date, Decimal, bytes and None.
        """
        columns = self.chosen(names)
        for rows in self.stored(names, part):
            for row in rows:
                yield tuple(map(self.value, columns, row))

    def stored(self, names: Sequence[str] | None = None, part: Part = WHOLE) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows as the driver returns them, some thousand in a batch."""
        columns = self.chosen(names)
        return (rows for each in self._slices(columns, part) for rows in self._stored(columns, each))

    def arrow(
        self, names: Sequence[str] | None = None, part: Part = WHOLE
    ) -> tuple[Sequence[Extracted], Iterator[Any]] | None:
        """Return the columns, and the rows as record batches, as a driver of Arrow returns them; None without one."""
        columns = [replace(column, **self._for_arrow(column)) for column in self.chosen(names)]
        if (read := self._arrow(columns)) is None:
            return None
        return columns, (batch for each in self._slices(columns, part) for batch in read(each))

    def _for_arrow(self, column: Extracted) -> dict[str, Any]:
        """Return what differs in a column that a driver of Arrow reads."""
        return {}

    def _arrow(self, columns: Sequence[Extracted]) -> Callable[[Part], Iterator[Any]] | None:
        """Return what reads a part by a driver of Arrow; None if there is none, or it cannot read this exactly."""
        return None

    @abstractmethod
    def _slices(self, columns: Sequence[Extracted], part: Part) -> Iterator[Part]:
        """Yield the parts, of short transactions, that are read for one."""

    @abstractmethod
    def _stored(self, columns: Sequence[Extracted], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]: ...

    @abstractmethod
    def value(self, column: Extracted, stored: Any) -> Any:
        """Return the value for what the driver returned. Raises BadValue if it does not fit the column's type."""

    def misfit(self, column: Extracted, stored: Any) -> BadValue:
        """Return the error for a stored value that does not fit the column's type."""
        return BadValue(
            f"{column.name} of {self.name} holds {shown(stored)}, which is not a {column.type}: "
            "correct it with plain SQL, or read other columns"
        )

    @abstractmethod
    def ranges(self, n: int, among: Part = WHOLE, longest: int = 0) -> list[Part]:
        """Return up to `n` disjoint parts that together are all present rows of a part; more, if they would be longer.

        A history's parts show one moment, despite concurrent writes. Tasks are split into key ranges, if the key is
        one integer, and each part shows the moment at which it is read.
        """

    @abstractmethod
    def checkpoint(self, after: Checkpoint = (), limit: int | None = None) -> Checkpoint:
        """Return the history's watermark, at most `limit` rows after a checkpoint.

        No row will be inserted before it. Returns `after` if there is nothing new. Raises BadValue for an extract
        without an order, and ConfigurationError if the history has begun again since `after`.
        """


def quoted(name: str) -> str:
    """Return a column's name, quoted for Spark's schemas and expressions."""
    return f"`{name.replace('`', '``')}`"


def parted(bounds: tuple[int, int], n: int) -> list[tuple[int, int]]:
    """Split an integer range, both ends included, into up to `n` ranges of about the same length."""
    first, last = bounds
    n = max(1, min(n, last - first + 1))
    ends = [first + (last - first + 1) * i // n for i in range(n + 1)]
    return [(low, high - 1) for low, high in pairwise(ends)]
