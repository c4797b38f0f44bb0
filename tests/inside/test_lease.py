"""Leases: who owns their tasks, when they are released, and the heartbeat of a worker."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import tasks
from tests.steps import PATIENCE, eventually, row, state, transitions
from xq.adapters.spark.leases import leases_of


def test_a_task_of_the_lease_whose_ttr_passed_is_taken_again(make):
    Task = make({"ttr": 60})
    Task.xq.put_many(tasks(2))
    with leases_of(Task.xq) as leases:
        assert list(leases.take(1, 0)) == [1]
        Task.xq.clock.tick(61)
        assert list(leases.take(1, 0)) == [2]
        assert leases.take(1, 0) == {}
        assert [state(Task, key) for key in (1, 2)] == ["T", "T"]
    assert transitions(Task)["T-R"] == 3


def test_a_heartbeat_touches_the_tasks_of_a_take_by_one_call_and_later_those_of_all_takes(make_live, monkeypatch):
    Task, calls = make_live({"ttr": 3600}, roles=("runat",)), list[list[int]]()
    Task.xq.put_many(tasks(9))
    touch_many = xq.Queue.touch_many

    def noted(queue: Any, keys: list[Any], seconds: float) -> Any:
        calls.append(sorted(key.id for key in keys))
        return touch_many(queue, keys, seconds)

    monkeypatch.setattr(xq.Queue, "touch_many", noted)
    with leases_of(Task.xq) as leases:
        before = {key: task["runat"] for n in (5, 4) for key, task in leases.take(n, 0).items()}
        for _ in range(2):
            leases._heart.touch(leases._heart.leases)
        assert all(row(Task, key).runat > runat for key, runat in before.items())
    assert sorted(calls[:2]) == [[1, 2, 3, 4, 5], [6, 7, 8, 9]]
    assert calls[2:] == [[*range(1, 10)]]


@pytest.mark.parametrize("shared_db", list(SERVERS), indirect=True)
def test_a_transaction_of_one_function_delays_no_heartbeat_of_another(make_live, monkeypatch):
    monkeypatch.setattr("xq.runtime.lease.HEARTBEATS", 600)
    Task = make_live({"ttr": 60, "keep": True}, roles=("runat",))
    locked, touched = threading.Event(), threading.Event()

    def work(found: Any) -> None:
        if found.id == 1:
            with Task._meta.database.atomic():
                found.ack()
                locked.set()
                assert touched.wait(PATIENCE)
            return
        assert locked.wait(PATIENCE)
        for _ in range(3):
            before = row(Task, found.id).runat
            eventually(lambda before=before: row(Task, found.id).runat > before)  # type: ignore[misc]
        touched.set()

    Task.xq.worker(work, workers=2)
    Task.xq.put_many(tasks(2))
    Task.xq.run(until_empty=True)
    assert transitions(Task) == {"X-R": 2, "R-T": 2, "T-D": 2}, "no attempt failed"


def test_a_task_of_a_batch_that_is_finished_meanwhile_loses_no_other(make_live, monkeypatch):
    monkeypatch.setattr("xq.runtime.lease.HEARTBEATS", 600)
    Task = make_live({"ttr": 60, "keep": True}, roles=("runat",))
    lost: list[bool] = []

    @Task.xq.worker(batch=3)
    def work(batch: Any) -> None:
        batch[1].ack()
        for _ in range(2):
            before = row(Task, batch[2].id).runat
            eventually(lambda before=before: row(Task, batch[2].id).runat > before)  # type: ignore[misc]
        lost.append(xq.current().lost.is_set())

    Task.xq.put_many(tasks(3))
    Task.xq.run(until_empty=True)
    assert lost == [False]
    assert transitions(Task) == {"X-R": 3, "R-T": 3, "T-D": 3}
