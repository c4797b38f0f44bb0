"""The classes of Peewee by which an application may have its database, its schemas, and the columns it may have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import peewee as pw
import pytest
from playhouse.cockroachdb import CockroachDatabase

from xq.adapters.drivers import DRIVERS
from xq.core.errors import ConfigurationError


def _connected(version: int, **status: str) -> Any:
    info = SimpleNamespace(server_version=version, parameter_status=status.get)
    return SimpleNamespace(pgconn=None, info=info)


def test_postgresql_12_and_what_speaks_as_postgresql_does_and_is_another_are_refused():
    with pytest.raises(ConfigurationError, match="needs PostgreSQL 13 or later, this is 120022"):
        DRIVERS["postgres"].check(_connected(120_022))
    assert issubclass(CockroachDatabase, pw.PostgresqlDatabase)
    with pytest.raises(ConfigurationError, match="this is CockroachDB v23"):
        DRIVERS["postgres"].check(_connected(130_000, crdb_version="CockroachDB v23.1"))


def test_mysql_another_driver_and_an_old_mariadb_are_refused_and_a_new_one_is_taken_for_what_it_is():
    for version, words in (
        ("8.0.36", "MariaDB 10.6 or later, this is MySQL 8.0.36"),
        ("10.5.23-MariaDB", "MariaDB 10.6 or later, this is 10.5.23"),
        ("5.5.5-10.5.23-MariaDB-log", "MariaDB 10.6 or later, this is"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            DRIVERS["mariadb"].check(SimpleNamespace(server_version=version, server_status=2))
    with pytest.raises(ConfigurationError, match="through pymysql, this is a connection of builtins"):
        DRIVERS["mariadb"].check(object())
    DRIVERS["mariadb"].check(SimpleNamespace(server_version="5.5.5-10.11.6-MariaDB-1", server_status=2))
