"""More storms than the one of tests/guarantees: `XQ_STORM_SEED=3fa9c1` makes another one."""

from __future__ import annotations

import os

import pytest

from tests.guarantees.test_storm import blow
from tests.storm import ISOLATIONS, SERVERS

SEEDS = [seed] if (seed := os.environ.get("XQ_STORM_SEED")) else ["1", "13"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "isolation"), [("sqlite", ""), *((name, level) for name in SERVERS for level in ISOLATIONS)]
)
def test_a_storm_loses_nothing_and_puts_no_task_into_two_hands(name, isolation, seed, tmp_path):
    blow(seed, name, isolation, tmp_path)
