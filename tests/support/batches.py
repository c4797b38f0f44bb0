"""ack_many and its kind: all of the tasks or none, in one transaction."""

from __future__ import annotations

from tests.factories import tasks

FEATURES = {"buried": True, "keep": True, "delayed": True, "ttr": 60}
TARGETS = {"ack_many": "D", "release_many": "R", "bury_many": "B", "kill_many": "X"}


def taken(Task, n):
    """So many taken tasks."""
    Task.xq.put_many(tasks(n))
    return Task.xq.take_many(n)
