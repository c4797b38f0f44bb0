"""The transition table: of the core, of each feature, of whole queues, and of features that a user brings.

A table stands here as a reviewer reads it: `!` marks a row for the task's owner only, "picks" one that may choose
the oldest tasks itself, a name in brackets the column whose passing brings the event about.
"""

from __future__ import annotations

import itertools
import math
from textwrap import dedent
from typing import Any

import pytest

from tests.features import EXAMPLES, alone, conflict
from xq import Column, ConfigurationError, Conflict, Detour, Feature, Machine, Timer, Transition
from xq.core.compile import Own, change
from xq.core.machine import Settings
from xq.core.words import lasting
from xq.features import FEATURES
from xq.upgrading.registry import compose

ROLES = ("status", "runat", "deadline", "unique", "utube", "lost", "after", "steps", "awaits")


def machine(*features: Feature, roles: Any = ROLES, **named: Any) -> Any:
    """The machine of the features given by name, and of those of a user's own."""
    return Machine([*compose(named), *features], roles)


def table(text: str) -> str:
    return dedent(text).strip("\n")


CORE = table("""
    from  event         option  to  timed by  brought by
    X     put                   R             core
    R     take (picks)          T             core
    T!    ack                   X             core
    T!    release               R             core
    T     snatch                R             core
    R     switch                R             core
    R T   kill                  X             core
    R T   cancel                X             core
""")


def lines(of: str) -> set[str]:
    """The rows of a table, whose columns may be narrower elsewhere."""
    return {" ".join(line.split()) for line in of.splitlines()[1:]}


PARK = Feature(
    "park",
    needs=("runat",),
    transitions=(Transition("T", "park", "P", fenced=True), Transition("P", "unpark", "R")),
    timers=(Timer("P", "tow", "B", option="hours", default=7200),),
)


# the tables


def test_the_core_alone():
    assert str(Machine()) == CORE
    assert Machine().states == ("R", "T")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_feature_alone(name):
    features = alone(name)
    found, without = (lines(str(machine(**each))) for each in (features, features | {name: None}))
    assert found - without == {" ".join(line.split()) for line in EXAMPLES[name].rows.splitlines() if line.strip()}


# pairs


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(FEATURES, 2)))
def test_two_features_go_together_or_conflict_by_name(one, other):
    pair = alone(one, other)
    if not conflict(one, other):
        assert machine(**pair).states
        return
    with pytest.raises(Conflict) as raised:
        machine(**pair)
    assert set(raised.value.features) == {one, other}
    assert repr(one) in str(raised.value)
    assert repr(other) in str(raised.value)


# features of a user's own


def test_a_users_state_is_one_like_the_others():
    of = machine(PARK, buried=True, delayed=True)
    assert {line for line in lines(str(of)) if "P" in line} == {
        "R W B P switch R core",
        "R W B P switch delay W delay core",
        "R W B P switch B core",
        "R W B P switch P hours=7200 core",
        "R T W B P kill X core",
        "T! park P hours=7200 park",
        "P unpark R park",
        "P unpark delay W delay delayed",
        "P tow (runat) B park",
    }


def test_a_users_feature_may_replace_a_row_of_the_core_or_one_source_of_it():
    archive = Feature("archive", transitions=(Transition("T", "ack", "A", fenced=True),))
    assert [(row.source, row.target) for row in machine(archive).rows if row.event == "ack"] == [("T", "A")]
    shy = Feature("shy", transitions=(Transition("T", "kill", "B"),))
    rows = [(row.source, row.target, row.by) for row in machine(shy).rows if row.event == "kill"]
    assert rows == [("R", "X", "core"), ("T", "B", "shy"), ("B", "X", "core")]


def conflicting(**claims: Any) -> tuple[Feature, Feature]:
    return Feature("one", **claims), Feature("other", **claims)


@pytest.mark.parametrize(
    "claims",
    [
        {"transitions": (Transition("T", "retry", "R"),)},
        {"transitions": (Transition("T", "ack", "D"),)},
        {"timers": (Timer("R", "rot", "X", option="rot"),)},
        {"columns": (Column("priority", at={"R": 1}),)},
        {"fill": {"key": lambda task: 7}},
        {"detours": (Detour("R", "W", "nap"),), "timers": ()},
        {"settings": Settings(touch_ends=False)},
    ],
    ids=["an event", "an event of the core", "a timer", "a column", "a fill", "a detour", "a setting"],
)
def test_two_own_features_that_claim_the_same_conflict_by_name(claims):
    with pytest.raises(Conflict) as raised:
        machine(*conflicting(**claims), roles=(*ROLES, "priority"))
    assert set(raised.value.features) == {"one", "other"}


def test_an_option_may_have_the_name_of_a_column_by_which_another_feature_times():
    by_column = Feature("one", timers=(Timer("R", "one", "X", option="hours", column="deadline"),))
    by_option = Feature("other", timers=(Timer("R", "other", "X", option="deadline"),))
    assert [timer.option for timer in machine(by_column, by_option).timers["R"]] == ["hours", "deadline"]


def test_an_option_with_the_name_of_a_role_is_not_read_from_the_task():
    late = machine(
        Feature("late", timers=(Timer("R", "late", "X", option="priority", default=500),)), roles=(*ROLES, "priority")
    )
    release = next(row for row in late.rows if row.event == "release")
    assert change(late, release, frozenset()).roles["runat"].seconds == (Own("", 500),)


@pytest.mark.parametrize(
    "feature",
    [
        Feature("park", transitions=(Transition("P", "unpark", "R"),)),
        Feature("park", timers=(Timer("P", "tow", "X", option="hours"),)),
    ],
    ids=["a transition", "a timer"],
)
def test_a_feature_that_leaves_a_state_which_nothing_enters_is_refused(feature):
    with pytest.raises(ConfigurationError, match="feature 'park' moves tasks out of P, which nothing enters"):
        machine(feature)


def test_what_leaves_states_that_another_feature_brings_comes_with_it():
    review = Feature("review", transitions=(Transition("BD", "review", "R"),))
    assert [row.source for row in machine(review, keep=True).rows if row.event == "review"] == ["D"]
    assert [row.source for row in machine(review, keep=True, buried=True).rows if row.event == "review"] == ["B", "D"]


def test_a_feature_says_which_others_it_requires():
    with pytest.raises(ConfigurationError, match="feature 'not_check_session' needs the feature 'ttr', which is off"):
        machine(not_check_session=True)
    picky = Feature("picky", requires=("keep", "park"))
    with pytest.raises(ConfigurationError, match="feature 'picky' needs the feature 'park', which is off"):
        machine(picky, keep=True)
    assert machine(picky, PARK, keep=True, buried=True)


# unique: what moves by itself must not bring two tasks together


@pytest.mark.parametrize(
    ("states", "others", "missing"),
    [
        ("R", {}, "T"),  # a session that ends gives its tasks back
        ("RT", {"delayed": True}, "W"),
        ("WR", {"delayed": True, "ttr": 60}, "T"),
        ("WR", {"delayed": True, "lifetime": 60}, "T"),
    ],
)
def test_unique_must_hold_where_tasks_come_from_by_themselves(states, others, missing):
    with pytest.raises(ConfigurationError, match=f"add '{missing}'") as raised:
        machine(unique=states, **others)
    assert "'unique'" in str(raised.value)
    assert repr(states) in str(raised.value)


def test_only_where_a_task_may_be_in_the_way_of_another_its_leaving_lets_one_be_taken():
    moves = [("X", "R"), ("T", "R"), ("T", "X"), ("T", "D"), ("R", "X"), ("R", "T"), ("B", "X")]
    assert [machine().frees(*move) for move in moves] == [True, True, False, False, False, False, False]
    assert [machine(utube=True).frees(*move) for move in moves] == [True, True, True, True, True, False, False]


@pytest.mark.parametrize(("guard", "expected"), [({"unique": True}, "WRTPQ"), ({"limit": 5}, "WRTBPQ")])
def test_unique_and_limit_hold_in_own_states_from_which_timers_lead_back(guard, expected):
    nap = Feature(
        "nap",
        transitions=(Transition("R", "nap", "Q"), Transition("R", "rest", "Z")),
        timers=(Timer("Q", "turn", "P", option="nap"), Timer("P", "wake", "R", option="nap")),
    )
    assert [each.states for each in machine(nap, **guard).guards] == [expected]


@pytest.mark.parametrize("states", ["Q", "wrt", "X", "S", "WRTQ"])
def test_unique_holds_in_states_that_there_are(states):
    with pytest.raises(ConfigurationError, match="'unique'"):
        machine(unique=states)


# the values of features

# what the message says that a feature takes -> wrong values of features
WRONG: dict[str, list[tuple[str, Any]]] = {
    "greater than 0": [
        *(("ttl", value) for value in (0, -1, -math.inf)),
        *(("ttr", 0), ("lifetime", -0.5), ("zombie", 0), ("limit", 0), ("limit", -1), ("utube", 0)),
    ],
    "less than or equal to 10000000000": [("ttl", math.inf), ("ttl", 1e11)],
    "": [("ttl", math.nan), ("ttl", 10**400)],
    "number": [
        *(("ttl", value) for value in ("yes", "5", b"5", [5], len)),
        *(("ttr", {"seconds": 5}), ("zombie", "for ever")),
    ],
    "True": [
        *(("delayed", value) for value in ("yes", 1, 1.0)),
        *(("keep", "True"), ("keep", 60), ("buried", 0), ("buried", 1), ("not_check_session", 1)),
    ],
    "any": [("buried", "all")],
    "integer": [*(("limit", value) for value in (True, 1.5, 5.0, "5", math.inf)), ("utube", 1.5)],
    "at least 1 character": [("unique", "")],
    "string": [("unique", 1), ("unique", ["W", "R"])],
    "'auto_increment', 'time64', 'uuid' or 'required'": [("id", "uuid4")],
    "callable": [("id", True), ("id", 7)],
    "'model', 'dict' or 'tuple'": [("retval", "list"), ("retval", True), ("retval", dict)],
}


@pytest.mark.parametrize("wanted", WRONG)
def test_a_wrong_value_is_refused_with_the_feature_what_it_takes_and_what_was_given(wanted):
    for name, value in WRONG[wanted]:
        with pytest.raises(ConfigurationError) as raised:
            machine(**{**alone(name), name: value})
        told, prefix = str(raised.value), f"feature {name!r} does not take {value!r}: "
        assert told.startswith(prefix)
        assert len(told) > len(prefix)
        assert wanted in told


def test_one_is_a_second_and_not_true():
    assert machine(ttl=1, ttr=1).timer("R", "runat").default == 1.0
    assert machine(ttl=True).timer("R", "runat").default is None


@pytest.mark.parametrize("value", [None, False])
def test_none_and_false_are_off(value):
    assert str(machine(**dict.fromkeys(FEATURES, value))) == CORE


@pytest.mark.parametrize("name", ["ttls", "TTL", "ttl ", "", "model_config", "__base__", "history\n"])
@pytest.mark.parametrize("value", [True, False])
def test_a_name_that_no_feature_has_is_refused(name, value):
    with pytest.raises(ConfigurationError) as raised:
        compose({name: value})
    assert repr(name) in str(raised.value)
    assert all(feature in str(raised.value) for feature in FEATURES)


@pytest.mark.parametrize("features", [[("ttl", 5)], "ttl", 5, {"ttl"}, True, {5: True}])
def test_features_are_a_mapping_of_names(features):
    with pytest.raises(ConfigurationError, match="features is a mapping of names to values, not|5"):
        compose(features)


SPANS = {
    0.0302: "30.2 ms",
    0.9999: "1 s",
    119.7: "120 s",
    217: "3 min 37 s",
    3_599.8: "60 min",
    18_000: "5 h",
    187_000: "2 days 4 h",
}


@pytest.mark.parametrize("seconds", SPANS)
def test_a_span_of_time_is_told_in_two_units(seconds):
    assert lasting(seconds) == SPANS[seconds]


@pytest.mark.parametrize("limit", [1, 100, 1_000, 1_001, 20_000, 1_000_000, 999_999_999])
def test_no_second_has_more_takes_than_a_rate_allows(limit):
    (guard,) = machine(roles=ROLES, rate=f"{limit}/s").guards
    interval, slack, _ = guard.limits[None]
    assert slack // interval + -(-1_000_000 // interval) <= limit  # as rate/slice.py proves


def test_features_are_composed_in_one_order():
    on = {"history": True, "after": True, "ttr": 60}
    names = [feature.name for feature in compose(on)]
    assert names == [feature.name for feature in compose(dict(reversed(on.items())))]
