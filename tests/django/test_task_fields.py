"""TaskFields: an abstract model of Django's with the fields that queues use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.db import models
from django.test import override_settings

import xq
from tests.django.sites import EVERYTHING
from tests.django.test_migrations import begin
from xq.adapters.django import TaskFields, upgrade


def order(more: str = "", fields: object = None, **features: object) -> str:
    """The model Order as text."""
    return f"""
from xq.adapters.django import TaskFields

@queue({fields!r}, features={EVERYTHING | features!r})
class Order(TaskFields, models.Model):
    item = models.TextField(default="")
    {more}
    def __str__(self):
        return self.item
"""


def test_a_model_needs_no_fields_and_is_migrated_once(app):
    Order = begin(app, order()).Order
    roles = {"status", "priority", "owner", "attempts", "error", "runat", "ttr"}
    assert dict(Order.xq.roles) == {role: role for role in roles}
    Order.put({"item": "a lamp"})
    taken = Order.take()
    assert (taken.item, taken.status, taken.attempts) == ("a lamp", "T", 1)
    assert taken.bury().status == "B"
    assert Order.dig(taken).status == "R"
    assert Order.take().ack().status == "D"
    assert Order.xq.check() == []
    assert "no issues" in app.run("check", tags=["xq"])
    app.models(order(fields={"utube": "item"}, utube=True))  # is a migration of the queue, none of the table
    app.run("makemigrations", app.label)
    assert app.written == ["0001_initial", "0002_order_queue", "0003_change_order_queue"]
    app.migrate()
    assert app.Order.xq.roles == {role: role for role in roles} | {"utube": "item"}


def test_a_field_of_the_same_name_replaces_one_and_none_leaves_one_out(app):
    more = "runat, tube, owner = models.DateTimeField(null=True), None, models.IntegerField(null=True)"
    Order = begin(app, order(more)).Order
    Order.put({"item": "a lamp", "owner": 7})
    taken = Order.take()
    assert (taken.owner, taken.runat is not None) == (7, True)
    assert (Order.xq.roles["owner"], "tube" in Order.xq.roles) == ("xq_owner", False)
    assert "tube" not in {field.name for field in Order._meta.fields}


def test_a_key_has_64_bits_whatever_the_setting_unless_the_model_declares_one(app):
    with override_settings(DEFAULT_AUTO_FIELD="django.db.models.AutoField"):
        key = begin(app, order()).Order._meta.pk
        of_django = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
        assert (type(key), key.name) == (models.BigAutoField, "id")
        assert key.deconstruct()[1:] == of_django.deconstruct()[1:]  # so that no project needs a migration
    app.models(order("key = models.UUIDField(primary_key=True)"))
    assert ("id" in {field.name for field in app.Order._meta.fields}, app.Order.check()) == (False, [])


def test_the_base_cannot_be_upgraded():
    with pytest.raises(xq.ConfigurationError, match="TaskFields is abstract"):
        upgrade(TaskFields)


def test_the_package_is_imported_before_django_allows_models():
    code = (
        "import xq.adapters.django as package; from django.conf import settings; import django;"
        "settings.configure(INSTALLED_APPS=['xq.adapters.django']); django.setup();"
        "print(package.TaskFields._meta.abstract)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("True\n", "")
