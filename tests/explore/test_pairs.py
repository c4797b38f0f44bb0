"""Pairs of calls, one in an open transaction and one beside it, leave what one after the other leaves.

`make explore ARGS="pair ack kill taken postgres"` repeats what a red test names, and all others with these words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import cycle, product
from zlib import crc32

import pytest

from tests.conftest import SERVERS
from tests.explore.homes import HOMES
from tests.explore.pairs import Pair, Pairs, opened, pairs

# Calls that move a task of any state or owner, each beside a take, the end of a task, and a timer; and others.
ANY = ["kill", "cancel", "cancel,to-B", "act-kill", "act-cancel", "snatch", "switch,B", "truncate", "release_all"]
BESIDE = ["take ready", "release taken-by-B", "sweep late-of-another"]
OTHERS = """take group-kill member|group-kill ack last-member|ack put,after parent-taken|ack take utube-taken
take take fair|take set_limit fair|put,unique put,unique unique-done|put take limit|take pause ready
sweep ack late-of-B|snatch take taken-by-another|take kill ready|release cancel taken"""
WHERE = [
    "postgres read-committed commit",
    "mariadb repeatable-read commit",
    "postgres read-committed rollback",
    "sqlite serializable commit",
    "postgres serializable late",
]
LINES = [*map(" ".join, product(ANY, BESIDE)), *OTHERS.replace("\n", "|").split("|")]
FIXED = [Pair(*f"{line} {where}".split()) for line, where in zip(LINES, cycle(WHERE))]


@pytest.fixture(scope="module")
def on() -> Iterator[Callable[[str], Pairs]]:
    """Return what runs pairs on a kind of database."""
    with ExitStack() as stack:
        yield cache(lambda engine: stack.enter_context(opened(engine)))


@pytest.mark.parametrize(("engine", "pair"), [pytest.param(pair.engine, pair, id=str(pair)) for pair in FIXED])
def test_two_calls_at_once_are_as_one_after_the_other(on, engine, pair):
    skip_without(engine)
    assert on(engine).finding(pair) is None


@pytest.mark.parametrize("engine", HOMES)
def test_any_two_calls_at_once_are_as_one_after_the_other(on, engine, takes_its_time):
    skip_without(engine)
    chosen = [pair for pair in pairs(engine) if crc32(str(pair).encode()) % 5_000 == 0]
    assert [*filter(None, map(on(engine).finding, chosen))] == []


def skip_without(engine: str) -> None:
    if engine in SERVERS and (reason := SERVERS[engine].missing()):
        pytest.skip(reason)
