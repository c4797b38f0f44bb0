"""What comes between a take and its task: a pause, and another connection."""

from __future__ import annotations

from contextlib import closing
from copy import copy

import pytest

from tests.conftest import SERVERS
from tests.factories import task


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


@pytest.mark.parametrize("shared_db", SERVERS, indirect=True)
def test_a_take_whose_group_head_another_connection_refreshes_looks_again(make_shared, monkeypatch):
    Task = make_shared({"utube": True}, roles=("utube", "tube"))
    Task.put({"utube": "a", "tube": "t"})
    heads = Task.xq._database.dialect.groups.heads
    waited = list[float]()
    assert Task.take(tube="another") is None  # which refreshes its head
    with closing(copy(make_shared.db)) as other:
        other._state = type(other._state)()
        other.connect()
        with other.atomic():
            other.execute_sql(f"SELECT * FROM {heads} FOR UPDATE").fetchall()

            def step(seconds: float) -> None:
                waited.append(seconds)
                if len(waited) == 3:
                    other.rollback()

            monkeypatch.setattr("xq.engine.take.time.sleep", step)
            assert Task.take(tube="another") is None
            assert not waited  # since the head has no task of that tube
            assert Task.take(tube="t").utube == "a"
    assert len(waited) == 3
