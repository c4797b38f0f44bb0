"""Limits are data: the numbers of utube and rate change while programs run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import another_process, elsewhere, is_exact, next_release, waiter

UTUBE = {"utube": {"n": 1, "of": {"b": 2}}}
MANY = 2_000
RATE = {"rate": {"limit": "1/h", "by": "utube", "of": {"b": "2/h"}}}


def put(Task: Any, **n: int) -> None:
    Task.xq.put_many([task(name=f"{utube}{i}", utube=utube) for utube, many in n.items() for i in range(many)])


def taken(Task: Any) -> Counter[str]:
    """How many tasks of each utube are taken now."""
    return Counter(each.utube for each in iter(Task.take, None))


@pytest.mark.parametrize("fair", [False, True])
def test_a_raised_limit_lets_the_next_tasks_go_and_a_lowered_one_takes_nothing_back(make, fair):
    Task = make({"utube": {"n": 1, "fair": fair}}, roles=("utube",))
    put(Task, a=9, b=9)
    assert taken(Task) == {"a": 1, "b": 1}
    Task.xq.set_limit("utube", 3, value="a")
    assert taken(Task) == {"a": 2}
    Task.xq.set_limit("utube", 2)
    assert taken(Task) == {"b": 1}
    Task.xq.set_limit("utube", 1, value="a")
    assert Task.select().where(Task.status == "T", Task.utube == "a").count() == 3
    for _ in range(3):
        assert Task.take() is None
        Task.xq.sweep()
        assert Task.xq.check() == []
        Task.get(Task.status == "T", Task.utube == "a").ack()
    assert taken(Task) == {"a": 1}
    Task.xq.set_limit("utube", None, value="a")
    assert taken(Task) == {"a": 1}
    Task.xq.set_limit("utube", None)
    Task.get(Task.status == "T", Task.utube == "a").ack()
    assert Task.take() is None
    for limit in (9, None):
        Task.xq.set_limit("utube", limit, value="a")
        Task.xq.sweep()
    assert Task.take() is None
    assert is_exact(Task)


def set_beside(Task: Any, n: int, value: str) -> None:
    """Set a utube's limit beside this connection's transaction. SQLite has one writer: there it is a part of it."""
    db = Task._meta.database

    def call() -> None:
        Task.xq.set_limit("utube", n, value)
        Task.xq.sweep()

    call() if isinstance(db, pw.SqliteDatabase) else elsewhere(db, call)


@pytest.mark.parametrize("fair", [False, True])
def test_a_lowered_limit_reaches_a_utube_that_an_open_transaction_has_just_begun_with(make_shared, fair):
    Task = make_shared({"utube": {"n": 5, "fair": fair}}, roles=("utube",))
    put(Task, a=9)
    with make_shared.db.atomic():
        assert Task.take()
        set_beside(Task, 1, value="a")
    assert taken(Task) == {}
    Task.get(Task.status == "T").ack()
    assert taken(Task) == {"a": 1}
    assert is_exact(Task)


@pytest.mark.parametrize("fair", [False, True])
def test_a_lowered_limit_reaches_a_utube_whose_task_ends_in_a_transaction_with_an_old_snapshot(make_shared, fair):
    Task = make_shared({"utube": {"n": 3, "fair": fair}}, roles=("utube",))
    put(Task, a=9)
    first, *others = iter(Task.take, None)
    with make_shared.db.atomic():
        assert Task.select().count() == 9
        set_beside(Task, 1, value="a")
        first.ack()
    for each in others:
        assert taken(Task) == {}
        each.ack()
    assert taken(Task) == {"a": 1}
    assert is_exact(Task)


def test_a_rate_that_was_raised_lets_a_task_go_at_once_and_a_lowered_one_counts_from_the_next_take(make):
    Task = make(RATE, roles=("utube",))
    put(Task, a=9, b=9)
    assert taken(Task) == {"a": 1, "b": 1}
    Task.xq.set_limit("rate", "60/m", value="a")
    assert taken(Task) == {"a": 1}
    Task.xq.clock.tick(1)
    assert taken(Task) == {"a": 1}
    Task.xq.set_limit("rate", {"limit": "3/h", "burst": 2}, value="a")
    Task.xq.clock.tick(1)
    assert taken(Task) == {"a": 2}
    Task.xq.clock.tick(1_798)
    assert taken(Task) == {"b": 1}
    Task.xq.clock.tick(2)
    assert taken(Task) == {"a": 1}
    Task.xq.set_limit("rate", "1/s")
    assert taken(Task) == {}
    Task.xq.set_limit("rate", None, value="a")
    assert taken(Task) == {"a": 1}
    assert is_exact(Task)


def test_the_limit_of_a_whole_queues_rate_changes(make):
    Task = make({"rate": "1/h"}, roles=("utube",))
    put(Task, a=9)
    assert taken(Task) == {"a": 1}
    Task.xq.set_limit("rate", {"limit": "20/s", "burst": 5})
    assert taken(Task) == {"a": 1}
    Task.xq.clock.tick(1)
    assert taken(Task) == {"a": 5}


def test_what_was_set_wins_over_the_defaults_of_each_release_and_they_are_one_definition(make):
    Task = make(UTUBE, roles=("utube",))
    other = next_release(Task, features={"utube": {"n": 3, "of": {"c": 2}}})
    put(Task, a=5, b=5, c=5)
    assert other.check() == []
    assert taken(other) == {"a": 1, "b": 2, "c": 1}  # the defaults of the release that was installed
    other.install()
    assert taken(Task) == {"a": 2, "b": 1, "c": 1}
    other.set_limit("utube", 4, value="a")
    Task.xq.install()
    assert taken(other) == {"a": 1}
    assert [limit[:4] for limit in other.limits()] == [
        ("utube", None, 1, 1), ("utube", "a", 4, None), ("utube", "b", 2, 2)
    ]  # fmt: skip


def test_what_was_set_stays_while_a_release_with_other_features_is_installed(make):
    Task = make(UTUBE, roles=("utube",))
    put(Task, a=3)
    Task.xq.set_limit("utube", 3, value="a")
    assert taken(Task) == {"a": 3}
    Task.xq.set_limit("utube", 1, value="a")
    other = next_release(Task, features={**UTUBE, "buried": True})
    other.install()
    assert other.take() is None
    assert other.check() == []


def test_limits_are_listed_with_their_defaults_and_by_whom_they_were_set(make):
    Task = make({**UTUBE, "rate": {"limit": "1/m", "by": "utube"}}, roles=("utube",))
    Task.xq.clock.tick(5)
    Task.xq.set_limit("rate", "9/m", value="acme", actor="ann", reason="they pay more")
    Task.xq.set_limit("utube", 7, value="b", actor="ann")
    now = Task.xq.clock.now
    assert Task.xq.limits() == [
        ("rate", None, "1/m", "1/m", None, None, None),
        ("rate", "acme", "9/m", None, now, "ann", "they pay more"),
        ("utube", None, 1, 1, None, None, None),
        ("utube", "b", 7, 2, now, "ann", None),
    ]
    Task.xq.set_limit("utube", None, value="b")
    assert Task.xq.limits()[-1] == ("utube", "b", 2, 2, None, None, None)


@pytest.mark.parametrize("kind", [pw.IntegerField, pw.UUIDField, pw.TextField], ids=["integer", "uuid", "text"])
@pytest.mark.parametrize("fair", [False, True])
def test_a_value_is_of_the_utubes_type(make, kind, fair):
    values = {pw.IntegerField: (5, 50), pw.UUIDField: ("01" * 16, "02" * 16), pw.TextField: ("", "x" * 3_000)}[kind]
    Task = make({"utube": {"fair": fair}}, roles=("utube",), attributes={"utube": kind(null=True)})
    Task.xq.put_many([{"utube": value} for value in values for _ in range(3)])
    Task.xq.set_limit("utube", 3, value=values[0])
    found = Counter(str(each.utube).replace("-", "") for each in iter(Task.take, None))
    assert found == {str(values[0]): 3, str(values[1]): 1}
    if kind is not pw.TextField:
        with pytest.raises(xq.BadValue, match="its column holds another type"):
            Task.xq.set_limit("utube", 3, value="acme")


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (xq.BadValue, "utube and rate have limits", ("limit", 5)),
        (xq.FeatureOff, "'utube' needs the feature", ("utube", 5)),
        (xq.BadValue, "such as \"100/m\"", ("rate", "100")),
        (xq.BadValue, 'is a rate such as "100/m", or one with burst', ("rate", 100)),
        (xq.BadValue, "one limit for all: give no value", ("rate", "100/m", "acme")),
    ],
    ids=["no such", "off", "no rate", "no limit", "no by"],
)  # fmt: skip
def test_a_bad_limit_is_refused(make, error, match, call):
    Task = make({"rate": "5/m"})
    with pytest.raises(error, match=match):
        Task.xq.set_limit(*call)
    assert [limit.limit for limit in Task.xq.limits()] == ["5/m"]


@pytest.mark.parametrize(
    ("call", "match"),
    [((0,), "1 to 1,000,000"), (("5",), "1 to 1,000,000"), ((5, 1.5), "text, an integer or a UUID")],
    ids=["zero", "text", "value"],
)
def test_a_bad_number_of_a_utube_is_refused(make, call, match):
    Task = make(UTUBE, roles=("utube",))
    with pytest.raises((xq.BadValue, xq.BadType), match=match):
        Task.xq.set_limit("utube", *call)


def test_a_limit_that_is_rolled_back_was_never_set(make):
    Task = make(UTUBE, roles=("utube",))
    put(Task, a=3)
    before = Task.xq.limits()
    with Task._meta.database.atomic() as block:
        Task.xq.set_limit("utube", 3)
        block.rollback()
    assert Task.xq.limits() == before
    assert taken(Task) == {"a": 1}


@pytest.mark.parametrize(
    ("features", "call"),
    [({"utube": 1}, ("utube", 2)), ({"rate": {"limit": "1/h", "by": "utube"}}, ("rate", "1000/s"))],
    ids=["utube", "rate"],
)
def test_a_take_that_waits_in_another_process_gets_what_a_raised_limit_lets_go(make_live, features, call):
    Task = make_live(features, roles=("utube",))
    put(Task, a=2)
    assert taken(Task) == {"a": 1}

    def child():
        found = waiter(Task, lambda: Task.take(timeout=20))
        yield "waits"
        yield found.result().name

    with another_process(make_live.db, child) as other:
        next(other)
        Task.xq.set_limit(*call, value="a")
        assert next(other) == "a1"


def test_thousands_of_values_have_limits_of_their_own(make):
    Task = make({"utube": 1, "rate": {"limit": "1/h", "by": "utube"}}, roles=("utube",))
    with Task._meta.database.atomic():
        for i in range(MANY):
            Task.xq.set_limit("utube", 2, value=f"a{i}")
            Task.xq.set_limit("rate", {"limit": "9/h", "burst": 3}, value=f"a{i}")
    put(Task, a7=4, b=4, **{f"a{MANY - 1}": 4})
    assert taken(Task) == {"a7": 2, "b": 1, f"a{MANY - 1}": 2}
    assert len(Task.xq.limits()) == 2 * MANY + 2
    assert is_exact(Task)
