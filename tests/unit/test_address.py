"""Where a database is, as another process is told that has no model."""

from __future__ import annotations

import pickle

import peewee as pw
import pytest

import xq
from tests.conftest import Maker


def upgraded(database: pw.Database) -> xq.Queue[pw.Model]:
    return xq.upgrade(Maker(database).model(), fields={"status": "status"})


@pytest.mark.parametrize(
    "database",
    [
        pw.PostgresqlDatabase("app", user="me", password="secret", prefer_psycopg3=True),
        pw.PostgresqlDatabase("postgresql://me:secret@localhost/app", prefer_psycopg3=True),
        pw.MySQLDatabase("app", user="me", password="secret"),
    ],
)
def test_a_password_stands_apart_and_is_not_shown(database):
    address = upgraded(database).adapter.store.address()
    assert (address.password, address.parameters["user"]) == ("secret", "me")
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    ("database", "secrets"),
    [
        (
            pw.PostgresqlDatabase("app", sslkey="of.key", sslpassword="secret", prefer_psycopg3=True),
            {"sslpassword": "secret"},
        ),
        (
            pw.PostgresqlDatabase("postgresql://me@localhost/app?sslpassword=secret", prefer_psycopg3=True),
            {"sslpassword": "secret"},
        ),
        (
            pw.MySQLDatabase("app", ssl_key="of.key", ssl_key_password="secret"),
            {"ssl_key_password": "secret"},
        ),
        (
            pw.MySQLDatabase("app", ssl={"key": "of.key", "password": "secret"}),
            {"ssl": {"key": "of.key", "password": "secret"}},
        ),
    ],
)
def test_what_else_is_secret_stands_apart_and_what_is_shown_is_without_it(database, secrets):
    address = upgraded(database).adapter.store.address()
    assert address.secrets == secrets
    assert "secret" not in repr(address)
    assert b"secret" not in pickle.dumps(dict(address.shown.parameters))
    assert pickle.loads(pickle.dumps(address)) == address
    assert (address.shown.password, address.shown.secrets) == (None, {})


def test_a_password_that_is_given_twice_is_shown_in_neither_place():
    database = pw.MySQLDatabase("app", password="secret", passwd="secret")
    address = upgraded(database).adapter.store.address()
    assert address.password == "secret"
    assert "secret" not in repr(address)


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory"])
def test_what_is_in_memory_has_no_address(name):
    with pytest.raises(xq.ConfigurationError, match="in memory, where no other process sees it: use a file"):
        upgraded(pw.SqliteDatabase(name)).adapter.store.address()
