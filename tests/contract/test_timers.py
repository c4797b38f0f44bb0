"""Time passes by itself: what falls due is moved by any process that has taken or waits, once, and on time."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import peewee as pw
import pytest

from tests.conftest import Maker
from tests.factories import task
from tests.steps import (
    Other,
    another_process,
    eventually,
    fail_for,
    in_threads,
    is_exact,
    keep_references,
    row,
    state,
    transitions,
)
from tests.support.life import LATE, seen, watch
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

SOON = 0.15  # seconds


def taken(Task: Any, **options: Any) -> Any:
    Task.put({})
    return Task.take(**options)


def refers(Task: Any, *tasks: Any) -> Any:
    """A table that refers to tasks, which the database therefore refuses to delete."""
    keep_references(Task._meta.database)
    meta = type("Meta", (), {"database": Task._meta.database})
    Child: Any = type("Child", (pw.Model,), {"task": pw.ForeignKeyField(Task), "Meta": meta})
    Task._meta.database.create_tables([Child])
    Child.insert_many([{"task": task.id} for task in tasks]).execute()
    return Child


# by itself


# what falls due -> the features, how, and the transition that follows by itself
TIMED: dict[str, Any] = {
    "delay": ({"delayed": True}, lambda Task: Task.put({}, delay=SOON), "W-R"),
    "ttl": ({"ttl": True}, lambda Task: Task.put({}, ttl=SOON), "R-X"),
    "ttr": ({"ttr": True}, lambda Task: taken(Task, ttr=SOON), "T-R"),
    "zombie": ({"zombie": True}, lambda Task: taken(Task).ack(delay=SOON), "Z-X"),
    "lifetime": ({"lifetime": True}, lambda Task: Task.put({}, ttl=SOON), "R-X"),
}


@pytest.mark.parametrize("what", TIMED)
def test_what_falls_due_is_moved_by_a_process_that_has_taken_once(make_live, what):
    features, begin, follows = TIMED[what]
    Task = make_live(features, roles=("runat", "deadline"))
    watch(Task)
    begin(Task)
    seen(Task, follows)
    assert is_exact(Task)


def test_what_is_due_sooner_than_what_is_waited_for_is_moved_first(make_live):
    Task = make_live({"delayed": True})
    watch(Task)
    Task.put({}, delay=LATE)

    def child() -> Any:
        Task.put({}, delay=LATE / 2)
        Task.put({}, delay=SOON)
        yield

    with another_process(make_live.db, child) as other:
        next(other)
        seen(Task, "W-R")
    assert state(Task, 3) == "R"


def test_a_time_that_plain_sql_writes_is_kept(make_live):
    Task = make_live({"delayed": True})
    watch(Task)
    Task.put({}, delay=LATE)

    def child() -> Any:
        Task.update(runat=time.time() + SOON).execute()
        Task.insert(status="W", runat=time.time() + 2 * SOON).execute()
        yield

    with another_process(make_live.db, child) as other:
        next(other)
        seen(Task, "W-R", 2)


def test_what_fell_due_while_nobody_lived_is_moved_by_the_first_who_comes(make_live):
    Task = make_live({"delayed": True, "ttl": True})
    Task.put({}, ttl=0)
    Task.put({}, delay=0)
    assert Task.take(timeout=0).id == 2
    seen(Task, "R-X")


# several at once


def test_others_put_while_many_rows_fall_due(make_live):
    Task = make_live({"delayed": True})
    Task.xq.put_many([{}] * 5_000, delay=0)

    def child() -> Any:
        yield
        n = 0
        while transitions(Task)["W-R"] < 5_000:
            Task.put({})
            n += 1
        yield n

    with another_process(make_live.db, child) as other:
        next(other)
        other.post(None)
        eventually(lambda: Task.xq.count("R"))  # it is at it
        Task.take()
        assert other.hear() > 0
    assert Task.xq.count("W") == 0
    assert is_exact(Task)


def test_a_row_that_cannot_be_moved_stops_no_other_and_is_not_tried_without_end(make_live, caplog):
    Task = make_live({"ttl": True})
    kept = Task.put({}, ttl=0)
    Child = refers(Task, kept)
    caplog.set_level(logging.DEBUG, "xq")
    watch(Task)
    Task.xq.put_many([{}] * 3, ttl=SOON)
    Task.put({}, ttl=6 * SOON)
    seen(Task, "R-X", 4)
    assert state(Task, kept) == "R"
    tried = [record for record in caplog.records if "cannot move" in record.getMessage()]
    assert 0 < len(tried) < 50  # a thread that spun would have tried some thousand times
    Child.delete().execute()
    seen(Task, "R-X", 5)


def test_what_cannot_be_moved_is_told_of_once_until_it_is_due_no_more(make, caplog):
    Task = make({"ttl": True, "delayed": True})
    Child = refers(Task)
    caplog.set_level(logging.DEBUG, "xq")

    def told() -> list[str]:
        found = [record.levelname for record in caplog.records if "cannot move" in record.getMessage()]
        caplog.clear()
        return found

    for _ in range(2):
        kept = Task.put({"id": 7}, ttl=0)
        Child.insert(task=kept.id).execute()
        Task.put({}, delay=1)
        assert Task.xq.sweep() == 0
        assert told() == ["WARNING"]
        Task.xq.clock.tick(2)
        assert Task.xq.sweep() == 1
        assert told()[0] == "DEBUG", "another timer has forgotten nothing of this one"
        Child.delete().execute()
        assert Task.xq.sweep() == 1
        assert told() == []


def test_a_row_for_which_a_trigger_fails_stops_no_other(make):
    Task = make({"ttr": 10, "delayed": True})
    bad = Task.put(task(name="bad"))
    fail_for(Task, "NEW.name = 'bad' AND NEW.status = 'R'")
    Task.put(task(name="good"))
    assert [found.name for found in Task.xq.take_many(2)] == ["bad", "good"]
    Task.xq.clock.tick(11)
    assert Task.take().name == "good"
    assert state(Task, bad) == "T"


def test_more_than_a_batch_of_rows_that_cannot_be_moved_stops_no_other(make):
    Task = make({"ttl": True})
    kept = Task.xq.put_many([{}] * 1_001, ttl=0)
    refers(Task, *kept)
    Task.put({}, ttl=1)
    Task.xq.clock.tick(2)
    assert Task.xq.sweep() == 1
    assert Task.xq.count("R") == 1_001


def test_a_take_does_not_wait_for_what_the_database_does_not_let_go(make, monkeypatch):
    Task = make({"ttl": True})
    refers(Task, Task.put({}, ttl=0))
    paused: list[float] = []
    sleep, mine = time.sleep, threading.get_ident()
    monkeypatch.setattr(time, "sleep", lambda s: paused.append(s) if threading.get_ident() == mine else sleep(s))
    assert Task.take() is None
    assert paused == []


def test_a_taken_task_whose_lifetime_has_passed_is_dropped_by_the_next_take(make):
    Task = make({"lifetime": 1})
    put = Task.put({})
    Task.take()
    Task.xq.clock.tick(2)
    assert Task.take() is None
    assert state(Task, put) == "X"
    assert Task.stats().transition == {"X-R": 1, "R-X": 1, "R-T": 1, "T-R": 1}


# threads


def test_a_process_that_has_taken_has_one_thread_for_each_database_and_a_timer(make_live):
    One = make_live({"delayed": True})
    Two = make_live({"delayed": True}, model=make_live.model(table_name="two"))

    def child() -> Any:
        in_threads(make_live.db, *[One.take] * 8)
        for Task in (One, Two):
            Task.put({}, delay=LATE)
            watch(Task)
        names = lambda: sorted(thread.name for thread in threading.enumerate())  # noqa: E731
        yield eventually(lambda: len(names()) > 2 and names())

    with another_process(make_live.db, child) as other:
        assert next(other) == ["APScheduler", "MainThread", "xq"]


def test_under_a_test_clock_no_timer_runs_and_nothing_moves_by_itself(shared_db):
    def child() -> Any:
        Task = Maker(shared_db, Clock())({"delayed": True})
        watch(Task)
        Task.put({}, delay=1)
        Task.xq.clock.tick(2)
        yield
        names = [thread.name for thread in threading.enumerate()]
        yield "APScheduler" in names, Task.xq.count("W"), Task.xq.sweep()

    Maker(shared_db, Clock())({"delayed": True})
    with another_process(shared_db, child) as other:
        next(other)
        assert next(other) == (False, 1, 1)


def test_a_clock_that_is_set_back_makes_nothing_due(make):
    Task = make({"delayed": True})
    Task.put({}, delay=10)
    Task.xq.clock.tick(-1_000)
    assert Task.xq.sweep() == 0
    Task.xq.clock.tick(1_011)
    assert Task.xq.sweep() == 1


def test_a_child_that_is_forked_keeps_time_for_itself(make_live):
    Task = make_live({"delayed": True})

    def parent() -> Any:
        watch(Task)
        Task.put({}, delay=LATE)
        other = Other(make_live.db, child)
        next(other)
        yield other
        yield

    def child() -> Any:
        yield
        watch(Task)
        Task.put({}, delay=SOON)
        yield seen(Task, "W-R")

    watch(Task)
    Task.put({}, delay=LATE)  # a timer is armed
    with another_process(make_live.db, child) as other:
        next(other)
        assert next(other)
    assert row(Task, 1).status == "W"
