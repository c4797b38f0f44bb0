"""The feature limit: a queue that is full says so."""

from __future__ import annotations

import pytest

import xq


@pytest.mark.parametrize("limit", [0, -1, "5", 1.5, True])
def test_a_limit_is_a_whole_number_of_one_or_more(make, limit):
    with pytest.raises(xq.ConfigurationError, match="limit"):
        make({"limit": limit})
