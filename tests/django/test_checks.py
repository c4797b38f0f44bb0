"""What `manage.py check` says of queues."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest
from django.core.checks import ERROR, run_checks
from django.db import connection
from django.test import override_settings

import xq
from tests.django.apps import installed
from tests.django.conftest import one_more
from tests.django.test_migrations import FIELDS, SECOND, order
from xq.runtime.threads import leave


@pytest.fixture
def app(django_db, tmp_path):
    with installed(tmp_path / "apps") as found:
        yield found


def told(databases=None):
    """The checks of xq's own: their names, and what they say."""
    found = run_checks(tags=["xq", "database"], databases=databases)
    return {message.id: f"{message.msg} ({message.hint})" for message in found if message.id.startswith("xq.")}


def test_a_queue_is_told_of_that_its_migrations_install_otherwise_than_its_model_says(app):
    command = f"manage.py xq_makemigration {app.label}.Order"
    for text, id, words in (
        (order(), "xq.E001", ""),
        (order(SECOND), "xq.E002", "the feature 'keep' is off there and on here"),
        (order(features=None), "xq.W006", ""),
    ):
        app.models(text)
        app.run("makemigrations", app.label)
        found = told()
        assert list(found) == [id]
        assert command in found[id]
        assert words in found[id]
        app.make_queue_migration()
        assert told() == {}
    with override_settings(XQ={"WORKERS": "many"}):
        assert "XQ['WORKERS'] is a number" in told()["xq.E004"]
    app.models(order(more="class Meta:\n        managed = False"))  # whose table is nobody's to migrate
    assert told() == {}


def test_nobody_is_kept_from_making_the_migrations_that_come_first(app):
    app.models(order())
    assert told() == {}
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.models(
        order(SECOND, fields={**FIELDS, "tube": "tube"}, more="tube = models.CharField(max_length=9, null=True)")
    )
    assert told() == {}
    app.run("makemigrations", app.label)
    assert list(told()) == ["xq.E002"]


def test_what_is_missing_in_a_database_is_told_where_the_databases_are_asked(app):
    app.models(order())
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    assert told(["default"]) == {}  # Django tells that migrations are to be run
    app.migrate()
    assert told(["default"]) == {}
    app.Order.xq.adapter.installation.take_down()
    assert told() == {}
    found = told(["default"])
    assert list(found) == ["xq.W003"]
    assert f"the trigger {app.label}_order_xq_insert is missing" in found["xq.W003"]
    found = run_checks(tags=["database"], databases=["default"])
    assert not any(message.is_serious(ERROR) for message in found)  # or migrate, which mends it, would not begin
    app.migrate()
    assert told(["default"]) == {}


@pytest.fixture
def backend(tmp_path, monkeypatch):
    """Makes an alias "own", of a backend as Django's with something else in it."""
    with ExitStack() as stack:

        def make(engine, **other):
            name = f"backend{next(_backends)}"
            (tmp_path / name).mkdir()
            (tmp_path / name / "base.py").write_text(BACKEND.format(engine=engine, other=other))
            monkeypatch.syspath_prepend(tmp_path)
            return stack.enter_context(one_more("own", {"ENGINE": name, "NAME": "own"}))

        yield make


_backends = itertools.count(1)
BACKEND = """
import sqlite3
from types import ModuleType
from django.db.backends.{engine}.base import DatabaseWrapper as Djangos

class DatabaseWrapper(Djangos):
    vendor = {other}.get("vendor", Djangos.vendor)
    Database = ModuleType({other}["driver"]) if "driver" in {other} else Djangos.Database

    def connect(self):
        self.connection = sqlite3.connect(":memory:")
"""


@pytest.mark.parametrize(
    ("engine", "driver", "words", "hint"),
    [
        ("postgresql", "psycopg2", "by psycopg2, and xq speaks through psycopg", "pip install psycopg"),
        ("mysql", "MySQLdb", "by MySQLdb, and xq speaks through pymysql", "pymysql.install_as_MySQLdb()"),
    ],
)
def test_a_driver_that_xq_does_not_speak_through_is_told_of_with_the_one_it_does(
    app, backend, engine, driver, words, hint
):
    backend(engine, driver=driver)
    app.models(order(using="own"))
    found = told()
    assert list(found) == ["xq.E005"]
    assert words in found["xq.E005"]
    assert hint in found["xq.E005"]
    with pytest.raises(xq.ConfigurationError, match=f"this is a connection of sqlite3: .*{hint[:12]}"):
        app.Order.take()


def test_a_database_that_xq_does_not_speak_may_be_there_and_hold_no_queue(app, backend):
    app.models(order())
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    backend("sqlite3", vendor="oracle")
    assert told(["own"]) == {}
    with pytest.raises(xq.ConfigurationError, match="is on oracle; xq speaks sqlite, postgresql, mysql"):
        app.models(order(using="own"))


@pytest.mark.parametrize("django_db", ["mariadb"], indirect=True)
def test_a_name_that_the_database_cannot_hold_is_told_of_whether_it_is_asked_or_not(app):
    app.models(order(more="class Meta:\n        db_table = 'x\U0001f511'"))
    app.run("makemigrations", app.label)
    found, unfit = [list(told(databases)) for databases in (None, ["default"])], app.Order
    leave(unfit.xq.adapter.store.database)
    app.forget("0001_initial")
    app.models(order())
    assert found == [["xq.E005"]] * 2
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.migrate()
    app.Order.put({})
    assert app.Order.take() is not None, "nor is it in the way of others"
    with pytest.raises(xq.ConfigurationError):
        unfit.take()


class ToOwn:
    """A router of all writes."""

    def db_for_write(self, model, **hints):
        return "own"


def test_a_queue_that_is_routed_to_a_database_of_another_kind_is_told_of(app, backend):
    app.models(order())
    backend("postgresql" if connection.vendor == "sqlite" else "sqlite3")
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.ToOwn"]):
        found = told()
    assert list(found) == ["xq.E005"]
    assert "Order was upgraded for" in found["xq.E005"]
