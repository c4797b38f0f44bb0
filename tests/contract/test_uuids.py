"""A field of UUIDs is the utube or the unique value of tasks, however the database stores them."""

from __future__ import annotations

import uuid
from typing import Any

import peewee as pw
import pytest

import xq

A, B, C = (uuid.UUID(int=n) for n in (0xABC << 110, 2, 3))


def queue(make: Any, role: str, features: dict[str, Any]) -> Any:
    fields = {"status": "status", role: "of"}
    return make({"keep": True, **features}, fields=fields, attributes={"of": pw.UUIDField(null=True)})


def put(Task: Any, *values: uuid.UUID | None) -> None:
    for value in values:
        Task.put({"of": value})


def taken(Task: Any) -> list[int]:
    """The keys of all tasks that takes find one after the other."""
    return sorted(task.id for task in iter(Task.take, None))


@pytest.mark.parametrize("fair", [False, True])
def test_a_uuid_is_the_utube_and_single_ones_have_limits(make, fair):
    Task = queue(make, "utube", {"utube": {"n": 1, "fair": fair, "of": {B: 2}}})
    put(Task, A, B, A, B, None, C)
    assert taken(Task) == [1, 2, 4, 5, 6]
    assert f"its utube {A} is busy with task 1" in Task.xq.why(3)[0]
    assert Task.xq.check() == []
    Task.xq.ack(Task.xq.by_state("T")[0])
    assert taken(Task) == [3]
    assert Task.xq.check() == []


def test_a_rate_is_by_uuids(make):
    Task = queue(make, "utube", {"rate": {"limit": "1/m", "by": "utube", "of": {str(B): {"limit": "2/m", "burst": 2}}}})
    put(Task, A, B, A, B, B, C, None, None)
    assert taken(Task) == [1, 2, 4, 6, 7, 8]


def test_a_uuid_is_unique(make):
    Task = queue(make, "unique", {"unique": True})
    put(Task, A, B)
    with pytest.raises(xq.Duplicate):
        put(Task, A)
    assert Task.put({"of": A}, on_conflict="skip").id == 1
    assert Task.xq.check() == []


def test_a_uuid_is_the_tube(make):
    Task = queue(make, "tube", {"history": True})
    put(Task, A, B, None, A)
    assert Task.take(tube=B).of == B
    assert [task.id for task in Task.xq.take_many(5, tube=str(A))] == [1, 4]
    assert Task.xq.take_many(5, tube=A.hex) == []
    moved = Task.xq.by_state("T")[0].release(tube=str(C))
    assert (moved.of, Task.take(tube=C).id) == (C, 1)
    assert Task.xq.timeline(1)[-1].tube == str(C)
    Task.xq.release_all()
    Task.xq.pause(B)
    assert Task.xq.paused() == [str(B)]
    assert taken(Task) == [1, 3, 4]
    assert Task.take(tube=B) is None
    assert "is paused" in Task.xq.why(2)[0]
    with pytest.raises(xq.BadValue, match="is named by a UUID"):
        Task.take(tube="b")
    assert Task.xq.check() == []
