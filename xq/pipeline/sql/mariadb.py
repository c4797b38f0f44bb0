"""A queue's extracts on MariaDB, as other processes read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from xq.core.errors import BadValue
from xq.core.kinds import Field
from xq.pipeline.scan import Checkpoint, Extracted, Part
from xq.pipeline.sql.readers import ROWS, ExtractReader
from xq.pipeline.sql.scans import Scans

FRESH = 2.0  # seconds after which an id that MariaDB assigned belongs to a row, or to none for ever
SINGLE = "CAST({} AS DOUBLE)"  # MariaDB would return a FLOAT with six digits
PATIENCE = "SET SESSION net_write_timeout = 31536000"  # a reader may be slow, and the server gives up after a minute

# Parameters of pymysql that connectorx can follow, or that change nothing of what is read.
KNOWN = {"host", "port", "user", "database", "charset", "use_unicode", "sql_mode", "ssl_disabled", "connect_timeout"}


class MariadbReader(ExtractReader):
    """Reads extracts on MariaDB. Rows commit in any id order, so dirty reads detect uncommitted ones."""

    begin = f"{PATIENCE}, sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"  # Spark writes names in double quotes

    quotes = "`"
    shows_more = True  # those after an id that may still come

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

    # read_only is a number, and from MariaDB 12 on a word.
    identity = "SELECT CAST(@@read_only AS CHAR) NOT IN ('0', 'OFF'), @@server_id, DATABASE()"

    def _parameters(self, url: str) -> dict[str, Any]:
        found = urlsplit(url)
        named = {"host": found.hostname, "port": found.port, "user": found.username, "password": found.password}
        named["database"] = found.path.strip("/")
        return {name: unquote(each) if isinstance(each, str) else each for name, each in named.items() if each}

    def _is_of(self, database: Sequence[Any], other: Sequence[Any]) -> bool:
        return bool(database[0] != other[0] and database[1] == other[1])

    def _for_arrow(self, column: Extracted) -> dict[str, Any]:
        # As the texts that pymysql reads: there are a day 0, and numbers with more digits than the driver has.
        is_text = column.type.startswith("DECIMAL") or column.type == column.stored in ("TIMESTAMP", "DATE")
        return {"sql": f"CAST({column.sql} AS CHAR)", "stored": "STRING"} if is_text else {}

    def _arrow(self, columns: Sequence[Extracted]) -> Callable[[Part], Iterator[Any]] | None:
        given = self.address.parameters
        if self.address.secrets or given.keys() - KNOWN or any(column.type == "BINARY" for column in columns):
            return None  # it takes these bytes for text
        try:
            from connectorx import read_sql
        except ModuleNotFoundError:
            return None
        with self._connected() as connection:  # it knows no TLS, so it goes where pymysql has none
            if self._asked(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]:
                return None
        user, password, database = (
            quote(str(each or ""), safe="") for each in (given.get("user"), self.address.password, given["database"])
        )
        url = f"mysql://{user}:{password}@{given.get('host') or 'localhost'}:{given.get('port') or 3306}/{database}"
        mode = [f"SET SESSION sql_mode = '{given['sql_mode']}'"] if given.get("sql_mode") else []

        def read(part: Part) -> Iterator[Any]:
            try:
                yield from read_sql(
                    url,
                    self._statement(columns, part),
                    return_type="arrow_stream",
                    batch_size=ROWS,
                    pre_execution_query=[PATIENCE, *mode],
                )
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # which is not an Exception
                    raise
                raise OSError(f"MariaDB could not be read to the end: {error}") from None

        return None if self._is_timed(columns) else read  # which needs two statements of one moment

    def _bounds_now(self) -> tuple[tuple[int, int] | None, str]:
        bounds, last = self.bounds(), super().checkpoint()
        return (bounds[0], last[0]) if bounds and last and bounds[0] <= last[0] else None, ""

    def checkpoint(self, after: Checkpoint = (), limit: int | None = None) -> Checkpoint:
        if self.is_of_replica:
            raise BadValue(
                f"a replica of MariaDB does not show which rows of the history of {self.name} are still to come: read "
                "a stream from the primary"
            )
        return super().checkpoint(after, limit)

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
        if limit is None and (settled := self._settled(connection, before, fresh)):
            end, before = settled, settled[0]
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

    def _settled(self, connection: Any, before: int, fresh: float) -> Checkpoint:
        """Return the last row of before `fresh` if no transaction has an uncommitted one up to it, else ().

        Each id below it belongs to a row by now, or to none for ever, and dirty reads count the uncommitted ones, too.
        """
        rows = f"FROM {self.relation} WHERE id > {before}"
        self._isolate(connection, "READ COMMITTED")
        last = self._asked(connection, f"SELECT id, at_us {rows} AND at_us <= {fresh:.0f} ORDER BY id DESC LIMIT 1")
        if not last:
            return ()
        sums = f"SELECT COUNT(*), SUM(id) {rows} AND id <= {last[0][0]}"
        committed = self._asked(connection, sums)
        self._isolate(connection, "READ UNCOMMITTED")
        return tuple(last[0]) if self._asked(connection, sums) == committed else ()

    @staticmethod
    def _isolate(connection: Any, isolation: str) -> None:
        connection.cursor().execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")

    def _of_ids(self, connection: Any, isolation: str, after: int, until: int) -> list[Any]:
        self._isolate(connection, isolation)
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
