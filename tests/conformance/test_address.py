"""Where a database is, as another process is told that has no model."""

from __future__ import annotations

import pickle
from contextlib import closing

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from xq.adapters.drivers import connect
from xq.store import Address


def upgraded(database: pw.Database) -> xq.Queue[pw.Model]:
    return xq.upgrade(Maker(database, None).model(), fields={"status": "status"})


def test_what_a_model_writes_is_read_by_a_plain_connection_to_its_address(make_shared):
    Task = make_shared()
    Task.put({"name": "here"})
    address = pickle.loads(pickle.dumps(Task.xq.store.address()))
    with closing(connect(address)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM task")
        assert [*cursor.fetchall()] == [("here",)]


@pytest.mark.parametrize(
    "database",
    [
        pw.PostgresqlDatabase("app", user="me", password="secret", prefer_psycopg3=True),
        pw.PostgresqlDatabase("postgresql://me:secret@localhost/app", prefer_psycopg3=True),
        pw.MySQLDatabase("app", user="me", password="secret"),
    ],
)
def test_a_password_stands_apart_and_is_not_shown(database):
    address = upgraded(database).store.address()
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
    address = upgraded(database).store.address()
    assert address.secrets == secrets
    assert "secret" not in repr(address)
    assert b"secret" not in pickle.dumps(dict(address.shown.parameters))
    assert pickle.loads(pickle.dumps(address)) == address
    assert (address.shown.password, address.shown.secrets) == (None, {})


def test_a_password_that_is_given_twice_is_shown_in_neither_place():
    database = pw.MySQLDatabase("app", password="secret", passwd="secret")
    address = upgraded(database).store.address()
    assert address.password == "secret"
    assert "secret" not in repr(address)


def test_what_is_secret_reaches_the_driver(make_shared):
    Task = make_shared()
    address = Task.xq.store.address()
    name = next(iter({"timeout", "user"} & address.parameters.keys()))
    public = {key: value for key, value in address.parameters.items() if key != name}
    hidden = Address(address.engine, public, address.password, {name: address.parameters[name]})
    with closing(connect(hidden)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM task")
        assert [*cursor.fetchall()] == [(0,)]


@pytest.mark.parametrize("name", [":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory"])
def test_what_is_in_memory_has_no_address(name):
    with pytest.raises(xq.ConfigurationError, match="in memory, where no other process sees it: use a file"):
        upgraded(pw.SqliteDatabase(name)).store.address()
