"""The program `xq`: as a shell starts it, on a terminal, with a table that no program has a model for."""

from __future__ import annotations

import json
import multiprocessing
import os
import pty
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import pytest

from tests.conftest import SERVERS, database_on
from tests.steps import STUCK, eventually
from xq.cli import main

ROOT = Path(__file__).resolve().parents[2]

APP = """
import peewee as pw
import xq

db = pw.SqliteDatabase("app.db")

class Page(pw.Model):
    url = pw.TextField(default="")
    status = pw.CharField(max_length=1, default="R")
    tube = pw.TextField(null=True)

    class Meta:
        database = db

features = {"keep": True, "buried": True, "history": True}
xq.upgrade(Page, {"status": "status", "tube": "tube"}, features, tube_stats=["news"])

@Page.xq.worker
def work(page):
    print("done", page.id, flush=True)

def plain(page):
    print("plain", page.id, flush=True)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with an application of one module."""
    (tmp_path / "app.py").write_text(APP)
    code = "import app; app.db.create_tables([app.Page]); app.Page.xq.install()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=True)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "xterm"} | more


# Processes that have imported the command line already: a Python takes half a second to do so, and is started hundreds
# of times here.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "xq.cli.app", "typer.rich_utils"])


def run_here(folder: Path, arguments: tuple[str, ...], environ: dict[str, str], files: tuple[Path, Path]) -> None:
    """Do what `python -m xq` does in a process of its own."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.path.insert(0, str(folder))
    sys.argv = ["xq", *arguments]
    for file, descriptor in zip(files, (1, 2), strict=True):
        os.dup2(os.open(file, os.O_WRONLY), descriptor)
    main()


def xq(folder: Path, *arguments: str, **more: str) -> tuple[int, str, str]:
    with TemporaryDirectory() as name:
        out, err = files = Path(name, "out"), Path(name, "err")
        for file in files:
            file.touch()
        process = FORKS.Process(target=run_here, args=(folder, arguments, environment(**more), files))
        process.start()
        process.join(5 * STUCK)  # Spark starts a Java
        code = process.exitcode
        process.kill()  # one that hangs, for which the tests would wait at their end
        assert code is not None, "the command hangs"
        return code, out.read_text(), err.read_text()


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "xq", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=STUCK)


COMMANDS = (
    *("put", "peek", "list", "failures", "dig", "kill", "release", "restart", "bury", "history"),
    *("stats", "sessions", "pause", "resume", "schedules", "sweep", "upgrade", "install", "check", "ddl"),
    *("recount", "reset", "truncate", "uninstall", "tubes", "top", "tail", "why", "doctor", "worker", "spark"),
    *("metrics", "serve", "act", "operations"),
)


def test_help_names_the_commands(tmp_path):
    code, out, err = xq(tmp_path, "--help")
    assert (code, err) == (0, "")
    for name in COMMANDS:
        assert f" {name} " in out
    assert xq(tmp_path, "--version")[1].startswith("xq ")
    assert xq(tmp_path, "nothing")[0] == 2
    for name in COMMANDS:
        code, out, err = xq(tmp_path, name, "--help")
        assert (code, err) == (0, "")


def test_help_imports_no_database(tmp_path):
    code = "import sys, xq.cli.app; print({'peewee', 'pydantic', 'apscheduler'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_the_command_line_says_what_it_needs(tmp_path):
    code = "import sys; sys.modules['typer'] = None; import xq.cli; xq.cli.main()"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, "xq: the command line needs typer: pip install 'xq-tables[cli]'\n")


def test_a_worker_runs_until_a_signal_comes(app):
    assert xq(app, "put", "app:Page", '{"url": "a"}')[1] == "1\n"
    with started(app, "worker", "app:work") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "done 1\n"
        xq(app, "put", "app:Page", '{"url": "b"}')
        assert worker.stdout.readline() == "done 2\n"
        eventually(lambda: json.loads(xq(app, "stats", "app:Page", "--json")[1])["counts"]["D"] == 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(STUCK) == 0


def test_a_worker_is_a_handler_a_queue_or_a_plain_function(app):
    for n, arguments in enumerate([("app:work",), ("app:Page",), ("app:plain", "--queue", "app:Page")], 1):
        xq(app, "put", "app:Page", "{}")
        code, out, _ = xq(app, "worker", *arguments, "--until-empty", "--workers", "2")
        assert (code, out) == (0, f"{'plain' if 'app:plain' in arguments else 'done'} {n}\n")
    assert xq(app, "worker", "app:plain")[0] == 1
    assert xq(app, "worker", "app:work", "--kind", "fibre")[0] == 1


def test_the_commands_need_no_django(app):
    without = [sys.executable, "-c", "import sys; sys.modules['django'] = None; import xq.cli; xq.cli.main()"]

    def run(*arguments: str) -> str:
        ran = subprocess.run([*without, *arguments], cwd=app, env=environment(), capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert run("put", "app:Page", '{"url": "a"}') == "1\n"
    assert json.loads(run("stats", "app:Page", "--json"))["counts"]["R"] == 1
    assert run("worker", "app:work", "--until-empty") == "done 1\n"


def test_tail_follows_the_transitions(app):
    with started(app, "tail", "app:Page") as tail:
        assert tail.stdout is not None
        for event in ("X-R put", "R-X kill"):
            xq(app, *(["put", "app:Page", "{}"] if "put" in event else ["kill", "app:Page", "1", "--yes"]))
            assert event in tail.stdout.readline()


def test_a_reader_that_ends_early_is_no_error(app):
    for _ in range(3):
        xq(app, "put", "app:Page", "{}")
    command = f"{sys.executable} -m xq tail app:Page --once | head -n 1"
    ran = subprocess.run(command, shell=True, cwd=app, env=environment(), capture_output=True, text=True)
    assert (ran.returncode, ran.stderr, len(ran.stdout.splitlines())) == (0, "", 1)


def test_the_shell_completes_states_and_tubes(app):
    def completed(line: str) -> set[str]:
        words = line.split(" ")
        asked = {"_XQ_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        return set(xq(app, **asked)[1].split())

    assert completed("xq list app:Page --state ") == {"R", "T", "B", "D"}
    assert completed("xq list app:Page --tube n") == {"news"}
    assert completed("xq list nothing:Page --state ") == set()
    assert {"stats", "sessions"} <= completed("xq s")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_states_and_tubes(app, shell):
    def completed(line: str) -> str:
        asked = {"_XQ_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
        return xq(app, **asked, _TYPER_COMPLETE_FISH_ACTION="get-args")[1]

    assert set(re.findall(r"\b[A-Z]\b", completed("xq list app:Page --state "))) == {"R", "T", "B", "D"}
    assert "news" in completed("xq list app:Page --tube n")


# on a terminal


@contextmanager
def on_a_terminal(folder: Path, *arguments: str, **more: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "xq", *arguments],
        cwd=folder,
        env=environment(LINES="40", **more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.kill()
        process.wait(STUCK)
        os.close(ours)


def read_until(terminal: int, text: str) -> str:
    found, deadline = "", time.monotonic() + STUCK
    while text not in found:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], f"{text!r} does not come: {found!r}"
        found += os.read(terminal, 65_536).decode(errors="replace")
    return found


def test_top_is_refreshed_and_shows_the_state_that_a_key_chooses(app):
    xq(app, "put", "app:Page", '{"url": "first"}')
    with on_a_terminal(app, "top", "app:Page", "--every", "0.1") as (terminal, process):
        read_until(terminal, "url=first")
        xq(app, "put", "app:Page", '{"url": "second"}')
        read_until(terminal, "url=second")
        os.write(terminal, b"s")
        read_until(terminal, "in T, the next ones first")
        os.write(terminal, b"\x1b[A")
        read_until(terminal, "in R, the next ones first")
        os.write(terminal, b"pq")
        assert process.wait(STUCK) == 0


def test_what_destroys_asks_on_a_terminal(app):
    xq(app, "put", "app:Page", "{}")
    for answer, left in ((b"n\n", 1), (b"y\n", 0)):
        with on_a_terminal(app, "truncate", "app:Page") as (terminal, process):
            read_until(terminal, "Delete all 1 tasks of Page? [y/N]")
            os.write(terminal, answer)
            assert process.wait(STUCK) == (1 if left else 0)
        assert json.loads(xq(app, "stats", "app:Page", "--json")[1])["counts"]["R"] == left


WIDE = """
import peewee as pw
import xq

class Wide(pw.Model):
    one, two, three, four, five, six = (pw.TextField(default="text " * 50) for _ in range(6))
    status = pw.TextField(default="R")
    error = pw.TextField(null=True)

    class Meta:
        database = pw.SqliteDatabase("app.db")

xq.upgrade(Wide, {"status": "status", "error": "error"})
"""


def test_a_narrow_terminal_shows_key_state_and_error_of_wide_tasks(tmp_path):
    (tmp_path / "wide.py").write_text(WIDE)
    code = "from wide import Wide; Wide.create_table(); Wide.create(id=1234567, error='ValueError: no such page')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=True)
    with on_a_terminal(tmp_path, "list", "wide:Wide", COLUMNS="80") as (terminal, process):
        shown = read_until(terminal, "no such page")
        assert re.search(r"1234567 +R +ValueError: no such page", shown)
        assert process.wait(STUCK) == 0


# a plain table


TABLE = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, what VARCHAR(50) NOT NULL, state VARCHAR(10) NOT NULL, due {real})"
)
UPGRADE = ("--status", "state", "--field", "runat=due", "--features", "keep,ttr=60,buried,delayed,rate=90/m")


def used_from_the_command_line(folder: Path, url: str) -> None:
    target = f"{url}#orders"
    code, out, err = xq(folder, "upgrade", url, "orders", *UPGRADE)
    assert code == 1
    assert "class Orders(Model):" in out
    assert "say --yes" in err
    code, told, _ = xq(folder, "upgrade", url, "orders", *UPGRADE, "--json")
    assert (code, json.loads(told)) == (1, {"model": out.removesuffix("\n")})
    code, out, err = xq(folder, "upgrade", url, "orders", *UPGRADE, "--yes")
    assert (code, err) == (0, f"orders is a queue: xq stats '{target}'\n")
    (folder / "model.py").write_text(out)
    assert xq(folder, "put", target, '{"what": "a"}')[1] == "1\n"
    assert xq(folder, "put", target, '{"what": "b"}', "--delay", "3600")[1] == "2\n"
    assert json.loads(xq(folder, "stats", target, "--json")[1])["counts"] == {"R": 1, "T": 0, "W": 1, "B": 0, "D": 0}
    assert [
        each["fields"]["what"] for each in json.loads(xq(folder, "list", url, "-s", "W", "--json")[1])["tasks"]
    ] == ["b"]
    assert xq(folder, "peek", f"{url}#nothing", "1")[0] == 1
    # the printed model is the same queue
    assert json.loads(xq(folder, "stats", "model:Orders", "--json")[1])["counts"]["R"] == 1
    # a worker of the table, with the function of a module that knows nothing of it
    (folder / "jobs.py").write_text("def ship(order):\n    print('shipped', order.what)\n")
    code, out, _ = xq(folder, "worker", "jobs:ship", "--queue", target, "--until-empty")
    assert (code, out) == (0, "shipped a\n")
    assert xq(folder, "worker", target)[0] == 2


def test_a_plain_table_of_sqlite_becomes_a_queue(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute(TABLE.format(real="REAL"))
        db.execute("INSERT INTO orders (id, what, state) VALUES (1, 'old', 'shipped')")
        db.commit()
    _, _, err = xq(tmp_path, "upgrade", "sqlite:///shop.db", "orders", *UPGRADE, "--yes")
    assert err.splitlines()[1:] == ["1 of its rows have another status, and are no tasks"]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("DELETE FROM orders")
        db.commit()
    xq(tmp_path, "uninstall", "sqlite:///shop.db#orders", "--yes")
    used_from_the_command_line(tmp_path, "sqlite:///shop.db")
    code, _, err = xq(tmp_path, "upgrade", "sqlite:///shop.db", "nothing")
    assert code == 1
    assert err.startswith("xq: there is no table 'nothing': there are orders, ")


@pytest.mark.parametrize("real", ["DOUBLE PRECISION", "double"])
def test_a_timer_may_have_any_type_that_is_real_to_sqlite(tmp_path, real):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute(f"CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, due {real}, span INTERVAL)")
    asked = ("upgrade", "sqlite:///shop.db", "orders", "--status", "state", "--features", "delayed", "--yes")
    code, _, err = xq(tmp_path, *asked, "--field", "runat=span")
    assert (code, err.strip().endswith("orders.span is INTERVAL")) == (1, True)
    assert xq(tmp_path, *asked, "--field", "runat=due")[0] == 0
    assert xq(tmp_path, "put", "sqlite:///shop.db#orders", "{}", "--delay", "60")[1] == "1\n"
    assert json.loads(xq(tmp_path, "stats", "sqlite:///shop.db#orders", "--json")[1])["counts"]["W"] == 1


def test_a_plain_table_gets_the_column_of_its_timer(tmp_path):
    table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT NOT NULL, state TEXT NOT NULL)"
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        db.execute(table)
    asked = ("upgrade", "sqlite:///app.db", "orders", "--status", "state", "--features", "keep,ttr=60")
    code, out, err = xq(tmp_path, *asked)
    assert code == 1
    assert "    runat = DoubleField(null=True)\n" in out
    assert "Install the queue orders in this database, and add the column runat?" in err
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        assert db.execute("SELECT sql FROM sqlite_master").fetchall() == [(table,)]
    assert xq(tmp_path, *asked, "--yes")[:2] == (0, out)
    (tmp_path / "model.py").write_text(out)
    assert xq(tmp_path, "put", "sqlite:///app.db#orders", '{"what": "a"}')[1] == "1\n"
    assert json.loads(xq(tmp_path, "stats", "model:Orders", "--json")[1])["counts"]["R"] == 1
    code, again, err = xq(tmp_path, *asked)  # the column is there now
    assert "runat" in again
    assert "Install the queue orders in this database?" in err


def test_the_console_of_a_database_shows_all_its_queues_and_tubes(app):
    xq(app, "put", "app:Page", "{}")
    xq(app, "tubes", "sqlite:///app.db", "create", "mails", "fifo")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]

    def page() -> str:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/", timeout=STUCK) as answer:
            return str(answer.read().decode())
        return ""

    with started(app, "serve", "sqlite:///app.db", "--port", str(port)) as process:
        shown = eventually(page)
        process.terminate()
        assert process.wait(STUCK) in (0, -signal.SIGTERM)
    assert ">page<" in shown
    assert ">mails<" in shown
    assert "sqlite_sequence" not in shown


def test_a_console_for_other_machines_needs_a_token(app):
    code, _, err = xq(app, "serve", "app:Page", "--host", "0.0.0.0", XQ_TOKEN="")
    assert code == 1
    assert "the console needs a token: set XQ_TOKEN" in err


@pytest.mark.parametrize(("kind", "serial"), [("postgres", "SERIAL"), ("mariadb", "INTEGER AUTO_INCREMENT")])
def test_a_plain_table_of_a_server_becomes_a_queue(kind, serial, tmp_path):
    with database_on(SERVERS[kind]) as (server, name):
        db = server.peewee(name)
        with db.connection_context():
            db.execute_sql(TABLE.format(real="DOUBLE PRECISION").replace("INTEGER PRIMARY", f"{serial} PRIMARY"))
        url = server.url(name)
        scheme = {"postgres": "postgresql", "mariadb": "mariadb"}[kind]
        used_from_the_command_line(tmp_path, scheme + url[url.index("://") :])


def is_a_queue(folder: Path, url: str, program: str) -> None:
    """Check that a printed program defines the queue `task` of a database."""
    (folder / "printed.py").write_text(program)
    assert xq(folder, "put", "printed:Task", '{"class_": 7}') == (0, "1\n", "")
    (told,) = json.loads(xq(folder, "list", f"{url}#task", "--json")[1])["tasks"]
    assert told["fields"]["class"] == 7


ODD = 'CREATE TABLE task (id {}, status {}, parent INTEGER REFERENCES task (id), "class" INTEGER, "1x" INTEGER, {})'


def test_the_printed_model_runs_whatever_the_columns_are(tmp_path):
    with closing(sqlite3.connect(tmp_path / "odd.db")) as db:
        db.execute("CREATE TABLE other (id VARCHAR(7) PRIMARY KEY)")
        more = "other_id VARCHAR(7) REFERENCES other, release TEXT, w WEIRD"
        db.execute(ODD.format("INTEGER PRIMARY KEY", "VARCHAR(1)", more))
        db.execute('CREATE TABLE pair ("from" INTEGER, b TEXT, status TEXT, PRIMARY KEY ("from", b))')
    url = "sqlite:///odd.db"
    code, out, err = xq(tmp_path, "upgrade", url, "task", "--yes")
    assert code == 0, err
    is_a_queue(tmp_path, url, out)
    code, out, err = xq(tmp_path, "upgrade", url, "pair", "--yes")
    assert code == 0, err
    (tmp_path / "pairs.py").write_text(out)
    assert xq(tmp_path, "put", "pairs:Pair", '{"from_": 1, "b": "x"}')[1] == '[1, "x"]\n'


@pytest.mark.parametrize("kind", ["BLOB", "BINARY(2)", "VARBINARY(20)", ""])
def test_a_plain_table_may_have_keys_of_bytes(tmp_path, kind):
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        db.execute(f"CREATE TABLE digest (id {kind} PRIMARY KEY, status TEXT DEFAULT 'R')")
        db.execute("INSERT INTO digest (id) VALUES (x'00ff'), (x'616263')")
        db.commit()
    url = "sqlite:///app.db"
    assert xq(tmp_path, "upgrade", url, "digest", "--features", "history", "--yes")[0] == 0
    told = json.loads(xq(tmp_path, "list", url, "--json")[1])
    assert [each["key"] for each in told["tasks"]] == ["00FF", "616263"]
    if kind:  # a column without a type may hold anything, so its keys are texts on the command line
        assert xq(tmp_path, "kill", url, "616263", "--yes")[0] == 0
    assert xq(tmp_path, "act", url, "kill", "state:ready", "--yes")[0] == 0
    assert json.loads(xq(tmp_path, "list", url, "--json")[1])["tasks"] == []


def test_the_printed_model_has_the_types_of_postgresql_and_no_password(tmp_path):
    with database_on(SERVERS["postgres"]) as (server, name):
        db = server.peewee(name)
        with db.connection_context():
            db.execute_sql("CREATE TYPE mood AS ENUM ('good', 'bad')")
            more = "m mood, j JSON, jb JSONB, a INTEGER[], at TIMESTAMPTZ"
            db.execute_sql(ODD.format("SERIAL PRIMARY KEY", "TEXT", more))
        url = server.url(name).replace("@", ":SECRET@")  # the server asks for none
        code, out, err = xq(tmp_path, "upgrade", url, "task", "--yes")
        assert code == 0, err
        assert "SECRET" not in out + err
        is_a_queue(tmp_path, url, out.replace(":...@", ":SECRET@"))


def test_the_numbers_of_all_queues_of_a_database(tmp_path):
    with sqlite3.connect(tmp_path / "app.db") as db:
        db.execute("CREATE TABLE mails (id INTEGER PRIMARY KEY, status TEXT NOT NULL)")
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT NOT NULL)")
    url = "sqlite:///app.db"
    assert xq(tmp_path, "upgrade", url, "mails", "--yes")[0] == 0
    assert "state" in xq(tmp_path, "stats", url)[1]  # one queue: its own numbers
    assert xq(tmp_path, "upgrade", url, "orders", "--features", "keep", "--yes")[0] == 0
    assert xq(tmp_path, "put", f"{url}#orders", "{}")[0] == 0
    assert xq(tmp_path, "pause", f"{url}#mails")[0] == 0
    heads, _, *lines = xq(tmp_path, "stats", url)[1].splitlines()
    assert heads.split() == ["queue", "Ready", "Taken", "Done", "paused"]
    assert [line.split() for line in lines] == [["mails", "0", "0", "the", "queue"], ["orders", "1", "0", "0"]]
    told = json.loads(xq(tmp_path, "stats", url, "--json")[1])
    assert told[1] == {"queue": "orders", "counts": {"R": 1, "T": 0, "D": 0}, "paused": []}


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    told = xq(tmp_path, "stats", "sqlite:///typo.db")
    assert told == (1, "", "xq: there is no file 'typo.db'\n")
    assert list(tmp_path.iterdir()) == []


def test_the_tubes_of_a_database_are_made_and_used(tmp_path):
    url = "sqlite:///tubes.db"
    assert xq(tmp_path, "tubes", url)[0] == 0
    code, told, _ = xq(tmp_path, "tubes", url, "create", "mail", "limfifottl", "capacity=2", "--json")
    assert (code, json.loads(told)) == (0, {"created": "mail", "type": "limfifottl"})
    assert xq(tmp_path, "tubes", url, "put", "mail", '{"to": "a"}')[1] == "id=1 state=r data={'to': 'a'}\n"
    assert json.loads(xq(tmp_path, "tubes", url, "--json")[1])["mail"]["ready"] == 1
    assert xq(tmp_path, "tubes", url, "delete", "mail", "1")[0] == 1
    assert xq(tmp_path, "tubes", url, "delete", "mail", "1", "--yes")[0] == 0
    assert xq(tmp_path, "tubes", url, "put", "nothing", "1")[2] == "xq: there is no tube 'nothing': there are mail\n"
    assert xq(tmp_path, "tubes", url, "drink", "mail")[0] == 2
    assert xq(tmp_path, "tubes", url, "kick", "mail", "many")[2].startswith("xq: ")
    assert xq(tmp_path, "tubes", url, "drop", "mail", "--yes")[0] == 0
    assert json.loads(xq(tmp_path, "tubes", url, "--json")[1]) == {}


def test_tubes_of_a_database_that_fails_are_an_error_in_one_line(tmp_path):
    (tmp_path / "text.db").write_text("no database " * 100)
    told = xq(tmp_path, "tubes", "sqlite:///text.db")
    assert told == (1, "", "xq: the database fails: file is not a database\n")


def test_spark_archives_and_restores_from_the_command_line(app):
    xq(app, "put", "app:Page", '{"url": "a"}')
    xq(app, "put", "app:Page", '{"url": "b"}')
    xq(app, "worker", "app:work", "--until-empty")
    assert xq(app, "spark", "archive", "app:Page", "done")[0] == 1  # it asks first
    code, out, err = xq(app, "spark", "archive", "app:Page", "done", "--yes", "--json")
    if re.search("xq.spark needs|Spark needs Java", err):
        pytest.skip(err.splitlines()[-1])
    assert code == 0, err
    moved = json.loads(out)["tasks"]
    assert moved >= 1  # SQLite keeps the one with the highest number
    assert json.loads(xq(app, "stats", "app:Page", "--json")[1])["counts"]["D"] == 2 - moved
    assert json.loads(xq(app, "spark", "restore", "app:Page", "done", "--json")[1]) == {"restored": moved}
    code, _, err = xq(app, "spark", "report", "report", "app:Page")
    assert code == 0, err
    assert (app / "report" / "index.html").exists()
    code, _, err = xq(app, "spark", "report", "report", "app:Page", "--last", "--since", "2026-01-01")
    assert (code, "say one of --since and --last" in err) == (2, True)
    xq(app, "put", "app:Page", '{"url": "c"}')  # the archive has the history of the others
    code, _, err = xq(app, "spark", "stream", "counted", "checkpoint", "app:Page", "--once")
    assert code == 0, err
    with closing(sqlite3.connect(app / "app.db")) as database:
        assert database.execute("SELECT SUM(n) FROM counted WHERE event = 'put'").fetchone() == (1,)
