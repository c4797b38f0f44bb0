"""Rows that the database keeps where they are, since a trigger or a constraint of the application's says so."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import peewee as pw
import pytest

from tests.conftest import SHARED
from tests.steps import FAILURES, STUCK, another_process, fail_for, fail_no_more, refers
from xq.database import reaper

BAD = "NEW.name = 'bad' AND NEW.status = 'R'"
EACH_FAILURE = pytest.mark.parametrize(
    ("shared_db", "how"), [(db, how) for db in SHARED for how in FAILURES[db]], indirect=["shared_db"]
)


@pytest.fixture
def queue(make_live):
    queue = make_live({"delayed": True, "ttr": 3600}, roles=("runat",))
    queue.xq.put_many([{"name": name} for name in ("good", "bad", "fine")])
    return queue


@EACH_FAILURE
def test_a_task_of_a_killed_process_that_cannot_go_back_stops_no_other_and_comes_later(queue, how, monkeypatch, caplog):
    monkeypatch.setattr(reaper, "ORPHANS", 0.1)
    fail_for(queue, BAD, how)

    def takes() -> Generator[Any, Any, None]:
        held = queue.xq.take_many(3)
        yield len(held)

    with another_process(queue._meta.database, takes) as other:
        assert next(other) == 3
        assert queue.take() is None
        other.kill()
        assert [queue.take(timeout=STUCK).name for _ in range(2)] == ["good", "fine"]
    assert [task.name for task in queue.xq.by_state("T")] == ["good", "bad", "fine"]
    fail_no_more(queue)
    assert queue.take(timeout=STUCK).name == "bad"
    told = [record.levelname for record in caplog.records if "cannot move" in record.getMessage()]
    assert told == ["WARNING"], "once, however often it is tried"
    assert queue.xq.check() == []


@EACH_FAILURE
def test_a_row_that_cannot_be_moved_stops_no_other_where_a_session_is_left_or_a_timer_passes(queue, how):
    fail_for(queue, BAD, how)
    with queue.xq.session():
        queue.xq.take_many(3)
    assert [task.name for task in queue.xq.take_many(3, ttr=1e-6)] == ["good", "fine"]
    assert sorted(queue.take(timeout=STUCK).name for _ in range(2)) == ["fine", "good"]
    assert [task.name for task in queue.xq.by_state("T")] == ["good", "bad", "fine"]
    assert queue.xq.check() == []


def test_a_reference_that_is_looked_at_only_at_the_commit_stops_no_timer(make):
    Task = make({"ttl": True})
    deferred = None if isinstance(make.db, pw.MySQLDatabase) else "INITIALLY DEFERRED"
    _, kept, _ = (Task.put({}, ttl=0) for _ in range(3))
    Child = refers(Task, kept, deferrable=deferred)
    assert Task.xq.sweep() == 2
    assert [task.id for task in Task.xq.by_state("R")] == [kept.id]
    Child.delete().execute()
    assert Task.xq.sweep() == 1
