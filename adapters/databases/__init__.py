"""The SQL of xq, and all of it: a class for each database."""

from __future__ import annotations

from collections.abc import Mapping

from xq.adapters.databases.mariadb import Mariadb
from xq.adapters.databases.postgres import Postgres
from xq.adapters.databases.sql import Dialect
from xq.adapters.databases.sqlite import Sqlite

DIALECTS: Mapping[str, type[Dialect]] = {"sqlite": Sqlite, "postgres": Postgres, "mariadb": Mariadb}
