"""Where a database is, as another process is told that has no model."""

from __future__ import annotations

import pickle
from functools import partial

import peewee as pw
import pytest

import xq
from tests.conftest import Maker


def upgraded(database: pw.Database) -> xq.Queue[pw.Model]:
    return xq.upgrade(Maker(database).model(), fields={"status": "status"})


POSTGRES, MARIADB = partial(pw.PostgresqlDatabase, prefer_psycopg3=True), pw.MySQLDatabase


@pytest.mark.parametrize(
    "database",
    [
        POSTGRES("app", user="me", password="secret"),
        POSTGRES("postgresql://me:secret@localhost/app"),
        MARIADB("app", user="me", password="secret"),
        MARIADB("app", user="me", password="secret", passwd="secret"),
    ],
)
def test_a_password_stands_apart_and_is_not_shown(database):
    address = upgraded(database).adapter.store.address()
    assert (address.password, address.parameters["user"]) == ("secret", "me")
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    ("database", "secrets"),
    [
        (POSTGRES("app", sslkey="of.key", sslpassword="secret"), {"sslpassword": "secret"}),
        (POSTGRES("postgresql://me@localhost/app?sslpassword=secret"), {"sslpassword": "secret"}),
        (MARIADB("app", ssl_key="of.key", ssl_key_password="secret"), {"ssl_key_password": "secret"}),
        (MARIADB("app", ssl={"password": "secret"}), {"ssl": {"password": "secret"}}),
    ],
)
def test_what_else_is_secret_stands_apart_and_what_is_shown_is_without_it(database, secrets):
    address = upgraded(database).adapter.store.address()
    assert address.secrets == secrets
    assert "secret" not in repr(address)
    assert b"secret" not in pickle.dumps(dict(address.shown.parameters))
    assert pickle.loads(pickle.dumps(address)) == address
    assert (address.shown.password, address.shown.secrets) == (None, {})


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory"])
def test_what_is_in_memory_has_no_address(name):
    with pytest.raises(xq.ConfigurationError, match="in memory, where no other process sees it: use a file"):
        upgraded(pw.SqliteDatabase(name)).adapter.store.address()
