"""The feature unique: one task at a time for each value."""

from __future__ import annotations

import pytest

import xq


def test_a_hole_that_time_would_fall_through_is_refused(make):
    with pytest.raises(xq.ConfigurationError, match="unique"):
        make({"unique": "R", "delayed": True}, roles=("runat", "unique"))
    with pytest.raises(xq.ConfigurationError, match="unique"):
        make({"unique": "WR", "delayed": True, "ttr": 60}, roles=("runat", "unique"))


@pytest.mark.parametrize("value", ["", "Q", "RX", 5])
def test_the_states_are_letters_of_the_queue(make, value):
    with pytest.raises(xq.ConfigurationError, match="unique"):
        make({"unique": value}, roles=("unique",))


def test_on_conflict_needs_the_feature(make):
    Task = make()
    with pytest.raises(xq.FeatureOff, match="unique") as off:
        Task.put({}, on_conflict="skip")
    assert off.value.feature == "unique"


def test_unique_needs_the_role(make):
    with pytest.raises(xq.ConfigurationError, match=r"unique.*role 'unique'"):
        make({"unique": True}, roles=("runat",))
