"""reprioritise: a task waits on with another priority."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, is_exact, next_release

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection


@pytest.fixture
def Task(make):
    return make({"priority": True, "delayed": True, "buried": True, "history": True, "ttl": 60})


def acts(Task):
    return [(row.key, row.source, row.target, row.actor) for row in Task.xq.history() if row.event == "reprioritise"]


def test_a_task_gets_another_place_among_the_others_and_its_times_go_on(Task):
    Task.xq.put_many(tasks(3))
    told, before = [], Task.xq.peek(3)
    Task.xq.on_change(lambda task, *what: told.append(what))
    Task.xq.clock.tick(5)
    with Task.xq.acting("ann"):
        moved = Task.xq.reprioritise(3, -1)
    assert (moved.priority, moved.status, moved.runat) == (-1, "R", before.runat)
    assert (acts(Task), told) == ([("3", "R", "R", "ann")], [("reprioritise", "R", "R")])
    assert ([Task.take().id for _ in range(3)], is_exact(Task)) == ([3, 1, 2], True)


def test_several_tasks_get_it_or_none_and_a_delayed_one_waits_on(Task):
    before = Task.put(task(), delay=9)
    Task.put(task())
    moved = Task.xq.reprioritise_many([1, 2], 7)
    assert [(each.status, each.priority) for each in moved] == [("W", 7), ("R", 7)]
    assert moved[0].runat == before.runat
    for here in "TB":  # which have no place
        with pytest.raises(xq.WrongState):
            Task.xq.reprioritise_many([1, bring(Task, here)], 8)
    assert Task.xq.peek(1).priority == 7


def test_all_that_a_filter_shows_get_it_once_and_those_that_have_it_are_left(make):
    Task = make({"priority": True, "history": True})  # one state, whose index a search follows, by the priority
    Task.xq.put_many(task(priority=n % 4) for n in range(12))
    operation = Task.xq.act("reprioritise", "", actor="ann", chunk=2, priority=2)
    assert (operation.preview.n, operation.run().done, len(acts(Task))) == (9, 9, 9)
    assert {each.priority for each in Task.select()} == {2}
    for wrong in ({}, {"priority": None}, {"priority": "5"}):
        with pytest.raises(xq.BadType, match="priority"):
            Task.xq.act("reprioritise", "", **wrong).run()


def test_the_first_task_of_a_utube_is_another_one_then(make):
    Task = make({"priority": True, "utube": True}, roles=("priority", "utube"))
    Task.xq.put_many(task(utube=utube) for utube in "aabb")
    Task.xq.reprioritise(2, -1)
    assert [Task.take().id for _ in range(2)] == [2, 3]


def test_a_queue_with_priorities_gets_the_method_without_an_installation(make):
    Task = make({"history": True}, roles=("priority",))
    Task.put(task())
    later = next_release(Task, features={"history": True, "priority": True})
    assert (later.reprioritise(1, 2).priority, len(acts(Task))) == (2, 1)
