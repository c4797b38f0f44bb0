"""What another process is told that has no model: where a database is, and how a frame is stored in its fields."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from xq.adapters.peewee.urls import database
from xq.core.kinds import Field
from xq.pipeline.frames import as_stored, type_of


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
    address = upgraded(database).parts.store.address()
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
    address = upgraded(database).parts.store.address()
    assert address.secrets == secrets
    assert "secret" not in repr(address)
    assert b"secret" not in pickle.dumps(dict(address.shown.parameters))
    assert pickle.loads(pickle.dumps(address)) == address
    assert (address.shown.password, address.shown.secrets) == (None, {})


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql+asyncpg", pw.PostgresqlDatabase),
        ("postgresql+psycopg2", pw.PostgresqlDatabase),
        ("postgresql+pool", pw.PostgresqlDatabase),
        ("mysql+asyncmy", pw.MySQLDatabase),
        ("mariadb+mysqldb", pw.MySQLDatabase),
        ("mariadb+pool", pw.MySQLDatabase),
    ],
)
def test_a_url_of_sqlalchemy_names_a_database_whatever_its_driver(url, kind):
    found = database(f"{url}://me:secret@host:99/app")
    assert (isinstance(found, kind), hasattr(found, "_max_connections")) == (True, url.endswith("pool"))
    assert (found.database, found.connect_params["host"], found.connect_params["port"]) == ("app", "host", 99)


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory"])
def test_what_is_in_memory_has_no_address(name):
    with pytest.raises(xq.ConfigurationError, match="in memory, where no other process sees it: use a file"):
        upgraded(pw.SqliteDatabase(name)).parts.store.address()


def field(declared: str) -> Field:
    return Field("field", "field", "other", declared, True, None, str, None, None)


@pytest.mark.parametrize(
    ("declared", "spark", "value", "stored", "wrong"),
    [
        *(
            (declared, "BINARY", bytearray(b"\0"), b"\0", "text")
            for declared in ("BLOB", "BYTEA", "BINARY(16)", "VARBINARY(16)", "MEDIUMBLOB", "LONGBLOB")
        ),
        *((declared, "BIGINT", 5.0, 5, 5.5) for declared in ("INT", "INTEGER", "SMALLINT", "BIGINT")),
        ("BOOL", "BOOLEAN", 1, True, 2),
        ("JSON", "STRING", {"a": 1}, '{"a":1}', "{"),
    ],
)
def test_what_a_column_is_read_as_it_is_written_as(
    declared: str, spark: str, value: Any, stored: Any, wrong: Any
) -> None:
    assert type_of(field(declared)) == spark
    (found,) = as_stored("Page", field(declared), [value])
    assert (type(found), found) == (type(stored), stored)
    assert as_stored("Page", field(declared), [None, stored]) == [None, stored]
    with pytest.raises(xq.Error, match="'field' of Page cannot hold"):
        as_stored("Page", field(declared), [wrong])
