"""The engines that xq can use, and where their databases are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from xq.adapters.sqlalchemy.asynchronous import engine_beside, listen, parameters_of
from xq.core.errors import ConfigurationError, shown

ENGINES: Mapping[str, str] = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "innodb", "mariadb": "innodb"}
PORTS: Mapping[str, int] = {"postgres": 5432, "innodb": 3306}
DRIVER_NAMES: Mapping[str, str] = {"sqlite": "pysqlite", "postgres": "psycopg", "innodb": "pymysql"}


def engine_of(given: Any) -> sa.Engine:
    """Return the engine that xq uses for what the application gives. Raises ConfigurationError."""
    if isinstance(given, AsyncEngine):
        return engine_beside(given)
    if not isinstance(given, sa.Engine):
        raise ConfigurationError(f"engine is an Engine or an AsyncEngine of SQLAlchemy, not {shown(given)}")
    name, driver = given.dialect.name, given.dialect.driver
    if name not in ENGINES:
        raise ConfigurationError(f"the engine is on {name}; xq speaks {', '.join(dict.fromkeys(ENGINES))}")
    wanted = DRIVER_NAMES[ENGINES[name]]
    if driver != wanted:
        raise ConfigurationError(
            f"the engine uses the driver {driver}: xq takes {wanted}, as in create_engine('{name}+{wanted}://...')"
        )
    listen(given)
    return given


def place_of(engine: sa.Engine) -> tuple[object, ...]:
    """Return where an engine's database is: the same for all drivers."""
    kept, kind = vars(engine.dialect), ENGINES[engine.dialect.name]
    if "_xq_place" not in kept and kind == "sqlite":
        name = engine.url.database or ":memory:"
        kept["_xq_place"] = (id(engine.dialect) if name == ":memory:" else os.path.abspath(name.removeprefix("file:")),)
    elif "_xq_place" not in kept:
        listen(engine)
        try:
            _, given = parameters_of(engine)
        except ConfigurationError:  # the URL of one with a function that connects is said to be right
            given = dict(engine.dialect.create_connect_args(engine.url)[1])
        aliases = [("unix_socket", "host"), ("port",), ("database", "dbname", "db")]
        host, port, database = (next((given[name] for name in names if given.get(name)), None) for names in aliases)
        kept["_xq_place"] = kind, host, str(port or PORTS[kind]), database
    place: tuple[object, ...] = kept["_xq_place"]
    return place
