"""The command line: what each command prints and does, its exit codes, and what it refuses."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import peewee as pw
import pytest

import xq
from tests.conftest import SERVERS, Maker
from tests.factories import task, tasks
from tests.steps import another_process, bring, eventually, run_script, state, transitions
from xq.cli import main

IN_MEMORY = True  # the tests run on a database in memory as well, whose threads share one connection

ROLES = ("runat", "attempts", "error", "tube", "utube", "priority")
DOCUMENT = (Path(__file__).resolve().parents[2] / "docs/cli.md").read_text()
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
    """Run a command in this process: `run(Task, "peek", 1)` is `xq peek app:Page 1`, where that model is Task."""

    def run(
        Task: Any, command: str, *arguments: object, stdin: str = "", target: str = "app:Page", tty: bool = False
    ) -> Said:
        module = ModuleType("app")
        module.Page = Task  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "app", module)
        monkeypatch.setattr(sys, "argv", ["xq", command, target, *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", type("Stdin", (io.StringIO,), {"isatty": lambda _: tty})(stdin))
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


def with_roles(make: Any, features: Any = FULL, **more: Any) -> Any:
    """A queue with the roles that commands show."""
    return make(features, **{"roles": ROLES, "attributes": ERROR, **more})


def listed(run, Task, *arguments):
    """The keys that `xq list` prints."""
    return [each["key"] for each in run(Task, "list", *arguments, "--json").json["tasks"]]


def fail(Task, error):
    """Bury a new task with an error. Return its key."""
    buried = bring(Task, "B")
    Task.update(error=error).where(Task.id == buried.id).execute()
    return buried.id


# refusals


DESTROY: list[tuple[str, ...]] = [(each, "1") for each in ("kill", "cancel", "release")]
DESTROY += [("truncate",), ("reset",), ("uninstall",)]
REFUSED: list[tuple[tuple[str, ...], int, str]] = [
    *((("put", wrong), 2, "a task is a JSON object") for wrong in ("", "nothing", "[1]", "7", '{"name": ')),
    *((("list", *wrong), 2, "Invalid value") for wrong in (["state:Q"], ["colour:red"], ["--after", "x"], ["state:"])),
    (("list", "unique:a"), 1, "unique"),
    (("failures", "-n", "0"), 2, "Invalid value"),
    (("peek", "x"), 2, "the key 'id' is a whole number"),
    (("peek", "7"), 1, "xq: there is no task 7 in Task\n"),
    *(((command, "99"), 1, "there is no task 99") for command in ("why", "history")),
    (("dig",), 2, "say which"),
    (("dig", "--all", "--again", "plan"), 2, "--again is for one task"),
    (("dig", "1", "-n", "2"), 2, "say which: a KEY, -n NUMBER or --all"),
    *((command, 1, "There is no terminal to ask on: say --yes") for command in DESTROY),
    *((("act", "kill", *all_or_none), 2, "a FILTER, or --all") for all_or_none in ([], [" "], ["state:T", "--all"])),
    (("act", "restart", "--all"), 1, "restart 0 tasks of Task (all)? There is no terminal to ask on: say --yes"),
    (("steps", "1"), 1, "xq: steps needs the feature 'steps', which Task does not have\n"),
    (("signal", "1", "approved", "yes"), 2, "a signal's value is JSON, as"),
    (("signal", "1", "approved"), 1, "feature 'steps'"),
    (("act", "kill", "state:T"), 1, "tasks of Task (state:T), and delete their rows of the table task? There is no"),
]


def test_a_command_that_is_refused_says_why_and_changes_nothing(make, run, subtests):
    Task = with_roles(make)
    bring(Task, "T")
    seen = Task.stats()
    for (command, *arguments), code, words in REFUSED:
        with subtests.test(f"{command} {arguments}"):
            said = run(Task, command, *arguments)
            assert (said, said.code) == ("", code)
            assert " ".join(words.split()) in " ".join(said.errors.replace("│", " ").split())
            assert Task.stats() == seen


FAILING = {
    'raise RuntimeError("no\\nsettings")': "RuntimeError: no settings ({file}, line 1)",
    "\nimport nosuch": "ModuleNotFoundError: No module named 'nosuch' ({file}, line 2)",
    "\ndef f(:": "SyntaxError: invalid syntax (broken.py, line 2)",
}


@pytest.mark.parametrize("program", FAILING)
def test_an_error_of_the_applications_module_is_told_in_one_line(run, program, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    said = run(None, "stats", target="broken:Page")
    error = FAILING[program].format(file=tmp_path / "broken.py")
    assert (said, said.code) == ("", 1)
    assert said.errors == f"xq: broken:Page cannot be imported from this directory: {error}\n"


def test_a_parameter_of_a_url_that_its_driver_lacks_is_named(run):
    for command in ("stats", "tubes"):
        said = run(None, command, target="mariadb://ann@127.0.0.1:1/app?sslmode=on")
        assert (said.code, said.errors.count("\n"), "'sslmode'" in said.errors) == (1, 1, True)


def test_a_target_that_is_none_is_refused(make, run):
    for target in ("app", "app:", ":Page", "app:Page.nothing", "app:nothing", "no.such:Page", "json:loads"):
        said = run(make.model(), "stats", target=target)
        assert (said.code in (1, 2), "Traceback" in said.errors) == (True, False)


# tasks


def test_put_reads_one_task_or_one_from_each_line(make, run):
    Task = make(FULL)
    assert run(Task, "put", '{"name": "a"}') == "1\n"
    told = run(Task, "put", '{"name": "b"}', "--delay", 5, "--json").json
    assert (told["key"], told["state"], told["fields"]["name"]) == (2, "W", "b")
    assert run(Task, "put", "-", stdin='\ufeff{"name": "c"}\n\n{"name": "d"}\n').errors == "2 tasks put\n"
    said = run(Task, "put", "-", stdin='{"name": "e"}\n\nno\n')
    assert (said.code, "line 3: a task is a JSON object" in said.errors) == (2, True)
    said = run(Task, "put", "-", stdin='{"name": "e"}\n\n{"name": "f", "size": 1e400}\n{"size": 1e400}\n')
    assert (said.code, said.errors) == (1, "xq: line 3: 'size' of Task cannot hold inf\n")
    said = run(Task, "put", "-", "--delay", -1, stdin='{"name": "e"}\n')
    assert (said.code, said.errors[:13]) == (1, "xq: delay is ")
    assert [each.name for each in Task.select().order_by(Task.id)] == [*"abcd"], "of the lines all, or none"


def test_a_task_that_the_table_does_not_accept_is_refused_in_one_line(make, run):
    Task = make({}, attributes={"price": pw.DecimalField(null=True)})
    said = run(Task, "put", '{"price": "abc"}')
    assert (said.code, said.errors) == (1, "xq: 'price' of Task cannot hold 'abc'\n")
    said = run(Task, "put", '{"size": null, "name": "secret"}')
    assert (said.code, said.errors.count("\n"), "secret" in said.errors) == (1, 1, False)
    assert re.match("xq: the table of Task does not accept the task: .*size", said.errors)


def test_peek_shows_a_task_without_control_characters_and_its_traceback_line_by_line(make, run):
    Task = with_roles(make)
    Task.put(task(name="a\nb\x1b[31m"))
    assert ["name", "a", "b\N{REPLACEMENT CHARACTER}[31m"] in run(Task, "peek", 1).lines
    assert run(Task, "peek", 1, "--json").json["fields"]["name"] == "a\nb\x1b[31m"
    said = run(Task, "peek", fail(Task, "ValueError: no\nTraceback:\n  line 1"))
    assert ["error", "ValueError:", "no"] in said.lines
    assert said.endswith("\nTraceback:\n  line 1\n")
    assert "\x1b" not in run(Task, "why", fail(Task, "ValueError: \x1b]0;"))


class Escaped(pw.TextField):
    """Text of which the database stores what it cannot hold as escapes."""

    def db_value(self, value):
        return json.dumps(value)

    def python_value(self, value):
        return json.loads(value)


def test_json_has_half_of_a_surrogate_pair_and_a_table_the_numbers_as_they_are(make, run):
    Task = make({}, attributes={"note": Escaped(default=""), "price": pw.DoubleField(default=1_234_567.25)})
    half = '"\\ud83d"'
    assert run(Task, "put", f'{{"note": {half}, "size": 1800000000}}', "--json").json["fields"]["note"] == "\ud83d"
    assert f'"note": {half}' in run(Task, "peek", 1, "--json")
    assert {"1800000000", "1234567.25", "\N{REPLACEMENT CHARACTER}"} <= {*run(Task, "list").lines[1]}
    Task.put({"note": {"\ud83d": ["\ud83d"]}})
    assert run(Task, "list", "id:2", "--json").json["tasks"][0]["fields"]["note"] == {"\ud83d": ["\ud83d"]}


def test_list_shows_what_a_filter_means_page_by_page_the_newest_tasks_first(make, run, monkeypatch):
    Task = with_roles(make)
    bring(Task, "B", task(tube="y"))
    Task.xq.put_many([*tasks(3, tube="x"), task(tube="y", name="no.5")])
    assert [line[0] for line in run(Task, "list").lines] == ["key", "5", "4", "3", "2", "1"]
    assert listed(run, Task, "state:R", "-n", 2) == [5, 4]
    assert listed(run, Task, "tube:y") == [5, 1]
    assert listed(run, Task, "name:NO state:ready") == [5]
    page = run(Task, "list", "tube:x", "-n", 2, "--json").json
    assert (page["looked"], page["ended"]) == (3, False)
    assert listed(run, Task, "tube:x", "-n", 2, "--after", page["next"]) == [2]
    assert run(Task, "list", "-n", 2).errors.startswith("looked at 2 rows; there may be more: --after ")
    monkeypatch.setattr("xq.operators.search.EXAMINED", 1)
    assert run(Task, "list", "tube:x priority:9").errors.startswith("none so far: looked at 1 rows; there may be more")


def test_list_shows_since_when_each_task_is_in_its_state_and_the_session_that_has_it(make, run):
    Task = with_roles(make)
    fail(Task, "ValueError: no\nTraceback")
    taken = bring(Task, "T")
    Task.xq.clock.tick(90)
    rows = {line[0]: line[1:] for line in run(Task, "list").lines}
    assert rows["key"][:4] == ["state", "age", "error", "attempts"]
    assert rows["1"][:5] == ["B", "90", "s", "ValueError:", "no"]
    assert (rows[str(taken.id)][:3], Task.xq.processes()[0].session in rows[str(taken.id)]) == (["T", "90", "s"], True)
    assert {each["since"] for each in run(Task, "list", "--json").json["tasks"]} == {"2023-11-14T22:13:20Z"}


PAIR = {"site": pw.CharField(), "page": pw.IntegerField(), "meta": {"primary_key": pw.CompositeKey("site", "page")}}


@pytest.mark.parametrize(("attributes", "key"), [({}, 1), (PAIR, ["a", 7])])  # one of several parts is a list
def test_a_key_is_the_same_in_every_document(make, run, attributes, key):
    Task = with_roles(make, attributes=ERROR | attributes)
    task = {"error": "ValueError"} | ({"site": "a", "page": 7} if attributes else {})
    run(Task, "put", json.dumps(task))
    written = json.dumps(key)
    documents = [*run(Task, "list", "--json").json["tasks"], *run(Task, "history", written, "--json").json]
    documents += [run(Task, "peek", written, "--json").json, run(Task, "tail", written, "--once", "--json").json]
    documents += run(Task, "failures", "--json").json["groups"]
    assert [each["key"] for each in documents] == [key] * 5


@pytest.mark.parametrize("width", [120, 80, 40, 20])
def test_a_terminal_of_any_width_shows_numbers_and_filters_whole(make, run, monkeypatch, width):
    Task = with_roles(make, tube_stats=["a", "b", "c"])
    Task.xq.put_many(tasks(1_000, tube="a"))
    fail(Task, "ValueError: " + "a long story " * 20)
    bring(Task, "T")
    (group,) = run(Task, "failures", "--json").json["groups"]
    (session,) = Task.xq.processes()
    monkeypatch.setenv("COLUMNS", str(width))
    whole = {
        "failures": ["1", "B:1", *group["filter"].split()],
        "sessions": [session.session, "1", "False", "gone"],
        "stats": ["1000", "X-R", "R-T"],
        "list": ["1000", "R", "age"],
    }
    for command, words in whole.items():
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        said = run(Task, command)
        assert {*words} <= {*said.split()}, said
        if "─" in said:
            assert max(map(len, said.splitlines())) <= width


def test_failures_are_shown_in_groups(make, run, monkeypatch):
    Task = with_roles(make)
    keys = [fail(Task, f"OSError: no answer of {i}") for i in range(2)]
    fail(Task, "KeyError: 'a'")
    told = run(Task, "failures", "error:answer", "--json").json
    assert (told["looked"], told["ended"]) == (3, True)
    (group,) = told["groups"]
    assert (group["message"], group["states"], group["first"][:10]) == ("no answer of <n>", {"B": 2}, "2023-11-14")
    assert listed(run, Task, group["filter"]) == keys[::-1]
    assert ["2", "B:2", "OSError:", "no", "answer"] in [line[:5] for line in run(Task, "failures").lines]
    monkeypatch.setattr("xq.operators.search.EXAMINED", 2)
    assert ["1+", "B:1+"] in [line[:2] for line in run(Task, "failures", "state:B").lines], "at least"


def test_dig_returns_one_task_or_the_oldest_and_truncate_deletes_all(make, run):
    Task = with_roles(make)
    Task.xq.put_many(tasks(4))
    Task.xq.bury_many(Task.xq.take_many(4))
    assert run(Task, "act", "dig", "key:1", "--fresh").errors == "dig: 1 tasks moved\n"
    assert run(Task, "dig", 2, "--fresh").errors == "dug: 2\n"
    assert [found.attempts for found in Task.select().order_by(Task.id)] == [0, 0, 1, 1]
    Task.xq.bury_many(Task.xq.take_many(2))
    for answer, words in {"n\n": "Aborted", "y\n": "dug: 1, 2, 3, 4"}.items():
        said = run(Task, "dig", "--all", stdin=answer, tty=True).errors
        assert all(each in said for each in ("dig 4 tasks of Task (all)?", words))
    Task.xq.bury_many(Task.xq.take_many(4))
    for arguments, dug in {(3,): "3", ("-n", 1): "1", ("--all",): "2, 4", ("-n", 5): "none"}.items():
        assert run(Task, "dig", *arguments).errors == f"dug: {dug}\n"
    assert (run(Task, "reset", "--yes").code, transitions(Task), Task.xq.count()) == (0, {}, 4)
    assert (run(Task, "truncate", "--yes").code, Task.xq.count()) == (0, 0)


MOVES = {"dig": "B dig dug", "kill": "B kill killed", "release": "T snatch released", "bury": "T bury buried"}
MOVES |= {"cancel": "T cancel cancelled", "cancel --bury": "T cancel cancelled"}
MOVES |= {"reprioritise --priority=3": "R reprioritise reprioritised"}


@pytest.mark.parametrize(("command", "words"), [*MOVES.items(), ("restart", "D restart restarted")])
def test_a_command_for_one_task_says_who_and_why(make, run, command, words):
    Task, (before, event, done) = make(FULL | {"buried": "any", "priority": True}), words.split()
    key = bring(Task, before).id
    command, *more = command.split()
    yes = ["--yes"] if command in ("cancel", "kill", "release", "restart") else []
    assert not yes or "There is no terminal to ask on: say --yes" in run(Task, command, key, *more).errors
    said = run(Task, command, key, "--reason", "bad deploy", "--actor", "ann", *yes, *more)
    assert (said.code, said.errors) == (0, f"{done}: {key}\n")
    assert "--bury" not in more or state(Task, key) == "B"
    assert "--priority=3" not in more or Task.xq.peek(key).priority == 3
    last = Task.xq.history()[-1]
    assert (last.event, last.actor, last.reason) == (event, "ann", "bad deploy")
    if command in ("release", "restart"):
        assert run(Task, command, key).errors.startswith(f"xq: cannot {command} task {key}: it is ")


def test_the_transitions_of_a_task_are_shown(make, run):
    Task = make(FULL)
    bring(Task, "D")
    bring(Task, "R")
    told = run(Task, "history", 1, "--json").json
    assert [f"{each['source']}-{each['target']} {each['event']}" for each in told] == ["X-R put", "R-T take", "T-D ack"]
    assert len(run(Task, "history").lines) == 5
    last = run(Task, "history", "-n", 2)
    assert [line[3] for line in last.lines[1:]] == ["T-D", "X-R"]
    assert last.errors == "there are earlier ones: --before 3\n"
    before = run(Task, "history", "-n", 2, "--before", 3)
    assert ([line[3] for line in before.lines[1:]], before.errors) == (["X-R", "R-T"], "")
    (acked,) = run(Task, "history", 1, "-n", 1, "--json").json
    assert (acked["event"], acked["seconds_in_source"]) == ("ack", 0)
    moves = [line.split()[3] for line in run(Task, "tail", "--once").splitlines()]
    assert moves == ["X-R", "R-T", "T-D", "X-R"]
    for arguments, n in ((("-n", 2, "--json"), 2), ((2,), 1), ((1, "-n", 1), 1)):
        assert len(run(Task, "tail", *arguments, "--once").splitlines()) == n


# queues


def test_steps_are_shown_with_their_times_and_a_signal_is_sent_the_first_of_a_name_counts(make_shared, run):
    Task = with_roles(make_shared, FULL | {"steps": True})

    @Task.xq.worker
    def ship(found: Any) -> None:
        xq.step("plan", lambda: "x" * 300)
        xq.sleep("cool off", 60)
        xq.wait_for("paid", timeout=60)

    key = Task.put(task()).id
    for _ in range(2):
        Task.xq.run(until_empty=True)
        Task.xq.clock.tick(60)
    said = run(Task, "steps", key)
    first, second, third = (f"2023-11-14 22:1{each}:20" for each in (3, 4, 5))
    assert said.splitlines()[-1] == f"it waits for the signal 'paid' until {third} UTC, 1 step done: plan"
    rows = [f'step plan {first} "{"x" * 198}…', f"sleep cool off {first} {second}", f"wait paid {second} {third}"]
    assert [" ".join(cells) for cells in said.lines[1:-1]] == rows
    assert "paid" in run(Task, "list", "awaits:paid").lines[1]

    said = run(Task, "signal", key, "paid", '{"by": "ann"}', "--actor", "ann", "--reason", "by hand")
    assert (said, said.code) == (f"the signal paid of task {key} is the first of its name\n", 0)
    last = Task.xq.history()[-1]
    assert (last.event, last.actor, last.reason, state(Task, key)) == ("signal", "ann", "by hand", "R")
    again = run(Task, "signal", key, "paid", "--json")
    assert (again.json, again.code) == ({"key": key, "name": "paid", "first": False}, 0)
    found = run(Task, "steps", key, "--json").json
    assert (found["state"], found["awaits"], found["until"]) == ("R", None, None)
    assert [each["value"] for each in found["records"]] == ["x" * 300, None, None, {"by": "ann"}]
    assert "JSON cannot hold" in run(Task, "signal", key, "another", "NaN").errors
    Task.xq.switch(key, "B")
    assert run(Task, "dig", key, "--again", "plan").errors == f"dug: {key}\n"
    assert [each["kind"] for each in run(Task, "steps", key, "--json").json["records"]] == ["signal"]


def test_stats_and_one_look_of_top_are_the_numbers_of_the_queue(make, run):
    Task = with_roles(make, tube_stats=["x"])
    Task.xq.put_many(tasks(1_000, tube="x"))
    Task.take()
    lines = run(Task, "stats").lines
    assert ["R", "Ready", "999", "999"] in lines
    assert ["X-R", "1000", "1000"] in lines
    told = run(Task, "stats", "--json").json
    assert (told["counts"]["T"], told["tube"]["x"]["counts"]["R"], told["paused"]) == (1, 999, [])
    fail(Task, "ValueError: no")
    said = run(Task, "top", "--once")
    assert next(line for line in said.lines if line[0] == "B")[:3] == ["B", "Buried", "1"]
    assert "ready tasks: 999, the oldest for " in said
    told = run(Task, "top", "--json").json
    assert (told["counts"]["R"], told["list"]["tasks"][0]["state"]) == (999, "R")
    assert [group["message"] for group in told["failures"]["groups"]] == ["no"]
    assert told["seconds_in_state"]["R"]["p99"][0] >= 0


def test_a_queue_or_a_tube_is_paused_and_resumed(make, run):
    Task = with_roles(make)
    Task.put(task(tube="x"))
    assert run(Task, "pause", "-t", "x").errors == "paused: x\n"
    assert Task.xq.paused() == ["x"]
    assert "paused: x" in run(Task, "stats").errors
    assert run(Task, "resume", "-t", "x", "--json").json == {"paused": []}
    assert run(Task, "pause", "--reason", "maintenance", "--actor", "ann").code == 0
    assert Task.xq.pauses()[0][2:] == ("ann", "maintenance")
    assert run(Task, "resume").code == 0
    assert Task.take().id == 1


def test_a_limit_is_set_listed_and_removed(make, run):
    Task = make({"utube": 1, "rate": {"limit": "9/m", "by": "utube"}}, roles=("utube",))
    assert run(Task, "limit", "utube", 10, "--value", "acme", "--actor", "ann", "--reason", "they pay").code == 0
    assert run(Task, "limit", "rate", '{"limit": "5/m", "burst": 2}').code == 0
    told = run(Task, "limit", "--json").json
    assert [(each["feature"], each["value"], each["limit"], each["default"]) for each in told] == [
        ("rate", None, {"limit": "5/m", "burst": 2}, "9/m"), ("utube", None, 1, 1), ("utube", "acme", 10, None)
    ]  # fmt: skip
    assert (told[-1]["actor"], told[-1]["reason"]) == ("ann", "they pay")
    assert len(run(Task, "limit", "utube", "none", "--value", "acme", "--json").json) == 1
    assert "1 to 1,000,000" in run(Task, "limit", "utube", "many").errors
    assert "--value goes with" in run(Task, "limit", "utube", "--value", "acme").errors


def test_a_group_is_paused_and_resumed(make, run):
    Task = with_roles(make, FULL | {"groups": True})
    with Task.xq.group("import 7") as group:
        group.put(task())
    assert run(Task, "pause", "--group", "import 7").errors == "paused: the group import 7\n"
    assert run(Task, "stats", "--json").json["paused"] == [{"group": "import 7"}]
    assert "not both" in run(Task, "resume", "--group", "import 7", "--tube", "x").errors
    assert run(Task, "resume", "--group", "import 7", "--json").json == {"paused": []}


def test_schedules_and_sessions_are_listed(make, run):
    Task = make(FULL)
    Task.xq.every("*/5 * * * *", task(), name="fives")
    assert run(Task, "schedules", "--json").json[0]["spec"] == "*/5 * * * *"
    Task.xq.every(3600, task(), name="hourly")
    assert [line[:3] for line in run(Task, "schedules").lines[1:]] == [["fives", "*/5", "*"], ["hourly", "every", "1"]]
    assert run(Task, "schedule", "run", "fives").errors == "run: the schedule fives\n"
    assert (run(Task, "schedule", "pause", "fives", "--actor=ann", "--reason=load").code, Task.xq.count()) == (0, 1)
    (paused, _) = run(Task, "schedules", "--json").json
    assert (paused["tz"], paused["paused"], paused["actor"], paused["reason"]) == ("UTC", True, "ann", "load")
    assert {"tz", "since", "actor", "reason"} <= {*run(Task, "schedules").lines[0]}
    assert "has no schedule sixes" in run(Task, "schedule", "resume", "sixes").errors
    assert Task.take().ack()
    bring(Task, "T")
    (session,) = run(Task, "sessions", "--json").json
    (held,) = Task.xq.processes()
    assert (session["tasks"], session["session"], session["gone"]) == (1, held.session, False)
    assert (session["host"], session["pid"], session["program"]) == (held.host, os.getpid(), held.program)
    assert (held.name in run(Task, "sessions"), " ago  " in run(Task, "sessions")) == (True, True)


def test_install_check_recount_ddl_and_sweep(make, run):
    Task = make(FULL)
    assert run(Task, "uninstall", "--yes").code == 0
    assert len(run(Task, "stats").errors.splitlines()) == 1, "of what is missing"
    assert (run(Task, "check").code, run(Task, "check") != "") == (1, True)
    assert run(Task, "check").errors.endswith(" to mend: xq doctor app:Page says how\n")
    assert run(Task, "install", "--online", "--plan", "--json").json == {
        "plan": Task.xq.install(online=True, plan=True)
    }
    assert run(Task, "check").code == 1
    assert run(Task, "install", "--online", "--json").json == {"installed": "Task"}
    assert "nothing is left" in run(Task, "install", "--plan")
    assert run(Task, "check").code == run(Task, "recount").code == 0
    assert "CREATE TABLE" in run(Task, "ddl")
    assert run(Task, "ddl", "--json").json == {"ddl": Task.xq.ddl()}
    Task.put(task(), delay=5)
    Task.xq.clock.tick(5)
    assert run(Task, "sweep", "--json").json == {"moved": 1}


# why, and what is wrong


NOBODY = "no process takes from this queue: start a worker"


def test_what_ddl_prints_is_the_sql_that_installs(make, run):
    Task = make({"guard": True, "history": True, "keep": True})
    Task.xq.uninstall()
    printed = run(Task, "ddl")
    assert printed == Task.xq.ddl()
    run_script(make.db, printed)
    Task.put(task())
    assert Task.take().ack()
    assert ([each.event for each in Task.xq.history()], Task.xq.check()) == (["put", "take", "ack"], [])


def test_what_ddl_prints_installs_by_a_pipe_to_the_client_of_mariadb(make, run):
    if not isinstance(make.db, pw.MySQLDatabase):
        pytest.skip("one client is enough")
    Task, to, server = make({"guard": True, "keep": True}), make.db.connect_params, SERVERS["mariadb"]
    where = [f"--{name}={to[name]}" for name in ("host", "port", "user")]
    client = [server.program("mariadb", "mysql"), "--no-defaults", *where, "--protocol=tcp", "--skip-ssl"]
    for changed in (False, True, False):
        Task.xq.uninstall()
        sql = run(Task, "ddl").replace("\x1f", "\N{REPLACEMENT CHARACTER}" if changed else "\x1f")
        subprocess.run([*client, make.db.database], input=sql, check=True, text=True)
        assert (Task.xq.check() != [], len(run(Task, "check").splitlines())) == (changed, 2 * changed)
    Task.put(task())
    assert Task.take().ack()


def why(run, Task, key):
    return run(Task, "why", key, "--json").json


def doctor(run, Task):
    """What is wrong, and what to do."""
    return {each["what"]: each["do"] for each in run(Task, "doctor", "--json").json}


def test_why_says_what_holds_a_task(make, run):
    Task = with_roles(make, FULL | {"utube": True, "rate": {"limit": "2/m", "burst": 2}})
    Task.xq.put_many([task(utube=utube, tube="x") for utube in ("a", "a", "b", None)])
    Task.put(task(), delay=9)
    assert why(run, Task, 1) == [NOBODY]
    assert [each.id for each in Task.xq.take_many(2)] == [1, 3]
    assert why(run, Task, 1)[0].startswith("it is taken by the session ")
    assert why(run, Task, 1)[1] == "its ttr ends in 60 s, unless its worker prolongs it"
    assert "its utube 'a' is busy with task 1" in why(run, Task, 2)
    assert why(run, Task, 4) == ["the limit of the feature rate is used up: it has a token in 60 s"]
    assert why(run, Task, 5) == ["it is waiting (W) until 2023-11-14 22:13:29 UTC, and becomes ready (R) in 9 s"]
    Task.xq.pause()
    Task.xq.pause("x")
    resume = "is paused: xq resume app:Page"
    assert why(run, Task, 4)[:2] == [f"the queue {resume} ends that", f"the tube 'x' {resume} --tube x ends that"]


def test_why_says_why_a_task_rests_or_that_nothing_holds_it(make, run):
    Task = with_roles(make)
    first, *more = why(run, Task, fail(Task, "ValueError: no\nTraceback"))
    assert (first, len(more)) == ("it is buried (B): ValueError: no", 1)
    assert why(run, Task, bring(Task, "D").id) == ["it is done (D): nothing moves it but a call"]
    Task.xq.put_many(tasks(2))
    assert why(run, Task, 3) == ["nothing holds it: it is one of 2 ready tasks, and a worker takes it in its turn"]
    Task.update(status="archived").where(Task.id == 2).execute()
    assert "is not one of this queue's" in why(run, Task, 2)[0]


@pytest.mark.parametrize("features", [{}, {"history": True}], ids=["", "history"])
def test_why_says_that_no_worker_of_a_tube_was_seen(make, run, features):
    Task = make({"delayed": True, "keep": True, **features}, roles=("runat", "tube", "owner"))
    Task.xq.put_many([task(tube=tube) for tube in ("mail", "fax", "fax")])
    taken = Task.take(tube="fax")
    one, turn = "nothing holds it: it is one of 2 ready tasks,", "and a worker takes it in its turn"
    nobody = f"{one} but no worker of its tube 'mail' was seen: none of its tasks is taken"
    assert (why(run, Task, 1), why(run, Task, 3)) == ([nobody], [f"{one} {turn}"])
    taken.ack()
    last = f"{one} {turn}" if features else nobody.replace("mail", "fax")
    assert why(run, Task, 3) == [last]
    Task.xq.clock.tick(40)
    Task.take(tube="mail").ack()
    Task.xq.clock.tick(40)
    if features:
        one = "nothing holds it: it is one of 1 ready tasks"
        assert why(run, Task, 3) == [
            f"{one}, but no worker of its tube 'fax' was seen: the last take was at 2023-11-14 22:13:20 UTC"
        ]


def test_a_killed_worker_is_told_from_one_that_lives(make_live, run):
    Task = make_live({"keep": True, "history": True})
    Task.xq.put_many(tasks(2))

    def script():
        yield Task.take().id

    def seen():
        gone = [each["gone"] for each in run(Task, "sessions", "--json").json]
        return gone, run(Task, "top", "--json").json["sessions"], why(run, Task, 2)

    with another_process(make_live.db, script) as other:
        assert next(other) == 1
        nothing = "nothing holds it: it is one of 1 ready tasks, and a worker takes it in its turn"
        assert seen() == ([False], 1, [nothing])
        other.kill()
        eventually(lambda: seen() == ([True], 0, [NOBODY]))
    assert why(run, Task, 1)[1].startswith("its process is gone: any process that takes from this queue releases")
    *_, first, second = doctor(run, Task)
    assert first.startswith("sessions that are gone and own tasks: 1 (")
    assert second == "ready tasks: 1, and no process takes"
    assert (state(Task, 1), transitions(Task)["T-R"]) == ("T", 0), "looking on has ended nothing"


def test_doctor_says_what_is_wrong_and_what_to_do(make, run):
    Task = make(FULL, roles=("runat", "owner"))
    bring(Task, "D")
    said = run(Task, "doctor")
    assert (said.code, said.errors) == (0, "nothing is wrong\n")
    bring(Task, "B")
    Task.put(task())
    Task.xq.pause()
    found = doctor(run, Task)
    assert found["the queue is paused"] == "xq resume app:Page"
    assert found["buried tasks: 1"].startswith(
        "xq list app:Page state:buried shows them; xq act app:Page dig FILTER --dry"
    )
    assert ("the queue is paused", "xq resume TARGET") in make(FULL, roles=("runat", "owner")).xq.doctor()
    Task.xq.every(3600, {"name": "a"}, name="hourly")
    late = "schedules that are due and have put no task: 1 ('hourly'), the first for 2 h"
    assert late not in doctor(run, Task)
    Task.xq.clock.tick(3 * 3600)
    assert late in doctor(run, Task)
    Task.xq.uninstall()
    assert run(Task, "doctor").code == 1


def test_doctor_finds_tasks_that_were_taken_often_and_never_finished(make, run):
    Task = make({"buried": True, "delayed": True}, roles=("runat", "attempts"))
    for takes, brought in ((1_000, "T"), (99, "B"), (19, "R"), (20, "R"), (70, "W")):
        Task.update(attempts=takes).where(Task.id == bring(Task, brought).id).execute()
    found = [what.split(" times and never finished")[0] for what in doctor(run, Task) if "never" in what]
    assert found == ["task 1 was taken 1,000", "task 5 was taken 70", "task 4 was taken 20"]


def test_doctor_finds_what_drifted_from_what_is_installed_and_install_mends_it(make, run):
    Task = with_roles(make, FULL | {"utube": True, "unique": "RWT"}, roles=(*ROLES, "unique", "owner"))
    assert doctor(run, Task) == {}
    mariadb = isinstance(make.db, pw.MySQLDatabase)
    index = "`task_xq_oldest_R`" if mariadb else '"task_xq_oldest_R"'
    run_script(make.db, f"DROP INDEX {index}{' ON task' * mariadb}; CREATE INDEX {index} ON task (status)")
    run_script(make.db, Task.xq.ddl().replace("'X'", "'Y'"))
    drifted = {what: do for what, do in doctor(run, Task).items() if "not as install() makes it" in what}
    assert "insert " in " ".join(drifted), "also a trigger that the script that installed it has as it is"
    assert ({*drifted.values()}, {*drifted} <= {*Task.xq.check()}) == ({"xq install app:Page"}, True)
    Task.xq.install()
    assert doctor(run, Task) == {}


@pytest.mark.parametrize("tubes", [["web", "shop", "b2b"], {"web", "shop", "b2b"}])
def test_doctor_finds_healthy_triggers_healthy_in_whatever_order_the_tubes_are_named(make, run, tmp_path, tubes):
    at = Maker(pw.SqliteDatabase(tmp_path / "app.db")) if isinstance(make.db, pw.SqliteDatabase) else make
    at(FULL, roles=("runat", "tube", "owner"), tube_stats=tubes)
    assert doctor(run, at(FULL, roles=("runat", "tube", "owner"), tube_stats=["b2b", "shop", "web"])) == {}
    if at is not make:
        assert run(None, "doctor", target=f"sqlite:///{tmp_path}/app.db#task").errors == "nothing is wrong\n"


def test_check_and_doctor_answer_once_for_many_targets_with_the_worst_exit_code(make_shared, run, tmp_path):
    Task, other = make_shared(FULL), Maker(pw.SqliteDatabase(tmp_path / "other.db"))
    for table in ("one", "two"):
        other(FULL, model=other.model(table_name=table))
    url, away = f"sqlite:///{tmp_path}/other.db", "postgresql://ann@127.0.0.1:1/app#orders"
    said = run(Task, "doctor", url)
    lines = [f"{each}: nothing is wrong" for each in ("app:Page", f"{url}#one", f"{url}#two")]
    assert (said.code, said.splitlines()) == (0, lines)
    bring(Task, "B")
    said = run(Task, "doctor", "app:Page", away, target=f"{url}#one")
    assert said.code == 1
    assert said.splitlines()[:3] == [f"{url}#one: nothing is wrong", "app:Page:", "  buried tasks: 1"]
    assert said.splitlines()[3].startswith("    xq list app:Page state:buried")
    assert said.splitlines()[4].startswith(f"{away}: it cannot be looked at: ")
    one, page, gone = run(Task, "doctor", "app:Page", away, "--json", target=f"{url}#one").json
    assert (one, page["target"]) == ({"target": f"{url}#one", "found": []}, "app:Page")
    assert (page["found"][0]["what"], "Connection refused" in gone["error"]) == ("buried tasks: 1", True)
    assert (run(Task, "check", url).code, run(Task, "check", url, away).code) == (0, 1)


def test_a_queue_of_a_database_whose_column_was_renamed_is_an_error_that_names_the_column(run, tmp_path):
    make = Maker(pw.SqliteDatabase(tmp_path / "app.db"))
    make()
    make.db.execute_sql("ALTER TABLE task RENAME COLUMN status TO state")
    said = run(None, "doctor", target=f"sqlite:///{tmp_path}/app.db")
    assert (said.code, "installed with the column status of task, which is gone" in said.errors) == (1, True)


def test_health_is_the_worst_that_holds_and_an_exit_code(make_shared, run):
    Task = make_shared(FULL)
    assert run(Task, "health") == "healthy app:Page ready tasks: 0; buried tasks: 0\n"
    bring(Task, "B")
    Task.put(task())
    Task.xq.clock.tick(660)
    Task.xq.pause()
    late = "ready tasks: 1, the oldest for 11 min; processes that take: 1; buried tasks: 1; the queue is paused"
    (told,) = run(Task, "health", "--json").json
    assert told == {"target": "app:Page", "state": "failing", "sentence": late}
    assert Task.xq.health().usable, "a buried task is for people, not for a load balancer"
    assert run(Task, "health", "--max-buried", 1) == f"late app:Page {late}\n"
    assert run(Task, "health", "--max-buried", 1, "--max-age", 661).code == 0
    assert Task.xq.health(max_age=math.inf, max_buried=1) == ("healthy", late)


def test_health_tells_of_every_target_and_of_each_that_does_not_answer(make_shared, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("no database " * 100)
    away = [f"{scheme}://ann@127.0.0.1:1/app{of}" for scheme in ("postgresql", "mariadb") for of in ("", "#orders")]
    files = ["sqlite:///none.db", "sqlite:///none.db#orders", "sqlite:///text.db", "sqlite:///text.db#orders"]
    said = run(make_shared(FULL), "health", *away, "json:nothing", *files, target="app:Page")
    told = [line.split()[:2] for line in said.splitlines()]
    dead = [["unreachable", target] for target in (*away, *files)]
    assert told == [["healthy", "app:Page"], *dead[:4], ["error", "json:nothing"], *dead[4:]]
    assert (said.code, Path("none.db").exists()) == (5, False)
    other = make_shared(FULL, attributes={"table_name": "other"})
    assert run(other, "health", "json:nothing", target="app:Page").code == 1


def test_health_does_not_wait_for_a_database_that_hangs(make_shared, run):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/app"
        said = run(make_shared(FULL), "health", "app:Page", "--timeout", 2, target=url)
    lines = [f"unreachable {url} does not answer within 2 s", "healthy app:Page ready tasks: 0; buried tasks: 0"]
    assert (said.splitlines(), said.code) == (lines, 5)


def test_without_a_known_age_a_queue_is_late_if_tasks_are_ready_and_no_process_takes(make, run):
    first, second = make({}), make({}, attributes={"table_name": "others"})
    first.xq.put_many(tasks(2))
    second.xq.put_many(tasks(2))
    second.take()
    unknown = "ready tasks: 1, for how long is unknown; processes that take: 1; buried tasks: 0"
    idle = "ready tasks: 2, for how long is unknown; no process takes; buried tasks: 0"
    assert (first.xq.health(), second.xq.health()) == (("late", idle), ("healthy", unknown))
    second.xq.clock.tick(700)
    assert second.xq.health()[0] == make({}, attributes={"table_name": "others"}).xq.health()[0] == "late"


@pytest.mark.parametrize("takes", [False, True])
def test_processes_that_take_nothing_in_the_second_after_the_first_look_are_no_proof_of_health(
    make, monkeypatch, takes
):
    queue = make({}).xq
    queue.put_many(tasks(3))
    queue.ack(queue.take())
    sleeps = lambda n: queue.ack(queue.take()) if takes else queue.clock.tick(n)  # noqa: E731
    pause = SimpleNamespace(sleep=sleeps, monotonic=time.monotonic)
    monkeypatch.setattr("xq.operators.inspection.time", pause)
    state, told = queue.health()
    assert (state, "none was taken for 1 s" in told) == (("healthy", False) if takes else ("unknown", True))


def test_a_bound_of_the_age_is_no_proof_of_health(make_shared, run, monkeypatch):
    monkeypatch.setattr("xq.operators.inspection.WINDOWS", (1,))
    Task = make_shared(FULL)
    Task.xq.put_many(tasks(3))
    idle = "ready tasks: 3, the oldest for at least 0 ms; no process takes; buried tasks: 0"
    assert (Task.xq.health(), Task.xq.health(max_age=math.inf)) == (("late", idle), ("healthy", idle))
    Task.take()
    Task.xq.clock.tick(5)
    bound = "ready tasks: 2, the oldest for at least 5 s; processes that take: 1; buried tasks: 0"
    assert Task.xq.health() == ("unknown", bound)
    assert run(Task, "health").code == 3


def test_a_process_that_looks_more_rarely_than_tasks_may_wait_does_not_know_whether_they_do(make):
    queue = make({}).xq
    queue.take()
    assert queue.health().state == "healthy"
    queue.put_many(tasks(2))
    queue.clock.tick(601)
    queue.take()
    bound = "ready tasks: 1, the oldest for at least 0 ms; processes that take: 1; buried tasks: 0"
    assert queue.health() == queue.health() == ("unknown", bound)
    queue.ack(queue.take())
    queue.put(task())
    assert queue.health().state == "healthy", "it became ready since the last look"
    queue.clock.tick(601)
    assert queue.health().state == "late"


@pytest.mark.parametrize("features", [{}, {"history": True}])
def test_ready_tasks_of_which_none_is_taken_are_a_standstill_unless_they_are_paused(make, run, features):
    Task = make(features, roles=("tube",))
    queue = Task.xq
    queue.put_many([{"tube": "a"}] * 3)
    queue.take_many(2)
    queue.clock.tick(90)
    queue.put({"tube": "a"})
    assert queue.snapshot().standstill == 90
    told = (
        "ready tasks: 2, and none was taken for 90 s: the processes that take (1) have 2 tasks, each for 90 s or longer"
    )
    assert doctor(run, Task)[told].startswith("restart those that xq sessions app:Page lists")
    assert "none was taken for 90 s" in why(run, Task, 3)[0]
    assert "none was taken for 90 s" in run(Task, "top", "--once")
    assert queue.health(max_age=60) == ("late", queue.health(max_age=60).sentence)
    queue.pause("a")
    assert queue.snapshot().standstill == 0
    queue.put({"tube": "b"})
    queue.pause("b")
    assert queue.snapshot().standstill == 0
    queue.resume("b")
    assert queue.snapshot().standstill > 0
    queue.pause()
    assert queue.snapshot().standstill == 0
    queue.resume()
    queue.resume("a")
    queue.take()
    assert queue.snapshot().standstill == 0
    queue.clock.tick(2)
    assert queue.snapshot().standstill == 2
    queue.take_many(9)
    assert queue.snapshot().standstill == 0, "no task is ready"


def test_a_full_queue_is_named_and_so_is_the_schedule_that_cannot_put(make, run):
    Task = make(FULL | {"limit": 2}, roles=("runat", "owner"))
    assert (make({}, attributes={"table_name": "others"}).xq.snapshot().room, Task.xq.snapshot().room) == (None, 2)
    Task.xq.put_many(tasks(2))
    Task.xq.every(3600, {"name": "a"}, name="hourly")
    Task.xq.clock.tick(2 * 3600)
    assert Task.xq.snapshot().room == 0
    assert run(Task, "stats").errors == "full: no task can be put\n"
    remedies = {do for what, do in doctor(run, Task).items() if "is full" in what or "schedules" in what}
    assert remedies == {"start more workers, or raise the limit"}
    Task.xq.bury_many(Task.xq.take_many(2))
    remedies = {do for what, do in doctor(run, Task).items() if "is full" in what or "schedules" in what}
    assert remedies == {"kill tasks that are buried, or raise the limit"}


# operations


def test_act_moves_what_a_filter_shows_and_the_history_says_who_and_why(make, run, monkeypatch):
    Task = with_roles(make)
    keys = [bring(Task, "B").id for _ in range(3)]
    told = run(Task, "act", "dig", "state:buried", "--dry-run", "--json").json
    assert [each["key"] for each in told.pop("tasks")] == keys[::-1]
    assert told == {"event": "dig", "filter": "state:buried", "n": 3, "exact": True, "looked": 0}
    assert run(Task, "act", "dig", "state:buried", "--dry-run").errors == "dig would move 3 tasks\n"
    named = ("--reason", "bad deploy", "--actor", "ann")
    told = run(Task, "act", "dig", "state:buried", *named, "--json").json
    assert (told["done"], told["state"], told["actor"]) == (3, "done", "ann")
    assert [state(Task, key) for key in keys] == ["R"] * 3
    assert "by=ann: bad deploy" in run(Task, "tail", "--once")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said = run(Task, "act", "kill", "state:R", "--yes", "--chunk", 1)  # with its progress
    assert (said.code, said.errors.strip().endswith("kill: 3 tasks moved")) == (0, True)
    assert [row for row in Task.xq.history() if row.event == "kill"][-1].actor, "whoever is logged in"


def test_ctrl_c_ends_an_operation_after_its_chunk_and_the_same_command_moves_the_others(make, run):
    Task = with_roles(make)
    for _ in range(4):
        bring(Task, "B")
    Task.xq.on_change(lambda *_: os.kill(os.getpid(), signal.SIGINT) if Task.xq.count("B") == 2 else None)
    said = run(Task, "act", "dig", "state:buried", "--chunk", 1)
    assert (said.code, Task.xq.count("B")) == (1, 2)
    assert said.errors == "dig: 2 tasks moved; it was cancelled, and the same command moves the others\n"
    assert run(Task, "act", "dig", "state:buried").errors == "dig: 2 tasks moved\n"


def test_help_names_the_commands_that_the_document_has(make, run):
    Task = make()
    names = re.findall(r"^│ (\w+) ", run(Task, "--help"), re.M)
    cells = re.findall(r"^\| (`.*?) \|", DOCUMENT.partition("| tasks |")[2].partition("\n`Page.xq.find")[0], re.M)
    documented = re.findall(r"`(\w+)", " ".join(cells))
    assert (lacking := {*names} - {*documented}) == set(), f"docs/cli.md lacks {', '.join(lacking)}"
    assert (gone := {*documented} - {*names}) == set(), f"docs/cli.md has {', '.join(gone)}, which xq --help lacks"
    for name in names:
        said = run(Task, name, target="--help")
        assert (said.code, said.errors, "Usage: " in said) == (0, "", True)
    assert run(Task, "--version").startswith("xq ")
    assert run(Task, "nothing").code == 2
