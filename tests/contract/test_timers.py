"""Time passes by itself: what falls due is moved by any process that has taken or waits, once, and on time."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import Maker
from tests.factories import task
from tests.steps import (
    PATIENCE,
    Other,
    another_process,
    eventually,
    fail_for,
    in_threads,
    is_exact,
    keep_references,
    processes,
    row,
    state,
    transitions,
)
from tests.support.life import watch
from tests.support.timers import LATE, seen
from xq.testing import Clock

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

SOON = 0.15  # seconds


def put(Task: Any, **options: Any) -> Any:
    Task.put({}, **options)


def take(Task: Any, **options: Any) -> Any:
    Task.put({})
    Task.take(**options)


def ack(Task: Any, **options: Any) -> Any:
    Task.put({})
    Task.take().ack(**options)


# what falls due -> the features, how, and the transition that follows by itself
TIMED: dict[str, Any] = {
    "delay": ({"delayed": True}, lambda Task, s: put(Task, delay=s), "W-R"),
    "ttl": ({"ttl": True}, lambda Task, s: put(Task, ttl=s), "R-X"),
    "ttr": ({"ttr": True}, lambda Task, s: take(Task, ttr=s), "T-R"),
    "zombie": ({"zombie": True}, lambda Task, s: ack(Task, delay=s), "Z-X"),
    "lifetime": ({"lifetime": True}, lambda Task, s: put(Task, ttl=s), "R-X"),
}


@pytest.fixture(params=TIMED)
def timed(request, make_shared):
    """A queue with a timer, how to start it, and the transition that follows."""
    features, begin, follows = TIMED[request.param]
    return make_shared(features, roles=("runat", "deadline")), begin, follows


# by itself


def test_what_falls_due_is_moved_by_a_process_that_has_taken_once(timed):
    Task, begin, follows = timed
    watch(Task)
    begin(Task, SOON)
    seen(Task, follows)
    assert is_exact(Task)


def test_what_another_process_makes_due_is_moved_on_time_by_this_one(timed):
    Task, begin, follows = timed
    watch(Task)

    def child() -> Any:
        due = time.time() + SOON
        begin(Task, SOON)
        yield due - 0.1
        yield

    with another_process(Task._meta.database, child) as other:
        due = next(other)
        if follows != "T-R":
            other.kill()  # it has done its part, and cannot move the task
        seen(Task, follows)
        assert time.time() >= due


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


def test_nothing_is_moved_before_its_time(make_live):
    Task = make_live({"delayed": True})
    watch(Task)
    times = [0.3, 0.05, 0.2, 0.1]
    due = {}
    for seconds in times:
        earliest = time.time() + seconds
        due[Task.put({}, delay=seconds).id] = earliest
    while due:
        ready = [key for key in due if state(Task, key) == "R"]
        now = time.time()
        assert all(now > due.pop(key) - 0.01 for key in ready)


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


def test_who_waits_is_given_what_falls_due_meanwhile(make_live):
    Task = make_live({"delayed": True})
    Task.put({}, delay=SOON)

    def child() -> Any:
        yield Task.take(timeout=PATIENCE).id

    with another_process(make_live.db, child) as other:
        assert next(other) == 1


def test_what_fell_due_while_nobody_lived_is_moved_by_the_first_who_comes(make_live):
    Task = make_live({"delayed": True, "ttl": True})
    Task.put({}, ttl=0)
    Task.put({}, delay=0)
    assert Task.take(timeout=0).id == 2
    seen(Task, "R-X")


def test_a_taken_task_past_its_deadline_is_ready_and_then_gone(make_live):
    Task = make_live({"lifetime": True}, roles=("deadline",))
    watch(Task)

    def taken_in_time(ttl: float) -> Any:
        Task.xq.truncate()
        Task.xq.reset()
        Task.put({}, ttl=ttl)
        return Task.take()

    task = next(filter(None, map(taken_in_time, (1, 2, 4, 8, 16))))
    seen(Task, "R-X")
    assert transitions(Task) == {"X-R": 1, "R-T": 1, "T-R": 1, "R-X": 1}
    with pytest.raises(xq.NotFound):
        task.ack()


def test_what_is_touched_in_time_stays(make_live):
    Task = make_live({"ttr": True})

    def touched_in_time(ttr: float) -> Any:
        Task.xq.truncate()
        Task.xq.put_many([{}] * 2)
        touched, left = Task.xq.take_many(2, ttr=ttr)
        with suppress(xq.NotOwner, xq.WrongState):
            touched.touch(LATE)
            return touched, left
        return None

    touched, left = next(filter(None, map(touched_in_time, (1, 2, 4, 8, 16))))
    eventually(lambda: state(Task, left) == "R")
    assert state(Task, touched) == "T"
    assert touched.ack()


def test_a_worker_that_lost_its_task_to_the_ttr_is_refused(make_live):
    Task = make_live({"ttr": True})
    watch(Task)
    Task.put({})

    def child() -> Any:
        task = Task.take(ttr=SOON)
        yield
        with pytest.raises(xq.NotOwner):
            task.ack()
        yield True

    with another_process(make_live.db, child) as other:
        next(other)
        ours = Task.take(timeout=PATIENCE)
        assert next(other)
        assert ours.ack()


# several at once


def test_processes_that_all_look_after_a_queue_move_each_row_once(make_live):
    Task = make_live({"delayed": True})

    def child() -> Any:
        watch(Task)
        yield
        yield Task.xq.sweep() >= 0

    with processes(make_live.db, *[child] * 3) as others:
        for other in others:
            next(other)
        watch(Task)
        Task.xq.put_many([{}] * 5_000, delay=SOON)
        seen(Task, "W-R", 5_000)
        assert all(map(next, others))
    assert transitions(Task) == {"X-W": 5_000, "W-R": 5_000}
    assert is_exact(Task)


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
    keep_references(make_live.db)
    Task = make_live({"ttl": True})
    Child: Any = type(
        "Child",
        (pw.Model,),
        {"task": pw.ForeignKeyField(Task), "Meta": type("M", (), {"database": Task._meta.database})},
    )
    make_live.db.create_tables([Child])
    kept = Task.put({}, ttl=0)
    Child.insert(task=kept.id).execute()
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
    keep_references(make.db)
    Task = make({"ttl": True, "delayed": True})
    Child: Any = type(
        "Child", (pw.Model,), {"task": pw.ForeignKeyField(Task), "Meta": type("M", (), {"database": make.db})}
    )
    make.db.create_tables([Child])
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
    keep_references(make.db)
    Task = make({"ttl": True})
    Child: Any = type(
        "Child", (pw.Model,), {"task": pw.ForeignKeyField(Task), "Meta": type("M", (), {"database": make.db})}
    )
    make.db.create_tables([Child])
    kept = Task.xq.put_many([{}] * 1_001, ttl=0)
    Child.insert_many([{"task": task.id} for task in kept]).execute()
    Task.put({}, ttl=1)
    Task.xq.clock.tick(2)
    assert Task.xq.sweep() == 1
    assert Task.xq.count("R") == 1_001


def test_a_take_does_not_wait_for_what_the_database_does_not_let_go(make, monkeypatch):
    keep_references(make.db)
    Task = make({"ttl": True})
    Child: Any = type(
        "Child", (pw.Model,), {"task": pw.ForeignKeyField(Task), "Meta": type("M", (), {"database": make.db})}
    )
    make.db.create_tables([Child])
    Child.insert(task=Task.put({}, ttl=0).id).execute()
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


def test_threads_that_take_at_once_have_one_thread_look_after_the_queue(make_live):
    Task = make_live({"delayed": True})

    def child() -> Any:
        in_threads(make_live.db, *[Task.take] * 8)
        yield [thread.name for thread in threading.enumerate()].count("xq")

    with another_process(make_live.db, child) as other:
        assert next(other) == 1


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
