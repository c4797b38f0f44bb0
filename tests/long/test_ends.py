"""Kills on each database: of processes that put and work off groups and dependants, and of worker processes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ends import OfDependants, OfFunctions, OfGroups

KILLS = 100


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", [OfGroups, OfDependants])
def test_what_follows_comes_once_by_workers_that_are_killed(make_live, tmp_path, what: Any, seed: int):
    what(make_live, tmp_path).run(KILLS, seed=seed)


@pytest.mark.parametrize("again", range(6))
def test_what_a_function_raised_is_never_done_and_what_it_returned_never_buried(make_live, again: int):
    OfFunctions(make_live).run(KILLS // 3)
