"""The heartbeat of a lease, without Spark."""

from __future__ import annotations

from tests.factories import task
from tests.steps import eventually, row
from xq.runtime.lease import Leases


def test_only_what_ttr_times_is_touched(make_live, monkeypatch):
    monkeypatch.setattr("xq.runtime.lease.HEARTBEATS", 600)
    Task = make_live({"ttr": True}, roles=("runat", "ttr"))
    Task.xq.put(task())  # no default: this one may take for ever
    Task.xq.put(task(), ttr=60)
    with Leases(Task.xq) as leases:
        first = leases.take(2, 0)[2]["runat"]
        eventually(lambda: row(Task, 2).runat > first)
        assert row(Task, 1).runat is None
