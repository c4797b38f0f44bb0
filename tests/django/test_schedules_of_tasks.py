"""Schedules of django.tasks, and many tasks enqueued at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

import xq
from tests.django.conftest import DjangoDatabase
from tests.django.names import NAME, InvalidTaskError, TaskResultStatus, task_enqueued
from tests.django.on_tasks import asynchronously, backend, install
from tests.django.shop import jobs
from xq.adapters.django import aenqueue_many, enqueue_many, every
from xq.adapters.django.tasks import schedules
from xq.adapters.django.tasks.models import Task
from xq.testing import clock, run_pending

DAY = 86_400


@pytest.fixture
def tasks(django_db: DjangoDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[DjangoDatabase]:
    """A database with the table of tasks; what a test declares is forgotten."""
    monkeypatch.setattr(schedules, "_declared", {})
    with backend():
        install(django_db)
        yield django_db


def listed() -> list[tuple[Any, ...]]:
    return [(each.name, each.spec, each.tz) for each in Task.xq.schedules()]


def test_a_schedule_enqueues_its_task_whole_and_once_for_all_missed_firings(tasks):
    every("0 3 * * *", jobs.note, args=["night"], tz="Europe/Berlin", priority=3, queue_name="nights")
    every(60, jobs.add, kwargs={"a": 2}, name="often")
    with clock(Task) as now:
        assert listed() == [("often", 60.0, "UTC"), ("tests.django.shop.jobs.note", "0 3 * * *", "Europe/Berlin")]
        assert run_pending(Task) == 0
        now.tick(3 * DAY)
        Task.xq.sweep()
        assert run_pending(Task) == 2
        assert jobs.seen == ["night"]
        rows = Task.objects.order_by("rank").values("rank", "queue_name", "backend", "status", "return_value")
        assert [*rows] == [
            {"rank": -3, "queue_name": "nights", "backend": "default", "status": "SUCCESSFUL", "return_value": None},
            {"rank": 0, "queue_name": "default", "backend": "default", "status": "SUCCESSFUL", "return_value": 2},
        ]
        Task.xq.pause_schedule("often")
        now.tick(60)
        assert Task.xq.sweep() == 0


def test_a_firing_of_a_unique_task_is_skipped_while_one_is_unfinished(tasks):
    with backend(OPTIONS={"unique": True}), clock(Task) as now:
        every(60, jobs.note, args=["once"])
        run_pending(Task)
        for _ in range(3):
            now.tick(60)
            Task.xq.sweep()
        assert (run_pending(Task), jobs.seen) == (1, ["once"])
        now.tick(60)
        Task.xq.sweep()
        assert run_pending(Task) == 1


def test_a_deploy_replaces_the_schedules_and_an_older_program_does_not_bring_them_back(tasks, monkeypatch, caplog):
    every(60, jobs.add, args=[1])
    run_pending(Task)
    given = {"SCHEDULES": {"late": ("@daily", "tests.django.shop.jobs.note", {"args": ["x"], "priority": 9})}}
    with monkeypatch.context() as newer, backend(OPTIONS=given):
        newer.setattr(schedules, "_declared", {})
        run_pending(Task)
        assert listed() == [("late", "@daily", "UTC")]
    run_pending(Task)  # the older program
    assert "run manage.py xq install xq_tasks.Task --downgrade" in caplog.text
    assert listed() == [("late", "@daily", "UTC")]
    monkeypatch.setattr(schedules, "_declared", {})
    run_pending(Task)
    assert listed() == []


def test_what_cannot_be_a_schedule_is_refused_where_it_stands(tasks):
    every(60, jobs.add, args=[1])
    every(60, jobs.add, args=[1])  # the module is imported again
    for wrong, error in (
        (lambda: every("61 * * * *", jobs.add), xq.BadValue),
        (lambda: every(60, jobs.no_task), xq.BadType),
        (lambda: every(60, jobs.add, args=[2]), xq.ConfigurationError),
    ):
        with pytest.raises(error):
            wrong()
    for value in ((60,), ("61 * * * *", "tests.django.shop.jobs.add"), (60, "tests.django.shop.jobs.gone")):
        with (
            backend(OPTIONS={"SCHEDULES": {"a": value}}),
            pytest.raises(xq.ConfigurationError, match=r"\['SCHEDULES'\]\['a'\] is \(spec, path of a task\)"),
        ):
            run_pending(Task)


def test_many_tasks_are_enqueued_in_order_all_or_none(tasks):
    enqueued = list[str]()
    task_enqueued.connect(receiver := lambda task_result, **_: enqueued.append(task_result.id))
    calls = [((n,), {"b": 1}) for n in range(250)]
    results = enqueue_many(jobs.add, calls)
    assert [result.id for result in results] == enqueued
    task_enqueued.disconnect(receiver)
    with pytest.raises(TypeError, match="Unsupported type"):
        enqueue_many(jobs.add, [((1,), {}), ((object(),), {})])
    with transaction.atomic():
        enqueue_many(jobs.add, calls)
        transaction.set_rollback(True)
    assert enqueue_many(jobs.add, []) == []
    assert Task.objects.count() == 250
    run_pending(Task)
    for n in (0, 199, 200, 249):
        results[n].refresh()
        assert results[n].return_value == n + 1
    with backend(QUEUES=["mail"]), pytest.raises(InvalidTaskError):
        enqueue_many(jobs.add, [((1,), {})])


def test_many_tasks_are_enqueued_in_a_coroutine_and_by_other_backends(tasks):
    (result,) = asynchronously(lambda: aenqueue_many(jobs.add, [((1,), {})]))
    assert Task.objects.filter(pk=result.id).exists()
    with backend(f"{NAME}.backends.immediate.ImmediateBackend"):
        done = enqueue_many(jobs.add, [((1,), {}), ((2,), {"b": 1})])
        assert [(each.status, each.return_value) for each in done] == [(TaskResultStatus.SUCCESSFUL, n) for n in (1, 3)]
