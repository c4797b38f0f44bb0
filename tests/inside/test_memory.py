"""What a process and its statements keep: bounded, however calls vary."""

from __future__ import annotations

import gc
import linecache
from itertools import permutations

from xq.core import values
from xq.engine import steps

VALUES = {"name": "a", "size": 1, "tube": "b", "utube": "c", "priority": 2}


def generated() -> int:
    gc.collect()
    return sum(file.startswith("<xq ") for file in linecache.cache)


def test_tasks_of_ever_other_fields_and_numbers_leave_no_more_than_a_bound(make, monkeypatch):
    monkeypatch.setattr(values, "SHAPES", 10)
    monkeypatch.setattr(steps, "KEPT", 20)
    Task = make(roles=("priority",))
    orders = list(permutations(VALUES, 3))
    for n in (2, 3, 4, 5):
        before = generated() if n > 2 else float("inf")
        for order in orders:
            Task.xq.put_many([{name: VALUES[name] for name in order}] * n)
        assert generated() < before + len(orders)
    assert len(Task.xq._tasks._shapes) <= 10
    assert len(Task.xq._database.binding.steps) <= 20
