"""The waiters of a process: who is called for what becomes ready."""

from __future__ import annotations

from contextlib import ExitStack

from xq.runtime.waiters import Line


def test_a_waiter_that_leaves_before_it_has_looked_passes_its_call_on():
    line = Line()
    with ExitStack() as leaves:
        first = leaves.enter_context(line.place())
        with line.place() as second:
            line.call("a")
            assert (first.called, second.called) == (True, False)
            leaves.close()
            assert second.called


def test_a_waiter_that_has_looked_passes_nothing_on():
    line = Line()
    with ExitStack() as leaves:
        first = leaves.enter_context(line.place())
        with line.place() as second:
            line.call("a")
            assert first.sleep(0)
            leaves.close()
            assert not second.called
