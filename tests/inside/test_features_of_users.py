"""Features that users bring: what upgrade refuses of them, and what they cannot break."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from itertools import product
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.golden.regenerate import DATABASES, QUEUES, entries
from tests.steps import bring, state
from tests.support.features import PARK, RETRY
from xq import Choice, Column, Detour, Feature, Timer, Transition
from xq.adapters.databases.dialect import Dialect
from xq.adapters.databases.named import by_position
from xq.core.machine import NUMBERED, Machine

FIELDS = {"status": "status", "runat": "runat", "attempts": "attempts"}

REFUSED: dict[str, tuple[str, Feature]] = {
    "a state that is a quote": ('moves tasks to "\'"', Feature("own", transitions=(Transition("R", "park", "'"),))),
    "a state that is no letter": ("'1'", Feature("own", transitions=(Transition("R", "park", "1"),))),
    "a state beyond ASCII": ("'É'", Feature("own", transitions=(Transition("R", "park", "É"),))),
    "a state that is a space": ("' '", Feature("own", timers=(Timer("R", "park", " ", "park"),))),
    "a timer by a column that counts": (
        "'attempts'",
        Feature("own", timers=(Timer("T", "late", "R", "late", 5, column="attempts"),)),
    ),
    "a timer by a column that is the status": (
        "'status'",
        Feature("own", timers=(Timer("T", "late", "R", "late", 5, column="status"),)),
    ),
    "two states to pick from": (
        "one state only",
        Feature("own", transitions=(Transition("R", "park", "P"), Transition("RP", "grab", "T", picks=True))),
    ),
    "an option that is no time": (
        "the option 'force' of park must be the seconds of a timer or a detour of this queue: it has none",
        Feature("own", transitions=(Transition("R", "park", "P", given="force"),)),
    ),
    "words for another event than put": (
        "only put takes an option that is a word, not 'bury'",
        Feature("own", choices=(Choice("bury", "how", ("deep", "shallow")),)),
    ),
    "a role that does not exist": (
        r"uses the role 'flag', which does not exist: there are status \(text or integer or bigint\), runat \(double",
        Feature("own", columns=(Column("flag", at={"R": True}),)),
    ),
    "a column of a role that is not mapped": (
        "'error'",
        Feature("own", columns=(Column("error", at={"T": None}),)),
    ),
    "a column that is the timer's": ("'runat'", Feature("own", columns=(Column("runat", at={"R": 1.0}),))),
    "a column that is the status": ("'status'", Feature("own", columns=(Column("status", at={"R": "R"}),))),
}


@pytest.fixture
def model() -> Any:
    return Maker(pw.SqliteDatabase(":memory:")).model()


@pytest.mark.parametrize("what", REFUSED)
def test_upgrade_refuses(model, what):
    told, feature = REFUSED[what]
    with pytest.raises(xq.ConfigurationError, match=told):
        xq.upgrade(model, FIELDS, {"own": feature})
    assert not hasattr(model, "xq")


@pytest.mark.parametrize("option", ["now", "update", "own_ttl", "not an identifier", ""])
def test_an_option_must_not_hide_what_the_queue_passes_itself(model, option):
    features = [
        Feature("own", timers=(Timer("T", "late", "R", option, 5),)),
        Feature("own", timers=(Timer("P", "late", "R", "late"),), detours=(Detour("R", "P", option),)),
    ]
    for feature in features:
        with pytest.raises(xq.ConfigurationError, match="option"):
            xq.upgrade(model, FIELDS, {"own": feature})


def names_in_sql() -> set[str]:
    """Of the values that a statement has, whatever the database is, but for options."""
    found: set[str] = set()
    for make_queue, database in product(QUEUES.values(), DATABASES.values()):
        queue = make_queue(database())
        texts = [text for entry in entries(queue) for text in entry.texts]
        names = {name for text in texts for name in by_position(text, "?")[1]}
        found |= names.difference(*map(queue.machine.options, queue.machine.events))
    return found


def names_of_arguments() -> set[str]:
    """Of the methods that take options."""
    methods = [inspect.signature(method).parameters for _, method in inspect.getmembers(xq.Queue, inspect.isfunction)]
    takes_options = [names for names in methods if "options" in names]
    return {name for names in takes_options for name in names} - {"options"}


def documented_names() -> set[str]:
    """Of the values in SQL, as the dialect's documentation lists them, but for options."""
    # Without the indentation of the source, which Python 3.13 takes away by itself.
    listed = re.findall(r"^ {4}(\S.*?) {2,}\S", str(inspect.getdoc(Dialect)), re.MULTILINE)
    return {name for line in listed for name in re.findall(r"\w+", line)} - {"ttl"}


def test_each_name_of_a_value_in_sql_is_documented():
    filled_in = {"listed", "rows", "chosen"}
    assert {name for name in names_in_sql() - filled_in if not NUMBERED.fullmatch(name)} <= documented_names()


@pytest.mark.parametrize(
    ("names", "some"),
    [
        (names_in_sql, {"context", "k1", "f0", "f2_0", "chosen", "rows", "listed", "many", "own_ttr"}),
        (names_of_arguments, {"task", "event", "timeout"}),
        (documented_names, {"context", "k1", "f3_1", "many", "own_ttl", "waiter", "savepoint"}),
    ],
)
def test_whatever_has_a_name_of_its_own_is_no_option(names, some):
    found = names()
    assert some <= found
    timers = {name: Feature("own", timers=(Timer("T", "late", "R", name, 5),)) for name in found}
    allowed = []
    for name, feature in timers.items():
        with suppress(xq.ConfigurationError):
            Machine((feature,), ("status", "runat"))
            allowed.append(name)
    assert allowed == []


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


def test_only_what_an_ack_leads_to_counts_as_processed(make):
    reject = Feature("reject", transitions=(Transition("T", "reject", "J", fenced=True),))
    Task = make({"keep": True, "reject": reject})
    rejected = Task.xq.call("reject", bring(Task, "T"))
    assert Task.wait(rejected, 0) == (rejected, False)
    done = bring(Task, "D")
    assert Task.wait(done, 0) == (done, True)


@pytest.mark.parametrize("event", ["take", "kill"])
def test_what_time_brings_under_the_name_of_a_method_leaves_that_method_as_it_was(make, event):
    late = Feature("late", needs=("runat",), timers=(Timer("T", event, "R", "late", 60),))
    Task = make({"late": late})
    taken = bring(Task, "T")
    Task.xq.clock.tick(61)
    assert Task.take().id == taken.id
    with pytest.raises(xq.NotOwner):
        taken.ack()
    assert Task.xq.kill(taken.id).id == taken.id
    assert Task.xq.count() == 0


def test_a_users_feature_works_on_a_table(make):
    Task = make({"buried": True, "delayed": True, "retry": RETRY, "park": PARK})
    Task.put({"name": "a"})
    assert Task.xq.call("retry", Task.take(), delay=5).status == "W"
    Task.xq.clock.tick(5)
    parked = Task.xq.call("park", Task.take(), hours=10, update={"name": "b"})
    assert (parked.status, parked.runat, parked.name) == ("P", Task.xq.clock.now + 10, "b")
    with pytest.raises(xq.BadType):
        Task.xq.call("unpark", parked, hours=10)
    Task.xq.clock.tick(10)
    assert Task.xq.sweep() == 1
    assert Task.xq.peek(parked).status == "B"
    assert Task.stats().transition == {"X-R": 1, "R-T": 2, "T-W": 1, "T-P": 1, "W-R": 1, "P-B": 1}
