"""Export batches on SQLite."""

from __future__ import annotations

from xq.adapters.databases.exports import EXPORT_BATCH, NUMBER, RUN, SUFFIX, Exports


class SqliteExports(Exports):
    """The exports of SQLite. It has one writer at a time, so the rows that a run has read do not change."""

    join = "CROSS JOIN"
    drop_batch = f"DROP TABLE IF EXISTS temp.{EXPORT_BATCH}"

    @property
    def types(self) -> str:  # type: ignore[override]
        source = self.of.source
        there = f"{self.of.literal(source.name)}, {self.of.literal(source.schema or 'main')}"
        return f"SELECT name, type FROM pragma_table_xinfo({there})"

    @property
    def close(self) -> str:  # type: ignore[override]
        return f"DELETE FROM {self.table} WHERE 1 = 0"

    def as_text(self, stored_key: str) -> str:
        return f"CAST({stored_key} AS TEXT)"

    def made(self) -> list[str]:
        table, index = self.of.quote(self.name), self.of.object(self.of.name(f"{SUFFIX}_key"))
        return [super().made()[0], f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {table} ({RUN}, {NUMBER})"]

    def analyzed(self) -> list[str]:
        return [
            f"CREATE UNIQUE INDEX temp.xq_export_batch_n ON {EXPORT_BATCH} (n)",
            f"CREATE INDEX temp.xq_export_batch_key ON {EXPORT_BATCH} (stored_key)",
        ]

    @property
    def stays(self) -> str:  # type: ignore[override]
        # SQLite generates the highest key plus one, and must not reuse the key of an archived task.
        (key, *more), (field, *_) = self.of.keys, self.of.source.key
        if more or field.kind not in ("auto", "bigauto"):
            return ""
        return f" AND t.{key} < (SELECT MAX({key}) FROM {self.of.table_in_schema})"
