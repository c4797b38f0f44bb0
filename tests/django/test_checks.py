"""What `manage.py check` says of queues."""

from __future__ import annotations

import pytest
from django.core.checks import ERROR, run_checks
from django.db import connection
from django.test import override_settings

from tests.django.apps import installed
from tests.django.test_migrations import FIELDS, SECOND, order
from xq.adapters.django import checks


@pytest.fixture
def app(django_db, tmp_path):
    with installed(tmp_path / "apps") as found:
        yield found


def told(databases=None):
    """The checks of xq's own: their names, and what they say."""
    found = run_checks(tags=["xq", "database"], databases=databases)
    return {message.id: f"{message.msg} ({message.hint})" for message in found if message.id.startswith("xq.")}


def test_a_queue_that_no_migration_installs_is_told_of_with_the_command_to_run(app):
    app.models(order())
    app.run("makemigrations", app.label)
    found = told()
    assert list(found) == ["xq.E001"]
    assert f"manage.py xq_makemigration {app.label}.Order" in found["xq.E001"]
    app.make_queue_migration()
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


def test_another_definition_than_the_one_in_the_migrations_is_told_of_with_what_differs(app):
    app.models(order())
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.models(order(SECOND))
    found = told()
    assert list(found) == ["xq.E002"]
    assert "its features are {'buried': True, 'delayed': True" in found["xq.E002"]
    assert f"manage.py xq_makemigration {app.label}.Order" in found["xq.E002"]


def test_what_is_missing_in_a_database_is_told_where_the_databases_are_asked(app):
    app.models(order())
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    assert told(["default"]) == {}  # Django tells that migrations are to be run
    app.migrate()
    assert told(["default"]) == {}
    app.Order.xq.installation.take_down()
    assert told() == {}
    found = told(["default"])
    assert list(found) == ["xq.W003"]
    assert f"the trigger {app.label}_order_xq_insert is missing" in found["xq.W003"]
    found = run_checks(tags=["database"], databases=["default"])
    assert not any(message.is_serious(ERROR) for message in found)  # or migrate, which mends it, would not begin
    app.migrate()
    assert told(["default"]) == {}


def test_a_model_that_django_does_not_manage_is_nobodys_to_migrate(app):
    meta = "class Meta:\n        managed = False\n        db_table = 'elsewhere'"
    app.models(order(more=meta))
    app.run("makemigrations", app.label)
    assert told(["default"]) == {}
    with connection.schema_editor() as editor:
        editor.create_model(app.Order)
    assert told(["default"]) == {}


class ToOther:
    """A router of all writes."""

    def db_for_write(self, model, **hints):
        return "other"


def test_a_queue_whose_database_became_one_of_another_vendor_is_told_of(app, django_db, other):
    app.models(order())
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    with override_settings(DATABASE_ROUTERS=[ToOther()]):
        found = told()
    if django_db.kind == "sqlite":
        assert found == {}
    else:
        assert list(found) == ["xq.E005"]
        assert f"Order was upgraded for {django_db.kind}" in found["xq.E005"].replace("mysql", "mariadb")


@pytest.mark.parametrize(
    ("vendor", "driver", "hint"),
    [
        ("postgresql", "psycopg2", "pip install psycopg"),
        ("mysql", "MySQLdb", "pymysql.install_as_MySQLdb()"),
        ("oracle", "oracledb", "It speaks sqlite, postgresql, mysql"),
    ],
)
def test_a_driver_that_xq_does_not_speak_is_told_of_with_the_one_it_speaks(vendor, driver, hint):
    wrong = checks.wrong_with(vendor, driver)
    assert wrong is not None
    assert hint in wrong[1]


def test_the_drivers_of_these_tests_are_those_that_it_speaks(django_db):
    assert checks.wrong_with(connection.vendor, connection.Database.__name__) is None


def test_what_is_wrong_with_the_setting_is_told():
    with override_settings(XQ={"WORKERS": "many"}):
        assert "XQ['WORKERS'] is a number" in told()["xq.E004"]
