"""Done tasks and old history go to Parquet and come back, and are read as one with what is in the database."""

from __future__ import annotations

from tests.conformance.steps import is_exact, state
from tests.factories import tasks
from xq.adapters.spark.archive import Archived, archive, history, restore
from xq.adapters.spark.archive import tasks as all_tasks

FEATURES = {"keep": True, "history": True, "delayed": True}


def done(Task, n=1):
    """So many tasks, done now; and one that is not, of the highest number, which would stay on SQLite."""
    found = Task.xq.put_many(tasks(n))
    Task.xq.ack_many(Task.xq.take_many(n))
    Task.xq.put({"name": "waits"}, delay=1_000_000)
    return [task.id for task in found]


def told(frame):
    return sorted((row.id, row.name, row.state) for row in frame.collect())


def test_an_archive_and_the_table_are_one(spark, make_shared, tmp_path):
    Task, out = make_shared(FEATURES), str(tmp_path / "out")
    keys = done(Task, 3)
    before, past = told(all_tasks(spark, Task, out)), Task.xq.history()
    assert archive(spark, Task, out) == Archived(3, len(past) + 2, 0)  # and what it did itself, but for the newest
    assert [state(Task, key) for key in keys] == ["X", "X", "X"]
    assert told(all_tasks(spark, Task, out)) == before
    again = sorted(history(spark, Task, out).collect(), key=lambda row: row.id)
    assert [(r.id, r.key, r.source, r.target, r.event, r.dur_us) for r in again[: len(past)]] == [
        (r.id, r.key, r.source, r.target, r.event, r.dur_us) for r in past
    ]
    assert restore(spark, Task, out) == 3
    assert told(all_tasks(spark, Task, out)) == before
    assert [state(Task, key) for key in keys] == ["D", "D", "D"]
    assert is_exact(Task)
