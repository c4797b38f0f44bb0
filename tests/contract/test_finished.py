"""When tasks ended: the role `finished`, ages that are not known, and zombies without a timer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import tasks
from tests.steps import install_after_the_statements, install_anew, is_exact

FEATURES = {"keep": True, "buried": True, "delayed": True, "ttr": 60}
KINDS: Mapping[str, dict[str, pw.Field]] = {
    "a double": {"xq_finished": pw.DoubleField(null=True)},
    "an integer": {"xq_finished": pw.BigIntegerField(null=True)},
    "a date-time": {"xq_finished": pw.DateTimeField(null=True)},
    "its own column": {},
}


def with_finished(make, features, **attributes):
    """A queue with the role finished."""
    return make(features, fields={"status": "status", "runat": "runat", "finished": True}, attributes=attributes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_task_stands_in_its_row_until_it_is_put_back(make, kind):
    Task = with_finished(make, FEATURES, **KINDS[kind])
    task, ended = Task.put(tasks(1)[0], delay=5), Task.xq.clock
    Task.xq.clock.tick(10)
    Task.take().release()
    Task.take().bury()
    assert Task.xq.peek(task).xq_finished is None  # a buried task has not ended
    Task.dig(task)
    Task.take().ack()
    ended = Task.xq.clock.now
    Task.xq.clock.tick(100)
    found = Task.xq.find("state:done age>99s age<=100s")
    assert [*map(round, found.since)] == [round(ended)]
    assert Task.select().where(Task.xq_finished.is_null()).count() == 0
    with pytest.raises(xq.BadValue, match="the queue's own"):
        Task.put({"xq_finished": found.tasks[0].xq_finished})
    Task.xq.restart(task)
    assert Task.xq.peek(task).xq_finished is None


def test_a_definition_that_calls_done_tasks_zombies_keeps_the_time_of_their_end(make):
    Task = with_finished(make, {"keep": True})
    Task.put(tasks(1)[0])
    ended = Task.take().ack().xq_finished
    Task.xq.clock.tick(100)
    install_after_the_statements(Task, {"zombie": 60})
    assert [task.xq_finished for task in Task.select()] == [ended]


def test_an_age_that_is_not_known_passes_no_filter_but_age_unknown(make):
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"name": str(n), "status": "D"} for n in range(5)]).execute()
    Task = make({"keep": True, "history": 60 * 86400}, model=model)
    new = Task.put(tasks(1)[0])
    Task.take().ack()
    for filter in ("age>30d", "age<30d state:done -key:{0}", "-age>1s -key:{0}", "-age<=1s -key:{0}", "-age:unknown"):
        filter = filter.format(new.id)
        assert [task.id for task in Task.xq.find(filter).tasks] == [new.id] * (filter == "-age:unknown")
    operation = Task.xq.act("kill", "state:done age>30d")
    assert (operation.preview.n, operation.preview.unknown, operation.run().done) == (0, 5, 0)
    assert Task.xq.find("age>30d").unknown == 5
    Task.xq.clock.tick(3600)
    assert len(Task.xq.find("age>30m").tasks) == 6  # the history began before, and has no entry of the others since
    assert Task.xq.act("kill", "state:done age:unknown").run().done == 5


def test_without_a_history_done_tasks_have_an_age_by_their_role(make):
    Task = with_finished(make, {"keep": True})
    Task.xq.put_many(tasks(2))
    Task.take().ack()
    Task.update(status="D").where(Task.status == "R").execute()  # another program
    Task.xq.clock.tick(86400)
    operation = Task.xq.act("kill", "state:done age>1h")
    assert (operation.preview.unknown, operation.run().done) == (1, 1)
    with pytest.raises(xq.FeatureOff, match="history"):
        Task.xq.find("age>1h")  # ready tasks as well


@pytest.mark.parametrize(
    ("features", "word"), [({"zombie": 60}, "zombie (Z)"), ({"keep": timedelta(minutes=1)}, "done (D)")]
)
def test_ended_tasks_without_a_timer_are_named_with_the_sql_that_gives_them_one(make, caplog, features, word):
    model = make.model()
    make.db.create_tables([model])
    model.insert_many([{"status": word[-2]}] * 3).execute()
    caplog.set_level(logging.WARNING, "xq")
    Task = make(features, model=model, roles=("runat",))
    (finding,) = Task.xq.doctor()
    what, update = finding.what.split("unless you give them one: ")
    assert what == f"tasks that are {word} and have no timer: 3; they are never deleted, "
    assert [finding.what in line for line in caplog.messages if "timer" in line] == [True]
    make.db.execute_sql(update)
    assert Task.xq.doctor() == []
    assert all(task.runat is not None for task in Task.select())


@pytest.mark.parametrize("kind", KINDS)
def test_done_tasks_that_are_kept_for_some_days_are_dropped_then_and_those_from_before_have_their_time(make, kind):
    Task = with_finished(make, {"keep": True}, **KINDS[kind])
    for _ in range(2):
        Task.put(tasks(1)[0])
        Task.take().ack()
        Task.xq.clock.tick(86400)
    install_anew(Task, {"keep": timedelta(days=3)})
    Task.put(tasks(1)[0])
    Task.take().ack()
    there = []
    for _ in range(4):
        Task.xq.sweep()
        there.append([task.id for task in Task.select().order_by(Task.id)])
        Task.xq.clock.tick(86401)
    assert (there, Task.stats().transition["D-X"]) == ([[1, 2, 3], [2, 3], [3], []], 3)
    assert is_exact(Task)


def test_another_time_to_keep_done_tasks_is_no_new_definition_and_holds_for_those_that_end_from_then_on(make):
    Task = make({"keep": timedelta(days=3)})
    Task.xq.put_many(tasks(2))
    ended = Task.take().ack()
    install_anew(Task, {"keep": timedelta(days=5)})
    assert (Task.take().ack().runat - ended.runat, Task.xq.check()) == (2 * 86400, [])
    with pytest.raises(xq.FeatureOff, match="delay"):
        Task.put(tasks(1)[0]) and Task.take().ack(delay=5)  # all are kept for as long


@pytest.mark.parametrize("kind", [*KINDS])
def test_each_state_that_a_task_enters_writes_the_role_moved(make, kind):
    fields = {name.replace("finished", "moved"): type(field)() for name, field in KINDS[kind].items()}  # NOT NULL
    roles = {"status": "status", "runat": "runat", "moved": True}
    Task = make(FEATURES, fields=roles, attributes=fields)
    Task.xq.put_many(tasks(2))
    task, at = Task.take(), Task.xq.clock

    def since() -> Any:
        return at.now - moment(Task.xq.peek(task).xq_moved)

    calls, key = (Task.release, Task.take, Task.bury, Task.dig, Task.take, Task.ack), [task.id]
    for call in calls:
        at.tick(10)
        call(*(key if call != Task.take else ()))
        assert -1 <= since() < 1
    Task.take()
    at.tick(61)
    Task.xq.sweep()  # the ttr of the other has passed
    (other,) = Task.xq.by_state("R")
    assert -1 <= at.now - moment(other.xq_moved) < 1
    at.tick(10)
    assert Task.ack(Task.take(), update={"xq_moved": other.xq_moved}).xq_moved == other.xq_moved


def moment(value: Any) -> Any:
    return value.replace(tzinfo=UTC).timestamp() if isinstance(value, datetime) else value
