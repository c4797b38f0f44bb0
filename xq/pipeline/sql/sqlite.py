"""A queue's extracts on SQLite, as other processes read them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from xq.core.connections import Address
from xq.core.errors import ConfigurationError
from xq.core.kinds import Field
from xq.pipeline.scan import WHOLE, Checkpoint, Extract, Extracted, Part, What
from xq.pipeline.sql.readers import ROWS, ExtractReader
from xq.pipeline.sql.scans import Scans


class SqliteReader(ExtractReader):
    """Reads extracts from a file, which has one writer at a time: rows appear in id order."""

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        path = self.address.parameters["database"]
        if not path.startswith("file:") and not os.path.exists(path):
            raise ConfigurationError(f"there is no file {path} on this machine: a file is read where it is")
        with super()._connected() as connection:
            connection.execute("PRAGMA query_only = 1")
            yield connection

    def _stored(self, columns: Sequence[Extracted], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._connected() as connection:
            connection.execute("BEGIN")  # one moment for all statements
            cursor = connection.execute(self._select(connection, columns, part))
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _below_watermark(self, connection: Any, after: Checkpoint, limit: int | None) -> Checkpoint:
        until = self._row(connection, WHOLE, "DESC")
        return self._cut(connection, after, limit, until) if limit and until > after else until


class SqliteScans(Scans):
    reading = SqliteReader
    key_in_history = "CAST({} AS TEXT)"  # the history's column converts it to text by itself

    def of(self, what: What, name: str, address: Address, states: str) -> Extract:
        schema = self.dialect.source.schema
        if schema.lower() not in ("", "main"):
            raise ConfigurationError(
                f"{name} is in the attached database {schema!r}, of which other processes know nothing: "
                "open that file as the model's own database"
            )
        return super().of(what, name, address, states)

    def stored(self, field: Field, sql: str, kind: str) -> tuple[str, str]:
        if field.kind == "uuid":
            return self.dialect.dashed(sql), kind
        if kind == "STRING":
            return sql if field.kind == "text" else f"CAST({sql} AS TEXT)", kind
        if field.kind == "decimal":  # kept as a number, whose text would have 15 digits
            sql = f"CASE TYPEOF({sql}) WHEN 'real' THEN PRINTF('%!.17g', {sql}) ELSE CAST({sql} AS TEXT) END"
        stored = {"BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "BOOLEAN": "BIGINT", "BINARY": "BINARY"}
        return sql, stored.get(kind, "STRING")
