"""Lives of workers, and transactions of applications by each ORM, cut at each statement.

`make explore ARGS="worker returns in a process, child sqlite kill 3 before"` repeats what a red test names.
"""

from __future__ import annotations

import pytest

from tests.explore.cuts import sample
from tests.explore.homes import HOMES
from tests.explore.lives import LIVES
from tests.explore.orms import ON_ORMS, ORMS
from tests.explore.test_cuts import explorer  # noqa: F401 (a fixture)

PROGRAMS = {**LIVES, **ON_ORMS}
SOME = [
    "worker returns in a process, child",
    "worker dies in a process, parent",
    *(f"{orm}: {act}, committed" for orm in ORMS for act in ("put", "ack")),
]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("name", SOME)
def test_a_life_that_is_cut_at_some_statements_ends_as_one_that_is_killed_between_two_calls(explorer, name, engine):  # noqa: F811
    assert [*explorer(engine).findings(PROGRAMS[name], sample)] == []


@pytest.mark.parametrize("engine", HOMES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_life_that_is_cut_at_any_statement_ends_as_one_that_is_killed_between_two_calls(
    explorer,  # noqa: F811
    name,
    engine,
    takes_its_time,
):
    assert [*explorer(engine).findings(PROGRAMS[name])] == []
