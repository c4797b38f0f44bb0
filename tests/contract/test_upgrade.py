"""upgrade: what it asks of a model and leaves alone, and xq.Task, whose models need no `fields=`."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import bring, row, run_script, state

FIELDS = {"status": "status", "runat": "runat"}
VERBS = {"put", "take", "ack", "release", "bury", "dig", "kick", "plow", "kill", "touch", "stats", "queue_stats"}


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


def test_a_subclass_is_no_queue_and_saves_as_before_until_it_is_a_queue_of_its_own(make):
    Task = make({"keep": True})
    sub: Any = type("Sub", (Task,), {})
    for name in [*sorted(VERBS), "xq"]:  # not the queue of its parent
        with pytest.raises(xq.ConfigurationError, match="Sub"):
            getattr(sub, name)
    sub.create_table()
    stale = sub.create(status="T")
    sub.update(status="D").execute()
    stale.save()
    assert sub.get().status == "T"
    sub.drop_table()
    Sub = make({"buried": True}, model=sub)
    assert Sub.xq.count() == 0
    Sub.put({})
    assert Sub.take().bury().status == "B"
    Task.put({})
    assert Task.take().ack().status == "D"


def test_a_model_is_upgraded_once(make):
    Task = make({"keep": True})
    with pytest.raises(xq.ConfigurationError, match="is a queue already: change the features where it is upgraded"):
        xq.upgrade(Task, FIELDS)
    assert bring(Task, "D").status == "D"


# save


@pytest.mark.of_peewee("save() of Peewee's")
def test_save_writes_what_it_wrote_before_and_never_moves_a_task_back(make):
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
    assert (state(Task, put), row(Task, put).size) == ("D", 9)
    read.job = "read by another query"
    read.save()
    after = row(Task, put)
    assert (after.job, after.size, after.status) == ("read by another query", read.size, "D")  # the rest as in Peewee
    built = Task(id=put.id, name="built")
    assert built.save() == 1
    assert (row(Task, put).name, state(Task, put)) == ("built", "D")
    Task(id=put.id, status="R").save()
    assert state(Task, put) == "R"


class Notes(pw.TextField):
    """A list, which programs change in place."""

    def db_value(self, value: Any) -> Any:
        return "\n".join(value)

    def python_value(self, value: Any) -> Any:
        return value.split("\n")


def test_save_writes_a_value_that_was_changed_in_place_beside_what_the_queue_has_written_since(make):
    class Noted(make.model(notes=Notes(default=list))):  # type: ignore[misc]
        class Meta:
            table_name = "noted"

        def save(self, *args: Any, **options: Any) -> Any:
            if self.notes[-1] == "again":
                self.status = "R"  # by the save() of the application itself
            return super().save(*args, **options)

    Task = make({"keep": True}, model=Noted, roles=("runat", "owner", "attempts"))
    stale = Task.get(Task.put(task(notes=["a"])).id)
    Task.take().ack()
    stale.notes.append("b")
    assert stale.dirty_fields == []
    assert stale.save() == 1
    assert (row(Task, stale).notes, state(Task, stale), row(Task, stale).attempts) == (["a", "b"], "D", 1)
    stale.notes.append("again")
    stale.save()
    assert (row(Task, stale).notes[-1], state(Task, stale)) == ("again", "R")
    stale.save(only=[Task.attempts])  # which names it
    assert row(Task, stale).attempts == stale.attempts
    Task.xq.kill(stale.id)
    assert stale.save() == 0
    assert stale.save(force_insert=True)
    assert state(Task, stale) == "R"


# xq.Task: a model with a field for every role

ALWAYS = {"status", "priority", "owner", "attempts", "error"}


def page(make: Any, **fields: Any) -> Any:
    """A model of an application that inherits from xq.Task, on the database of the test."""
    meta = type("Meta", (), {"database": make.db, "table_name": "page"})
    return type("Page", (xq.Task,), {"url": pw.TextField(), **fields, "Meta": meta})


def queue(make: Any, features: Any = None, model: Any = None, **options: Any) -> Any:
    """The same, upgraded and installed."""
    model = model or page(make)
    xq.upgrade(model, features=features, clock=make.clock, **options)
    make.db.create_tables([model])
    return model


@pytest.mark.parametrize(
    ("features", "more"),
    [
        ({}, set()),
        ({"keep": True, "buried": True, "history": True, "limit": 5, "events": True}, set()),
        ({"delayed": True}, {"runat"}),
        ({"zombie": 5}, {"runat"}),
        ({"ttl": 5}, {"runat", "ttl"}),
        ({"ttr": 5}, {"runat", "ttr"}),
        ({"ttr": False}, set()),
        ({"lifetime": 5}, {"deadline", "ttl"}),
    ],
    ids=lambda value: str(sorted(value)),
)
def test_a_queue_maps_the_roles_that_its_features_use_beside_those_that_cost_nothing(make, features, more):
    pages = xq.upgrade(page(make), features=features)
    assert dict(pages.roles) == {role: role for role in ALWAYS | more}


def test_unique_and_utube_need_a_field_of_the_application_and_leave_the_others_mapped(make):
    for feature in ("unique", "utube"):
        with pytest.raises(xq.ConfigurationError, match=rf"as in fields={{'{feature}': \.\.\.}}"):
            xq.upgrade(page(make), features=dict[str, Any]({feature: True}))
        features: dict[str, Any] = {feature: True, "ttr": 5}
        pages = xq.upgrade(page(make), {feature: "url"}, features)
        assert pages.roles == {role: role for role in ALWAYS | {"runat", "ttr"}} | {feature: "url"}


def test_the_role_tube_is_mapped_where_tubes_are_counted_or_where_fields_says_so(make):
    Page = queue(make, tube_stats=["a"])
    Page.put({"url": "a", "tube": "a"})
    assert Page.stats().tube["a"].counts["R"] == 1
    assert Page.take(tube="b") is None
    assert Page.take(tube="a").tube == "a"
    assert "tube" in xq.upgrade(page(make), {"tube": "tube"}).roles


def test_a_field_of_another_kind_is_left_to_the_application(make):
    class User(pw.Model):
        class Meta:
            database = make.db

    make.db.create_tables([User])
    Page = queue(make, {"ttr": 60}, page(make, owner=pw.ForeignKeyField(User), error=pw.IntegerField(default=404)))
    assert (Page.xq.roles["owner"], "error" in Page.xq.roles) == ("xq_owner", False)
    user = User.create()
    Page.put({"url": "a", "owner": user})
    assert Page.take().owner == user
    assert Page.xq.ack(1).error == 404


def test_a_field_that_a_feature_needs_must_be_of_a_kind_for_it(make):
    with pytest.raises(xq.ConfigurationError, match="role 'runat' is a DoubleField.*Page.runat is text"):
        xq.upgrade(page(make, runat=pw.TextField(null=True)), features={"ttr": 60})
    assert xq.upgrade(page(make, runat=None), features={"ttr": 60}).roles["runat"] == "xq_runat"


def test_a_key_of_the_base_has_64_bits_and_another_program_may_leave_the_numbers_out(make):
    Page = queue(make)
    run_script(make.db, "INSERT INTO page (status, url) VALUES ('R', 'a')")
    Page.put({"id": 2**33, "url": "b"})
    taken = Page.xq.take_many(2)
    assert [(each.id, each.url, each.priority, each.attempts) for each in taken] == [(1, "a", 0, 1), (2**33, "b", 0, 1)]
    assert "id" not in page(make, url=pw.CharField(primary_key=True))._meta.fields


def test_the_base_has_no_database_and_cannot_be_upgraded():
    assert xq.Task._meta.database is None
    with pytest.raises(xq.ConfigurationError, match=r"xq\.Task is abstract .* upgrade the models that inherit from it"):
        xq.upgrade(xq.Task)
    assert "xq" not in vars(xq.Task)


# own columns


def test_a_table_that_is_there_is_a_queue_without_a_column_added_by_hand(make):
    model = make.model(status=pw.IntegerField(default=7))  # of the application, and none of the queue
    make.db.create_tables([model])
    model.insert_many([{"name": "a"}, {"name": "b"}]).execute()
    Task = make({"delayed": True, "buried": True, "ttr": 60}, model=model, fields={"attempts": True})
    Task.xq.install()
    assert (Task.xq.check(), Task.xq.count(), Task.take()) == ([], 0, None)
    Task.put({"name": "c"}, delay=5)
    Task.update(xq_status="R").where(Task.name == "b").execute()
    taken = Task.take()
    assert (taken.name, taken.status, taken.xq_status, taken.xq_attempts) == ("b", 7, "T", 1)
    assert (taken.bury().xq_status, Task.dig(taken.id).xq_status) == ("B", "R")
    Task.xq.clock.tick(5)
    assert [each.name for each in Task.xq.take_many(9)] == ["b", "c"]
    known: Any = {"name": "d", "status": 8, "size": 1, "priority": 1, "attempts": 0}
    values = [known.get(field.name) for field in make.model(status=pw.IntegerField())._meta.sorted_fields]
    assert (Task.put(values).name, Task.xq.check()) == ("d", [])


def test_a_queue_that_is_not_installed_names_the_columns_that_install_would_add(make):
    model = make.model()
    make.db.create_tables([model])
    Task = make.upgrade(model, {"status": "status"}, {"delayed": True}).model
    lacks = [f"the column task.{column} is missing" for column in ("xq_owner", "xq_runat")]
    assert Task.xq.check()[:2] == lacks
    assert "xq_runat" in Task.xq.ddl()
    with pytest.raises(xq.NotInstalled, match=rf"Task\.xq\.install\(\) installs .*{lacks[0]}"):
        Task.put({})
    Task.xq.install()
    taken = bring(Task, "T")
    Task.xq.uninstall(keep_columns=True)
    Task.xq.install()
    assert (Task.ack(taken).id, Task.xq.check()) == (taken.id, [])


def test_a_sequence_has_the_values_of_the_application_wherever_the_own_columns_are(make):
    fields = {"xq_owner": pw.CharField(max_length=64, null=True), "last": pw.TextField()}
    Task = make({"keep": True}, model=make.model(**fields), roles=())
    known: Any = {"size": 1, "priority": 1, "attempts": 0, "last": "z"}
    names = [name for name in Task._meta.sorted_field_names if name != "xq_owner"]
    assert Task.put([known.get(name) for name in names]).last == "z"
    assert Task.put([known.get(name) for name in Task._meta.sorted_field_names]).last == "z"


@pytest.mark.parametrize("role", ["priority", "tube", "unique"])
def test_a_role_that_is_the_applications_has_no_column_of_xq(make, role):
    with pytest.raises(xq.ConfigurationError, match=f"role '{role}' is a field of your own: add one"):
        xq.upgrade(make.model(), fields={role: True})
