"""What a queue holds as SQL that is read without the model: its types, conditions, marks and ranges."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from math import isfinite
from struct import pack
from typing import Any, ClassVar, Self

from xq.adapters.databases.named import NAMED, by_position, filled
from xq.adapters.databases.sql import Dialect, parts_of_uuid
from xq.adapters.drivers import connect
from xq.errors import BadValue, ConfigurationError, shown
from xq.extract import TESTS, WHATS, Column, Condition, Extract, Mark, Stock, What, parted
from xq.machine import ELSEWHERE, NAMES
from xq.store import INTEGERS, Address, Field

ROWS = 10_000  # that are fetched at once
FRESH = 2.0  # seconds after which a number that MariaDB has given to a row is that of a row, or of none for ever
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS = ("BIGINT", "DOUBLE")
SINGLE = "CAST({} AS DOUBLE)"  # which MariaDB would tell by six digits

KINDS: Mapping[str, str] = {
    **dict.fromkeys(INTEGERS, "BIGINT"),
    "float": "DOUBLE",
    "double": "DOUBLE",
    "text": "STRING",
    "uuid": "STRING",
    "datetime": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
}
DECLARED: Mapping[str, str] = {  # of kinds that a queue knows nothing of
    **dict.fromkeys(("INT", "INTEGER", "SMALLINT", "BIGINT"), "BIGINT"),
    **dict.fromkeys(("BOOL", "BOOLEAN"), "BOOLEAN"),
    **dict.fromkeys(("BLOB", "BYTEA", "BINARY", "VARBINARY", "UUIDB", "MEDIUMBLOB", "LONGBLOB"), "BINARY"),
    "DATE": "DATE",
}


def type_of(field: Field) -> str:
    """Spark's type of a field; what is none of its own, JSON say, is text."""
    if field.kind == "decimal":
        digits, places = field.digits or (38, 18)
        return f"DECIMAL({digits},{places})" if digits <= 38 else "STRING"
    return KINDS.get(field.kind) or DECLARED.get(field.type.upper().partition("(")[0], "STRING")


# A stored value -> what it is. FLOAT is a number of 32 bits, which is what its shortest digits are.


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _decimal(places: int, value: Any) -> Decimal:
    return Decimal(str(value)).quantize(Decimal(1).scaleb(-places))


def _shortest(value: float) -> float:
    single = pack("f", value)
    return next(found for digits in range(6, 10) if pack("f", found := float(f"{value:.{digits}g}")) == single)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


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
    """What makes the value of a stored one that is not NULL; None where it is the same."""
    if column.type.startswith("DECIMAL") and column.stored == "STRING":
        return partial(_decimal, int(column.type.rstrip(")").partition(",")[2]))
    return READ.get((column.stored, column.type))


def _comparable(column: Column, value: Any) -> Any:
    """A value of Spark's as the database compares it with the column. Raises ValueError where it cannot exactly."""
    if isinstance(value, datetime) and column.type == "TIMESTAMP":
        if value.tzinfo is None:
            raise ValueError("a time of no zone")
        if column.stored == "BIGINT":
            return (value - EPOCH) // timedelta(microseconds=1)
        return value.astimezone(UTC).replace(tzinfo=None)
    kinds = {"BIGINT": int, "DOUBLE": (int, float), "STRING": str, "BOOLEAN": bool, "DATE": date}
    kind: Any = kinds.get(column.type, Decimal if column.type.startswith("DECIMAL") else ())
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
class OfDatabase(Extract):
    """An extract of any database; what differs is below."""

    mark_of_driver: ClassVar[str] = "%s"
    has_snapshots: ClassVar[bool] = False
    told_key: ClassVar[str] = "{}"  # the text of a key as a trigger tells it

    @classmethod
    def of(cls, dialect: Dialect, what: What, name: str, address: Address, snapshot: str) -> Self:
        """Raises BadValue and ConfigurationError for what there is not."""
        if what not in WHATS:
            raise BadValue(f"a queue has {', '.join(WHATS)}, not {shown(what)}")
        if snapshot and not cls.has_snapshots:
            raise ConfigurationError("only PostgreSQL has snapshots that several readers share: read in one partition")
        make: Callable[..., Self] = getattr(cls, f"_{what}")
        return make(dialect, what=what, name=name, address=address, snapshot=snapshot)

    @classmethod
    def _tasks(cls, dialect: Dialect, **of: Any) -> Self:
        machine, fields = dialect.machine, dialect.source.fields
        columns = [cls._column(dialect, field) for field in fields]
        status = dialect.exact(dialect.roles["status"], dialect.kind("status"))
        cases = " ".join(
            f"WHEN {dialect.literal(dialect.words[s])} THEN {dialect.literal(NAMES.get(s, s))}" for s in machine.states
        )
        spelled = f"CASE {status} {cases} END"
        taken = {field.name.lower() for field in fields}
        state = "state" if "state" not in taken else "xq_state"
        columns.append(Column(state, "STRING", spelled, "STRING", cls._exact_text(dialect, spelled)))
        (key, *more) = dialect.source.key
        ranged = key.name if not more and type_of(key) == "BIGINT" else ""
        states = dialect.in_states(machine.states)
        return cls(relation=dialect.table_in_schema, rows=states, columns=tuple(columns), ranged=ranged, **of)

    @classmethod
    def _live(cls, dialect: Dialect, **of: Any) -> Self:
        states = [state for state in "RTW" if state in dialect.machine.states]
        what = {
            "key": cls.told_key.format(dialect.told_key(dialect.keys)),
            "tube": dialect.roles.get("tube", "CAST(NULL AS CHAR)"),
            "state": dialect.letter(dialect.roles["status"]),
        }
        columns = tuple(Column(name, "STRING", sql, "STRING") for name, sql in what.items())
        return cls(relation=dialect.table_in_schema, rows=dialect.in_states(states), columns=columns, **of)

    @classmethod
    def _history(cls, dialect: Dialect, **of: Any) -> Self:
        table, key = dialect.side("history"), dialect.quote("key")
        types = {name: KINDS[kind] for name, kind in dialect.told.items()}
        quoted = {name: dialect.quote(name) for name in types}
        columns = [
            Column(name, kind, quoted[name], kind, cls._exact_text(dialect, quoted[name]) if kind == "STRING" else sql)
            for (name, kind), sql in zip(types.items(), quoted.values(), strict=True)
        ]
        columns.append(Column("at", "TIMESTAMP", quoted["at_us"], "BIGINT", quoted["at_us"]))
        # Looked up in all of the history: the row before it may be of any time. `:of` says of which keys.
        before = f"at_us - LAG(at_us) OVER (PARTITION BY {key} ORDER BY id)"
        timed = f"(SELECT {', '.join(quoted.values())}, {before} AS dur_us FROM {table}:of) AS timed"
        columns.append(Column("dur_us", "BIGINT", "dur_us", "BIGINT", "dur_us", timed))
        order, witness = cls._order(), cls._witness()
        return cls(relation=table, rows="", columns=tuple(columns), order=order, witness=witness, ranged="id", **of)

    @classmethod
    def _stats(cls, dialect: Dialect, **of: Any) -> Self:
        columns = [Column(name, "STRING", name, "STRING") for name in ("tube", "source", "target")]
        columns.append(Column("n", "BIGINT", "n", "BIGINT", "n"))
        # Not what is counted of events.
        transitions = f"NOT (source = '{ELSEWHERE}' AND target = '{ELSEWHERE}')"
        return cls(relation=f"({dialect.counters}) AS counted", rows=transitions, columns=tuple(columns), **of)

    @classmethod
    def _order(cls) -> tuple[str, ...]:
        return ("id",)

    @classmethod
    def _witness(cls) -> tuple[str, ...]:
        return ("at_us",)  # ids begin at 1 again

    @classmethod
    @abstractmethod
    def _column(cls, dialect: Dialect, field: Field) -> Column:
        """A field of the application's."""

    @classmethod
    @abstractmethod
    def _exact_text(cls, dialect: Dialect, sql: str) -> str:
        """Text, compared byte by byte in UTF-8."""

    # statements

    def stock(self, names: Sequence[str] | None = None) -> Stock:
        columns = tuple(map(self._stock, self.chosen(names)))
        sql, _ = replace(self, where=())._statement(columns, (), (), ())
        return Stock(sql, columns, self._begin)

    @property
    @abstractmethod
    def _begin(self) -> str:
        """What a connection of a stock driver begins with."""

    def _stock(self, column: Column) -> Column:
        """A column for a stock driver, whose program filters by no more than its name."""
        if column.type == "STRING":
            return replace(column, sql=column.exact or column.sql)
        return replace(column, stored="BOOLEAN") if column.type == "BOOLEAN" else column

    def _statement(
        self, columns: Sequence[Column], conditions: Sequence[Condition], after: Mark, until: Mark, more: str = ""
    ) -> tuple[str, dict[str, Any]]:
        """SQL, with values by name."""
        values: dict[str, Any] = {}
        conditions = [*self.where, *conditions]
        tests = [self.rows] if self.rows else []
        tests += [self._test(condition, values) for condition in conditions if condition.column != "dur_us"]
        if after:
            tests.append(self._beside(after, ">", values))
        if until:
            tests.append(self._beside(until, "<=", values))
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        used = [*columns, *(self.column(condition.column) for condition in conditions)]
        relation = next((column.relation for column in used if column.relation), "")
        if relation:
            # A condition of what is computed comes last.
            of = f" WHERE {self.column('key').sql} IN (SELECT {self.column('key').sql} FROM {self.relation}{where})"
            relation = filled(relation, of=of if tests else "")
            tests += [self._test(condition, values) for condition in conditions if condition.column == "dur_us"]
            where = f" WHERE {' AND '.join(tests)}" if tests else ""
        listed = ", ".join(f"{column.sql} AS {self._quoted(column.name)}" for column in columns)
        return f"SELECT {listed} FROM {relation or self.relation}{where}{more}", values

    def _beside(self, mark: Mark, way: str, values: dict[str, Any]) -> str:
        """That a row comes after a mark (>), or not after it (<=)."""
        columns = [self.column(name).sql for name in self.order]
        names = [self._named(values, part) for part in mark[: len(columns)]]
        if len(columns) == 1:
            return f"{columns[0]} {way} {names[0]}"
        # The first for the index.
        return f"{columns[0]} {way[0]}= {names[0]} AND ({', '.join(columns)}) {way} ({', '.join(names)})"

    @staticmethod
    def _named(values: dict[str, Any], value: Any) -> str:
        name = f"v{len(values)}"
        values[name] = value
        return f":{name}"

    @staticmethod
    def _quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def can(self, condition: Condition) -> bool:
        column = self.column(condition.column)
        if condition.test in ("null", "not null"):
            return True
        if condition.test not in TESTS or not column.exact or (condition.test == "starts" and column.type != "STRING"):
            return False
        several = condition.test in ("in", "not in")
        if several and not isinstance(condition.value, (list, tuple)):
            return False
        try:
            for value in condition.value if several else [condition.value]:
                _comparable(column, value)
        except ValueError:
            return False
        return not several or 0 < len(condition.value) <= 1000

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
        if test in ("=", "in") and exact != column.sql:  # loosely as well, for which there may be an index
            tested = f"{column.sql} {test.upper()} {right} AND {tested}"
        return tested

    # reading

    def stored(
        self,
        names: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        after: Mark = (),
        until: Mark = (),
    ) -> Iterator[Sequence[tuple[Any, ...]]]:
        sql, named = self._statement(self.chosen(names), conditions, after, until)
        text, order = by_position(sql, self.mark_of_driver)
        return self._fetched(text, [named[name] for name in order])

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

    @abstractmethod
    def _fetched(self, sql: str, values: Sequence[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The rows, some at a time."""

    def _asked(self, connection: Any, sql: str, values: Mapping[str, Any]) -> list[Any]:
        """All rows of a small answer."""
        text, order = by_position(sql, self.mark_of_driver)
        cursor = connection.cursor()
        cursor.execute(text, *([[values[name] for name in order]] if order else []))
        return list(cursor.fetchall())

    # apart

    def bounds(self) -> tuple[int, int] | None:
        with self._connected() as connection:
            ((first, last),) = self._asked(connection, f"SELECT {self._least_and_most} FROM {self.relation}", {})
        return None if first is None else (first, last)

    @contextmanager
    def held(self) -> Iterator[str]:
        yield ""

    def ranges(self, n: int) -> list[tuple[Condition, ...]]:
        if n <= 1 or not self.ranged or not (self.order or self.snapshot):
            return [()]
        (bounds,), common = self._bounds()
        if bounds[0] is None:
            return [()]
        return [
            (Condition(self.ranged, ">=", low), Condition(self.ranged, "<=", high), *common)
            for low, high in parted(bounds, n)
        ]

    @property
    def _least_and_most(self) -> str:
        column = self.column(self.ranged).sql
        return f"MIN({column}), MAX({column})"

    @abstractmethod
    def _bounds(self) -> tuple[list[Any], tuple[Condition, ...]]:
        """The least and the greatest of what ranges are of, and what tells the rows of this moment from later ones."""

    # marks

    def mark(self, after: Mark = (), limit: int | None = None) -> Mark:
        if not self.order:
            raise BadValue(f"the {self.what} of {self.name} change: only the history is settled row by row")
        with self._connected() as connection:
            whole = replace(self, where=())
            found = () if whole._is_of_another(connection, after) else whole._settled(connection, after, limit)
        if after and found < after:
            raise ConfigurationError(
                f"the history of {self.name} is not the one that was read up to here: it was begun anew. "
                "Begin with a new checkpoint"
            )
        return found

    def _is_of_another(self, connection: Any, mark: Mark) -> bool:
        """Whether the row of a mark is another now; or, where it is gone, those before it are newer than it was.

        What is pruned goes from the oldest on, so what is left before a row that went is a few rows, if any.
        """
        if not mark or not self.witness:
            return False
        last = self._row(connection, (), (), mark, "DESC", 0)
        return bool(last) and last != mark and (last[0] == mark[0] or last[-1] > mark[-1])

    @abstractmethod
    def _settled(self, connection: Any, after: Mark, limit: int | None) -> Mark:
        """As `mark`; less than `after` where the history ends before that."""

    def _cut(self, connection: Any, after: Mark, limit: int, until: Mark) -> Mark:
        """The mark of the row so many after another, or `until` where there are not so many."""
        return self._row(connection, (), after, until, "ASC", limit - 1) or until

    def _row(
        self, connection: Any, conditions: Sequence[Condition], after: Mark, until: Mark, way: str, place: int
    ) -> Mark:
        """The mark of one row, by its place in this way of ordering them; () where there is none."""
        columns = [self.column(name) for name in self.marked]
        by = ", ".join(f"{self.column(name).sql} {way}" for name in self.order)
        more = f" ORDER BY {by} LIMIT 1 OFFSET {place}"
        rows = self._asked(connection, *self._statement(columns, conditions, after, until, more))
        return next((tuple(row) for row in rows), ())


class SqliteExtract(OfDatabase):
    """Of a file: one writer at a time, so rows are there in the order of their ids."""

    mark_of_driver = "?"
    told_key = "CAST({} AS TEXT)"  # the column of the history makes text of it by itself
    _begin = "PRAGMA case_sensitive_like = 1"
    EMPTY: ClassVar[Mapping[str, str]] = {"BIGINT": "0", "DOUBLE": "0.0", "BINARY": "x'00'"}

    @classmethod
    def of(cls, dialect: Dialect, what: What, name: str, address: Address, snapshot: str) -> Self:
        if dialect.source.schema.lower() not in ("", "main"):
            raise ConfigurationError(
                f"{name} is in the attached database {dialect.source.schema!r}, of which other processes know nothing: "
                "open that file as the model's own database"
            )
        return super().of(dialect, what, name, address, snapshot)

    @classmethod
    def _column(cls, dialect: Dialect, field: Field) -> Column:
        sql, kind = dialect.quote(field.column), type_of(field)
        if field.kind == "uuid":
            dashed = " || '-' || ".join(parts_of_uuid(sql))
            return Column(field.name, kind, f"CASE LENGTH({sql}) WHEN 32 THEN {dashed} ELSE {sql} END", kind)
        if kind == "STRING":
            known = field.kind == "text"
            return Column(
                field.name, kind, sql if known else f"CAST({sql} AS TEXT)", kind, f"{sql} COLLATE BINARY" * known
            )
        if field.kind == "decimal":  # kept as a number: its text would have 15 digits, and ADBC's 6
            sql = f"CASE TYPEOF({sql}) WHEN 'real' THEN PRINTF('%!.17g', {sql}) ELSE CAST({sql} AS TEXT) END"
        stored = {"BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "BOOLEAN": "BIGINT", "BINARY": "BINARY"}.get(kind, "STRING")
        return Column(field.name, kind, sql, stored, sql if kind in NUMBERS else "")

    @classmethod
    def _exact_text(cls, dialect: Dialect, sql: str) -> str:
        return sql

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        path = self.address.parameters["database"]
        if not path.startswith("file:") and not os.path.exists(path):
            raise ConfigurationError(f"there is no file {path} on this machine: a file is read where it is")
        with super()._connected() as connection:
            connection.execute("PRAGMA query_only = 1")
            yield connection

    def _fetched(self, sql: str, values: Sequence[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._connected() as connection:
            cursor = connection.execute(sql, values)
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def batches(
        self,
        names: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        after: Mark = (),
        until: Mark = (),
    ) -> Iterator[Any] | None:
        if not find_spec("adbc_driver_sqlite"):
            return None
        columns = self.chosen(names)
        sql, named = self._statement(columns, conditions, after, until)
        # The driver takes the types from the first rows, which may all be NULL.
        typed = ", ".join(self.EMPTY.get(column.stored, "''") for column in columns)
        text, order = by_position(f"SELECT {typed} UNION ALL {sql}", "?")
        return self._batches(text, [named[name] for name in order], [column.name for column in columns])

    def _batches(self, sql: str, values: Sequence[Any], names: Sequence[str]) -> Iterator[Any]:
        from adbc_driver_sqlite import dbapi

        with self._connected():
            pass  # for what it raises
        with dbapi.connect(self.address.parameters["database"]) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": ROWS})
            cursor.execute(sql, values)
            reader = cursor.fetch_record_batch()
            first = True
            for batch in reader:
                yield (batch.slice(1) if first else batch).rename_columns(names)
                first = False

    def _bounds(self) -> tuple[list[Any], tuple[Condition, ...]]:
        with self._connected() as connection:
            return self._asked(connection, f"SELECT {self._least_and_most} FROM {self.relation}", {}), ()

    def _settled(self, connection: Any, after: Mark, limit: int | None) -> Mark:
        until = self._row(connection, (), (), (), "DESC", 0)
        return self._cut(connection, after, limit, until) if limit and until > after else until


class PostgresExtract(OfDatabase):
    """Rows are settled when every transaction that began before the one of theirs has ended."""

    has_snapshots = True

    @classmethod
    def _order(cls) -> tuple[str, ...]:
        return ("xid", "id")

    @classmethod
    def _witness(cls) -> tuple[str, ...]:
        return ()  # numbers of transactions go on

    @classmethod
    def _column(cls, dialect: Dialect, field: Field) -> Column:
        sql, kind, declared = dialect.quote(field.column), type_of(field), field.type.upper()
        if kind == "STRING":
            as_text = sql if field.kind == "text" else f"CAST({sql} AS text)"
            # What is padded with spaces is compared without them.
            exact = cls._exact_text(dialect, sql) if field.kind == "text" and declared != "CHAR" else ""
            return Column(field.name, kind, as_text, kind, exact)
        if declared in ("FLOAT", "REAL"):  # as it is written, and so as the application reads it
            return Column(field.name, kind, f"CAST(CAST({sql} AS text) AS float8)", kind)
        if field.kind == "timestamptz":
            return Column(field.name, kind, sql, kind, f"({sql} AT TIME ZONE 'UTC')")
        return Column(field.name, kind, sql, kind, sql if kind != "BINARY" else "")

    @classmethod
    def _exact_text(cls, dialect: Dialect, sql: str) -> str:
        return f'{sql} COLLATE "C"'

    def _stock(self, column: Column) -> Column:
        if column.type == column.stored == "TIMESTAMP":  # `exact` is of no zone, whatever the column is
            return replace(column, sql=f"({column.exact} AT TIME ZONE 'UTC')")
        return super()._stock(column)

    @property
    def _begin(self) -> str:
        if not self.snapshot:
            return ""
        from psycopg.sql import quote

        return f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT {quote(self.snapshot)}"

    @contextmanager
    def held(self) -> Iterator[str]:
        with self._connected() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            ((snapshot,),) = self._asked(connection, "SELECT pg_export_snapshot()", {})
            yield snapshot

    @contextmanager
    def _moment(self) -> Iterator[Any]:
        """A connection with a transaction."""
        with self._connected() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if self.snapshot:
                from psycopg.sql import quote

                connection.execute(f"SET TRANSACTION SNAPSHOT {quote(self.snapshot)}")
            yield connection

    def _fetched(self, sql: str, values: Sequence[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._moment() as connection:
            connection.execute("SET LOCAL cursor_tuple_fraction = 1")  # it is read to the end
            cursor = connection.cursor(name="xq")
            cursor.execute(sql, values or None)
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def batches(
        self,
        names: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        after: Mark = (),
        until: Mark = (),
    ) -> Iterator[Any] | None:
        columns = self.chosen(names)
        if not find_spec("adbc_driver_postgresql") or self.snapshot:
            return None
        return self._batches(*self._statement(columns, conditions, after, until))

    def _batches(self, sql: str, values: Mapping[str, Any]) -> Iterator[Any]:
        from adbc_driver_postgresql import dbapi
        from psycopg.conninfo import make_conninfo
        from psycopg.sql import quote

        # The driver copies what a query returns only where it has no values.
        text = NAMED.sub(lambda found: quote(values[found["name"]]) if found["name"] else found[0], sql)
        password = {} if self.address.password is None else {"password": self.address.password}
        place = make_conninfo("", **self.address.parameters, **self.address.secrets, **password)
        with dbapi.connect(place) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            yield from cursor.fetch_record_batch()

    def _bounds(self) -> tuple[list[Any], tuple[Condition, ...]]:
        sql = f"SELECT {self._least_and_most}, CAST(pg_current_snapshot() AS text) FROM {self.relation}"
        with self._moment() as connection:
            ((first, last, seen),) = self._asked(connection, sql, {})
        if not self.order:
            return [(first, last)], ()
        _, end, open_ = seen.split(":")
        unseen = [int(xid) for xid in open_.split(",") if xid]
        settled = (Condition("xid", "<", int(end)),)
        return [(first, last)], (*settled, Condition("xid", "not in", unseen)) if unseen else settled

    def _settled(self, connection: Any, after: Mark, limit: int | None) -> Mark:
        oldest, next_ = "pg_snapshot_xmin(pg_current_snapshot())", "pg_snapshot_xmax(pg_current_snapshot())"
        ((end, beyond),) = self._asked(connection, f"SELECT {self._number(oldest)}, {self._number(next_)}", {})
        if after and after[0] >= beyond:  # of another server, from which this one was restored
            return ()
        settled = (Condition("xid", "<", end),)
        last = self._row(connection, settled, after, (), "DESC", 0) or after
        return self._cut(connection, after, limit, last) if limit else last

    @staticmethod
    def _number(xid: str) -> str:
        return f"CAST(CAST({xid} AS text) AS bigint)"


class MysqlExtract(OfDatabase):
    """Rows are there in any order of their ids: what is written and not committed yet is seen by a dirty read."""

    @classmethod
    def _column(cls, dialect: Dialect, field: Field) -> Column:
        sql, kind, declared = dialect.quote(field.column), type_of(field), field.type.upper()
        if field.kind == "uuid":
            dashed = ", '-', ".join(parts_of_uuid(sql))
            return Column(field.name, kind, f"CASE LENGTH({sql}) WHEN 32 THEN CONCAT({dashed}) ELSE {sql} END", kind)
        if kind == "STRING":
            known = field.kind == "text"
            as_text = sql if known else f"CONVERT({sql} USING utf8mb4)"
            return Column(field.name, kind, as_text, kind, cls._exact_text(dialect, sql) if known else "")
        if kind == "BOOLEAN":
            return Column(field.name, kind, sql, "BIGINT")
        if field.kind == "float":
            return Column(field.name, kind, SINGLE.format(sql), "FLOAT")
        # The one depends on the time zone of a connection.
        inexact = declared.startswith("TIMESTAMP") or kind == "BINARY"
        return Column(field.name, kind, sql, kind, "" if inexact else sql)

    @classmethod
    def _exact_text(cls, dialect: Dialect, sql: str) -> str:
        return dialect.exact(sql)

    # Who reads may be slow, and the server would give up after a minute. Spark writes names in double quotes, and texts
    # with no regard for backslashes.
    _begin = (
        "SET SESSION net_write_timeout = 31536000, sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,NO_BACKSLASH_ESCAPES')"
    )

    def _stock(self, column: Column) -> Column:
        if column.type == column.stored == "TIMESTAMP":  # the driver would read it in Java's time zone
            return replace(column, sql=f"CAST({column.sql} AS CHAR)", stored="STRING")
        if column.stored == "FLOAT":  # six digits, and not those of the double that is the same
            before, _, behind = SINGLE.partition("{}")
            return replace(column, sql=column.sql.removeprefix(before).removesuffix(behind), stored="DOUBLE")
        return super()._stock(column)

    @staticmethod
    def _quoted(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with super()._connected() as connection:
            # Who reads may be slow: the server would give up after a minute.
            connection.cursor().execute("SET SESSION net_write_timeout = 31536000")
            yield connection

    def _fetched(self, sql: str, values: Sequence[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
        from pymysql.cursors import SSCursor

        with self._connected() as connection:
            cursor = SSCursor(connection)
            try:
                cursor.execute(sql, values or None)
                while rows := cursor.fetchmany(ROWS):
                    yield rows
            finally:
                cursor.connection = None  # it would read what is left

    def batches(
        self,
        names: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        after: Mark = (),
        until: Mark = (),
    ) -> Iterator[Any] | None:
        return None

    def _bounds(self) -> tuple[list[Any], tuple[Condition, ...]]:
        with self._connected() as connection:
            last = replace(self, where=())._settled(connection, (), None)
            ((first,),) = self._asked(connection, f"SELECT MIN(id) FROM {self.relation}", {})
        return [(first, last[0]) if last else (None, None)], ()

    def _settled(self, connection: Any, after: Mark, limit: int | None) -> Mark:
        ((last, now),) = self._asked(
            connection, f"SELECT MAX(id), CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) FROM {self.relation}", {}
        )
        if after and (last or 0) < after[0]:
            return ()
        return self._until_unsettled(connection, after, last or 0, now - FRESH * 1e6, limit)

    def _until_unsettled(self, connection: Any, end: Mark, last: int, fresh: float, limit: int | None) -> Mark:
        """The last mark, up to the id `last`, before one that may still come; at most `limit` rows from `end` on.

        Nobody is waited for, as a read that locks would do. A number between those of two rows is that of a row which
        is not committed; or, for a moment, of one that is about to be written; or of none any more.
        """
        found, before = 0, end[0] if end else 0
        while before < last:
            rows = self._of_ids(connection, "READ COMMITTED", before, last)
            if not rows:
                break
            there = {id_ for id_, _ in rows}
            written = (id_ for id_, _ in self._of_ids(connection, "READ UNCOMMITTED", before, rows[-1][0]))
            open_ = min((id_ for id_ in written if id_ not in there), default=last + 1)
            for id_, at in rows:
                if open_ < id_ or (id_ > before + 1 and at > fresh):
                    return end
                end, before, found = (id_, at), id_, found + 1
                if found == limit:
                    return end
        return end

    def _of_ids(self, connection: Any, isolation: str, after: int, until: int) -> list[Any]:
        connection.cursor().execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        columns = [self.column("id"), self.column("at_us")]
        limit = f" ORDER BY id LIMIT {ROWS}" * (isolation == "READ COMMITTED")
        return self._asked(connection, *self._statement(columns, (), (after,), (until,), limit))
