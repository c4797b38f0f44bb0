"""The features events, endless and priority, which tubes are made with, on tables of an application."""

from __future__ import annotations

from collections import Counter

import pytest

import xq
from tests.factories import task, tasks
from tests.steps import bring, in_threads, is_exact
from tests.support import events as support
from tests.support.events import FEATURES

Task = support.Task


def test_events_are_counted_though_their_transitions_are_the_same(Task):
    Task.xq.put_many(tasks(6))
    first, second, third, fourth = Task.xq.take_many(4)
    first.ack()
    Task.kill(second)
    third.release()
    Task.xq.snatch(fourth)
    assert Task.stats().events == {"put": 6, "take": 4, "ack": 1, "kill": 1, "release": 1, "snatch": 1}
    Task.kill(third)
    Task.xq.kill_many([fourth, 5])
    Task.bury(6)
    Task.dig(6)
    assert Counter(Task.stats().events) == Counter(
        {"put": 6, "take": 4, "ack": 1, "kill": 4, "release": 1, "snatch": 1, "bury": 1, "dig": 1}
    )
    assert is_exact(Task)


def test_what_time_brings_about_is_counted(Task):
    bring(Task, "T", ttl=100)
    Task.put(task(), delay=5, ttl=10)
    Task.xq.clock.tick(61)
    Task.xq.sweep()
    assert Task.stats().events == {"put": 2, "take": 1, "ttr": 1, "delay": 1, "lifetime": 1}
    assert is_exact(Task)


def test_an_event_is_counted_by_its_transitions(Task):
    Task.xq.put_many(tasks(4), ttl=100)
    kept, gone, _, _ = Task.xq.take_many(4)
    Task.kill(gone)
    Task.touch(kept, 100)
    Task.release(kept)
    Task.kill(kept)
    Task.xq.clock.tick(101)
    Task.xq.sweep()
    assert Task.stats().by_event == {
        "put": {"X-R": 4},
        "take": {"R-T": 4},
        "release": {"T-R": 1},
        "kill": {"T-X": 1, "R-X": 1},
        "touch": {"T-T": 1},
        "lifetime": {"T-R": 2, "R-X": 2},
    }
    assert Task.stats(pretty=True).by_event["kill"] == {"Taken-X": 1, "Ready-X": 1}


def test_an_event_in_a_tube_that_is_counted_is_counted_once(make):
    Task = make(FEATURES, roles=("runat", "deadline", "tube"), tube_stats=["a"])
    Task.xq.put_many([task(tube=tube) for tube in ("a", "a", "b")])
    first, second, third = Task.xq.take_many(3)
    first.ack()
    Task.kill(second)
    Task.touch(third, 5)
    assert Task.stats().by_event == {
        "put": {"X-R": 3},
        "take": {"R-T": 3},
        "ack": {"T-X": 1},
        "kill": {"T-X": 1},
        "touch": {"T-T": 1},
    }
    assert Task.stats().events == {"put": 3, "take": 3, "ack": 1, "kill": 1, "touch": 1}
    assert Task.stats().tube["a"].transition == {"X-R": 2, "R-T": 2, "T-X": 2}
    assert is_exact(Task)


def test_what_was_counted_stays_what_it_was_under_other_features(make):
    Task = make({"events": True})
    Task.xq.put_many(tasks(4))
    first, second, third, fourth = Task.xq.take_many(4)
    first.ack()
    Task.kill(second)
    counted = Task.stats().by_event
    Task.xq.reconfigure({"events": True, "keep": True})
    assert Task.stats().by_event == counted
    Task.ack(third)
    Task.kill(fourth)
    counted |= {"ack": {"T-X": 1, "T-D": 1}, "kill": {"T-X": 2}}
    assert Task.stats().by_event == counted
    Task.xq.reconfigure({"events": True, "history": True}, move={"D": "R"})
    assert Task.stats().by_event == counted | {"reconfigure": {"D-R": 1}}
    assert is_exact(Task)


def test_a_put_that_replaces_is_counted_as_a_put(make):
    Task = make({"events": True, "unique": True, "delayed": True}, roles=("unique", "runat"))
    Task.put(task(job="a"), delay=5)
    for delay in ({}, {}, {"delay": 5}):
        Task.put(task(job="a"), on_conflict="replace", **delay)
    assert Task.stats().by_event == {"put": {"X-W": 1, "W-R": 1, "R-R": 1, "R-W": 1}}


def test_a_touch_is_counted_and_told(Task):
    told = []
    Task.xq.on_change(lambda task, *what: told.append(what))
    held = bring(Task, "T")
    Task.touch(held, 5)
    assert told[-1] == ("touch", "T", "T")
    assert Task.stats().events == {"put": 1, "take": 1, "touch": 1}
    assert Task.stats().transition == {"X-R": 1, "R-T": 1}


def test_what_is_undone_is_not_counted(Task):
    held = bring(Task, "T")
    with pytest.raises(xq.NotFound):
        Task.kill(99)
    with Task._meta.database.atomic() as transaction:
        Task.touch(held, 5)
        Task.kill(held)
        transaction.rollback()
    assert Task.stats().events == {"put": 1, "take": 1}
    assert is_exact(Task)


def test_truncate_is_told_as_it_is_called(Task):
    told: Counter[str] = Counter()
    Task.xq.put_many(tasks(3))
    bring(Task, "B")
    Task.xq.on_change(lambda task, event, *states: told.update([event]))
    assert Task.xq.truncate("cleared") == 4
    assert told == {"cleared": 4}
    events = Task.stats().events
    assert (events["cleared"], "kill" in events) == (4, False)
    Task.xq.put_many(tasks(3))
    assert Task.xq.truncate() == 3
    assert Task.stats().events["kill"] == 3


@pytest.mark.parametrize("observed", [False, True], ids=["", "observed"])
@pytest.mark.parametrize("event", ["cleared", "kill", "ack"])
def test_truncate_counts_its_event_in_whatever_state_tasks_are(make, event, observed):
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
    if observed:
        assert told == {f"{move} {event}": n for move, n in left.items()}
    assert is_exact(Task)


@pytest.mark.parametrize("told", ["", "a b", "x" * 65, "a-b", "\0", None, 5, b"kill"])
def test_an_event_is_named_as_a_method_is(Task, told):
    Task.put(task())
    with pytest.raises((xq.BadValue, xq.BadType)):
        Task.xq.truncate(told)
    assert Task.stats().events == {"put": 1}


def test_reset_forgets_events_and_recount_does_not(Task):
    held = bring(Task, "T")
    Task.kill(held)
    Task.xq.recount()
    assert Task.stats().events == {"put": 1, "take": 1, "kill": 1}
    Task.xq.reset()
    assert Task.stats().events == {}
    assert is_exact(Task)


def test_without_the_feature_no_event_is_counted(make):
    Task = make()
    Task.kill(bring(Task, "T"))
    assert Task.stats().events == Task.stats(pretty=True).events == {}


def test_events_of_many_threads_are_all_counted(make_live):
    Task = make_live(FEATURES)
    Task.xq.put_many(tasks(20))

    def work() -> None:
        for _ in range(5):
            Task.kill(Task.take())

    in_threads(Task._meta.database, *[work] * 4)
    assert Task.stats().events == {"put": 20, "take": 20, "kill": 20}


def test_a_touch_gives_no_end_to_what_has_none(make):
    for endless, state in ((False, "R"), (True, "T")):
        Task = make({"ttr": True, "endless": endless}, attributes={"table_name": f"task_{endless}"})
        held = bring(Task, "T")
        Task.touch(held, 5)
        Task.xq.clock.tick(10)
        Task.xq.sweep()
        assert Task.xq.peek(held).status == state
    Task.release(held)
    held = Task.take(ttr=5)
    Task.touch(held, 5)
    Task.xq.clock.tick(9)
    Task.xq.sweep()
    assert Task.xq.peek(held).status == "T", "what ends is prolonged"


def test_priority_needs_its_role(make):
    with pytest.raises(xq.ConfigurationError, match="priority"):
        make({"priority": True}, roles=())
    Task = make({"priority": True}, roles=("priority",))
    Task.xq.put_many([task(priority=2), task(priority=1)])
    assert Task.take().priority == 1


def test_a_queue_that_has_the_role_is_installed_alike_with_the_feature_priority_and_without(make):
    make(roles=("priority",)).put(task())
    Other = make.model()
    xq.upgrade(Other, {"status": "status", "priority": "priority"}, {"priority": True}, clock=make.clock)
    assert Other.xq.check() == []
    assert Other.take().id == 1
