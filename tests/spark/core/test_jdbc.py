"""Where JDBC finds the database of a queue."""

from __future__ import annotations

import peewee as pw
import pytest

import xq
from tests.conftest import live
from xq.adapters.spark.jdbc import reached


def place(database: pw.Database) -> dict[str, str]:
    model = live(database).model()
    return reached(xq.upgrade(model, fields={"status": "status"}).adapter.store.address())


@pytest.mark.parametrize(
    "database",
    [
        pw.PostgresqlDatabase("app", host="/var/run/postgresql", prefer_psycopg3=True),
        pw.MySQLDatabase("app", unix_socket="/run/mysqld/mysqld.sock"),
    ],
)
def test_a_server_behind_a_socket_is_not_reached_by_jdbc(database):
    with pytest.raises(
        xq.ConfigurationError, match=r"JDBC cannot reach the server by its socket /.*: give the model's"
    ):
        place(database)


@pytest.mark.parametrize(
    ("database", "url"),
    [
        (pw.SqliteDatabase("/srv/my app?.db"), "jdbc:sqlite:file:/srv/my%20app%3F.db?mode=rw"),
        (
            pw.PostgresqlDatabase("a/b", host="::1", port=6000, sslmode="require", prefer_psycopg3=True),
            "jdbc:postgresql://[::1]:6000/a%2Fb?sslmode=require",
        ),
        (
            pw.PostgresqlDatabase("postgresql://me@one,two/app?options=-csearch_path%3Dx", prefer_psycopg3=True),
            "jdbc:postgresql://one:5432,two:5432/app?options=-csearch_path%3Dx",
        ),
        (pw.MySQLDatabase("app", host="db", port=3307), "jdbc:mariadb://db:3307/app"),
    ],
)
def test_a_database_has_an_address_for_java(database, url):
    assert place(database)["url"] == url
