"""Tasks in hand, without Spark: whose they are, and when they go back."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

import peewee as pw
import pytest

from tests.factories import task, tasks
from tests.steps import state, transitions
from xq.adapters.spark.lease import Lease


def test_what_is_in_hand_goes_back_at_the_end_but_for_what_was_finished(make):
    Task = make({"keep": True})
    Task.xq.put_many(tasks(4))
    with Lease(Task.xq) as lease:
        assert list(lease.take(3, 0)) == [1, 2, 3]
        ended, lost = lease.finish(lambda ours: [Task.xq.ack(ours[2]).id], [1, 2, 3])
        assert (ended, lost) == ({2}, set())
        assert list(lease.take(3, 0)) == [4]
        assert [state(Task, key) for key in (1, 2, 3, 4)] == ["T", "D", "T", "T"]
        assert lease.release_all() == ({1, 3, 4}, set())
        assert list(lease.take(1, 0)) == [1]
    assert [state(Task, key) for key in (1, 2, 3, 4)] == ["R", "D", "R", "R"]


def test_what_is_left_by_an_error_goes_back(make):
    Task = make()
    Task.xq.put_many(tasks(2))

    def fails() -> None:
        with Lease(Task.xq) as lease:
            lease.take(2, 0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert Task.xq.count("R") == 2


def test_what_another_has_by_now_is_left_to_him(make):
    Task = make()
    Task.xq.put_many(tasks(5))
    calls: list[list[int]] = []

    def ack(ours: dict[int, Any]) -> list[int]:
        calls.append(list(ours))
        Task.xq.ack_many(ours.values())
        return list(ours)

    other = Task.xq.session()

    def take_as_another() -> list[int]:
        other.__enter__()
        return [taken.id for taken in Task.xq.take_many(2)]

    with Lease(Task.xq) as lease:
        lease.take(5, 0)
        Task.xq.kill(1)
        for key in (2, 4):
            Task.xq.snatch(key)
        assert copy_context().run(take_as_another) == [2, 4]
        assert lease.finish(ack, [1, 2, 3]) == ({3}, {1, 2})
        assert lease.release_all() == ({5}, {4})
    assert [state(Task, key) for key in range(1, 6)] == ["X", "T", "X", "T", "R"]
    other.close()
    assert calls == [[1, 2, 3], [3]]


def test_what_was_in_hand_and_is_ready_again_is_in_hand_again(make):
    Task = make({"ttr": 60})
    Task.xq.put_many(tasks(2))
    with Lease(Task.xq) as lease:
        assert list(lease.take(1, 0)) == [1]
        Task.xq.clock.tick(61)
        assert list(lease.take(1, 0)) == [2]
        assert lease.take(1, 0) == {}
        assert [state(Task, key) for key in (1, 2)] == ["T", "T"]
    assert transitions(Task)["T-R"] == 3


def test_a_task_of_a_composite_key_and_any_shape_is_in_hand(make):
    key = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}
    Task = make({"retval": "tuple"}, model=make.model(**key))
    Task.xq.put_many([task(site="a", page=page) for page in (1, 2)])
    with Lease(Task.xq) as lease:
        found = lease.take(2, 0)
        assert {key: data["page"] for key, data in found.items()} == {("a", 1): 1, ("a", 2): 2}
        assert lease.finish(lambda ours: [("a", 1)] if Task.xq.ack(ours["a", 1]) else [], found) == ({("a", 1)}, set())
    assert transitions(Task) == {"X-R": 2, "R-T": 2, "T-X": 1, "T-R": 1}
