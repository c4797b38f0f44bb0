"""The program `xq`: as a shell starts it, on a terminal, with a table that no program has a model for."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.conftest import SERVERS, database_on
from tests.steps import STUCK, eventually

ROOT = Path(__file__).resolve().parents[2]

APP = """
import peewee as pw
import xq

db = pw.SqliteDatabase("app.db")

class Page(pw.Model):
    url = pw.TextField(default="")
    one, two, three, four = (pw.TextField(default="text " * 50) for _ in range(4))
    status = pw.CharField(max_length=1, default="R")
    tube = pw.TextField(null=True)
    error = pw.TextField(null=True)

    class Meta:
        database = db

features = {"keep": True, "buried": True, "history": True}
xq.upgrade(Page, {"status": "status", "tube": "tube", "error": "error"}, features, tube_stats=["news"])

@Page.xq.worker
def work(page):
    print("done", page.id, flush=True)

def plain(page):
    print("plain", page.id, flush=True)
"""

MAPPED = """
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from xq.adapters.sqlalchemy import upgrade

class Base(DeclarativeBase):
    pass

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)

engine = sa.create_engine("sqlite:///shop.db")
orders = upgrade(Order, None, {"keep": True}, engine=engine)

@orders.worker(session=sessionmaker(engine))
def ship(order, session):
    print("shipped", order.id, order in session, flush=True)

Base.metadata.create_all(engine)
orders.install()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with an application of one module."""
    (tmp_path / "app.py").write_text(APP)
    python(tmp_path, "import app; app.db.create_tables([app.Page]); app.Page.xq.install()")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "xterm"} | more


def piped(folder: Path) -> dict[str, Any]:
    return {"cwd": folder, "env": environment(), "capture_output": True, "text": True, "timeout": STUCK}


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], **piped(folder))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "xq", *arguments]


def xq(folder: Path, *arguments: str, **more: str) -> tuple[int, str, str]:
    """Run a command. Return its exit code, and what it printed as output and as errors."""
    with started(folder, *arguments, stderr=subprocess.PIPE, env=environment(**more)) as process:
        out, err = process.communicate(timeout=5 * STUCK)  # Spark starts a Java
    return process.returncode, out, err


def told(folder: Path, *arguments: str) -> Any:
    """What a command prints as JSON."""
    return json.loads(xq(folder, *arguments, "--json")[1])


@contextmanager
def started(folder: Path, *arguments: str, **more: Any) -> Iterator[Any]:
    """A command that runs: its output is piped, and it has no terminal."""
    options = {"env": environment(), "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True, **more}
    process = subprocess.Popen(command(*arguments), cwd=folder, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=STUCK)


def test_the_command_line_imports_no_database_and_says_what_it_needs(tmp_path):
    slow = {"peewee", "django", "pydantic_core", "apscheduler", "xq.core.machine", "xq.core.values"}
    code = f"import sys, xq.cli.app; print({slow} & set(sys.modules))"
    assert python(tmp_path, code).stdout == "set()\n"
    ran = python(tmp_path, "import sys; sys.modules['typer'] = None; import xq.cli; xq.cli.main()")
    needs = "xq: typer is not installed: pip install '.[cli]' in the checkout of xq\n"
    assert (ran.returncode, ran.stderr) == (1, needs)


def test_a_worker_runs_until_a_signal_comes(app):
    assert xq(app, "put", "app:Page", '{"url": "a"}')[1] == "1\n"
    with started(app, "worker", "app:work") as worker:
        assert worker.stdout.readline() == "done 1\n"
        xq(app, "put", "app:Page", '{"url": "b"}')
        assert worker.stdout.readline() == "done 2\n"
        eventually(lambda: told(app, "stats", "app:Page")["counts"]["D"] == 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(STUCK) == 0


def test_a_second_signal_while_a_program_whose_workers_have_ended_ends_changes_nothing(app):
    at_the_end = "atexit.register(lambda: (print('ending', flush=True), input()))"
    (app / "slow.py").write_text(f"import atexit\nfrom app import work\n{at_the_end}\n")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(app, "worker", "slow:work", **pipes) as worker:
        xq(app, "put", "app:Page", "{}")
        assert worker.stdout.readline() == "done 1\n"
        worker.send_signal(signal.SIGINT)
        assert worker.stdout.readline() == "ending\n"
        for second in (signal.SIGINT, signal.SIGTERM):
            worker.send_signal(second)
        _, errors = worker.communicate("\n", timeout=STUCK)
    assert (worker.returncode, "Traceback" in errors) == (0, False)


def test_a_worker_is_a_handler_a_queue_or_a_plain_function(app):
    for n, arguments in enumerate([("app:work",), ("app:Page",), ("app:plain", "--queue", "app:Page")], 1):
        xq(app, "put", "app:Page", "{}")
        code, out, _ = xq(app, "worker", *arguments, "--until-empty", "--workers", "2")
        assert (code, out) == (0, f"{'plain' if 'app:plain' in arguments else 'done'} {n}\n")
    xq(app, "put", "app:Page", "{}")
    code, out, err = xq(app, "worker", "app:work", "--until-empty", "--kind", "process")
    assert (code, out, "forked" in err) == (0, "done 4\n", False)
    assert re.search(r"\d INFO xq.Page: task 4 is done", err), (
        "the log is the same in a process that imports the module"
    )
    assert xq(app, "worker", "app:plain")[0] == 1
    assert xq(app, "worker", "app:work", "--kind", "fibre")[0] == 1


def test_a_worker_s_class_may_be_one_of_sqlalchemy(tmp_path):
    (tmp_path / "shop.py").write_text(MAPPED)
    for n, target in enumerate(["shop:Order", "shop:orders", "shop:ship"], 1):
        assert xq(tmp_path, "put", "shop:Order", "{}")[1] == f"{n}\n"
        code, out, err = xq(tmp_path, "worker", target, "--until-empty")
        assert (code, out) == (0, f"shipped {n} True\n"), err


def test_tail_follows_the_transitions_and_its_reader_may_end_early(app):
    with started(app, "tail", "app:Page") as tail:
        xq(app, "put", "app:Page", "{}")
        assert "X-R put" in tail.stdout.readline()
        xq(app, "kill", "app:Page", "1", "--yes")
        assert "R-X kill" in tail.stdout.readline()
    for line in ("tail app:Page --once", "--help", "stats app:Page", "stats app:Page --json", "ddl app:Page"):
        shell = ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m xq {line} | true"]
        ran = subprocess.run(shell, **piped(app))
        assert (ran.returncode, ran.stderr) == (0, "")


def test_an_output_whose_encoding_lacks_a_character_has_its_number(app):
    xq(app, "put", "app:Page", '{"url": "\u00e4 \u6771\u4eac"}')
    code, listed, _ = xq(app, "list", "app:Page", PYTHONIOENCODING="ascii")
    assert (code, r"\xe4 \u6771\u4eac" in listed) == (0, True)
    peeked = xq(app, "peek", "app:Page", "1", "--json", PYTHONIOENCODING="ascii")[1]
    assert json.loads(peeked)["fields"]["url"] == "\u00e4 \u6771\u4eac"


# on a terminal


@contextmanager
def on_a_terminal(folder: Path, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    environ = environment(LINES="40", COLUMNS="80")
    process = subprocess.Popen(command(*arguments), cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
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


def reply(terminal: int, asked: str, keys: bytes) -> None:
    read_until(terminal, asked)
    os.write(terminal, keys)


def test_top_is_refreshed_until_it_is_interrupted(app):
    with on_a_terminal(app, "top", "app:Page", "--every", "0.1") as (terminal, process):
        for url in ("first", "second"):
            xq(app, "put", "app:Page", json.dumps({"url": url}))
            read_until(terminal, url)
        process.send_signal(signal.SIGINT)
        read_until(terminal, "\x1b[?1049l")  # it leaves the screen, and would wait for a reader to take that
        assert process.wait(STUCK) == 0


def test_what_destroys_asks_on_a_terminal(app):
    xq(app, "put", "app:Page", "{}")
    for answer, left in ((b"n\n", 1), (b"y\n", 0)):
        with on_a_terminal(app, "truncate", "app:Page") as (terminal, process):
            reply(terminal, "Delete all 1 tasks of Page, and their rows of the table page? [y/N]", answer)
            assert process.wait(STUCK) == (1 if left else 0)
        assert told(app, "stats", "app:Page")["counts"]["R"] == left


def test_a_narrow_terminal_shows_key_state_and_error_of_wide_tasks(app):
    xq(app, "put", "app:Page", '{"id": 1234567, "error": "ValueError: no such page"}')
    with on_a_terminal(app, "list", "app:Page") as (terminal, process):
        assert re.search(r"1234567 +R .* ValueError: no such page", read_until(terminal, "no such page"))
        assert process.wait(STUCK) == 0


def test_a_full_disk_is_one_line(app):
    for line in ("--version", "stats app:Page", "stats app:Page --json"):
        ran = subprocess.run(["bash", "-c", f"{sys.executable} -m xq {line} > /dev/full"], **piped(app))
        assert (ran.returncode, ran.stderr) == (1, "xq: [Errno 28] No space left on device\n")


# a plain table


TABLE = "CREATE TABLE orders (id {serial}, what VARCHAR(50) NOT NULL, state VARCHAR(10) NOT NULL, due {real})"
UPGRADE = ("--status", "state", "--field", "runat=due", "--features", "keep,ttr=60,buried,delayed,rate=90/m")
SQLITE = "sqlite:///app.db"


def with_tables(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "app.db")) as db:
        db.executescript(";".join(statements))


KINDS = {
    "sqlite": ("", "INTEGER PRIMARY KEY", "REAL"),
    "postgres": ("postgresql", "SERIAL PRIMARY KEY", "DOUBLE PRECISION"),
    "mariadb": ("mariadb", "INTEGER AUTO_INCREMENT PRIMARY KEY", "DOUBLE PRECISION"),
    "mysql": ("mysql", "INTEGER AUTO_INCREMENT PRIMARY KEY", "DOUBLE PRECISION"),
}


@contextmanager
def database_with(kind: str, folder: Path, *statements: str) -> Iterator[str]:
    """The URL of a fresh database with tables."""
    scheme, serial, real = KINDS[kind]
    statements = tuple(statement.format(serial=serial, real=real) for statement in statements)
    if not scheme:
        with_tables(folder, *statements)
        yield SQLITE
        return
    with database_on(SERVERS[kind]) as (server, name), closing(server.peewee(name)) as db:
        for statement in statements:
            db.execute_sql(statement)
        yield scheme + server.url(name)[server.url(name).index("://") :]


def write_model(folder: Path, pwiz: str, call: str) -> None:
    """Write a module of the model that Peewee prints, and of the call."""
    options: dict[str, Any] = piped(folder) | {"input": "SECRET\n", "start_new_session": True}  # without a terminal
    printed = subprocess.run(pwiz.replace("python", sys.executable, 1), shell=True, check=True, **options).stdout
    (folder / "model.py").write_text(f"{printed}\nimport xq\n{call}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_table_becomes_a_queue_and_the_model_that_peewee_prints_is_the_same_queue(kind, tmp_path):
    with database_with(kind, tmp_path, TABLE) as url:
        if kind == "postgres":  # which asks for no password, and so takes any
            url = url.replace("@", ":SECRET@")
        target, hidden = f"{url}#orders", url.replace("SECRET", "...")
        code, out, err = xq(tmp_path, "upgrade", url, "orders", *UPGRADE)
        pwiz, call = out.splitlines()
        assert (code, "say --yes" in err) == (1, True)
        assert told(tmp_path, "upgrade", url, "orders", *UPGRADE) == {"pwiz": pwiz, "call": call, "words": {}}
        done = f"orders is a queue, with the new columns xq_owner: xq stats '{hidden}#orders'\n"
        assert xq(tmp_path, "upgrade", url, "orders", *UPGRADE, "--yes") == (0, out, done)
        assert "SECRET" not in out
        assert xq(tmp_path, "put", target, '{"what": "a"}')[1] == "1\n"
        assert xq(tmp_path, "put", target, '{"what": "b"}', "--delay", "3600")[1] == "2\n"
        (waiting,) = told(tmp_path, "list", url, "state:W")["tasks"]
        assert waiting["fields"]["what"] == "b"
        assert xq(tmp_path, "peek", f"{url}#nothing", "1")[0] == 1
        assert xq(tmp_path, "upgrade", url, "nothing")[2].startswith("xq: there is no table 'nothing': there are ")
        write_model(tmp_path, pwiz, call)
        assert told(tmp_path, "stats", "model:Orders")["counts"] == {"R": 1, "T": 0, "W": 1, "B": 0, "D": 0}
        (tmp_path / "jobs.py").write_text("def ship(order):\n    print('shipped', order.what)\n")
        code, out, _ = xq(tmp_path, "worker", "jobs:ship", "--queue", target, "--until-empty")
        assert (code, out) == (0, "shipped a\n")
        assert xq(tmp_path, "worker", target)[0] == 2


LIVE = (
    "CREATE TABLE people (id {serial})",
    "CREATE TABLE orders (id {serial}, who INTEGER NOT NULL REFERENCES people (id), status VARCHAR(10) NOT NULL, "
    "made TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    "INSERT INTO people (id) VALUES (7)",
    "INSERT INTO orders (who, status) VALUES (7, 'paid'), (7, 'sent'), (7, 'paid')",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_with_rows_becomes_a_queue_with_its_own_words_if_it_is_said_what_an_ack_does(kind, tmp_path):
    with database_with(kind, tmp_path, *LIVE) as url:
        code, _, err = xq(tmp_path, "upgrade", url, "orders", "--yes")
        assert (code, "the column status has 'paid' 2, 'sent' 1\n" in err, "--delete-done" in err) == (2, True, True)
        err = xq(tmp_path, "upgrade", url, "orders", "--features", "keep")[2]
        assert "--statuses 'R=..., T=..., D=...' (statuses={'R': ..., 'T': ..., 'D': ...} in Python)\n" in err
        assert "xq: An ack keeps the row. Install the queue orders, and add xq_owner? There is no terminal" in err
        assert "An ack deletes the row." in xq(tmp_path, "upgrade", url, "orders", "--delete-done")[2]
        words = ("--features", "keep", "--statuses", "R=paid,T=busy, D=sent")
        code, out, _ = xq(tmp_path, "upgrade", url, "orders", *words, "--yes")
        assert (code, told(tmp_path, "stats", url)["counts"]) == (0, {"R": 2, "T": 0, "D": 1})
        write_model(tmp_path, *out.splitlines())
        taken = python(tmp_path, "import model; print(model.Orders.take().who.id)")
        assert (taken.stdout, taken.stderr) == ("7\n", "")


def test_a_word_that_the_table_refuses_is_named_before_a_column_is_added(tmp_path):
    check = "CHECK (status IN ('new', 'busy', 'done'))"
    with_tables(tmp_path, f"CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT {check})")
    with_tables(tmp_path, "INSERT INTO orders (status) VALUES ('new')")
    words = ("--features", "keep,delayed", "--statuses", "R=new,T=busy,D=done,W=later")
    code, _, err = xq(tmp_path, "upgrade", SQLITE, "orders", *words, "--yes")
    assert (code, "orders.status refuses 'later', the status of the state W" in err) == (1, True)
    with_tables(tmp_path, "ALTER TABLE orders ADD COLUMN runat REAL")  # which is not there yet


def test_a_status_that_is_an_enum_of_postgresql_is_refused_with_the_remedy_of_install(tmp_path):
    enum = "CREATE TYPE states AS ENUM ('R', 'T')", "CREATE TABLE orders (id {serial}, status states)"
    with database_with("postgres", tmp_path, *enum) as url:
        code, _, err = xq(tmp_path, "upgrade", url, "orders", "--yes")
        assert (code, "its status is of the type states, an enum" in err, "TYPE text" in err) == (1, True, True)


# a database


def test_the_numbers_of_all_queues_of_a_database(tmp_path):
    for name in ("mails", "orders"):
        with_tables(tmp_path, f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, status TEXT NOT NULL)")
        assert xq(tmp_path, "upgrade", SQLITE, name, "--features", "keep", "--yes")[0] == 0
    assert xq(tmp_path, "put", f"{SQLITE}#orders", "{}")[0] == 0
    assert xq(tmp_path, "pause", f"{SQLITE}#mails")[0] == 0
    heads, _, *lines = xq(tmp_path, "stats", SQLITE)[1].splitlines()
    assert heads.split() == ["queue", "Ready", "Taken", "Done", "note"]
    assert [line.split(maxsplit=4) for line in lines] == [["mails", *"000", "paused: the queue"], ["orders", *"100"]]
    assert told(tmp_path, "stats", SQLITE)[1]["counts"] == {"R": 1, "T": 0, "D": 0}
    assert re.findall(r'^xq_up{queue="(.*)"} 1', xq(tmp_path, "metrics", SQLITE)[1], re.M) == ["mails", "orders"]


def test_a_priority_may_be_left_out_where_the_table_requires_one(tmp_path):
    with_tables(tmp_path, "CREATE TABLE mails (id INTEGER PRIMARY KEY, status TEXT NOT NULL, rank INTEGER NOT NULL)")
    assert xq(tmp_path, "upgrade", SQLITE, "mails", "--field", "priority=rank", "--yes")[0] == 0
    assert xq(tmp_path, "put", f"{SQLITE}#mails", "{}") == (0, "1\n", "")


def test_a_file_that_is_not_there_is_not_made_and_one_that_is_no_database_is_an_error_in_one_line(tmp_path):
    assert xq(tmp_path, "stats", "sqlite:///typo.db") == (1, "", "xq: there is no file 'typo.db'\n")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("no database " * 100)
    failed = xq(tmp_path, "tubes", "sqlite:///text.db")
    assert failed == (1, "", "xq: the database fails: file is not a database\n")


def test_the_exit_codes_are_those_of_the_document(app):
    late, nobody = ("health", "app:Page", "--max-age", "0"), "postgresql://ann:SECRET@127.0.0.1:1/app#orders"
    calls = [("health", "app:Page"), ("peek", "app:Page", "7"), ("peek", "app:Page", "seven")]
    ran = [xq(app, *call) for call in calls]
    xq(app, "put", "app:Page", "{}")
    ran.append(xq(app, *late))
    python(app, "import app; app.Page.xq.bury(app.Page.take())")
    ran += [xq(app, *late), xq(app, "health", "app:Page", nobody)]
    assert [code for code, *_ in ran] == [0, 1, 2, 3, 4, 5]
    assert re.findall(r"^\| (\d) \| ", (ROOT / "docs/cli.md").read_text(), re.M) == [*"012345"]
    first, second = ran[5][1].splitlines()
    assert first == "failing app:Page ready tasks: 0; buried tasks: 1"
    assert second.startswith("unreachable postgresql://ann:...@127.0.0.1:1/app#orders the database fails: ")


def test_the_tubes_of_a_database_are_made_and_used(tmp_path):
    def tubes(*arguments: str) -> tuple[int, str, str]:
        return xq(tmp_path, "tubes", "sqlite:///tubes.db", *arguments)

    created = {"created": "mail", "type": "limfifottl"}
    assert json.loads(tubes("create", "mail", "limfifottl", "capacity=2", "--json")[1]) == created
    assert tubes("put", "mail", '{"to": "a"}')[1] == "id     1\nstate  r\ndata   {'to': 'a'}\n"
    assert json.loads(tubes("--json")[1])["mail"]["ready"] == 1
    assert (tubes("delete", "mail", "1")[0], tubes("delete", "mail", "1", "--yes")[0]) == (1, 0)
    assert tubes("put", "nothing", "1")[2] == "xq: there is no tube 'nothing': there are 'mail'\n"
    assert tubes("drink", "mail")[0] == 2
    assert tubes("kick", "mail", "many")[2].startswith("xq: ")
    assert tubes("drop", "mail", "--yes")[0] == 0
    assert json.loads(tubes("--json")[1]) == {}


def test_tubes_of_a_type_that_only_its_program_has_are_listed(tmp_path):
    register = 'import xq\nqueue = xq.Tubes("sqlite:///tubes.db")\nqueue.register_driver("mine", {"history": True})\n'
    (tmp_path / "mine.py").write_text(register)
    python(tmp_path, "import mine; mine.queue.create_tube('mails', 'mine')")
    code, out, _ = xq(tmp_path, "tubes", "sqlite:///tubes.db")
    assert (code, out.split()[-2:]) == (0, ["mails", "mine"])
    put = ("tubes", "sqlite:///tubes.db", "put", "mails", "1800000000")
    assert "of the type 'mine', which register_driver has not registered" in xq(tmp_path, *put)[2]


def test_the_console_of_a_database_shows_all_its_queues_and_tubes(app):
    xq(app, "put", "app:Page", "{}")
    xq(app, "tubes", SQLITE, "create", "mails", "fifo")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]

    def page() -> str:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/", timeout=STUCK) as answer:
            return str(answer.read().decode())
        return ""

    with started(app, "serve", SQLITE, "--port", str(port), stderr=subprocess.PIPE) as process:
        shown = eventually(page)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=STUCK)[1].endswith("(Ctrl-C ends it)\n")
    assert (">page<" in shown, ">mails<" in shown, "sqlite_sequence" in shown) == (True, True, False)
    with closing(socket.create_server(("127.0.0.1", port))):
        code, out, err = xq(app, "serve", "app:Page", "--port", str(port))
        told = f"xq: 127.0.0.1:{port} cannot be listened on: Address already in use"
        assert (code, out, err.startswith(told), err.count("\n")) == (1, "", True, 1)
    code, _, err = xq(app, "serve", "app:Page", "--host", "0.0.0.0", XQ_TOKEN="")  # for other machines
    assert (code, "the console needs a token: set XQ_TOKEN" in err) == (1, True)


@contextmanager
def nginx(folder: Path, server: str) -> Iterator[None]:
    """An nginx with one server, with a certificate of its own."""
    if not (program := shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")):
        pytest.skip("there is no nginx here: Debian: apt install nginx")
    key, certificate = folder / "queues.key", folder / "queues.pem"
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=queues.example.org"]
    subprocess.run([*making, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "conf").write_text(f"events {{}}\nhttp {{\naccess_log off;\n{places}{server}}}\n")
    once = f"daemon off; master_process off; pid {folder}/pid; error_log stderr;"
    process = subprocess.Popen([program, "-p", folder, "-c", folder / "conf", "-g", once])
    try:
        yield
    finally:
        process.kill()
        process.wait(STUCK)


@pytest.mark.parametrize("passes", ["http://127.0.0.1:8320;", "http://127.0.0.1:8320/;"], ids=["whole", "below"])
def test_the_console_is_behind_tls_below_a_path_of_the_documented_nginx(app, passes):
    (server,) = re.findall("```\n(server {.*?)```", (ROOT / "docs/console.md").read_text(), re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, inside = one.getsockname()[1], other.getsockname()[1]
    server = server.replace("http://127.0.0.1:8320;", passes).replace("8320", f"{inside}")
    server = server.replace("443", f"127.0.0.1:{port}").replace("/etc/ssl", f"{app}")
    host, token = f"queues.example.org:{port}", "a-token-of-the-tests-0123456789"

    def ask(method: str, path: str, body: str | None = None, **headers: str) -> tuple[HTTPResponse, str]:
        connection = HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context())
        with closing(connection):
            connection.request(method, path, body, {"Host": host, "Accept": "text/html", **headers})
            return (answer := connection.getresponse()), answer.read().decode()

    def is_up() -> bool:
        with suppress(OSError, HTTPException):
            return ask("GET", "/ops/")[0].status == 401
        return False

    def log_in(token: str) -> HTTPResponse:
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://{host}"}
        sent = urlencode({"token": token, "next": "/q/Page"})
        return ask("POST", "/ops/login", sent, **form, **{"X-Forwarded-For": "203.0.113.9"})[0]

    options = ("--port", str(inside), "--root-path", "/ops", "--allow-host", "queues.example.org")
    environ = environment(XQ_TOKEN=token)
    with (
        nginx(app, server),
        started(app, "serve", "app:Page", *options, env=environ, stderr=subprocess.PIPE) as console,
    ):
        eventually(is_up)
        assert ask("GET", "/ops")[0].headers["location"] == f"https://{host}/ops/"
        assert log_in("wrong").status == 401
        answer = log_in(token)
        assert (answer.status, answer.headers["location"]) == (303, "/ops/q/Page")
        cookie = answer.headers["set-cookie"]
        assert ("; Secure" in cookie, "; Path=/ops/;" in cookie) == (True, True)
        answer, page = ask("GET", "/ops/q/Page", Cookie=cookie.partition(";")[0])
        links = re.findall(r'(?:href|src|action|data-from)="([^"]*)"', page)
        assert (answer.status, [link for link in links if not link.startswith(("/ops/", "#"))]) == (200, [])
        console.send_signal(signal.SIGINT)
        told = console.communicate(timeout=STUCK)[1]
    assert f"the console: http://127.0.0.1:{inside}/ops/  (Ctrl-C ends it)" in told
    refused, accepted = "WARNING xq.serve: a token from 203.0.113.9 was refused", "logged in from 203.0.113.9"
    assert (refused in told, f"INFO xq.serve: console {accepted}" in told, token in told) == (True, True, False)


def test_spark_archives_and_restores_from_the_command_line(app):
    for _ in range(2):
        xq(app, "put", "app:Page", "{}")
    xq(app, "worker", "app:work", "--until-empty")
    assert xq(app, "spark", "archive", "app:Page", "done")[0] == 1  # it asks first
    code, out, err = xq(app, "spark", "archive", "app:Page", "done", "--yes", "--json")
    if re.search("xq.spark needs|Spark needs Java", err):
        pytest.skip(err.splitlines()[-1])
    assert code == 0, err
    moved = json.loads(out)["tasks"]
    assert moved >= 1  # SQLite keeps the one with the highest number
    assert told(app, "stats", "app:Page")["counts"]["D"] == 2 - moved
    assert told(app, "spark", "restore", "app:Page", "done") == {"restored": moved}
    xq(app, "put", "app:Page", "{}")  # the archive has the history of the others
    judged = ("--archive", "Page=done", "--thresholds", "ready_growth=0", "--fail-if-red", "--json")
    code, out, _ = xq(app, "spark", "report", "report", "app:Page", *judged)
    (queue,) = json.loads(out)["queues"].values()
    assert (code, queue["verdicts"]["backlog"], queue["lacking"]) == (3, True, False)
    assert (app / "report" / "index.html").exists()
    assert xq(app, "spark", "report", "report", "app:Page", "--thresholds", "ready_growth=much")[0] == 2
    assert xq(app, "spark", "stream", "counted", "checkpoint", "app:Page", "--once")[0] == 0
    with closing(sqlite3.connect(app / "app.db")) as database:
        assert database.execute("SELECT SUM(n) FROM counted WHERE event = 'put'").fetchone() == (1,)
