"""A minus before the priority's field: takes begin with the highest."""

from __future__ import annotations

from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import names

IN_MEMORY = True

FIELDS = {"status": "status", "priority": "-priority"}
# features, other fields, and what each task has beside its priority
SHAPES: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, Any], dict[str, Any]]] = {
    "alone": ({}, {}, {}, {}),
    "in a tube": ({}, {"tube": "tube"}, {"tube": "x"}, {"tube": "x"}),
    "in utubes": ({"utube": 9}, {"utube": "utube"}, {"utube": "x"}, {}),
    "in utubes in turn": ({"utube": {"n": 9, "fair": True}}, {"utube": "utube"}, {"utube": "x"}, {}),
    "by a rate": ({"rate": {"limit": "1000/m", "burst": 20}}, {}, {}, {}),
    "by the feature": ({"priority": "highest"}, {"priority": "priority"}, {}, {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_highest_priority_is_taken_first_and_none_last(make, shape):
    features, fields, beside, of = SHAPES[shape]
    Task = make(features, fields={**FIELDS, **fields})
    priorities = {"d": 1, "a": 9, "f": None, "e": 1, "b": 5, "c": 2, "g": None}
    puts = [task(name=name, priority=priority, **beside) for name, priority in priorities.items()]
    Task.xq.put_many(puts)
    assert names(takes(Task, 7, **of)) == [*"abcdefg"]
    Task.xq.release_all()
    assert names(Task.xq.take_many(9, **of)) == [*"abcdefg"][: 1 if shape == "in utubes" else 9]
    assert Task.xq.check() == []


def takes(Task: Any, n: int, **of: Any) -> list[Any]:
    return [Task.take(**of) for _ in range(n)]


def test_pages_of_ready_tasks_are_in_the_order_of_the_takes(make):
    Task = make(fields=FIELDS, attributes={"priority": pw.IntegerField(default=0)})
    Task.xq.put_many([task(priority=n % 4) for n in range(12)])
    found, after = list[int](), None
    while True:
        page = Task.xq.find("state:ready", 5, after=after)
        found += [each.id for each in page.tasks]
        if (after := page.next) is None:
            break
    assert found == [4, 8, 12, 3, 7, 11, 2, 6, 10, 1, 5, 9] == [each.id for each in Task.xq.take_many(12)]


@pytest.mark.parametrize("utube", [{}, {"utube": 2}], ids=["alone", "in utubes"])
def test_the_other_order_is_another_definition(make, utube):
    of = {"utube": "utube"} if utube else {}
    Low = make(utube, fields={**FIELDS, "priority": "priority", **of})
    Low.xq.put_many([task(name=name, priority=n, **dict.fromkeys(of, name)) for n, name in enumerate("abc")])
    make.INSTALLS = False
    High = make(utube, fields={**FIELDS, **of})
    with pytest.raises(xq.NotInstalled, match="the feature 'priority' is off there and 'highest' here"):
        High.take()
    High.xq.install()
    assert High.xq.check() == []
    assert names(takes(High, 3)) == [*"cba"]
    High.xq.release_all()
    Low.xq.install(downgrade=True)
    assert (Low.xq.check(), names(takes(Low, 3))) == ([], [*"abc"])
