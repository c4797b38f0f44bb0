"""The classic tubes: what those who know tarantool/queue expect of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import xq
from tests.inside.steps import sleeps
from tests.steps import (
    PATIENCE,
    Work,
    another_process,
    eventually,
)
from tests.support import tubes as support
from tests.support.tubes import Rows, left_of_tubes, opened, put
from xq.adapters.peewee import PeeweeStore
from xq.adapters.tubes import TubeRecords
from xq.runtime.waiters import Waiting
from xq.sessions import session as sessions

clock, queue, shared, tube, subqueues = support.clock, support.queue, support.shared, support.tube, support.subqueues


def test_a_kick_of_more_than_are_buried_kicks_those_and_leaves_no_transaction_open(subqueues):
    put(subqueues, *"abc", utube="u")
    subqueues.bury(1)
    subqueues.bury(2)
    assert subqueues.kick(5) == 2
    assert not subqueues.model.xq.adapter.store.in_transaction()
    assert [task.data for task in subqueues.tasks_by_state("r")] == ["a", "b", "c"]


def test_a_tube_in_which_calls_wait_is_not_dropped(shared):
    tube = shared.create_tube("tube", "fifo")
    waits = Work(shared.database, lambda: tube.take(PATIENCE))
    eventually(lambda: tube.model.xq.adapter.waiting.anybody)
    with pytest.raises(xq.TubeBusy, match="wait"):
        tube.drop()
    tube.put("a")
    assert waits.result().data == "a"
    with pytest.raises(xq.TubeBusy):
        tube.drop()


class Interrupted(Exception):
    pass


@contextmanager
def interrupted(function: Callable[..., Any], at: str) -> Iterator[None]:
    """Have the next call of a function be interrupted when it begins, or when it has returned, as by Ctrl-C."""

    def profile(frame: Any, event: str, _: Any) -> None:
        if frame.f_code is function.__code__ and event == at:
            sys.setprofile(former)
            raise Interrupted

    former = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(former)


@pytest.mark.parametrize("type", ["utubettl", "rows"])
@pytest.mark.parametrize("at", ["call", "return"])
def test_a_create_tube_that_is_interrupted_leaves_its_name_free_and_nothing_else(queue, type, at):
    queue.register_driver("rows", Rows)
    queue.create_tube("free", "fifo").drop()
    before = left_of_tubes(queue)
    with pytest.raises(Interrupted), interrupted(TubeRecords.add, at):
        queue.create_tube("tube", type)
    assert (queue.tube(), left_of_tubes(queue)) == ([], before)
    assert queue.create_tube("tube", "fifo").put("a").id == 1


def test_a_take_waits_for_what_another_process_puts(shared):
    db = shared.database
    tube = shared.create_tube("tube", "fifottl")

    def other() -> Any:
        with opened(db) as queue:
            yield
            yield queue.tube.tube.put("a", delay=0.05).state

    with another_process(db, other) as running:
        next(running)
        waits = Work(db, lambda: tube.take(PATIENCE))
        eventually(lambda: tube.model.xq.adapter.waiting.anybody)
        assert next(running) == "~"
        assert waits.result().data == "a"


def test_those_who_wait_are_served_first_come_first_served(shared, monkeypatch):
    # One more notification may wake the next waiter, too.
    monkeypatch.setattr(Waiting, "committed_elsewhere", lambda waiting: False)
    tube = shared.create_tube("tube", "fifo")
    waits = []
    for n in range(3):
        waits.append(Work(shared.database, partial(tube.take, PATIENCE - n)))
        eventually(lambda: sleeps(waits[-1]))
    for one, data in zip(waits, "abc", strict=True):
        tube.put(data)
        assert one.result().data == data


def test_puts_that_wait_for_room_are_served_first_come_first_served(shared):
    tube = shared.create_tube("tube", "limfifottl", capacity=1)
    tube.put("a")
    waits = []
    for data in range(5):
        waits.append(Work(shared.database, partial(tube.put, data, timeout=PATIENCE)))
        eventually(lambda: sleeps(waits[-1]))
    for data, one in enumerate(waits):
        tube.ack(tube.take(0))
        for _ in waits:
            tube.model.xq._waiting.committed_elsewhere()  # signals may come more than once
        assert one.result().data == data


# what tubes cost where there are many


def test_making_a_tube_reads_no_more_rows_when_there_are_others(sqlite_db, monkeypatch):
    queue, read = xq.Tubes(sqlite_db), 0
    plain = PeeweeStore.execute

    def execute(self, sql, values=()):
        nonlocal read
        found = plain(self, sql, values)
        read += len(found)
        return found

    monkeypatch.setattr(PeeweeStore, "execute", execute)
    needed = []
    for n in range(6):
        before = read
        queue.create_tube(f"tube {n}", "fifottl")
        needed.append(read - before)
    assert needed[-1] == needed[1], "the first makes what all share, too"


def test_tubes_that_nobody_writes_are_not_looked_at_again(sqlite_db, monkeypatch):
    queue = xq.Tubes(sqlite_db)
    for n in range(30):
        queue.create_tube(f"tube {n}", "fifottl").put(n)
    (upkeep,) = sessions.of(queue.database).reaper.others
    looked, plain = [], PeeweeStore.execute

    def execute(self, sql, values=()):
        looked.append(sql)
        return plain(self, sql, values)

    monkeypatch.setattr(PeeweeStore, "execute", execute)
    upkeep.expire()
    assert len([sql for sql in looked if "UNION ALL" in sql]) == 2, "many by one statement"
    looked.clear()
    monkeypatch.setattr(upkeep, "_next_look", 0.0)
    upkeep.expire()
    assert len(looked) == 1, "whether anything was committed"
