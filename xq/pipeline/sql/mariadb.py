"""A queue's extracts on MariaDB, as other processes read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from xq.core.kinds import Field
from xq.pipeline.scan import Checkpoint, Extracted, Part
from xq.pipeline.sql.readers import ROWS, ExtractReader
from xq.pipeline.sql.scans import Scans

FRESH = 2.0  # seconds after which an id that MariaDB assigned belongs to a row, or to none for ever
SINGLE = "CAST({} AS DOUBLE)"  # MariaDB would return a FLOAT with six digits
PATIENCE = "SET SESSION net_write_timeout = 31536000"  # a reader may be slow, and the server gives up after a minute


class MariadbReader(ExtractReader):
    """Reads extracts on MariaDB. Rows commit in any id order, so dirty reads detect uncommitted ones."""

    begin = f"{PATIENCE}, sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"  # Spark writes names in double quotes

    quotes = "`"

    def _stock(self, column: Extracted) -> Extracted:
        if column.type == column.stored == "TIMESTAMP":  # the driver would read it in Java's time zone
            return replace(column, sql=f"CAST({column.sql} AS CHAR)", stored="STRING")
        if column.stored == "FLOAT":  # six digits, and not the equal double's
            before, _, behind = SINGLE.partition("{}")
            return replace(column, sql=column.sql.removeprefix(before).removesuffix(behind), stored="DOUBLE")
        return super()._stock(column)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with super()._connected() as connection:
            connection.cursor().execute(PATIENCE)
            yield connection

    def _stored(self, columns: Sequence[Extracted], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]:
        from pymysql.cursors import SSCursor

        with self._connected() as connection:
            connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.cursor().execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            sql = self._select(connection, columns, part)
            cursor = SSCursor(connection)
            try:
                cursor.execute(sql)
                while rows := cursor.fetchmany(ROWS):
                    yield rows
            finally:
                cursor.connection = None  # it would read what is left

    def _bounds_now(self) -> tuple[tuple[int, int] | None, str]:
        bounds, last = self.bounds(), self.checkpoint()
        return (bounds[0], last[0]) if bounds and last else None, ""

    def _below_watermark(self, connection: Any, after: Checkpoint, limit: int | None) -> Checkpoint:
        ((last, now),) = self._asked(
            connection, f"SELECT MAX(id), CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) FROM {self.relation}"
        )
        if after and (last or 0) < after[0]:
            return ()
        return self._until_uncommitted(connection, after, last or 0, now - FRESH * 1e6, limit)

    def _until_uncommitted(
        self, connection: Any, end: Checkpoint, last: int, fresh: float, limit: int | None
    ) -> Checkpoint:
        """Return the last id, up to `last`, before one that an open transaction may still commit: `limit` rows at most.

        It waits for no transaction, as a locking read would. An id missing between two rows belongs to a row that is
        not committed or just being written, or was rolled back or deleted.
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
        return self._asked(connection, self._statement(columns, Part("", (after,), (until,)), limit))


class MariadbScans(Scans):
    reading = MariadbReader

    def stored(self, field: Field, sql: str, kind: str) -> tuple[str, str]:
        if field.kind == "uuid":
            return self.dialect.dashed(sql), kind
        if kind == "STRING" and field.kind != "text":
            return f"CONVERT({sql} USING utf8mb4)", kind
        if field.kind == "float":
            return SINGLE.format(sql), "FLOAT"
        return sql, "BIGINT" if kind == "BOOLEAN" else kind
