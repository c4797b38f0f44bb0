"""upgrade: what it asks of a model, what it leaves alone, and what it refuses."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import bring, row, state

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


def test_no_methods_may_be_wanted(make):
    Task = make({"buried": True}, methods=False)
    assert {name for name in VERBS if hasattr(Task, name)} == set()
    Task.xq.put({})
    assert Task.xq.ack(Task.xq.take())


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


# subclasses


def test_a_subclass_may_be_a_queue_of_its_own(make):
    Task = make({"keep": True})
    sub = type("Sub", (Task,), {})
    for name in [*sorted(VERBS), "xq"]:  # not the queue of its parent
        with pytest.raises(xq.ConfigurationError, match="Sub"):
            getattr(sub, name)
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


# save


def test_save_writes_what_the_application_changed_and_never_moves_a_task_back(make):
    Task = make({"keep": True}, roles=("runat", "owner", "attempts"))
    put = Task.put(task(name="a"))
    read, taken = Task.get(), Task.take()
    assert put.dirty_fields == taken.dirty_fields == []
    put.name = "b"
    put.save()
    after = row(Task, put)
    assert (after.name, after.status, after.attempts) == ("b", "T", 1)
    assert after.owner is not None
    taken.ack()
    taken.size = 9
    taken.save()
    read.job = "read by another query"
    read.save()
    assert row(Task, put).job == "read by another query"
    assert (state(Task, put), row(Task, put).size) == ("D", 9)


# roles


def test_a_role_is_a_field_by_name_or_the_field_itself(make):
    model = make.model(priority_of_mine=pw.IntegerField(default=0))
    fields = {"status": model.status, "runat": "runat", "priority": model.priority_of_mine}
    Task = make({"ttl": 10}, model=model, fields=fields)
    Task.put({"name": "b", "priority_of_mine": 2})
    Task.put({"name": "a", "priority_of_mine": 1})
    assert Task.take().name == "a"


FITTING: list[tuple[str, Any]] = [
    *(("runat", field) for field in (pw.BigIntegerField, pw.DateTimeField)),
    *(("priority", field) for field in (pw.DoubleField, pw.SmallIntegerField, pw.DecimalField)),
    *((role, pw.CharField) for role in ("tube", "owner", "unique")),
    *((role, pw.BigIntegerField) for role in ("deadline", "attempts", "unique")),
    ("ttl", pw.FloatField),
]


@pytest.mark.parametrize(("role", "field"), FITTING)
def test_a_field_that_fits_its_role_is_taken(make, role, field):
    attributes = {role: field(null=True) if role != "attempts" else field(default=0)}
    Task = make({}, attributes=attributes, fields={"status": "status", role: role})
    Task.put(task())
    assert Task.take().ack()
