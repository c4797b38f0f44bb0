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

from tests.support.features import PARK, RETRY
from xq import Choice, Column, ConfigurationError, Conflict, Detour, Feature, Machine, Timer, Transition
from xq.core.machine import Guard, Settings
from xq.features import FEATURES
from xq.registry import catalogue, compose

ROLES = ("status", "runat", "deadline", "unique", "utube")


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
""")

# What each feature makes of the core alone, with no more than it requires.
ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "id": ({"id": "uuid"}, CORE),
    "retval": ({"retval": "dict"}, CORE),
    "buried": (
        {"buried": True},
        table("""
            from   event         option  to  timed by  brought by
            X      put                   R             core
            R      take (picks)          T             core
            T!     ack                   X             core
            T!     release               R             core
            T      snatch                R             core
            R B    switch                R             core
            R B    switch                B             core
            R T B  kill                  X             core
            T!     bury                  B             buried
            B      dig (picks)           R             buried
        """),
    ),
    "delayed": (
        {"delayed": True},
        table("""
            from   event          option  to  timed by  brought by
            X      put                    R             core
            R      take (picks)           T             core
            T!     ack                    X             core
            T!     release                R             core
            T      snatch                 R             core
            W      restart                R             core
            R W    switch                 R             core
            R W    switch         delay   W   delay     core
            R T W  kill                   X             core
            W      delay (runat)          R             delayed
            X      put            delay   W   delay     delayed
            T!     release        delay   W   delay     delayed
            T      snatch         delay   W   delay     delayed
            W      restart        delay   W   delay     delayed
        """),
    ),
    "keep": (
        {"keep": True},
        table("""
            from   event         option  to  timed by  brought by
            X      put                   R             core
            R      take (picks)          T             core
            T!     ack                   D             keep
            T!     release               R             core
            T      snatch                R             core
            D      restart               R             core
            R D    switch                R             core
            R D    switch                D             core
            R T D  kill                  X             core
        """),
    ),
    "zombie": (
        {"zombie": 3600},
        table("""
            from   event           option  to  timed by    brought by
            X      put                     R               core
            R      take (picks)            T               core
            T!     ack                     Z   delay=3600  zombie
            T!     release                 R               core
            T      snatch                  R               core
            Z      restart                 R               core
            R Z    switch                  R               core
            R Z    switch                  Z   delay=3600  core
            R T Z  kill                    X               core
            Z      zombie (runat)          X               zombie
        """),
    ),
    "ttl": (
        {"ttl": 10},
        table("""
            from  event         option  to  timed by     brought by
            X     put                   R   ttl=10       core
            R     take (picks)          T                core
            T!    ack                   X                core
            T!    release               R   ttl=10       core
            T     snatch                R   ttl=10       core
            R     switch                R   ttl=10       core
            R T   kill                  X                core
            R     touch                 R   + increment  ttl
            R     ttl (runat)           X                ttl
        """),
    ),
    "lifetime": (
        {"lifetime": True},
        table("""
            from  event                option  to  timed by     brought by
            X     put                          R   ttl          core
            R     take (picks)                 T   ttl          core
            T!    ack                          X                core
            T!    release                      R   ttl          core
            T     snatch                       R   ttl          core
            T!    touch                        T   + increment  core
            R     switch                       R   ttl          core
            R T   kill                         X                core
            R     lifetime (deadline)          X                lifetime
            T     lifetime (deadline)          R   ttl          lifetime
        """),
    ),
    "ttr": (
        {"ttr": 60},
        table("""
            from  event         option  to  timed by     brought by
            X     put                   R                core
            R     take (picks)          T   ttr=60       core
            T!    ack                   X                core
            T!    release               R                core
            T     snatch                R                core
            T!    touch                 T   + increment  core
            R     switch                R                core
            R T   kill                  X                core
            T     ttr (runat)           R                ttr
        """),
    ),
    "not_check_session": (
        {"ttr": True, "not_check_session": True},
        table("""
            from  event         option  to  timed by     brought by
            X     put                   R                core
            R     take (picks)          T   ttr          core
            T     ack                   X                core
            T     release               R                core
            T     snatch                R                core
            T     touch                 T   + increment  core
            R     switch                R                core
            R T   kill                  X                core
            T     ttr (runat)           R                ttr
        """),
    ),
    "unique": ({"unique": True}, CORE),
    "utube": ({"utube": True}, CORE),
    "limit": ({"limit": 5}, CORE),
    "rate": ({"rate": "5/m"}, CORE),
    "history": ({"history": True}, CORE),
    "events": ({"events": True}, CORE),
    "priority": ({"priority": True}, CORE),
    "endless": ({"endless": True}, CORE),
}

README = {"delayed": True, "buried": True, "keep": True, "ttr": 60}

README_TABLE = table("""
    from       event          option  to  timed by     brought by
    X          put                    R                core
    R          take (picks)           T   ttr=60       core
    T!         ack                    D                keep
    T!         release                R                core
    T          snatch                 R                core
    T!         touch                  T   + increment  core
    W D        restart                R                core
    R W B D    switch                 R                core
    R W B D    switch         delay   W   delay        core
    R W B D    switch                 B                core
    R W B D    switch                 D                core
    R T W B D  kill                   X                core
    W          delay (runat)          R                delayed
    T!         bury                   B                buried
    B          dig (picks)            R                buried
    T          ttr (runat)            R                ttr
    X          put            delay   W   delay        delayed
    T!         release        delay   W   delay        delayed
    T          snatch         delay   W   delay        delayed
    W D        restart        delay   W   delay        delayed
    B          dig (picks)    delay   W   delay        delayed
""")

# All features that go together: those of xqueue, and those of tarantool/queue.
FULL = {
    "id": "time64",
    "retval": "dict",
    "buried": "any",
    "delayed": True,
    "zombie": 3600,
    "ttl": 10,
    "ttr": 60,
    "not_check_session": True,
    "unique": True,
    "utube": 2,
    "limit": 1000,
    "rate": "1000000/s",
}

FULL_TABLE = table("""
    from       event           option  to  timed by     brought by
    X          put                     R   ttl=10       core
    R          take (picks)            T   ttr=60       core
    T          ack                     Z   delay=3600   zombie
    T          release                 R   ttl=10       core
    T          snatch                  R   ttl=10       core
    T          touch                   T   + increment  core
    W Z        restart                 R   ttl=10       core
    R W B Z    switch                  R   ttl=10       core
    R W B Z    switch          delay   W   delay        core
    R W B Z    switch                  B                core
    R W B Z    switch                  Z   delay=3600   core
    R T W B Z  kill                    X                core
    R T W B Z  bury                    B                buried
    B          dig (picks)             R   ttl=10       buried
    W          delay (runat)           R   ttl=10       delayed
    Z          zombie (runat)          X                zombie
    R          touch                   R   + increment  ttl
    R          ttl (runat)             X                ttl
    T          ttr (runat)             R   ttl=10       ttr
    X          put             delay   W   delay        delayed
    T          release         delay   W   delay        delayed
    T          snatch          delay   W   delay        delayed
    W Z        restart         delay   W   delay        delayed
    B          dig (picks)     delay   W   delay        delayed
""")

LIVING = {"delayed": True, "buried": True, "keep": True, "lifetime": 300, "ttr": 60}

LIVING_TABLE = table("""
    from       event                option  to  timed by        brought by
    X          put                          R   ttl=300         core
    R          take (picks)                 T   ttl=300 ttr=60  core
    T!         ack                          D                   keep
    T!         release                      R   ttl=300         core
    T          snatch                       R   ttl=300         core
    T!         touch                        T   + increment     core
    W D        restart                      R   ttl=300         core
    R W B D    switch                       R   ttl=300         core
    R W B D    switch               delay   W   delay ttl=300   core
    R W B D    switch                       B   ttl=300         core
    R W B D    switch                       D                   core
    R T W B D  kill                         X                   core
    W          delay (runat)                R   ttl=300         delayed
    T!         bury                         B   ttl=300         buried
    B          dig (picks)                  R   ttl=300         buried
    R W B      lifetime (deadline)          X                   lifetime
    T          lifetime (deadline)          R   ttl=300         lifetime
    T          ttr (runat)                  R   ttl=300         ttr
    X          put                  delay   W   delay ttl=300   delayed
    T!         release              delay   W   delay ttl=300   delayed
    T          snatch               delay   W   delay ttl=300   delayed
    W D        restart              delay   W   delay ttl=300   delayed
    B          dig (picks)          delay   W   delay ttl=300   delayed
""")


# the tables


def test_the_core_alone():
    assert str(Machine()) == CORE
    assert Machine().states == ("R", "T")


def test_every_feature_has_its_table_here():
    assert list(ALONE) == list(FEATURES)


@pytest.mark.parametrize("name", ALONE)
def test_a_feature_alone(name):
    features, expected = ALONE[name]
    assert str(machine(**features)) == expected


def test_buried_from_any_state_by_anyone():
    rows = [row for row in machine(buried="any").rows if row.event == "bury"]
    assert [(row.source, row.target, row.fenced) for row in rows] == [
        ("R", "B", False),
        ("T", "B", False),
        ("B", "B", False),
    ]


def test_the_queue_of_the_readme():
    assert str(machine(**README)) == README_TABLE
    assert machine(**README).states == ("R", "T", "W", "B", "D")


def test_all_features_that_go_together():
    assert str(machine(**FULL)) == FULL_TABLE
    assert machine(**FULL).states == ("R", "T", "W", "B", "Z")


def test_a_lifetime_beside_a_ttr():
    assert str(machine(**LIVING)) == LIVING_TABLE


def test_the_order_in_which_features_are_named_changes_no_row():
    backwards = machine(**dict(reversed(FULL.items())))
    assert set(backwards.rows) == set(machine(**FULL).rows)
    assert backwards.states == machine(**FULL).states


# pairs

TRIED = {"id": "uuid", "retval": "tuple", "limit": 5, "rate": "5/m"}  # True for the others
CONFLICTS = {frozenset({"keep", "zombie"}), frozenset({"ttl", "lifetime"})}


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(FEATURES, 2)))
def test_two_features_go_together_or_conflict_by_name(one, other):
    pair = {name: TRIED.get(name, True) for name in (one, other)}
    if "not_check_session" in pair:
        pair["ttr"] = True
    if frozenset({one, other}) not in CONFLICTS:
        assert machine(**pair).states
        return
    with pytest.raises(Conflict) as raised:
        machine(**pair)
    assert set(raised.value.features) == {one, other}
    assert repr(one) in str(raised.value)
    assert repr(other) in str(raised.value)


def test_a_conflict_says_what_both_decide():
    with pytest.raises(Conflict) as raised:
        machine(keep=True, zombie=5)
    assert raised.value.claim == "(T, ack)"
    assert str(raised.value) == "features 'keep' and 'zombie' both decide (T, ack): use one of them"
    with pytest.raises(Conflict) as raised:
        machine(ttl=5, lifetime=5)
    assert str(raised.value) == "features 'ttl' and 'lifetime' both decide how long R lasts (ttl): use one of them"


def test_a_feature_says_which_other_it_requires():
    with pytest.raises(ConfigurationError, match="feature 'not_check_session' needs the feature 'ttr', which is off"):
        machine(not_check_session=True)


# asking


def options(of: Machine) -> dict[str, str]:
    return {event: " ".join(sorted(of.options(event))) for event in of.events}


def test_events_take_the_options_that_their_rows_take():
    assert options(machine(**README)) == {
        "put": "delay",
        "take": "ttr",
        "ack": "",
        "release": "delay",
        "snatch": "delay",
        "touch": "increment",
        "restart": "delay",
        "switch": "delay",
        "kill": "",
        "bury": "",
        "dig": "delay",
    }


def test_a_mapped_role_remembers_an_option_that_counts_later():
    roles = (*ROLES, "ttl", "ttr")
    assert options(machine(roles=roles, **FULL)) == {
        "put": "delay ttl ttr",
        "take": "ttr",
        "ack": "delay",
        "release": "delay ttl ttr",
        "snatch": "delay ttl ttr",
        "touch": "increment",
        "restart": "delay ttl ttr",
        "switch": "delay ttl ttr",
        "kill": "",
        "bury": "",
        "dig": "delay ttl ttr",
    }


def test_an_option_chooses_the_row():
    of = machine(**README)

    def chosen(*asked: str, to: str | None = None) -> Any:
        source, event, *given = asked
        row = of.choose(source, event, given, to)
        return row.target if row else None

    assert chosen("T", "release") == "R"
    assert chosen("T", "release", "delay") == "W"
    assert chosen("X", "put", "delay") == "W"
    assert chosen("T", "ack", "delay") == "D"  # that the row takes no delay is for the caller to say
    assert chosen("B", "switch", "delay", to="W") == "W"
    assert chosen("B", "switch", to="W") is None
    assert chosen("B", "switch", "delay", to="R") == "R"
    assert chosen("R", "release") is None


def test_time_moves_what_its_timers_say():
    assert [(row.source, row.event, row.target, row.due) for row in machine(**LIVING).due] == [
        ("T", "lifetime", "R", "deadline"),
        ("T", "ttr", "R", "runat"),
        ("W", "delay", "R", "runat"),
        ("R", "lifetime", "X", "deadline"),
        ("W", "lifetime", "X", "deadline"),
        ("B", "lifetime", "X", "deadline"),
    ]


def test_the_states_that_an_event_leaves():
    of = machine(**README)
    assert of.sources("put") == ("X",)
    assert of.sources("restart") == ("W", "D")
    assert of.sources("switch") == ("R", "W", "B", "D")
    assert of.sources("kill") == ("R", "T", "W", "B", "D")
    assert of.sources("ttr") == ()  # time's, not a caller's
    assert of.sources("bake") == ()


# features of a user's own


def test_a_users_retry_takes_a_delay_though_neither_feature_names_the_other():
    assert "\n".join(line for line in str(machine(RETRY, delayed=True)).splitlines() if "retry" in line) == table("""
        T!     retry                  R             retry
        T!     retry          delay   W   delay     delayed
    """)
    assert options(machine(RETRY))["retry"] == ""
    assert options(machine(RETRY, delayed=True))["retry"] == "delay"


def test_a_users_feature_stands_in_features_under_any_name():
    assert [feature.name for feature in compose({"again": RETRY, "keep": True})] == ["id", "keep", "retry"]


def test_a_users_feature_may_stand_in_for_one_of_xq():
    parked = Feature("keep", transitions=(Transition("T", "ack", "P", fenced=True),))
    row = Machine(compose({"keep": parked}), ROLES).choose("T", "ack", ())
    assert row is not None
    assert row.target == "P"


def test_a_users_state_is_one_like_the_others():
    assert str(machine(PARK, buried=True, delayed=True)) == table("""
        from       event          option  to  timed by    brought by
        X          put                    R               core
        R          take (picks)           T               core
        T!         ack                    X               core
        T!         release                R               core
        T          snatch                 R               core
        W          restart                R               core
        R W B P    switch                 R               core
        R W B P    switch         delay   W   delay       core
        R W B P    switch                 B               core
        R W B P    switch                 P   hours=7200  core
        R T W B P  kill                   X               core
        T!         bury                   B               buried
        B          dig (picks)            R               buried
        W          delay (runat)          R               delayed
        T!         park                   P   hours=7200  park
        P          unpark                 R               park
        P          tow (runat)            B               park
        X          put            delay   W   delay       delayed
        T!         release        delay   W   delay       delayed
        T          snatch         delay   W   delay       delayed
        W          restart        delay   W   delay       delayed
        B          dig (picks)    delay   W   delay       delayed
        P          unpark         delay   W   delay       delayed
    """)


def test_a_users_feature_may_replace_a_row_of_the_core():
    archive = Feature("archive", transitions=(Transition("T", "ack", "A", fenced=True),))
    rows = [row for row in machine(archive).rows if row.event == "ack"]
    assert [(row.source, row.target, row.by) for row in rows] == [("T", "A", "archive")]


def test_it_may_replace_one_source_of_a_row_that_has_many():
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
        {"choices": (Choice("put", "how", ("well", "badly")),)},
        {"detours": (Detour("R", "W", "nap"),), "timers": ()},
        {"settings": Settings(touch_ends=False)},
    ],
    ids=["an event", "an event of the core", "a timer", "a column", "a fill", "a choice", "a detour", "a setting"],
)
def test_two_own_features_that_claim_the_same_conflict_by_name(claims):
    with pytest.raises(Conflict) as raised:
        machine(*conflicting(**claims), roles=(*ROLES, "priority"))
    assert set(raised.value.features) == {"one", "other"}


def test_two_timers_of_one_state_conflict_by_their_column_and_by_their_option():
    def rot(name: str, option: str, column: str) -> Feature:
        return Feature(name, timers=(Timer("R", name, "X", option=option, column=column),))

    for other in (rot("b", "y", "runat"), rot("b", "x", "deadline")):
        with pytest.raises(Conflict) as raised:
            machine(rot("a", "x", "runat"), other)
        assert set(raised.value.features) == {"a", "b"}
    assert len(machine(rot("a", "x", "runat"), rot("b", "y", "deadline")).due) == 2


def test_an_own_feature_conflicts_with_one_of_xq():
    archive = Feature("archive", transitions=(Transition("T", "ack", "A"),))
    with pytest.raises(Conflict) as raised:
        machine(archive, keep=True)
    assert set(raised.value.features) == {"archive", "keep"}
    maker = Feature("maker", fill={"key": lambda task: 7})
    with pytest.raises(Conflict) as raised:
        machine(maker, id="uuid")
    assert set(raised.value.features) == {"maker", "id"}


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


def test_a_users_feature_says_which_others_it_requires():
    picky = Feature("picky", requires=("keep", "park"))
    with pytest.raises(ConfigurationError, match="feature 'picky' needs the feature 'park', which is off"):
        machine(picky, keep=True)
    assert machine(picky, PARK, keep=True, buried=True)


# unique: what moves by itself must not bring two tasks together


@pytest.mark.parametrize(
    ("states", "others", "missing"),
    [
        ("R", {"ttr": 60}, "T"),
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


def test_unique_in_R_holds_in_T_too_for_a_session_that_ends_gives_its_tasks_back():
    with pytest.raises(ConfigurationError, match="'unique'"):
        machine(unique="R")


def test_unique_must_hold_in_a_users_state_that_ends_by_itself():
    towed = Feature("towed", transitions=(Transition("T", "park", "P"),), timers=(Timer("P", "tow", "R", "hours"),))
    with pytest.raises(ConfigurationError, match="add 'P'"):
        machine(towed, unique=True)
    assert machine(towed, unique="WRTP")


def test_only_where_a_task_may_be_in_the_way_of_another_its_leaving_lets_one_be_taken():
    moves = [("X", "R"), ("T", "R"), ("T", "X"), ("T", "D"), ("R", "X"), ("R", "T"), ("B", "X")]
    assert [machine().frees(*move) for move in moves] == [True, True, False, False, False, False, False]
    assert [machine(utube=True).frees(*move) for move in moves] == [True, True, True, True, True, False, False]


@pytest.mark.parametrize("others", [{}, {"delayed": True, "ttr": 60}, {"buried": True, "zombie": 5, "lifetime": 60}])
def test_unique_as_it_is_by_default_goes_with_everything(others):
    assert machine(unique=True, **others).guards == (Guard("unique", role="unique", states="WRT"),)


@pytest.mark.parametrize("states", ["Q", "wrt", "X", "S", "WRTQ"])
def test_unique_holds_in_states_that_there_are(states):
    with pytest.raises(ConfigurationError, match="'unique'"):
        machine(unique=states)


# the values of features

WRONG: list[tuple[str, Any, str]] = [
    # feature, value, what the message says that it takes
    ("ttl", 0, "greater than 0"),
    ("ttl", -1, "greater than 0"),
    ("ttl", math.nan, ""),
    ("ttl", math.inf, "less than or equal to 10000000000"),
    ("ttl", -math.inf, "greater than 0"),
    ("ttl", 1e11, "less than or equal to 10000000000"),
    ("ttl", 10**400, ""),
    ("ttl", "yes", "number"),
    ("ttl", "5", "number"),
    ("ttl", b"5", "number"),
    ("ttl", [5], "number"),
    ("ttl", lambda: 5, "number"),
    ("ttr", 0, "greater than 0"),
    ("ttr", math.nan, ""),
    ("ttr", {"seconds": 5}, "number"),
    ("lifetime", 0, "greater than 0"),
    ("lifetime", -0.5, "greater than 0"),
    ("zombie", 0, "greater than 0"),
    ("zombie", "for ever", "number"),
    ("buried", "all", "any"),
    ("buried", 1, "True"),
    ("buried", 0, "True"),
    ("delayed", "yes", "True"),
    ("delayed", 1, "True"),
    ("delayed", 1.0, "True"),
    ("keep", "True", "True"),
    ("keep", 1, "True"),
    ("keep", 60, "True"),
    ("not_check_session", 1, "True"),
    ("limit", True, "integer"),
    ("limit", 0, "greater than 0"),
    ("limit", -1, "greater than 0"),
    ("limit", 1.5, "integer"),
    ("limit", 5.0, "integer"),
    ("limit", "5", "integer"),
    ("limit", math.inf, "integer"),
    ("unique", "", "at least 1 character"),
    ("utube", 0, "greater than 0"),
    ("utube", 1.5, "integer"),
    ("unique", 1, "string"),
    ("unique", ["W", "R"], "string"),
    ("id", "uuid4", "'auto_increment', 'time64', 'uuid' or 'required'"),
    ("id", True, "callable"),
    ("id", 7, "callable"),
    ("retval", "list", "'model', 'dict' or 'tuple'"),
    ("retval", True, "'model', 'dict' or 'tuple'"),
    ("retval", dict, "'model', 'dict' or 'tuple'"),
]


@pytest.mark.parametrize(("name", "value", "wanted"), WRONG, ids=[f"{name}={value!r:.20}" for name, value, _ in WRONG])
def test_a_wrong_value_is_refused_with_the_feature_what_it_takes_and_what_was_given(name, value, wanted):
    required = {"not_check_session": {"ttr": True}}.get(name, {})
    with pytest.raises(ConfigurationError) as raised:
        machine(**required, **{name: value})
    told = str(raised.value)
    prefix = f"feature {name!r} does not take {value!r}: "
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


def test_a_name_that_is_no_text_is_refused():
    features: Any = {5: True}
    with pytest.raises(ConfigurationError, match="5"):
        compose(features)


@pytest.mark.parametrize("features", [[("ttl", 5)], "ttl", 5, {"ttl"}, True])
def test_features_are_a_mapping(features):
    with pytest.raises(ConfigurationError, match="features is a mapping of names to values, not"):
        compose(features)


# which feature is off


def test_the_catalogue_names_the_features_of_every_method_that_the_core_lacks():
    assert catalogue().events == {
        "bury": ("buried",),
        "dig": ("buried",),
        "restart": ("delayed", "keep", "zombie"),
        "touch": ("ttl", "lifetime", "ttr"),
        "history": ("history",),
    }


def test_the_catalogue_names_the_features_of_every_option():
    expected = {
        ("put", "delay"): ("delayed",),
        ("put", "ttl"): ("ttl", "lifetime"),
        ("put", "ttr"): ("ttr",),
        ("put", "on_conflict"): ("unique",),
        ("put", "timeout"): ("limit",),
        ("take", "ttr"): ("ttr",),
        ("ack", "delay"): ("zombie",),
        ("release", "delay"): ("delayed",),
        ("release", "ttl"): ("ttl", "lifetime"),
        ("release", "ttr"): ("ttr",),
        ("snatch", "delay"): ("delayed",),
        ("snatch", "ttl"): ("ttl", "lifetime"),
        ("snatch", "ttr"): ("ttr",),
        ("restart", "delay"): ("delayed",),
        ("restart", "ttl"): ("ttl", "lifetime"),
        ("restart", "ttr"): ("ttr",),
        ("switch", "delay"): ("delayed", "zombie"),
        ("switch", "ttl"): ("ttl", "lifetime"),
        ("switch", "ttr"): ("ttr",),
        ("dig", "delay"): ("delayed",),
        ("dig", "ttl"): ("ttl", "lifetime"),
        ("dig", "ttr"): ("ttr",),
        ("touch", "increment"): ("ttl", "lifetime", "ttr"),
    }
    assert {option: catalogue().options.get(option) for option in expected} == expected


def test_what_features_bring_one_of_them_declares():
    for names in itertools.combinations_with_replacement(FEATURES, 2):
        features = {name: FEATURES[name]() for name in names}
        features |= {name: FEATURES[name]() for feature in [*features.values()] for name in feature.requires}
        try:
            found = Machine(list(features.values()), ROLES)
        except Conflict:
            continue
        methods = {method for feature in features.values() for method in feature.methods}
        assert {*found.events} <= {*Machine([], ROLES).events} | methods, names
        for event in found.events:
            options = {name for feature in features.values() for name, by in feature.options.items() if event in by}
            assert {*found.options(event)} <= options, (names, event)
