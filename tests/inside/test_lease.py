"""Leases: who owns their tasks, when they are released, and the heartbeat of a worker."""

from __future__ import annotations

import threading
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import pytest

import xq
from tests.conftest import SERVERS
from tests.factories import tasks
from tests.steps import PATIENCE, eventually, row, state, transitions
from xq.runtime.lease import Leases


def test_a_lease_releases_at_its_end_the_tasks_that_are_not_finished_also_by_an_error(make):
    Task = make({"keep": True})
    Task.xq.put_many(tasks(4))
    with suppress(ZeroDivisionError), Leases(Task.xq) as leases:
        assert list(leases.take(3, 0)) == [1, 2, 3]
        ended, lost = leases.finish(lambda ours: [Task.xq.ack(ours[2]).id], [1, 2, 3])
        assert (ended, lost) == ({2}, set())
        assert list(leases.take(3, 0)) == [4]
        assert [state(Task, key) for key in (1, 2, 3, 4)] == ["T", "D", "T", "T"]
        assert leases.release() == ({1, 3, 4}, set())
        assert list(leases.take(1, 0)) == [1]
        raise ZeroDivisionError
    assert [state(Task, key) for key in (1, 2, 3, 4)] == ["R", "D", "R", "R"]


def test_tasks_that_others_own_by_now_are_left_to_them(make):
    Task = make()
    Task.xq.put_many(tasks(5))
    calls: list[list[int]] = []

    def ack(ours: dict[int, Any]) -> list[int]:
        calls.append(list(ours))
        Task.xq.ack_many(ours.values())
        return list(ours)

    other = Task.xq.session()

    def take_as_another() -> list[int]:
        other.__enter__()
        return [taken.id for taken in Task.xq.take_many(2)]

    with Leases(Task.xq) as leases:
        leases.take(5, 0)
        Task.xq.kill(1)
        for key in (2, 4):
            Task.xq.snatch(key)
        assert copy_context().run(take_as_another) == [2, 4]
        assert leases.finish(ack, [1, 2, 3]) == ({3}, {1, 2})
        assert leases.release() == ({5}, {4})
    assert [state(Task, key) for key in range(1, 6)] == ["X", "T", "X", "T", "R"]
    other.close()
    assert calls == [[1, 2, 3], [3]]


def test_a_task_of_the_lease_whose_ttr_passed_is_taken_again(make):
    Task = make({"ttr": 60})
    Task.xq.put_many(tasks(2))
    with Leases(Task.xq) as leases:
        assert list(leases.take(1, 0)) == [1]
        Task.xq.clock.tick(61)
        assert list(leases.take(1, 0)) == [2]
        assert leases.take(1, 0) == {}
        assert [state(Task, key) for key in (1, 2)] == ["T", "T"]
    assert transitions(Task)["T-R"] == 3


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
