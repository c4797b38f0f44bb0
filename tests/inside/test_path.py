"""How much Python a call runs: counted, so that the path of a call stays short."""

from __future__ import annotations

from contextvars import Context

import pytest

from benchmarks.trace import traced
from tests.conftest import live
from tests.factories import task

CYCLES = 3  # before: what the first call compiles is kept


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("features", [{}, {"ttr": 60, "buried": True}], ids=["no features", "ttr"])
def test_a_take_on_a_file_makes_at_most_22_python_calls_at_most_8_deep(shared_db, features):
    Task = live(shared_db)(features, roles=("runat",) if features else ())
    for _ in range(CYCLES):
        Task.put(task())
        Task.take().ack()
    Task.put(task())
    Task.xq._takes.timers.sweep_if_any()  # else the take may be the one that looks for due tasks
    # In a context of its own, whatever session a test before it joined in this thread.
    _, calls = Context().run(traced, lambda: Task.take())
    assert len(calls) <= 22, "\n".join(call.name for call in calls)
    assert max(call.depth for call in calls) <= 8
