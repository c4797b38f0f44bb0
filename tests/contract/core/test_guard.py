"""The feature guard, and the counts of what other programs write over taken and finished tasks."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.factories import task
from tests.steps import bring

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttr": 60, "events": True}
HISTORIES = pytest.mark.parametrize("more", [{}, {"history": True}], ids=["counters", "history"])
GUARDS = pytest.mark.parametrize("on", [True, False], ids=["guarded", "counted"])


def queue(make, **more):
    """A queue, and the model of a program that does not know it and saves whole rows."""
    Task = make({**FEATURES, **more}, roles=("runat", "owner"))
    fields = {"name": pw.TextField(null=True), "status": pw.CharField(), "owner": pw.TextField(null=True)}
    meta = {"database": make.db, "table_name": "task"}
    return Task, type("Plain", (pw.Model,), {**fields, "Meta": type("Meta", (), meta)})


def refused(save):
    """Whether the guard refuses it, in a transaction of its own or in the one that is open."""
    try:
        with save.__self__._meta.database.atomic():
            save()
    except (pw.IntegrityError, pw.OperationalError) as error:
        return "feature guard: xq alone writes the status" in str(error)
    return False


def writes(Task):
    return {line for line, _ in Task.xq.doctor() if "other programs" in line}


@HISTORIES
def test_a_stale_save_is_refused_also_in_the_transaction_of_a_call(make, more):
    Task, Plain = queue(make, guard=True, **more)
    key = Task.put(task()).id
    stale = Plain.get_by_id(key)
    with make.db.atomic():
        taken = Task.take()
        assert refused(stale.save)
        taken.ack()
        assert refused(stale.save)
    stale.status = "B"
    assert refused(stale.save)
    assert Plain.get_by_id(key).status == "D"
    assert Task.xq.check() == Task.xq.doctor() == []


@HISTORIES
def test_without_the_guard_it_is_counted_and_noted_as_a_write(make, more):
    Task, Plain = queue(make, **more)
    key = Task.put(task()).id
    stale = Plain.get_by_id(key)
    with make.db.atomic():
        Task.take().ack()
        stale.save()
    moves = {"put": "X-R", "take": "R-T", "ack": "T-D", "write": "D-R"}
    assert Task.stats().by_event == {event: {move: 1} for event, move in moves.items()}
    assert not more or [row.event for row in Task.xq.history(key)] == [*moves]


def test_other_columns_open_tasks_and_deletions_are_not_guarded(make):
    Task, Plain = queue(make, guard=True)
    for state in "RTWBD":
        read = Plain.get_by_id(bring(Task, state).id)
        read.name = "other"
        assert not refused(read.save)
        read.status = "draft" if state in "RWB" else state
        assert not refused(read.save)
        assert read.delete_instance() == 1


@GUARDS
def test_no_call_of_the_queue_is_a_write_of_another_program(make, on):
    Task, _ = queue(make, guard=on)
    for end in (Task.ack, Task.bury, Task.release, Task.xq.snatch):
        end(bring(Task, "T"))
    for move in (Task.xq.restart, lambda done: Task.xq.switch(done, "B"), Task.kill):
        move(bring(Task, "D"))
    Task.release(bring(Task, "T"), delay=5)
    bring(Task, "T")
    Task.xq.clock.tick(61)
    Task.xq.sweep()
    with Task.xq.session():
        bring(Task, "T")
    assert "write" not in Task.stats().events
    assert not writes(Task)


@GUARDS
def test_sql_that_ends_a_task_by_its_token_is_no_stale_save(make, on):
    Task, Plain = queue(make, guard=on)
    for status in "RBD":
        taken = bring(Task, "T")
        fence = (Plain.id == taken.id) & (Plain.status == "T") & (Plain.owner == taken.owner)
        ended = Plain.update(status=status, owner=f"-{taken.owner}").where(fence)
        assert (ended.execute(), ended.execute()) == (1, 0)
        Task.xq.switch(taken.id, "R")
        Task.take().ack()
        assert Plain.get_by_id(taken.id).owner is None
    assert "write" not in Task.stats().events


def test_a_save_that_writes_back_an_owner_is_stale(make):
    Task, Plain = queue(make, guard=True)
    read = Plain.get_by_id(bring(Task, "T").id)
    token, read.status = read.owner, "R"
    for read.owner in (None, token, "", "-", f"-{token}-"):
        assert refused(read.save)
    read.owner = f"-{token}"
    assert not refused(read.save)
    Task.take()
    assert refused(read.save)


@pytest.mark.parametrize("more", [{}, {"history": True}, {"limit": 9, "history": True}, {"guard": "log"}])
def test_the_doctor_counts_such_writes_until_the_counters_are_reset(make, more):
    Task, Plain = queue(make, **more)
    for _ in range(3):
        bring(Task, "D")
    Plain.update(status="R").execute()
    Plain.update(status="draft").where(Plain.id == Task.take().id).execute()
    taken = "1 task went from Taken to a status that is none of this queue's by other programs"
    Task.xq.recount()
    assert writes(Task) == {taken, "3 tasks went from Done to Ready by other programs"}
    Task.xq.reset()
    assert not writes(Task)
    assert Task.xq.check() == []
