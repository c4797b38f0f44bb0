"""Processes that do anything and are killed at any moment: nothing is lost, nothing is taken twice.

`make storm` does this with more of everything. `XQ_STORM_SEED=3fa9c1` makes another one.
"""

from __future__ import annotations

import os

import pytest

from tests.storm import Storm, plan

# Drawn from many, so that they have each feature on and off, owners in a column and beside the table.
SEEDS = [seed] if (seed := os.environ.get("XQ_STORM_SEED")) else ["1", "4", "13"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_loses_nothing_and_puts_no_task_into_two_hands(shared_db, seed, tmp_path):
    of = plan(seed, tasks=400, kills=4, stops=1)
    report = Storm(shared_db, of, tmp_path).run()
    assert report.violations == []
    assert report.kills >= 4
    assert report.tasks >= 400
