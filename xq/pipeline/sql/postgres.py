"""A queue's extracts on PostgreSQL, as other processes read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from xq.core.errors import BadValue
from xq.core.kinds import Field
from xq.drivers import SERVERS
from xq.pipeline.frames import ARRAY, is_beyond
from xq.pipeline.scan import Checkpoint, Extracted, Part
from xq.pipeline.sql.readers import ROWS, ExtractReader
from xq.pipeline.sql.scans import Scans

BATCH = 1 << 20  # bytes in a record batch
ELEMENTS = {"BIGINT": "bigint", "DOUBLE": "float8", "STRING": "text", "BOOLEAN": "boolean", "DATE": "date"}


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

    identity = "SELECT pg_is_in_recovery(), system_identifier, current_database() FROM pg_control_system()"

    def _parameters(self, url: str) -> dict[str, Any]:
        from psycopg import ProgrammingError, conninfo

        try:
            return conninfo.conninfo_to_dict(url)
        except ProgrammingError as error:
            raise BadValue(f"read_from is the URL of a replica: {error}") from error

    def _for_arrow(self, column: Extracted) -> dict[str, Any]:
        return {"sql": f"CAST({column.sql} AS text)", "stored": "STRING"} if column.type.startswith("DECIMAL") else {}

    def _arrow(self, columns: Sequence[Extracted]) -> Callable[[Part], Iterator[Any]] | None:
        try:
            from adbc_driver_postgresql import dbapi
        except ModuleNotFoundError:
            return None
        from psycopg import conninfo, pq

        known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}  # the others are psycopg's own
        given = {**self.address.parameters, **self.address.secrets, "password": self.address.password}
        where = {name: value for name, value in given.items() if name in known and value is not None}
        where = SERVERS["postgres"].limited(where) | {"client_encoding": "utf8"}

        def read(part: Part) -> Iterator[Any]:
            with dbapi.connect(conninfo.make_conninfo(**where)) as connection:
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    sql = self._select(connection, columns, part)
                    cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH)})
                    cursor.execute(sql)
                    yield from cursor.fetch_record_batch()

        return read

    def _bounds_now(self) -> tuple[tuple[int, int] | None, str]:
        sql = f"SELECT MIN(id), MAX(id), CAST(pg_current_snapshot() AS text), pg_is_in_recovery() FROM {self.relation}"
        with self._connected() as connection:
            ((first, last, seen, is_replica),) = self._asked(connection, sql)
        oldest, end, open_ = seen.split(":")
        if is_replica:  # which lists no open transactions
            end = oldest
        unseen = f" AND xid NOT IN ({open_})" if open_ else ""
        return None if first is None else (first, last), f"xid < {end}{unseen}"

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
        if is_beyond(kind):
            return f"CAST({sql} AS text)", kind
        if kind == "ARRAY<TIMESTAMP>":  # as microseconds, which no program reads in its time zone
            us = "CAST(EXTRACT(epoch FROM one) * 1000000 AS bigint)"
            each = f"SELECT {us} FROM unnest({sql}) WITH ORDINALITY AS of_one (one, place) ORDER BY place"
            return f"CASE WHEN {sql} IS NOT NULL THEN ARRAY({each}) END", "ARRAY<BIGINT>"
        if kind.startswith(ARRAY):  # of one type, for JDBC; a REAL as it is written
            return f"CAST(CAST({sql} AS text[]) AS {ELEMENTS[kind[len(ARRAY) : -1]]}[])", kind
        if kind == "STRING" and field.kind != "text":
            sql = f"CAST({sql} AS text)"
        elif field.type.upper() in ("FLOAT", "REAL"):  # as it is written, and so as the application reads it
            sql = f"CAST(CAST({sql} AS text) AS float8)"
        elif field.kind == "timestamptz":  # as one without a zone, in UTC
            sql = f"({sql} AT TIME ZONE 'UTC')"
        return sql, kind
