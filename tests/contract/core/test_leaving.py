"""A row leaves the queue by a word that no state has: the application's own."""

from __future__ import annotations

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, names, row, state

FEATURES = {"buried": True, "delayed": True, "ttl": 10, "ttr": 60, "history": True}
KEEPS = {"keep": True, "delayed": True, "buried": True}
GUARDS = pytest.mark.parametrize("guard", [True, "log", False], ids=["guarded", "logged", "counted"])


def write(Task, key, word, **fields):
    """Another program's UPDATE."""
    with Task._meta.database.atomic():
        assert Task.update(status=word, **fields).where(Task._meta.primary_key == key).execute() == 1


@GUARDS
@pytest.mark.parametrize("source", "RWBDZ")
def test_a_word_of_the_application_takes_a_row_out_of_the_queue(make, source, guard):
    Task = make({**FEATURES, "zombie" if source == "Z" else "keep": True, "guard": guard}, roles=("runat", "owner"))
    key = bring(Task, source).id
    write(Task, key, "archived")
    assert (Task.stats().transition[f"{source}-X"], sum(Task.stats().counts.values())) == (1, 0)
    assert [(each.event, each.target) for each in Task.xq.history(key)][-1] == ("write", "X")
    with pytest.raises(xq.NotFound, match="a status that is not the queue's"):
        Task.xq.restart(key)
    Task.xq.clock.tick(1_000)
    Task.xq.sweep()
    assert row(Task, key).status == "archived"
    assert Task.xq.check() == Task.xq.doctor() == []
    write(Task, key, "R")
    assert Task.take().id == key


@pytest.mark.parametrize("word", ["archived", "R", "D"])
def test_the_guard_keeps_a_taken_row_in_the_queue(make, word):
    Task = make({**KEEPS, "guard": True})
    key = bring(Task, "T").id
    with pytest.raises((pw.IntegrityError, pw.OperationalError), match="feature guard"):
        write(Task, key, word)
    assert state(Task, Task.xq.cancel(key, to="B").id) == "B"
    write(Task, key, "archived")
    assert Task.xq.check() == []


@pytest.mark.parametrize("guard", ["log", False], ids=["logged", "counted"])
def test_a_taken_row_that_leaves_because_no_guard_keeps_it_has_no_time_either(make, guard):
    Task = make({"lifetime": 100, "ttr": 60, "guard": guard}, roles=("runat", "deadline", "owner"))
    held = bring(Task, "T")
    write(Task, held.id, "archived", runat=1.0)
    assert (row(Task, held).runat, row(Task, held).deadline) == (None, None)
    with pytest.raises(xq.NotFound):
        Task.ack(held)


def test_a_row_that_comes_back_has_no_time_and_no_lost_take_of_before(make):
    fields = {"lost": pw.IntegerField(default=0)}
    features = {"buried": True, "delayed": True, "lifetime": 10, "ttr": 5, "max_takes": 2}
    Task = make(features, roles=("runat", "deadline", "owner", "lost"), attributes=fields)
    key = bring(Task, "T").id
    Task.xq.clock.tick(6)
    Task.xq.sweep()
    assert Task.xq.restart(Task.xq.switch(key, "W", delay=3).id, delay=3).lost == 1
    write(Task, key, "draft")
    assert (row(Task, key).runat, row(Task, key).deadline, row(Task, key).lost) == (None, None, 0)
    Task.xq.clock.tick(60)
    write(Task, key, "W")
    Task.xq.sweep()
    assert state(Task, key) == "W"
    write(Task, key, "R")
    assert Task.take().id == key


def test_one_that_leaves_with_its_tube_has_left_that_tube(make):
    Task = make({**KEEPS, "history": True, "ttl": 10}, roles=("runat", "owner", "tube"), tube_stats=["a", "b"])
    key = Task.put(task(tube="a")).id
    write(Task, key, "archived", tube="b")
    assert row(Task, key).runat is None
    assert Task.stats().tube["a"].transition == {"X-R": 1, "R-X": 1}
    assert not any(Task.stats().tube["b"].transition.values())
    assert Task.xq.check() == []


def test_a_member_and_a_parent_that_leave_have_ended_as_by_a_deletion(make):
    Task = make({**KEEPS, "groups": True, "after": True})
    with Task.xq.group("import", then=task(name="then")) as group:
        left, acked = group.put_many(tasks(2))
    held, run, left_too = (Task.put(task(), after=[left], on_failure=what) for what in ("hold", "run", "run"))
    write(Task, left_too.id, "draft")
    write(Task, left.id, "draft")
    Task.ack(Task.take())
    Task.xq.sweep()
    assert {key: group.stats()[key] for key in ("done", "failed", "total")} == {"done": 1, "failed": 1, "total": 2}
    assert [state(Task, each.id) for each in (held, run, acked)] == ["W", "R", "D"]
    assert {each.name for each in Task.xq.by_state("R")} == {run.name, "then"}
    write(Task, left_too.id, "W")
    Task.xq.sweep()
    assert state(Task, left_too.id) == "W"
    assert Task.xq.check() == []


def test_one_that_leaves_holds_no_value_no_room_and_no_utube(make):
    Task = make({**KEEPS, "unique": True, "limit": 1, "utube": True}, roles=("unique", "utube"))
    key = Task.put(task(job="a", utube="u")).id
    with pytest.raises(xq.Full):
        Task.put(task(job="b"))
    write(Task, key, "archived")
    second = Task.put(task(job="a", utube="u"))
    assert names([Task.take()]) == [second.name]
    assert Task.xq.check() == []


def test_find_shows_rows_that_have_left_by_their_word_and_act_moves_none(make):
    Task = make(KEEPS)
    gone, waits = (bring(Task, each).id for each in "RW")
    write(Task, gone, "archived")
    assert [each.id for each in Task.xq.find("status:archived").tasks] == [gone]
    assert [each.id for each in Task.xq.find("status=W").tasks] == [waits]
    for filter in ("status:archived state:ready,waiting", "-status:nothing -state:W"):
        assert Task.xq.find(filter).tasks == []
    assert Task.xq.act("kill", "status:archived").preview.n == 0
    assert "'archived'" in Task.xq.why(gone)[0]
