"""Each call of a queue, cut at each statement: it leaves what the product leaves before or after the call.

`make explore ARGS="take sqlite kill 3 before"` repeats what a red test names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest

import xq
from tests.explore.calls import CALLS, NO_LINE
from tests.explore.cuts import Explorer, sample
from tests.explore.gate import Cut
from tests.explore.homes import HOMES, SERVERS
from tests.explore.zygote import Zygote
from xq.aio import Aio

MANY = 200  # cuts of a call: an installation on a server has more, and takes a second for each
LOST = ["put", "put_many", "take", "take_many", "ack", "ack_many", "release", "bury", "act", "sweep, delayed"]


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Explorer]]:
    """Return the explorer of a kind of database, which is made for the first test on it."""
    with ExitStack() as stack:
        made: dict[str, Explorer] = {}

        def of(engine: str) -> Explorer:
            if engine not in made:
                if engine in SERVERS and (reason := SERVERS[engine].missing()):
                    pytest.skip(reason)
                zygote = stack.enter_context(closing(Zygote()))
                home = HOMES[engine](engine, zygote, tmp_path_factory.mktemp(engine))
                made[engine] = Explorer(stack.enter_context(closing(home)))
            return made[engine]

        yield of


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_cut_at_some_statements_is_as_if_it_was_made_or_not(explorer, call, engine):
    assert [*explorer(engine).findings(CALLS[call], sample)] == []


@pytest.mark.parametrize("engine", ["postgres", "mariadb"])
@pytest.mark.parametrize("call", LOST)
def test_a_call_whose_connection_is_lost_is_as_if_it_was_made_or_not(explorer, call, engine):
    def choose(cuts: list[Cut]) -> list[Cut]:
        return sample([cut for cut in cuts if cut.kind == "lost"])

    assert [*explorer(engine).findings(CALLS[call], choose)] == []


@pytest.mark.parametrize("engine", HOMES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_cut_at_any_statement_is_as_if_it_was_made_or_not(explorer, call, engine, takes_its_time):
    assert [*explorer(engine).findings(CALLS[call], partial(sample, most=MANY))] == []


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


def test_each_method_of_a_queue_has_a_call_in_the_table_or_a_reason_why_not():
    lines = {name.partition(",")[0].split()[0] for name in CALLS}
    assert lines | {*NO_LINE} == public(xq.Queue)
    assert not lines & {*NO_LINE}


def test_the_methods_for_asyncio_are_those_of_a_queue():
    assert public(Aio) - public(xq.Queue) == {"atomic"}  # the caller's transaction
