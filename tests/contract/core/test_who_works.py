"""An operator finds the process that holds a task: each session names its host, its pid and its program."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from subprocess import check_output

import pytest

from tests.factories import tasks
from tests.steps import another_process, eventually

FIELDS = ("session", "host", "pid", "program", "since", "tasks", "oldest", "gone")
HERE = Path(__file__).parents[3]


def test_processes_name_each_session_and_count_what_it_holds_of_the_queue(make_live):
    Task, Other = make_live(), make_live(model=make_live.model(table_name="other"))
    Task.xq.put_many(tasks(3))
    Other.put({})
    Task.xq.take_many(2)
    Other.take()
    ((uuid, since),) = Task.xq.sessions()
    (held,) = Task.xq.processes()
    assert held._fields == FIELDS
    assert (held.session, held.since, held.host, held.pid) == (uuid, since, socket.gethostname(), os.getpid())
    assert (held.tasks, held.gone) == (2, False)
    assert held.oldest == min(at for _, _, at in Task.xq.taken())
    assert held.name == f"pid {os.getpid()} on host {socket.gethostname()} ({held.program})"
    assert [each.tasks for each in Other.xq.processes()] == [1]
    with Task.xq.session() as session:
        (idle,) = [each for each in Task.xq.processes() if each.session == session.uuid]
        assert (idle.tasks, idle.oldest, idle.pid) == (0, None, os.getpid())


def test_the_process_of_another_program_is_that_of_its_task(make_live):
    Task = make_live()
    Task.put({})

    def script():
        Task.take()
        yield os.getpid()

    with another_process(make_live.db, script) as other:
        pid = next(other)
        (held,) = Task.xq.processes()
        assert (held.pid, held.tasks, held.gone) == (pid, 1, False)
        (why, *_) = Task.xq.why(1)
        assert why.startswith(f"it is taken by the session {held.session} for ")
        assert why.endswith(f": {held.name}")
        other.kill()
        assert eventually(lambda: [each.pid for each in Task.xq.processes() if each.gone]) == [pid]


def test_a_session_that_another_process_resumes_is_named_by_that_one(make_live):
    Task = make_live()
    Task.xq.configure(session_ttr=600)
    Task.put({})

    def script():
        with Task.xq.session() as session:
            Task.take()
            yield session.uuid, os.getpid()
            yield

    with another_process(make_live.db, script) as other:
        uuid, pid = next(other)
        assert [each.pid for each in Task.xq.processes()] == [pid]
        other.kill()
        with Task.xq.session(uuid):
            assert [each.pid for each in Task.xq.processes() if each.session == uuid] == [os.getpid()]


NAMED = """
import peewee as pw, xq

class Page(xq.Task):
    class Meta:
        database = pw.SqliteDatabase({file!r})

xq.upgrade(Page)
Page._meta.database.create_tables([Page])
Page.put({{}})
Page.take()
print(Page.xq.processes()[0].program)
"""


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["crawl.py", "--password=hunter2"], "crawl.py"),
        (["-m", "crawl", "hunter2"], "-m crawl"),
        (["-c", "import crawl", "hunter2"], "python"),
        ([f"{'x' * 80}.py"], "x" * 60),
        (["größe\n.py"], "gr\\xf6\\xdfe?.py"),
    ],
    ids=["a file", "a module", "a text", "long", "no ASCII"],
)
def test_a_program_is_named_without_its_arguments(tmp_path, command, program):
    text = NAMED.format(file=str(tmp_path / "app.db"))
    for name in {"crawl.py", command[0] if command[0].endswith(".py") else "crawl.py"}:
        (tmp_path / name).write_text(text)
    path = {"PYTHONPATH": str(HERE), "PATH": os.environ["PATH"]}
    assert check_output([sys.executable, *command], cwd=tmp_path, env=path, text=True).strip() == program


def test_a_worker_of_the_command_line_is_named_by_its_command(tmp_path):
    (tmp_path / "app.py").write_text(
        "import peewee as pw, xq\n"
        "class Page(xq.Task):\n"
        f"    class Meta: database = pw.SqliteDatabase({str(tmp_path / 'app.db')!r})\n"
        "xq.upgrade(Page)\n"
        "@Page.xq.worker\n"
        "def work(page): print(Page.xq.processes()[0].program, flush=True)\n"
        "Page._meta.database.create_tables([Page])\n"
        "if __name__ != '__main__' and not Page.select().exists(): Page.put({})\n"
    )
    path = {"PYTHONPATH": str(HERE), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "xq", "worker", "app:work", "--until-empty"]
    assert check_output(command, cwd=tmp_path, env=path, text=True).strip() == "xq worker"
