"""The classes of Peewee by which an application may have its database, its schemas, and the columns it may have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import peewee as pw
import pytest
from playhouse.cockroachdb import CockroachDatabase

from tests.support import databases as support
from xq.adapters.drivers import DRIVERS
from xq.core.errors import ConfigurationError

postgres = support.postgres


def _connected(version: int, **status: str) -> Any:
    info = SimpleNamespace(server_version=version, parameter_status=status.get)
    return SimpleNamespace(pgconn=None, info=info)


def test_postgresql_12_is_refused():
    with pytest.raises(ConfigurationError, match="needs PostgreSQL 13 or later, this is 120022"):
        DRIVERS["postgres"].check(_connected(120_022))


def test_what_speaks_as_postgresql_does_and_is_another_is_refused():
    assert issubclass(CockroachDatabase, pw.PostgresqlDatabase)
    with pytest.raises(ConfigurationError, match="this is CockroachDB v23"):
        DRIVERS["postgres"].check(_connected(130_000, crdb_version="CockroachDB v23.1"))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("8.0.36", "MariaDB 10.6 or later, this is MySQL 8.0.36"),
        ("10.5.23-MariaDB", "MariaDB 10.6 or later, this is 10.5.23"),
        ("5.5.5-10.5.23-MariaDB-log", "MariaDB 10.6 or later, this is"),
    ],
)
def test_mysql_and_an_old_mariadb_are_refused(version, words):
    with pytest.raises(ConfigurationError, match=words):
        DRIVERS["mariadb"].check(SimpleNamespace(server_version=version, server_status=2))


def test_a_mariadb_that_names_an_old_version_first_is_taken_for_what_it_is():
    DRIVERS["mariadb"].check(SimpleNamespace(server_version="5.5.5-10.11.6-MariaDB-1", server_status=2))


def test_another_driver_of_mariadb_than_pymysql_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="through pymysql, this is a connection of builtins"):
        DRIVERS["mariadb"].check(object())
