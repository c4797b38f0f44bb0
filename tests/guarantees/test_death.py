"""A process is killed with kill -9, forks, or shares its session: what it holds is given back once, and not before."""

from __future__ import annotations

import threading

import peewee as pw
import pytest

import xq
from tests.factories import task
from tests.steps import PATIENCE, STUCK, another_process, eventually, is_exact, processes, row, state


def test_who_waits_is_given_the_task_of_a_killed_process(make_live):
    Task = make_live()
    Task.put(task())

    def holds():
        yield Task.take().id

    def waits():
        yield "begun"
        yield Task.take(timeout=PATIENCE).id

    with processes(make_live.db, holds, waits) as (holder, waiter):
        assert (next(holder), next(waiter)) == (1, "begun")
        holder.kill()
        assert next(waiter) == 1
    assert is_exact(Task)


def test_a_worker_that_waits_for_a_slot_gets_that_of_a_killed_process(make_live):
    Task, held = make_live(), list[bool]()
    Task.xq.worker(lambda found: held and threading.Event().wait(), concurrency=xq.Concurrency("smtp", 1))
    Task.xq.put_many([task(), task()])

    def holds():
        held.append(True)
        Task.xq.start()
        yield eventually(lambda: Task.xq.count("T"))

    def waits():
        Task.xq.start()
        yield eventually(lambda: len(Task.xq.sessions()) == 2)  # it is about to look for a slot
        yield eventually(lambda: Task.xq.count() == 0)

    with another_process(make_live.db, holds) as holder:
        next(holder)
        with another_process(make_live.db, waits) as other:
            next(other)
            assert Task.xq.count("T") == 1
            holder.kill()
            next(other)


def test_a_task_that_is_taken_at_each_death_of_a_process_is_buried_at_the_last_one_that_may_be(make_live):
    attributes = {"error": pw.TextField(null=True)}
    Task = make_live({"max_takes": 2, "buried": True, "history": True}, roles=("error",), attributes=attributes)
    Task.take()  # from now on this process reaps

    def takes():
        yield Task.take().id

    Task.put(task())
    for becomes in "RB":
        with another_process(make_live.db, takes) as other:
            assert next(other) == 1
            other.kill()
        eventually(lambda: state(Task, 1) != "T")
        assert state(Task, 1) == becomes
    assert (Task.take(), row(Task, 1).error) == (None, "taken 2 times and never finished")
    assert [each.event for each in Task.xq.history(1)] == ["put", "take", "died", "take", "max_takes"]
    assert is_exact(Task)


def test_a_fork_and_its_end_give_nothing_of_the_parents_back(make_live):
    Task = make_live()
    Task.put(task())
    taken = Task.take()

    def child():
        with pytest.raises(xq.NotOwner):
            taken.ack()
        yield Task.xq.count("T")

    with another_process(make_live.db, child) as other:
        assert next(other) == 1
    assert Task.xq.count("T") == 1
    taken.ack()


def test_a_session_may_be_shared_by_processes_and_ends_for_none_when_one_leaves_it(make_live):
    Task = make_live({"keep": True, "ttr": STUCK})
    Task.put(task())

    def script():
        uuid = yield "begun"
        with pytest.raises(xq.NotOwner):
            Task.ack(1)
        with Task.xq.session(uuid):
            Task.touch(1, PATIENCE)
        yield "left"

    with another_process(make_live.db, script) as other:
        assert next(other) == "begun"
        with Task.xq.session() as session:
            taken = Task.take()
            assert other.send(session.uuid) == "left"
            assert taken.ack().status == "D"
