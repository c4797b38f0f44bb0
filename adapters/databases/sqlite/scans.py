"""Extracts of a queue on SQLite, as other processes read them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar

from xq.adapters.databases.named import by_position
from xq.adapters.databases.readers import ROWS, ExtractReader
from xq.adapters.databases.scans import Scans
from xq.adapters.databases.terms import parts_of_uuid
from xq.core.errors import ConfigurationError
from xq.core.ports import Address, Field
from xq.pipeline.frames import type_of
from xq.pipeline.scan import WHOLE, Checkpoint, Column, Extract, Part, What

NUMBERS = ("BIGINT", "DOUBLE")


class SqliteReader(ExtractReader):
    """Of a file: one writer at a time, so rows are there in the order of their ids."""

    placeholder_of_driver = "?"
    _begin = "PRAGMA case_sensitive_like = 1"
    EMPTY: ClassVar[Mapping[str, str]] = {"BIGINT": "0", "DOUBLE": "0.0", "BINARY": "x'00'"}

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        path = self.address.parameters["database"]
        if not path.startswith("file:") and not os.path.exists(path):
            raise ConfigurationError(f"there is no file {path} on this machine: a file is read where it is")
        with super()._connected() as connection:
            connection.execute("PRAGMA query_only = 1")
            yield connection

    def _stored(self, columns: Sequence[Column], part: Part) -> Iterator[Sequence[tuple[Any, ...]]]:
        with self._connected() as connection:
            connection.execute("BEGIN")  # one moment for all statements
            cursor = connection.execute(*self._prepared(connection, columns, part))
            while rows := cursor.fetchmany(ROWS):
                yield rows

    def _batches(self, columns: Sequence[Column], part: Part) -> Iterator[Any] | None:
        if not find_spec("adbc_driver_sqlite") or self._is_windowed(columns, part):
            return None
        sql, named = self._statement(columns, part)
        # The driver takes the types from the first rows, which may all be NULL.
        typed = ", ".join(self.EMPTY.get(column.stored, "''") for column in columns)
        text, order = by_position(f"SELECT {typed} UNION ALL {sql}", "?")
        return self._by_adbc(text, [named[name] for name in order], [column.name for column in columns])

    def _by_adbc(self, sql: str, values: Sequence[Any], names: Sequence[str]) -> Iterator[Any]:
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

    def _below_watermark(self, connection: Any, after: Checkpoint, limit: int | None) -> Checkpoint:
        until = self._row(connection, WHOLE, "DESC")
        return self._cut(connection, after, limit, until) if limit and until > after else until


class SqliteScans(Scans):
    reading = SqliteReader
    key_in_history = "CAST({} AS TEXT)"  # the column of the history makes text of it by itself

    def of(self, what: What, name: str, address: Address, snapshot: str) -> Extract:
        schema = self.dialect.source.schema
        if schema.lower() not in ("", "main"):
            raise ConfigurationError(
                f"{name} is in the attached database {schema!r}, of which other processes know nothing: "
                "open that file as the model's own database"
            )
        return super().of(what, name, address, snapshot)

    def _column(self, field: Field) -> Column:
        sql, kind = self.dialect.quote(field.column), type_of(field)
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

    def _exact_text(self, sql: str) -> str:
        return sql
