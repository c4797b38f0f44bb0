"""ack, release and bury: how a taken task ends, or does not."""

from __future__ import annotations

import itertools

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import bring, is_exact, row, state

EVENTS = ["ack", "release", "bury"]


def test_an_acked_task_is_gone_and_comes_back_as_it_last_was(make):
    Task = make()
    taken = bring(Task, "T")
    gone = taken.ack()
    assert gone.__data__ == taken.__data__
    assert state(Task, taken) == "X"
    assert Task.stats().transition == {"X-R": 1, "R-T": 1, "T-X": 1}


def test_a_kept_task_is_done_for_good(make):
    Task = make({"keep": True, "ttr": 60}, roles=("runat", "owner", "attempts"))
    done = bring(Task, "T").ack()
    assert (done.status, done.runat, done.owner, done.attempts) == ("D", None, None, 1)
    assert row(Task, done).__data__ == done.__data__
    assert Task.take() is None


def test_a_zombie_is_done_for_a_while(make):
    Task = make({"zombie": 30})
    acked = bring(Task, "T").ack()
    assert (acked.status, acked.runat) == ("Z", Task.xq.clock.now + 30)
    assert Task.take() is None


def test_a_released_task_is_ready(make):
    Task = make(roles=("runat", "owner", "attempts"))
    released = bring(Task, "T").release()
    assert (released.status, released.owner, released.attempts) == ("R", None, 1)
    assert Task.take().attempts == 2


def test_a_task_released_with_a_delay_waits(make):
    Task = make({"delayed": True}, roles=("runat", "owner"))
    released = bring(Task, "T").release(delay=5)
    assert (released.status, released.runat, released.owner) == ("W", Task.xq.clock.now + 5, None)


def test_a_buried_task_is_set_aside(make):
    Task = make({"buried": True, "ttr": 60}, roles=("runat", "owner", "attempts"))
    buried = bring(Task, "T").bury()
    assert (buried.status, buried.runat, buried.owner, buried.attempts) == ("B", None, None, 1)
    assert Task.take() is None


def test_buried_any_buries_from_every_state_and_by_anyone(make):
    Task = make({"buried": "any", "delayed": True, "keep": True})
    for here in "WRTBD":
        there = bring(Task, here)
        with Task.xq.session():
            assert Task.bury(there.id).status == "B"
        Task.kill(there)
    assert is_exact(Task)


BURY = {
    "bury": lambda Task, key, **update: Task.bury(key, **update),
    "bury_many": lambda Task, key, **update: Task.xq.bury_many([key], **update)[0],
    "call": lambda Task, key, **update: Task.xq.call("bury", key, **update),
}


@pytest.mark.parametrize("way", BURY)
def test_to_bury_what_is_buried_is_no_move_but_for_an_update(make, way):
    Task = make({"buried": "any", "events": True, "history": True})
    there = bring(Task, "B")
    told: list[tuple[str, ...]] = []
    Task.xq.on_change(lambda task, *what: told.append(what))
    before = Task.stats()
    assert BURY[way](Task, there.id).status == "B"
    assert (told, Task.stats(), Task.xq.history()[-1].event) == ([], before, "bury")
    assert len(Task.xq.history()) == 3
    assert BURY[way](Task, there.id, update={"name": "new"}).name == "new"
    assert told == [("bury", "B", "B")]
    assert Task.stats().by_event["bury"] == {"T-B": 1, "B-B": 1}


@pytest.mark.parametrize("way", BURY)
def test_what_is_buried_is_not_buried_again_where_only_taken_tasks_are(make, way):
    Task = make({"buried": True})
    there = bring(Task, "B")
    with pytest.raises(xq.WrongState) as wrong:
        BURY[way](Task, there)
    assert (wrong.value.state, wrong.value.allowed) == ("B", ("T",))


def test_of_many_to_bury_those_that_are_buried_come_back_with_the_others(make):
    Task = make({"buried": "any"})
    there = [bring(Task, here) for here in "BTBR"]
    assert [(found.id, found.status) for found in Task.xq.bury_many(there[::-1])] == [
        (task.id, "B") for task in there[::-1]
    ]
    assert is_exact(Task)


@pytest.mark.parametrize("event", EVENTS)
def test_the_object_stays_as_it_is_and_what_comes_back_is_another(make, event):
    Task = make({"buried": True, "keep": True})
    taken = bring(Task, "T")
    before = dict(taken.__data__)
    after = getattr(taken, event)(update={"name": "new"})
    assert after is not taken
    assert taken.__data__ == before
    assert after.name == "new"


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("here", ["R", "W", "B", "D"])
def test_a_task_that_is_not_taken_cannot_be_finished(make, event, here):
    Task = make({"buried": True, "keep": True, "delayed": True})
    there = bring(Task, here)
    with pytest.raises(xq.WrongState) as wrong:
        getattr(Task, event)(there)
    assert (wrong.value.key, wrong.value.state, wrong.value.allowed) == (there.id, here, ("T",))
    assert state(Task, there) == here


@pytest.mark.parametrize("event", EVENTS)
def test_a_task_is_finished_once(make, event):
    Task = make({"buried": True, "keep": True})
    taken = bring(Task, "T")
    getattr(taken, event)()
    with pytest.raises(xq.WrongState):
        getattr(taken, event)()


def test_a_task_that_is_gone_is_not_found(make):
    Task = make()
    taken = bring(Task, "T")
    taken.ack()
    with pytest.raises(xq.NotFound) as missing:
        taken.ack()
    assert missing.value.key == taken.id


# update


@pytest.mark.parametrize("event", EVENTS)
def test_an_update_is_written_with_the_event(make, event):
    Task = make({"buried": True, "keep": True})
    taken = bring(Task, "T")
    after = getattr(taken, event)(update={"name": "new", "size": 9})
    assert (after.name, after.size) == ("new", 9)
    assert row(Task, taken).__data__ == after.__data__


def test_a_deleted_task_comes_back_with_the_update(make):
    Task = make()
    taken = bring(Task, "T")
    gone = taken.ack(update={"name": "new"})
    assert (gone.id, gone.name, gone.size) == (taken.id, "new", taken.size)


@pytest.mark.parametrize("update", [None, {}])
def test_an_update_of_nothing_changes_nothing(make, update):
    Task = make({"keep": True})
    taken = bring(Task, "T")
    assert taken.ack(update=update).name == taken.name


def test_an_update_is_converted_as_the_fields_say(make):
    class Words(pw.TextField):
        def db_value(self, value):
            return " ".join(value)

        def python_value(self, value):
            return None if value is None else value.split()

    Task = make({"keep": True}, attributes={"words": Words(null=True), "flag": pw.BooleanField(default=False)})
    done = bring(Task, "T").ack(update={"words": ["a", "b"], "flag": True, "name": None})
    assert (done.words, done.flag, done.name) == (["a", "b"], True, None)
    assert row(Task, done).__data__ == done.__data__


def test_updates_of_different_fields_may_follow_each_other(make):
    Task = make({"keep": True})
    for names in itertools.permutations(["name", "size", "job"], 2):
        done = bring(Task, "T").ack(update={name: 5 if name == "size" else "x" for name in names})
        assert all(getattr(done, name) in (5, "x") for name in names)


ROLES = ("runat", "deadline", "priority", "tube", "owner", "attempts", "ttl", "ttr")


@pytest.mark.parametrize("column", ["status", *ROLES])
def test_an_update_must_not_change_what_is_the_queues(make, column):
    Task = make({"keep": True}, roles=ROLES)
    taken = bring(Task, "T")
    with pytest.raises(xq.BadValue, match=column):
        taken.ack(update={column: 1})
    assert row(Task, taken).__data__ == taken.__data__


@pytest.mark.parametrize(
    ("update", "error"),
    [
        ({"id": 5}, xq.BadValue),
        ({"nonsense": 1}, xq.BadValue),
        ({1: 1}, xq.BadValue),
        ([], xq.BadType),
        (5, xq.BadType),
    ],
)
def test_an_update_is_a_mapping_of_the_applications_fields(make, update, error):
    Task = make({"keep": True})
    taken = bring(Task, "T")
    with pytest.raises(error):
        taken.ack(update=update)
    assert state(Task, taken) == "T"


def test_an_update_that_the_database_refuses_leaves_the_task_as_it_was(make):
    Task = make({"keep": True}, attributes={"code": pw.IntegerField(unique=True, null=True)})
    Task.put({"code": 1, "priority": 9})
    taken = bring(Task, "T")
    with pytest.raises(pw.IntegrityError):
        taken.ack(update={"code": 1})
    assert row(Task, taken).__data__ == taken.__data__
    assert taken.ack(update={"code": 2}).code == 2


def test_saving_an_object_never_moves_its_task(make):
    Task = make({"keep": True})
    taken = bring(Task, "T", task(name="a"))
    taken.ack()
    taken.name = "b"
    taken.save()
    after = row(Task, taken)
    assert (after.status, after.name) == ("D", "b")
