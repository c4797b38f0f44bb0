"""Queues whose done tasks go to an archive, and what is read from there."""

from __future__ import annotations

from tests.factories import tasks
from tests.steps import eventually
from xq.pipeline.scan import Part

FEATURES = {"keep": True, "history": True, "delayed": True}


def done(Task, n=1):
    """So many tasks, done now; and one that is not, of the highest number, which would stay on SQLite."""
    found = Task.xq.put_many(tasks(n))
    Task.xq.ack_many(Task.xq.take_many(n))
    Task.xq.put({"name": "waits"}, delay=1_000_000)
    history = Task.xq.pipeline.extract("history")
    eventually(lambda: not [*history.read(["id"], Part(after=history.checkpoint()))])  # MariaDB waits for gaps
    return [task.id for task in found]


def told(frame):
    return sorted((found.id, found.name, found.state) for found in frame.collect())


def ids(frame):
    return sorted(found.id for found in frame.select("id").collect())
