"""Time passes by itself: what falls due is moved by any process that has taken or waits, once, and on time."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from tests.factories import task
from tests.steps import another_process, fail_for, is_exact, refers, state
from tests.support.life import LATE, seen, watch

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

SOON = 0.15  # seconds


def taken(Task: Any, **options: Any) -> Any:
    Task.put({})
    return Task.take(**options)


# what falls due -> the features, how, and the transition that follows by itself
TIMED: dict[str, Any] = {
    "delay": ({"delayed": True}, lambda Task: Task.put({}, delay=SOON), "W-R"),
    "ttl": ({"ttl": True}, lambda Task: Task.put({}, ttl=SOON), "R-X"),
    "ttr": ({"ttr": True}, lambda Task: taken(Task, ttr=SOON), "T-R"),
    "ttr of what another program takes": ({"ttr": SOON}, lambda Task: Task.create(status="T"), "T-R"),
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
    late = Task.put({}, delay=LATE)

    def child() -> Any:
        Task.put({}, delay=LATE / 2)
        Task.put({}, delay=SOON)
        Task.insert(status="W", runat=time.time() + 2 * SOON).execute()  # which plain SQL writes
        yield

    with another_process(make_live.db, child) as other:
        next(other)
        seen(Task, "W-R", 2)
    assert [state(Task, key) for key in (late, 2, 3, 4)] == ["W", "W", "R", "R"]


def test_what_fell_due_while_nobody_lived_is_moved_by_the_first_who_comes(make_live):
    Task = make_live({"delayed": True, "ttl": True})
    Task.put({}, ttl=0)
    Task.put({}, delay=0)
    assert Task.take(timeout=0).id == 2
    seen(Task, "R-X")


def test_what_is_due_is_found_behind_more_than_a_batch_of_due_tasks_of_another_tube(make_live):
    Task = make_live({"delayed": True}, roles=("tube",))
    Task.xq.put_many([{"tube": "front"}] * 1_500, delay=0)
    behind = Task.put({"tube": "behind"}, delay=0)
    assert Task.take(tube="behind", timeout=0).id == behind.id


def test_expired_tasks_that_a_take_leaves_are_moved_all_the_same(make_live):
    Task = make_live({"ttl": True})
    Task.xq.put_many([{}] * 1_500, ttl=0)
    assert Task.take(timeout=0) is None
    seen(Task, "R-X", 1_500)


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
