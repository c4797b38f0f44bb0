"""upgrade: what it asks of a model, what it leaves alone, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import peewee as pw
import pytest

import xq

FIELDS = {"status": "status", "runat": "runat"}
VERBS = {"put", "take", "ack", "release", "bury", "dig", "kick", "plow", "kill", "touch", "stats", "queue_stats"}


def test_a_decorator_without_its_arguments_says_how_to_write_it(make):
    decorator: Any = xq.queue
    with pytest.raises(xq.ConfigurationError, match=r"above Task with its arguments: write @queue\(fields="):
        decorator(make.model())


def test_the_verbs_are_on_the_model(make):
    Task = make({"buried": True})
    assert {name for name in VERBS if hasattr(Task, name)} == VERBS


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


def test_the_docstring_says_so():
    assert "only_save_dirty" in (xq.upgrade.__doc__ or "")


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


def test_a_completion_shows_what_an_application_calls(make):
    shown = dir(make({"buried": True}).xq)
    assert {"put", "take", "ack", "bury", "worker", "stats"} <= set(shown)
    assert not {"install", "recount", "adapter", "pipeline"} & set(shown)
