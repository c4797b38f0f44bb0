"""Export batches on PostgreSQL."""

from __future__ import annotations

from xq.adapters.databases.exports import EXPORT_BATCH, Exports


class PostgresExports(Exports):
    """The exports of PostgreSQL. Each write of a row makes a new version of it."""

    drop_batch = f"DROP TABLE IF EXISTS pg_temp.{EXPORT_BATCH}"
    version = "CAST(t.xmin AS text)"
    same_version = " AND CAST(t.xmin AS text) = b.version"
    watermark_xid = "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
    lock = " FOR UPDATE OF t"

    @property
    def types(self) -> str:  # type: ignore[override]
        return (
            "SELECT attname, format_type(atttypid, atttypmod), CAST(attcollation AS bigint) FROM pg_attribute "
            f"WHERE attrelid = to_regclass({self.of.literal(self.of.table_in_schema)}) "
            "AND attnum > 0 AND NOT attisdropped"
        )

    @property
    def close(self) -> str:  # type: ignore[override]
        return f"LOCK TABLE {self.table} IN ACCESS EXCLUSIVE MODE"

    def analyzed(self) -> list[str]:
        return [
            f"CREATE UNIQUE INDEX xq_export_batch_n ON {EXPORT_BATCH} (n)",
            f"CREATE INDEX xq_export_batch_key ON {EXPORT_BATCH} (stored_key)",
            f"ANALYZE {EXPORT_BATCH}",
        ]
