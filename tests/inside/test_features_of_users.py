"""Features that users bring: what upgrade refuses of them, and what they cannot break."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import task
from tests.steps import bring, state
from xq import Column, Detour, Feature, Timer, Transition

FIELDS = {"status": "status", "runat": "runat", "attempts": "attempts"}


def feature(**claims: Any) -> Feature:
    return Feature("own", **claims)


def to(state: str) -> Feature:
    return feature(transitions=(Transition("R", "park", state),))


REFUSED: dict[str, tuple[str, Feature]] = {
    "a state that is a quote": ('moves tasks to "\'"', to("'")),
    "a state beyond ASCII": ("'É'", to("É")),
    "a timer by a column that is the status": (
        "'status'",
        feature(timers=(Timer("T", "late", "R", "late", 5, column="status"),)),
    ),
    "two states to pick from": (
        "one state only",
        feature(transitions=(Transition("R", "park", "P"), Transition("RP", "grab", "T", picks=True))),
    ),
    "an option that is no time": (
        "the option 'force' of park must be the seconds of a timer or a detour of this queue: it has none",
        feature(transitions=(Transition("R", "park", "P", given="force"),)),
    ),
    "a role that does not exist": (
        "uses the role 'flag', which does not exist",
        feature(columns=(Column("flag", at={"R": True}),)),
    ),
    "a column of a role that is not mapped": ("'error'", feature(columns=(Column("error", at={"T": None}),))),
    "a column that is the timer's": ("'runat'", feature(columns=(Column("runat", at={"R": 1.0}),))),
    "a column that is the status": ("'status'", feature(columns=(Column("status", at={"R": "R"}),))),
}


def model() -> Any:
    return Maker(pw.SqliteDatabase(":memory:")).model()


@pytest.mark.parametrize("what", REFUSED)
def test_upgrade_refuses(what):
    told, own = REFUSED[what]
    of = model()
    with pytest.raises(xq.ConfigurationError, match=told):
        xq.upgrade(of, FIELDS, {"own": own})
    assert not hasattr(of, "xq")


@pytest.mark.parametrize("option", ["now", "update", "own_ttl", "k1", "f2_0", "rows", "not an identifier", ""])
def test_an_option_must_not_hide_what_the_queue_passes_itself(option):
    for own in (
        feature(timers=(Timer("T", "late", "R", option, 5),)),
        feature(timers=(Timer("P", "late", "R", "late"),), detours=(Detour("R", "P", option),)),
    )[not option :]:  # no call has the option of a timer without one
        with pytest.raises(xq.ConfigurationError, match="option"):
            xq.upgrade(model(), FIELDS, {"own": own})


@pytest.mark.parametrize("event", ["ack", "release", "bury"])
def test_what_time_brings_under_the_name_of_a_method_opens_no_fence(make, event):
    target = {"ack": "X", "release": "R", "bury": "B"}[event]
    late = Feature("late", needs=("runat",), timers=(Timer("T", event, target, "late", 60),))
    Task = make({"buried": True, "late": late})
    taken = bring(Task, "T")
    with Task.xq.session(), pytest.raises(xq.NotOwner):
        getattr(Task, event)(taken.id)
    assert state(Task, taken) == "T"
    Task.xq.clock.tick(61)
    assert Task.xq.sweep() == 1
    assert state(Task, taken) == target


def test_an_event_that_needs_an_option_says_so_without_it(make):
    snooze = feature(transitions=(Transition("R", "snooze", "W", given="delay"),))
    Task = make({"delayed": True, "own": snooze})
    with pytest.raises(xq.BadValue, match="snooze needs delay=seconds"):
        Task.xq.call("snooze", Task.put({}))


NAP = feature(timers=(Timer("P", "wake", "R", option="nap"),), detours=(Detour("R", "P", "nap"),))


@pytest.mark.parametrize(("on", "error"), [({"limit": 1}, xq.Full), ({"unique": True}, xq.Duplicate)])
def test_a_task_counts_in_an_own_state_from_which_a_timer_returns_it(make, on, error):
    Task = make({"own": NAP, **on}, roles=("runat", "unique"))
    assert Task.put({"job": "a"}, nap=60).status == "P"
    with pytest.raises(error):
        Task.put({"job": "a"})


def test_a_timer_may_say_why_in_a_role(make):
    late = Timer("R", "too_late", "B", "late", writes=(("error", "too late"),))
    own = feature(needs=("runat", "error"), timers=(late,))
    Task = make({"buried": True, "own": own}, roles=("runat", "error"), attributes={"error": pw.TextField(null=True)})
    kept, gone = (Task.xq.put(task(), late=seconds).id for seconds in (60, 5))
    Task.xq.clock.tick(10)
    assert Task.xq.sweep() == 1
    assert (state(Task, gone), Task.get_by_id(gone).error) == ("B", "too late")
    assert Task.xq.why(gone)[0].endswith("too late")
    assert Task.take().id == kept
