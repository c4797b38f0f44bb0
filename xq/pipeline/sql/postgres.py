"""A queue's extracts on PostgreSQL, as other processes read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from xq.core.kinds import Field
from xq.pipeline.scan import Checkpoint, Extracted, Part
from xq.pipeline.sql.readers import ROWS, ExtractReader
from xq.pipeline.sql.scans import Scans


class PostgresReader(ExtractReader):
    """Reads extracts on PostgreSQL. A row is below the watermark when all transactions before its own have ended."""

    def _stock(self, column: Extracted) -> Extracted:
        if column.type == column.stored == "TIMESTAMP":  # the driver would read one without a zone in Java's time zone
            return replace(column, sql=f"({column.sql} AT TIME ZONE 'UTC')")
        return super()._stock(column)

    def _stored(self, columns: Sequence[Extracted], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._connected() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            sql = self._select(connection, columns, part)
            connection.execute("SET LOCAL cursor_tuple_fraction = 1")  # it is read to the end
            cursor = connection.cursor(name="xq")
            cursor.execute(sql)
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _bounds_now(self) -> tuple[tuple[int, int] | None, str]:
        sql = f"SELECT MIN(id), MAX(id), CAST(pg_current_snapshot() AS text) FROM {self.relation}"
        with self._connected() as connection:
            ((first, last, seen),) = self._asked(connection, sql)
        _, end, open_ = seen.split(":")
        unseen = f" AND xid NOT IN ({open_})" if open_ else ""
        return None if first is None else (first, last), f" AND xid < {end}{unseen}"

    def _below_watermark(self, connection: Any, after: Checkpoint, limit: int | None) -> Checkpoint:
        ((seen,),) = self._asked(connection, "SELECT CAST(pg_current_snapshot() AS text)")
        end, beyond, _ = seen.split(":")
        if after and after[0] >= int(beyond):  # from another server, from which this one was restored
            return ()
        last = self._row(connection, Part(f"xid < {end}", after), "DESC") or after
        return self._cut(connection, after, limit, last) if limit else last


class PostgresScans(Scans):
    reading = PostgresReader
    witness = ()  # transaction numbers go on

    def stored(self, field: Field, sql: str, kind: str) -> tuple[str, str]:
        if kind == "STRING" and field.kind != "text":
            sql = f"CAST({sql} AS text)"
        elif field.type.upper() in ("FLOAT", "REAL"):  # as it is written, and so as the application reads it
            sql = f"CAST(CAST({sql} AS text) AS float8)"
        elif field.kind == "timestamptz":  # as one without a zone, in UTC
            sql = f"({sql} AT TIME ZONE 'UTC')"
        return sql, kind
