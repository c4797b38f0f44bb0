"""The SQL of a call, to be read."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {"features": {"buried": True, "delayed": True, "keep": True}, "roles": ("runat", "tube")}


def test_each_call_that_moves_tasks_shows_the_statements_that_it_runs(make):
    queue = make(**BASE).xq
    for event in ("put", "take", "ack", "release", "bury", "dig", "kill"):
        assert "task" in queue.sql(event), event
    assert "INSERT" in queue.sql("put", "delay", n=3)
    assert "name" in queue.sql("ack", update=["name"])
    assert ":tube" in queue.sql("take", "timeout", "tube")
    assert queue.sql("kill").count("DELETE") == len("RTWBD")
