"""delay, ttl, ttr, zombie, lifetime and touch: when a task moves by itself, and when it never does."""

from __future__ import annotations

import datetime
import math

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import STUCK, bring, is_exact, row, state, transitions
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

AGES = 1e9  # seconds

KINDS = {
    "double": lambda: pw.DoubleField(null=True),
    "bigint": lambda: pw.BigIntegerField(null=True),
    "datetime": lambda: pw.DateTimeField(null=True),
}


def seconds(moment):
    """What a runat of any kind says, in seconds since 1970."""
    if isinstance(moment, datetime.datetime):
        return moment.replace(tzinfo=datetime.UTC).timestamp()
    return moment


@pytest.fixture(params=KINDS)
def times(request):
    """The fields runat and deadline, of each kind in turn."""
    return {"runat": KINDS[request.param](), "deadline": KINDS[request.param]()}


# delay


def test_a_delayed_task_waits_and_is_then_ready(make, times):
    Task = make({"delayed": True}, attributes=times)
    put = Task.put(task(), delay=5)
    assert put.status == "W"
    assert seconds(put.runat) == Task.xq.clock.now + 5
    Task.xq.clock.tick(4)
    assert (Task.xq.sweep(), Task.take()) == (0, None)
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1
    assert (state(Task, put), row(Task, put).runat) == ("R", None)


def test_a_delay_may_be_a_fraction_and_nothing_falls_due_too_early(make, times):
    Task = make({"delayed": True}, attributes=times)
    Task.put(task(), delay=0.5)
    Task.xq.clock.tick(0.25)
    assert Task.take() is None
    Task.xq.clock.tick(0.75)
    assert Task.take() is not None


def test_a_delay_of_nothing_is_over_at_once(make):
    Task = make({"delayed": True})
    Task.put(task(), delay=0)
    assert Task.take() is not None


def test_the_longest_delay_is_three_hundred_years(make, times):
    Task = make({"delayed": True}, attributes=times)
    assert seconds(Task.put(task(), delay=9e9).runat) == Task.xq.clock.now + 9e9
    with pytest.raises(xq.BadValue):
        Task.put(task(), delay=1e11)


@pytest.mark.parametrize("event", ["put", "release", "snatch", "dig", "restart", "switch"])
def test_a_delay_must_end(make, event):
    Task = make({"delayed": True, "buried": True, "keep": True})
    here = {"put": "X", "release": "T", "snatch": "T", "dig": "B", "restart": "D", "switch": "B"}[event]
    held = [] if here == "X" else [bring(Task, here)]
    with pytest.raises(xq.BadValue, match="delay"):
        getattr(Task.xq, event)(*(held or [{}]), *(["W"] if event == "switch" else []), delay=math.inf)
    assert Task.xq.count("W") == 0


def test_what_is_delayed_waits_again(make):
    Task = make({"delayed": True})
    put = bring(Task, "T")
    now = Task.xq.clock.now
    assert Task.release(put, delay=3).runat == now + 3
    assert Task.xq.restart(put, delay=9).runat == now + 9
    Task.xq.clock.tick(8)
    assert Task.take() is None
    Task.xq.clock.tick(1)
    assert Task.take().id == put.id


# ttl


def test_a_task_that_stays_ready_for_its_ttl_is_dropped(make, times):
    Task = make({"ttl": 10}, attributes=times)
    put = Task.put(task())
    assert seconds(put.runat) == Task.xq.clock.now + 10
    Task.xq.clock.tick(9)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1
    assert state(Task, put) == "X"


def test_the_ttl_counts_anew_whenever_a_task_becomes_ready(make):
    Task = make({"ttl": 10, "ttr": 20, "delayed": True, "buried": True})
    Task.put(task(), delay=100)
    for step in [
        lambda: (Task.xq.clock.tick(100), Task.xq.sweep()),
        lambda: Task.take().release(),
        lambda: (Task.take().release(delay=5), Task.xq.clock.tick(5), Task.xq.sweep()),
        lambda: Task.take().bury().dig(),
        lambda: (Task.take(), Task.xq.clock.tick(20), Task.xq.sweep()),
        lambda: Task.take().xq.release_all(),
        lambda: Task.xq.snatch(Task.take()),
        lambda: Task.xq.switch(Task.take().bury(), "R"),
    ]:
        Task.xq.clock.tick(1)
        step()
        assert Task.get().runat == Task.xq.clock.now + 10


def test_a_ttl_given_lives_for_one_stay(make):
    Task = make({"ttl": 10})
    now = Task.xq.clock.now
    assert Task.put(task(), ttl=3).runat == now + 3
    assert Task.take().release().runat == now + 10
    assert Task.take().release(ttl=4).runat == now + 4
    assert Task.take().release().runat == now + 10


def test_a_ttl_that_a_role_remembers_lives_as_long_as_the_task(make):
    Task = make({"ttl": 10, "delayed": True, "ttr": 20, "buried": True}, roles=("runat", "ttl"))
    put = Task.put(task(), ttl=3, delay=5)
    assert (put.status, put.runat, put.ttl) == ("W", Task.xq.clock.now + 5, 3)
    Task.xq.clock.tick(5)
    assert Task.xq.sweep() == 1
    assert Task.get().runat == Task.xq.clock.now + 3
    Task.take()
    Task.xq.clock.tick(20)
    Task.xq.sweep()
    assert Task.get().runat == Task.xq.clock.now + 3
    assert Task.take().bury().dig().runat == Task.xq.clock.now + 3
    assert Task.take().release(ttl=7).ttl == 7
    assert Task.take().release().runat == Task.xq.clock.now + 7


def test_a_ttl_after_a_delay_needs_a_role_to_remember_it(make):
    Task = make({"ttl": 10, "delayed": True, "ttr": 20, "buried": True})
    with pytest.raises(xq.FeatureOff, match="ttl") as off:
        Task.put(task(), delay=5, ttl=3)
    assert off.value.role == "ttl"
    taken = bring(Task, "T")
    with pytest.raises(xq.FeatureOff, match="ttl"):
        taken.release(delay=5, ttl=3)
    with pytest.raises(xq.FeatureOff, match="ttl"):
        taken.bury().dig(delay=5, ttl=3)


def test_a_default_ttl_after_a_delay_needs_nothing(make, times):
    Task = make({"ttl": 10, "delayed": True}, attributes=times)
    put = Task.put(task(), delay=5)
    Task.xq.clock.tick(5)
    assert Task.xq.sweep() == 1
    assert seconds(row(Task, put).runat) == Task.xq.clock.now + 10
    Task.xq.clock.tick(10)
    assert Task.xq.sweep() == 1
    assert state(Task, put) == "X"


def test_ttl_without_a_default_drops_only_what_was_given_one(make):
    Task = make({"ttl": True})
    kept, dropped = Task.put(task()), Task.put(task(), ttl=5)
    assert (kept.runat, dropped.runat) == (None, Task.xq.clock.now + 5)
    Task.xq.clock.tick(AGES)
    assert Task.xq.sweep() == 1
    assert Task.take().id == kept.id


# never


@pytest.mark.parametrize("role", [(), ("ttl",)])
def test_an_infinite_ttl_is_never(make, times, role):
    Task = make({"ttl": 10}, roles=("runat", *role), attributes=times)
    put = Task.put(task(), ttl=math.inf)
    assert put.runat is None
    Task.xq.clock.tick(AGES)
    assert Task.xq.sweep() == 0
    again = Task.take().release()
    assert again.runat is None if role else seconds(again.runat) == Task.xq.clock.now + 10


def test_an_infinite_time_of_its_own_is_never_for_good(make):
    Task = make({"ttl": 10, "ttr": 20, "delayed": True}, roles=("runat", "ttl", "ttr"))
    put = Task.put({"ttl": math.inf, "ttr": math.inf}, delay=1)
    Task.xq.clock.tick(1)
    taken = Task.take()
    assert (taken.id, taken.runat) == (put.id, None)
    assert taken.release().runat is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_time_is_never_and_not_1970(make, kind):
    features = {"ttl": True, "ttr": True, "zombie": True, "delayed": True}
    Task = make(features, attributes={"runat": KINDS[kind]()})
    put = Task.put(task())
    for step in ["take", "ack", None]:
        assert row(Task, put).runat is None
        Task.xq.clock.tick(AGES)
        assert Task.xq.sweep() == 0
        if step:
            put = Task.take() if step == "take" else put.ack()


def test_a_buried_or_done_task_has_no_timer_left_over(make):
    Task = make({"ttl": 10, "ttr": 20, "buried": True, "keep": True})
    for here in "BD":
        assert bring(Task, here).runat is None
    Task.xq.clock.tick(AGES)
    assert Task.xq.sweep() == 0
    assert Task.xq.stats().counts == {"R": 0, "T": 0, "B": 1, "D": 1}


# ttr


def test_a_task_not_finished_within_its_ttr_is_ready_again(make, times):
    Task = make({"ttr": 20}, roles=("runat", "owner", "attempts"), attributes=times)
    put = Task.put(task())
    taken = Task.take()
    assert seconds(taken.runat) == Task.xq.clock.now + 20
    Task.xq.clock.tick(19)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1
    after = row(Task, put)
    assert (after.status, after.runat, after.owner, after.attempts) == ("R", None, None, 1)
    assert Task.stats().transition["T-R"] == 1
    assert Task.take().attempts == 2


def test_a_ttr_that_a_role_remembers_lives_as_long_as_the_task(make):
    Task = make({"ttr": 20, "delayed": True}, roles=("runat", "ttr"))
    Task.put(task(), ttr=3, delay=1)
    Task.xq.clock.tick(1)
    for _ in range(2):
        taken = Task.take()
        assert taken.runat == Task.xq.clock.now + 3
        taken.release()
    assert Task.take().release(ttr=8).ttr == 8
    assert Task.take().runat == Task.xq.clock.now + 8


@pytest.mark.parametrize("call", ["put", "release"])
def test_a_ttr_before_the_take_needs_a_role_to_remember_it(make, call):
    Task = make({"ttr": 20})
    taken = bring(Task, "T")
    with pytest.raises(xq.FeatureOff, match="ttr") as off:
        getattr(Task, call)(taken if call == "release" else {}, ttr=3)
    assert off.value.role == "ttr"


# zombie


def test_a_zombie_stays_for_its_delay_else_the_default(make, times):
    Task = make({"zombie": 30}, attributes=times)
    default, given, forever = (bring(Task, "T") for _ in range(3))
    now = Task.xq.clock.now
    assert seconds(default.ack().runat) == now + 30
    assert seconds(given.ack(delay=5).runat) == now + 5
    assert forever.ack(delay=math.inf).runat is None
    Task.xq.clock.tick(5)
    assert (Task.xq.sweep(), state(Task, given)) == (1, "X")
    Task.xq.clock.tick(25)
    assert (Task.xq.sweep(), state(Task, default)) == (1, "X")
    Task.xq.clock.tick(AGES)
    assert (Task.xq.sweep(), state(Task, forever)) == (0, "Z")
    assert Task.stats().transition["Z-X"] == 2


def test_a_zombie_without_any_time_stays_until_it_is_killed(make):
    Task = make({"zombie": True})
    acked = bring(Task, "T").ack()
    assert (acked.status, acked.runat) == ("Z", None)
    Task.xq.clock.tick(AGES)
    assert Task.xq.sweep() == 0
    Task.kill(acked)
    assert state(Task, acked) == "X"


def test_a_zombie_of_no_time_is_gone_at_once(make):
    Task = make({"zombie": True})
    acked = bring(Task, "T").ack(delay=0)
    assert Task.xq.sweep() == 1
    assert state(Task, acked) == "X"


# lifetime


def test_a_task_is_dropped_at_its_deadline(make, times):
    Task = make({"lifetime": 100}, attributes=times)
    put = Task.put(task())
    assert seconds(put.deadline) == Task.xq.clock.now + 100
    Task.xq.clock.tick(99)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1
    assert (state(Task, put), Task.stats().transition["R-X"]) == ("X", 1)


def test_the_deadline_is_put_time_and_delay_and_ttl(make, times):
    Task = make({"lifetime": 100, "delayed": True}, attributes=times)
    now = Task.xq.clock.now
    assert seconds(Task.put(task(), delay=5).deadline) == now + 105
    assert seconds(Task.put(task(), delay=5, ttl=50).deadline) == now + 55
    assert seconds(Task.put(task(), ttl=50).deadline) == now + 50
    assert Task.put(task(), ttl=math.inf, delay=5).deadline is None


def test_the_deadline_runs_on_from_state_to_state(make):
    Task = make({"lifetime": 100, "buried": True, "ttr": 60})
    put = Task.put(task())
    deadline = put.deadline
    Task.xq.clock.tick(10)
    taken = Task.take()
    assert taken.deadline == taken.release().deadline == Task.take().bury().deadline == deadline
    Task.xq.clock.tick(89)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1
    assert Task.stats().transition["B-X"] == 1


def test_a_taken_task_past_its_deadline_is_first_ready_and_dropped_at_once(make):
    Task = make({"lifetime": 100})
    taken = bring(Task, "T")
    Task.xq.clock.tick(100)
    assert Task.xq.sweep() == 2
    assert Task.stats().transition == {"X-R": 1, "R-T": 1, "T-R": 1, "R-X": 1}
    with pytest.raises(xq.NotFound):
        taken.ack()


def test_a_done_task_has_no_deadline(make):
    Task = make({"lifetime": 100, "keep": True})
    done = bring(Task, "D")
    assert done.deadline is None
    Task.xq.clock.tick(AGES)
    assert Task.xq.sweep() == 0
    assert Task.xq.restart(done).deadline == Task.xq.clock.now + 100


def test_a_zombie_has_no_deadline(make):
    Task = make({"lifetime": 100, "zombie": 500})
    zombie = bring(Task, "Z")
    assert zombie.deadline is None
    Task.xq.clock.tick(499)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1


def test_lifetime_without_a_default_drops_only_what_was_given_a_ttl(make):
    Task = make({"lifetime": True})
    kept, dropped = Task.put(task()), Task.put(task(), ttl=5)
    Task.xq.clock.tick(AGES)
    assert Task.xq.sweep() == 1
    assert (state(Task, kept), state(Task, dropped)) == ("R", "X")


def test_lifetime_alone_needs_no_runat(make):
    Task = make({"lifetime": 100, "buried": True, "keep": True}, roles=("deadline",))
    assert bring(Task, "D").status == "D"
    taken = bring(Task, "T")
    assert taken.touch(5).deadline == Task.xq.clock.now + 105
    assert is_exact(Task)


# touch


def test_touch_pushes_the_time_of_a_taken_task_on(make, times):
    Task = make({"ttr": 20}, attributes=times)
    taken = bring(Task, "T")
    now = Task.xq.clock.now
    touched = taken.touch(5)
    assert seconds(touched.runat) == now + 25
    assert seconds(touched.touch(5).runat) == now + 30
    assert seconds(Task.touch(taken.id, 5).runat) == now + 35
    Task.xq.clock.tick(34)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1


def test_touch_pushes_the_time_of_a_ready_task_on(make, times):
    Task = make({"ttl": 10}, attributes=times)
    put = Task.put(task())
    assert seconds(Task.touch(put, 5).runat) == Task.xq.clock.now + 15
    Task.xq.clock.tick(14)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1)
    assert Task.xq.sweep() == 1


def test_touch_counts_from_now_where_there_was_no_time(make, times):
    Task = make({"ttr": True}, attributes=times)
    assert seconds(bring(Task, "T").touch(5).runat) == Task.xq.clock.now + 5


def test_touch_pushes_the_deadline_on_where_there_is_one(make, times):
    Task = make({"ttr": 20, "lifetime": True}, attributes=times)
    now = Task.xq.clock.now
    with_one = bring(Task, "T", ttl=100).touch(5)
    assert (seconds(with_one.runat), seconds(with_one.deadline)) == (now + 25, now + 105)
    without = bring(Task, "T").touch(5)
    assert (seconds(without.runat), without.deadline) == (now + 25, None)


def test_touch_may_be_a_fraction_or_nothing(make):
    Task = make({"ttr": 20})
    taken = bring(Task, "T")
    assert taken.touch(0.5).runat == Task.xq.clock.now + 20.5
    assert taken.touch(0).runat == Task.xq.clock.now + 20.5


def test_touch_is_no_transition(make):
    Task = make({"ttr": 20}, roles=("runat", "attempts", "owner"))
    taken = bring(Task, "T")
    seen = transitions(Task)
    touched = taken.touch(5)
    assert transitions(Task) == seen
    assert (touched.attempts, touched.owner) == (1, taken.owner)


def test_after_touch_both_objects_still_hold_the_task(make):
    Task = make({"ttr": 20, "keep": True})
    taken = bring(Task, "T")
    touched = taken.touch(5)
    assert taken.touch(5).touch(5).runat == Task.xq.clock.now + 35
    assert touched.ack().status == "D"


@pytest.mark.parametrize("here", ["W", "B", "Z"])
def test_touch_of_a_state_that_it_does_not_prolong_is_a_wrong_state(make, here):
    Task = make({"ttr": 20, "ttl": 10, "delayed": True, "buried": True, "zombie": 30})
    there = bring(Task, here)
    with pytest.raises(xq.WrongState) as wrong:
        Task.touch(there, 5)
    assert (wrong.value.state, wrong.value.allowed) == (here, ("T", "R"))


def test_touch_of_a_state_that_nothing_times_is_a_wrong_state(make):
    Task = make({"ttl": 10})
    taken = bring(Task, "T")
    with pytest.raises(xq.WrongState):
        taken.touch(5)


def test_touch_where_nothing_is_timed_is_a_feature_off(make):
    Task = make({"delayed": True})
    with pytest.raises(xq.FeatureOff, match="ttr"):
        bring(Task, "T").touch(5)


@pytest.mark.parametrize(
    ("increment", "error"),
    [(-1, xq.BadValue), (math.inf, xq.BadValue), (math.nan, xq.BadValue), ("5", xq.BadType), (None, xq.BadType)],
)
def test_an_increment_is_a_finite_number_that_is_not_negative(make, increment, error):
    Task = make({"ttr": 20})
    taken = bring(Task, "T")
    with pytest.raises(error):
        taken.touch(increment)
    assert row(Task, taken).runat == taken.runat


# the sweep


def test_a_sweep_goes_on_until_nothing_is_due(make):
    Task = make({"delayed": True, "ttl": 10, "ttr": 20})
    Task.xq.put_many(tasks(1200), delay=5)
    Task.xq.put_many(tasks(1100))
    Task.xq.take_many(50)
    Task.xq.clock.tick(30)
    assert Task.xq.sweep() == 1200 + 1050 + 50
    assert Task.xq.sweep() == 0
    assert transitions(Task) == {"X-R": 1100, "X-W": 1200, "W-R": 1200, "R-X": 1050, "R-T": 50, "T-R": 50}
    assert is_exact(Task)


def test_a_sweep_of_an_empty_queue_or_one_without_timers_moves_nothing(make):
    assert make({"ttl": 10}).xq.sweep() == 0
    assert make({}, model=make.model(table_name="other")).xq.sweep() == 0


def test_a_restart_of_the_process_keeps_every_time(make):
    features = {"delayed": True, "ttl": 10, "ttr": 20}
    Task = make(features)
    put = Task.put(task(), delay=5)
    Task.xq.clock.tick(5)
    Again = make(features)
    assert Again.xq.sweep() == 1
    assert row(Again, put).runat == make.clock.now + 10
    Again.take()
    make.clock.tick(20)
    assert make(features).xq.sweep() == 1
    assert row(Again, put).runat == make.clock.now + 10


def test_the_clock_of_a_test_may_be_set(make):
    Task = make({"delayed": True})
    Task.put(task(), delay=1_000)
    Task.xq.clock.now += 1_000
    assert Task.take() is not None


def test_a_clock_starts_where_it_is_told():
    clock = Clock(1_700_000_000)
    clock.tick(5)
    assert clock.now == 1_700_000_005


def test_without_a_test_clock_time_is_that_of_the_database(make_live):
    Task = make_live({"delayed": True, "ttl": 3600}, attributes={"runat": pw.DateTimeField(null=True)})
    put = Task.put(task(), delay=3600)
    in_an_hour = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(hours=1)
    assert abs((put.runat - in_an_hour).total_seconds()) < 60
    assert Task.take() is None
    Task.update(runat=in_an_hour - datetime.timedelta(minutes=90)).execute()
    assert Task.take(timeout=STUCK).id == put.id  # the maintenance thread may be moving it
