"""Processes that do anything and are killed at any moment, and servers with them: nothing is lost, or taken twice.

`make storm` does this with more of everything.
"""

from __future__ import annotations

import pytest

from tests.conftest import SHARED
from tests.storm import blow

SEED = "s10"  # drawn from many, as one that has time, history, groups, dependants and an owner in a column


@pytest.mark.parametrize("name", SHARED)
def test_a_storm_loses_nothing_and_puts_no_task_into_two_hands(name, tmp_path):
    blow(SEED, name, "", tmp_path, processes=4, tasks=150)
