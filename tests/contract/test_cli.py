"""The command line: what each command prints and does, its exit codes, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import sys
from types import ModuleType
from typing import Any

import peewee as pw
import pytest

import xq
from tests.factories import task, tasks
from tests.steps import Bytes, another_process, bring, eventually, state, transitions
from xq.cli import main
from xq.cli import tasks as cli_tasks

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

ROLES = ("runat", "attempts", "error", "tube", "utube", "priority")
ERROR = {"error": pw.TextField(null=True)}
FULL = {"delayed": True, "buried": True, "keep": True, "ttr": 60, "history": True}


class Said(str):
    """What a command printed, and its exit code."""

    code: int
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self)

    @property
    def lines(self) -> list[list[str]]:
        """The cells of a table's lines."""
        return [line.split() for line in self.splitlines() if line.strip() and not line.startswith("─")]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: run(Task, "stats", "app:Page"), where the model of `app:Page` is Task."""

    def run(Task: Any, *arguments: object, stdin: str = "") -> Said:
        module = ModuleType("app")
        module.Page = Task  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "app", module)
        monkeypatch.setattr(sys, "argv", ["xq", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        said = Said(printed.out)
        said.code, said.errors = (1, f"{code}\n") if isinstance(code, str) else (code or 0, printed.err)
        return said

    return run


# tasks


def test_put_prints_the_key_of_the_task(make, run):
    Task = make(FULL)
    assert run(Task, "put", "app:Page", '{"name": "a"}') == "1\n"
    told = run(Task, "put", "app:Page", '{"name": "b"}', "--delay", 5, "--json").json
    assert (told["key"], told["state"], told["fields"]["name"]) == (2, "W", "b")
    assert transitions(Task) == {"X-R": 1, "X-W": 1}


def test_put_reads_a_task_from_each_line(make, run):
    Task = make(FULL)
    said = run(Task, "put", "app:Page", "-", stdin='{"name": "a"}\n\n{"name": "b"}\n')
    assert said.errors == "2 tasks put\n"
    assert [each.name for each in Task.select().order_by(Task.id)] == ["a", "b"]


@pytest.mark.parametrize("wrong", ["", "nothing", "[1]", "7", '{"name": '])
def test_put_takes_an_object(make, run, wrong):
    said = run(make(), "put", "app:Page", wrong)
    assert said.code == 2
    assert "a task is a JSON object" in " ".join(said.errors.split())


def test_put_names_the_line_that_is_wrong_and_says_what_is_put(make, run, monkeypatch):
    monkeypatch.setattr(cli_tasks, "BATCH", 2)
    Task = make(FULL)
    said = run(Task, "put", "app:Page", "-", stdin='{"name": "a"}\n\n{"name": "b"}\n{"name": "c"}\nno\n')
    assert said.code == 2
    assert said.errors.startswith("2 tasks are put, those of the lines up to 3: go on behind these\n")
    assert "line 5: a task is a JSON object" in said.errors
    assert Task.xq.count() == 2


def test_only_the_times_of_the_queue_are_said_to_be_utc(make, run):
    times = {"runat": pw.DateTimeField(null=True), "made": pw.DateTimeField(null=True)}
    Task = make(FULL, roles=ROLES, attributes=ERROR | times)
    told = run(Task, "put", "app:Page", '{"made": "2024-05-06 07:08:09"}', "--delay", 5, "--json").json["fields"]
    assert told["made"][11:] == "07:08:09"
    assert told["runat"].endswith("+00:00")
    assert run(Task, "peek", "app:Page", 1, "--json").json["fields"]["made"] == "2024-05-06T07:08:09"


def test_peek_shows_a_task(make, run):
    Task = make(FULL)
    Task.put(task(name="a\nb\x1b[31m"))
    lines = run(Task, "peek", "app:Page", 1).lines
    assert ["state", "R"] in lines
    assert ["name", "a", "b\N{REPLACEMENT CHARACTER}[31m"] in lines
    assert run(Task, "peek", "app:Page", 1, "--json").json["fields"]["name"] == "a\nb\x1b[31m"


def test_list_shows_the_next_tasks_of_each_state(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    bring(Task, "B", task(tube="y"))
    Task.xq.put_many([*tasks(3, tube="x"), task(tube="y")])
    keys = [line[0] for line in run(Task, "list", "app:Page").lines]
    assert keys == ["key", "2", "3", "4", "5", "1"]
    assert listed(run, Task, "-s", "R", "-n", 2) == [2, 3]
    assert listed(run, Task, "-t", "y") == [5, 1]
    assert run(Task, "list", "app:Page", "-s", "Q").code == 2


@pytest.mark.parametrize("owner", [(), ("owner",)])
def test_a_table_of_tasks_repeats_nothing_and_says_who_has_the_taken_ones(make, run, owner):
    times = {"runat": pw.DoubleField(null=True)}
    Task = make(FULL, roles=(*ROLES, *owner), attributes=ERROR | times)
    Task.xq.put_many([task(id=2_000, name="a"), task(id=2_001, name="b", priority=5)])
    Task.take()
    Task.xq.clock.tick(30)
    (session, *_), *_ = Task.xq.sessions()
    heads, taken = run(Task, "list", "app:Page", "state:taken").lines
    assert heads[:6] == ["key", "state", "taken", "for", "session", "runat"]
    assert {"id", "status", "owner"}.isdisjoint(heads)
    assert taken[:5] == ["2000", "T", "30", "s", session]
    assert taken[5] == "2023-11-14"
    assert run(Task, "list", "app:Page", "state:ready").lines[1][:2] == ["2001", "R"]
    assert any(line[0] == "2001" for line in run(Task, "top", "app:Page").lines)


def test_a_key_of_bytes_is_written_in_hexadecimal_digits(make, run):
    Task = make(FULL, roles=ROLES, key=Bytes(primary_key=True), attributes=ERROR)
    assert Task.put({"id": b"\x00\xff'", "name": "a"})
    Task.put({"id": b"abc", "name": "b"})
    Task.take()
    heads, *lines = run(Task, "list", "app:Page").lines
    assert (heads[:2], [line[:2] for line in lines]) == (["key", "state"], [["616263", "R"], ["00FF27", "T"]])
    assert run(Task, "peek", "app:Page", "00ff27", "--json").json["key"] == "00FF27"
    assert run(Task, "peek", "app:Page", "abcg").code == 2
    assert run(Task, "kill", "app:Page", "616263", "--yes").code == 0
    assert Task.xq.count() == 1


def test_one_look_of_top_shows_a_dash_for_the_rates_that_it_cannot_know(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    bring(Task, "B")
    looked = {line[0]: line for line in run(Task, "top", "app:Page", "--once").lines if line}
    assert looked["B"][:5] == ["B", "Buried", "1", "–", "–"]
    assert run(Task, "top", "app:Page", "--json").json["per_second"] == {}


def test_peek_shows_a_traceback_line_by_line(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    buried = bring(Task, "B")
    Task.update(error="ValueError: no\nTraceback:\n  line 1").where(Task.id == buried.id).execute()
    said = run(Task, "peek", "app:Page", buried.id)
    assert ["error", "ValueError:", "no"] in said.lines
    assert said.endswith("\nTraceback:\n  line 1\n")


def listed(run, Task, *arguments):
    """The keys that `xq list` prints."""
    return [each["key"] for each in run(Task, "list", "app:Page", *arguments, "--json").json["tasks"]]


def test_list_shows_what_a_filter_means_page_by_page(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    Task.xq.put_many([*tasks(3, tube="x"), task(tube="y", name="no.4")])
    assert listed(run, Task, "tube:x -key:2") == [1, 3]
    assert listed(run, Task, "name:NO", "--state", "ready") == [4]
    page = run(Task, "list", "app:Page", "tube:x", "-n", 2, "--json").json
    assert (page["looked"], page["ended"]) == (2, False)
    assert listed(run, Task, "tube:x", "-n", 2, "--after", page["next"]) == [3]
    said = run(Task, "list", "app:Page", "-n", 2)
    assert said.errors.startswith("looked at 2 rows; there may be more: --after ")
    assert run(Task, "list", "app:Page", "-n", 4).errors == ""
    for wrong in (["colour:red"], ["--after", "x"], ["state:"]):
        assert run(Task, "list", "app:Page", *wrong).code == 2
    assert run(Task, "list", "app:Page", "unique:a").code == 1


def test_long_values_are_cut_in_tables_and_whole_in_json(make, run):
    Task = make(
        FULL, roles=ROLES, attributes=ERROR | {"blob": pw.BlobField(null=True), "text": pw.TextField(null=True)}
    )
    Task.put({"text": "a" * 60_000, "blob": b"\x00" * 60_000})
    Task.put({"text": "b" * 60, "blob": b"\x00\xff"})
    heads, long, short = run(Task, "list", "app:Page", "--columns", "text,blob").lines
    assert heads == ["key", "state", "text", "blob"]
    assert long == ["1", "R", "a" * 59 + "…", "<60.0", "kB>"]
    assert short == ["2", "R", "b" * 60, "00FF"]
    peeked = run(Task, "peek", "app:Page", 1)
    assert ["blob", "<60.0", "kB>"] in peeked.lines
    assert max(map(len, peeked.splitlines())) < 300
    assert run(Task, "list", "app:Page", "--json").json["tasks"][0]["fields"]["text"] == "a" * 60_000
    wrong = run(Task, "list", "app:Page", "--columns", "text,nothing")
    assert (wrong.code, "no field nothing" in wrong.errors) == (2, True)


def test_failures_are_shown_in_groups(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    for i in range(3):
        buried = bring(Task, "B", task(tube="x" if i else "y"))
        Task.update(error=f"OSError: no answer of {i}").where(Task.id == buried.id).execute()
    told = run(Task, "failures", "app:Page", "tube:x", "--json").json
    assert (told["looked"], told["ended"]) == (3, True)
    (group,) = told["groups"]
    assert (group["error"], group["message"], group["count"], group["key"]) == ("OSError", "no answer of <n>", 2, 2)
    assert (group["states"], group["first"][:10]) == ({"B": 2}, "2023-11-14")
    assert listed(run, Task, group["filter"]) == [2, 3]
    said = run(Task, "failures", "app:Page")
    assert "OSError: no answer of <n>" in said
    assert "B:3" in said
    assert run(Task, "failures", "app:Page", "-n", 0).code == 2


def test_dig_returns_one_task_or_the_oldest(make, run):
    Task = make(FULL)
    Task.xq.put_many(tasks(4))
    for each in Task.xq.take_many(4):
        each.bury()
    assert run(Task, "dig", "app:Page", 3).errors == "dug: 3\n"
    assert run(Task, "dig", "app:Page", "-n", 1).errors == "dug: 1\n"
    assert run(Task, "dig", "app:Page", "--all").errors == "dug: 2, 4\n"
    assert run(Task, "dig", "app:Page", "--all").errors == "dug: none\n"
    assert run(Task, "dig", "app:Page").code == 2
    assert run(Task, "dig", "app:Page", 1, "-n", 2).code == 2


def test_an_operator_kills_releases_and_restarts(make, run):
    Task = make(FULL)
    Task.xq.put_many(tasks(3))
    Task.take()
    assert run(Task, "release", "app:Page", 1, "-y").errors == "released: 1\n"
    assert state(Task, 1) == "R"
    bring(Task, "D")
    done = next(each for each in Task.select() if each.status == "D")
    assert run(Task, "restart", "app:Page", done.id).errors == f"restarted: {done.id}\n"
    assert run(Task, "kill", "app:Page", 3, "--yes", "--json").json[0]["key"] == 3
    assert Task.select().count() == 3


@pytest.mark.parametrize("command", [["kill", 1], ["release", 1], ["truncate"], ["reset"], ["uninstall"]])
def test_what_destroys_refuses_without_a_terminal(make, run, command):
    Task = make(FULL)
    Task.put(task())
    Task.take()
    name, *key = command
    said = run(Task, name, "app:Page", *key)
    assert said.code == 1
    assert "There is no terminal to ask on: say --yes" in said.errors
    assert state(Task, 1) == "T"
    assert transitions(Task) == {"X-R": 1, "R-T": 1}


@pytest.mark.parametrize("command", ["truncate", "reset", "uninstall"])
def test_what_destroys_does_so_when_it_is_told(make, run, command):
    Task = make(FULL)
    Task.xq.put_many(tasks(2))
    assert run(Task, command, "app:Page", "--yes").code == 0
    if command == "uninstall":
        with pytest.raises(xq.NotInstalled):
            Task.take()
    else:
        assert Task.xq.count() == (0 if command == "truncate" else 2)


def test_the_transitions_of_a_task_are_shown(make, run):
    Task = make(FULL)
    bring(Task, "D")
    bring(Task, "R")
    told = run(Task, "history", "app:Page", 1, "--json").json
    assert [(each["source"], each["target"], each["event"]) for each in told] == [
        ("X", "R", "put"),
        ("R", "T", "take"),
        ("T", "D", "ack"),
    ]
    assert len(run(Task, "history", "app:Page").lines) == 5
    assert [line.split()[3] for line in run(Task, "tail", "app:Page", "--once").splitlines()] == [
        "X-R",
        "R-T",
        "T-D",
        "X-R",
    ]
    assert len(run(Task, "tail", "app:Page", "-n", 2, "--once", "--json").splitlines()) == 2
    assert len(run(Task, "tail", "app:Page", 2, "--once").splitlines()) == 1
    assert len(run(Task, "tail", "app:Page", 1, "-n", 1, "--once").splitlines()) == 1  # others came after it


# queues


def test_stats_are_the_numbers_of_the_queue(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR, tube_stats=["x"])
    Task.xq.put_many(tasks(1000, tube="x"))
    Task.take()
    lines = run(Task, "stats", "app:Page").lines
    assert ["R", "Ready", "999", "999"] in lines
    assert ["X-R", "1,000", "1,000"] in lines
    told = run(Task, "stats", "app:Page", "--json").json
    assert (told["counts"]["T"], told["tube"]["x"]["counts"]["R"], told["paused"]) == (1, 999, [])


def test_a_queue_or_a_tube_is_paused_and_resumed(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    Task.put(task(tube="x"))
    assert run(Task, "pause", "app:Page", "-t", "x").errors == "the tube x of Task is paused\n"
    assert "tube:x" in run(Task, "operations", "app:Page")
    assert Task.xq.paused() == ["x"]
    assert "the tube x is paused" in run(Task, "stats", "app:Page").errors
    assert run(Task, "resume", "app:Page", "-t", "x", "--json").json == {"paused": []}
    assert run(Task, "pause", "app:Page").code == 0
    assert Task.take() is None
    assert run(Task, "resume", "app:Page").code == 0
    assert Task.take().id == 1


def test_schedules_and_sessions_are_listed(make, run):
    Task = make(FULL)
    Task.xq.every("*/5 * * * *", task(), name="fives")
    (told,) = run(Task, "schedules", "app:Page", "--json").json
    assert (told["name"], told["spec"]) == ("fives", "*/5 * * * *")
    assert run(Task, "schedules", "app:Page").lines[1][0] == "fives"
    bring(Task, "T")
    (session,) = run(Task, "sessions", "app:Page", "--json").json
    (held,) = Task.xq.processes()
    assert (session["taken"], session["session"], session["gone"]) == (1, held.session, False)
    assert (session["host"], session["pid"], session["program"]) == (held.host, os.getpid(), held.program)
    assert held.name in run(Task, "sessions", "app:Page")
    assert len(run(Task, "sessions", "app:Page").lines) == 2


def test_install_check_recount_and_ddl(make, run):
    Task = make(FULL)
    Task.xq.uninstall()
    said = run(Task, "check", "app:Page")
    assert said.code == 1
    assert said != ""
    assert run(Task, "install", "app:Page", "--json").json == {"installed": "Task"}
    assert run(Task, "check", "app:Page").code == 0
    assert run(Task, "recount", "app:Page").code == 0
    assert "CREATE TABLE" in run(Task, "ddl", "app:Page")
    assert run(Task, "ddl", "app:Page", "--json").json == {"ddl": Task.xq.ddl()}


def test_sweep_moves_what_is_due(make, run):
    Task = make(FULL)
    Task.put(task(), delay=5)
    Task.xq.clock.tick(5)
    assert run(Task, "sweep", "app:Page", "--json").json == {"moved": 1}


# why, and what is wrong


def why(run, Task, key):
    return run(Task, "why", "app:Page", key, "--json").json


def test_why_says_what_holds_a_task(make, run):
    features = FULL | {"utube": True, "rate": "2/m"}
    Task = make(features, roles=ROLES, attributes=ERROR)
    for utube in ("a", "a", "b", None, None):
        Task.put(task(utube=utube, tube="x"))
    Task.put(task(), delay=9)
    assert [each.id for each in Task.xq.take_many(2)] == [1, 3]
    assert why(run, Task, 1)[0].startswith("it is taken by the session ")
    assert why(run, Task, 1)[1] == "its ttr ends in 60 s"
    assert "its utube 'a' is busy with task 1" in why(run, Task, 2)
    assert why(run, Task, 6) == ["it is waiting (W) until 2023-11-14 22:13:29 UTC, and becomes ready (R) in 9 s"]
    Task.xq.pause()
    Task.xq.pause("x")
    assert why(run, Task, 4)[:2] == [
        "the queue is paused: resume() ends that",
        "its tube 'x' is paused: resume('x') ends that",
    ]
    assert run(Task, "why", "app:Page", 99).code == 1


def test_why_says_that_a_limit_is_used_up(make, run):
    Task = make({"rate": "2/m"})
    Task.xq.put_many(tasks(3))
    Task.xq.take_many(2)
    assert why(run, Task, 3) == ["the limit of the feature rate is used up: it has a token in 30 s"]


def test_why_says_that_nothing_holds_a_task_or_that_nobody_takes(make, run):
    Task = make(FULL)
    Task.xq.put_many(tasks(3))
    assert "start a worker" in why(run, Task, 1)[0]
    Task.take()
    assert why(run, Task, 2) == ["nothing holds it: it is one of 2 ready tasks, and a worker takes it in its turn"]


def test_why_says_why_a_task_rests(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    buried = bring(Task, "B")
    Task.update(error="ValueError: no\nTraceback").where(Task.id == buried.id).execute()
    assert why(run, Task, buried.id) == [
        "it is buried (B): ValueError: no",
        "dig returns it to the queue. Its attempts (1) count on: set attempts to 0 before, and a worker's max_attempts "
        "begins anew",
    ]
    done = bring(Task, "D")
    assert why(run, Task, done.id) == ["it is done (D): nothing moves it but a call"]
    Task.update(status="archived").where(Task.id == done.id).execute()
    assert "is none of this queue" in why(run, Task, done.id)[0]


def test_doctor_names_a_schedule_that_is_late(make, run):
    Task = make(FULL)
    Task.xq.every(3600, {"name": "a"}, name="hourly")
    late = "schedules that are due and have put no task: 1 ('hourly'), the first for 7,200 s"
    assert late not in [each["what"] for each in run(Task, "doctor", "app:Page", "--json").json]
    Task.xq.clock.tick(3 * 3600)
    assert late in [each["what"] for each in run(Task, "doctor", "app:Page", "--json").json]
    Task.xq.sweep()
    assert late not in [each["what"] for each in run(Task, "doctor", "app:Page", "--json").json]


def test_a_killed_worker_is_told_from_one_that_lives(make_live, run):
    Task = make_live({"keep": True, "buried": True, "history": True})
    Task.xq.put_many(tasks(2))

    def script():
        yield Task.take().id

    with another_process(make_live.db, script) as other:
        assert next(other) == 1
        assert why(run, Task, 2) == ["nothing holds it: it is one of 1 ready tasks, and a worker takes it in its turn"]
        assert [each["gone"] for each in run(Task, "sessions", "app:Page", "--json").json] == [False]
        other.kill()
        gone = eventually(lambda: Task.xq.adapter.inspection.gone())
    assert why(run, Task, 2) == ["no process takes from this queue: start a worker"]
    assert why(run, Task, 1)[1:] == [
        "its process is gone: any process that takes from this queue releases the task within a second",
        "no process takes from this queue: start a worker",
    ]
    found = [each["what"] for each in run(Task, "doctor", "app:Page", "--json").json]
    assert f"sessions that are gone and own tasks: 1 ({', '.join(gone)})" in found
    assert "ready tasks: 1, and no process takes" in found
    assert [each["gone"] for each in run(Task, "sessions", "app:Page", "--json").json] == [True]
    assert run(Task, "top", "app:Page", "--json").json["sessions"] == 0
    assert Task.xq.adapter.inspection.takers() == 0
    assert (state(Task, 1), transitions(Task)["T-R"]) == ("T", 0)  # looking on has ended nothing


def test_doctor_finds_nothing_wrong_with_a_queue_that_is_well(make, run):
    Task = make({"keep": True}, roles=("owner",))
    Task.put(task())
    Task.take().ack()
    said = run(Task, "doctor", "app:Page")
    assert (said.code, said.errors) == (0, "nothing is wrong\n")


def test_doctor_says_what_is_wrong_and_what_to_do(make, run):
    Task = make(FULL, roles=("runat", "owner", "tube"))
    bring(Task, "B")
    Task.put(task())
    Task.xq.pause()
    told = {each["what"]: each["do"] for each in run(Task, "doctor", "app:Page", "--json").json}
    assert told["the queue is paused"] == "resume() ends that"
    assert told["buried tasks: 1"] == "look at their errors, then dig or kill them"
    Task.xq.uninstall()
    assert run(Task, "doctor", "app:Page").code == 1


def test_doctor_runs_beside_a_task_that_another_program_wrote_as_taken(make, run):
    Task = make({"keep": True}, roles=("owner",))
    Task.put(task())
    Task.update(status="T").execute()  # it has no owner
    said = run(Task, "doctor", "app:Page")
    assert (said.code, said.errors) == (0, "nothing is wrong\n")


def test_doctor_finds_a_ttr_that_is_shorter_than_the_work(make, run):
    Task = make(FULL | {"ttr": 10}, roles=("runat", "owner"))
    Task.xq.put_many(tasks(200))
    for _ in range(100):
        taken = Task.xq.take_many(2)
        Task.xq.clock.tick(9)
        Task.xq.touch_many(taken, 9)
        Task.xq.clock.tick(9)
        Task.xq.ack_many(taken)
    told = run(Task, "doctor", "app:Page", "--json").json
    assert any("is taken for longer than 18 s" in each["what"] for each in told)


def test_doctor_and_why_name_tasks_that_are_taken_for_long(make, run):
    Task = make(FULL, roles=("runat", "owner"))
    Task.xq.put_many(tasks(30))
    for _ in range(20):
        done = Task.take()
        Task.xq.clock.tick(2)
        done.ack()
    hangs = Task.take()
    Task.xq.clock.tick(40)
    Task.touch(hangs, 60)
    assert "taken for longer" not in run(Task, "doctor", "app:Page")
    Task.xq.clock.tick(30)
    *_, told = run(Task, "doctor", "app:Page", "--json").json
    assert told["what"].startswith(f"tasks taken for longer than 60 s: 1 (21 of pid {os.getpid()} on host ")
    assert told["what"].endswith("), the first for 70 s")
    assert told["do"] == "if their functions hang, restart the worker; worker(timeout=) limits an attempt"
    assert why(run, Task, 21)[-1].startswith("that is long for this queue: if its function hangs, restart the worker")
    assert "perhaps no worker is free: each of the 1 taken tasks is taken for 70 s or longer" in why(run, Task, 22)[0]
    Task.take()
    assert "nothing holds it" in why(run, Task, 23)[0]


def test_top_shows_a_queue_once(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    Task.xq.put_many(tasks(3))
    bring(Task, "D")
    buried = bring(Task, "B")
    Task.update(error="ValueError: no").where(Task.id == buried.id).execute()
    said = run(Task, "top", "app:Page")
    assert "ValueError: no" in said
    told = run(Task, "top", "app:Page", "--json").json
    assert (told["counts"]["R"], told["state"], len(told["tasks"])) == (3, "R", 3)
    assert told["errors"] == {"ValueError: no": 1}
    assert told["seconds_in_state"]["R"]["p99"] >= 0
    assert told["oldest_ready"] >= 0
    assert "oldest ready: " in said


# errors


def test_a_key_that_is_none_is_refused(make, run):
    Task = make(FULL)
    said = run(Task, "peek", "app:Page", "x")
    assert said.code == 2
    assert "the key 'id' is a whole number" in " ".join(said.errors.split())
    assert (run(Task, "peek", "app:Page", 7).code, run(Task, "peek", "app:Page", 7).errors) == (
        1,
        "xq: there is no task 7 in Task\n",
    )


@pytest.mark.parametrize(
    "target", ["app", "app:", ":Page", "app:Page.nothing", "app:nothing", "no.such:Page", "json:loads"]
)
def test_a_target_that_is_none_is_refused(make, run, target):
    said = run(make(), "stats", target)
    assert said.code in (1, 2)
    assert "Traceback" not in said.errors


def test_a_queue_that_is_not_installed_is_an_error_in_one_line(make, run):
    Task = make(FULL)
    Task.xq.uninstall()
    said = run(Task, "stats", "app:Page")
    assert said.code == 1
    assert len(said.errors.splitlines()) == 1
    assert "install" in said.errors


def test_a_method_whose_feature_is_off_names_it(make, run):
    said = run(make(), "dig", "app:Page", "--all")
    assert (said.code, said.errors) == (1, "xq: dig needs the feature 'buried', which Task does not have\n")


# operations


def test_act_moves_what_a_filter_shows_and_the_history_says_who_and_why(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    keys = [bring(Task, "B").id for _ in range(3)]
    bring(Task, "D")
    said = run(Task, "act", "app:Page", "dig", "state:buried", "--dry-run", "--json").json
    assert [each["key"] for each in said.pop("tasks")] == keys
    assert said == {"event": "dig", "filter": "state:buried", "n": 3, "exact": True, "looked": 0}
    shown = run(Task, "act", "app:Page", "dig", "state:buried", "--dry-run")
    assert shown.errors == "dig would move 3 tasks\n"
    said = run(Task, "act", "app:Page", "dig", "state:buried", "--reason", "bad deploy", "--actor", "ann", "--json")
    assert (said.json["done"], said.json["state"], said.json["actor"]) == (3, "done", "ann")
    assert [state(Task, key) for key in keys] == ["R"] * 3
    told = run(Task, "history", "app:Page", keys[0], "--json").json[-1]
    assert (told["event"], told["actor"], told["reason"]) == ("dig", "ann", "bad deploy")
    assert "ann: bad deploy" in run(Task, "history", "app:Page", keys[0])
    assert "by=ann: bad deploy" in run(Task, "tail", "app:Page", "--once")


def test_act_that_destroys_refuses_without_a_terminal_and_stores_nothing(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    bring(Task, "B")
    refused = run(Task, "act", "app:Page", "kill", "state:buried")
    assert (refused.code, Task.xq.count("B"), Task.xq.operations()) == (1, 1, [])
    assert "kill 1 tasks of Task (state:buried)? There is no terminal to ask on: say --yes" in refused.errors
    said = run(Task, "act", "app:Page", "kill", "state:buried", "--yes")
    assert (said.code, said.errors) == (0, "kill: 1 tasks moved; operation 1 is done\n")
    assert Task.xq.operations()[0].actor


def test_operations_are_listed_resumed_and_cancelled(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    for _ in range(4):
        bring(Task, "B")
    first = Task.xq.act("dig", "state:B", actor="ann", reason="bad deploy", chunk=1)
    first.step()
    other = Task.xq.act("kill", "state:B")
    listed = run(Task, "operations", "app:Page", "--json").json
    assert [(each["id"], each["state"], each["done"]) for each in listed] == [
        (other.id, "running", 0),
        (first.id, "running", 1),
    ]
    assert run(Task, "operations", "app:Page", other.id, "--cancel", "--json").json["state"] == "cancelled"
    assert run(Task, "operations", "app:Page", other.id, "--cancel").code == 1
    assert run(Task, "operations", "app:Page", first.id, "--resume").errors.startswith("dig: 4 tasks moved; operation")
    again = run(Task, "operations", "app:Page", first.id, "--resume")
    assert (again.code, again.errors.strip()) == (1, f"xq: operation {first.id} is done")
    assert run(Task, "operations", "app:Page", "--cancel").code == 2
    assert "bad deploy" in run(Task, "operations", "app:Page")


def test_act_shows_its_progress_on_a_terminal(make, run, monkeypatch):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    for _ in range(4):
        bring(Task, "B")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for filter in ("state:B", "state:B name:a"):
        said = run(Task, "act", "app:Page", "dig", filter, "--chunk", 1)
        assert (said.code, "tasks moved" in said.errors) == (0, True)
    assert Task.xq.count("R") == 4


@pytest.mark.parametrize(
    ("command", "before", "event"),
    [("dig", "B", "dig"), ("kill", "B", "kill"), ("release", "T", "snatch"), ("restart", "D", "restart")],
)
def test_a_command_for_one_task_says_who_and_why(make, run, command, before, event):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    there = bring(Task, before)
    yes = ["--yes"] if command in ("kill", "release") else []
    said = run(Task, command, "app:Page", there.id, "--reason", "bad deploy", "--actor", "ann", *yes)
    assert said.code == 0
    last = Task.xq.history()[-1]
    assert (last.event, last.actor, last.reason) == (event, "ann", "bad deploy")


def test_pause_tells_who_and_why(make, run):
    Task = make(FULL, roles=ROLES, attributes=ERROR)
    run(Task, "pause", "app:Page", "--reason", "maintenance", "--actor", "ann")
    assert [(each.tube, each.actor, each.reason) for each in Task.xq.pauses()] == [(None, "ann", "maintenance")]
    run(Task, "resume", "app:Page")
    assert Task.xq.operations()[0].event == "resume"
