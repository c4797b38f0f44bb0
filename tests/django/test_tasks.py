"""django.tasks on a queue: what its documentation promises."""

from __future__ import annotations

import io
import logging
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connections, transaction
from django.test import modify_settings, override_settings
from django.utils import timezone
from django_tasks import TaskResultStatus, default_task_backend, task_backends
from django_tasks.exceptions import (
    InvalidTaskBackendError,
    InvalidTaskError,
    TaskResultDoesNotExist,
)
from django_tasks.signals import task_finished, task_started

import xq
from tests.django.conftest import DjangoDatabase
from tests.django.on_tasks import BACKEND, asynchronously, backend, install, upgrade_for_this_database, worker_process
from tests.django.shop import jobs
from tests.steps import STUCK, eventually, fail_for
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.worker import perform, run

LOGGERS = ("django_tasks", "django.tasks")  # of the package, and of Django 6


@pytest.fixture
def tasks(django_db: DjangoDatabase) -> Iterator[DjangoDatabase]:
    """A database with the table of tasks, and the settings that name it."""
    with backend():
        install(django_db)
        yield django_db


def work(**options: Any) -> None:
    """Run what is ready."""
    run(until_empty=True, **options)


def row(result: Any) -> Any:
    return Task.objects.get(pk=result.id)


@contextmanager
def heard(*signals: Any) -> Iterator[list[tuple[Any, Any]]]:
    """The senders of these signals, and the results they sent, as they were then."""
    found: list[tuple[Any, Any]] = []

    def hear(sender: Any, task_result: Any, **_: Any) -> None:
        found.append((sender, task_result))

    for one in signals:
        one.connect(hear)
    try:
        yield found
    finally:
        for one in signals:
            one.disconnect(hear)


# enqueueing


def test_a_task_that_was_run_has_its_return_value(tasks):
    result = jobs.add.enqueue(2, b=3)
    work()
    assert result.status == TaskResultStatus.READY  # as it was when it was read
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.is_finished
    assert result.return_value == 5
    assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at
    assert result.attempts == len(result.worker_ids) == 1
    assert result.errors == []


def test_text_that_a_database_has_no_json_for_is_kept(tasks):
    odd = ["a\0b", "\ud800", "'\"\\%s?", float("inf"), 10**30]
    result = jobs.echo.enqueue(*odd)
    given = [jobs.give.enqueue(what) for what in ("zero", "half")]
    failed = jobs.fail.enqueue("a\0b\ud800 %s")
    work()
    result.refresh()
    assert result.return_value == [odd, {}]
    assert [jobs.give.get_result(one.id).return_value for one in given] == ["a\0b", "\ud800"]
    assert "a\\x00b" in jobs.fail.get_result(failed.id).errors[0].traceback


@pytest.mark.parametrize("refused", ["", "OR (NEW.status = 'FAILED' AND NEW.traceback <> '')"])
def test_a_task_whose_end_the_database_refuses_has_failed(tasks, refused):
    """By a trigger of the application's, or since a server's character set lacks what is in a text."""
    result, after = jobs.add.enqueue(1), jobs.note.enqueue("b")
    fail_for(Task, f"NEW.task_path LIKE '%add' AND (NEW.status = 'SUCCESSFUL' {refused})")
    work()
    result.refresh()
    after.refresh()
    assert (result.status, after.status) == (TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL)
    assert result.attempts == 1
    (error,) = result.errors
    assert issubclass(error.exception_class, DatabaseError)
    assert (error.traceback == "") == bool(refused)


MEGABYTE = 2**20


def test_what_the_database_takes_in_no_statement_is_a_failure_and_is_not_tried_for_ever(tasks):
    if tasks.kind != "mariadb":
        return  # they take a gigabyte
    with tasks.server.administrator() as execute:
        ((before,),) = execute("SELECT @@global.max_allowed_packet")
        execute(f"SET GLOBAL max_allowed_packet = {MEGABYTE}")
        try:
            large = [jobs.repeat.enqueue("x", 2 * MEGABYTE), jobs.repeat.enqueue('"', MEGABYTE // 3)]
            fits = jobs.repeat.enqueue('"', MEGABYTE // 8)
            failed = jobs.fail_at_length.enqueue(2 * MEGABYTE)
            work()
        finally:
            execute(f"SET GLOBAL max_allowed_packet = {before}")
    for result in large:
        result.refresh()
        assert result.errors[0].exception_class is ValueError
        assert f"max_allowed_packet of the database is {MEGABYTE}" in result.errors[0].traceback
    fits.refresh()
    assert fits.return_value == '"' * (MEGABYTE // 8)
    failed.refresh()
    assert failed.errors[0].exception_class is LookupError


def test_of_a_traceback_that_is_very_long_the_middle_is_left_out(tasks):
    result = jobs.fail_at_length.enqueue(MEGABYTE)
    work()
    result.refresh()
    told = result.errors[0].traceback
    assert told.startswith("Traceback (most recent call last)")
    assert " [...] " in told
    assert told.endswith("the end\n")
    assert len(told) < MEGABYTE // 4


def test_functions_that_cannot_be_tasks_are_refused(tasks):
    def inner() -> None: ...

    with pytest.raises(InvalidTaskError, match="module level"):
        replace(jobs.add, func=inner)
    with pytest.raises(InvalidTaskError, match="context"):
        replace(jobs.add, func=jobs.no_task, takes_context=True)
    for priority in (101, -101, 1.5):
        with pytest.raises(InvalidTaskError, match="whole number"):
            jobs.add.using(priority=priority)


# transactions


def test_a_task_enqueued_in_a_transaction_is_one_with_it(tasks):
    with transaction.atomic():
        jobs.note.enqueue("undone")
        transaction.set_rollback(True)
    with transaction.atomic():
        jobs.note.enqueue("done")
        with transaction.atomic():
            jobs.note.enqueue("undone, too")
            transaction.set_rollback(True)
    transaction.on_commit(lambda: jobs.note.enqueue("after"))
    work()
    assert jobs.seen == ["done", "after"]


# order and time


def test_the_higher_priority_is_run_first_and_among_equals_the_older(tasks):
    order = [0, -100, 100, 7, 0, 7]
    for place, priority in enumerate(order):
        jobs.note.using(priority=priority).enqueue([priority, place])
    assert sorted(Task.objects.values_list("rank", flat=True)) == sorted(-priority for priority in order)
    work()
    assert jobs.seen == [[100, 2], [7, 3], [7, 5], [0, 0], [0, 4], [-100, 1]]


def test_a_task_does_not_run_before_its_time(tasks):
    moment = timezone.now() + timedelta(days=1)
    result = jobs.note.using(run_after=moment).enqueue("tomorrow")
    assert result.status == TaskResultStatus.READY
    assert result.task.run_after == moment
    jobs.note.using(run_after=timezone.now() - timedelta(days=1)).enqueue("yesterday")
    work()
    assert jobs.seen == ["yesterday"]
    found = jobs.note.get_result(result.id)
    assert (found.status, found.task.run_after) == (TaskResultStatus.READY, moment)
    assert Task.xq.stats().counts["W"] == 1


def test_no_task_is_due_before_its_time_however_coarse_the_clock_of_the_database_is(tasks):
    for n in range(50):
        moment = timezone.now() + timedelta(seconds=1, microseconds=n)
        assert row(jobs.add.using(run_after=moment).enqueue(1)).runat >= moment.timestamp()


def test_a_task_may_wait_for_the_last_moment_that_there_is(tasks):
    moment = datetime.max.replace(tzinfo=UTC)
    result = jobs.add.using(run_after=moment).enqueue(1)
    assert row(result).status == "WAITING"
    assert jobs.add.get_result(result.id).task.run_after == moment


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


# queues


def test_only_the_queues_that_are_named_are_taken(tasks):
    with backend(QUEUES=["default", "special"]):
        result = jobs.note.using(queue_name="special").enqueue(1)
        assert jobs.note.get_result(result.id).task.queue_name == "special"
        with pytest.raises(InvalidTaskError, match="other"):
            jobs.note.using(queue_name="other")
    assert jobs.note.using(queue_name="any other, where none is named").enqueue(2)


def test_a_worker_is_told_of_queues_that_nobody_puts_into(tasks):
    with backend(QUEUES=["mail", "slow"]), pytest.raises(xq.ConfigurationError, match="'mial': there are mail, slow"):
        work(queues=["mail", "mial"])
    with backend(QUEUES=[]):
        work(queues=["mial"])


def test_a_worker_runs_the_tasks_of_its_queues(tasks):
    for name in ("default", "mail", "slow"):
        jobs.note.using(queue_name=name).enqueue(name)
    work(queues=["mail"])
    assert jobs.seen == ["mail"]
    work(queues=["slow", "mail"], workers=2)
    assert jobs.seen == ["mail", "slow"]
    work()
    assert jobs.seen == ["mail", "slow", "default"]


def test_several_backends_share_the_table_and_each_task_knows_its_own(tasks):
    both = {"BACKEND": BACKEND, "QUEUES": []}
    with override_settings(TASKS={"default": both, "second": both}):
        result = jobs.tell.using(backend="second").enqueue()
        work()
        result.refresh()
        assert result.backend == "second"
        assert jobs.seen[0].backend == "second"
        assert task_backends["second"].get_result(result.id).task.backend == "second"


# results


def test_a_result_that_is_not_there_is_not_found(tasks):
    for id in (str(uuid.uuid4()), "no uuid", "", "0", "a\0b"):
        with pytest.raises(TaskResultDoesNotExist):
            jobs.add.get_result(id)
    with pytest.raises(TaskResultDoesNotExist):
        asynchronously(lambda: default_task_backend.aget_result(str(uuid.uuid4())))


def test_an_error_is_kept_and_logged_with_its_class_and_its_traceback(tasks, caplog):
    result = jobs.fail.enqueue("order 7")
    work()
    (record,) = [one for one in caplog.records if one.name in LOGGERS and one.levelname == "ERROR"]
    assert record.exc_info
    assert record.exc_info[0] is LookupError
    result.refresh()
    (error,) = result.errors
    assert result.status == TaskResultStatus.FAILED
    assert result.is_finished
    assert error.exception_class is LookupError
    assert error.exception_class_path == "builtins.LookupError"
    assert "raise LookupError(why)" in error.traceback
    assert "order 7" in error.traceback
    assert result.attempts == 1
    assert result.finished_at >= result.started_at


def test_the_admin_has_the_words_of_django_tasks_and_the_classes_of_errors(tasks):
    from xq.adapters.django.tasks.admin import TaskAdmin

    shown = TaskAdmin(Task, AdminSite())
    failed, done = jobs.fail.enqueue("order 7"), jobs.add.enqueue(1, 2)
    assert ">READY<" in shown.xq_state(row(done))
    work()
    assert ">SUCCESSFUL<" in shown.xq_state(row(done))
    assert ">FAILED<" in shown.xq_state(row(failed))
    assert shown.xq_error(row(failed)) == "builtins.LookupError"
    assert shown.xq_error(row(done)) == ""


def test_a_task_that_misuses_its_connection_ends_all_the_same(tasks):
    results = [jobs.misuse.enqueue(how) for how in ("close", "break")]
    left = jobs.misuse.enqueue("open")
    after = jobs.add.enqueue(1)
    work()
    for result in (*results, left, after):
        result.refresh()
    assert {result.status for result in (*results, after)} == {TaskResultStatus.SUCCESSFUL}
    assert left.status == TaskResultStatus.FAILED
    assert left.errors[0].exception_class is xq.LeftOpen


def test_what_hears_of_an_end_may_read_it(tasks):
    read: list[Any] = []

    def hear(task_result: Any, **_: Any) -> None:
        read.append(default_task_backend.get_result(task_result.id).status)
        raise RuntimeError("a receiver fails")  # and harms nothing

    for one in (task_started, task_finished):
        one.connect(hear)
    try:
        result = jobs.add.enqueue(1)
        work()
    finally:
        for one in (task_started, task_finished):
            one.disconnect(hear)
    assert read == ["RUNNING", "SUCCESSFUL"]
    assert default_task_backend.get_result(result.id).return_value == 1


def test_a_task_whose_function_is_gone_has_failed(tasks):
    paths = ("tests.django.no_such_module.f", "tests.django.shop.jobs.gone", "nowhere")
    no_task = jobs.add.enqueue(1)
    Task.objects.filter(pk=no_task.id).update(task_path="tests.django.shop.jobs.no_task")
    lost, after = [jobs.add.enqueue(1) for _ in paths], jobs.add.enqueue(2)
    for result, path in zip(lost, paths, strict=True):
        Task.objects.filter(pk=result.id).update(task_path=path)
    work()
    for result in lost:
        assert row(result).status == "FAILED"
        assert row(result).exception_class_path in ("builtins.ImportError", "builtins.ModuleNotFoundError")
        with pytest.raises(ImportError):
            default_task_backend.get_result(result.id)
    assert row(no_task).exception_class_path == "django.core.exceptions.SuspiciousOperation"
    assert jobs.add.get_result(after.id).return_value == 2


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
    work()
    Task.xq.dig(bad.id)
    Task.xq.restart(good.id)
    for result in (bad, good):
        result.refresh()
        assert result.status == TaskResultStatus.READY
        assert not result.errors
    work()
    for result, status in ((bad, "FAILED"), (good, "SUCCESSFUL")):
        result.refresh()
        assert (result.status, result.attempts) == (status, 2)
        assert result.started_at < result.last_attempted_at


def test_a_task_whose_workers_die_with_it_has_failed_after_some(tasks):
    result = jobs.add.enqueue(1)
    with backend(OPTIONS={"max_attempts": 2}):
        for _ in range(2):
            assert Task.xq.take().begin()
            Task.xq.snatch(result.id)
        work()
        result.refresh()
        (error,) = result.errors
        assert result.status == TaskResultStatus.FAILED
        assert result.attempts == 3
        assert error.exception_class_path == "xq.adapters.django.tasks.worker.WorkerDied"
        assert "2 times" in error.traceback
        assert error.exception_class
        Task.xq.dig(result.id)
        work()
        result.refresh()
        assert result.return_value == 1


def test_a_task_that_was_dug_out_outlives_the_death_of_a_worker(tasks):
    result = jobs.add.enqueue(1)
    Task.objects.filter(pk=result.id).update(task_path="tests.django.shop.jobs.fail")
    with backend(OPTIONS={"max_attempts": 2}):
        for _ in range(2):
            work()
            Task.xq.dig(result.id)
        Task.objects.filter(pk=result.id).update(task_path="tests.django.shop.jobs.add")
        assert Task.xq.take().begin()
        Task.xq.snatch(result.id)
        work()
    result.refresh()
    assert result.return_value == 1


def test_a_task_that_is_taken_away_before_it_has_begun_is_not_run_by_who_had_it(tasks):
    result = jobs.note.enqueue("once")
    first = Task.xq.take()
    Task.xq.snatch(first.pk)
    second = Task.xq.take()
    ended: list[str] = []
    perform(first, lambda event, **_: ended.append(event))
    assert (jobs.seen, ended, row(result).worker_ids) == ([], [], [])
    assert second.begin()
    assert len(row(result).worker_ids) == 1


def test_a_task_that_is_taken_away_while_it_runs_is_not_ended_by_who_had_it(tasks):
    def snatch(task_result: Any, **_: Any) -> None:
        task_started.disconnect(snatch)
        Task.xq.kill(task_result.id)

    task_started.connect(snatch)
    with heard(task_finished) as ended:
        result = jobs.add.enqueue(1)
        work()
    assert ended == []
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_a_worker_that_is_told_to_stop_finishes_what_it_has_in_hand(tasks, tmp_path):
    go_on, told = tmp_path / "go on", tmp_path / "told"
    result = jobs.wait_for.enqueue(str(go_on), str(told))
    with worker_process(tasks) as worker:
        eventually(told.exists)
        after = jobs.add.enqueue(1)
        worker.send_signal(signal.SIGTERM)
        go_on.touch()
        assert worker.wait(STUCK) == 0
    result.refresh()
    after.refresh()
    assert result.return_value == "done"
    assert after.status == TaskResultStatus.READY or after.return_value == 1


def test_the_command_runs_the_tasks_of_the_queues_that_it_is_told(tasks):
    for name in ("default", "mail", "slow"):
        jobs.note.using(queue_name=name).enqueue(name)
    call_command("xq_worker", "--queue", "mail", "--queue", "slow", "--workers", "2", "--until-empty", verbosity=0)
    assert sorted(jobs.seen) == ["mail", "slow"]
    call_command("xq_worker", "--until-empty", verbosity=0)
    assert jobs.seen[2:] == ["default"]


def test_the_command_leaves_queues_out_ends_after_so_many_tasks_and_has_an_id(tasks):
    with backend(QUEUES=["default", "mail", "slow"]):
        for name in ("default", "mail", "mail", "slow"):
            last = jobs.note.using(queue_name=name).enqueue(name)
        call_command("xq_worker", "--exclude-queue", "slow", "--max-tasks", "2", "--worker-id", "a", verbosity=0)
        assert len(jobs.seen) == 2
        assert "slow" not in jobs.seen
        call_command("xq_worker", "--worker-id", "b", "--until-empty", verbosity=0)
        last.refresh()
        assert last.worker_ids == ["b"]
        assert len(jobs.seen) == 4
        every = ["--exclude-queue=default", "--exclude-queues=mail,slow"]
        with pytest.raises(CommandError, match="no queue is left"):
            call_command("xq_worker", *every, verbosity=0)
    with pytest.raises(CommandError, match="name all queues in QUEUES"):
        call_command("xq_worker", "--exclude-queue", "slow", verbosity=0)


def test_the_command_has_a_line_when_a_task_begins_and_when_it_ends(tasks, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own, beside which the command shows nothing
    done, failed = jobs.add.enqueue(1), jobs.fail.enqueue()
    out = io.StringIO()
    call_command("xq_worker", "--until-empty", verbosity=1, stdout=out)
    for result, end in ((done, "SUCCESSFUL"), (failed, "FAILED")):
        for status in ("RUNNING", end):
            assert f"Task id={result.id} path={result.task.module_path} state={status}" in out.getvalue()
    jobs.add.enqueue(1)
    quiet = io.StringIO()
    call_command("xq_worker", "--until-empty", verbosity=0, stdout=quiet)
    assert quiet.getvalue() == ""


def test_results_are_deleted_by_their_age_and_number(tasks, capsys):
    for n in range(5):
        jobs.note.enqueue(str(n))
    failed = jobs.fail.enqueue()
    work()
    ages = {result.pk: timedelta(days=10 * n) for n, result in enumerate(Task.objects.order_by("enqueued_at"))}
    for key, age in ages.items():
        Task.objects.filter(pk=key).update(finished_at=timezone.now() - age)
    waiting = jobs.note.enqueue("later")
    call_command("xq_prune", "--dry-run")
    assert capsys.readouterr().out == "4 results would be deleted\n"
    call_command("xq_prune", "--min-age-days", "25", "--failed-min-age-days", "100", "--keep", "1")
    assert capsys.readouterr().out == "2 results deleted\n"
    assert Task.objects.count() == 5
    call_command("xq_prune", "--min-age-days", "0")
    assert capsys.readouterr().out == "4 results deleted\n"
    assert [str(key) for key in Task.objects.values_list("pk", flat=True)] == [waiting.id]
    with pytest.raises(xq.NotFound):
        Task.xq.peek(failed.id)


# settings, migrations and checks


def test_its_migrations_install_what_its_model_is(django_db):
    with backend():
        upgrade_for_this_database()
        django_db.migrate("xq_tasks")
        call_command("makemigrations", "xq_tasks", check=True, dry_run=True, verbosity=0)
        call_command("xq_makemigration", "xq_tasks.Task", check=True, verbosity=0)
        assert Task.xq.check() == []
        result = jobs.add.enqueue(1)
        work()
        result.refresh()
        assert result.return_value == 1
        django_db.migrate("xq_tasks", "zero")
    assert connections["default"].introspection.table_names() == ["django_migrations"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kep": 1}, r"TASKS\['default'\]\['OPTIONS'\] has no 'kep': it has keep, keep_failed, max_attempts"),
        (["keep"], "is a dictionary, not"),
        ({"keep": -1, "max_attempts": 1.5}, "'keep'.*; .*'max_attempts'"),
        ({"keep": -1}, r"seconds, or None \(forever\), not -1"),
        ({"keep": float("nan")}, "seconds"),
        ({"keep": 1e11}, "seconds"),
        ({"keep_failed": True}, "seconds"),
        ({"max_attempts": 0}, "a number from 1 on"),
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
