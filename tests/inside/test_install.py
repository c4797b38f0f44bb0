"""Bringing a queue into a database, looking whether it is there, changing it, and taking it away."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task
from xq.engine import unit

FEATURES = {"buried": True, "delayed": True, "zombie": 30}


def test_a_queue_of_an_older_version_gets_the_shared_tables_that_this_one_adds(make):
    Task = make(FEATURES)
    Task.put(task())
    for table in ("xq_pause", "xq_schedule"):
        make.db.execute_sql(f"DROP TABLE {table}")
    Task.xq.adapter.maintenance.leave()  # as if this process began now
    with pytest.raises(xq.NotInstalled, match="the table xq_pause is missing"):
        Task.take()
    Task.xq.install()
    assert Task.xq.check() == []
    Task.xq.pause()
    assert Task.take() is None


def test_a_history_of_an_older_version_gets_the_columns_that_this_one_adds(make):
    Task = make({"history": True, "buried": "any"})
    there = Task.put(task())
    for column in ("actor", "reason"):
        make.db.execute_sql(f"ALTER TABLE task_xq_history DROP COLUMN {column}")
    make.db.execute_sql("UPDATE xq_queue SET version = '8'")
    make.db.execute_sql("DROP TABLE xq_operation")
    Task.xq.adapter.maintenance.leave()  # as if this process began now
    with pytest.raises(xq.NotInstalled, match="the table xq_operation is missing; it was installed by another version"):
        Task.take()
    Task.xq.install()
    assert Task.xq.check() == []
    with Task.xq.acting("ann", "bad deploy"):
        Task.bury(there)
    found = [(row.event, row.actor, row.reason) for row in Task.xq.history()]
    assert found == [("put", None, None), ("bury", "ann", "bad deploy")]
    Task.xq.act("dig", "", actor="ann").run()
    Task.xq.install()
    assert Task.xq.count("R") == 1


def test_a_queue_of_an_older_version_is_uninstalled_with_the_shared_tables_that_it_has(make):
    Task, Other = make(FEATURES), make(FEATURES, model=make.model(table_name="other"))
    for table in ("xq_pause", "xq_schedule"):
        make.db.execute_sql(f"DROP TABLE {table}")
    Task.xq.uninstall()
    assert list(make.db.execute_sql("SELECT name FROM xq_queue")) == [("other",)]
    Other.xq.install()
    assert Other.xq.check() == []


def test_a_process_from_whose_database_the_records_were_dropped_is_told(make, monkeypatch):
    monkeypatch.setattr(unit, "REVIEW", -1.0)  # the queue is looked at again at any time
    Task = make(FEATURES)
    Task.put(task())
    make.db.execute_sql("DROP TABLE xq_queue")
    with pytest.raises(xq.NotInstalled, match="the table xq_queue is missing"):
        Task.take()
