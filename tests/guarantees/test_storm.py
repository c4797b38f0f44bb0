"""Processes that do anything and are killed at any moment, and servers with them: nothing is lost, or taken twice.

`make storm` does this with more of everything.
"""

from __future__ import annotations

import pytest

from tests.conftest import SHARED
from tests.storm import SERVERS, Storm, ground, plan

SEED = "4"  # drawn from many, as one that has time, history and an owner in a column


def blow(seed, name, isolation, folder, processes=8, tasks=400):
    if name in SERVERS and (reason := SERVERS[name].missing()):
        pytest.skip(reason)
    of = plan(seed, processes, tasks, kills=4, stops=1, restarts=1, isolation=isolation)
    with ground(name, folder, isolation) as (db, server):
        report = Storm(db, of, folder, server=server).run()
    assert report.violations == []
    assert report.kills >= 4
    assert report.tasks >= tasks
    assert len(report.restarts) == (name in SERVERS)


@pytest.mark.parametrize("name", SHARED)
def test_a_storm_loses_nothing_and_puts_no_task_into_two_hands(name, tmp_path):
    blow(SEED, name, "", tmp_path, processes=4, tasks=150)
