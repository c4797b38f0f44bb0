"""What an ORM's migrations and its own connections ask and change in a database."""

from __future__ import annotations

from xq.sql.shared import QUEUES

RECORDS = f"SELECT name, fingerprint FROM {QUEUES}"  # the queues' definitions
# on SQLite
OF_TABLE = "SELECT name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('index', 'trigger')"
# on PostgreSQL, also of the tables that refer to it
TRIGGERS_OF = """
    SELECT relname, tgname, format('DROP TRIGGER %%I ON %%s', tgname, tgrelid::regclass), pg_get_triggerdef(t.oid)
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = tgrelid
    WHERE NOT tgisinternal AND to_regclass(%s) IN (
        SELECT tgrelid UNION SELECT confrelid FROM pg_constraint WHERE contype = 'f' AND conrelid = tgrelid)
"""
# on PostgreSQL, the schemas of the search_path, and those in which it finds a table and the records of queues
SEARCH_PATH = "SELECT current_schemas(FALSE)"
_SCHEMA = """(SELECT nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE c.oid = to_regclass({}))"""
SCHEMAS = f"SELECT {_SCHEMA.format('%s')}, {_SCHEMA.format(repr(QUEUES))}"
WAL = "PRAGMA journal_mode = WAL"


def beside_writers(sql: str, table: str) -> str:
    """Return PostgreSQL's index on a table, built while others write; "" for other SQL."""
    is_index = sql.startswith(("CREATE INDEX", "CREATE UNIQUE INDEX")) and f'"{table}" (' in sql
    return sql.replace("INDEX", "INDEX CONCURRENTLY", 1) if is_index else ""
