"""SQL for pipelines alone: extracts, and the tables beside a queue that other processes write."""

from __future__ import annotations

from collections.abc import Mapping

from xq.pipeline.sql.mariadb import MariadbScans
from xq.pipeline.sql.postgres import PostgresScans
from xq.pipeline.sql.scans import Scans
from xq.pipeline.sql.sqlite import SqliteScans

# By the store's engine.
SCANS: Mapping[str, type[Scans]] = {"sqlite": SqliteScans, "postgres": PostgresScans, "innodb": MariadbScans}
