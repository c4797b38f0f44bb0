"""put and put_many: what they take, what they make of it, and who makes the key."""

from __future__ import annotations

import pytest

import xq
from tests.support.put import sequence


@pytest.mark.parametrize("column", ["status", "runat", "attempts"])
def test_a_sequence_must_not_bring_what_is_the_queues_own(make, column):
    Task = make({"ttl": 10}, roles=("runat", "attempts"))
    with pytest.raises(xq.BadValue, match=column):
        Task.put(sequence(Task, **{"size": 1, column: 1}))


@pytest.mark.parametrize("bad", ["abc", b"abc", {"name": "a"}, 5, None])
def test_put_many_takes_tasks_and_not_one_task(make, bad):
    Task = make()
    with pytest.raises(xq.BadType):
        Task.xq.put_many(bad)
