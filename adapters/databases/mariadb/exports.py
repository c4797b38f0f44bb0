"""Export batches on MariaDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from xq.adapters.databases.exports import DONE_AT, EXPORT_BATCH, LONGEST, NUMBER, RUN, Exports
from xq.core.compile import Statement
from xq.core.errors import ConfigurationError
from xq.core.ports import Connections


class MariadbExports(Exports):
    """The exports of MariaDB. A SELECT within an INSERT locks what it reads, except under READ COMMITTED."""

    temporary = "CREATE TEMPORARY TABLE"
    drop_batch = f"DROP TEMPORARY TABLE IF EXISTS {EXPORT_BATCH}"
    join = "STRAIGHT_JOIN"
    one_more = "value = value + 1"
    looks_ahead = True
    lock = " FOR UPDATE"

    @property
    def keyed(self) -> str:  # type: ignore[override]
        key = f"stored_key {self.of.varying(LONGEST + 1)}"
        return f" (n BIGINT DEFAULT 0 PRIMARY KEY, {key}, INDEX (stored_key)){self.of.engine}"

    # The history stores no more characters of a key than this, so it cannot name a longer one.
    stays = f" AND CHAR_LENGTH(b.stored_key) <= {LONGEST}"

    def as_text(self, stored_key: str) -> str:
        return f"LEFT({stored_key}, {LONGEST + 1})"

    @property
    def types(self) -> str:  # type: ignore[override]
        schema = self.of.literal(self.of.source.schema) if self.of.source.schema else "DATABASE()"
        return (
            "SELECT column_name, column_type, collation_name FROM information_schema.columns "
            f"WHERE table_schema = {schema} AND table_name = {self.of.literal(self.of.source.name)}"
        )

    def made(self) -> list[str]:
        own = f"{RUN} {self.of.varying(64)} DEFAULT '', {NUMBER} BIGINT DEFAULT 0, {DONE_AT} BIGINT"
        return [
            f"CREATE TABLE IF NOT EXISTS {self.table} ({own}, PRIMARY KEY ({RUN}, {NUMBER})){self.of.engine} "
            f"AS SELECT {self.of.columns} FROM {self.of.table_in_schema} LIMIT 0"
        ]

    @contextmanager
    def closed(self, store: Connections) -> Iterator[None]:
        if store.in_transaction():
            raise ConfigurationError("MariaDB ends a transaction where a table is dropped: do it outside of it")
        store.execute(f"LOCK TABLES {self.table} WRITE")
        try:
            yield
        finally:
            store.execute("UNLOCK TABLES")

    def prepare(self, store: Connections) -> None:
        store.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def refuse_misfits(self, store: Connections) -> None:
        store.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")

    def forget_old(self, watermark: Mapping[str, Any]) -> str:
        # LIMIT keeps MariaDB from reading, and waiting for, the row after them.
        return f"{super().forget_old(watermark)} ORDER BY id LIMIT :many"

    def look_ahead(self, store: Connections) -> None:
        store.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")

    def those(self, numbers: Iterable[int], keys: Sequence[Sequence[Any]]) -> tuple[str, dict[str, Any]]:
        # By keys: with a subquery MariaDB would read, and lock, the whole table.
        named = {f"k{i}_{j}": part for i, key in enumerate(keys) for j, part in enumerate(key)}
        listed = (", ".join(f":k{i}_{j}" for j in range(len(self.of.keys))) for i in range(len(keys)))
        return f"{self.of.key} IN ({', '.join(f'({one})' for one in listed)})", named

    def take_out(self, numbers: Iterable[int], keys: Sequence[Sequence[Any]]) -> tuple[Statement, Mapping[str, Any]]:
        those, values = self.those(numbers, keys)
        return Statement(
            f"DELETE FROM {self.of.table_in_schema} WHERE {those} AND {self.of.sets_context} "  # type: ignore[attr-defined]
            f"RETURNING {self.of.columns}"
        ), values
