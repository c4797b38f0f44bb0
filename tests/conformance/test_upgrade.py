"""upgrade: what it asks of a model, what it leaves alone, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conformance.steps import bring, row, state
from tests.factories import task
from xq.adapters.peewee import PeeweeStore
from xq.compose import build

FIELDS = {"status": "status", "runat": "runat"}
VERBS = {"put", "take", "ack", "release", "bury", "dig", "kick", "plow", "kill", "touch", "stats", "queue_stats"}


# what it gives


def test_upgrade_returns_the_handle_of_the_model(make):
    model = make.model()
    handle = xq.upgrade(model, FIELDS, {"keep": True})
    assert isinstance(handle, xq.Queue)
    assert handle is model.xq
    assert handle.model is model
    make.db.create_tables([model])
    assert handle.put({"name": "a"}).name == "a"
    assert isinstance(handle.take(), model)


def test_the_decorator_is_the_same(make):
    @xq.queue(fields={"status": "status"}, features={"keep": True})
    class Page(pw.Model):
        url = pw.TextField()
        status = pw.CharField(max_length=1, default="R")

        class Meta:
            database = make.db

    pages: Any = Page
    make.db.create_tables([Page])
    assert isinstance(pages.put({"url": "a"}), Page)
    assert pages.take().ack().status == "D"
    assert pages.stats().counts["D"] == 1


def test_a_decorator_without_its_arguments_says_how_to_write_it(make):
    decorator: Any = xq.queue
    with pytest.raises(xq.ConfigurationError, match=r"above Task with its arguments: write @queue\(fields="):
        decorator(make.model())


def test_a_queue_may_be_apart_from_its_model_which_never_hears_of_it(make):
    model = make.model()
    apart = build(PeeweeStore(model), {"status": "status"}, {"keep": True}, apart=True)
    make.db.create_tables([model])
    assert [name for name in make.db.get_tables() if "xq" in name] == []
    assert (hasattr(model, "xq"), model._meta.only_save_dirty) == (False, False)
    apart.install()
    assert apart.put({"name": "a"}).name == "a"


def test_the_model_stays_what_it_was(make):
    model = make.model()
    fields, name = list(model._meta.sorted_fields), model._meta.table_name
    make({"keep": True}, model=model)
    assert (model._meta.sorted_fields, model._meta.table_name) == (fields, name)
    assert model.create(name="a").name == "a"
    assert model.select().where(model.name == "a").count() == 1


def test_a_model_of_the_applications_own_init_and_methods_is_kept(make):
    class Page(pw.Model):
        status = pw.CharField(default="R")
        made = 0

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            type(self).made += 1
            self.note = "mine"

        @property
        def shout(self):
            return self.status + "!"

        class Meta:
            database = make.db

    Task = make({}, model=Page, fields={"status": "status"})
    put = Task.put({})
    taken = Task.take()
    assert (put.note, taken.note, taken.shout) == ("mine", "mine", "T!")
    assert taken.ack().id == put.id


def test_the_verbs_are_on_the_model(make):
    Task = make({"buried": True})
    assert {name for name in VERBS if hasattr(Task, name)} == VERBS


def test_no_methods_may_be_wanted(make):
    Task = make({"buried": True}, methods=False)
    assert {name for name in VERBS if hasattr(Task, name)} == set()
    Task.xq.put({})
    assert Task.xq.ack(Task.xq.take())


def test_some_methods_may_be_wanted(make):
    Task = make({"buried": True}, methods=("put", "ack"))
    assert {name for name in VERBS if hasattr(Task, name)} == {"put", "ack"}
    with pytest.raises(xq.ConfigurationError, match="pull"):
        make({}, model=make.model(table_name="other"), methods=("pull",))


# what it touches


def test_upgrade_touches_no_database(tmp_path):
    path = tmp_path / "never.db"
    for database in (pw.SqliteDatabase(path), pw.SqliteDatabase(None), pw.DatabaseProxy()):

        class Page(pw.Model):
            status = pw.CharField(default="R")

            class Meta:
                database = None

        Page._meta.set_database(database)
        handle = xq.upgrade(Page, {"status": "status"}, {"keep": True})
        assert handle.machine.states == ("R", "T", "D")
    assert not path.exists()


def test_a_database_may_be_named_later(make):
    proxy = pw.DatabaseProxy()
    model = make.model(meta={"database": proxy})
    xq.upgrade(model, FIELDS, {"keep": True}, clock=make.clock)
    proxy.initialize(make.db)
    make.db.create_tables([model])
    assert bring(model, "D").status == "D"
    assert model.xq.check() == []


def test_a_model_may_move_to_another_database(make, tmp_path):
    Task = make({"keep": True})
    home = bring(Task, "T")
    other = pw.SqliteDatabase(tmp_path / "other.db")
    with other.bind_ctx([Task]):
        with pytest.raises(xq.NotInstalled):
            Task.put(task())
        other.create_tables([Task])
        Task.put(task(name="away"))
        assert Task.take().name == "away"
        assert Task.xq.count() == 1
        with pytest.raises(xq.NotOwner):
            home.ack()
    assert home.ack().status == "D"
    Task.bind(other)
    assert Task.xq.count("T") == 1
    other.close()


def test_two_models_of_one_base_are_two_queues(make):
    class Base(pw.Model):
        status = pw.CharField(default="R")

        class Meta:
            database = make.db

    class One(Base):
        pass

    class Two(Base):
        pass

    one, two = (make({}, model=model, fields={"status": "status"}) for model in (One, Two))
    one.put({})
    assert (one.xq.count(), two.xq.count()) == (1, 0)
    assert not hasattr(Base, "put")


# subclasses


def test_a_subclass_is_not_the_queue_of_its_parent(make):
    Task = make({"keep": True})
    sub = type("Sub", (Task,), {})
    for name in [*sorted(VERBS), "xq"]:
        with pytest.raises(xq.ConfigurationError, match="Sub"):
            getattr(sub, name)
    assert Task.put({}).status == "R"


def test_a_subclass_may_be_a_queue_of_its_own(make):
    Task = make({"keep": True})
    sub = type("Sub", (Task,), {})
    Sub = make({"buried": True}, model=sub)
    assert Sub.xq.count() == 0
    Sub.put({})
    assert Sub.take().bury().status == "B"
    Task.put({})
    assert Task.take().ack().status == "D"


def test_a_model_is_upgraded_once(make):
    Task = make({"keep": True})
    with pytest.raises(xq.ConfigurationError, match="reconfigure"):
        xq.upgrade(Task, FIELDS)
    assert bring(Task, "D").status == "D"


# names that are taken


@pytest.mark.parametrize("name", sorted(VERBS))
def test_a_method_never_hides_a_field(make, name):
    model = make.model(**{name: pw.TextField(null=True)})
    with pytest.raises(xq.ConfigurationError, match=rf"{name}(.|\n)*methods=") as taken:
        xq.upgrade(model, FIELDS)
    assert "methods=False" in str(taken.value)
    assert not hasattr(model, "xq"), "nothing was changed"
    Task = make({}, model=model, methods=tuple(VERBS - {name}))
    assert getattr(Task.xq.put({name: "mine"}), name) == "mine"


def test_a_method_never_hides_an_attribute_of_the_model_or_a_base(make):
    class Mixin:
        def kill(self):
            return "mine"

    for attributes, bases in [({"kill": lambda self: "mine"}, ()), ({}, (Mixin,))]:
        plain = make.model()
        model = type("Page", (*bases, plain), attributes)
        with pytest.raises(xq.ConfigurationError, match="kill"):
            xq.upgrade(model, FIELDS)
        assert model().kill() == "mine"
        xq.upgrade(model, FIELDS, methods=False)
        assert model().kill() == "mine"


def test_a_method_never_hides_a_back_reference(make):
    model = make.model()
    type("Note", (pw.Model,), {
        "page": pw.ForeignKeyField(model, backref="touch"),
        "Meta": type("Meta", (), {"database": make.db}),
    })  # fmt: skip
    with pytest.raises(xq.ConfigurationError, match="touch"):
        xq.upgrade(model, FIELDS)


def test_a_field_named_xq_is_told(make):
    with pytest.raises(xq.ConfigurationError, match="xq"):
        xq.upgrade(make.model(xq=pw.TextField(null=True)), FIELDS)


# save


def test_save_writes_what_the_application_changed_and_never_moves_a_task_back(make):
    Task = make({"keep": True}, roles=("runat", "owner", "attempts"))
    put = Task.put(task(name="a"))
    taken = Task.take()
    put.name = "b"
    put.save()
    after = row(Task, put)
    assert (after.name, after.status, after.attempts) == ("b", "T", 1)
    assert after.owner is not None
    taken.ack()
    taken.size = 9
    taken.save()
    assert (state(Task, put), row(Task, put).size) == ("D", 9)


def test_a_row_read_by_another_query_is_saved_the_same_way(make):
    Task = make({"keep": True})
    Task.put(task())
    read = Task.get()
    Task.take().ack()
    read.name = "new"
    read.save()
    assert (Task.get().name, Task.get().status) == ("new", "D")


def test_a_fresh_task_has_nothing_to_save(make):
    Task = make({})
    put = Task.put(task())
    assert put.dirty_fields == []
    assert Task.take().dirty_fields == []


def test_the_docstring_says_so():
    assert "only_save_dirty" in (xq.upgrade.__doc__ or "")


# roles


def test_a_role_is_a_field_by_name_or_the_field_itself(make):
    model = make.model(priority_of_mine=pw.IntegerField(default=0))
    fields = {"status": model.status, "runat": "runat", "priority": model.priority_of_mine}
    Task = make({"ttl": 10}, model=model, fields=fields)
    Task.put({"name": "b", "priority_of_mine": 2})
    Task.put({"name": "a", "priority_of_mine": 1})
    assert Task.take().name == "a"


def test_a_role_may_be_a_field_that_a_base_declares(make):
    class Base(pw.Model):
        status = pw.CharField(default="R")

        class Meta:
            database = make.db

    class Page(Base):
        name = pw.TextField(null=True)

    Task = make({}, model=Page, fields={"status": Base.status})
    assert Task.put({}).status == "R"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"runat": "runat"},
        {"status": "nonsense"},
        {"status": None},
        {"status": 5},
        {"status": "status", "nonsense": "name"},
        {"status": "status", "runat": "status"},
        {"status": "status", "owner": "job", "tube": "job"},
        {"status": "status", "attempts": "id"},
        [("status", "status")],
        "status",
        None,
    ],
)
def test_fields_map_roles_to_different_fields_of_the_model(make, fields):
    with pytest.raises(xq.ConfigurationError):
        xq.upgrade(make.model(), fields)


def test_a_field_of_another_model_is_no_field_of_this_one(make):
    other = make.model(elsewhere=pw.CharField(default="R"))
    with pytest.raises(xq.ConfigurationError, match="elsewhere"):
        xq.upgrade(make.model(), {"status": other.elsewhere})


MISFITS = [
    ("runat", pw.FloatField(null=True)),
    ("runat", pw.IntegerField(null=True)),
    ("runat", pw.TextField(null=True)),
    ("runat", pw.TimestampField(null=True)),
    ("runat", pw.DoubleField()),
    ("deadline", pw.FloatField(null=True)),
    ("deadline", pw.DateTimeField()),
    ("priority", pw.TextField(null=True)),
    ("tube", pw.IntegerField(null=True)),
    ("owner", pw.IntegerField(null=True)),
    ("owner", pw.CharField(max_length=20, null=True)),
    ("owner", pw.TextField()),
    ("attempts", pw.TextField()),
    ("ttl", pw.TextField(null=True)),
    ("ttl", pw.DoubleField()),
    ("ttr", pw.DateTimeField(null=True)),
    ("unique", pw.DoubleField(null=True)),
]


@pytest.mark.parametrize(("role", "field"), MISFITS, ids=[f"{role} {type(field).__name__}" for role, field in MISFITS])
def test_a_field_that_does_not_fit_its_role_is_refused(make, role, field):
    model = make.model(**{role: type(field)(**_arguments(field))})
    with pytest.raises(xq.ConfigurationError, match=role):
        xq.upgrade(model, {"status": "status", role: role})


def _arguments(field):
    return {"null": field.null} | ({"max_length": field.max_length} if isinstance(field, pw.CharField) else {})


def test_a_single_precision_runat_is_refused_with_the_way_out(make):
    model = make.model(runat=pw.FloatField(null=True))
    with pytest.raises(xq.ConfigurationError, match="DoubleField"):
        xq.upgrade(model, FIELDS)


@pytest.mark.parametrize(
    ("role", "field"),
    [
        ("runat", pw.BigIntegerField),
        ("runat", pw.DateTimeField),
        ("deadline", pw.BigIntegerField),
        ("priority", pw.DoubleField),
        ("priority", pw.SmallIntegerField),
        ("priority", pw.DecimalField),
        ("tube", pw.CharField),
        ("owner", pw.CharField),
        ("attempts", pw.BigIntegerField),
        ("ttl", pw.FloatField),
        ("unique", pw.CharField),
        ("unique", pw.BigIntegerField),
    ],
)
def test_a_field_that_fits_its_role_is_taken(make, role, field):
    attributes = {role: field(null=True) if role != "attempts" else field(default=0)}
    Task = make({}, attributes=attributes, fields={"status": "status", role: role})
    Task.put(task())
    assert Task.take().ack()


def test_a_model_without_a_key_is_refused(make):
    with pytest.raises(xq.ConfigurationError, match="primary key"):
        xq.upgrade(make.model(meta={"primary_key": False}), FIELDS)


@pytest.mark.parametrize("wrong", [None, 5, "Task", object, pw.Field])
def test_only_a_model_can_be_upgraded(wrong):
    with pytest.raises(xq.ConfigurationError):
        xq.upgrade(wrong, FIELDS)


# features


@pytest.mark.parametrize(
    "features",
    [
        {"nonsense": True},
        {"delayed": "yes"},
        {"delayed": 1},
        {"buried": "all"},
        {"buried": 5},
        {"keep": 1},
        {"zombie": 0},
        {"zombie": -1},
        {"zombie": "30"},
        {"ttl": 0},
        {"ttl": math.inf},
        {"ttl": math.nan},
        {"ttl": "60"},
        {"ttr": -5},
        {"ttr": [60]},
        {"lifetime": 0},
        {"retval": "list"},
        {"retval": True},
        {"id": "snowflake"},
        {"id": 5},
        {"limit": 0},
        {"limit": 1.5},
        {"not_check_session": "yes", "ttr": 5},
    ],
)
def test_a_feature_of_a_wrong_value_is_named(make, features):
    with pytest.raises(xq.ConfigurationError, match=next(iter(features))):
        xq.upgrade(make.model(), FIELDS | {"deadline": "deadline"}, features)


@pytest.mark.parametrize("features", [5, "keep", [("keep", True)], {5: True}, {None: True}])
def test_features_are_a_mapping_of_names(make, features):
    with pytest.raises(xq.ConfigurationError):
        xq.upgrade(make.model(), FIELDS, features)


@pytest.mark.parametrize("off", [False, None])
def test_a_feature_may_be_off(make, off):
    Task = make({"buried": off, "keep": off, "ttl": off, "zombie": off, "limit": off, "unique": off, "id": off})
    assert Task.xq.machine.states == ("R", "T")
    assert bring(Task, "T").ack()


@pytest.mark.parametrize(("one", "other"), [("keep", "zombie"), ("ttl", "lifetime")])
def test_features_that_exclude_each_other_are_both_named(make, one, other):
    for features in ({one: True, other: True}, {other: True, one: True}):
        with pytest.raises(xq.Conflict) as conflict:
            xq.upgrade(make.model(), FIELDS | {"deadline": "deadline"}, features)
        assert set(conflict.value.features) == {one, other}
        assert one in str(conflict.value)
        assert other in str(conflict.value)


@pytest.mark.parametrize(
    ("feature", "role"),
    [("delayed", "runat"), ("zombie", "runat"), ("ttl", "runat"), ("ttr", "runat"), ("lifetime", "deadline")],
)
def test_a_feature_whose_role_is_not_mapped_names_it(make, feature, role):
    with pytest.raises(xq.ConfigurationError, match=rf"{feature}.*{role}"):
        xq.upgrade(make.model(), {"status": "status"}, {feature: True})


def test_a_feature_of_the_users_own_that_decides_what_another_does_is_a_conflict(make):
    mine = xq.Feature("mine", transitions=(xq.Transition("T", "ack", "B", fenced=True),))
    with pytest.raises(xq.Conflict) as conflict:
        xq.upgrade(make.model(), FIELDS, {"mine": mine, "keep": True})
    assert set(conflict.value.features) == {"mine", "keep"}


def test_a_feature_of_the_users_own_may_replace_what_the_core_does(make):
    mine = xq.Feature("mine", transitions=(xq.Transition("T", "ack", "A", fenced=True),))
    Task = make({"mine": mine})
    acked = bring(Task, "T").ack()
    assert (acked.status, Task.xq.count("A")) == ("A", 1)


def test_a_feature_of_the_users_own_that_leaves_a_state_that_nothing_enters_is_refused(make):
    mine = xq.Feature("mine", transitions=(xq.Transition("Q", "leave", "R"),))
    with pytest.raises(xq.ConfigurationError, match="Q"):
        xq.upgrade(make.model(), FIELDS, {"mine": mine})


@pytest.mark.parametrize(
    ("strategy", "key"),
    [
        ("uuid", pw.AutoField),
        ("time64", pw.AutoField),
        ("auto_increment", pw.CharField),
        ("auto_increment", pw.UUIDField),
        ("time64", pw.UUIDField),
        ("uuid", pw.BigIntegerField),
    ],
)
def test_a_strategy_that_does_not_fit_the_key_is_refused(make, strategy, key):
    model = make.model(key() if key is pw.AutoField else key(primary_key=True))
    with pytest.raises(xq.ConfigurationError, match=r"id.*"):
        xq.upgrade(model, FIELDS, {"id": strategy})


def test_a_text_key_too_short_for_a_uuid_is_refused(make):
    with pytest.raises(xq.ConfigurationError, match="id"):
        xq.upgrade(make.model(pw.CharField(max_length=10, primary_key=True)), FIELDS, {"id": "uuid"})


def test_a_composite_key_cannot_be_made(make):
    model = make.model(
        site=pw.CharField(), page=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("site", "page")}
    )
    with pytest.raises(xq.ConfigurationError, match="id"):
        xq.upgrade(model, FIELDS, {"id": "uuid"})
