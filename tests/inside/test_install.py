"""Bringing a queue into a database, looking whether it is there, changing it, and taking it away."""

from __future__ import annotations

import pytest

import xq
from tests.factories import task
from xq.engine import unit

FEATURES = {"buried": True, "delayed": True, "zombie": 30}


def test_a_process_from_whose_database_the_records_were_dropped_is_told(make, monkeypatch):
    monkeypatch.setattr(unit, "REVIEW", -1.0)  # the queue is looked at again at any time
    Task = make(FEATURES)
    Task.put(task())
    make.db.execute_sql("DROP TABLE xq_queue")
    with pytest.raises(xq.NotInstalled, match="the table xq_queue is missing"):
        Task.take()
