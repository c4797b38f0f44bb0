"""Servers and drivers that are refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xq.adapters.drivers import DRIVERS
from xq.core.errors import ConfigurationError


def postgres(version: int, **status: str) -> Any:
    info = SimpleNamespace(server_version=version, parameter_status=status.get)
    return SimpleNamespace(pgconn=None, info=info)


def mariadb(version: str) -> Any:
    return SimpleNamespace(server_version=version, server_status=2)


REFUSED: list[tuple[str, Any, str]] = [
    ("postgres", postgres(120_022), "needs PostgreSQL 13 or later, this is 120022"),
    ("postgres", postgres(130_000, crdb_version="CockroachDB v23.1"), "this is CockroachDB v23"),
    ("postgres", object(), "psycopg 3, this is a connection of builtins"),
    ("mariadb", mariadb("8.0.36"), "MariaDB 10.6 or later, this is MySQL 8.0.36"),
    ("mariadb", mariadb("5.5.5-10.5.23-MariaDB-log"), "MariaDB 10.6 or later, this is"),
    ("mariadb", object(), "through pymysql, this is a connection of builtins"),
]


@pytest.mark.parametrize(("driver", "connection", "words"), REFUSED)
def test_an_old_server_another_one_and_another_driver_are_refused_by_name(driver, connection, words):
    with pytest.raises(ConfigurationError, match=words):
        DRIVERS[driver].check(connection)
    DRIVERS["mariadb"].check(mariadb("5.5.5-10.11.6-MariaDB-1"))
