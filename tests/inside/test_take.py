"""What comes between a take and its task: a signal, and a pause."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task


@pytest.mark.parametrize("kind", [xq.BadType, xq.BadValue, KeyError])
def test_what_was_taken_when_the_handler_of_a_signal_raised_an_error_of_a_value_comes_back(make, monkeypatch, kind):
    def handle(*_: object) -> None:
        raise kind("by the application")

    Task = make()
    put = Task.put(task())
    with monkeypatch.context() as patch:
        patch.setattr(Task.xq._tasks, "returned", handle)  # the signal comes when the row is taken
        with pytest.raises(kind):
            Task.take()
    assert Task.take().id == put.id
    assert Task.stats().transition == {"X-R": 1, "R-T": 2, "T-R": 1}


def test_a_pause_is_not_undone_by_a_read_that_began_before_it(make):
    Task = make()
    Task.put(task())
    pauses = Task.xq.adapter.takes.pauses
    began = pauses.begin()
    Task.xq.pause()
    pauses.end(began, {})  # the thread that reads them was slow
    assert Task.take() is None
    pauses.end(pauses.begin(), {})
    assert Task.take().id == 1
