"""A worker of Django is killed with kill -9: its task is run again, by another."""

from __future__ import annotations

import signal
from io import StringIO

from tests.django.conftest import fresh
from tests.django.names import TaskResultStatus
from tests.django.on_tasks import backend, install, worker_process
from tests.django.shop import jobs
from tests.steps import STUCK, eventually
from xq.adapters.django.tasks.worker import run
from xq.workers.outcomes import ProcessDied


def test_the_task_of_a_worker_that_is_killed_is_run_again_by_another(tmp_path):
    go_on, told = tmp_path / "go on", tmp_path / "told"

    def is_finished():
        run(until_empty=True)
        result.refresh()
        return result.is_finished

    with fresh("sqlite", tmp_path) as database, backend():
        install(database)
        result = jobs.wait_for.enqueue(str(go_on), str(told))
        with worker_process(database) as first:
            eventually(lambda: told.exists() and told.read_text() == "begun\n")
            result.refresh()
            assert (result.status, result.attempts) == (TaskResultStatus.RUNNING, 1)
            first.send_signal(signal.SIGKILL)
            first.wait(STUCK)
        go_on.touch()
        eventually(is_finished)
    assert (result.return_value, result.attempts, len({*result.worker_ids})) == ("done", 2, 2)
    assert told.read_text() == "begun\nbegun\n"


WHY = "TimeoutError: the function runs for longer than 1 s", "ProcessDied: the worker process has died"


def test_a_function_that_hangs_in_a_worker_process_or_kills_it_has_failed_after_its_attempts(tmp_path, capfd):
    told, died, log = tmp_path / "told", tmp_path / "died", StringIO()

    def are_finished():
        for each in results:
            each.refresh()
        return all(each.is_finished for each in results)

    def are_told():
        log.write(capfd.readouterr().out.replace("xq.workers.outcomes.", ""))
        return all(f"state=FAILED\n{why}" in log.getvalue() for why in WHY)

    with fresh("sqlite", tmp_path) as database, backend():
        install(database)
        results = [jobs.hang.enqueue(str(told)), jobs.die.enqueue(str(died))]
        with worker_process(database, "--kind", "process"):
            eventually(are_finished)
            eventually(are_told)  # after the commit, and this block kills the worker
    hung, dead = ([error.exception_class for error in each.errors] for each in results)
    assert (hung, told.read_text().count("begun")) == ([TimeoutError] * 2, 2)
    assert (dead, died.read_text().count("begun")) == ([ProcessDied] * 2, 2)


def test_a_task_is_successful_only_with_its_value_also_if_its_worker_process_dies_after_its_function(tmp_path):
    def is_finished():
        result.refresh()
        return result.is_finished

    with fresh("sqlite", tmp_path) as database, backend():
        install(database)
        result = jobs.double.enqueue(21, str(tmp_path / "told"))
        with worker_process(database, "--kind", "process"):
            eventually(is_finished)
    assert (result.return_value, result.attempts, result.finished_at is not None) == (42, 2, True)
    assert [error.exception_class for error in result.errors] == [ProcessDied]
