"""manage.py: workers that are started, end and start anew; numbers; what is buried and what is due."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.django.apps import ROOT, Project
from tests.steps import STUCK, eventually
from xq.adapters.django import queues
from xq.adapters.django.management.commands.xq_worker import FirstLines


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


def test_the_numbers_of_all_queues_are_a_table_and_those_of_one_are_json(office):
    office.Order.put({"tube": "mail"})
    office.Order.xq.put_many([{}, {}])
    office.Order.take()
    assert manage("xq_stats") == textwrap.dedent("""\
        queue          tube  Ready  Taken  Waiting  Buried  Done
        office.Order         2      1      0        0       0
        office.Order   mail  0      1      0        0       0
        office.Parcel        0      0               0
        office.Page          0      0               0

        queue         tube  transition   times
        office.Order        X-Ready      3
        office.Order        Ready-Taken  1
        office.Order  mail  X-Ready      1
        office.Order  mail  Ready-Taken  1
    """)
    told = json.loads(manage("xq_stats", "office.Order", "--json"))
    assert told == {"office.Order": office.Order.stats().model_dump()}


def test_neither_a_proxy_nor_a_model_with_a_field_of_the_name_xq_is_among_the_queues(office):
    assert [queue.model for queue in queues()] == [office.Order, office.Parcel, office.Page]
    assert manage("xq_sweep", "office.Bill") == "office.Order: 0 moved\n"  # a name for the queue that it shares


WRONG = [
    (["xq_stats", "office.Customer"], r"office\.Customer is not a queue.*upgrade.*office\.Order"),
    (["xq_sweep", "office.Nobody"], r"there is no model 'office\.Nobody'"),
    (["xq_dig", "Order"], r"there is no model 'Order': name it as APP\.MODEL, for example shop\.Order"),
    (["xq_worker", "office.Parcel"], r"office\.Parcel has no worker.*import its module in tasks\.py.*--call"),
    (["xq_worker", "office.Order", "--call", "office.nowhere"], r"--call office\.nowhere: No module"),
    (["xq_worker", "office.Order", "--workers", "0", "--until-empty"], "workers is a number from 1 to 1,0"),
    (["xq_worker", "office.Order", "--queue", "mail"], "--queue is for the queues of django.tasks"),
    (["xq_worker", "office.Order", "--kind", "process"], "--kind is for the queues of django.tasks"),
    (["xq_worker", "--call", "office.jobs.bill"], "--call goes with one queue of a model"),
    (["xq_worker", "office.Order", "office.Page", "--call", "office.jobs.bill"], "--call goes with one queue"),
    (["xq_dig", "office.Order", "--key", "first"], "the key 'id' is a whole number .*, not 'first'"),
    (["xq_dig", "office.Parcel", "--delay", "5"], "delay"),
]


def test_what_cannot_be_done_is_said_in_words(office):
    for command, words in WRONG:
        with pytest.raises(CommandError, match=words):
            manage(*command)


# xq_dig: the arguments, in which @n is the key of a task -> the states of four tasks that were buried, or the error

DIGS = {
    "": "RRRR",
    "-n 2 --delay 60": "WWBB",
    "--key @0 --key @2": "RBRB",
    "--key @0 --key 1234": "BBBB",
    "@2": "BBRB",
    "@1 -n 1": "BBBB",
}


def test_buried_tasks_are_dug_all_the_oldest_or_those_that_are_named(office, subtests):
    for words, then in DIGS.items():
        with subtests.test(words):
            office.Order.xq.truncate()
            keys = buried(office.Order, 4)
            given = [str(keys[int(word[1:])]) if word.startswith("@") else word for word in words.split()]
            with pytest.raises(CommandError) if then == "BBBB" else nullcontext():
                told = manage("xq_dig", "office.Order", *given)
                assert told == f"office.Order: {4 - then.count('B')} dug\n"
            assert "".join(office.Order.xq.peek(key).status for key in keys) == then


def test_keys_of_any_type_and_of_several_parts_are_read(office):
    (key,) = buried(office.Parcel, 1)
    assert manage("xq_dig", "office.Parcel", "--key", key) == "office.Parcel: 1 dug\n"
    buried(office.Page, 1, site="one", number=7)
    assert manage("xq_dig", "office.Page", "--key", '["one", 7]') == "office.Page: 1 dug\n"


def test_what_is_due_is_moved(office):
    office.Order.xq.put_many([{}, {}], delay=60)
    office.Order.objects.update(runat=1.0)
    assert manage("xq_sweep") == "office.Order: 2 moved\noffice.Parcel: 0 moved\noffice.Page: 0 moved\n"


# xq_worker


def test_the_worker_of_the_model_stores_its_schedules_and_works_until_nothing_is_left(office):
    office.Order.xq.put_many([{}] * 5)
    manage("xq_worker", "office.Order", "--until-empty")
    assert set(office.Order.objects.values_list("status", "note")) == {("D", "billed")}
    office.Parcel.put({})
    assert office.Parcel.xq.schedules() == []
    manage("xq_worker", "office.Parcel", "--call", "tests.django.office.jobs.ship", "--until-empty")
    assert [(each.name, each.tz) for each in office.Parcel.xq.schedules()] == [("nightly", "Asia/Tokyo")]
    assert office.Parcel.stats().transition["T-X"] == 1


def test_one_program_works_on_several_queues_and_measures_all_of_them(office, caplog):
    read: list[str] = []

    def work(order: Any) -> None:
        (address,) = re.findall(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", caplog.text)
        read.append(urllib.request.urlopen(address, timeout=STUCK).read().decode())

    for model in (office.Order, office.Parcel):
        model.xq.handlers.clear()
        model.xq.worker(work)
        model.xq.put_many([{}, {}])
    with caplog.at_level("INFO", "xq"):
        manage("xq_worker", "office.Order", "office.Parcel", "office.order", "--until-empty", "--metrics-port", "0")
    assert [model.xq.count("R") for model in (office.Order, office.Parcel)] == [0, 0]
    assert len(read) == 4
    assert all(f'xq_tasks{{queue="{name}",state="T"' in read[0] for name in ("Order", "Parcel"))


MORE = "5 more lines of django_tasks: KeyError"


def test_the_log_of_django_tasks_has_the_first_lines_of_each_error_and_the_number_of_the_others(caplog, monkeypatch):
    monkeypatch.setattr("xq.core.time.monotonic", lambda: 10.0)
    log = logging.getLogger("django_tasks")
    log.addFilter(lines := FirstLines(log))
    for n in range(25):
        log.error("Task %d", n, exc_info=KeyError(n))
    log.error("Task of another error", exc_info=ValueError())
    log.removeFilter(lines)
    lines.sum_up()
    assert caplog.messages == [*(f"Task {n}" for n in range(20)), "Task of another error", MORE]


def test_a_worker_serves_its_metrics_on_a_port(office, caplog):
    read: list[str] = []

    def work(order: Any) -> None:
        (address,) = re.findall(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", caplog.text)
        read.append(urllib.request.urlopen(address, timeout=STUCK).read().decode())

    office.Order.xq.handlers.clear()
    office.Order.xq.worker(work)
    office.Order.put({})
    with caplog.at_level("INFO", "xq"):
        manage("xq_worker", "office.Order", "--until-empty", "--metrics-port", "0")
    assert 'xq_tasks{queue="Order",state="T",tube=""} 1.0' in read[0]


ENDLESS = """
import pathlib, time

def work(order):
    (pathlib.Path(__file__).parent / "begun").touch()
    while True:
        time.sleep(0.01)
"""

KILLED = """
import os, signal

from tests.django.office.models import Order

Order.xq.handlers.clear()

@Order.xq.worker(workers=2, kind="process")
def work(order):
    if order.note == "kills" and order.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    Order.objects.filter(pk=order.pk).update(note=str(os.getpid()))
"""


@pytest.fixture
def project(office: Any, django_db: Any, tmp_path: Path) -> Project:
    apps = ("xq.adapters.django", "tests.django.office")  # whose queues are installed without migrations
    return Project(tmp_path, django_db.settings, *apps)


@contextmanager
def worker(project: Project, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """manage.py xq_worker, in a process group of its own, which a signal ends behind the block."""
    command = [sys.executable, "-m", "django", "xq_worker", "office.Order", "--call", "project_jobs.work", *words]
    log = project.folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=project.environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
        if process.poll() is None:  # else the test has killed it
            process.send_signal(signal.SIGTERM)
            assert process.wait(STUCK) == 0, log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STUCK)


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_a_worker_starts_anew_when_the_code_changes_and_runs_again_what_it_had_in_hand(office, project):
    put = office.Order.put({})
    begun = project.folder / "begun"
    project.write("project_jobs.py", ENDLESS)
    with worker(project, "--reload"):
        eventually(begun.exists)
        begun.unlink()
        # written again until it is watched
        eventually(lambda: begun.exists() or project.write("project_jobs.py", ENDLESS.replace("while True", "while 0")))
        eventually(lambda: office.Order.xq.peek(put).status == "D")
    assert office.Order.xq.peek(put).attempts >= 2


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_the_process_that_the_reloader_has_started_ends_with_its_parent(office, project):
    put = office.Order.put({})
    project.write("project_jobs.py", ENDLESS)
    with worker(project, "--reload") as parent:
        eventually((project.folder / "begun").exists)
        parent.kill()
        parent.wait(STUCK)
        assert eventually(office.Order.take).pk == put.pk


def test_a_worker_of_processes_does_all_tasks_and_replaces_a_process_that_is_killed(office, project):
    project.write("project_jobs.py", KILLED)
    office.Order.xq.put_many([{"note": "kills"}, *[{}] * 20])
    with worker(project) as program:
        eventually(lambda: office.Order.xq.count("D") == 21)
    done = office.Order.objects.all()
    assert sorted(order.attempts for order in done) == [*[1] * 20, 2]
    assert str(program.pid) not in {order.note for order in done}  # the processes work, not their parent
    log = (project.folder / "log").read_text()
    assert ("is done after" in log, "forked" in log) == (True, False)  # they import the project
    assert office.Order.stats().transition["T-D"] == 21


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_the_command_line_finds_models_and_workers_of_the_project_in_its_folder(office, project):
    office.Order.put({})
    model = "from tests.django.office.models import Order\nOrder.xq.handlers.clear()\n"
    project.write("handlers.py", f"{model}@Order.xq.worker\ndef ship(order):\n    pass\n")

    environment = {**project.environment, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    for target in ("office.Order", "handlers:ship"):
        command = [sys.executable, "-c", "from xq.cli import main; main()", "stats", target, "--json"]
        told = subprocess.run(command, cwd=project.folder, env=environment, capture_output=True, text=True)
        assert json.loads(told.stdout or "null")["counts"]["R"] == 1, told.stderr


@pytest.mark.parametrize("django_db", ["sqlite"], indirect=True)
def test_manage_py_has_the_whole_command_line_with_the_settings_of_the_project(office, project):
    task = office.Order.put({})

    def told(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "django", *words]
        done = subprocess.run(command, cwd="/", env=project.environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert told("xq", "kill", "office.Order", str(task.pk), "--yes")[0] == 0
    assert office.Order.objects.count() == 0
    assert told("xq", "peek", "office.Order", str(task.pk))[0] == 1
    assert told("xq", "peek", "office.Nobody")[0] != 0
    office.Order.xq.pause()
    assert "\n  manage.py xq resume office.Order\n" in told("xq", "doctor", "office.Order")[1]
    for words in (["xq", "--help"], ["help", "xq"]):
        code, text = told(*words)
        assert (code, "Usage: manage.py xq" in text) == (0, True), text
