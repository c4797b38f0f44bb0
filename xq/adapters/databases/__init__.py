"""All SQL of xq: a dialect for each database."""

from __future__ import annotations

from collections.abc import Mapping

from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.mariadb.dialect import Mariadb
from xq.adapters.databases.postgres.dialect import Postgres
from xq.adapters.databases.sqlite.dialect import Sqlite

DIALECTS: Mapping[str, type[Dialect]] = {"sqlite": Sqlite, "postgres": Postgres, "mariadb": Mariadb}
