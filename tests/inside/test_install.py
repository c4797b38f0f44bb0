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
