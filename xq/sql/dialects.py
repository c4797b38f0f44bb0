"""The databases' dialects, by engine name."""

from __future__ import annotations

from collections.abc import Mapping

from xq.sql.dialect import Dialect
from xq.sql.mariadb.mariadb_dialect import Mariadb
from xq.sql.mysql.mysql_dialect import Mysql
from xq.sql.postgres.postgres_dialect import Postgres
from xq.sql.shared import SharedSql
from xq.sql.sqlite.sqlite_dialect import Sqlite

DIALECTS: Mapping[str, type[Dialect]] = {each.database: each for each in (Sqlite, Postgres, Mariadb, Mysql)}
# The SQL for the tables that all queues in a database share.
SHARED: Mapping[str, type[SharedSql]] = {engine: kind.shared_kind for engine, kind in DIALECTS.items()}
