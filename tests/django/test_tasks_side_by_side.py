"""One program on xq's backend and on django-tasks-db's: it must tell the same; where it does not, a test says so."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from django_tasks import TaskResultStatus, default_task_backend
from django_tasks.exceptions import TaskException
from django_tasks.signals import task_enqueued, task_finished, task_started

from tests.django.conftest import DjangoDatabase
from tests.django.on_tasks import asynchronously, backend, install
from tests.django.shop import jobs
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.worker import run

PAST, FUTURE = datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)

Work = Callable[[], None]
Program = Callable[[Work], Any]


def with_xq(database: DjangoDatabase, program: Program) -> Any:
    with backend(QUEUES=["default", "special"]):
        install(database)
        return program(lambda: run(until_empty=True))


def with_django_tasks_db(database: DjangoDatabase, program: Program) -> Any:
    with backend("django_tasks_db.DatabaseBackend", "django_tasks_db", QUEUES=["default", "special"]):
        from django_tasks_db.management.commands.db_worker import Worker
        from django_tasks_db.models import DBTaskResult

        database.create(DBTaskResult)

        def work() -> None:
            Worker(
                queue_names=["*"],
                excluded_queue_names=[],
                interval=0,
                batch=True,
                backend_name="default",
                startup_delay=False,
                max_tasks=None,
                worker_id=uuid.uuid4().hex,
            ).run()

        return program(work)


def told(result: Any) -> dict[str, Any]:
    """What a result says, but for what is another in each run: its id and its times."""
    times = ("enqueued_at", "started_at", "last_attempted_at", "finished_at")
    known = [getattr(result, name) for name in times if getattr(result, name)]
    assert known == sorted(known)
    assert isinstance(result.id, str)
    assert len(result.id) <= 64
    same = ("task", "status", "args", "kwargs", "backend", "is_finished", "attempts")
    return {name: getattr(result, name) for name in same} | {
        "times": [getattr(result, name) is not None for name in times],
        "errors": [error.exception_class_path for error in result.errors],
        "where": ["File" in error.traceback for error in result.errors],
        "workers": len(result.worker_ids),
        "returned": tried(lambda: result.return_value),
    }


def tried(call: Callable[[], Any]) -> Any:
    """What it returns, or says instead."""
    try:
        return call()
    except (ValueError, TypeError, TaskException, ImportError) as error:
        return f"{type(error).__name__}: {error}"


def life(work: Work) -> Any:
    """Tasks of all kinds, as enqueued, as found by their ids, as run."""
    asked = [
        lambda: jobs.add.enqueue(2, b=3),
        lambda: jobs.add.using(priority=-50, queue_name="special").enqueue(1),
        lambda: jobs.note.using(run_after=PAST).enqueue({"a": [1, (2,)]}),
        lambda: jobs.note.using(run_after=FUTURE).enqueue("later"),
        lambda: jobs.later.enqueue(21),
        lambda: jobs.tell.enqueue("a", 1),
        lambda: jobs.fail.enqueue("no order 7"),
        lambda: jobs.leave.enqueue(3),
        *(lambda what=what: jobs.give.enqueue(what) for what in ("object", "set", "tuple", "nested")),
        lambda: jobs.echo.enqueue(1.5, None, True, b"bytes", key="ключ"),
        lambda: asynchronously(lambda: jobs.add.aenqueue(5)),
    ]
    results = [call() for call in asked]
    names = ("defer", "async_task", "get_result", "priority")
    enqueued = [told(result) for result in results]
    found = [told(result.task.get_result(result.id)) for result in results]
    work()
    for result in results:
        result.refresh()
    return {
        "supported": {name: getattr(default_task_backend, f"supports_{name}") for name in names},
        "enqueued": enqueued,
        "found": found,
        "run": [told(result) for result in results],
        "found then": [told(asynchronously(partial(result.task.aget_result, result.id))) for result in results],
    }


def refusals(work: Work) -> Any:
    """What is refused, in the words of whoever refuses it."""
    result = jobs.add.enqueue(1)
    return [
        tried(call)
        for call in (
            lambda: jobs.echo.enqueue({1}),
            lambda: jobs.echo.enqueue(b"\xff"),
            lambda: jobs.add.using(priority=101),
            lambda: jobs.add.using(queue_name="unknown"),
            lambda: jobs.add.using(run_after=timezone.now().replace(tzinfo=None)),
            lambda: jobs.fail.get_result(result.id),
            lambda: jobs.add.get_result("no uuid"),
            lambda: jobs.add.get_result(str(uuid.UUID(int=7))),
            lambda: asynchronously(lambda: jobs.add.aget_result("no uuid")),
            lambda: result.return_value,
        )
    ]


def order(work: Work) -> Any:
    """The order in which tasks are run: by priority, and among equals the older first."""
    for place, priority in enumerate((0, -100, 100, 7, 0, 7, 100)):
        jobs.note.using(priority=priority).enqueue([priority, place])
    work()
    return list(jobs.seen)


def signals(work: Work) -> Any:
    """Who is told of what, and how the result is then."""
    heard: list[Any] = []

    def hear(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
        found = default_task_backend.get_result(task_result.id)
        heard.append((names[signal], sender is type(default_task_backend), told(task_result), str(found.status)))

    names = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}
    for signal in names:
        signal.connect(hear)
    try:
        for call in (lambda: jobs.add.enqueue(1), jobs.fail.enqueue, jobs.later.using(priority=-3).enqueue):
            call(*([2] if call == jobs.later.enqueue else []))
        jobs.later.enqueue(4)
        work()
    finally:
        for signal in names:
            signal.disconnect(hear)
    return heard


def transactions(work: Work) -> Any:
    """What is undone with the application's transaction was never enqueued."""
    with transaction.atomic():
        jobs.note.enqueue("undone")
        transaction.set_rollback(True)
    with transaction.atomic():
        result = jobs.note.enqueue("done")
        read = told(jobs.note.get_result(result.id))
    work()
    return [read, list(jobs.seen)]


def gone(work: Work) -> Any:
    """A task whose function is no more, when it is run and when its result is asked for."""
    result = jobs.fleeting.enqueue()
    kept = jobs.fleeting
    del jobs.fleeting
    try:
        work()
        asked = tried(lambda: default_task_backend.get_result(result.id))
    finally:
        jobs.fleeting = kept
    result.refresh()
    return [asked, told(result)]


@pytest.mark.parametrize("program", [life, refusals, order, signals, transactions, gone], ids=lambda one: one.__name__)
def test_a_program_tells_the_same_with_either_backend(django_db, program):
    theirs = with_django_tasks_db(django_db, program)
    ours = with_xq(django_db, program)
    assert ours == theirs


def test_bytes_that_are_text_are_returned_as_text_as_the_immediate_backend_does(django_db):
    def program(work: Work) -> Any:
        result = jobs.give.enqueue("text")
        work()
        result.refresh()
        return tried(lambda: result.return_value)

    assert with_xq(django_db, program) == "text"
    with backend("django_tasks.backends.immediate.ImmediateBackend"):
        assert jobs.give.enqueue("text").return_value == "text"
    assert with_django_tasks_db(django_db, program) == "ValueError: Task failed"


def test_a_task_whose_worker_died_stays_with_django_tasks_db_and_is_run_again_by_xq(django_db):
    """A session that ends in the middle, as a process does that is killed; with kill -9 in test_tasks."""

    def program(work: Work, die: Callable[[], None]) -> Any:
        result = jobs.note.enqueue("done")
        die()
        work()
        result.refresh()
        return result.status

    def theirs(work: Work) -> Any:
        from django_tasks_db.models import DBTaskResult

        return program(work, lambda: DBTaskResult.objects.get().claim("a worker that is killed"))

    def ours(work: Work) -> Any:
        def die() -> None:
            with Task.xq.session():
                assert Task.xq.take().begin()

        return program(work, die)

    assert with_django_tasks_db(django_db, theirs) == TaskResultStatus.RUNNING
    assert jobs.seen == []
    assert with_xq(django_db, ours) == TaskResultStatus.SUCCESSFUL
    assert jobs.seen == ["done"]
