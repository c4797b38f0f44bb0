"""The waiters of a process: who is woken for what becomes ready."""

from __future__ import annotations

from contextlib import ExitStack

from xq.runtime.waiters import WaitQueue


def test_a_waiter_that_leaves_before_it_has_looked_wakes_the_next():
    queue = WaitQueue()
    with ExitStack() as leaves:
        first = leaves.enter_context(queue.enter())
        with queue.enter() as second:
            queue.wake("a")
            assert (first.woken, second.woken) == (True, False)
            leaves.close()
            assert second.woken


def test_a_waiter_that_has_looked_passes_nothing_on():
    queue = WaitQueue()
    with ExitStack() as leaves:
        first = leaves.enter_context(queue.enter())
        with queue.enter() as second:
            queue.wake("a")
            assert [request and request.awake.is_set() for request in first.sleep(0)] == [True]
            leaves.close()
            assert not second.woken
