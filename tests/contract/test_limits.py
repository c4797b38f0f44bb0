"""Limits are data: the numbers of utube and rate change while programs run."""

import pytest

from tests.steps import put, task, taken


def test_a_raised_limit_lets_the_next_task_of_a_full_utube_go(make):
    Task = make({"utube": 1}, roles=("utube",))
    put(Task, "a0", "a1", "a2", "b0", "b1")
    assert taken(Task, 5) == ["a0", "b0"]
    Task.xq.set_limit("utube", 2, value="a")
    assert taken(Task, 5) == ["a1"]
    assert Task.xq.check() == []
