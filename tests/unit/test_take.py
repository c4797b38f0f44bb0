"""take and take_many: which task comes next, and which never does."""

from __future__ import annotations

import pytest

import xq


@pytest.mark.parametrize("tube", [5, b"a", ["a"]])
def test_a_tube_is_named_by_text(make, tube):
    Task = make(roles=("runat", "tube"))
    with pytest.raises(xq.BadType):
        Task.take(tube=tube)


def test_a_tube_needs_the_role(make):
    Task = make()
    with pytest.raises(xq.FeatureOff, match="tube") as off:
        Task.take(tube="left")
    assert off.value.role == "tube"
