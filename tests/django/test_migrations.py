"""Bringing queues into the database by migrations, and taking them away again."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from django.apps.registry import Apps, apps
from django.core.management import CommandError
from django.db import DatabaseError, connection, connections, models
from django.test import override_settings

import xq
from tests.django.apps import installed
from xq.adapters.django.migrations import InstallQueue, queue_apart

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


@pytest.fixture
def app(django_db, tmp_path):
    """An app of this test's own, on each database."""
    with installed(tmp_path / "apps") as found:
        yield found


def begin(app, text):
    """Write and run the migrations that make these models and install the queue among them."""
    app.models(text)
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.migrate()
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
    migrated.migrate("0001")
    assert of_xq() == []
    assert Order.objects.count() == 2
    migrated.migrate()
    assert Order.xq.check() == []
    assert Order.stats().counts["R"] == 2


def test_a_migration_is_written_where_something_has_changed_that_the_database_knows(migrated):
    for same in (order(), order({**FIRST, "retval": "dict"})):
        migrated.models(same)
        assert "No changes" in migrated.make_queue_migration()
        assert "No changes" in migrated.make_queue_migration(check=True)
    migrated.models(order(SECOND))
    assert "'history': True" in migrated.make_queue_migration(dry_run=True)
    with pytest.raises(SystemExit) as ended:
        migrated.make_queue_migration(check=True)
    assert ended.value.code == 1
    assert migrated.written == ["0001_initial", "0002_order_queue"]
    migrated.make_queue_migration(name="keep_orders")
    assert migrated.written[-1] == "0003_keep_orders"


def test_a_definition_that_changes_is_a_migration_from_one_to_the_other(migrated):
    migrated.models(order(SECOND, statuses={"D": "done"}))
    with pytest.raises(xq.NotInstalled, match="the feature"):
        migrated.Order.take()
    migrated.make_queue_migration()
    migrated.migrate()
    assert migrated.Order.xq.check() == []
    migrated.Order.put({})
    assert migrated.Order.ack(migrated.Order.take()).status == "done"
    migrated.Order.xq.truncate("D")
    migrated.migrate("0002")
    assert f"{migrated.label}_order_xq_history" not in of_xq()
    migrated.models(order())
    assert migrated.Order.xq.check() == []
    assert migrated.Order.stats().transition["R-T"] == 1  # what was counted goes on


def test_a_migration_that_would_strand_tasks_is_refused_and_changes_nothing(migrated):
    Order = migrated.Order
    Order.put({})
    Order.bury(Order.take())
    migrated.models(order({"delayed": True}))
    migrated.make_queue_migration()
    with pytest.raises(xq.ConfigurationError, match=r"1 buried \(B\)"):
        migrated.migrate()
    migrated.models(order())
    assert migrated.Order.xq.check() == []


def test_a_model_that_is_no_queue_any_more_loses_what_was_installed(migrated):
    migrated.models(order(None))
    migrated.make_queue_migration()
    assert migrated.written[-1] == "0003_remove_order_queue"
    migrated.migrate()
    assert of_xq() == []
    assert migrated.Order.objects.count() == 0
    migrated.migrate("0002")
    migrated.models(order())
    assert migrated.Order.xq.check() == []


def test_an_operation_by_hand_takes_the_definition_of_the_model_and_may_come_before_its_fields(app):
    app.models(order(SECOND))
    app.run("makemigrations", app.label)
    app.migration("0002_by_hand", "InstallQueue('order'),")
    app.migrate()
    assert app.Order.xq.check() == []
    assert "No changes" in app.make_queue_migration()
    app.migrate("0001")
    assert of_xq() == []
    more = "tube = models.CharField(max_length=20, null=True)"
    app.models(order(SECOND, fields={**FIELDS, "tube": "tube"}, more=more))
    app.run("makemigrations", app.label)
    app.migrate()
    assert app.Order.xq.check() == []


OWN = """
own = xq.Feature("parked", transitions=(xq.Transition("R", "park", "P"), xq.Transition("P", "restart", "R")))
"""


@pytest.mark.parametrize("feature", ["'id': lambda task: 7", "'parked': own"])
def test_what_cannot_be_written_says_how_it_is_done_by_hand(app, feature):
    app.models(OWN + order().replace("{'delayed'", f"{{{feature}, 'delayed'"))
    app.run("makemigrations", app.label)
    words = r"by hand, with the operation xq\.adapters\.django\.migrations\.InstallQueue\('order'\)"
    with pytest.raises(CommandError, match=words):
        app.make_queue_migration()


def test_what_is_wrong_with_the_model_named_is_said(app):
    app.models(order(None))
    with pytest.raises(CommandError, match="there is no model 'nonsense'"):
        app.run("xq_makemigration", "nonsense")
    with pytest.raises(CommandError, match=f"manage.py makemigrations {app.label}"):
        app.make_queue_migration()
    app.run("makemigrations", app.label)
    with pytest.raises(CommandError, match="is no queue"):
        app.make_queue_migration()
    more = "tube = models.CharField(max_length=20, null=True)"
    app.models(order(fields={**FIELDS, "tube": "tube"}, more=more))
    with pytest.raises(CommandError, match="its fields tube are in no migration yet"):
        app.make_queue_migration()
    with pytest.raises(xq.ConfigurationError, match="without fields="):
        InstallQueue("order", features={"keep": True})


# migrations of the table: the models before, those after, and the operations where Django would not write them itself


def due(field="models.FloatField(null=True)"):
    """The model whose runat has another name."""
    return order(fields={**FIELDS, "runat": "due"}).replace("runat = models.FloatField(null=True)", f"due = {field}")


def refers(name="Customer", key="key", size=10):
    """A model with a foreign key to another one."""
    key = f"{key} = models.CharField(max_length={size}, primary_key=True)"
    customer = f"customer = models.ForeignKey({name}, models.CASCADE, null=True)"
    return f"class {name}(models.Model):\n    {key}\n" + order(more=customer)


PRIORITY = "priority = models.IntegerField(default=0)"
NO_PRIORITY = order(fields={"status": "status", "runat": "runat"}).replace(PRIORITY, "pass")
RANKED = due().replace(PRIORITY, "priority = models.BigIntegerField(default=0, db_column='rank')")
OWN_TABLE = order(more="class Meta:\n        db_table = 'orders'")
ANOTHER_KEY = order(more="id = models.AutoField(primary_key=True)")
KEY = "migrations.AlterField('Order', 'id', models.AutoField(primary_key=True, serialize=False))"
AWAY, BACK = (f"{name}('Order', fields={FIELDS!r}, features={FIRST!r})" for name in ("UninstallQueue", "InstallQueue"))
RENAME = "migrations.RenameField('Order', 'runat', 'due')"
LARGER = "migrations.AlterField('Order', 'due', models.BigIntegerField(null=True))"
TO_SQL = "'{rename} runat TO due', '{rename} due TO runat'"

CHANGES = {
    "another name of a field": (order(), due(), f"{RENAME},"),
    "other names, columns and types of fields": (
        order(),
        RANKED.replace("max_length=10", "max_length=20"),
        f"""{RENAME},
        migrations.AlterField('Order', 'status', models.CharField(max_length=20, default='R')),
        migrations.AlterField('Order', 'priority', models.IntegerField(default=0, db_column='rank')),
        migrations.AlterField('Order', 'priority', models.BigIntegerField(default=0, db_column='rank')),""",
    ),
    "another name of the model": (
        OWN_TABLE,
        OWN_TABLE.replace("class Order", "class Purchase").replace("max_length=10", "max_length=20"),
        """migrations.RenameModel('Order', 'Purchase'),
        migrations.AlterField('Purchase', 'status', models.CharField(max_length=20, default='R')),""",
    ),
    "a field that comes": (NO_PRIORITY, order(), ""),
    "a field that goes": (order(), NO_PRIORITY, ""),
    "a field that goes, another that is altered": (
        order(),
        NO_PRIORITY,
        """migrations.RemoveField('Order', 'priority'),
        migrations.AlterField('Order', 'status', models.CharField(max_length=10, default='R')),""",
    ),
    "a field that goes and comes again": (
        order(),
        order(),
        """migrations.RemoveField('Order', 'status'),
        migrations.AddField('Order', 'status', models.CharField(max_length=10, default='R')),""",
    ),
    "operations apart from the state": (
        order(),
        due("models.BigIntegerField(null=True)"),
        f"migrations.SeparateDatabaseAndState([{RENAME}, {LARGER}], [{RENAME}, {LARGER}]),",
    ),
    "SQL apart from the state": (
        order(),
        due(),
        f"migrations.SeparateDatabaseAndState([migrations.RunSQL({TO_SQL})], [{RENAME}]),",
    ),
    "SQL that says what it does": (order(), due(), f"migrations.RunSQL({TO_SQL}, [{RENAME}]),"),
    "another type of the key": (order(), ANOTHER_KEY, f"{AWAY}, {KEY}, {BACK},"),
    "another type of the key, apart from the state": (
        order(),
        ANOTHER_KEY,
        f"migrations.SeparateDatabaseAndState([{AWAY}, {KEY}, {BACK}], [{KEY}]),",
    ),
    "another name of a model that it refers to": (
        refers(),
        refers("Client"),
        "migrations.RenameModel('Customer', 'Client'),",
    ),
    "another key of a model that it refers to": (
        refers(),
        refers(size=20),
        "migrations.AlterField('Customer', 'key', models.CharField(max_length=20, primary_key=True, serialize=False)),",
    ),
    "another name of the key that it refers to": (
        refers(),
        refers(key="code"),
        "migrations.RenameField('Customer', 'key', 'code'),",
    ),
}


COUNTED_ANEW = {
    "a field that goes",
    "a field that goes, another that is altered",
    "another type of the key",
    "another type of the key, apart from the state",
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_queue_is_whole_behind_a_migration_of_its_table_and_when_it_is_undone(app, what):
    before, after, operations = CHANGES[what]
    begin(app, before)
    app.Order.xq.put_many([{"name": "a"}, {"name": "b"}])
    app.models(after)
    rename = f"ALTER TABLE {app.label}_order RENAME COLUMN"
    if operations:
        app.migration("0003_by_hand", operations.replace("{rename}", rename))
    assert ("No changes" in app.run("makemigrations", app.label)) == bool(operations)
    (Order,) = (model for model in apps.get_app_config(app.label).get_models() if "xq" in vars(model))
    for _ in range(2):
        written = app.run("xq_makemigration", Order._meta.label)
    assert "No changes" in written
    app.migrate()
    assert Order.xq.check() == []
    assert Order.take().name == "a"
    Order.xq.release_all()
    app.migrate("0002")
    app.models(before)
    assert app.Order.xq.check() == []
    assert held(app.Order.xq) == {"R": 2}
    assert app.Order.stats().transition.get("R-T", 0) == (what not in COUNTED_ANEW)


def test_a_plan_that_fails_behind_a_migration_leaves_the_queue_whole(app):
    begin(app, refers())
    app.Order.put({"customer": app.Customer.objects.create(key="a")})
    app.models(refers("Client"))
    app.migration("0003_customer", "migrations.RenameModel('Customer', 'Client'),")
    app.migration("0004_fails", "migrations.RunSQL('SELECT no_such_column', migrations.RunSQL.noop),")
    with pytest.raises(DatabaseError):
        app.migrate()
    assert app.Order.xq.check() == []
    assert app.Order.take().customer_id == "a"


def test_a_key_is_given_another_type_only_while_the_queue_is_away(migrated):
    migrated.migration("0003_key", f"{KEY},")
    if connection.vendor != "sqlite":
        with pytest.raises(xq.ConfigurationError, match=r"write UninstallQueue\('Order', \.\.\.\) before"):
            migrated.migrate()


def test_no_operation_is_lost_where_another_app_has_put_more_into_the_plan(app):
    app.others = ["django.contrib.contenttypes", "xq.adapters.django"]
    customer = "\nclass {name}(models.Model):\n    name = models.TextField(default='')\n"
    app.models(order() + customer.format(name="Customer"))
    app.run("makemigrations", app.label)
    app.make_queue_migration()
    app.run("migrate", "contenttypes")
    app.migrate()
    app.models(order() + customer.format(name="Client") + "    age = models.IntegerField(default=7)\n")
    app.migration(
        "0003_client",
        """
        migrations.RenameModel('Customer', 'Client'),
        migrations.AddField('Client', 'age', models.IntegerField(default=7)),
        """,
    )
    assert "No changes" in app.run("makemigrations", app.label)
    app.migrate()
    assert app.Client.objects.create().age == 7
    assert app.Order.xq.check() == []


@contextmanager
def statements():
    """What is executed meanwhile."""
    found: list[str] = []

    def hear(execute, sql, params, many, context):
        found.append(str(sql))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(hear):
        yield found


def test_a_queue_is_not_taken_down_where_its_field_changes_in_no_database(migrated):
    choices = "models.CharField(max_length=10, default='R', choices=[('R', 'ready')])"
    migrated.migration("0003_choices", f"migrations.AlterField('Order', 'status', {choices}),")
    with statements() as seen:
        migrated.migrate()
    assert any("xq_queue" in sql for sql in seen)
    assert [sql for sql in seen if sql.startswith("DROP TRIGGER")] == []


def test_the_sql_of_a_migration_can_be_read(migrated):
    forth = migrated.run("sqlmigrate", migrated.label, "0002")
    assert "CREATE TABLE IF NOT EXISTS" in forth
    assert "_xq_insert" in forth
    back = migrated.run("sqlmigrate", migrated.label, "0002", backwards=True)
    assert f"drops what of {migrated.label}_order_xq_... is there" in back


def test_squashed_migrations_still_install_the_queue(migrated):
    text = order(SECOND, more="tube = models.CharField(max_length=20, null=True)")
    migrated.models(text)
    migrated.run("makemigrations", migrated.label)
    migrated.make_queue_migration()
    migrated.migrate("zero")
    migrated.run("squashmigrations", migrated.label, "0004", interactive=False)
    for name in migrated.written:
        if "squashed" not in name:
            (migrated.migrations / f"{name}.py").unlink()
    migrated.models(text)
    migrated.migrate()
    assert migrated.Order.xq.check() == []
    assert "No changes" in migrated.make_queue_migration()


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
    app.Order.xq.adapter.installation.take_down()
    app.migrate(database="default")
    assert app.Order.xq.check() != []
    app.migration("0003_note", "migrations.AddField('Order', 'note', models.TextField(null=True)),")
    app.migrate(database=other)
    assert app.Order.xq.check() == []
    assert app.Order.take()._state.db == other
    app.migrate("0001", database=other)
    assert not [name for name in connections[other].introspection.table_names() if "xq_" in name]


# without migrations, and after them


def test_an_app_without_migrations_has_its_queues_installed_by_migrate(app):
    app.models(order(SECOND))
    with override_settings(MIGRATION_MODULES={app.label: None}):
        app.run("migrate", run_syncdb=True, interactive=False)
        assert app.Order.xq.check() == []
        app.run("migrate", run_syncdb=True, interactive=False)
    assert app.Order.take() is None


def test_migrate_installs_anew_what_somebody_took_away(migrated):
    Order = migrated.Order
    Order.xq.put_many([{}, {}])
    Order.xq.adapter.installation.take_down()
    Order.objects.create()
    assert Order.xq.check() != []
    migrated.migrate()
    assert Order.xq.check() == []
    assert Order.stats().counts["R"] == 3


def test_migrations_keep_a_queue_that_was_reconfigured_by_hand_to_what_its_model_says(migrated):
    migrated.Order.xq.put_many([{}, {}])
    migrated.Order.xq.reconfigure(SECOND)
    migrated.migrate()
    assert migrated.Order.xq.check() == []
    migrated.Order.xq.take().ack()
    longer = "migrations.AlterField('Order', 'status', models.CharField(max_length=20, default='R')),"
    migrated.migration("0003_later", longer + "\nmigrations.RemoveField('Order', 'name'),")
    migrated.models(order(SECOND).replace('name = models.CharField(max_length=50, default="a task")', "pass"))
    migrated.migrate()
    assert migrated.Order.xq.check() == []
    assert held(migrated.Order.xq) == {"R": 1, "D": 1}
    migrated.Order.xq.adapter.installation.take_down()
    migrated.migrate()
    assert migrated.Order.xq.check() == []
    migrated.migrate("0002")
    migrated.models(order(SECOND))
    assert migrated.Order.xq.check() == []
    assert held(migrated.Order.xq) == {"R": 1, "D": 1}


def test_a_flush_leaves_nothing_that_was_counted(migrated):
    Order = migrated.Order
    Order.xq.put_many([{}, {}])
    Order.take()
    migrated.run("flush", interactive=False)
    assert Order.xq.check() == []
    assert sum(Order.stats().counts.values()) == 0
    assert sum(Order.stats().transition.values()) == 0
    assert Order.put({}).status == "R"
    assert Order.take() is not None


def test_a_database_is_left_before_it_is_dropped_where_it_is_a_tests(migrated):
    is_of_a_test = str(connection.settings_dict["NAME"]).startswith("test_")
    assert ("destroy_test_db" in vars(connection.creation)) is is_of_a_test


# queues with every feature


ON = ("delayed", "buried", "keep", "history", "lifetime", "utube", "unique")
FULL: dict[str, object] = {**dict.fromkeys(ON, True), "ttr": 3600, "limit": 1000}
ROLES = ("status", "runat", "priority", "tube", "attempts", "deadline", "utube", "error", "ttr")
QUEUES = f"""
class Task(models.Model):
    name = models.CharField(max_length=50, default="a task")
    size = models.IntegerField(default=0)
    status = models.CharField(max_length=10, default="R")
    runat = models.FloatField(null=True)
    deadline = models.FloatField(null=True)
    priority = models.IntegerField(default=0)
    tube = models.CharField(max_length=50, null=True)
    owner = models.CharField(max_length=64, null=True)
    attempts = models.IntegerField(default=0)
    utube = models.CharField(max_length=50, null=True)
    job = models.CharField(max_length=50, null=True)
    error = models.TextField(null=True)
    ttr = models.FloatField(null=True)

    class Meta:
        abstract = True

class Customer(models.Model):
    name = models.CharField(max_length=50)

FIELDS = {{each: each for each in {ROLES!r}}} | {{"unique": "job"}}

@queue({{**FIELDS, "owner": "owner"}}, {FULL!r}, tube_stats=["a"])
class Order(Task):
    customer = models.ForeignKey(Customer, models.CASCADE, null=True)

@queue(FIELDS, {FULL!r})
class Mail(Task):
    pass
"""
LATER = {
    "a field that is null": "AddField('Order', 'note', models.TextField(null=True))",
    "a field with a default": "AddField('Order', 'note', models.IntegerField(default=7))",
    "a foreign key": "AddField('Order', 'other', models.ForeignKey('Customer', models.CASCADE, null=True))",
    "a longer name": "AlterField('Order', 'size', models.BigIntegerField(default=0))",
    "a longer status": "AlterField('Order', 'status', models.CharField(max_length=20, default='R'))",
    "a status of any length": "AlterField('Order', 'status', models.TextField(default='R'))",
    "a utube of any length": "AlterField('Order', 'utube', models.TextField(null=True))",
    "a larger priority": "AlterField('Order', 'priority', models.BigIntegerField(default=0))",
    "a longer unique value": "AlterField('Order', 'job', models.CharField(max_length=80, null=True))",
    "a longer utube": "AlterField('Order', 'utube', models.CharField(max_length=80, null=True))",
    "a tube that no index holds": "AlterField('Order', 'tube', models.CharField(max_length=1000, null=True))",
    "an index of the application's": "AlterField('Order', 'runat', models.FloatField(null=True, db_index=True))",
    "another name": "RenameField('Order', 'name', 'title')",
    "a field less": "RemoveField('Order', 'name')",
    "an index": "AddIndex('Order', models.Index(fields=['name', 'status'], name='own_index'))",
    "a constraint": "AddConstraint('Order', models.UniqueConstraint(fields=['name', 'id'], name='own_unique'))",
    "what is unique together": "AlterUniqueTogether('Order', {('name', 'id')})",
    "another name of another model": "RenameModel('Customer', 'Client')",
    "the key of another model": "AlterField('Customer', 'id', models.AutoField(primary_key=True))",
}


@pytest.fixture
def busy(app):
    """Two queues with every feature on, which hold tasks in several states."""
    begin(app, QUEUES)
    app.run("xq_makemigration", f"{app.label}.Mail")
    app.migrate()
    for Task in (app.Order, app.Mail):
        Task.xq.put_many([{"utube": f"u{n % 3}", "tube": "a", "job": f"j{n}"} for n in range(6)])
        Task.ack(Task.take())
        Task.take()
    return app


def test_later_migrations_leave_the_queues_exact(busy):
    # One after the other, forth and back: to begin anew for each would take minutes.
    queues = [bare(busy.Order), bare(busy.Mail)]
    expected = [{"D": 1, "T": 1, "R": 4}, {"D": 1, "T": 1, "R": 4}]
    for what, operation in LATER.items():
        busy.migration("0004_later", f"migrations.{operation},")
        for name in ("0004", "0003"):
            busy.migrate(name)
            assert [queue.adapter.installation.missing() for queue in queues] == [[], []], (what, name)
            assert [held(queue) for queue in queues] == expected, (what, name)
        busy.forget("0004_later")
    assert [queue.check() for queue in queues] == [[], []]
    task = busy.Order.take()
    assert busy.Order.ack(task).status == "D"
    assert held(queues[0]) == {"D": 2, "T": 1, "R": 3}


def bare(model):
    """The queue on a model of the same table without the fields that come and go."""
    fields = {
        each.name: each.clone() for each in model._meta.local_fields if each.name not in ("name", "size", "customer")
    }
    meta = type("Meta", (), {"app_label": "bare", "apps": Apps(), "db_table": model._meta.db_table})
    return queue_apart(
        type("Bare", (models.Model,), {"__module__": __name__, **fields, "Meta": meta}),
        None,
        model.xq.adapter.definition,
    )


def test_tasks_that_a_migration_moves_are_counted_behind_what_alters_their_table(busy):
    bury = f"lambda apps, editor: apps.get_model('{busy.label}', 'Order').objects.filter(status='R').update(status='B')"
    longer = "migrations.AlterField('Order', 'status', models.CharField(max_length=30, default='R')),"
    busy.migration("0004_later", f"{longer}\nmigrations.RunPython({bury}),")
    busy.migrate()
    assert busy.Order.xq.check() == []
    assert busy.Order.stats().transition["R-B"] == 4
