"""The feature history: each transition a row that tells its event, written with the change, pruned by the sweep."""

from __future__ import annotations

import math

import pytest

from tests.support.history import ALL
from xq import BadType, BadValue, FeatureOff


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(True, BadType), ("now", BadType), (b"", BadType), (math.nan, BadValue), (math.inf, BadValue), (1e300, BadValue)],
)
def test_a_moment_that_is_none_is_refused(make, name, value, error):
    Task = make(ALL)
    with pytest.raises(error, match=name):
        Task.xq.history(**{name: value})


def test_without_the_feature_there_is_no_history(make):
    Task = make({"delayed": True})
    for ask in (lambda: Task.xq.history(), lambda: Task.xq.History):
        with pytest.raises(FeatureOff) as raised:
            ask()
        assert raised.value.feature == "history"
