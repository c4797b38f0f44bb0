"""The feature guard, and the counts of what other programs write over taken and finished tasks."""

from __future__ import annotations

import peewee as pw
import pytest

from tests.factories import task
from tests.steps import bring

FEATURES = {"buried": True, "delayed": True, "keep": True, "ttr": 60, "events": True}
GUARDED = {**FEATURES, "guard": True}
ROLES = ("runat", "owner")


@pytest.fixture(params=[{}, {"history": True}], ids=["counters", "history"])
def guarded(request, make):
    return make({**GUARDED, **request.param}, roles=ROLES)


def plain(Task):
    """The model of a program that knows no queue, and saves whole rows."""
    meta = {"database": Task._meta.database, "table_name": Task._meta.table_name}
    fields = {"name": pw.TextField(null=True), "status": pw.CharField(), "owner": pw.TextField(null=True)}
    return type("Plain", (pw.Model,), {**fields, "Meta": type("Meta", (), meta)})


def refused(write):
    """Whether the database refuses a write, in a transaction of its own or in the one that is open."""
    try:
        with write.__self__._meta.database.atomic():
            write()
    except (pw.IntegrityError, pw.OperationalError) as error:
        return "feature guard: this task is taken or finished" in str(error)
    return False


def test_a_stale_save_moves_no_taken_and_no_finished_task(guarded):
    key = guarded.put(task()).id
    stale = plain(guarded).get_by_id(key)
    taken = guarded.take()
    assert refused(stale.save)
    taken.ack()
    assert refused(stale.save)
    stale.status = "no task's"
    assert refused(stale.save)
    assert plain(guarded).get_by_id(key).status == "D"
    assert guarded.xq.check() == guarded.xq.doctor() == []


def test_a_stale_save_does_not_pass_for_the_call_of_its_transaction(guarded):
    key = guarded.put(task()).id
    stale = plain(guarded).get_by_id(key)
    with guarded._meta.database.atomic():
        guarded.take()
        assert refused(stale.save)
        guarded.ack(key)
        assert refused(stale.save)
    assert plain(guarded).get_by_id(key).status == "D"


@pytest.mark.parametrize("features", [{"history": True}, {}], ids=["history", "counters"])
def test_without_the_guard_it_is_noted_as_a_write_in_the_same_transaction_too(make, features):
    Task = make({**FEATURES, **features}, roles=ROLES)
    key = Task.put(task()).id
    stale = plain(Task).get_by_id(key)
    with Task._meta.database.atomic():
        Task.take().ack()
        stale.save()
    assert Task.stats().by_event == {name: {move: 1} for name, move in (*MOVED, ("write", "D-R"))}
    if features:
        assert [row.event for row in Task.xq.history(key)] == ["put", "take", "ack", "write"]


MOVED = [("put", "X-R"), ("take", "R-T"), ("ack", "T-D")]


def test_other_columns_other_states_and_deletions_go_on(guarded):
    Plain = plain(guarded)
    for state in "RTWBD":
        key = bring(guarded, state).id
        same = Plain.get_by_id(key)
        same.name = "other"
        assert not refused(same.save)
        if state in "RWB":
            same.status = "draft"
            assert not refused(same.save)
        assert Plain.delete().where(Plain.id == key).execute() == 1
    assert guarded.xq.count() == 0


@pytest.mark.parametrize("features", [GUARDED, FEATURES], ids=["guarded", "counted"])
def test_no_call_of_the_queue_is_a_write_of_another_program(make, features):
    Task = make(features, roles=ROLES)
    for end in ("release", "bury", "ack"):
        getattr(bring(Task, "T"), end)()
    Task.release(bring(Task, "T"), delay=5)
    Task.xq.snatch(bring(Task, "T"))
    Task.xq.restart(bring(Task, "D"))
    for to in "RBD":
        Task.xq.switch(bring(Task, "D"), to)
    Task.kill(bring(Task, "D"))
    Task.xq.act("restart", "state:done")
    bring(Task, "T")
    Task.xq.clock.tick(61)
    Task.xq.sweep()
    bring(Task, "T")
    Task.xq.release_all()
    with Task.xq.session():
        bring(Task, "T")
    assert "write" not in Task.stats().events
    assert not any("other programs" in line for line, _ in Task.xq.doctor())


@pytest.mark.parametrize("on", [True, False], ids=["guarded", "counted"])
def test_sql_that_ends_a_task_by_its_token_is_no_stale_save(make, on):
    Task = make({**FEATURES, "guard": on}, roles=ROLES)
    Plain = plain(Task)
    for status in "RBD":
        taken = bring(Task, "T")
        mine = (Plain.id == taken.id) & (Plain.status == "T") & (Plain.owner == taken.owner)
        ended = Plain.update(status=status, owner=f"-{taken.owner}").where(mine)
        assert ended.execute() == 1
        assert ended.execute() == 0
        if status != "R":
            Task.xq.switch(taken.id, "R")
        again = Task.take()
        assert again.id == taken.id
        assert again.owner != taken.owner
        again.ack()
        assert Plain.get_by_id(taken.id).owner is None
    assert "write" not in Task.stats().events
    assert Task.xq.check() == []


def test_a_save_that_writes_back_the_owner_as_it_was_is_stale(guarded):
    Plain = plain(guarded)
    key = bring(guarded, "T").id
    read = Plain.get_by_id(key)
    for status, owner in [("D", None), ("D", read.owner), ("R", ""), ("R", "-"), ("R", f"-{read.owner}-")]:
        read.status, read.owner = status, owner
        assert refused(read.save)
    ended = Plain.get_by_id(key)
    ended.status, ended.owner = "R", f"-{ended.owner}"
    assert not refused(ended.save)
    guarded.take()
    assert refused(ended.save)


@pytest.mark.parametrize("features", [{}, {"history": True}, {"limit": 9, "history": True}, {"guard": "log"}])
def test_the_doctor_counts_the_writes_of_other_programs_until_the_counters_are_reset(make, features):
    Task = make({"keep": True, **features}, roles=ROLES)
    for _ in range(3):
        Task.put(task())
        Task.take().ack()
    Plain = plain(Task)
    Plain.update(status="R").execute()
    Task.take()
    Plain.update(status="draft").where(Plain.status == "T").execute()
    found = {line for line, _ in Task.xq.doctor() if "other programs" in line}
    assert found == {
        "3 tasks went from Done to Ready by other programs",
        "1 task went from Taken to a status that is none of this queue's by other programs",
    }
    assert Task.xq.check() == []
    Task.xq.recount()
    assert found == {line for line, _ in Task.xq.doctor() if "other programs" in line}
    Task.xq.reset()
    assert not any("other programs" in line for line, _ in Task.xq.doctor())
    assert Task.stats().counts["R"] == 2


def test_a_program_that_takes_a_task_ended_by_its_token_owns_nothing(make):
    Task = make(FEATURES, roles=ROLES)
    taken, Plain = bring(Task, "T"), plain(Task)
    Plain.update(status="D", owner=f"-{taken.owner}").where(Plain.id == taken.id).execute()
    Plain.update(status="T").where(Plain.id == taken.id).execute()
    assert any("have no owner" in line for line in Task.xq.check())
