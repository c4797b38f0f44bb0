"""The SQL that pipelines alone run: extracts, and the tables beside a queue that other processes write."""

from xq.pipeline.sql.mariadb import MariadbScans
from xq.pipeline.sql.postgres import PostgresScans
from xq.pipeline.sql.sqlite import SqliteScans

SCANS = {"sqlite": SqliteScans, "postgres": PostgresScans, "mariadb": MariadbScans}  # by the engine of a store
