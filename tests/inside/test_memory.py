"""What a process keeps of its calls: bounded, however they vary."""

from __future__ import annotations

import gc
import linecache
from itertools import permutations

from xq.core import values
from xq.engine import insert, steps

VALUES = {"name": "a", "size": 1, "tube": "b", "utube": "c", "priority": 2}


def generated() -> int:
    gc.collect()
    return sum(file.startswith("<xq ") for file in linecache.cache)


def test_tasks_of_ever_other_fields_and_numbers_leave_no_more_than_a_bound(make, monkeypatch):
    monkeypatch.setattr(values, "SHAPES", 10)
    monkeypatch.setattr(steps, "KEPT", 20)
    Task = make(roles=("priority",))
    orders = list(permutations(VALUES, 3))

    def put(n: int) -> None:
        for order in orders:
            Task.xq.put_many([{name: VALUES[name] for name in order}] * n)

    put(2)
    before = generated()
    for n in (3, 4, 5):
        put(n)
    assert generated() < before + len(orders)
    assert len(Task.xq._tasks._shapes) <= 10
    assert len(Task.xq._database.binding.steps) <= 20


def test_the_statements_of_wide_tasks_are_forgotten_sooner(make, monkeypatch):
    monkeypatch.setattr(steps, "KEPT_VALUES", 50)
    Task = make()
    for n in range(2, 30):
        Task.xq.put_many([{"name": "a", "size": 1}] * n)
    assert Task.xq._database.binding.steps.size <= 29 * 4


def test_a_statement_has_a_bounded_number_of_values(make, monkeypatch):
    monkeypatch.setattr(insert, "VALUES", 12)
    Task = make()
    put = Task.xq.put_many([{"name": f"{i}", "size": i} for i in range(10)])
    assert [each.size for each in put] == list(range(10))
    sizes = [name[-1] for name in Task.xq._database.binding.steps if isinstance(name, tuple) and name[0] == "R"]
    assert sizes
    assert max(sizes) <= 4
