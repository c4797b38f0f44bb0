"""Bringing queues into the database by migrations, taking them away again, and what `manage.py check` says of them."""

from __future__ import annotations

import re
from contextlib import nullcontext
from io import StringIO

import django
import pytest
from django.core.checks import run_checks
from django.core.management import CommandError
from django.db import DatabaseError, connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import xq
from tests.django.apps import installed
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
    app.run("migrate", interactive=False)
    return app


def begin_undefined(app, text):
    """The same, by a migration that names no definition."""
    app.models(text)
    app.run("makemigrations", app.label)
    (app.migrations / "0002_order_queue.py").unlink()
    app.migration("0002_order_queue", "InstallQueue('Order')")
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


def test_a_queue_is_installed_beside_writers_by_migrations_without_a_transaction_the_first_and_later_ones(app):
    app.models(order())
    app.make_queue_migration(online=True)
    assert app.written == ["0001_initial", "0002_order_queue"]
    app.migrate()
    assert app.Order.xq.check() == []
    app.models(order(SECOND))
    app.run("makemigrations", app.label)
    for name in app.written[1:]:
        text = (app.migrations / f"{name}.py").read_text()
        assert ("atomic = False" in text, "online=True" in text) == (True, True)
    shown = app.run("sqlmigrate", app.label, app.written[-1])
    assert ("INDEX CONCURRENTLY" in shown) == (connection.vendor == "postgresql")
    app.migrate()
    assert app.Order.xq.check() == []
    assert "No changes" in app.make_queue_migration(check=True)


def test_a_migration_in_a_transaction_does_not_install_beside_writers(app):
    app.models(order())
    app.make_queue_migration(online=True)
    (file,) = app.migrations.glob("0002_*.py")
    file.write_text(file.read_text().replace("    atomic = False\n", ""))
    refused = connection.vendor == "postgresql"  # SQLite has no writers beside, MariaDB no transaction
    app.migrate("0001")
    app.Order.objects.create()
    with pytest.raises(CommandError, match="atomic = False") if refused else nullcontext():
        app.migrate()
    assert bool(of_xq()) != refused
    app.Order.objects.all().delete()
    app.migrate()  # nobody waits for an empty table
    assert app.Order.xq.check() == []


def test_a_squashed_migration_installs_beside_writers_too(app):
    app.models(order())
    app.make_queue_migration(online=True)
    app.run("squashmigrations", app.label, "0002", interactive=False)
    (file,) = app.migrations.glob("0001_squashed_*.py")
    assert "    atomic = False" in file.read_text()
    app.migrate()
    assert app.Order.xq.check() == []


def test_a_change_beside_writers_that_is_refused_leaves_the_earlier_program_as_it_was(app):
    def changes_to(features):
        app.models(order(features, fields={**FIELDS, "unique": "name"}))
        app.run("makemigrations", app.label)

    app.models(order())
    app.make_queue_migration(online=True)
    app.migrate()
    app.Order.xq.put_many([{"name": "a"}, {"name": "a"}])
    app.Order.bury(app.Order.take())
    for features, told in (
        ({"delayed": True}, r"1 buried \(B\)"),
        (FIRST, "hold one value of the role 'unique' twice"),
    ):
        changes_to({**features, "unique": True})
        with pytest.raises(CommandError, match=told):
            app.migrate()
        (app.migrations / f"{app.written[-1]}.py").unlink()
        app.models(order())
        assert app.Order.xq.check() == []
        app.Order.put({"name": "a"})
    app.Order.objects.all().delete()
    changes_to({**FIRST, "unique": True})
    with CaptureQueriesContext(connection) as ran:
        app.migrate()
    built = [each["sql"] for each in ran if re.match("CREATE UNIQUE INDEX.*_order_xq_unique", each["sql"])]
    once = {"postgresql": [True], "sqlite": [False]}  # MariaDB has a column there
    assert ["CONCURRENTLY" in sql for sql in built] == once.get(connection.vendor, [])
    assert app.Order.xq.check() == []


def test_a_definition_of_another_branch_is_refused_until_it_has_what_the_first_has_added(migrated):
    migrated.models(order(SECOND))
    migrated.run("makemigrations", migrated.label)
    migrated.migrate()
    migrated.Order.ack(migrated.Order.put({}) and migrated.Order.take())
    migrated.models(order({**FIRST, "limit": 500}))
    migrated.run("makemigrations", migrated.label)
    said = r"Order has a history.* last.*DELETE FROM .*_history.*another branch.*`definition`.*1 done \(D\)"
    with pytest.raises(CommandError, match=said):
        migrated.migrate()
    file = migrated.migrations / f"{migrated.written[-1]}.py"
    file.write_text(file.read_text().replace("'limit'", "'history': True, 'keep': True, 'limit'"))
    migrated.models(order({**SECOND, "limit": 500}))
    migrated.migrate()
    assert migrated.Order.xq.check() == []


NEW = {**dict(zip("RTWB", "RTWB", strict=True)), "D": "done"}


def test_a_changed_definition_is_a_migration_that_says_what_changes_and_goes_back(migrated):
    Order = migrated.Order
    Order.xq.put_many([{}, {}])
    assert Order.ack(Order.take())
    migrated.models(order(SECOND, statuses=NEW))
    assert "have changes that are not yet reflected in a migration" in migrated.migrate()
    with pytest.raises(SystemExit):
        migrated.run("makemigrations", migrated.label, check=True)
    changed = (
        "Change the queue on Order: history: off -> on; keep: off -> on; status B: off -> B; status D: off -> done"
    )
    assert changed in migrated.run("makemigrations", migrated.label)
    assert migrated.written[-1] == "0003_change_order_queue"
    assert "No changes" in migrated.run("makemigrations", migrated.label)
    assert changed in migrated.run("migrate", migrated.label, plan=True)
    with pytest.raises(xq.NotInstalled, match="the feature"):  # a migration of something else does not install it
        migrated.migrate("0002"), migrated.Order.take()
    shown = migrated.run("sqlmigrate", migrated.label, "0003")
    assert ("_xq_history" in shown, "DROP TRIGGER" in shown.upper()) == (True, True)
    assert "Installing" not in migrated.migrate()
    assert "xq_count" in migrated.run("sqlmigrate", migrated.label, "0002"), "of a migration that 0003 has followed"
    assert migrated.Order.xq.check() == []
    assert migrated.Order.stats().transition["R-T"] == 1  # what was counted goes on
    migrated.models(order())
    with pytest.raises(xq.NotInstalled, match=r"end this process, or start the newer program .*howto/deploy\.md"):
        migrated.Order.take()
    migrated.models(order(SECOND, statuses=NEW))
    assert migrated.Order.ack(migrated.Order.take()).status == "done"
    migrated.Order.xq.truncate("D")
    with pytest.raises(CommandError, match="Order has a history, .*DELETE FROM") as refused:
        migrated.migrate("0002")
    migrated.Order.xq.parts.executor.store.execute(re.findall("DELETE FROM [^;]+", str(refused.value))[0])
    migrated.migrate("0002")
    migrated.models(order())
    assert migrated.Order.xq.check() == []
    assert f"{migrated.label}_order_xq_count" in migrated.run("sqlmigrate", migrated.label, "0002", backwards=True)
    migrated.migrate("0001")
    assert of_xq() == []


def test_the_other_order_of_priorities_is_a_change_of_the_queue_with_a_way_back(migrated):
    migrated.Order.xq.put_many([{"priority": n} for n in range(3)])
    migrated.models(order(fields={**FIELDS, "priority": "-priority"}))
    changed = "Change the queue on Order: priority: off -> highest"
    assert changed in migrated.run("makemigrations", migrated.label)
    assert "No changes" in migrated.run("makemigrations", migrated.label)
    migrated.migrate()
    assert (migrated.Order.xq.check(), migrated.Order.xq.take().priority) == ([], 2)
    migrated.migrate("0002")
    migrated.models(order())
    assert (migrated.Order.xq.check(), migrated.Order.xq.take().priority) == ([], 0)


def test_durations_are_no_changes_and_a_feature_of_the_program_itself_stays_in_it(app):
    features = "{'buried': True, 'delayed': True, 'ttr': %s, 'unique': True, 'zombie': 5, 'mine': xq.Feature('mine')}"
    text = f"{TASK}\n@queue({{**{FIELDS!r}, 'unique': 'name'}}, {features})\nclass Order(Task):\n    pass\n"
    begin(app, text % 60)
    app.models(text % 90)
    assert "No changes" in app.run("makemigrations", app.label)
    assert "Installing" not in app.migrate()
    assert app.Order.xq.check() == []
    app.models(text.replace(", 'mine': xq.Feature('mine')", "") % 60)
    assert "mine: on -> off" in app.run("makemigrations", app.label)
    app.migrate()
    assert app.Order.xq.check() == []
    with pytest.raises(CommandError, match="features of its own program, mine"):
        app.migrate("0002")


def test_fields_that_a_definition_lets_go_of_are_removed_after_it_and_new_ones_added_before(app):
    fields = {**FIELDS, "attempts": "attempts", "error": "error"}
    more = "attempts = models.IntegerField(default=0)\n    error = models.TextField(null=True)"
    begin(app, order())
    app.Order.put({})
    app.models(order(fields=fields, more=more))
    app.run("makemigrations", app.label)
    assert app.written[-1] == "0004_change_order_queue"
    app.migrate()
    app.models(order())
    app.run("makemigrations", app.label)
    assert app.written[-2] == "0005_change_order_queue"
    for name in ("", "0002", ""):
        app.migrate(name)
        assert app.Order.xq.check() == []
        assert app.Order.xq.count("R") == 1


def test_a_migration_without_a_definition_installs_that_of_the_day_until_one_is_asked_for(app):
    begin_undefined(app, order())
    app.models(order(SECOND))
    assert "No changes" in app.run("makemigrations", app.label)
    told = f"Installing the queue {app.label}.Order (the feature 'history' is off there and on here)\n"
    assert told in app.migrate()
    assert "Installing" not in app.migrate()
    app.make_queue_migration(definition=True, name="orders_wait")
    assert app.written == ["0001_initial", "0002_order_queue", "0003_orders_wait"]
    app.migrate()
    assert app.Order.xq.check() == []
    app.models(order(FIRST))
    assert "history: on -> off" in app.run("makemigrations", app.label)


def test_undoing_one_without_a_definition_restores_the_plain_table_also_behind_another_one(app):
    begin_undefined(app, order())
    app.models(
        order(
            fields={**FIELDS, "utube": "mark"}, features={"utube": True}, more="mark = models.CharField(max_length=9)"
        )
    )
    app.migration(
        "0003_marks", "migrations.AddField('Order', 'mark', models.CharField(max_length=9, default=''))", BACK
    )
    for name, whole in (("0003", True), ("0002", False), ("0003", True)):
        app.migrate(name)
        assert bool(of_xq()) == whole
    assert app.Order.xq.check() == []


def test_migrate_says_how_many_rows_become_tasks_of_which_words(app):
    app.models(order(None))
    app.run("makemigrations", app.label)
    app.migrate()
    for status, n in (("paid", 2), ("failed", 1), ("open", 4)):
        app.Order.objects.bulk_create(app.Order(status=status) for _ in range(n))
    words = {"R": "paid", "T": "sending", "W": "later", "B": "failed"}
    app.models(order(statuses=words))
    app.run("makemigrations", app.label)
    said = f"3 rows of {app.label}.Order become tasks: 2 paid (Ready), 1 failed (Buried)\n"
    assert said in app.migrate()
    app.models(order({**FIRST, "keep": True}, statuses={**words, "D": "open"}))
    app.run("makemigrations", app.label)
    assert f"4 rows of {app.label}.Order become tasks: 4 open (Done)\n" in app.migrate()
    assert "become" not in app.migrate()


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # the others have names as Django's test databases
def test_an_older_program_cannot_put_the_definition_of_the_day_back(app):
    begin_undefined(app, order())
    app.models(order(SECOND))
    app.migrate()
    app.models(order())
    with pytest.raises(CommandError, match=r"another one has replaced it .* xq install .*Order --downgrade"):
        app.migrate()
    assert "(This program is older, as this definition was installed here before" in told(["default"])["xq.W003"]
    assert f"{app.label}_order_xq_history" in of_xq()


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # as above
@pytest.mark.parametrize("first", [begin, begin_undefined], ids=["definitions", "the definition of the day"])
def test_migrate_goes_forward_again_to_a_release_that_xq_install_has_taken_back(app, first):
    one, two = order(), order({**FIRST, "ttr": 60})
    first(app, one)
    app.models(two)
    app.run("makemigrations", app.label)
    app.migrate()
    for _ in range(2):  # from the first to the second release, and back
        app.models(one)
        with pytest.raises(xq.NotInstalled, match="it is older"):
            app.Order.take()
        app.Order.xq.install(downgrade=True)
        app.models(two)
        app.Order.put({})
        with pytest.raises(xq.NotInstalled, match="it is withdrawn"):
            app.Order.take()
        with pytest.raises(xq.ConfigurationError, match="it is withdrawn, as .* run manage.py migrate"):
            app.Order.xq.install()
        app.migrate()
        assert app.Order.xq.check() == []
        assert app.Order.take().kill()


def test_a_process_of_a_release_whose_migration_is_undone_goes_on_to_put(app):
    one, two = order(), order({**FIRST, "ttr": 60})
    begin(app, one)
    app.models(two)
    app.run("makemigrations", app.label)
    app.migrate()
    app.migrate(app.written[-2])
    app.Order.put({})
    with pytest.raises(xq.NotInstalled, match="it is withdrawn"):
        app.Order.take()
    app.models(one)
    assert app.Order.take()
    app.models(two)
    app.migrate()
    assert app.Order.xq.check() == []


def test_migrate_installs_no_queue_where_tasks_would_be_stranded(migrated):
    Order = migrated.Order
    Order.put({})
    Order.bury(Order.take())
    migrated.models(order({"delayed": True}))
    migrated.run("makemigrations", migrated.label)
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
    if not early:
        (app.migrations / "0004_order_queue.py").unlink()
    assert f"Installing the queue {app.label}.Order" in app.migrate()
    assert app.Order.xq.check() == []


def test_a_model_that_is_no_queue_any_more_loses_what_was_installed_whatever_its_features_were(app):
    features, fields = {**SECOND, "ttr": 60, "utube": True}, {**FIELDS, "utube": "name"}
    begin(app, order(features, fields=fields))
    app.Order.put({})
    app.models(order(None))
    app.run("makemigrations", app.label)
    assert app.written[2] == "0003_remove_order_queue"  # before the fields that xq brought are removed
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
    begin_undefined(app, order())
    (app.migrations / "0002_order_queue.py").unlink()
    for n, operation in enumerate(EARLIER, 2):
        app.migration(f"000{n}_earlier", operation)
        app.migrate()
        assert app.Order.xq.check() == []
    assert "No changes" in app.make_queue_migration()
    app.migrate("0001")
    assert of_xq() == []


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
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_queue_is_whole_behind_a_migration_of_what_it_uses_and_again_when_that_is_gone(app, what):
    before, after, operations = CHANGES[what]
    begin(app, before)
    app.Order.xq.put_many([{"name": "a"}, {"name": "b"}])
    app.models(after)
    app.migration("0003_by_hand", *operations)
    said = app.run("makemigrations", app.label)
    assert ("Change the queue on Order: role runat: runat -> due" if operations == [RENAME] else "No changes") in said
    (Order,) = (queue.model for queue in queues())
    assert "No changes" in app.run("xq_makemigration", Order._meta.label)
    assert told() == {}
    app.migrate()
    assert Order.xq.check() == []
    assert Order.take().name == "a"
    Order.xq.release_all()
    app.migrate("0002")
    for name in app.written[2:]:
        (app.migrations / f"{name}.py").unlink()
    app.models(before)
    app.migrate()
    assert app.Order.xq.check() == []
    assert held(app.Order.xq) == {"R": 2}


OTHERS = (
    "AddField('Order', 'note', models.IntegerField(default=7))",
    "AlterField('Order', 'name', models.CharField(default='a task', max_length=60))",
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
        assert "Installing the queue" not in app.migrate(name)  # also on SQLite, which makes the table anew
        assert queue.check() == []
        assert held(queue) == {"R": 2, "B": 1}
    app.migration("0004_fails", "migrations.RunSQL('SELECT no_such_column', migrations.RunSQL.noop)")
    with pytest.raises(DatabaseError):
        app.migrate()
    app.migrate("0003")
    assert queue.check() == []
    assert app.Order.take().name == "b"


def test_what_a_migration_moves_behind_a_change_of_the_table_is_counted(migrated):
    migrated.Order.xq.put_many([{"name": name} for name in "abc"])
    moves = f"UPDATE {migrated.label}_order SET status = 'B' WHERE name = 'c'"
    migrated.migration("0003_moves", f"migrations.{OTHERS[1]}", f"migrations.RunSQL({moves!r})")
    migrated.migrate()
    assert held(migrated.Order.xq) == {"R": 2, "B": 1}
    assert migrated.Order.stats().transition["R-B"] == 1


@pytest.mark.parametrize("begun", [begin, begin_undefined])
@pytest.mark.parametrize("after", [order().replace("class Order", "class Purchase"), OWN_TABLE])
def test_a_queue_whose_table_gets_another_name_is_taken_away_before_and_installed_after(app, begun, after, monkeypatch):
    begun(app, order())
    app.Order.xq.put_many([{"name": "a"}, {"name": "b"}])
    app.models(after)
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))  # was the model renamed?
    app.run("makemigrations", app.label)
    assert len(app.written) == 5
    (Order,) = (queue.model for queue in queues())
    assert "No changes" in app.run("makemigrations", app.label)
    app.migrate()
    Order.ack(Order.take())
    assert (Order.xq.check(), Order.stats().transition["T-X"]) == ([], 1)
    app.models(order())
    app.migrate("0002")
    assert (app.Order.xq.check(), app.Order.take().name) == ([], "b")


def test_triggers_that_a_renamed_table_keeps_are_named_by_check(app):
    begin(app, order())
    app.models(order().replace("class Order", "class Purchase"))
    app.migration("0003_by_hand", PURCHASE)
    app.migrate()
    left = app.Purchase.xq.check()
    assert left
    assert {each.partition("_xq_")[0] for each in left} == {f"the trigger {app.label}_order"}


@pytest.mark.parametrize("alters", [LONGER, KEY])
def test_counts_and_history_go_on_over_another_type_of_a_column_that_the_queue_uses(app, alters):
    begin(app, order(SECOND))
    app.Order.xq.put_many([{"name": name} for name in "abc"])
    moves = f"UPDATE {app.label}_order SET status = 'B' WHERE name = 'c'"
    app.migration("0003_alters", alters, f"migrations.RunSQL({moves!r}, migrations.RunSQL.noop)")
    for name in ("0003", "0002"):
        assert "Installing the queue" not in app.migrate(name)
        assert app.Order.xq.check() == []
    assert held(app.Order.xq) == {"R": 2, "B": 1}
    assert app.Order.stats().transition == {"X-R": 3, "R-B": 1}
    assert len(app.Order.xq.history()) == 4


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


def test_a_check_warns_of_a_queue_whose_migrations_are_written_into_an_installed_package(tmp_path, django_db):
    with installed(tmp_path / "site-packages") as app:
        app.models(order())
        assert f"makemigrations writes the queue's into {app.folder}" in told()["xq.W014"]
        with override_settings(MIGRATION_MODULES={app.label: "mysite.migrations_of_it"}):
            assert "xq.W014" not in told()


def told(databases=()):
    """The checks of xq's own: their names, and what they say. From Django 6.1 on None means all databases."""
    found = run_checks(tags=["xq", "database"], databases=databases)
    return {message.id: f"{message.msg} ({message.hint})" for message in found if message.id.startswith("xq.")}


def test_a_model_that_is_no_queue_any_more_is_told_of_until_a_migration_uninstalls_it(app):
    begin(app, order())
    app.models(order(SECOND))
    assert told() == {}
    app.models(order(features=None))
    found = told()
    assert list(found) == ["xq.W006"]
    assert f"manage.py makemigrations {app.label}" in found["xq.W006"]
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
    with pytest.raises(CommandError, match="refuses 'failed'"):
        begin(app, order(statuses=words, more=f"class Meta:\n        constraints = [{known}]"))
    assert list(told(["default"])) == ["xq.W009", "xq.W003"]
    assert "status refuses 'failed', the status of the state B: " in told(["default"])["xq.W009"]


def test_a_definition_whose_column_is_not_there_yet_is_told_and_a_column_or_a_table_of_the_application_is_not(app):
    app.models(order())
    app.run("makemigrations", app.label)
    assert told(["default"]) == {}
    app.migrate()
    app.models(order(more="note = models.TextField(null=True)"))
    assert told(["default"]) == {}
    app.models(order(fields={**FIELDS, "error": "note"}, more="note = models.TextField(null=True)"))
    assert "the role 'error' is mapped to no field there" in told(["default"])["xq.W003"]
    app.run("makemigrations", app.label)
    app.migrate()
    assert told(["default"]) == {}


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
