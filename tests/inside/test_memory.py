"""What a process and its statements keep: bounded, however calls vary."""

from __future__ import annotations

import gc
import linecache
from itertools import permutations, product
from typing import Any

import pytest

from tests.factories import task
from tests.steps import is_exact
from tests.support.batches import taken
from tests.support.history import transitions
from xq.adapters.stores import Connection, FileConnection
from xq.core import values
from xq.engine import insert, steps

# statements


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


# batches


@pytest.mark.parametrize("observed", [False, True], ids=["", "observed"])
def test_no_statement_names_all_tasks_of_a_large_queue(make, monkeypatch, observed):
    Task = make({"events": True})
    taken(Task, 3_000)
    if observed:
        Task.xq.on_change(lambda *told: None)
    sent = [0]

    def noting(plain: Any) -> Any:
        def noted(self: Any, sql: str, values: Any = ()) -> Any:
            sent.append(len(values))
            return plain(self, sql, values)

        return noted

    for kind, name in product((Connection, FileConnection), ("execute", "change")):
        monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    assert Task.xq.release_all() == 3_000
    assert Task.xq.truncate() == 3_000
    assert max(sent) < 3_000
    assert is_exact(Task)


# history


def test_the_newest_row_stays_in_the_table_and_is_told_no_more(make):
    Task = make({"history": 10})
    Task.put(task())
    Task.take()
    Task.xq.clock.tick(100)
    Task.xq.sweep()
    assert transitions(Task) == []
    assert [row.id for row in Task.xq.History.select()] == [2]
    assert Task.xq._takes.timers.seconds() is None
