"""TaskFields: an abstract model of Django's with a field for every role."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from django.apps.registry import Apps
from django.db import models
from django.test import override_settings

import xq
from tests.django.apps import installed
from tests.django.sites import TABLES, Site
from xq.adapters.django import TaskFields, upgrade

EVERYTHING = {"delayed": True, "buried": True, "keep": True, "ttr": 60}
ALWAYS = {"status", "priority", "owner", "attempts", "error"}
ORDER = """
from xq.adapters.django import TaskFields

@queue(features={features!r})
class Order(TaskFields, models.Model):
    item = models.TextField(default="")
"""


@pytest.fixture
def app(django_db, tmp_path):
    """An app of this test's own, on each database, whose Order is a queue with fields for every role."""
    with installed(tmp_path / "apps") as found:
        found.models(ORDER.format(features=EVERYTHING))
        yield found


@pytest.fixture
def order(django_db):
    """Makes a model with fields for every role, outside of any app that is installed."""

    def made(**fields: Any) -> Any:
        meta = {"app_label": "shop", "apps": Apps(["tests.django.shop"]), "db_table": "order"}
        body = {"item": models.TextField(default=""), "__str__": lambda order: order.item, **fields}
        meta_class = type("Meta", (), meta)
        return type("Order", (TaskFields, models.Model), {"__module__": __name__, **body, "Meta": meta_class})

    return made


def test_a_model_needs_no_fields_and_is_migrated_once(app):
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.migrate()
    Order = app.Order
    assert dict(Order.xq.roles) == {role: role for role in ALWAYS | {"runat", "ttr"}}
    Order.put({"item": "a lamp"})
    taken = Order.take()
    assert (taken.item, taken.status, taken.attempts) == ("a lamp", "T", 1)
    assert taken.bury().status == "B"
    assert Order.dig(taken).status == "R"
    assert Order.take().ack().status == "D"
    assert Order.xq.check(advise=True) == []
    assert app.run("makemigrations", app.label, check=True, dry_run=True).startswith("No changes")
    assert app.make_queue_migration(check=True).startswith("No changes")
    assert Order.check() == []
    assert "no issues" in app.run("check", tags=["xq"])
    app.models(ORDER.format(features={**EVERYTHING, "utube": True}))  # is a migration of the queue, none of the table
    assert app.run("makemigrations", app.label, check=True, dry_run=True).startswith("No changes")
    app.make_queue_migration()
    app.migrate()
    assert app.Order.xq.roles["utube"] == "utube"
    assert app.Order.put({"utube": "a"}).utube == "a"


def test_the_admin_shows_what_the_queue_writes_and_edits_the_rest(order, django_db):
    Order = order()
    upgrade(Order, features=EVERYTHING)
    django_db.create(Order, *TABLES)
    Order.xq.install()
    task = Order.put({"item": "a lamp"})
    site = Site(Order, list_display=["item"], fields=None)
    with override_settings(ROOT_URLCONF=site.urls):
        client = site.client()
        form = client.get(f"{site.list}{task.pk}/change/").content.decode()
        edited = {"item", "priority", "tube", "utube", "unique", "ttl", "ttr", "error"}
        assert set(re.findall(r'id="id_(\w+)"', form)) == edited
        assert set(re.findall(r"field-(\w+)", form)) == {*edited, "status", "runat", "owner", "attempts"}
        sent = {"item": "a chair", "priority": "3", "tube": "", "utube": "", "unique": "", "ttl": "", "ttr": ""}
        assert client.post(f"{site.list}{task.pk}/change/", {**sent, "error": ""}).status_code == 302
    taken = Order.take()
    assert (taken.item, taken.priority, taken.unique, taken.tube) == ("a chair", 3, None, None)


def test_a_field_of_the_same_name_replaces_one_and_none_leaves_one_out(order, django_db):
    Order = order(runat=models.DateTimeField(null=True), tube=None, owner=models.IntegerField(null=True))
    upgrade(Order, features=EVERYTHING)
    django_db.create(Order)
    Order.xq.install()
    Order.put({"item": "a lamp", "owner": 7})
    taken = Order.take()
    assert (taken.owner, taken.runat is not None) == (7, True)
    assert {"tube", "owner"}.isdisjoint(Order.xq.roles)
    assert "tube" not in {field.name for field in Order._meta.fields}


def test_the_base_cannot_be_upgraded_and_others_need_fields(order):
    with pytest.raises(xq.ConfigurationError, match="TaskFields is abstract"):
        upgrade(TaskFields)

    class Plain(models.Model):
        class Meta:
            app_label, apps = "shop", Apps(["tests.django.shop"])

    with pytest.raises(xq.ConfigurationError, match=r"inherits from xq\.adapters\.django\.TaskFields needs no fields="):
        upgrade(Plain)


def test_the_package_is_imported_before_django_allows_models():
    code = (
        "import xq.adapters.django as package; from django.conf import settings; import django;"
        "settings.configure(INSTALLED_APPS=['xq.adapters.django']); django.setup();"
        "print(package.TaskFields._meta.abstract)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("True\n", "")
