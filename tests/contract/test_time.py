"""delay, ttl, ttr, zombie, lifetime and touch: when a task moves by itself, and when it never does."""

from __future__ import annotations

import datetime
import math
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import STUCK, is_exact, row, state, transitions

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

AGES = 1e9  # seconds
HOUR = datetime.timedelta(hours=1)
WORDS = {"ages": AGES, "never": None}

KINDS = {
    "double": lambda: pw.DoubleField(null=True),
    "bigint": lambda: pw.BigIntegerField(null=True),
    "datetime": lambda: pw.DateTimeField(null=True),
}
RUNAT, DEADLINE = ("runat",), ("deadline",)

# What becomes of a task: the features, the roles beside the status, and steps. A step is an event with its options, or
# seconds that pass until a sweep; then the state (X: gone), and in how many seconds the first of the roles says that it
# ends.
STORIES: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a delayed task waits and is then ready": ({"delayed": True}, RUNAT, "put delay=5: W 5, +4: W 1, +1: R never"),
    "a fraction is not over too early": ({"delayed": True}, RUNAT,
        "put delay=0.5: W any, +0.25: W any, +0.75: R never"),
    "a task that stays ready for its ttl is dropped": ({"ttl": 10}, RUNAT, "put: R 10, +9: R 1, +1: X"),
    "the ttl counts anew whenever a task becomes ready": ({"ttl": 10, "ttr": 20, "delayed": True, "buried": True},
        RUNAT,
        "put delay=100: W 100, +100: R 10, +1: R 9, take: T 20, release: R 10, take: T 20, release delay=5: W 5, "
        "+5: R 10, take: T 20, bury: B never, dig: R 10, take: T 20, +20: R 10, take: T 20, +1: T 19, "
        "release_all: R 10, take: T 20, snatch: R 10, take: T 20, bury: B never, switch to=R: R 10"),
    "a ttl given lives for one stay": (
        {"ttl": 10},
        RUNAT,
        "put ttl=3: R 3, take: T never, release: R 10, take: T never, release ttl=4: R 4, take: T never, release: R 10",
    ),
    "a ttl that a role remembers lives as long as the task": ({"ttl": 10, "delayed": True, "ttr": 20, "buried": True},
        ("runat", "ttl"),
        "put ttl=3 delay=5: W 5, +5: R 3, take: T 20, +20: R 3, take: T 20, bury: B never, dig: R 3, take: T 20, "
        "release ttl=7: R 7, take: T 20, release: R 7"),
    "a default ttl begins after the delay": ({"ttl": 10, "delayed": True}, RUNAT, "put delay=5: W 5, +5: R 10, +10: X"),
    "an infinite time that a role remembers is never for good": ({"ttl": 10, "ttr": 20, "delayed": True},
        ("runat", "ttl", "ttr"),
        "put ttl=inf ttr=inf delay=1: W 1, +1: R never, +ages: R never, take: T never, +ages: T never, "
        "release: R never"),
    "a missing time is never and not 1970": ({"ttl": True, "ttr": True, "zombie": True}, RUNAT,
        "put: R never, +ages: R never, take: T never, +ages: T never, ack: Z never, +ages: Z never, kill: X"),
    "a task not finished within its ttr is ready again": ({"ttr": 20}, RUNAT,
        "put: R never, take: T 20, +19: T 1, +1: R never, take: T 20"),
    "a ttr that a role remembers lives as long as the task": ({"ttr": 20, "delayed": True}, ("runat", "ttr"),
        "put ttr=3 delay=1: W 1, +1: R never, take: T 3, release: R never, take ttr=5: T 5, release: R never, "
        "take: T 3, release ttr=8: R never, take: T 8"),
    "a zombie stays for a while": ({"zombie": 30}, RUNAT, "put: R never, take: T never, ack: Z 30, +29: Z 1, +1: X"),
    "the deadline runs on from state to state": ({"lifetime": 100, "buried": True, "delayed": True},
        (*DEADLINE, *RUNAT),
        "put delay=5: W 105, +15: R 90, take: T 90, release: R 90, take: T 90, bury: B 90, +89: B 1, +1: X"),
    "a ttl is a lifetime, and needs no runat": ({"lifetime": True}, DEADLINE, "put ttl=50: R 50, +49: R 1, +1: X"),
    "a taken task past its deadline is first ready and dropped at once": ({"lifetime": 100}, DEADLINE,
        "put: R 100, take: T 100, +100: X"),
    "a done task has no deadline": ({"lifetime": 100, "keep": True}, DEADLINE,
        "put: R 100, take: T 100, ack: D never, +ages: D never, restart: R 100"),
    "a zombie has no deadline": ({"lifetime": 100, "zombie": 500}, (*DEADLINE, *RUNAT),
        "put: R 100, take: T 100, ack: Z never, +499: Z never, +1: X"),
    "touch pushes the time of a taken task on": ({"ttr": 20}, RUNAT,
        "put: R never, take: T 20, touch increment=5: T 25, touch increment=5: T 30, +29: T 1, +1: R never"),
    "touch sets no deadline where there is none": ({"ttr": 20, "lifetime": True}, (*DEADLINE, *RUNAT),
        "put: R never, take: T never, touch increment=5: T never, +25: R never"),
}  # fmt: skip


def left(moment, now):
    """The seconds until what a timer of any kind says."""
    if isinstance(moment, datetime.datetime):
        moment = moment.replace(tzinfo=datetime.UTC).timestamp()
    return moment if moment is None else moment - now


def number(word):
    return WORDS[word] if word in WORDS else float(word)


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_moves_at_its_time_and_neither_before_nor_without_one(make, kind, subtests):
    every = 1 if isinstance(make.db, pw.SqliteDatabase) else len(KINDS)  # servers: each story with one kind
    for i, (story, (features, roles, steps)) in [*enumerate(STORIES.items())][[*KINDS].index(kind) % every :: every]:
        with subtests.test(story):
            fields = {"runat": KINDS[kind](), "deadline": KINDS[kind](), "table_name": f"task_{i}"}
            Task, key = make(features, roles=roles, attributes=fields), None
            for step in steps.split(", "):
                what, there = (each.split() for each in step.split(": "))
                at, seen = f"{story}: {step}", transitions(Task)
                if what[0].startswith("+"):
                    Task.xq.clock.tick(number(what[0][1:]))
                    assert Task.xq.sweep() == (transitions(Task) - seen).total(), at
                else:
                    options = {name: "R" if name == "to" else number(n) for name, n in (o.split("=") for o in what[1:])}
                    keys = (key,) if what[0] not in ("put", "take", "release_all") else ()
                    found = getattr(Task.xq, what[0])(*keys, **options)
                    key = key or found.id
                assert state(Task, key) == there[0], at
                if there[1:] and there[1] != "any":
                    moment = getattr(row(Task, key), roles[0])
                    assert left(moment, Task.xq.clock.now) == number(there[1]), at
            assert is_exact(Task), story


@pytest.mark.parametrize("kind", KINDS)
def test_a_touch_that_writes_progress_begins_the_ttr_anew_unless_more_is_left_of_it(make, kind):
    Task = make({"ttr": 20}, roles=("runat", "ttr"), attributes={"runat": KINDS[kind]()})
    Task.xq.put_many([task(), task(ttr=50), task(), task(), task()])
    of = [Task.take(ttr=90 if n == 3 else math.inf if n == 4 else None) for n in range(5)]
    Task.xq.clock.tick(10)

    def lefts():
        return [left(each.runat, Task.xq.clock.now) for each in Task.select().order_by(Task.id)]

    assert lefts() == [10, 40, 10, 80, None]
    touched = [each.touch(update={"size": 40}) for each in (of[0], of[1], of[3], of[4])]
    assert [(each.size, each.status) for each in touched] == [(40, "T")] * 4
    assert lefts() == [20, 50, 10, 80, None]
    assert of[0].touch(5, update={"size": 41}).size == 41
    assert lefts()[0] == 25
    assert is_exact(Task)


def test_a_touch_without_a_ttr_writes_the_fields_of_a_task_that_the_caller_has(make):
    Task = make({"keep": True})
    Task.put(task())
    with pytest.raises(xq.WrongState):
        Task.xq.touch(1, update={"size": 40})
    taken = Task.take()
    assert Task.xq.touch(taken, update={"size": 40}).size == 40
    assert [each.size for each in Task.xq.touch_many([1], update=[{"size": 41}])] == [41]
    for wrong, error in (({"status": "D"}, xq.BadValue), ({"nothing": 1}, xq.BadValue), (None, xq.BadType)):
        with pytest.raises(error):
            taken.touch(update=wrong)
    with pytest.raises(xq.FeatureOff, match="ttr"):
        taken.touch(5, update={"size": 42})
    with Task.xq.session(), pytest.raises(xq.NotOwner):
        Task.xq.touch(1, update={"size": 42})
    assert (row(Task, 1).size, row(Task, 1).status, is_exact(Task)) == (41, "T", True)


def waiting(Task, **when):
    """A task for each call that makes one wait; the last one is a zombie."""
    made = {"release": (), "snatch": (), "dig": ("bury",), "restart": ("ack",), "switch": ("release",), "ack": ()}
    waits = [Task.put(task(), **when), *Task.xq.put_many(tasks(2), **when)]
    for event, before in made.items():
        taken = Task.take() if Task.xq.count("R") else (Task.put(task()), Task.take())[1]
        for verb in before:
            taken = getattr(Task.xq, verb)(taken)
        waits.append(getattr(Task.xq, event)(taken, *(["W"] if event == "switch" else []), **when))
    return waits


WAITING = {"delayed": True, "buried": True, "zombie": True, "lifetime": AGES}


def test_a_task_waits_until_a_moment_and_seconds_may_be_a_timedelta(make):
    Task = make(WAITING)
    now = datetime.datetime.fromtimestamp(Task.xq.clock.now, datetime.UTC).astimezone(ZoneInfo("Asia/Tokyo"))
    for when, seconds in ({"at": now + HOUR}, 3600), ({"delay": HOUR}, 3600), ({"at": now - HOUR}, 0):
        *waits, zombie = waiting(Task, **when)
        ends = {tuple(left(moment, Task.xq.clock.now) for moment in (each.runat, each.deadline)) for each in waits}
        assert ends == {(seconds, seconds + AGES)}, when
        assert left(zombie.runat, Task.xq.clock.now) == seconds
        assert "".join(each.status for each in (*waits, zombie)) == "WWWWWWWWZ"


def test_a_moment_is_that_moment_however_long_the_call_waits_for_a_lock(make):
    Task, start = make(WAITING), datetime.datetime(2027, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
    readings, at = count(start.timestamp(), 3), start + HOUR  # three seconds pass between any two, also within a call
    Task.xq.clock = type("Passing", (), {"now": property(lambda self: next(readings))})()
    waits = waiting(Task, at=at)
    assert {each.runat for each in waits} == {at.timestamp()}
    assert {each.deadline for each in waits[:3]} == {at.timestamp() + AGES}


@pytest.mark.parametrize("kind", KINDS)
def test_a_moment_may_be_any_that_python_has(make, kind):
    Task = make({"delayed": True}, attributes={"runat": KINDS[kind]()})
    first, last = (datetime.datetime(9999, month, 31, tzinfo=datetime.UTC) for month in (1, 12))
    for at, until in ((first, first), (datetime.datetime.max.replace(tzinfo=ZoneInfo("America/New_York")), last)):
        assert f"until {until:%Y-%m-%d} 00:00:00 UTC" in Task.xq.why(Task.put(task(), at=at).id)[0]


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


def test_without_a_test_clock_time_is_that_of_the_database(make_live):
    Task = make_live({"delayed": True, "ttl": 3600}, attributes={"runat": pw.DateTimeField(null=True)})
    put = Task.put(task(), delay=3600)
    in_an_hour = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(hours=1)
    assert abs((put.runat - in_an_hour).total_seconds()) < 60
    assert Task.take() is None
    Task.update(runat=in_an_hour - datetime.timedelta(minutes=90)).execute()
    assert Task.take(timeout=STUCK).id == put.id  # the maintenance thread may be moving it
