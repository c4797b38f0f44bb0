"""What a caller that waits in a session is told when that session ends."""

from __future__ import annotations

from typing import Any

import pytest

import xq
from tests.steps import PATIENCE, another_process, waiter


def test_a_take_that_waits_in_a_session_raises_when_another_thread_closes_it(make_live):
    Task = make_live({"keep": True})
    session = Task.xq.session()

    def take() -> None:
        with session:
            Task.take(timeout=PATIENCE)

    waiting = waiter(Task, take)
    session.close()
    with pytest.raises(xq.UnknownSession):
        waiting.result()
    Task.put({})
    assert Task.take().ack().status == "D"


def test_a_take_that_waits_in_a_session_raises_when_another_process_closes_it(make_live):
    Task = make_live({"keep": True})
    session = Task.xq.session()

    def close() -> Any:
        with Task.xq.session(session.uuid) as joined:
            yield "joined"
            joined.close()
            yield "closed"

    def take() -> None:
        with session:
            Task.take(timeout=PATIENCE)

    with another_process(make_live.db, close) as other:
        assert next(other) == "joined"
        waiting = waiter(Task, take)
        assert next(other) == "closed"
        with pytest.raises(xq.UnknownSession):
            waiting.result()
