"""How the processes of a worker start: what they share with their program, and what they do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.steps import STUCK
from tests.timing import in_sequence

ROOT = Path(__file__).resolve().parents[2]

JOBS = """
import logging, os, signal
import peewee as pw
import xq

db = pw.{database}({name!r}, **{parameters!r})
pool = []  # of another library: its connection, and the process that has opened it

class Task(pw.Model):
    class Meta:
        database = db

xq.upgrade(Task)

def ask(n):
    if not pool:
        pool.append((os.getpid(), db._connect()))
    (opened, connection), = pool
    cursor = connection.cursor()
    cursor.execute(f"SELECT {{n}}")
    return opened, *cursor.fetchone()

def idle(task): pass

class Odd(Exception):
    def __init__(self, code, text):
        super().__init__(text)

def tells(task):
    log = logging.getLogger("app")
    log.debug("hidden")
    try:
        raise LookupError("no price")
    except LookupError:
        log.exception("told %d by %s", task.id, "x", extra={{"n": {{"a": (1, None, Odd(2, "b"))}}}})

def work(task):
    opened, got = ask(task.id)
    os.write(1, b"%d %d %d %d\\n" % (os.getpid(), opened, got, task.id))  # a line is written as a whole
    if task.id == 1 and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""
MAIN = """
import jobs, logging, multiprocessing, xq
{before}
logging.basicConfig(level=logging.WARNING)
jobs.Task.create_table()
jobs.Task.xq.install()
jobs.Task.xq.put_many([{{}}] * 20)
jobs.ask(0)
print("main", flush=True)
work = jobs.Task.xq.worker({function}, kind="process", workers=3)
{after}
while jobs.Task.xq.count("R") + jobs.Task.xq.count("T"):
    work.run(until_empty=True)
"""

HANDLER = """
import os

class Handler(logging.Handler):
    def emit(self, record):
        print(record.process == os.getpid(), record.getMessage())
        print(record.exc_text.splitlines()[-1], record.n, flush=True)

logging.getLogger("app").addHandler(Handler())
logging.getLogger("app").setLevel(logging.INFO)
"""


@in_sequence
def program(
    folder: Path, db: Any, function: str = "jobs.work", before: str = "", after: str = "", late: bool = False
) -> tuple[Any, ...]:
    """Run a program whose functions stand in a module. Return its exit code, its lines, and its log."""
    db.close()
    given = {"database": type(db).__name__, "name": None if late else db.database, "parameters": db.connect_params}
    (folder / "jobs.py").write_text(JOBS.format(**given))
    before = f"jobs.db.init({db.database!r}, **{db.connect_params!r})" if late else before
    (folder / "main.py").write_text(MAIN.format(function=function, before=before, after=after))
    options: dict[str, Any] = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(ROOT)}, "text": True}
    ran = subprocess.run([sys.executable, "main.py"], timeout=STUCK, capture_output=True, **options)
    return ran.returncode, ran.stdout.splitlines(), ran.stderr


def test_a_worker_process_imports_its_function_and_shares_no_connection_with_the_program(shared_db, tmp_path):
    code, (main, *lines), log = program(tmp_path, shared_db)
    assert (code, main, "forked" in log) == (0, "main", False), log
    found = [tuple(map(int, line.split())) for line in lines]
    assert {task for *_, task in found} == {*range(1, 21)}
    assert all(pid == opened and got == task for pid, opened, got, task in found)
    assert len(found) == 21, "the process that was killed is replaced"


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # what no database decides
def test_the_handlers_of_the_program_get_what_a_worker_process_logs_by_their_levels(shared_db, tmp_path):
    code, lines, log = program(tmp_path, shared_db, "jobs.tells", HANDLER)
    assert (code, lines.count("False told 1 by x")) == (0, 1), log
    assert lines.count("LookupError: no price {'a': [1, None, \"Odd('b')\"]}") == 20
    assert not any("hidden" in line for line in lines)


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # what no database decides
@pytest.mark.parametrize(
    ("before", "function", "why"),
    [
        ("def here(task): pass", "here", "here stands in __main__: move it to a module that can be imported"),
        ("", "lambda task: None", "<lambda> stands in __main__: move it"),
        ("multiprocessing.set_start_method('fork')", "jobs.idle", "the start method of multiprocessing is fork"),
    ],
)
def test_a_program_is_warned_once_that_processes_which_are_forked_share_its_connections(
    shared_db, tmp_path, before, function, why
):
    code, _, log = program(tmp_path, shared_db, function, before)
    assert (code, len(re.findall("worker processes are forked: ", log))) == (0, 1), log
    assert re.search(f"forked: {re.escape(why)}.*{re.escape('engine.dispose(close=False)')}", log)


@pytest.mark.parametrize("shared_db", ["sqlite"], indirect=True)  # what no database decides
@pytest.mark.parametrize(("after", "late"), [("work.on_failure(print)", False), ("", True)])
def test_a_program_that_sets_its_worker_up_after_the_import_is_told_so(shared_db, tmp_path, after, late):
    code, lines, log = program(tmp_path, shared_db, after=after, late=late)
    assert (code, lines) == (1, ["main"])
    assert re.search("jobs.work cannot work in a process of its own .* Set it up where its module is imported", log)
    assert "ConfigurationError: a worker process cannot be set up" in log
