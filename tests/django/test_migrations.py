"""Bringing queues into the database by migrations, taking them away again, and what `manage.py check` says of them."""

from __future__ import annotations

import re
from contextlib import nullcontext

import django
import pytest
from django.core.checks import run_checks
from django.core.management import CommandError
from django.db import DatabaseError, connection
from django.test import override_settings

import xq
from tests.django.conftest import one_more
from xq.adapters.django import queues

FIELDS = {"status": "status", "runat": "runat", "priority": "priority"}
FIRST = {"delayed": True, "buried": True}
SECOND = {"delayed": True, "buried": True, "keep": True, "history": True}

TASK = """
class Task(models.Model):
    name = models.CharField(max_length=50, default="a task")
    status = models.CharField(max_length=10, default="R")
    runat = models.FloatField(null=True)
    priority = models.IntegerField(default=0)

    class Meta:
        abstract = True
"""


def order(features=FIRST, *, fields=FIELDS, more="pass", **options):
    """The model Order as text: a queue, or none without features."""
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    decorated = "" if features is None else f"@queue({fields!r}, {features!r}{given})\n"
    return f"{TASK}\n{decorated}class Order(Task):\n    {more}\n"


def begin(app, text):
    """Write and run the migrations that make these models and install the queue among them."""
    app.models(text)
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.run("migrate", interactive=False)
    return app


@pytest.fixture
def migrated(app):
    """The same with a queue in it, and the migrations that install it."""
    return begin(app, order())


def of_xq():
    """The tables of xq's own that are there."""
    return [name for name in connection.introspection.table_names() if "xq_" in name]


def held(queue):
    return {state: n for state, n in queue.stats().counts.items() if n}


# what the command writes


def test_the_migration_that_is_written_installs_the_queue_and_goes_back_to_the_plain_table(migrated):
    Order = migrated.Order
    assert migrated.written == ["0001_initial", "0002_order_queue"]
    assert Order.xq.check() == []
    Order.xq.put_many([{"name": "a"}, {}])
    assert Order.take().name == "a"
    Order.xq.release_all()
    for _ in range(2):  # the second time there is nothing to undo
        assert "Installing" not in migrated.migrate("0001")
        assert of_xq() == []
    assert Order.objects.count() == 2
    migrated.migrate()
    assert Order.xq.check() == []
    assert Order.stats().counts["R"] == 2


def test_a_queue_is_installed_beside_writers_by_a_migration_without_a_transaction(app):
    app.models(order())
    app.run("makemigrations", app.label)
    text = app.make_queue_migration(online=True, dry_run=True)
    assert "atomic = False" in text
    assert "online=True" in text
    app.make_queue_migration(online=True)
    app.migrate()
    assert app.Order.xq.check() == []
    assert "No changes" in app.make_queue_migration(check=True)
    app.models(order(None))
    with pytest.raises(CommandError, match="--online installs a queue, and"):
        app.make_queue_migration(online=True)


def test_a_migration_in_a_transaction_does_not_install_beside_writers(app):
    app.models(order())
    app.run("makemigrations", app.label)
    app.make_queue_migration(online=True)
    (file,) = app.migrations.glob("0002_*.py")
    file.write_text(file.read_text().replace("    atomic = False\n", ""))
    refused = connection.features.can_rollback_ddl  # else there is no transaction
    with pytest.raises(xq.ConfigurationError, match="atomic = False") if refused else nullcontext():
        app.migrate()
    assert bool(of_xq()) != refused


def test_a_migration_is_written_only_where_none_installs_the_queue(app):
    app.models(order())
    app.run("makemigrations", app.label)
    assert "InstallQueue" in app.make_queue_migration(dry_run=True)
    with pytest.raises(SystemExit):
        app.make_queue_migration(check=True)
    assert app.written == ["0001_initial"]
    app.make_queue_migration(name="orders_wait")
    assert app.written == ["0001_initial", "0002_orders_wait"]
    app.models(order(SECOND))
    assert "No changes" in app.make_queue_migration(check=True)


def test_migrate_installs_a_definition_that_has_changed_and_says_so(migrated):
    migrated.Order.xq.put_many([{}, {}])
    assert migrated.Order.ack(migrated.Order.take())
    migrated.models(order(SECOND, statuses={**dict(zip("RTWB", "RTWB", strict=True)), "D": "done"}))
    with pytest.raises(xq.NotInstalled, match="the feature"):
        migrated.Order.take()
    told = f"Installing the queue {migrated.label}.Order (the feature 'history' is off there and on here)\n"
    assert told in migrated.migrate()
    assert "Installing" not in migrated.migrate()
    assert migrated.Order.xq.check() == []
    assert migrated.Order.stats().transition["R-T"] == 1  # what was counted goes on
    assert migrated.Order.ack(migrated.Order.take()).status == "done"
    migrated.Order.xq.truncate("D")
    migrated.models(order())
    with pytest.raises(CommandError, match=r"another one has replaced it .*install\(downgrade=True\)"):
        migrated.migrate()
    with pytest.raises(xq.ConfigurationError, match=r"Order has a history, .*install\(drop_history=True\)"):
        migrated.Order.xq.install(downgrade=True)
    assert f"{migrated.label}_order_xq_history" in of_xq()


def test_migrate_installs_no_queue_where_tasks_would_be_stranded(migrated):
    Order = migrated.Order
    Order.put({})
    Order.bury(Order.take())
    migrated.models(order({"delayed": True}))
    with pytest.raises(CommandError, match=r"1 buried \(B\)"):
        migrated.migrate()
    migrated.models(order())
    assert migrated.Order.xq.check() == []


@pytest.mark.parametrize("early", [[], ["InstallQueue('order')"]])
def test_a_queue_is_installed_by_the_first_migrate_with_its_columns_also_without_a_migration_of_its_own(app, early):
    app.models(order(None))
    app.run("makemigrations", app.label)
    app.migration("0002_early", *early)
    app.models(order())
    assert "Installing" not in app.migrate()
    assert of_xq() == []
    app.run("makemigrations", app.label)
    assert f"Installing the queue {app.label}.Order" in app.migrate()
    assert app.Order.xq.check() == []


def test_a_model_that_is_no_queue_any_more_loses_what_was_installed_whatever_its_features_were(app):
    features, fields = {**SECOND, "ttr": 60, "utube": True}, {**FIELDS, "utube": "name"}
    begin(app, order(features, fields=fields))
    app.Order.put({})
    app.models(order(None))
    app.make_queue_migration()
    assert app.written[-1] == "0003_remove_order_queue"
    app.run("makemigrations", app.label)  # which removes the fields that xq brought
    app.migrate()
    assert of_xq() == []
    with connection.cursor() as cursor:
        there = connection.introspection.get_constraints(cursor, app.Order._meta.db_table)
    assert [name for name in there if "xq" in name] == []
    app.Order.objects.create()
    app.models(order(features, fields=fields))
    app.migrate("0002")
    assert app.Order.xq.check() == []
    assert held(app.Order.xq) == {"R": 2}


EARLIER = (
    f"InstallQueue('Order', fields={FIELDS!r}, features={FIRST!r}, statuses={{'R': 'new'}}, tube_stats=['mail'])",
    f"InstallQueue('Order', fields={FIELDS!r}, features={SECOND!r}, previous={{'fields': {FIELDS!r}}})",
    f"UninstallQueue('Order', fields={FIELDS!r}, features={SECOND!r})",
    "InstallQueue('order')",
)


def test_the_definitions_in_migrations_of_an_earlier_release_are_ignored_and_the_model_counts(app):
    app.models(order())
    app.run("makemigrations", app.label)
    for n, operation in enumerate(EARLIER, 2):
        app.migration(f"000{n}_earlier", operation)
        app.migrate()
        assert app.Order.xq.check() == []
    assert "No changes" in app.make_queue_migration()
    app.migrate("0001")
    assert of_xq() == []


def test_what_is_wrong_with_the_model_named_is_said(app):
    def makemigration_says(words, model=f"{app.label}.Order"):
        with pytest.raises(CommandError, match=words):
            app.run("xq_makemigration", model)

    app.models(order(None))
    makemigration_says("there is no model 'nonsense'", "nonsense")
    makemigration_says(f"manage.py makemigrations {app.label}")
    app.run("makemigrations", app.label)
    makemigration_says("is not a queue")
    tube = "tube = models.CharField(max_length=20, null=True)"
    app.models(order(fields={**FIELDS, "tube": "tube"}, more=tube))
    makemigration_says("its fields tube, xq_owner are in no migration yet")


# migrations of the table: the models before, those after, and the operations where Django would not write them itself

DUE_FIELDS = {**FIELDS, "runat": "due"}
DUE = order(fields=DUE_FIELDS).replace("runat =", "due =").replace("=10", "=20")
OWN_TABLE = order(more="class Meta:\n        db_table = 'orders'")
PURCHASES = OWN_TABLE.replace("class Order", "class Purchase")
RENAME = "migrations.RenameField('Order', 'runat', 'due')"
LONGER = "migrations.AlterField('Order', 'status', models.CharField(max_length=20, default='R'))"
KEY = "migrations.AlterField('Order', 'id', models.AutoField(primary_key=True, serialize=False))"
AWAY, BACK = "UninstallQueue('Order')", "InstallQueue('Order')"
PURCHASE = "migrations.RenameModel('Order', 'Purchase')"

RENAMED = DUE.replace("=20", "=10")

CHANGES = {
    "another name of a field": (order(), RENAMED, [RENAME]),
    "another name and another type of fields": (order(), DUE, [AWAY, RENAME, LONGER, BACK]),
    "another name of the model": (OWN_TABLE, PURCHASES, [AWAY, PURCHASE, BACK.replace("Order", "Purchase")]),
    "another type of the key": (order(), order(more="id = models.AutoField(primary_key=True)"), [AWAY, KEY, BACK]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_queue_is_whole_behind_a_migration_of_what_it_uses_and_again_when_that_is_gone(app, what):
    before, after, operations = CHANGES[what]
    begin(app, before)
    app.Order.xq.put_many([{"name": "a"}, {"name": "b"}])
    app.models(after)
    app.migration("0003_by_hand", *operations)
    assert "No changes" in app.run("makemigrations", app.label)
    (Order,) = (queue.model for queue in queues())
    assert "No changes" in app.run("xq_makemigration", Order._meta.label)
    assert told() == {}
    app.migrate()
    assert Order.xq.check() == []
    assert Order.take().name == "a"
    Order.xq.release_all()
    app.migrate("0002")
    (app.migrations / "0003_by_hand.py").unlink()
    app.models(before)
    app.migrate()
    assert app.Order.xq.check() == []
    assert held(app.Order.xq) == {"R": 2}


OTHERS = (
    "AddField('Order', 'note', models.IntegerField(default=7))",
    "AlterField('Order', 'name', models.TextField(default='a task'))",
    "AlterField('Order', 'runat', models.FloatField(null=True, db_index=True))",
    "AlterField('Order', 'status', models.CharField(max_length=10, default='R', choices=[('R', 'ready')]))",
    "AddConstraint('Order', models.UniqueConstraint(fields=['name', 'note'], name='own_unique'))",
    "AlterField('Customer', 'key', models.CharField(max_length=20, primary_key=True))",
    "RenameModel('Customer', 'Client')",
)


def test_migrations_of_other_columns_leave_a_queue_exact_and_one_that_fails_is_mended_by_the_next(app):
    customer = "customer = models.ForeignKey(Customer, models.CASCADE, null=True)"
    text = "class Customer(models.Model):\n    key = models.CharField(max_length=10, primary_key=True)\n"
    begin(app, text + order(more=customer))
    app.Order.xq.put_many([{"name": name, "customer": app.Customer.objects.create(key=name)} for name in "abc"])
    app.Order.bury(app.Order.take())
    queue = app.Order.xq
    app.migration("0003_others", *(f"migrations.{operation}" for operation in OTHERS))
    for name in ("0003", "0002"):
        said = "Installing the queue" in app.migrate(name)
        assert said == (connection.vendor == "sqlite")  # which made the table anew, without triggers
        assert queue.check() == []
        assert held(queue) == {"R": 2, "B": 1}
    app.migration("0004_fails", "migrations.RunSQL('SELECT no_such_column', migrations.RunSQL.noop)")
    with pytest.raises(DatabaseError):
        app.migrate()
    app.migrate("0003")
    assert queue.check() == []
    assert app.Order.take().name == "b"


class AllElsewhere:
    """A router that has the models of the test's app on another database."""

    def db_for_write(self, model, **hints):
        return "other" if model._meta.app_label.startswith("shop") else None

    db_for_read = db_for_write

    def allow_migrate(self, db, app_label, **hints):
        return (db == "other") if app_label.startswith("shop") else None


@override_settings(DATABASE_ROUTERS=[f"{__name__}.AllElsewhere"])
def test_a_queue_is_installed_in_the_database_where_the_routers_want_its_table(app, other):
    begin(app, order())
    assert of_xq() == []
    app.migrate(database=other)
    assert of_xq() == []
    assert app.Order.xq.check() == []
    app.Order.put({})
    assert app.Order.take()._state.db == other


def test_a_flush_leaves_nothing_that_was_counted(migrated):
    Order = migrated.Order
    Order.xq.put_many([{}, {}])
    Order.take()
    migrated.run("flush", interactive=False)
    assert Order.xq.check() == []
    assert (sum(Order.stats().counts.values()), sum(Order.stats().transition.values())) == (0, 0)
    Order.put({})
    assert Order.take() is not None


# manage.py check


def told(databases=None):
    """The checks of xq's own: their names, and what they say."""
    found = run_checks(tags=["xq", "database"], databases=databases)
    return {message.id: f"{message.msg} ({message.hint})" for message in found if message.id.startswith("xq.")}


def test_a_model_that_is_no_queue_any_more_is_told_of_until_a_migration_uninstalls_it(app):
    begin(app, order())
    app.models(order(SECOND))
    assert told() == {}
    app.models(order(features=None))
    found = told()
    assert list(found) == ["xq.W006"]
    assert f"manage.py xq_makemigration {app.label}.Order" in found["xq.W006"]
    app.make_queue_migration()
    assert told() == {}


def test_a_status_that_the_choices_or_the_table_refuse_is_told(app):
    words = {"R": "new", "T": "busy", "W": "later", "B": "failed"}
    choices = [(word, word.title()) for word in ("new", "busy", "later")]
    app.models(order(statuses=words).replace("max_length=10", f"max_length=10, choices={choices!r}"))
    assert list(told()) == ["xq.W009"]
    assert "Order.status has choices, and the queue writes other values: 'failed'" in told()["xq.W009"]
    condition = "condition" if django.VERSION >= (5, 1) else "check"
    known = f"models.CheckConstraint({condition}=models.Q(status__in={list(dict(choices))}), name='known')"
    with pytest.raises(xq.ConfigurationError, match="refuses 'failed'"):
        begin(app, order(statuses=words, more=f"class Meta:\n        constraints = [{known}]"))
    assert list(told(["default"])) == ["xq.W009", "xq.W003"]
    assert "status refuses 'failed', the status of the state B: " in told(["default"])["xq.W009"]


def test_what_is_missing_in_a_database_is_told_where_the_databases_are_asked(app):
    begin(app, order())
    assert told(["default"]) == {}
    for item in app.Order.xq.parts.executor.installation.installer.objects.triggers():
        app.Order.xq.parts.store.execute(item.drop)
    assert told() == {}
    found = told(["default"])
    assert list(found) == ["xq.W003"]
    assert f"the trigger {app.label}_order_xq_insert is missing" in found["xq.W003"]
    app.migrate()  # which begins, and mends it
    assert told(["default"]) == {}


@pytest.mark.parametrize(
    ("engine", "driver", "words"),
    [
        ("postgresql", "psycopg2", r"by psycopg2, and xq .* psycopg \(pip install psycopg"),
        ("mysql", "MySQLdb", r"by MySQLdb, and xq .*pymysql\.install_as_MySQLdb\(\)"),
    ],
)
def test_a_driver_that_xq_does_not_speak_through_is_told_of(app, tmp_path, monkeypatch, engine, driver, words):
    base = f"from types import ModuleType\nfrom django.db.backends.{engine}.base import DatabaseWrapper as Djangos"
    own = f"class DatabaseWrapper(Djangos):\n    Database = ModuleType({driver!r})"
    name = f"own_{engine}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "base.py").write_text(f"{base}\n\n{own}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with one_more("own", {"ENGINE": name, "NAME": "own"}):
        app.models(order(using="own"))
        assert re.search(words, told()["xq.E005"])
