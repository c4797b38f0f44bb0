"""A thousand kills on each database of processes that put, work off and end groups and dependants."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ends import OfDependants, OfGroups

KILLS = 100


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", [OfGroups, OfDependants])
def test_what_follows_comes_once_by_workers_that_are_killed(make_live, tmp_path, what: Any, seed: int):
    what(make_live, tmp_path).run(KILLS, seed=seed)
