"""What migrations of an ORM ask and change in a database."""

from __future__ import annotations

from xq.adapters.databases.shared import QUEUES

RECORDS = f"SELECT name, fingerprint FROM {QUEUES}"  # the queues' definitions
# on SQLite
OF_TABLE = "SELECT name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('index', 'trigger')"
WAL = "PRAGMA journal_mode = WAL"


def beside_writers(sql: str, table: str) -> str:
    """Return PostgreSQL's index on a table, built while others write; "" for other SQL."""
    is_index = sql.startswith(("CREATE INDEX", "CREATE UNIQUE INDEX")) and f'"{table}" (' in sql
    return sql.replace("INDEX", "INDEX CONCURRENTLY", 1) if is_index else ""
