"""More storms than the one of tests/guarantees."""

from __future__ import annotations

import pytest

from tests.storm import ISOLATIONS, SERVERS, blow


@pytest.mark.parametrize("seed", ["1", "13"])
@pytest.mark.parametrize(
    ("name", "isolation"), [("sqlite", ""), *((name, level) for name in SERVERS for level in ISOLATIONS)]
)
def test_a_storm_loses_nothing_and_puts_no_task_into_two_hands(name, isolation, seed, tmp_path):
    blow(seed, name, isolation, tmp_path)
