"""ack, release and bury: how a taken task ends, or does not."""

from __future__ import annotations

import pytest

import xq


def test_a_bad_update_is_told_before_the_task_is_looked_for(make):
    Task = make()
    with pytest.raises(xq.BadValue):
        Task.ack(1, update={"nonsense": 1})
