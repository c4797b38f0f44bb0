"""take and take_many: which task comes next, and which never does."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

from tests.factories import task, tasks
from tests.steps import is_exact, names, refers, state, transitions

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


def named(field: str, beside: str = "", those: str = "", **values: Any) -> list[dict[str, Any]]:
    """Tasks by their names, with the value of a field each, and of another one a letter each."""
    found = [{"name": name, field: value} for name, value in values.items()]
    return [one | {beside: other} for one, other in zip(found, those)] if beside else found


PAIR = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
# roles, fields that replace those of the model, what is put, what take is told, and the names in the order of the takes
ORDERS: dict[str, tuple[tuple[str, ...], dict[str, Any], list[dict[str, Any]], dict[str, Any], str]] = {
    "by put": ((), {}, named("size", a=0, b=0, c=0), {}, "abc"),
    "by priority, then by put": (("priority",), {}, named("priority", c=1, a=-5, d=1, b=0, e=2), {}, "abcde"),
    "no priority comes first": (("priority",), {}, named("priority", b=-1000, c=0, a=None), {}, "abc"),
    "without its role a priority means nothing": (("runat",), {}, named("priority", a=9, b=1), {}, "ab"),
    "by the parts of a key": ((), PAIR, named("page", "site", "baa", c=1, b=10, a=9), {}, "abc"),
    "of one tube": (
        ("priority", "tube"),
        {},
        named("priority", "tube", "xxyx", d=5, b=1, a=0, c=1),
        {"tube": "x"},
        "bcd",
    ),
    "an empty tube is a tube": (("tube",), {}, named("tube", a="", b=None), {"tube": ""}, "a"),
}


@pytest.mark.parametrize("order", ORDERS)
def test_tasks_are_taken_in_order_one_by_one_and_many_at_once(make, order):
    roles, fields, puts, options, wanted = ORDERS[order]
    Task = make(roles=roles, model=make.model(**fields))
    Task.xq.put_many(puts)
    assert Task.xq.take_many(0, **options) == []
    assert names(Task.xq.take_many(10**30, **options)) == [*wanted]
    Task.xq.release_all()
    assert names([Task.take(**options) for _ in wanted]) == [*wanted]
    assert Task.take(**options) is None
    assert Task.xq.take_many(3, **options) == []


# what is due


def test_take_sees_what_fell_due_though_nothing_swept(make):
    Task = make({"delayed": True, "ttr": 10})
    late = Task.put(task(), delay=5)
    held = Task.put(task())
    assert Task.take().id == held.id
    Task.xq.clock.tick(5)
    assert Task.take().id == late.id
    Task.xq.clock.tick(10)
    assert Task.take().id == late.id
    assert Task.take().id == held.id


def test_a_task_past_its_ttl_is_never_taken_though_the_database_refuses_to_delete_it(make):
    Task = make({"ttl": True}, roles=("runat", "tube"))
    expired, good = Task.put(task(tube="a"), ttl=1), Task.put(task(tube="b"))
    refers(Task, expired)
    Task.xq.clock.tick(2)
    assert Task.take(tube="a") is None
    assert [taken.id for taken in Task.xq.take_many(2)] == [good.id]
    assert Task.take() is None
    assert state(Task, expired) == "R"


def test_a_take_that_can_be_undone_goes_on_after_a_due_task_that_the_database_refuses_to_delete(make_live):
    own_field = type("OwnField", (pw.TextField,), {"python_value": str})  # it may fail to read
    Task = make_live({"ttl": True}, roles=("runat",), attributes={"name": own_field()})
    expired = Task.put(task(), ttl=60)
    refers(Task, expired)
    assert Task.take().release().id == expired.id
    Task.update(runat=1).execute()
    assert Task.take() is None


# rows of other writers


def test_a_row_that_another_program_writes_is_a_task(make):
    Task = make(
        {"ttl": 10, "buried": True}, attributes={"attempts": pw.IntegerField(null=True)}, roles=("attempts", "runat")
    )
    make.db.execute_sql("INSERT INTO task (size, status) VALUES (1, 'R')")
    Task.xq.clock.tick(1000)
    taken = Task.take()
    assert (taken.size, taken.attempts) == (1, 1), "no time was set, so it never falls due"
    assert taken.bury().status == "B"
    assert transitions(Task) == {"X-R": 1, "R-T": 1, "T-B": 1}


@pytest.mark.parametrize(
    ("db", "sql"),
    [
        ("sqlite", "DELETE FROM task"),
        ("postgres", "TRUNCATE TABLE task"),
        ("mariadb", "DELETE FROM task"),  # its TRUNCATE calls no trigger
        ("mysql", "DELETE FROM task"),
    ],
    indirect=["db"],
)
def test_a_table_that_plain_sql_empties_is_counted_as_empty(make, sql):
    Task = make({"buried": True})
    Task.xq.put_many(tasks(3))
    Task.take().bury()
    make.db.execute_sql(sql)
    assert Task.stats().counts == {"R": 0, "T": 0, "B": 0}
    assert transitions(Task) == {"X-R": 3, "R-T": 1, "T-B": 1, "R-X": 2, "B-X": 1}
    assert is_exact(Task)
