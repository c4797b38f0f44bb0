"""Calls, lives of workers and transactions of applications, cut at their statements; and pairs of calls.

The first line of a failure is the command that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from itertools import cycle, product
from zlib import crc32

import pytest

import xq
from tests.conftest import SERVERS
from tests.explore import pairs
from tests.explore.calls import CALLS, NO_FEATURE, NO_LINE
from tests.explore.cuts import findings, opened, sample
from tests.explore.gate import Cut
from tests.explore.homes import HOMES, Home
from tests.explore.jobs import PROGRAMS
from tests.explore.orms import ORMS
from xq.aio import Aio
from xq.features import FEATURES

MANY = 200  # cuts of a program: an installation on a server has more, and takes a second for each
LOST = ["put", "put_many", "take", "take_many", "ack", "ack_many", "release", "bury", "act", "sweep, delayed"]
IN_A_LOOP = [f"{call} in a loop" for call in ("put", "take", "ack")]
LIVES = ["worker returns in a process, child", "worker dies in a process, parent"]
ON_TASKS = ["django.tasks enqueue", "django.tasks returns in thread", "tube take"]
ON_ORMS = [f"{orm}: {act}, committed" for orm in ORMS for act in ("put", "ack")]

# Calls that move a task of any state or owner, each beside a take, the end of a task, and a timer; and others.
ANY = ["kill", "cancel", "cancel,to-B", "act-kill", "act-cancel", "snatch", "switch,B", "truncate", "release_all"]
BESIDE = ["take ready", "release taken-by-B", "sweep late-of-another"]
OTHERS = """take group-kill member|group-kill ack last-member|ack put,after parent-taken|ack take utube-taken
take take fair|take set_limit fair|put,unique put,unique unique-done|put take limit|take pause ready
sweep ack late-of-B|snatch take taken-by-another|take kill ready|release cancel taken|take ack only-late-of-B
take reaps orphaned|reaps reaps orphaned"""
WHERE = [
    ("postgres", "read-committed commit"),
    ("mariadb", "repeatable-read commit"),
    ("mysql", "repeatable-read commit"),
    ("postgres", "read-committed rollback"),
    ("sqlite", "serializable commit"),
    ("postgres", "serializable late"),
]
LINES = [*map(" ".join, product(ANY, BESIDE)), *OTHERS.replace("\n", "|").split("|")]
PAIRS = [(line, engine, setting) for line, (engine, setting) in zip(LINES, cycle(WHERE))]


@pytest.fixture(scope="module")
def home() -> Iterator[Callable[[str], Home]]:
    """Return the home of a kind of database, which is made for the first test on it."""
    with ExitStack() as stack:

        @cache
        def of(engine: str) -> Home:
            if engine in SERVERS and (reason := SERVERS[engine].missing()):
                pytest.skip(reason)
            return stack.enter_context(opened(engine))

        yield of


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("name", [*CALLS, *IN_A_LOOP, *LIVES, *ON_ORMS, *ON_TASKS])
def test_a_program_that_is_cut_at_some_statements_leaves_what_one_killed_between_its_calls_does(home, name, engine):
    assert [*findings(home(engine), PROGRAMS[name], sample)] == []


@pytest.mark.parametrize("engine", SERVERS)
@pytest.mark.parametrize("name", LOST)
def test_a_call_whose_connection_is_lost_is_as_if_it_was_made_or_not(home, name, engine):
    def choose(cuts: list[Cut]) -> list[Cut]:
        return sample([cut for cut in cuts if cut.kind == "lost"])

    assert [*findings(home(engine), PROGRAMS[name], choose)] == []


@pytest.mark.parametrize(("name", "engine", "setting"), PAIRS)
def test_two_calls_at_once_are_as_one_after_the_other(home, name, engine, setting):
    assert pairs.finding(home(engine), pairs.Pair(*name.split()), setting) == ""


@pytest.mark.parametrize("engine", HOMES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_cut_at_any_statement_leaves_what_one_killed_between_its_calls_does(
    home, name, engine, takes_its_time
):
    assert [*findings(home(engine), PROGRAMS[name], partial(sample, most=MANY))] == []


@pytest.mark.parametrize("engine", HOMES)
def test_any_two_calls_at_once_are_as_one_after_the_other(home, engine, takes_its_time):
    for pair in pairs.PAIRS:
        for setting in pairs.settings(engine):
            if crc32(f"{pair.name} {engine} {setting}".encode()) % 5_000 == 0:
                assert pairs.finding(home(engine), pair, setting) == ""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


def test_each_method_of_a_queue_has_a_call_in_the_table_or_a_reason_why_not():
    lines = {name.partition(",")[0].split()[0] for name in CALLS}
    assert lines | {*NO_LINE} == public(xq.Queue)
    assert not lines & {*NO_LINE}


def test_each_feature_is_on_in_a_call_or_has_a_reason_why_not():
    assert {feature for call in PROGRAMS.values() for feature in call.features} | {*NO_FEATURE} == {*FEATURES}


def test_the_methods_for_asyncio_are_those_of_a_queue():
    assert public(Aio) - public(xq.Queue) == {"atomic"}  # the caller's transaction
