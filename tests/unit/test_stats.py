"""The statistics: exact at every commit, whoever writes."""

from __future__ import annotations

import pytest

import xq
from tests.support.stats import FEATURES


def test_tube_stats_need_the_role(make):
    with pytest.raises(xq.ConfigurationError, match="tube"):
        make(FEATURES, tube_stats=["a"])


@pytest.mark.parametrize("wrong", ["a", [5], [None], [""], 5])
def test_tube_stats_is_a_list_of_names(make, wrong):
    with pytest.raises(xq.ConfigurationError, match="tube_stats"):
        make(FEATURES, roles=("runat", "tube"), tube_stats=wrong)
