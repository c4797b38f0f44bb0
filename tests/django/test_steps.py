"""Durable steps of the tasks of django.tasks, and of an app's own models."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import transaction

import xq
from tests.django.conftest import DjangoDatabase, forget_connections
from tests.django.names import task, task_finished, task_started
from tests.django.on_tasks import backend, install, upgrade_for_this_database, worker_process
from tests.django.shop import jobs
from tests.django.sites import TABLES
from tests.steps import STUCK
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.worker import run
from xq.testing import clock, run_pending

DAY = 86_400


@task
def stumble(fails: int) -> None:
    """Fail once after each of so many new steps, and from then on without one."""
    for n in range(fails):
        is_new = n not in jobs.seen
        xq.step(f"step {n}", jobs.did, n)
        if is_new:
            break
    raise LookupError("no such order")


@task
def write(name: str, tries: int = 1) -> None:
    """Write in the transaction of a step's record, which fails but for the last of the tries."""
    with transaction.atomic():
        Group.objects.create(name=name)
        xq.step("written", jobs.did, name)
        if jobs.seen.count(name) < tries:
            raise xq.Retry(0)


@task
async def awrite(name: str) -> None:
    await xq.step("written", sync_to_async(write_with_atomic), name)


def write_with_atomic(name: str) -> str:
    with transaction.atomic():
        Group.objects.create(name=jobs.did(name))
    return name


@pytest.fixture
def tasks(django_db: DjangoDatabase) -> Iterator[DjangoDatabase]:
    """A database with the table of tasks, whose functions may have steps."""
    with backend(OPTIONS={"steps": True}):
        install(django_db)
        yield django_db
        asyncio.run(sync_to_async(forget_connections)())  # in the thread of the coroutines
    upgrade_for_this_database()


@pytest.fixture
def sent(tasks: DjangoDatabase) -> Iterator[list[str]]:
    """The signals of a worker, in their order."""
    names = list[str]()
    begun = lambda **given: names.append("started")  # noqa: E731 (each is a receiver of its own)
    ended = lambda **given: names.append("finished")  # noqa: E731
    task_started.connect(begun)
    task_finished.connect(ended)
    yield names
    task_started.disconnect(begun)
    task_finished.disconnect(ended)


@pytest.mark.parametrize("options", [{}, {"coroutines": 2}])
@pytest.mark.parametrize("job", [jobs.ship, jobs.aship])
def test_a_task_sleeps_and_waits_without_a_worker_and_goes_on_as_the_same_attempt(tasks, sent, job, options):
    result = job.enqueue("ann")
    with clock(Task) as now:
        run(until_empty=True, worker_id="one", **options)
        result.refresh()
        first = result.last_attempted_at
        assert (str(result.status), result.worker_ids, first) == ("READY", ["one"], result.started_at)
        now.tick(DAY)
        Task.xq.sweep()
        run(until_empty=True, worker_id="two", **options)
        result.refresh()
        assert (result.worker_ids, Task.objects.get().xq_awaits) == (["two"], "approved")
        assert Task.xq.signal(result.id, "approved", {"by": "bob"})
        assert not Task.xq.signal(result.id, "approved")
        run(until_empty=True, worker_id="three", **options)
    result.refresh()
    assert result.return_value == ["charged ann", {"by": "bob"}, "shipped"]
    assert (result.attempts, result.worker_ids, result.last_attempted_at) == (1, ["three"], first)
    assert (jobs.seen, sent) == (["charged ann", "shipped"], ["started", "finished"])


@pytest.mark.parametrize("job", [jobs.ship, jobs.aship])
def test_a_task_that_goes_on_in_another_process_is_the_same_attempt(tasks, job):
    result = job.enqueue("ann")
    Task.xq.signal(result.id, "approved", 7)
    for n in range(2):
        with worker_process(tasks, "--kind", "process", "--until-empty", OPTIONS={"steps": True}) as worker:
            assert worker.wait(STUCK) == 0
        result.refresh()
        assert (str(result.status), result.attempts) == (("READY", "SUCCESSFUL")[n], 1)
        if not n:
            Task.xq.restart(result.id)
    assert result.return_value == ["charged ann", 7, "shipped"]


def test_an_attempt_that_fails_or_is_lost_after_a_sleep_is_followed_by_another_one(tasks, sent):
    result = jobs.ship.enqueue("ann")
    with clock(Task) as now:
        assert run_pending(Task) == 1
        now.tick(DAY)
        Task.xq.sweep()
        lost = Task.xq.take()
        assert (lost.goes_on, lost.attempts, lost.xq_workers()) == (True, 1, lost.worker_ids[-1:])
        Task.xq.snatch(result.id)
        assert run_pending(Task) == 1
        result.refresh()
        assert (result.attempts, Task.objects.get().attempts, sent) == (2, 2, ["started", "started"])
        assert result.last_attempted_at > result.started_at
        now.tick(DAY)
        assert (Task.xq.sweep(), run_pending(Task)) == (1, 1)
        result.refresh()
        assert result.errors[0].exception_class is TimeoutError
        assert (str(result.status), result.attempts, sent[-1]) == ("FAILED", 2, "finished")


def test_a_recorded_step_begins_the_attempts_of_max_attempts_anew(tasks):
    result = stumble.enqueue(3)
    with clock(Task), backend(OPTIONS={"steps": True, "max_attempts": 2, "backoff": [0]}):
        assert run_pending(Task) == 4
        result.refresh()
    assert (str(result.status), len(result.errors), jobs.seen) == ("FAILED", 4, [0, 1, 2])


def test_the_record_of_a_step_is_part_of_the_transaction_around_it(tasks):
    tasks.create(*TABLES)
    with clock(Task), backend(OPTIONS={"steps": True, "max_attempts": 2}):
        result, another = write.enqueue("ann", 2), awrite.enqueue("bob")
        assert run_pending(Task) == 3
    assert jobs.seen == ["ann", "ann", "bob"]
    assert [group.name for group in Group.objects.order_by("name")] == ["ann", "bob"]
    for each in (result, another):
        each.refresh()
        assert str(each.status) == "SUCCESSFUL"


def test_a_signal_is_undone_with_the_transaction_of_its_view(tasks):
    result = jobs.ship.enqueue("ann")
    with transaction.atomic():
        assert Task.xq.signal(result.id, "approved")
        transaction.set_rollback(True)
    assert Task.xq.signal(uuid.UUID(result.id), "approved", 7)
    for key in ("no key", str(uuid.uuid4())):
        with pytest.raises((xq.BadType, xq.BadValue, xq.NotFound)):
            Task.xq.signal(key, "approved")


def test_a_task_with_steps_needs_their_option(django_db):
    said = 'which Task does not have: write "steps": True into OPTIONS of a backend in TASKS'
    with backend():
        install(django_db)
        result = jobs.ship.enqueue("ann")
        run(until_empty=True)
        result.refresh()
        assert re.search(said, result.errors[0].traceback)
        assert result.errors[0].exception_class is xq.FeatureOff
        with pytest.raises(xq.FeatureOff, match=said):
            Task.xq.signal(result.id, "approved")


def test_migrate_installs_steps_where_they_are_asked_for_and_older_processes_go_on_enqueueing(django_db):
    for options in ({}, {"steps": True}):
        with backend(OPTIONS=options):
            upgrade_for_this_database()
            django_db.migrate("xq_tasks")
            call_command("makemigrations", "xq_tasks", check=True, dry_run=True, verbosity=0)
            assert Task.xq.check() == []
    with backend():
        upgrade_for_this_database()
        older = jobs.ship.enqueue("ann")
        with pytest.raises(xq.NotInstalled, match="the feature 'steps' is on there and off here"):
            Task.xq.take()
    with backend(OPTIONS={"steps": True}):
        upgrade_for_this_database()
        assert run_pending(Task) == 1
        older.refresh()
        assert (str(older.status), jobs.seen) == ("READY", ["charged ann"])
        django_db.migrate("xq_tasks", "0003")
    upgrade_for_this_database()


# an app's own models

STEPS = {"steps": True, "delayed": True, "buried": True, "keep": True}


def test_a_stale_save_keeps_the_records_and_what_a_task_waits_for(make):
    Order = make(STEPS, roles=("runat", "attempts"))
    stale, seen = Order.put({"name": "a"}), list[Any]()

    @Order.xq.worker
    def work(order: Any) -> None:
        xq.step("first", seen.append, "first")
        order.name = "b"
        order.save()
        xq.step("second", seen.append, "second")
        order.save()
        seen.append(xq.wait_for("approved"))

    assert run_pending(work, raises=True) == 1
    stale.size = 7
    stale.save()
    found = Order.objects.get()
    assert (found.size, found.status, found.xq_awaits, found.xq_steps.count("\n")) == (7, "W", "approved", 3)
    Order.xq.signal(stale.pk, "approved", "yes")
    found.save()
    assert (run_pending(work, raises=True), seen) == (1, ["first", "second", "yes"])


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_of_a_model_is_undone_with_the_atomic_block_around_it(make, fails):
    Order = make(STEPS, roles=("runat",))
    order, seen = Order.put({"name": "a"}), list[str]()

    @Order.xq.worker
    def work(found: Any) -> None:
        with suppress(LookupError), transaction.atomic():
            xq.step("write", lambda: Order.objects.filter(pk=found.pk).update(name="b"))
            seen.append(Order.objects.get().name)
            if fails:
                raise LookupError
        xq.sleep("a day", 86_400)

    run_pending(work, raises=True)
    found = Order.objects.get(pk=order.pk)
    assert (found.name, "write" in found.xq_steps, seen) == ("a" if fails else "b", not fails, ["b"])


def test_the_columns_of_steps_are_found_by_makemigrations_and_installed(app):
    text = "class Task(models.Model):\n    size = models.IntegerField()\n    class Meta:\n        abstract = True\n"
    for features, columns in (({}, []), (STEPS, ["xq_awaits", "xq_steps"])):
        app.models(f"{text}\n@queue(features={features!r})\nclass Order(Task):\n    pass\n")
        said = app.run("makemigrations", app.label)
        assert re.findall("Add field (xq_awaits|xq_steps)", said) == columns
        app.run("migrate", interactive=False)
        assert app.Order.xq.check() == []
    app.Order.xq.worker(lambda order: xq.sleep("a day", 86_400))
    app.Order.put({"size": 1})
    assert (run_pending(app.Order, raises=True), app.Order.xq.count("W")) == (1, 1)
