"""manage.py: workers that are started, end and start anew; numbers; what is buried and what is due."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test.utils import override_settings

from tests.conftest import SERVERS, database_on
from tests.django.conftest import one_more
from tests.steps import STUCK, eventually
from xq.adapters.django import queues
from xq.adapters.django.admin import QueueAdmin
from xq.adapters.django.migrations import queue_apart
from xq.adapters.django.settings import problems_of_xq, setting
from xq.core.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent.parent


def manage(*words: Any, **options: Any) -> str:
    """What a command writes."""
    out = io.StringIO()
    call_command(*map(str, words), stdout=out, **options)
    return out.getvalue()


def buried(model: Any, n: int, **brought: Any) -> list[Any]:
    """Keys of tasks that are buried."""
    model.xq.put_many([brought] * n)
    return [model.xq.bury(task).pk for task in model.xq.take_many(n)]


# xq_stats


def test_the_numbers_of_all_queues_are_a_table(office):
    office.Order.put({"tube": "mail"})
    office.Order.xq.put_many([{}, {}])
    office.Order.take()
    assert manage("xq_stats") == textwrap.dedent("""\
        queue          tube  Ready  Taken  Waiting  Buried  Done
        office.Order             2      1        0       0     0
        office.Order   mail      0      1        0       0     0
        office.Parcel            0      0                0
        office.Page              0      0                0

        queue         tube  transition   times
        office.Order        X-Ready          3
        office.Order        Ready-Taken      1
        office.Order  mail  X-Ready          1
        office.Order  mail  Ready-Taken      1
    """)


def test_neither_a_proxy_nor_a_model_with_a_field_of_the_name_xq_is_among_the_queues(office):
    assert [queue.model for queue in queues()] == [office.Order, office.Parcel, office.Page]
    assert manage("xq_sweep", "office.Bill") == "office.Order: 0 moved\n"  # a name for the queue that it shares
    assert QueueAdmin(office.Bill, AdminSite()).queue is office.Order.xq
    with pytest.raises(ConfigurationError, match="QueueAdmin, and Customer is no queue"):
        QueueAdmin(office.Customer, AdminSite())


def test_numbers_as_json_are_one_document_of_what_stats_returns(office):
    office.Order.put({"tube": "mail"})
    told = json.loads(manage("xq_stats", "office.Order", "--json"))
    assert told == {"office.Order": office.Order.stats().model_dump()}
    assert told["office.Order"]["tube"]["mail"]["counts"]["R"] == 1


def test_a_queue_that_is_not_installed_is_told_of_and_hides_no_other(office):
    office.Parcel.xq.uninstall()
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"office\.Parcel: .*not installed"):
        call_command("xq_stats", stdout=out)
    assert "office.Page" in out.getvalue()
    assert "office.Parcel" not in out.getvalue()


WRONG = [
    (["xq_stats", "office.Customer"], r"office\.Customer is no queue.*upgrade.*office\.Order"),
    (["xq_sweep", "office.Nobody"], r"there is no model 'office\.Nobody'"),
    (["xq_dig", "Order"], r"there is no model 'Order': one is named as shop\.Order is"),
    (["xq_worker", "office.Parcel"], r"office\.Parcel has no worker.*--call"),
    (["xq_worker", "office.Order", "--call", "office.nowhere"], r"--call office\.nowhere: No module"),
    (["xq_worker", "office.Order", "--workers", "0", "--until-empty"], "workers is a number from 1 to 1,0"),
    (["xq_worker", "office.Order", "--queue", "mail"], "--queue is for the queues of django.tasks"),
    (["xq_worker", "--call", "office.jobs.bill"], "--call needs a queue"),
    (["xq_dig", "office.Order", "--key", "first"], r"first is no key of office\.Order: .*integer"),
    (["xq_dig", "office.Page", "--key", "first"], r"first is no key of office\.Page"),
    (["xq_dig", "office.Order", "--key", "1"], "1 .*is not there|no task|not found|NotFound|there is no"),
    (["xq_dig", "office.Order", "-n", "-1"], "not negative|unrecognized"),
    (["xq_dig", "office.Parcel", "--delay", "5"], "delay"),
    (["xq_stats", "--database", "elsewhere"], "invalid choice: 'elsewhere'"),
]


def test_what_cannot_be_done_is_said_in_words(office):
    for command, words in WRONG:
        with pytest.raises(CommandError, match=words):
            manage(*command)


# xq_dig: the arguments, in which @n is the key of a task -> the states of four tasks that were buried, or the error

DIGS = [
    ("", "RRRR"),
    ("-n 2 --delay 60", "WWBB"),
    ("--key @0 --key @2", "RBRB"),
    ("--key @0 --key 1234", "BBBB"),
    ("@2", "BBRB"),
    ("@1 -n 1", "BBBB"),
    ("@1 --key @3", "BBBB"),
]


@pytest.mark.parametrize(("words", "then"), DIGS, ids=[words or "all" for words, _ in DIGS])
def test_buried_tasks_are_dug_all_the_oldest_or_those_that_are_named(office, words, then):
    keys = buried(office.Order, 4)
    given = [str(keys[int(word[1:])]) if word.startswith("@") else word for word in words.split()]
    if then == "BBBB":
        with pytest.raises(CommandError):
            manage("xq_dig", "office.Order", *given)
    else:
        assert manage("xq_dig", "office.Order", *given) == f"office.Order: {4 - then.count('B')} dug\n"
    assert "".join(office.Order.xq.peek(key).status for key in keys) == then


def test_keys_of_any_type_and_of_several_parts_are_read(office):
    (key,) = buried(office.Parcel, 1)
    assert manage("xq_dig", "office.Parcel", "--key", key) == "office.Parcel: 1 dug\n"
    buried(office.Page, 1, site="one", number=7)
    buried(office.Page, 1, site="two", number=7)
    assert manage("xq_dig", "office.Page", "--key", '["one", 7]') == "office.Page: 1 dug\n"
    assert manage("xq_dig", "office.Page", '["two", 7]') == "office.Page: 1 dug\n"
    assert office.Page.stats().counts["R"] == 2


# xq_sweep


def test_what_is_due_is_moved_once(office):
    office.Order.xq.put_many([{}, {}], delay=60)
    office.Order.objects.update(runat=1.0)
    assert manage("xq_sweep", "office.Order") == "office.Order: 2 moved\n"
    assert office.Order.stats().counts == {"R": 2, "T": 0, "W": 0, "B": 0, "D": 0}
    assert manage("xq_sweep") == "office.Order: 0 moved\noffice.Parcel: 0 moved\noffice.Page: 0 moved\n"


# --database


def test_while_commands_are_about_another_database_other_threads_put_where_they_did(office, another_alias):
    with connections["other"].schema_editor() as editor:
        editor.create_model(office.Order)
    there = queue_apart(office.Order, "other", office.Order.xq.adapter.definition)
    there.install()
    office.Order.objects.using("other").bulk_create([office.Order(status="B"), office.Order(status="B")])
    puts: list[Any] = []
    with ThreadPoolExecutor(1) as another_thread:

        def put_meanwhile(execute: Any, *statement: Any) -> Any:
            puts.append(another_thread.submit(office.Order.put, {}).result(STUCK))
            return execute(*statement)

        for command in (["xq_stats", "office.Order"], ["xq_dig", "office.Order", "-n1"], ["xq_sweep", "office.Order"]):
            before = len(puts)
            with connections["other"].execute_wrapper(put_meanwhile):
                manage(*command, "--database", "other")
            assert len(puts) > before
        another_thread.submit(connections.close_all).result(STUCK)
    assert office.Order.stats().counts["R"] == len(puts)
    counts = there.stats().counts
    assert (counts["R"], counts["B"]) == (1, 1)


@pytest.fixture
def another_alias(django_db: Any, tmp_path: Path) -> Iterator[None]:
    """A second database of the same kind, "other"."""
    with ExitStack() as stack:
        there = {**django_db.settings, "NAME": str(tmp_path / "other.db")}
        if django_db.kind != "sqlite":
            there["NAME"] = stack.enter_context(database_on(SERVERS[django_db.kind]))[1]
        stack.enter_context(one_more("other", there))
        yield


# the setting XQ


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"WORKER": 2}, ["the setting XQ has no 'WORKER': it has WORKERS, AUTORELOAD"]),
        ({"WORKERS": 0}, ["the setting XQ['WORKERS'] is a number from 1 on, or None, not 0"]),
        ({"WORKERS": True, "AUTORELOAD": 1}, 2),
        ([], 1),
        ({}, []),
        ({"WORKERS": 2, "AUTORELOAD": None}, []),
    ],
    ids=str,
)
def test_the_setting_says_what_is_wrong_with_it(given, words):
    assert setting("WORKERS") is None
    with override_settings(XQ=given):
        assert problems_of_xq() == words or len(problems_of_xq()) == words


# xq_worker


def test_the_worker_of_the_model_works_until_nothing_is_left(office):
    office.Order.xq.put_many([{}] * 5)
    with override_settings(XQ={"WORKERS": "many"}), pytest.raises(CommandError, match="number from 1 on, or None"):
        manage("xq_worker", "office.Order", "--until-empty")
    manage("xq_worker", "office.Order", "--until-empty")
    assert set(office.Order.objects.values_list("status", "note")) == {("D", "billed")}
    office.Parcel.put({})
    manage("xq_worker", "office.Parcel", "--call", "tests.django.office.jobs.ship", "--until-empty")
    assert office.Parcel.stats().transition["T-X"] == 1


def test_after_each_task_the_connections_that_it_used_end_but_for_the_workers_own(office, another_alias):
    seen: list[Any] = []

    def work(order: Any) -> None:
        seen.append((connections["default"].connection, connections["other"].connection))
        connections["other"].ensure_connection()

    office.Order.xq.put_many([{}] * 2)
    office.Order.xq.worker(work, workers=1)
    manage("xq_worker", "office.Order", "--workers", 1, "--until-empty")
    assert [other for _, other in seen] == [None, None]
    assert seen[0][0] is seen[1][0] is not None


@pytest.mark.parametrize(
    "begin",
    [
        lambda kept: transaction.set_autocommit(False),
        lambda kept: enter(transaction.atomic(), kept),
        lambda kept: enter(transaction.atomic("other"), kept),
        lambda kept: connections["default"].cursor().execute("BEGIN"),
        lambda kept: connections["other"].cursor().execute("BEGIN"),
    ],
)
def test_a_function_that_leaves_a_transaction_open_has_failed_and_wrote_nothing(office, begin):
    kept: list[Any] = []

    def work(order: Any) -> None:
        if order.note == "left":
            begin(kept)
            office.Customer.objects.create(name="never")

    office.Order.xq.put_many([{"note": "left"}, {"note": "done"}])
    office.Order.xq.worker(work, max_attempts=1)
    manage("xq_worker", "office.Order", "--until-empty")
    assert {order.note: order.status for order in office.Order.objects.all()} == {"left": "B", "done": "D"}
    assert office.Customer.objects.count() == 0


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_worker_serves_its_metrics_on_a_port_if_it_is_free(office, caplog):
    read: list[str] = []

    def work(order: Any) -> None:
        (address,) = re.findall(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", caplog.text)
        read.append(urllib.request.urlopen(address, timeout=STUCK).read().decode())

    office.Order.xq.worker(work)
    office.Order.put({})
    with caplog.at_level("INFO", "xq"):
        manage("xq_worker", "office.Order", "--until-empty", "--metrics-port", "0")
    assert 'xq_tasks{queue="Order",state="T",tube=""} 1.0' in read[0]
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CommandError, match="in use"):
        manage("xq_worker", "office.Order", "--until-empty", "--metrics-port", taken.getsockname()[1])


def enter(block: Any, kept: list[Any]) -> None:
    block.__enter__()
    kept.append(block)


SETTINGS = """
import pymysql
pymysql.install_as_MySQLdb()

SECRET_KEY = "of tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["xq.adapters.django", "tests.django.office"]
SILENCED_SYSTEM_CHECKS = ["xq.E001"]  # the queues are installed without migrations
DATABASES = {"default": %r}
"""

JOBS = """
import pathlib, time

def work(order):
    (pathlib.Path(__file__).parent / "begun").touch()
    while not (pathlib.Path(__file__).parent / "go").exists():
        time.sleep(0.01)
    type(order).objects.filter(pk=order.pk).update(note="by version 1")
"""


class Project:
    """A project in a folder, on the database of the test, with a module of work that can be changed."""

    def __init__(self, folder: Path, database: Any) -> None:
        self.folder, self.begun, self.go, self.log = folder, folder / "begun", folder / "go", folder / "log"
        self._time = time.time()
        (folder / "project_settings.py").write_text(SETTINGS % database.settings)
        self.write(JOBS)

    def write(self, jobs: str) -> None:
        """Replace the module, whole, by one from the future: Python compares its time with that of the compiled one."""
        self._time += 10
        new = self.folder / "new"
        new.write_text(jobs)
        os.utime(new, (self._time, self._time))
        new.replace(self.folder / "project_jobs.py")

    def said(self, words: str) -> bool:
        """Whether the worker has said this."""
        return words in self.log.read_text()

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DJANGO_SETTINGS_MODULE": "project_settings",
        }

    @contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """manage.py xq_worker, in a process group of its own, of which none is left."""
        command = [sys.executable, "-m", "django", "xq_worker", "office.Order", "--call", "project_jobs.work", *words]
        with self.log.open("wb") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STUCK)


@pytest.fixture
def project(office: Any, django_db: Any, tmp_path: Path) -> Project:
    return Project(tmp_path, django_db)


def test_a_worker_finishes_its_task_at_the_first_signal(office, project):
    put, other = office.Order.xq.put_many([{}, {}])
    with project.worker() as worker:
        eventually(project.begun.exists)
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: project.said("a second signal releases the tasks"))
        project.go.touch()
        assert worker.wait(STUCK) == 0, project.log.read_text()
    found = office.Order.xq.peek(put)
    assert (found.status, found.note, found.attempts) == ("D", "by version 1", 1)
    assert office.Order.xq.peek(other).status == "R"


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_worker_releases_its_task_at_the_second_signal(office, project):
    put = office.Order.put({})
    with project.worker() as worker:
        eventually(project.begun.exists)
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: project.said("a second signal releases the tasks"))
        worker.send_signal(signal.SIGINT)
        assert worker.wait(STUCK) == 128 + signal.SIGINT, project.log.read_text()
    assert office.Order.xq.peek(put).status == "R"


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_worker_starts_anew_when_the_code_changes_and_runs_again_what_it_had_in_hand(office, project):
    first = office.Order.put({})
    second = 'print("the second version", flush=True)\n' + JOBS.replace("version 1", "version 2")
    with project.worker("--reload") as worker:
        eventually(project.begun.exists)
        eventually(lambda: project.said("the second version") or project.write(second))  # seen, when it is watched
        project.go.touch()
        eventually(lambda: office.Order.xq.peek(first).status == "D")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(STUCK) == 0, project.log.read_text()
    found = office.Order.xq.peek(first)
    assert (found.note, found.attempts) == ("by version 2", 2)
    assert office.Order.stats().transition["T-D"] == 1


PROCESS_JOBS = """
import os, pathlib, time

from tests.django.office.models import Order

@Order.xq.worker(workers=2, kind="process")
def work(order):
    folder = pathlib.Path(__file__).parent
    if order.note == "long" and order.attempts == 1:
        (folder / "pid").write_text(str(os.getpid()))
        (folder / "pid").rename(folder / "begun")
        while True:
            time.sleep(0.01)
    type(order).objects.filter(pk=order.pk).update(note=str(os.getpid()))
"""


def test_a_worker_of_processes_does_all_tasks_and_replaces_a_process_that_is_killed(office, project):
    project.write(PROCESS_JOBS)
    long, *others = office.Order.xq.put_many([{"note": "long"}, *[{}] * 20])
    with project.worker() as worker:
        eventually(project.begun.exists)
        killed = int(project.begun.read_text())
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: office.Order.xq.count("D") == 21)
        eventually(lambda: project.said(f"worker process {killed} has ended with code -9, and is replaced"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(STUCK) == 0, project.log.read_text()
    found = {order.pk: order for order in office.Order.objects.all()}
    assert found[long.pk].attempts == 2
    assert {found[other.pk].attempts for other in others} == {1}
    assert int(found[long.pk].note) != killed
    assert worker.pid not in {int(order.note) for order in found.values()}  # the processes work, not their parent
    assert office.Order.stats().transition["T-D"] == 21


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_the_command_line_finds_models_and_workers_of_the_project_in_its_folder(office, project):
    office.Order.put({})
    (project.folder / "handlers.py").write_text(
        "from tests.django.office.models import Order\n\n\n@Order.xq.worker\ndef ship(order):\n    pass\n"
    )

    def xq_says(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from xq.cli import main; main()", *words]
        told = {**project.environment, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", **environment}
        return subprocess.run(command, cwd=project.folder, env=told, capture_output=True, text=True, timeout=STUCK)

    for target in ("office.Order", "handlers:ship"):
        told = xq_says("stats", target, "--json")
        assert json.loads(told.stdout or "null")["counts"]["R"] == 1, told.stderr
    told = xq_says("stats", "office.Order", DJANGO_SETTINGS_MODULE="nowhere")
    assert (told.returncode, "Traceback" in told.stderr, "manage.py" in told.stderr) == (1, False, True), told.stderr
