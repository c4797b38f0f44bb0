"""An example of each feature: the tests that loop over the features read it here. A new feature is a row of EXAMPLES.

tests/unit/test_machine.py has the rows of its table, alone and beside each other feature. In tests/contract
core/test_calls.py makes its calls, and test_bad_values.py makes them with wrong values. tests/explore cuts all calls
with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xq.core.machine import Machine
from xq.core.options import WRITES
from xq.features import FEATURES
from xq.upgrading.registry import catalogue, compose

OWN_FIELDS = ("priority", "tube", "unique", "utube")  # roles for which xq brings no column
NEW = {"name": "new", "size": 9}


@dataclass(frozen=True)
class Example:
    value: Any = True  # in features=
    # The rows of its table, with no more than it requires, that are not there without it.
    rows: str = ""
    excludes: str = ""  # the features with which it conflicts
    # A value with which a queue of all features goes on as without it; None: such a queue leaves it out.
    beside: Any = True
    # Lines as in CALLS of test_calls.py, for a queue with `value` and the features that it requires: the state before,
    # the event, its options, the state after, the seconds until its timer, fields that it then has.
    calls: tuple[tuple[Any, ...], ...] = ()
    # Its methods and options that no line of `calls` has: the file in tests/contract that tests each.
    elsewhere: Mapping[str, str] = field(default_factory=dict)


EXAMPLES: Mapping[str, Example] = {
    "id": Example("time64", beside=None),
    "retval": Example("dict", beside=None),
    "buried": Example(
        rows="""
        R B    switch       R  core
        R B    switch       B  core
        R T B  kill         X  core
        R T    cancel       B  buried
        T!     bury         B  buried
        B      dig (picks)  R  buried
        """,
        calls=(
            ("T", "bury", {}, "B", None, {"owner": None}),
            ("B", "dig", {"update": NEW}, "R", None, NEW),
            ("R", "cancel", {"to": "B"}, "B", None),
        ),
    ),
    "delayed": Example(
        rows="""
        W      restart               R         core
        R W    switch                R         core
        R W    switch         delay  W  delay  core
        R T W  kill                  X         core
        R T W  cancel                X         core
        W      delay (runat)         R         delayed
        X      put            delay  W  delay  delayed
        T!     release        delay  W  delay  delayed
        T      snatch         delay  W  delay  delayed
        W      restart        delay  W  delay  delayed
        """,
        calls=(("X", "put", {"delay": 0.5}, "W", 0.5), ("W", "restart", {}, "R", None)),
    ),
    "keep": Example(
        rows="""
        T!     ack      D  keep
        D      restart  R  core
        R D    switch   R  core
        R D    switch   D  core
        R T D  kill     X  core
        """,
        calls=(("T", "ack", {}, "D", None), ("D", "restart", {}, "R", None)),
    ),
    "zombie": Example(
        3600,
        """
        T!     ack             Z  delay=3600  zombie
        Z      restart         R              core
        R Z    switch          R              core
        R Z    switch          Z  delay=3600  core
        R T Z  kill            X              core
        Z      zombie (runat)  X              zombie
        """,
        excludes="keep",
        calls=(("T", "ack", {"delay": 5}, "Z", 5), ("Z", "restart", {}, "R", None)),
    ),
    "ttl": Example(
        60,
        """
        X   put          R  ttl=60       core
        T!  release      R  ttl=60       core
        T   snatch       R  ttl=60       core
        R   switch       R  ttl=60       core
        R   touch        R  + increment  ttl
        R   ttl (runat)  X               ttl
        """,
        beside=500,
        calls=(("X", "put", {"ttl": 3}, "R", 3), ("R", "touch", {"increment": 5}, "R", 65)),
    ),
    "lifetime": Example(
        60,
        """
        X   put                  R  ttl=60       core
        R   take (picks)         T  ttl=60       core
        T!  release              R  ttl=60       core
        T   snatch               R  ttl=60       core
        T!  touch                T  + increment  core
        R   switch               R  ttl=60       core
        R   lifetime (deadline)  X               lifetime
        T   lifetime (deadline)  R  ttl=60       lifetime
        """,
        excludes="ttl",
        calls=(
            ("X", "put", {"ttl": 3}, "R", None, {"deadline": 3}),
            ("T", "touch", {"increment": 5}, "T", None, {"deadline": 65}),
        ),
    ),
    "ttr": Example(
        60,
        """
        R   take (picks)  T  ttr=60       core
        T!  touch         T  + increment  core
        T   ttr (runat)   R               ttr
        """,
        calls=(("R", "take", {"ttr": 5}, "T", 5), ("T", "touch", {"increment": 5}, "T", 65)),
    ),
    "not_check_session": Example(
        rows="""
        T   ack           X               core
        T   release       R               core
        T   touch         T  + increment  core
        """,
        beside=None,
    ),
    "unique": Example(elsewhere={"on_conflict": "core/test_unique.py"}),
    "utube": Example(),
    "limit": Example(50, beside=300, elsewhere={"timeout": "test_waiting.py"}),
    "max_takes": Example({"n": 3, "to": "X"}, "T  max_takes  X  max_takes", beside=9),
    "rate": Example("100/m", beside={"limit": "1000/s", "burst": 1000}),
    "groups": Example(elsewhere={"group": "test_groups.py", "groups": "test_groups.py"}),
    "guard": Example(),
    "history": Example(elsewhere={"history": "core/test_history.py"}),
    "events": Example(),
    "priority": Example(
        rows="R  reprioritise  R  priority",
        calls=(("R", "reprioritise", {"priority": 7}, "R", None, {"priority": 7}),),
    ),
    "endless": Example(),
    "after": Example(
        rows="""
        W      restart         R  core
        R W    switch          R  core
        R T W  kill            X  core
        R T W  cancel          X  core
        W      after           R  after
        X      put      after  W  after
        """,
        elsewhere=dict.fromkeys(("after", "on_failure", "chain", "restart"), "test_after.py"),
    ),
    "steps": Example(
        rows="""
        T!     step    T  steps
        T!     elapse  T  steps
        T!     sleep   W  delay  steps
        T!     wait    W  delay  steps
        W      signal  R  steps
        """,
        excludes="not_check_session",
        elsewhere=dict.fromkeys(("signal", "again", "wait"), "core/test_steps.py"),
    ),
}


def alone(*names: str) -> dict[str, Any]:
    """Features by their examples, after those that they require."""
    required = [other for name in names for other in FEATURES[name](EXAMPLES[name].value).requires]
    return {name: EXAMPLES[name].value for name in (*required, *names)}


def conflict(one: str, other: str) -> bool:
    return other in EXAMPLES[one].excludes.split() or one in EXAMPLES[other].excludes.split()


def together(**given: Any) -> dict[str, Any]:
    """These features, and each other one that conflicts with none before it."""
    for name, example in EXAMPLES.items():
        if name not in given and example.beside is not None and not any(conflict(name, other) for other in given):
            given[name] = example.beside
    return given


def own_fields(features: Mapping[str, Any]) -> list[str]:
    """The roles that these features need for which the model must have a field."""
    return [role for feature in compose(features) for role in feature.needs if role in OWN_FIELDS]


def machine_of(features: Mapping[str, Any]) -> Machine:
    made = compose(features)
    return Machine(made, {"status", "ttl", "ttr"}.union(*(feature.needs for feature in made)))


def concerns_calls(name: str) -> bool:
    """Whether a feature brings calls, or options of calls."""
    return bool(EXAMPLES[name].calls) or any(name in features for features in catalogue().options.values())


def options_of(features: Mapping[str, Any], event: str) -> set[str]:
    """The options of the calls of an event in a queue with these features."""
    brought = {option for (at, option), by in catalogue().options.items() if at == event and {*by} & features.keys()}
    return brought.union(WRITES.get(event, ()))
