"""The feature max_takes: a task whose takes are lost is given up, and what counts as lost."""

from __future__ import annotations

from typing import Any

import peewee as pw

from tests.factories import task, tasks
from tests.steps import is_exact, row, state
from xq import Feature, Timer

FEATURES = {"max_takes": {"n": 3, "to": "B"}, "buried": True, "ttr": 60, "history": True, "delayed": True, "keep": True}
GIVEN_UP = "taken 3 times and never finished"


def queue(make: Any, features: dict[str, Any] = FEATURES, **options: Any) -> Any:
    return make(features, roles=("runat", "error"), attributes={"error": pw.TextField(null=True)}, **options)


def lose(Task: Any, by: Any = None) -> Any:
    """Let the ttr of a take pass."""
    found = (by or Task.take)()
    Task.xq.clock.tick(61)
    return found


def test_after_so_many_lost_takes_a_task_is_buried_with_the_reason_and_the_next_one_is_taken(make, caplog):
    Task = queue(make)
    Task.xq.put_many(tasks(2))
    assert [lose(Task).id for _ in range(4)] == [1, 1, 1, 2]
    found = row(Task, 1)
    assert (found.status, found.error, found.owner, found.runat, found.xq_lost) == ("B", GIVEN_UP, None, None, 0)
    assert [each.event for each in Task.xq.history(1)][-3:] == ["ttr", "take", "max_takes"]
    assert (Task.stats().transition["T-B"], row(Task, 2).xq_lost, is_exact(Task)) == (1, 0, True)
    Task.xq.sweep()
    assert (state(Task, 2), row(Task, 2).xq_lost) == ("R", 1)
    assert [each.getMessage() for each in caplog.records] == [f"task 1 was {GIVEN_UP}"]


def test_what_a_caller_or_an_end_in_good_order_returns_is_not_lost_and_a_dig_begins_to_count_anew(make):
    Task = queue(make)
    Task.put(task())
    for _ in range(4):  # of which none counts, also not the takes that another state interrupts
        Task.take().release()
        Task.xq.snatch(Task.take())
        Task.take().release(delay=1)
        Task.xq.clock.tick(2)
        with Task.xq.session():
            Task.take()
        assert row(Task, 1).xq_lost == 0
    for back in (Task.dig, Task.xq.restart):
        lose(Task)
        lose(Task)
        Task.take().release()
        assert row(Task, 1).xq_lost == 2  # a release ends no count
        Task.bury(Task.take()) if back == Task.dig else Task.take().ack()
        back(1)
    assert [lose(Task).id for _ in range(3)] == [1] * 3
    assert Task.take() is None


def test_a_task_may_be_deleted_instead_whoever_took_it(make):
    Task = queue(make, {"max_takes": {"n": 2, "to": "X"}, "ttr": 60, "history": True})
    Task.xq.put_many(tasks(3))
    plainly = Task.update(status="T").where(Task.id <= 2).execute  # as another program takes
    for _ in range(2):
        Task.xq.clock.tick(1)
        plainly()
        Task.xq.sweep()  # their ttr begins
        Task.xq.clock.tick(61)
        Task.xq.sweep()
    assert ([each.id for each in Task.select()], Task.take().id) == ([3], 3)
    assert [each.event for each in Task.xq.history() if each.target == "X"] == ["max_takes"] * 2
    assert is_exact(Task)


def test_a_row_that_the_database_refuses_to_bury_holds_up_no_other(make):
    refuses = [pw.Check("error IS NULL OR size <> 1")]
    Task = queue(make, model=make.model(error=pw.TextField(null=True), meta={"constraints": refuses}))
    Task.xq.put_many([{"size": 1}, {"size": 2}, {"size": 3}])
    for _ in range(3):
        Task.xq.take_many(3)
        Task.xq.clock.tick(61)
        Task.xq.sweep()
    assert [state(Task, key) for key in (1, 2, 3)] == ["T", "B", "B"]


def test_an_own_timer_that_returns_tasks_loses_none(make):
    own = Feature("own", timers=(Timer("T", "late", "R", option="late", default=5.0),))
    Task = queue(make, {"max_takes": 1, "buried": True, "own": own})
    Task.put(task())
    for _ in range(3):
        assert lose(Task).id == 1
