"""Extracts of a queue on PostgreSQL, as other processes read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from xq.adapters.databases.named import NAMED
from xq.adapters.databases.readers import ROWS, ExtractReader
from xq.adapters.databases.scans import Scans
from xq.core.ports import Field
from xq.pipeline.frames import type_of
from xq.pipeline.scan import Checkpoint, Column, Condition, Part


class PostgresReader(ExtractReader):
    """Reads extracts of PostgreSQL. A row is below the watermark when all transactions before its own have ended."""

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
    def shared_snapshot(self) -> Iterator[str]:
        with self._connected() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            ((snapshot,),) = self._asked(connection, "SELECT pg_export_snapshot()", {})
            yield snapshot

    @contextmanager
    def _moment(self) -> Iterator[Any]:
        """Yield a connection within a transaction."""
        with self._connected() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if self.snapshot:
                from psycopg.sql import quote

                connection.execute(f"SET TRANSACTION SNAPSHOT {quote(self.snapshot)}")
            yield connection

    def _stored(self, columns: Sequence[Column], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._moment() as connection:
            sql, values = self._prepared(connection, columns, part)
            connection.execute("SET LOCAL cursor_tuple_fraction = 1")  # it is read to the end
            cursor = connection.cursor(name="xq")
            cursor.execute(sql, values or None)
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _batches(self, columns: Sequence[Column], part: Part) -> Iterator[Any] | None:
        if not find_spec("adbc_driver_postgresql") or self.snapshot or self._is_windowed(columns, part):
            return None
        return self._by_adbc(*self._statement(columns, part))

    def _by_adbc(self, sql: str, values: Mapping[str, Any]) -> Iterator[Any]:
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

    def _bounds_now(self) -> tuple[tuple[int, int] | None, tuple[Condition, ...]]:
        sql = f"SELECT {self._least_and_most}, CAST(pg_current_snapshot() AS text) FROM {self.relation}"
        with self._moment() as connection:
            ((first, last, seen),) = self._asked(connection, sql, {})
        bounds = None if first is None else (first, last)
        if not self.order:
            return bounds, ()
        _, end, open_ = seen.split(":")
        unseen = [int(xid) for xid in open_.split(",") if xid]
        committed = (Condition("xid", "<", int(end)),)
        return bounds, (*committed, Condition("xid", "not in", unseen)) if unseen else committed

    def _below_watermark(self, connection: Any, after: Checkpoint, limit: int | None) -> Checkpoint:
        oldest, next_ = "pg_snapshot_xmin(pg_current_snapshot())", "pg_snapshot_xmax(pg_current_snapshot())"
        ((end, beyond),) = self._asked(connection, f"SELECT {self._number(oldest)}, {self._number(next_)}", {})
        if after and after[0] >= beyond:  # of another server, from which this one was restored
            return ()
        committed = (Condition("xid", "<", end),)
        last = self._row(connection, Part(committed, after), "DESC") or after
        return self._cut(connection, after, limit, last) if limit else last

    @staticmethod
    def _number(xid: str) -> str:
        return f"CAST(CAST({xid} AS text) AS bigint)"


class PostgresScans(Scans):
    reading = PostgresReader
    has_snapshots = True
    order = ("xid", "id")
    witness = ()  # numbers of transactions go on

    def _column(self, field: Field) -> Column:
        sql, kind, declared = self.dialect.quote(field.column), type_of(field), field.type.upper()
        if kind == "STRING":
            as_text = sql if field.kind == "text" else f"CAST({sql} AS text)"
            # What is padded with spaces is compared without them.
            exact = self._exact_text(sql) if field.kind == "text" and declared != "CHAR" else ""
            return Column(field.name, kind, as_text, kind, exact)
        if declared in ("FLOAT", "REAL"):  # as it is written, and so as the application reads it
            return Column(field.name, kind, f"CAST(CAST({sql} AS text) AS float8)", kind)
        if field.kind == "timestamptz":
            return Column(field.name, kind, sql, kind, f"({sql} AT TIME ZONE 'UTC')")
        return Column(field.name, kind, sql, kind, sql if kind != "BINARY" else "")

    def _exact_text(self, sql: str) -> str:
        return f'{sql} COLLATE "C"'
