"""django.tasks on a queue: what its documentation promises."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import django
import pytest
from django.contrib import admin
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connections, transaction
from django.test import modify_settings, override_settings
from django.utils import timezone
from django.utils.html import strip_tags
from django_tasks import TaskResultStatus, default_task_backend, task_backends
from django_tasks.exceptions import InvalidTaskBackendError, TaskException, TaskResultDoesNotExist
from django_tasks.signals import task_enqueued, task_finished, task_started

import xq
from tests.django.conftest import DjangoDatabase
from tests.django.on_tasks import asynchronously, backend, install, upgrade_for_this_database
from tests.django.shop import jobs
from tests.steps import eventually, fail_for
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.worker import perform, run
from xq.metrics import WorkerCounts
from xq.testing import clock, run_pending


@pytest.fixture
def tasks(django_db: DjangoDatabase) -> Iterator[DjangoDatabase]:
    """A database with the table of tasks, and the settings that name it."""
    with backend():
        install(django_db)
        yield django_db


def work(*results: Any, **options: Any) -> list[str]:
    """Run what is ready; the states of these results, which are read anew."""
    run(until_empty=True, **options)
    for result in results:
        result.refresh()
    return [str(result.status) for result in results]


def row(result: Any) -> Any:
    return Task.objects.get(pk=result.id)


def test_text_that_a_database_has_no_json_for_is_kept(tasks):
    odd = ["a\0b", "\ud800", "'\"\\%s?", float("inf"), 10**30]
    results = [jobs.echo.enqueue(*odd), jobs.give.enqueue("zero"), jobs.fail.enqueue("a\0b\ud800 %s")]
    assert work(*results) == ["SUCCESSFUL", "SUCCESSFUL", "FAILED"]
    assert [result.return_value for result in results[:2]] == [[odd, {}], "a\0b"]
    assert "a\\x00b" in results[2].errors[0].traceback


def test_a_task_whose_end_the_database_refuses_has_failed(tasks):
    result, after = jobs.add.enqueue(1), jobs.note.enqueue("b")
    fail_for(Task, "NEW.task_path LIKE '%add' AND NEW.status = 'SUCCESSFUL'")
    assert work(result, after) == ["FAILED", "SUCCESSFUL"]
    assert issubclass(result.errors[0].exception_class, DatabaseError)
    with backend(OPTIONS={"max_attempts": 2}):
        result = jobs.add.enqueue(1)
        assert (run_pending(Task), row(result).status) == (1, "WAITING")


def test_a_project_without_zones_gives_times_with_or_without(tasks):
    with override_settings(USE_TZ=False):
        connections["default"].close()  # what it reads depends on the setting
        now = timezone.now()
        late = jobs.note.using(run_after=now + timedelta(days=1)).enqueue("late")
        jobs.note.using(run_after=datetime.now(UTC) + timedelta(days=1)).enqueue("late, too")
        jobs.note.using(run_after=now - timedelta(seconds=1)).enqueue("now")
        work()
        assert jobs.seen == ["now"]
        assert timezone.is_naive(jobs.note.get_result(late.id).task.run_after)
    connections["default"].close()


def test_a_task_may_be_for_any_moment_that_python_has(tasks):
    moments = (datetime(2999, 7, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    stored = [row(jobs.note.using(run_after=moment).enqueue("late")).runat for moment in moments]
    assert [datetime.fromtimestamp(each, UTC).year for each in stored] == [2999, 9999]


def test_a_worker_is_told_of_queues_that_nobody_puts_into(tasks):
    with backend(QUEUES=["mail", "slow"]), pytest.raises(xq.ConfigurationError, match="'mial': there are mail, slow"):
        work(queues=["mail", "mial"])


# results


def test_a_task_that_misuses_its_connection_ends_all_the_same(tasks):
    results = [jobs.misuse.enqueue(how) for how in ("close", "break", "open")] + [jobs.add.enqueue(1)]
    assert work(*results) == ["SUCCESSFUL", "SUCCESSFUL", "FAILED", "SUCCESSFUL"]
    assert results[2].errors[0].exception_class is xq.LeftOpen


def test_a_task_whose_function_is_gone_or_is_no_task_has_failed(tasks):
    errors = {
        "tests.django.no_such_module.f": "builtins.ModuleNotFoundError",
        "tests.django.shop.jobs.gone": "builtins.ImportError",
        "nowhere": "builtins.ImportError",
        "tests.django.shop.jobs.no_task": "django.core.exceptions.SuspiciousOperation",
    }
    results = {path: jobs.add.enqueue(1) for path in errors}
    for path, result in results.items():
        Task.objects.filter(pk=result.id).update(task_path=path)
    assert work(jobs.add.enqueue(2)) == ["SUCCESSFUL"]
    for path, result in results.items():
        assert (row(result).status, row(result).exception_class_path) == ("FAILED", errors[path])


# as tasks of a queue


def test_results_stay_as_long_as_the_options_say(tasks):
    with backend(OPTIONS={"keep": 0.01, "keep_failed": 3600}):
        good, bad = jobs.add.enqueue(1), jobs.fail.enqueue()
        work()
    with backend(OPTIONS={"keep": None, "keep_failed": 0}):
        kept, forgotten = jobs.add.enqueue(2), jobs.fail.enqueue()
        work()
    eventually(lambda: Task.xq.sweep() or Task.objects.count() == 2)
    found = Task.objects.values_list("pk", flat=True)
    assert {str(key) for key in found} == {bad.id, kept.id}
    for gone in (good, forgotten):
        with pytest.raises(TaskResultDoesNotExist):
            gone.refresh()


def test_a_task_that_failed_is_dug_out_and_one_that_is_done_restarted(tasks):
    bad, good = jobs.fail.enqueue(), jobs.add.enqueue(1)
    assert work(bad, good) == ["FAILED", "SUCCESSFUL"]
    Task.xq.dig(bad.id)
    Task.xq.restart(good.id)
    for result in (bad, good):
        result.refresh()
        assert (result.status, result.errors) == (TaskResultStatus.READY, [])
    assert work(bad, good) == ["FAILED", "SUCCESSFUL"]
    for result in (bad, good):
        assert result.attempts == 2
        assert result.started_at < result.last_attempted_at


def test_the_admin_shows_tasks_in_the_words_of_django_tasks_and_lets_nobody_edit_them(tasks):
    from xq.adapters.django.tasks.admin import TaskAdmin

    admin.site._registry.pop(Task, None)  # that import has put it there
    shown, (failed, done) = TaskAdmin(Task, admin.AdminSite()), (jobs.fail.enqueue(), jobs.add.enqueue(1))
    assert work(failed, done) == [strip_tags(shown.xq_state(row(each))) for each in (failed, done)]
    assert shown.xq_failure(row(failed)) == "builtins.LookupError"
    assert shown.get_readonly_fields(None) == [field.name for field in Task._meta.fields]


def test_a_task_whose_workers_die_with_it_has_failed_after_some(tasks):
    result = jobs.add.enqueue(1)
    with backend(OPTIONS={"max_attempts": 2}):
        for _ in range(2):
            assert Task.xq.take().begin()
            Task.xq.snatch(result.id)
        assert work(result) == ["FAILED"]
        (error,) = result.errors
        assert error.exception_class_path == "xq.adapters.django.tasks.worker.WorkerDied"
        assert "2 times" in error.traceback
        Task.xq.dig(result.id)
        assert work(result) == ["SUCCESSFUL"]


RETRIES = {"max_attempts": 3, "backoff": [10, 20]}
# The options of the backend, what the task raises, and after how many seconds it is tried again before it has failed.
TRIED: list[tuple[dict[str, Any], str, list[int]]] = [
    ({}, "Retry", [60] * 4),
    ({"max_attempts": None}, "LookupError", []),
    (RETRIES, "Retry()", [10, 20]),
    (RETRIES, "LookupError", [10, 20]),
    (RETRIES, "Bury", []),
    ({"backoff": lambda row, error: 5 * row.attempts}, "LookupError", [5, 10, 15, 20]),
]


@pytest.mark.parametrize(("options", "raised", "pauses"), TRIED)
def test_a_task_is_tried_again_after_the_pauses_of_its_backend(tasks, caplog, options, raised, pauses):
    caplog.set_level("INFO", "xq.Task")
    with backend(OPTIONS=options), clock(Task) as now:
        result = jobs.end.enqueue(raised)
        for pause in pauses:
            assert run_pending(Task) == 1
            result.refresh()
            assert (result.status, result.errors) == ("READY", [])
            assert row(result).runat == pytest.approx(now.now + pause, rel=0, abs=0.01)
            now.tick(pause)
        assert run_pending(Task) == 1
        result.refresh()
        assert (result.status, result.attempts) == ("FAILED", len(pauses) + 1)
        assert result.errors[0].exception_class.__name__ == raised.removesuffix("()")
    most = options.get("max_attempts", 5)
    for n, line in enumerate([line for line in caplog.messages if line.startswith("task ")], 1):
        assert line.startswith(f"task {result.id} (tests.django.shop.jobs.end) ")
        assert f" (attempt {n} of {most}" in line if most else f" (attempt {n})" in line
    assert (n, "failed for good and is buried" in line) == (len(pauses) + 1, True)


def test_the_metrics_of_a_worker_name_the_queues_of_the_settings_and_the_tasks(tasks):
    counts = WorkerCounts([*Task.xq.handlers.values()], ["Task"], tubes=["mail"])
    for name in ("mail", "customer-7"):
        jobs.note.using(queue_name=name).enqueue("a")
    jobs.fail.enqueue()
    assert run_pending(Task) == 3
    counts.writer.close()
    counts.read()
    (family,) = counts.metrics["attempt"].collect()
    found = [[*each.labels.values()] for each in family.samples if each.name.endswith("_total") and each.value == 1]
    note, fail = ("tests.django.shop.jobs.note", "returned"), ("tests.django.shop.jobs.fail", "bury")
    assert found == [["Task", "mail", *note], ["Task", "", *note], ["Task", "", *fail]]


def test_a_task_that_is_discarded_is_gone_and_one_that_leaves_the_process_has_failed_at_once(tasks):
    with backend(OPTIONS=RETRIES):
        gone, left = jobs.end.enqueue("Discard"), jobs.leave.enqueue(3)
        assert work(left) == ["FAILED"]
    with pytest.raises(TaskResultDoesNotExist):
        gone.refresh()


def test_a_task_that_is_taken_away_before_it_has_begun_is_not_run_by_who_had_it(tasks):
    result = jobs.note.enqueue("once")
    first = Task.xq.take()
    Task.xq.snatch(first.pk)
    second = Task.xq.take()
    perform(first)
    assert (jobs.seen, row(result).status, row(result).worker_ids) == ([], "RUNNING", [])
    assert second.begin()
    assert len(row(result).worker_ids) == 1


def test_the_command_runs_the_tasks_of_its_queues_ends_after_so_many_and_has_an_id(tasks):
    def command(*words: str) -> list[str]:
        jobs.seen.clear()
        call_command("xq_worker", *words, verbosity=0)
        return sorted(jobs.seen)

    with backend(QUEUES=["default", "mail", "slow"]):
        for name in ("default", "mail", "mail", "slow", "slow"):
            last = jobs.note.using(queue_name=name).enqueue(name)
        assert command("--queue", "mail", "--max-tasks", "1") == ["mail"]
        assert command("--exclude-queue", "slow", "--workers", "2", "--until-empty") == ["default", "mail"]
        assert command("--worker-id", "b", "--until-empty") == ["slow", "slow"]
        last.refresh()
        assert last.worker_ids == ["b"]
        all_of_them = [f"--exclude-queue={name}" for name in ("default", "mail", "slow")]
        for words in (all_of_them, ["--queue=mail", "--exclude-queue=mail"]):
            with pytest.raises(CommandError, match="no queue is left"):
                command(*words)
    with pytest.raises(CommandError, match="name all queues in QUEUES"):
        command("--exclude-queue", "slow")


# settings, migrations and checks


def test_its_migrations_install_what_its_model_is(django_db):
    with backend():
        upgrade_for_this_database()
        django_db.migrate("xq_tasks")
        call_command("makemigrations", "xq_tasks", check=True, dry_run=True, verbosity=0)
        call_command("xq_makemigration", "xq_tasks.Task", check=True, verbosity=0)
        assert Task.xq.check() == []
        assert work(jobs.add.enqueue(1)) == ["SUCCESSFUL"]
        django_db.migrate("xq_tasks", "zero")
    assert connections["default"].introspection.table_names() == ["django_migrations"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kep": 1}, r"TASKS\['default'\]\['OPTIONS'\] has no 'kep': it has keep, keep_failed, max_attempts, backoff"),
        (["keep"], "is a dictionary, not"),
        ({"keep": -1, "max_attempts": 1.5}, "'keep'.*; .*'max_attempts'"),
        ({"keep": float("nan")}, "seconds"),
        ({"keep_failed": True}, "seconds"),
        ({"max_attempts": 0}, "a number from 1 to 1,000,000"),
        ({"backoff": []}, "a list of seconds, or a function"),
    ],
)
def test_options_that_are_wrong_are_refused_in_words(options, words):
    with backend(OPTIONS=options), pytest.raises(InvalidTaskBackendError, match=words):
        _ = task_backends["default"]


def test_a_check_names_the_app_that_is_missing():
    with backend():
        assert [one for one in checks.run_checks() if one.id == "xq.E010"] == []
        with modify_settings(INSTALLED_APPS={"remove": "xq.adapters.django.tasks"}):
            (found,) = [one for one in checks.run_checks() if one.id == "xq.E010"]
    assert "INSTALLED_APPS" in found.hint


# one program on xq's backend and on django-tasks-db's: it must tell the same

PAST, FUTURE = datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)

Work = Callable[[], object]
Program = Callable[[Work], Any]


def with_xq(database: DjangoDatabase, program: Program) -> Any:
    with backend(QUEUES=["default", "special"]):
        install(database)
        return program(work)


def with_django_tasks_db(database: DjangoDatabase, program: Program) -> Any:
    with backend("django_tasks_db.DatabaseBackend", "django_tasks_db", QUEUES=["default", "special"]):
        from django_tasks_db.management.commands.db_worker import Worker
        from django_tasks_db.models import DBTaskResult

        database.create(DBTaskResult)
        named = {"queue_names": ["*"], "excluded_queue_names": [], "backend_name": "default", "worker_id": "theirs"}
        return program(lambda: Worker(interval=0, batch=True, startup_delay=False, max_tasks=None, **named).run())


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
    stale = [str(result.status) for result in results]
    for result in results:
        result.refresh()
    return {
        "as read before": stale,
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
    names = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}
    heard: list[Any] = []

    def hear(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
        found = default_task_backend.get_result(task_result.id)
        heard.append((names[signal], sender is type(default_task_backend), told(task_result), str(found.status)))

    for signal in names:
        signal.connect(hear)
    try:
        jobs.add.enqueue(1)
        jobs.fail.enqueue()
        jobs.later.using(priority=-3).enqueue(2)
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


@pytest.mark.skipif(django.VERSION < (5, 1), reason="django-tasks-db has a constraint that Django has from 5.1 on")
@pytest.mark.parametrize("program", [life, refusals, order, signals, transactions], ids=lambda one: one.__name__)
def test_a_program_tells_the_same_with_either_backend(django_db, program):
    theirs = with_django_tasks_db(django_db, program)
    ours = with_xq(django_db, program)
    assert ours == theirs
