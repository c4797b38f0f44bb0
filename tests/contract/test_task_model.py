"""xq.Task: a model with a field for every role, whose models need no `fields=`."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.steps import bring, is_exact

ROLES = {
    *("status", "runat", "deadline", "priority", "tube", "utube"),
    *("unique", "owner", "attempts", "ttl", "ttr", "error", "trace"),
}
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


# what a queue of it is


def test_a_new_table_needs_no_fields(make):
    class Page(xq.Task):
        url = pw.TextField()

        class Meta:
            database = make.db

    pages = xq.upgrade(Page, features={"delayed": True, "buried": True, "keep": True, "ttr": 60}, clock=make.clock)
    make.db.create_tables([Page])
    Page.put({"url": "a"})
    taken = Page.take()
    assert (taken.url, taken.status, taken.attempts) == ("a", "T", 1)
    assert taken.release(delay=5).status == "W"
    make.clock.tick(5)
    assert Page.take().bury().status == "B"
    assert Page.dig(taken).status == "R"
    assert pages.ack(pages.take(), update={"url": "b"}).status == "D"
    assert pages.check() == []
    assert is_exact(Page)


def test_every_role_is_a_field_of_each_model(make):
    assert set(page(make)._meta.fields) == {"id", "url", *ROLES}


# which roles are mapped


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
        ({"unique": True}, {"unique"}),
        ({"utube": True}, {"utube"}),
    ],
    ids=lambda value: str(sorted(value)),
)
def test_a_queue_maps_the_roles_that_its_features_use_beside_those_that_cost_nothing(make, features, more):
    pages = xq.upgrade(page(make), features=features)
    assert dict(pages.roles) == {role: role for role in ALWAYS | more}


def test_the_role_tube_is_mapped_where_tubes_are_counted_or_where_fields_says_so(make):
    Page = queue(make, tube_stats=["a"])
    Page.put({"url": "a", "tube": "a"})
    assert Page.stats().tube["a"].counts["R"] == 1
    assert Page.take(tube="b") is None
    assert Page.take(tube="a").tube == "a"
    assert "tube" in xq.upgrade(page(make), {"tube": "tube"}).roles


def test_fields_come_before_those_of_the_base(make):
    model = page(make, state=pw.TextField(default="R"), rank=pw.IntegerField(default=0))
    Page = queue(make, fields={"status": "state", "priority": model.rank}, model=model)
    assert (Page.xq.roles["status"], Page.xq.roles["priority"]) == ("state", "rank")
    Page.xq.put_many([{"url": "a", "rank": 2}, {"url": "b", "rank": 1}])
    assert (Page.take().url, Page.xq.count("T")) == ("b", 1)


# fields of the application's own


def test_a_field_of_the_same_name_replaces_that_of_the_base(make):
    model = page(make, status=pw.CharField(default="new"), priority=pw.FloatField(default=0.5))
    Page = queue(make, {"keep": True}, model, statuses={"R": "new", "D": "old"})
    Page.create(url="a")
    assert (Page.take().priority, Page.stats().counts["T"]) == (0.5, 1)


def test_a_field_of_another_kind_is_left_to_the_application(make):
    class User(pw.Model):
        class Meta:
            database = make.db

    make.db.create_tables([User])
    Page = queue(make, {"ttr": 60}, page(make, owner=pw.ForeignKeyField(User), error=pw.IntegerField(default=404)))
    assert {"owner", "error"}.isdisjoint(Page.xq.roles)
    user = User.create()
    Page.put({"url": "a", "owner": user})
    assert Page.take().owner == user
    assert Page.xq.ack(1).error == 404


def test_a_field_that_a_feature_needs_must_be_of_a_kind_for_it(make):
    with pytest.raises(xq.ConfigurationError, match="role 'runat' is a DoubleField.*Page.runat is text"):
        xq.upgrade(page(make, runat=pw.TextField(null=True)), features={"ttr": 60})
    with pytest.raises(xq.ConfigurationError, match="feature 'ttr' needs the role 'runat'"):
        xq.upgrade(page(make, runat=None), features={"ttr": 60})


# the base itself


def test_the_base_has_no_database_and_cannot_be_upgraded():
    assert xq.Task._meta.database is None
    with pytest.raises(xq.ConfigurationError, match=r"xq\.Task is abstract .* upgrade the models that inherit from it"):
        xq.upgrade(xq.Task)
    assert "xq" not in vars(xq.Task)


def test_a_model_that_does_not_inherit_from_it_is_told_both_ways(make):
    with pytest.raises(xq.ConfigurationError, match=r"map the role 'status' to a field of Task; .*xq\.Task needs no"):
        xq.upgrade(make.model())


# later


def test_other_features_later_have_the_roles_that_they_use(make):
    Page = queue(make, {"keep": True})
    held = bring(Page, "T", {"url": "a"})
    Page.put({"url": "b"})
    Page.xq.reconfigure({"keep": True, "ttr": 60, "utube": True})
    assert {"runat", "ttr", "utube"} <= set(Page.xq.roles)
    assert held.ack().status == "D"
    assert Page.take().runat is not None
    Page.xq.reconfigure({"keep": True})
    assert set(Page.xq.roles) == ALWAYS
    again = page(make)
    xq.upgrade(again, features={"keep": True}, clock=make.clock)
    assert again.xq.check() == []


# advice


def test_check_advises_a_column_for_the_owner_when_it_is_asked_to(make):
    plain, better = make({"keep": True}, roles=()), queue(make)
    assert plain.xq.check() == []
    (advice,) = plain.xq.check(advise=True)
    assert advice.startswith("advice: map the role 'owner' to a nullable text field of 64 characters or more: ")
    assert better.xq.check(advise=True) == []


def test_taken_tasks_keep_their_token_when_the_role_owner_is_mapped_later(make):
    before = make({"keep": True}, roles=())
    held = bring(before, "T", {"name": "a"})
    ((key, token, *_),) = before.xq.taken()
    before.xq.adapter.maintenance.stop_maintenance()
    after = make({"keep": True}, roles=("owner",))
    assert [task[:2] for task in after.xq.taken()] == [(key, token)]
    assert after.xq.check(advise=True) == []
    assert after.xq.ack(held.id).status == "D"
    assert is_exact(after)
