"""django.tasks on a queue: what its documentation promises."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import django
import pytest
from django.contrib import admin
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.migrations.loader import MigrationLoader
from django.test import modify_settings, override_settings
from django.utils import timezone
from django.utils.html import strip_tags

import xq
from tests.django.conftest import DjangoDatabase
from tests.django.names import (
    NAME,
    InvalidTaskBackendError,
    TaskException,
    TaskResultDoesNotExist,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.django.on_tasks import asynchronously, backend, install, upgrade_for_this_database
from tests.django.shop import jobs
from tests.django.sites import TABLES, Site, actions_of
from tests.steps import eventually, fail_for
from tests.support.console import visitor
from xq import serve
from xq.adapters.django import enqueue_many, options
from xq.adapters.django.tasks import group
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.options import TIMED
from xq.adapters.django.tasks.worker import WorkerDied, run
from xq.metrics import Metrics, WorkerCounts
from xq.testing import clock, run_pending
from xq.workers import attempt


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


def test_a_task_follows_those_of_a_group(django_db):
    with backend(OPTIONS={"then": True, "unique": lambda *args, **kwargs: [*args, *kwargs.values()]}):
        install(django_db)
        of = task_backends["default"].group
        with of("news", then=(jobs.note, ["then"]), failed="run") as group:
            first = group.enqueue(jobs.note, "a")
            others = group.enqueue_many(jobs.note, [(("b",), {}), ((), {"what": "a"})])
            assert others[1].id == first.id
            group.enqueue(jobs.fail, "b")
            elsewhere = jobs.note.enqueue("c")
            assert group.enqueue(jobs.note, "c").id == elsewhere.id
        assert of("news").enqueue(jobs.note, "a").id == first.id  # a member already
        assert group.stats()["total"] == 3
        with pytest.raises(TypeError), of("undone", then=jobs.fail) as group:
            group.enqueue_many(jobs.note, [(("c",), {}), 7])
        work()
        assert jobs.seen == ["a", "b", "c", "then"]
        assert (Task.xq.group("news").done, Task.xq.group("news").failed) == (True, 1)
        with pytest.raises(xq.BadValue, match="run_after"), of("later", then=jobs.note.using(run_after=timezone.now())):
            pass
    upgrade_for_this_database()


def test_a_task_adds_tasks_to_its_group(django_db):
    with backend(OPTIONS={"then": True}):
        install(django_db)
        with task_backends["default"].group("site", then=(jobs.note, ["all"])) as site:
            site.enqueue(jobs.crawl, 1)
        work()
        assert (site.wait(0), site.stats()["total"], jobs.seen) == (True, 7, ["all"])
        note: Any = jobs.note
        wrong: Any
        for wrong in ((), "note", note.enqueue, (note, "abc"), (note, [], []), (note, [], {}, 1)):
            with pytest.raises(xq.BadType, match="then is a task, or"):
                task_backends["default"].group("wrong", then=wrong)
        with pytest.raises(xq.BadType, match="what @task makes, not 'jobs.note'"):
            site.enqueue("jobs.note")
        with pytest.raises(xq.BadType, match=r"as \(args, kwargs\), .* not 'user1'"):
            enqueue_many(note, list[Any](["user1"]))
    upgrade_for_this_database()


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)  # the others have names as Django's test databases
def test_migrate_goes_forward_again_to_options_that_were_taken_back(django_db):
    for then, migrates in ((False, True), (True, True), (False, False), (True, True)):
        with backend(OPTIONS={"then": then}):
            upgrade_for_this_database()
            if migrates:
                django_db.migrate("xq_tasks")
            else:
                Task.xq.install(downgrade=True)
            assert Task.xq.check() == []
            assert jobs.note.enqueue("a").id
    upgrade_for_this_database()


def test_a_group_needs_its_option(tasks):
    with pytest.raises(xq.ConfigurationError, match='"then": True in OPTIONS'), task_backends["default"].group("news"):
        pass


def test_a_group_of_a_backend_that_is_not_xqs_is_refused_by_name(django_db):
    with backend(OPTIONS={"then": True}):
        install(django_db)
        with group("news", then=jobs.note) as news:
            news.enqueue(jobs.note, "a")
        with pytest.raises(xq.Duplicate, match="the group 'news' of Task is open"), group("news"):
            pass
        news.then = (jobs.note, ["another"])
        work()
        assert jobs.seen == ["a", "another"]
    upgrade_for_this_database()
    with backend(f"{NAME}.backends.immediate.ImmediateBackend"):
        with pytest.raises(xq.ConfigurationError, match="is ImmediateBackend, which has no groups"):
            group("news")


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


@pytest.mark.parametrize(
    ("task", "call", "becomes"), [(jobs.add, "ack_those", "SUCCESSFUL"), (jobs.end, "one", "FAILED")]
)
def test_an_end_whose_answer_was_lost_is_signalled_once(tasks, monkeypatch, task, call, becomes):
    told, named = list[str](), Task.xq.parts.named
    move = getattr(named, call)

    def loses(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(named, call, move)
        move(*given, **options)
        raise OperationalError("the connection is lost")

    def tells(**given: Any) -> None:
        told.append(str(given["task_result"].status))

    monkeypatch.setattr(attempt, "AGAIN", 0)
    monkeypatch.setattr(named, call, loses)
    task_finished.connect(tells)
    assert work(task.enqueue(1)) == told == ["FAILED" if task is jobs.end else "SUCCESSFUL"]


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


def test_a_task_that_is_no_task_or_whose_function_is_gone_for_an_hour_has_failed(tasks):
    errors = {
        "tests.django.no_such_module.f": "builtins.ModuleNotFoundError",
        "tests.django.shop.jobs.gone": "builtins.ImportError",
        "nowhere": "builtins.ImportError",
        "tests.django.shop.jobs.no_task": "django.core.exceptions.SuspiciousOperation",
    }
    results = {path: jobs.add.enqueue(1) for path in errors}
    for path, result in results.items():
        long_ago = timezone.now() - timedelta(hours=1)
        Task.objects.filter(pk=result.id).update(task_path=path, enqueued_at=long_ago)
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
        assert result.status == TaskResultStatus.READY
    assert (len(bad.errors), good.errors) == (1, [])
    assert work(bad, good) == ["FAILED", "SUCCESSFUL"]
    assert [error.exception_class for error in bad.errors] == [LookupError, LookupError]
    for result in (bad, good):
        assert result.attempts == 2
        assert result.started_at < result.last_attempted_at


def test_failures_are_triaged_by_their_groups_and_in_the_admin_by_queue_task_exception_and_message(tasks):
    from xq.adapters.django.tasks.admin import TaskAdmin

    admin.site._registry.pop(Task, None)
    for n in range(3):
        jobs.fail.using(queue_name="mail").enqueue(f"vat_{n} is unknown")
    jobs.end.enqueue("vat_7 is unknown")
    work(jobs.add.enqueue(1))
    largest, other = Task.xq.failures()
    assert [(group.title, group.function, group.count) for group in (largest, other)] == [
        ("LookupError: vat_<n> is unknown", "tests.django.shop.jobs.fail", 3),
        ("LookupError: vat_<n> is unknown", "tests.django.shop.jobs.end", 1),
    ]
    for hidden, shows in ((), True), (("task_path",), False):
        page = visitor(serve.app([Task], hide=hidden)).get("/q/Task/failures").text
        assert (other.function in page, "LookupError" in page) == (shows, True)
    tasks.create(*TABLES)
    site = Site(Task, TaskAdmin)
    with override_settings(ROOT_URLCONF=site.urls):
        client = site.client()
        page = client.get(site.list).content.decode()
        assert re.findall(r'<a href="\?(?:queue_name|task_path|exception_class_path)=([^"]*)"', page) == [
            "default",
            "mail",
            *(f"tests.django.shop.jobs.{name}" for name in ("add", "end", "fail")),
            "builtins.LookupError",
        ]
        for asked, found in {
            "queue_name=mail": 3,
            "task_path=tests.django.shop.jobs.end": 1,
            "exception_class_path=builtins.LookupError": 4,
            "q=vat_1": 1,
            "queue_name=gone": 0,
        }.items():
            page = client.get(f"{site.list}?{asked}").content.decode()
            assert len(re.findall('field-xq_failure">LookupError: ', page)) == found, asked
        offered = ["delete_selected", "dig", "release", "restart", "cancel", "kill"]
        assert actions_of(client.get(site.list)) == offered
    assert Task.xq.act("dig", largest.filter).run().done == 3
    assert [group.function for group in Task.xq.failures("state:buried")] == [other.function]


def test_the_admin_shows_tasks_in_the_words_of_django_tasks_and_lets_nobody_edit_them(tasks):
    from xq.adapters.django.tasks.admin import TaskAdmin

    admin.site._registry.pop(Task, None)  # that import has put it there
    shown, (failed, done) = TaskAdmin(Task, admin.AdminSite()), (jobs.fail.enqueue(), jobs.add.enqueue(1))
    assert work(failed, done) == [strip_tags(shown.xq_state(row(each))) for each in (failed, done)]
    assert shown.xq_failure(row(failed)) == "LookupError: no such order"
    assert shown.get_readonly_fields(None) == [field.name for field in Task._meta.fields]


def test_a_task_whose_workers_die_with_it_has_failed_after_some(tasks):
    result = jobs.add.enqueue(1)
    with backend(OPTIONS={"max_attempts": 2}):
        for _ in range(2):
            Task.xq.take()
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
        for n, pause in enumerate(pauses, 1):
            assert run_pending(Task) == 1
            result.refresh()
            assert (result.status, len(result.errors)) == ("READY", 0 if raised.startswith("Retry") else n)
            assert row(result).runat == pytest.approx(now.now + pause, rel=0, abs=0.01)
            now.tick(pause)
        assert run_pending(Task) == 1
        result.refresh()
        assert (result.status, result.attempts) == ("FAILED", len(pauses) + 1)
        assert result.errors[-1].exception_class.__name__ == raised.removesuffix("()")
    most = options.get("max_attempts", 5)
    for n, line in enumerate([line for line in caplog.messages if line.startswith("task ")], 1):
        assert line.startswith(f"task {result.id} (tests.django.shop.jobs.end in default) ")
        counted = f" (attempt {n} of {most}" if most and raised != "Bury" else f" (attempt {n})"
        assert counted in line, "without a number of attempts that it does not get"
    assert (n, "failed for good and is buried" in line) == (len(pauses) + 1, True)
    assert f": {raised.removesuffix('()')}" in line


def test_each_error_of_tasks_that_fail_for_good_has_lines_of_its_own(tasks, caplog, monkeypatch):
    monkeypatch.setattr("xq.core.time.monotonic", lambda: 10.0)
    caplog.set_level("INFO", "xq.Task")
    enqueue_many(jobs.fail, [((), {})] * 25)
    jobs.end.using(priority=-1).enqueue("Bury")
    with backend(OPTIONS={"max_attempts": 1}):
        assert run_pending(Task) == 26
    assert "after 0 ms: Bury: wrong" in caplog.text
    assert "5 more tasks are buried: LookupError (5 tests.django.shop.jobs.fail)" in caplog.text


def test_a_failure_is_one_error_in_the_log_and_operators_read_the_words_of_django_tasks(tasks, caplog):
    bad, good = jobs.fail.enqueue(), jobs.add.enqueue(1)
    assert work(bad, good) == ["FAILED", "SUCCESSFUL"]
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == [NAME]
    counts = Task.xq.stats(pretty=True).counts
    assert (counts["Failed"], counts["Successful"], counts["Running"]) == (1, 1, 0)
    for filter in ("state:failed", "state:FAILED", "state:buried", "state:B"):
        assert [str(task.pk) for task in Task.xq.find(filter).tasks] == [bad.id], filter
    assert Task.xq.why(bad.id)[0].startswith("it is failed (B): LookupError")
    with pytest.raises(xq.WrongState, match=r"failed \(B\)"):
        Task.xq.snatch(bad.id)


def test_why_and_doctor_say_why_a_task_of_django_tasks_is_not_taken(tasks):
    ready, paused = jobs.note.enqueue("a"), jobs.note.using(queue_name="mail").enqueue("b")
    later = jobs.note.using(run_after=timezone.now() + timedelta(days=1)).enqueue("c")
    Task.xq.pause(tube="mail")
    for result, why in ((ready, "start a worker"), (paused, "paused"), (later, "waiting")):
        assert why in " ".join(Task.xq.why(result.id))
    assert "start a worker" in [each.do for each in Task.xq.doctor()]


def test_doctor_names_the_results_that_were_there_before_keep_with_the_statement_that_lets_them_go(tasks):
    old, failed, of_another = jobs.add.enqueue(1), jobs.fail.enqueue(), jobs.add.enqueue(2)
    work(old, failed, of_another)
    Task.objects.filter(pk=of_another.id).update(backend="another")
    assert [each for each in Task.xq.doctor() if "no timer" in each.what] == []
    with backend(OPTIONS={"keep": 60, "keep_failed": 90}), clock(Task) as now:
        found = [each.what for each in Task.xq.doctor() if "no timer" in each.what]
        assert [each.partition(";")[0] for each in found] == [
            "tasks that are successful (Z) and have no timer: 1",
            "tasks that are failed (B) and have no timer: 1",
        ]
        with connection.cursor() as cursor:
            for each in found:
                cursor.execute(each.partition("give them one: ")[2])
        assert [each for each in Task.xq.doctor() if "no timer" in each.what] == []
        now.tick(100)
        Task.xq.sweep()
        assert [str(each.pk) for each in Task.objects.all()] == [of_another.id]


def test_a_row_that_cannot_be_read_has_failed_and_the_others_are_worked_on(tasks):
    good = [jobs.add.enqueue(n) for n in (1, 2)][1]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE xq_tasks_task SET kwargs = '{broken' WHERE task_path LIKE %s AND args = '[1]'", ["%add"])
    assert work(good) == ["SUCCESSFUL"]
    assert Task.xq.count("B") == 1


def test_the_metrics_of_a_worker_name_the_queues_of_the_settings_and_the_tasks(tasks):
    counts = WorkerCounts([*Task.xq.handlers.values()], ["Task"], tubes=["mail"])
    for name in ("mail", "customer-7"):
        jobs.note.using(queue_name=name).enqueue("a")
    jobs.fail.enqueue()
    with backend(QUEUES=["mail", "customer-7", "default"]):
        (pending,) = (family for family in Metrics([Task.xq]).collect() if family.name == "xq_pending")
    path = "tests.django.shop.jobs."
    named = {("mail", f"{path}note"): 1, ("customer-7", f"{path}note"): 1, ("default", f"{path}fail"): 1}
    assert {(each.labels["tube"], each.labels["task"]): each.value for each in pending.samples} == named
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


def test_each_take_records_its_attempt(tasks):
    result = jobs.note.enqueue("once")
    first = Task.xq.take()
    assert (first.attempts, first.worker_ids) == (1, [first.owner.partition("/")[0]])
    assert first.started_at == first.last_attempted_at
    Task.xq.snatch(first.pk)
    second = Task.xq.take()
    assert (second.attempts, second.worker_ids) == (2, 2 * first.worker_ids)
    assert second.started_at == first.started_at < second.last_attempted_at
    Task.xq.ack(second, update={"finished_at": second.started_at})
    Task.xq.restart(second.pk)
    third = Task.xq.take()
    assert (third.attempts, third.finished_at, len(third.worker_ids)) == (1, None, 3)
    assert row(result).started_at == first.started_at


def test_a_task_whose_end_the_database_refuses_has_failed_by_that_error(tasks):
    refused = {
        "sqlite": "CREATE TRIGGER refuses BEFORE UPDATE ON xq_tasks_task WHEN new.return_value = '13' "
        "BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
    }
    with connection.cursor() as cursor:
        cursor.execute(
            refused.get(tasks.kind, "ALTER TABLE xq_tasks_task ADD CONSTRAINT unlucky CHECK (return_value <> '13')")
        )
    results = [jobs.add.enqueue(n) for n in (12, 13, 14)]
    assert work(*results) == ["SUCCESSFUL", "FAILED", "SUCCESSFUL"]
    assert "unlucky" in results[1].errors[0].traceback
    with backend(OPTIONS={"max_attempts": 2, "backoff": [0]}):
        again = jobs.add.enqueue(13)
        assert (work(again), again.attempts) == (["FAILED"], 2)


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


# options of a task


@pytest.fixture
def given(tasks, monkeypatch) -> Iterator[Callable[..., Any]]:
    """Gives a task of the shop options: made under another backend it has none."""

    def give(name: str, **own: Any) -> Any:
        made = options(task(getattr(jobs, name).func), **own)
        monkeypatch.setattr(jobs, name, made)
        return made

    yield give
    TIMED.clear()


def test_a_task_has_its_own_attempts_pauses_and_errors_to_retry_on(given):
    with backend(OPTIONS={"max_attempts": 9, "backoff": [10]}), clock(Task) as now:
        given("fail", max_attempts=2, backoff=[5])
        given("end", retry_on=(KeyError,))
        first, second, third = jobs.fail.enqueue(), jobs.end.enqueue("LookupError"), jobs.end.enqueue("Retry")
        assert run_pending(Task) == 3
        assert [row(each).status for each in (first, second, third)] == ["WAITING", "FAILED", "WAITING"]
        assert row(first).runat == pytest.approx(now.now + 5, rel=0, abs=0.01)
        now.tick(5)
        assert run_pending(Task) == 1
        first.refresh()
        assert [error.exception_class for error in first.errors] == [LookupError] * 2
        assert row(first).error.startswith("LookupError: no such order\nTraceback")


def test_of_the_errors_of_a_task_the_newest_are_kept_and_a_success_keeps_them(given):
    with backend(OPTIONS={"max_attempts": 100}), clock(Task) as now:
        result = given("fail", backoff=[1]).enqueue("first")
        for n in range(25):
            Task.objects.filter(pk=result.id).update(args=[f"error {n}"])
            assert run_pending(Task) == 1
            now.tick(1)
        Task.objects.filter(pk=result.id).update(task_path="tests.django.shop.jobs.note")
        assert run_pending(Task) == 1
        result = jobs.note.get_result(result.id)
        assert (result.status, row(result).error, len(result.errors)) == ("SUCCESSFUL", None, 20)
        assert ["error 5" in result.errors[0].traceback, "error 24" in result.errors[-1].traceback] == [True, True]


@pytest.mark.parametrize("within", [nullcontext, transaction.atomic], ids=["alone", "in a transaction"])
def test_a_unique_task_that_is_unfinished_is_not_enqueued_again(given, within):
    heard: list[str] = []
    hear = lambda task_result, **_: heard.append(task_result.id)  # noqa: E731
    task_enqueued.connect(hear)
    with backend():
        given("note", unique=True)
        given("add", unique=lambda a, b=0: None if b else a)
        with within():
            one, same, other = (jobs.note.enqueue(what) for what in ("a", "a", "b"))
            many = enqueue_many(jobs.add, [((1,), {}), ((2,), {}), ((1,), {}), ((1,), {"b": 1})])
        assert one.id == same.id != other.id
        assert (many[0].id, len({each.id for each in many})) == (many[2].id, 3)
        assert heard == [one.id, other.id, many[0].id, many[1].id, many[3].id]
        assert work(same) == ["SUCCESSFUL"]
        assert jobs.note.enqueue("a").id != one.id
    task_enqueued.disconnect(hear)


def test_a_task_that_is_unique_while_it_waits_is_enqueued_again_when_it_has_begun(given):
    with backend():
        given("note", unique="waiting")
        first, same = jobs.note.enqueue("a"), jobs.note.enqueue("a")
        taken = Task.xq.take()
        second = jobs.note.enqueue("a")
        assert first.id == same.id == str(taken.pk) != second.id == jobs.note.enqueue("a").id
        Task.xq.release(taken)  # for another attempt, beside the one that was enqueued meanwhile
        assert work(first, second) == ["SUCCESSFUL"] * 2


def test_the_settings_give_tasks_of_packages_options_by_their_paths(given):
    paths = {
        "tests.*": {"max_attempts": 3, "backoff": 10, "unique": True},
        "tests.django.shop.jobs.fail": {"max_attempts": 1},
        "tests.django.shop.jobs.end": {"discard_on": ["LookupError"], "retry_on": ["django.db.Error"]},
        "packages.*": {"max_attempts": 2},
    }
    with backend(OPTIONS={"max_attempts": 9, "backoff": [5], "TASKS": paths}), clock(Task) as now:
        given("fail", max_attempts=7)
        assert jobs.note.enqueue("a").id == jobs.note.enqueue("a").id
        failed, gone, again = jobs.fail.enqueue(), jobs.end.enqueue("x"), jobs.end.enqueue("Retry()")
        assert run_pending(Task) == 4
        assert (row(failed).status, row(again).status) == ("FAILED", "WAITING")
        assert row(again).runat == pytest.approx(now.now + 10, rel=0, abs=0.01)
        with pytest.raises(TaskResultDoesNotExist):
            gone.refresh()


@pytest.mark.parametrize("coroutines", [None, 2], ids=["threads", "coroutines"])
def test_a_task_is_discarded_on_the_errors_that_it_names_and_the_log_says_so(given, caplog, coroutines):
    caplog.set_level("INFO", "xq")
    with backend(OPTIONS={"max_attempts": 5, "retry_on": (Exception,)}):
        given("end", discard_on=(LookupError, xq.Retry))
        gone, waits = jobs.end.enqueue("no order 7"), jobs.end.enqueue("Retry")
        run(until_empty=True, coroutines=coroutines)
        assert [str(each.pk) for each in Task.objects.all()] == [waits.id]
    assert f"task {gone.id} (tests.django.shop.jobs.end) is discarded: LookupError: no order 7" in caplog.messages
    assert "ERROR" not in {record.levelname for record in caplog.records}


def test_a_check_names_exceptions_of_the_settings_that_are_not_there(tasks):
    wrong = {"retry_on": ["OSError", "shop.Busy"], "TASKS": {"a.*": {"discard_on": ["os.path", "NoError"]}}}
    with backend(OPTIONS=wrong):
        found = [one.msg for one in checks.run_checks() if one.id == "xq.E011"]
    assert len(found) == 2
    assert "shop" in found[0]
    assert "os.path is no class of exceptions" in found[1]


def test_a_check_names_the_paths_of_the_settings_that_no_task_has(tasks):
    jobs = "tests.django.shop.jobs"
    right = ["*", "tests*", "*.fail", "tests.*", f"{jobs}.*", f"{jobs}.fa?l", f"{jobs}.fail", "tests.django.sho[op].a"]
    wrong = {
        "fail": "No module named 'fail'",
        "nowhere.tasks.*": "No module named 'nowhere'",
        "tests.django.shop.jops.*": "has no attribute 'jops'",
        f"{jobs}.fial": f"{jobs} has {jobs}.add, ",
        f"{jobs}.fal*": f"{jobs} has {jobs}.add, ",
        "tests.django.shop.urls.*": "tests.django.shop.urls has no task",
        "tests.django.fail": "tests.django has no task",
    }
    with backend(OPTIONS={"TASKS": {path: {"max_attempts": 3} for path in [*right, *wrong]}}):
        found = [one.msg for one in checks.run_checks() if one.id == "xq.W016"]
    assert len(found) == len(wrong)
    for said, (path, why) in zip(found, wrong.items(), strict=True):
        assert (f"no task has: {path!r}: " in said, why in said) == (True, True)


def test_the_tasks_of_a_group_run_one_after_the_other(django_db, monkeypatch):
    with backend(OPTIONS={"groups": True, "group": lambda customer: customer or None}):
        install(django_db)
        results = [task(jobs.note.func).enqueue(customer) for customer in ("ann", "ann", "bob", "")]
        taken = [Task.xq.take() for _ in range(4)]
        assert [str(each.pk) for each in taken if each] == [results[place].id for place in (0, 2, 3)]
        Task.xq.release(taken[0])
        assert str(Task.xq.take().pk) == results[0].id
    with backend(), pytest.raises(xq.ConfigurationError, match='"groups": True in OPTIONS'):
        options(task(jobs.note.func), group="all")
    upgrade_for_this_database()


def test_options_of_a_task_that_are_wrong_are_refused_in_words(tasks):
    wrong = {
        "max_attempts": 0,
        "backoff": [],
        "retry_on": OSError,
        "timeout": 0,
        "unique": "id",
        "rate": "10/m",
        "tmeout": 3,
    }
    for name, value in wrong.items():
        with pytest.raises(xq.ConfigurationError, match=f"shop.jobs.add.*{name}"):
            options(task(jobs.add.func), **{name: value})
    with backend(f"{NAME}.backends.dummy.DummyBackend"):
        theirs = task(jobs.add.func)
        assert options(unique=True)(theirs) is theirs


def test_a_coroutine_that_takes_too_long_has_failed_and_a_function_with_a_timeout_needs_a_process(given):
    with backend():
        slow = given("sleep", timeout=0.01).enqueue(60)
        assert work(slow) == ["FAILED"]
        assert row(slow).error.startswith("TimeoutError: the function runs for longer than 0.01 s")
        given("add", timeout=5)
        for how in ({}, {"coroutines": 2}):
            with pytest.raises(
                xq.ConfigurationError, match=r"jobs.add has a timeout.*--kind process, or make it an async"
            ):
                work(**how)
        assert work(queues=["mail"]) == []
        result = jobs.add.enqueue(1)
        TIMED.clear()  # as if its module were imported later
        assert work(result) == ["FAILED"]
        assert "--kind process" in row(result).error


@pytest.mark.parametrize("how", ["in doubt", "given back"])
def test_a_take_after_which_nobody_worked_on_the_task_is_no_attempt(tasks, how):
    parts, result = Task.xq.parts, jobs.note.enqueue("once")
    for attempts in range(3):
        held = Task.xq.take()
        if how == "in doubt":
            parts.takes.timers.unattended.undo_take(held.owner)
        else:
            parts.named.one("release", held, undone=True)
        found = row(result)
        assert (found.status, found.attempts, len(found.worker_ids)) == ("READY", attempts, attempts)
        Task.xq.snatch(Task.xq.take().pk)
    assert len(set(row(result).worker_ids)) == 1


def test_a_return_value_that_is_no_json_fails_once(tasks):
    with backend(OPTIONS={"max_attempts": 5}):
        result = jobs.give.enqueue("set")
        assert work(result) == ["FAILED"]
        assert row(result).error.startswith("TypeError: the function returned {1}, which is no JSON")


def test_a_task_whose_function_another_worker_has_waits_without_an_attempt_and_a_path_may_have_an_alias(tasks, caplog):
    old = f"tests.django.shop.old_{tasks.kind}.note"  # a process logs each path once
    with clock(Task) as now:
        results = [jobs.note.enqueue("moved"), jobs.note.enqueue("moved")]
        Task.objects.update(task_path=old)
        assert run_pending(Task) == 2
        found = row(results[0])
        assert (found.status, found.attempts, found.worker_ids) == ("WAITING", 0, [])
        assert found.runat == pytest.approx(now.now + 10, rel=0, abs=0.01)
        (line,) = [line for line in caplog.messages if "this worker has no" in line]
        assert old in line
        now.tick(10)
        with backend(OPTIONS={"ALIASES": {old: "tests.django.shop.jobs.note"}}):
            assert run_pending(Task) == 2
            assert jobs.seen == ["moved", "moved"]
            assert row(results[0]).error is None


def test_coroutines_run_side_by_side_on_one_loop_beside_functions_in_threads(tasks):
    results = [jobs.meet.enqueue(3) for _ in range(3)] + [jobs.add.enqueue(1), jobs.fail.enqueue()]
    assert work(*results, coroutines=5) == ["SUCCESSFUL"] * 4 + ["FAILED"]
    assert len({result.return_value for result in results[:3]}) == 1


def test_a_task_that_is_dug_has_one_attempt_more_or_all_of_them_if_it_is_dug_fresh(given):
    with backend(OPTIONS={"max_attempts": 2, "backoff": [0]}):
        result, done = jobs.fail.enqueue(), jobs.add.enqueue(1)
        assert work(result, done) == ["FAILED", "SUCCESSFUL"]
        Task.xq.dig(result.id)
        assert (work(result), result.attempts) == (["FAILED"], 3)
        Task.xq.dig(result.id, fresh=True)
        assert (work(result), result.attempts) == (["FAILED"], 5)
        Task.xq.dig(result.id)
        dug = Task.xq.take()
        assert dug.was_dug()
        Task.xq.snatch(result.id)
        assert work(result) == ["FAILED"]
        assert result.errors[-1].exception_class is WorkerDied
        Task.xq.restart(done.id)
        assert (work(done), row(done).attempts) == (["SUCCESSFUL"], 1)


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


def test_a_migration_keeps_the_tracebacks_of_tasks_that_had_failed(django_db):
    with backend():
        upgrade_for_this_database()
        django_db.migrate("xq_tasks", "0001")
        before = {"id": uuid.uuid4(), "status": "FAILED", "backend": "default", "task_path": jobs.fail.module_path}
        trace = "Traceback (most recent call last):\n  File ...\nLookupError: no order 7\n"
        failed = {"exception_class_path": "builtins.LookupError", "traceback": trace}
        then = MigrationLoader(connections["default"]).project_state([("xq_tasks", "0001_initial")]).apps
        then.get_model("xq_tasks", "Task").objects.create(**before, **failed)
        django_db.migrate("xq_tasks")
        (error,) = jobs.fail.get_result(str(before["id"])).errors
        assert (error.exception_class, error.traceback) == (LookupError, trace)
        assert Task.objects.get().error.startswith("LookupError: no order 7\nTraceback")
        django_db.migrate("xq_tasks", "zero")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"kep": 1},
            r"TASKS\['default'\]\['OPTIONS'\] has no 'kep': it has keep$",
        ),
        ({"max_attempt": 3}, "has no 'max_attempt': it has max_attempts$"),
        ({"attemps": 3, "x": 1}, "has no 'x': it has keep, keep_failed, max_attempts, (?!.*rate)"),
        (["keep"], "is a dictionary, not"),
        ({"keep": -1, "max_attempts": 1.5}, "'keep'.*; .*'max_attempts'"),
        ({"keep": float("nan")}, "seconds"),
        ({"keep_failed": True}, "seconds"),
        ({"max_attempts": 0}, "a number from 1 to 1,000,000"),
        ({"TASKS": ["shop.*"]}, r"\['TASKS'\] is a dictionary of paths"),
        ({"TASKS": {"shop.*": {"keep": 5}}}, r"\['TASKS'\]\['shop.\*'\] has no 'keep': it has max_attempts"),
        ({"TASKS": {"shop.*": {"discard_on": "OSError"}}}, r"'discard_on'\] is a tuple of classes of exceptions, or"),
        ({"backoff": []}, "seconds, a list of them, or a function"),
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


class TasksElsewhere:
    """A router that has the tasks on another database."""

    def db_for_write(self, model, **hints):
        return "other" if model._meta.app_label == "xq_tasks" else None


def test_a_check_warns_of_a_router_that_has_the_tasks_on_another_database(tasks, other):
    def warned() -> list[str]:
        return [one.msg for one in checks.run_checks() if one.id == "xq.W015"]

    assert warned() == []
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.TasksElsewhere"]):
        (found,) = warned()
    assert "in the database 'other': a task that is enqueued within atomic() of 'default' stays" in found


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
