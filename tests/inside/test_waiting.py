"""Takes that wait for a task, and puts that wait for room."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task
from tests.steps import PATIENCE, Work, another_process, eventually, is_exact, row
from tests.support import wait as support
from tests.support.wait import SOON, taken
from xq.runtime.sleep import Sleep

no_fallback, shared, full = support.no_fallback, support.shared, support.full


def test_a_child_does_not_call_the_waiters_of_its_parent(shared):
    def child():
        yield "begun"
        yield shared.take(timeout=PATIENCE).id

    # It only holds the place: SQLite itself does not bear a fork while another thread is within it.
    with shared.xq.parts.waiters.takers.enter(), another_process(shared._meta.database, child) as other:
        assert next(other) == "begun"
        other.post(None)
        put = shared.put(task())
        assert other.hear() == put.id


LONG = 60.0  # seconds

ROOM = {
    "an ack": lambda Task: Task.ack(taken(Task).id),
    "a kill": lambda Task: Task.kill(taken(Task).id),
    "plain SQL": lambda Task: Task.delete().where(Task.status == "B").execute(),
    "an expiry": lambda Task: Task.release(taken(Task).id, ttl=SOON),
}


@pytest.mark.parametrize("make_room", ROOM)
def test_a_put_that_waits_finds_room_after(full, make_room):
    waits = Work(full._meta.database, lambda: full.put(task(name="late"), timeout=PATIENCE))
    eventually(lambda: full.xq.parts.waiters.putters)
    ROOM[make_room](full)
    assert row(full, waits.result()).name == "late"
    assert is_exact(full)


def test_a_put_that_is_refused_leaves_nobody_waiting(make):
    Task = make({"limit": 1})
    Task.put(task())
    with pytest.raises(xq.Full):
        Task.xq.put(task(), wait=1)
    with pytest.raises(xq.BadType):
        Task.xq.put(task(), wait=1, bogus=1)
    assert Task.xq.waiting() == []
    assert not Task.xq.parts.waiters.anybody


def test_a_call_that_no_token_helps_sleeps_past_the_time_of_the_next_token(make_live):
    Task = make_live({"rate": "1/d", "limit": 2})
    Task.xq.put_many([task(), task()])
    Task.xq.parts.takes.statements.opening.at = 0.0  # the time has passed, and no take has looked since

    def sleep_of(wait):
        answer = None
        while not isinstance(request := wait.send(answer), Sleep):
            answer = []  # the look found nothing
        wait.close()
        return request.seconds

    waiting = Task.xq.parts.waiting
    assert sleep_of(waiting.taking(None, LONG)) < 1
    assert sleep_of(waiting.putting(task(), {}, LONG)) > 1
    Task.xq.pause()
    assert sleep_of(waiting.taking(None, LONG)) > 1
