"""Processes that do anything and are killed at any moment, and servers with them: nothing is lost, or taken twice.

`make storm` does this with more of everything. `XQ_STORM_SEED=3fa9c1` makes another one.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import SHARED
from tests.storm import ISOLATIONS, SERVERS, Storm, ground, plan

# Drawn from many, so that they have each feature on and off, owners in a column and beside the table.
SEEDS = [seed] if (seed := os.environ.get("XQ_STORM_SEED")) else ["1", "4", "13"]
CASES = [
    (name, seed, ISOLATIONS[number % len(ISOLATIONS)] if name in SERVERS else "")
    for name in SHARED
    for number, seed in enumerate(SEEDS)
]


@pytest.mark.parametrize(("name", "seed", "isolation"), CASES)
def test_a_storm_loses_nothing_and_puts_no_task_into_two_hands(name, seed, isolation, tmp_path):
    if name in SERVERS and (reason := SERVERS[name].missing()):
        pytest.skip(reason)
    of = plan(seed, tasks=400, kills=4, stops=1, restarts=1, isolation=isolation)
    with ground(name, tmp_path, isolation) as (db, server):
        report = Storm(db, of, tmp_path, server=server).run()
    assert report.violations == []
    assert report.kills >= 4
    assert report.tasks >= 400
    assert len(report.restarts) == (name in SERVERS)
