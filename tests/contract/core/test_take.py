"""take and take_many: which task comes next, and which never does."""

from __future__ import annotations

import math
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import is_exact, keep_references, row, state

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


def names(taken):
    return [each.name for each in taken]


def test_nothing_comes_out_of_an_empty_queue(make):
    Task = make()
    assert Task.take() is None
    assert Task.xq.take_many(3) == []


def test_a_taken_task_is_taken(make):
    Task = make(roles=("runat", "owner", "attempts"))
    put = Task.put(task(name="a"))
    taken = Task.take()
    assert (taken.id, taken.name, taken.status, taken.attempts) == (put.id, "a", "T", 1)
    assert row(Task, put).__data__ == taken.__data__
    assert Task.take() is None


def test_the_task_put_first_is_taken_first(make):
    Task = make()
    put = [Task.put(task()).id for _ in range(5)]
    assert [Task.take().id for _ in range(5)] == put


def test_a_lower_priority_is_taken_first_and_then_the_order_of_put(make):
    Task = make()
    for name, priority in [("c", 1), ("a", -5), ("d", 1), ("b", 0), ("e", 2)]:
        Task.put(task(name=name, priority=priority))
    assert [Task.take().name for _ in range(5)] == ["a", "b", "c", "d", "e"]


def test_a_task_without_a_priority_comes_before_all_that_have_one(make):
    Task = make()
    for name, priority in [("b", -1000), ("c", 0), ("a", None)]:
        Task.put(task(name=name, priority=priority))
    assert names(Task.xq.take_many(3)) == ["a", "b", "c"]


def test_a_priority_may_be_a_fraction(make):
    Task = make(attributes={"priority": pw.DoubleField(default=0.0)})
    for name, priority in [("c", 0.75), ("b", 0.5), ("a", -0.25)]:
        Task.put(task(name=name, priority=priority))
    assert names(Task.xq.take_many(3)) == ["a", "b", "c"]


def test_without_the_role_priority_a_field_of_that_name_means_nothing(make):
    Task = make(roles=("runat",))
    Task.put(task(name="a", priority=9))
    Task.put(task(name="b", priority=1))
    assert names(Task.xq.take_many(2)) == ["a", "b"]


def test_a_released_task_keeps_its_place(make):
    Task = make()
    first, second = Task.put(task()), Task.put(task())
    Task.take().release()
    assert [Task.take().id, Task.take().id] == [first.id, second.id]


def test_keys_of_text_are_taken_in_their_order(make):
    Task = make({"id": "required"}, key=pw.CharField(primary_key=True))
    for key in ["b", "c", "a"]:
        Task.put(task(id=key))
    assert [each.id for each in Task.xq.take_many(3)] == ["a", "b", "c"]


def test_composite_keys_are_taken_in_the_order_of_their_parts(make):
    keys = [("b", 1), ("a", 10), ("a", 9)]
    model = make.model(
        site=pw.CharField(), page=pw.IntegerField(), meta={"primary_key": pw.CompositeKey("site", "page")}
    )
    Task = make(model=model)
    for site, page in keys:
        Task.put({"site": site, "page": page})
    assert [(each.site, each.page) for each in Task.xq.take_many(3)] == sorted(keys)


# many


def test_take_many_takes_up_to_n_in_order(make):
    Task = make()
    put = [each.id for each in Task.xq.put_many(tasks(5))]
    assert [each.id for each in Task.xq.take_many(2)] == put[:2]
    assert [each.id for each in Task.xq.take_many(9)] == put[2:]
    assert Task.xq.take_many(9) == []


def test_take_many_of_more_than_there_can_be_takes_all(make):
    Task = make()
    Task.xq.put_many(tasks(3))
    assert len(Task.xq.take_many(10**30)) == 3


def test_take_many_of_none_takes_none(make):
    Task = make()
    Task.put(task())
    assert Task.xq.take_many(0) == []
    assert Task.xq.count("R") == 1


@pytest.mark.parametrize("owner", [(), ("owner",)])
def test_thousands_are_taken_at_once(make, owner):
    Task = make(roles=("runat", *owner))
    put = [each.id for each in Task.xq.put_many(tasks(2500))]
    taken = Task.xq.take_many(2500)
    assert [each.id for each in taken] == put
    assert len(Task.xq.taken()) == 2500
    assert is_exact(Task)


@pytest.mark.parametrize(
    ("n", "error"), [(-1, xq.BadValue), (True, xq.BadType), (1.0, xq.BadType), ("1", xq.BadType), (None, xq.BadType)]
)
def test_a_number_of_tasks_is_a_whole_number(make, n, error):
    Task = make()
    Task.put(task())
    with pytest.raises(error):
        Task.xq.take_many(n)
    assert Task.xq.count("R") == 1


# tubes


def test_take_may_ask_for_a_tube(make):
    Task = make(roles=("runat", "priority", "tube"))
    for name, tube in [("a", "left"), ("b", "right"), ("c", None), ("d", "right")]:
        Task.put(task(name=name, tube=tube))
    assert Task.take(tube="right").name == "b"
    assert names(Task.xq.take_many(5, tube="right")) == ["d"]
    assert Task.take(tube="nowhere") is None
    assert names([Task.take(), Task.take()]) == ["a", "c"]


def test_each_tube_keeps_the_order_of_priority_and_put(make):
    Task = make(roles=("runat", "priority", "tube"))
    for name, tube, priority in [("d", "x", 5), ("b", "x", 1), ("a", "y", 0), ("c", "x", 1)]:
        Task.put(task(name=name, tube=tube, priority=priority))
    assert names(Task.xq.take_many(9, tube="x")) == ["b", "c", "d"]


def test_an_empty_tube_is_a_tube(make):
    Task = make(roles=("runat", "tube"))
    Task.put(task(name="a", tube=""))
    Task.put(task(name="b", tube=None))
    assert names(Task.xq.take_many(9, tube="")) == ["a"]


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


def test_a_ready_task_past_its_ttl_is_never_taken(make):
    Task = make({"ttl": 10})
    Task.put(task())
    Task.xq.clock.tick(10)
    assert Task.take() is None
    assert Task.stats().transition["R-X"] == 1


def test_a_task_past_its_deadline_is_never_taken(make):
    Task = make({"lifetime": 10})
    Task.put(task())
    Task.xq.clock.tick(10)
    assert Task.take() is None
    assert Task.stats().transition["R-X"] == 1


def test_a_task_past_its_time_is_never_taken_by_the_databases_clock(make_shared):
    Task = make_shared({"ttl": 3600, "delayed": True})
    expired, waiting, good = Task.put(task()), Task.put(task(), delay=3600), Task.put(task())
    Task.xq.take_many(0)
    Task.update(runat=1).where(Task.id.in_([expired.id, waiting.id])).execute()
    taken = [Task.take().id for _ in range(2)]
    assert sorted(taken) == sorted([waiting.id, good.id])
    assert Task.take() is None
    assert state(Task, expired) == "X"


def test_a_task_past_its_ttl_is_never_taken_though_the_database_refuses_to_delete_it(make):
    keep_references(make.db)
    Task = make({"ttl": True}, roles=("runat", "tube"))
    meta = type("Meta", (), {"database": make.db})
    Line: Any = type("Line", (pw.Model,), {"task": pw.ForeignKeyField(Task), "Meta": meta})
    make.db.create_tables([Line])
    expired, good = Task.put(task(tube="a"), ttl=1), Task.put(task(tube="b"))
    Line.insert(task=expired.id).execute()
    Task.xq.clock.tick(2)
    assert Task.take(tube="a") is None
    assert [taken.id for taken in Task.xq.take_many(2)] == [good.id]
    assert Task.take() is None
    assert state(Task, expired) == "R"


def test_a_task_of_no_time_to_live_is_never_taken(make):
    Task = make({"ttl": True})
    Task.put(task(), ttl=0)
    assert Task.take() is None


def test_a_task_taken_for_no_time_is_ready_again_at_once(make):
    Task = make({"ttr": True})
    Task.put(task())
    assert Task.take(ttr=0).status == "T"
    assert Task.take(ttr=0).status == "T"


# how long it is held


def test_take_holds_for_the_ttr_given_else_the_tasks_own_else_the_default(make):
    Task = make({"ttr": 60}, roles=("runat", "ttr"))
    Task.xq.put_many([{"name": "own", "ttr": 20}, {"name": "given", "ttr": 20}, {"name": "default"}])
    now = Task.xq.clock.now
    assert Task.take().runat == now + 20
    assert Task.take(ttr=5).runat == now + 5
    assert Task.take().runat == now + 60


def test_a_ttr_without_a_default_holds_for_ever(make):
    Task = make({"ttr": True})
    Task.xq.put_many(tasks(2))
    assert Task.take().runat is None
    assert Task.take(ttr=5).runat == Task.xq.clock.now + 5


def test_an_infinite_ttr_holds_for_ever(make):
    Task = make({"ttr": 60}, roles=("runat", "ttr"))
    Task.xq.put_many([{}, {"ttr": math.inf}])
    assert Task.take(ttr=math.inf).runat is None
    assert Task.take().runat is None
    Task.xq.clock.tick(1e9)
    assert Task.xq.sweep() == 0


def test_take_many_holds_them_all_as_long(make):
    Task = make({"ttr": 60})
    Task.xq.put_many(tasks(3))
    assert {each.runat for each in Task.xq.take_many(3, ttr=5)} == {Task.xq.clock.now + 5}


# rows of other writers


def test_a_row_that_the_application_creates_is_a_task(make):
    Task = make({"buried": True}, roles=("runat", "attempts"))
    created = Task.create(name="a")
    taken = Task.take()
    assert (taken.id, taken.attempts) == (created.id, 1)
    assert taken.bury().status == "B"
    assert Task.stats().transition == {"X-R": 1, "R-T": 1, "T-B": 1}


def test_a_row_that_was_taken_an_unknown_number_of_times_counts_from_nothing(make):
    Task = make(roles=("attempts",), attributes={"attempts": pw.IntegerField(null=True)})
    Task.create()
    assert Task.take().attempts == 1


def test_a_row_inserted_by_plain_sql_is_a_task(make):
    Task = make({"ttl": 10})
    make.db.execute_sql("INSERT INTO task (name, size, status, attempts) VALUES ('a', 1, 'R', 0)")
    Task.xq.clock.tick(1000)
    assert Task.take().name == "a", "no time was set, so it never falls due"


def test_a_row_moved_to_ready_by_plain_sql_is_a_task_again(make):
    Task = make({"keep": True})
    Task.put(task())
    done = Task.take().ack()
    Task.update(status="R").where(Task.id == done.id).execute()
    assert Task.take().id == done.id


def test_a_deleted_row_is_not_taken(make):
    Task = make()
    first = Task.put(task())
    second = Task.put(task())
    Task.delete().where(Task.id == first.id).execute()
    assert Task.take().id == second.id
    assert is_exact(Task)
