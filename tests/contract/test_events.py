"""The features events, endless and priority, which tubes are made with, on tables of an application."""

from __future__ import annotations

from collections import Counter

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import another_process, bring, is_exact

FEATURES = {"events": True, "buried": "any", "delayed": True, "lifetime": True, "ttr": 60}


@pytest.fixture
def Task(make):
    return make(FEATURES)


def test_an_event_is_counted_by_its_transitions(Task):
    Task.xq.put_many(tasks(6))
    first, second, third, fourth = Task.xq.take_many(4)
    first.ack()
    Task.kill(second)
    third.release()
    Task.xq.snatch(fourth)
    Task.xq.kill_many([third, fourth, 5])
    Task.bury(6)
    Task.dig(6)
    Task.touch(Task.take(), 5)
    assert Task.stats().by_event == {
        "put": {"X-R": 6},
        "take": {"R-T": 5},
        "ack": {"T-X": 1},
        "kill": {"T-X": 1, "R-X": 3},
        "release": {"T-R": 1},
        "snatch": {"T-R": 1},
        "bury": {"R-B": 1},
        "dig": {"B-R": 1},
        "touch": {"T-T": 1},
    }
    assert Task.stats().events["kill"] == 4
    assert Task.stats(pretty=True).by_event["kill"] == {"Taken-X": 1, "Ready-X": 3}
    assert is_exact(Task)


def test_what_time_brings_about_is_counted(Task):
    bring(Task, "T", ttl=100)
    Task.put(task(), delay=5, ttl=10)
    Task.xq.clock.tick(61)
    Task.xq.sweep()
    assert Task.stats().events == {"put": 2, "take": 1, "ttr": 1, "delay": 1, "lifetime": 1}
    assert is_exact(Task)


def test_an_event_in_a_tube_that_is_counted_is_counted_once(make):
    Task = make(FEATURES, roles=("runat", "deadline", "tube"), tube_stats=["a"])
    Task.xq.put_many([task(tube=tube) for tube in ("a", "a", "b")])
    first, second, third = Task.xq.take_many(3)
    first.ack()
    Task.kill(second)
    Task.touch(third, 5)
    counted = {"put": {"X-R": 3}, "take": {"R-T": 3}, "ack": {"T-X": 1}, "kill": {"T-X": 1}, "touch": {"T-T": 1}}
    assert Task.stats().by_event == counted
    assert Task.stats().tube["a"].transition == {"X-R": 2, "R-T": 2, "T-X": 2}
    assert is_exact(Task)


def test_a_put_that_replaces_is_counted_as_a_put(make):
    Task = make({"events": True, "unique": True, "delayed": True}, roles=("unique", "runat"))
    Task.put(task(job="a"), delay=5)
    for delay in ({}, {}, {"delay": 5}):
        Task.put(task(job="a"), on_conflict="replace", **delay)
    assert Task.stats().by_event == {"put": {"X-W": 1, "W-R": 1, "R-R": 1, "R-W": 1}}


def test_a_touch_is_told_and_what_is_undone_is_not_counted(Task):
    told = []
    Task.xq.on_change(lambda task, *what: told.append(what))
    held = bring(Task, "T")
    Task.touch(held, 5)
    assert told[-1] == ("touch", "T", "T")
    with pytest.raises(xq.NotFound):
        Task.kill(99)
    with Task._meta.database.atomic() as transaction:
        Task.touch(held, 5)
        Task.kill(held)
        transaction.rollback()
    assert Task.stats().events == {"put": 1, "take": 1, "touch": 1}
    assert is_exact(Task)


@pytest.mark.parametrize("observed", [False, True], ids=["", "observed"])
@pytest.mark.parametrize("event", ["cleared", "kill", "ack"])
def test_truncate_tells_and_counts_its_event_in_whatever_state_tasks_are(make, event, observed):
    Task = make({**FEATURES, "keep": True})
    for here in "RRTTTBWWWWD":
        bring(Task, here)
    Task.xq.reset()
    told: Counter[str] = Counter()
    if observed:
        Task.xq.on_change(lambda task, event, source, target: told.update([f"{source}-{target} {event}"]))
    assert Task.xq.truncate(event) == 11
    left = {"R-X": 2, "T-X": 3, "B-X": 1, "W-X": 4, "D-X": 1}
    assert Task.stats().by_event == {event: left}
    assert told == ({f"{move} {event}": n for move, n in left.items()} if observed else {})
    assert is_exact(Task)


def test_reset_forgets_events_and_recount_does_not(Task):
    bring(Task, "T")
    Task.xq.recount()
    assert Task.stats().events == {"put": 1, "take": 1}
    Task.xq.reset()
    assert Task.stats().events == {}


def test_the_first_put_of_a_process_that_did_not_install_the_queue_is_told_as_a_put(make_live):
    Task = make_live({"history": True})

    def puts():
        make_live.INSTALLS = False
        yield make_live({"history": True}).put(task()).id

    with another_process(make_live.db, puts) as other:
        key = next(other)
    assert [row.event for row in Task.xq.history(key)] == ["put"]


def test_a_touch_gives_no_end_to_what_has_none(make):
    for endless, state in ((False, "R"), (True, "T")):
        Task = make({"ttr": True, "endless": endless}, attributes={"table_name": f"task_{endless}"})
        held = bring(Task, "T")
        Task.touch(held, 5)
        Task.xq.clock.tick(10)
        Task.xq.sweep()
        assert Task.xq.peek(held).status == state


def test_priority_needs_its_role_and_is_installed_alike_with_its_feature_and_without(make):
    with pytest.raises(xq.ConfigurationError, match="priority"):
        make({"priority": True}, roles=())
    make(roles=("priority",)).xq.put_many([task(priority=2), task(priority=1)])
    Other = make.model()
    xq.upgrade(Other, {"status": "status", "priority": "priority"}, {"priority": True}, clock=make.clock)
    assert Other.xq.check() == []
    assert Other.take().priority == 1
