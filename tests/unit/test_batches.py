"""ack_many and its kind: all of the tasks or none, in one transaction."""

from __future__ import annotations

import pytest

import xq
from tests.support.batches import FEATURES, TARGETS


@pytest.mark.parametrize("many", TARGETS)
def test_one_task_is_not_many(make, many):
    Task = make(FEATURES)
    for bad in ["abc", b"abc", {"id": 1}, 5, None]:
        with pytest.raises(xq.BadType):
            getattr(Task.xq, many)(bad)


def test_roles_are_told_with_the_fields_that_hold_them(make):
    Task = make({"unique": "WRTB"}, roles=("runat", "unique"))
    assert Task.xq.roles == {"status": "status", "runat": "runat", "unique": "job"}
