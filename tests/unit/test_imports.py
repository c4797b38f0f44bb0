"""What is imported, what is public, where SQL stands, and what a type checker sees."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import xq
from tests.timing import in_sequence
from xq.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "xq").rglob("*.py"))


@in_sequence
def python(folder: Path, code: str) -> str:
    """What a program prints that runs elsewhere, with nothing of the checkout in its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_importing_xq_leaves_no_name_but_its_own_opens_no_database_and_starts_no_thread(tmp_path):
    code = """
import os, sys, threading, xq, xq.features.ttl
print([name for name in ("features", "adapters", "tests") if name in sys.modules])
print(threading.active_count(), os.listdir("."))
files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "xq"]
print(len(files) - len(set(map(os.path.realpath, files))))
"""
    assert python(tmp_path, code).splitlines() == ["[]", "1 []", "0"]


def test_a_program_that_puts_and_takes_imports_nothing_for_operators_pipelines_workers_and_coroutines(tmp_path):
    code = """
import sys, peewee, xq
class Page(peewee.Model):
    class Meta: database = peewee.SqliteDatabase("pages.db")
xq.upgrade(Page)
Page.create_table()
Page.put()
Page.take().ack()
lazy = ("xq.aio", "xq.operators.search", "xq.operators.doctor", "xq.pipeline", "xq.workers")
print([name for name in sys.modules if name.startswith(lazy)])
"""
    assert python(tmp_path, code) == "[]"


# public names


def test_what_is_public_is_named_as_public():
    names = [n for n in dir(xq) if not n.startswith("_")]
    public = {n for n in names if not inspect.ismodule(getattr(xq, n))}
    assert public == set(xq.__all__) - {"__version__"}
    errors = {n for n, value in vars(xq.core.errors).items() if isinstance(value, type) and issubclass(value, xq.Error)}
    assert errors <= set(xq.__all__)
    stub = [node for node in ast.parse((ROOT / "xq" / "__init__.pyi").read_text()).body if type(node) is ast.ImportFrom]
    typed = {name.name: node.module for node in stub for name in node.names}
    assert typed == vars(xq)["_modules"] | {"spark": "xq"}, "type checkers know the same names"


def test_looking_at_each_name_of_xq_needs_no_extra_and_time_may_be_frozen_meanwhile(tmp_path):
    code = """
import inspect, sys, xq
from freezegun import freeze_time
sys.modules["pyarrow"] = None  # as if it were not installed
with freeze_time("2027-01-01"):
    from xq.core import time
    begun = time.monotonic()
    while time.monotonic() == begun: pass
print(len(inspect.getmembers(xq)) > 50, "xq.spark" in sys.modules, hasattr(xq, "spark"))
"""
    assert python(tmp_path, code) == "True False False"


def test_waits_go_by_a_clock_that_freezing_time_does_not_stop():
    own = {path.name for path in SOURCES if re.search(r"^(import time\b|from time import)", path.read_text(), re.M)}
    assert own == {"time.py", "testing.py", "pymysql.py", "report.py", "archive.py"}, "the others do not wait"


# where SQL stands

SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE|FROM|RETURNING|PRAGMA|ORDER BY|VALUES|LIMIT|COALESCE|ON CONFLICT)\b"
    r"|\b(CREATE|DROP|ALTER) +(TABLE|INDEX|UNIQUE|TRIGGER|VIEW)\b"
)


def texts_in(path: Path) -> list[ast.Constant]:
    """The texts of a file, but for its docstrings."""
    tree = ast.parse(path.read_text())
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return [node for node in texts if isinstance(node.value, str)]


def sql_in(path: Path) -> list[str]:
    """The SQL among the texts of a file, but for the windows of Spark."""
    found = [node for node in texts_in(path) if SQL.search(str(node.value))]
    of_spark = "spark" in path.parts
    return [f"{path.name}:{node.lineno}" for node in found if not (of_spark and "PARTITION BY" in str(node.value))]


def test_all_sql_stands_in_xq_sql_in_slices_and_in_the_sql_of_a_product():
    databases, pipeline = ROOT / "xq" / "sql", ROOT / "xq" / "pipeline" / "sql"
    own = {
        ROOT / "xq" / "operators" / "questions.py",
        *(path.parent for path in (ROOT / "xq" / "features").glob("*/slice.py")),
    }
    elsewhere = [path for path in SOURCES if not {databases, pipeline, *own} & {path, *path.parents}]
    assert len(elsewhere) > 20
    assert [found for path in elsewhere for found in sql_in(path)] == []
    assert all(sql_in(databases / name) for name in ("moves.py", "sqlite/sqlite_dialect.py"))


def test_every_package_is_in_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "xq").rglob("__init__.py")}
    assert {*listed} == there


# where a feature stands

QUEUE = ("core", "engine", "sql", "database", "runtime", "workers", "drivers", "upgrading")
# Of these names, which are words for other things as well, only texts that are no more than the name, conditions of SQL
# files, and attributes of a queue's settings and roles count.
PLAIN = {"after", "buried", "events", "groups", "guard", "history", "id", "keep", "limit", "rate", "steps", "unique"}
# Features; the files that know them, beside their own folder and the public face; and why they may.
KNOWN = (
    ("after priority ttl ttr unique utube zombie", "core/schema.py", "roles, and that done tasks stay"),
    ("after guard history lifetime retval ttl ttr unique", "core/machine.py", "roles, settings, expiries, claims"),
    ("ttl ttr", "core/options.py", "the types of options"),
    ("id", "core/compile.py core/values.py engine/insert.py upgrading/build.py upgrading/registry.py", "its setting"),
    ("id", "core/kinds.py sql/terms.py sql/installer/views.py sql/postgres/postgres_dialect.py", "a column's name"),
    ("priority", "core/kinds.py core/values.py upgrading/build.py", "the role that orders takes"),
    ("keep", "upgrading/build.py upgrading/registry.py", "its value is a timedelta"),
    ("retval", "core/values.py", "its setting: what methods return"),
    ("not_check_session ttr", "core/words.py", "remedies in messages"),
    ("ttr", "engine/named.py engine/timers.py sql/shared.sql sql/innodb/shared.sql", "a ttr that rests"),
    ("ttr", "runtime/lease.py workers/attempts.py workers/child.py workers/processes.py", "workers extend it"),
    ("history ttr", "sql/installer/findings.py", "what doctor says"),
    ("buried events history", "sql/installer/views.py", "names of views"),
    ("history", "engine/history.py sql/queries.py sql/terms.py sql/sqlite/sqlite_queries.py", "reads and prunes it"),
    ("history", "sql/sqlite/triggers.sql sql/postgres/triggers.sql sql/innodb/triggers.sql", "its event context"),
    ("history", "sql/sqlite/sqlite_installer.py sql/postgres/postgres_installer.py", "its table"),
    ("history limit", "sql/installer/objects.py", "suffixes of side tables"),
    (
        "after groups guard history steps utube zombie",
        "sql/installer/installation.py",
        "what a new definition means for old rows",
    ),
    ("guard", "runtime/queue_maintenance.py", "its setting: what is logged"),
    ("limit", "sql/limits.py sql/records.py", "the table of limits"),
    ("utube", "sql/innodb/innodb_objects.py", "columns that indexes bring"),
    ("steps", "core/machine.py core/schema.py", "roles: a column that xq writes"),
    ("steps", "workers/attempts.py", "a function goes on with what its task has at the take"),
    ("utube", "sql/innodb/innodb_installer.py", "a message: when writes wait"),
    ("rate", "sql/shared.py", "a table of all queues"),
    ("unique", "engine/insert.py", "puts with on_conflict"),
    ("groups", "engine/pauses.py", "its setting: groups may be paused"),
    ("unique", "sql/terms.py", "the suffix of its index"),
    (
        "after",
        "engine/history.py engine/settle.py sql/queries.py sql/innodb/innodb_language.py",
        "a word for other things",
    ),
)


def known_in(path: Path) -> set[str]:
    """The features that a file knows."""
    if path.suffix == ".sql":  # without its comments
        text = re.sub(r"^ *--(?!\?).*\n", "", path.read_text().partition("\n--: ")[2], flags=re.M)
        words = {*re.findall(r"\w+", text)}.difference(PLAIN).union(re.findall(r"^--\? (?:not )?(\w+)", text, re.M))
    else:
        texts = [str(node.value) for node in texts_in(path)]
        words = {word for text in texts for word in re.findall(r"\w+", text) if word not in PLAIN or text == word}
        for node in ast.walk(ast.parse(path.read_text())):
            is_data = isinstance(node, ast.Attribute) and last_word(node.value) in ("settings", "roles")
            words |= {last_word(node)} - (set() if is_data else PLAIN)
    return {name for name in FEATURES if {name, f"xq_{name}"} & words}


def last_word(node: ast.AST) -> str:
    """The last word of a name, or the name of an argument or a definition."""
    return next((word for word in (getattr(node, what, "") for what in ("attr", "id", "arg", "name")) if word), "")


def test_outside_of_its_folder_and_the_public_face_only_these_files_know_a_feature():
    files = [path for folder in QUEUE for path in (ROOT / "xq" / folder).rglob("*") if path.suffix in (".py", ".sql")]
    listed = [(name, file) for names, paths, _ in KNOWN for name in names.split() for file in paths.split()]
    assert {(name, path.relative_to(ROOT / "xq").as_posix()) for path in files for name in known_in(path)} == {*listed}
    assert len(listed) == len({*listed}), "a file stands twice with a feature"


def test_no_file_asks_a_machine_for_the_guard_of_a_feature_that_it_knows():
    elsewhere = [path for path in SOURCES if "features" not in path.relative_to(ROOT).parts]
    asks = re.compile(r"""\.guard\(["']""")  # what a guard `checks` says what it is for
    assert [path.name for path in elsewhere if asks.search(path.read_text())] == []


# types

TYPED = """\
import peewee as pw
import xq


class Page(pw.Model):
    url = pw.TextField()
    status = pw.TextField()


pages = xq.upgrade(Page, fields={"status": "status"}, features={"keep": True, "ttr": 60})
reveal_type(pages)  # xq.api.Queue[Page]
reveal_type(pages.put({"url": "a"}))  # Page
reveal_type(pages.put_many([{"url": "a"}]))  # list[Page]
reveal_type(pages.take())  # Page | None
reveal_type(pages.ack(7, update={"url": "b"}))  # Page
reveal_type(pages.stats().counts)  # dict[str, int]


@xq.queue(features={"keep": True})
class Mail(xq.Task):
    to = pw.TextField()


reveal_type(Mail().to)  # str
reveal_type(Mail().runat)  # float | None
reveal_type(Mail.take(timeout=5))  # Mail | None
reveal_type(Mail.put({"to": "a"}, delay=5).ack(update={"to": "b"}).id)  # Any
reveal_type(Mail.xq.dig(n=5))  # list[Mail]
Mail().priority = "first"  # error: assignment
pages.take().url  # error: union-attr
pages.take(tube=5)  # error: arg-type
pages.ack()  # error: call-arg
pages.fetch()  # error: attr-defined
pages.put({"url": "a"}, dealy=5)  # error: call-overload
Mail.put({"to": "a"}, dealy=5)  # error: call-overload
Mail.release(7, at=5)  # error: arg-type
xq.upgrade(Mail, features={"dealyed": True})  # error: dict-item
xq.upgrade(Mail, features={"retry": xq.Feature("retry")})
xq.upgrade(fields={"status": "status"})  # error: call-arg
xq.upgrade(Page, {"status": "status"}, clok=None)  # error: call-arg
"""


@in_sequence
def test_a_type_checker_knows_what_comes_out_of_a_queue(tmp_path):
    path = tmp_path / "typed.py"
    path.write_text(TYPED)
    # silent: the modules of xq are checked by make lint, which has all that they import.
    options = ["--config-file", "pyproject.toml", "--no-error-summary", "--follow-imports", "silent"]
    command = [sys.executable, "-m", "mypy", *options, str(path)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    told = {}
    for line in checked.stdout.splitlines():
        place, kind, text = line.split(": ", 2)
        if kind == "note" and "Revealed type" in text:
            told[int(place.rpartition(":")[2])] = text.split('"')[1].replace("typed.", "")
        elif kind == "error":
            told[int(place.rpartition(":")[2])] = "error: " + text.rpartition("[")[2].rstrip("]")
    wanted = {n: line.split("  # ")[1] for n, line in enumerate(TYPED.splitlines(), 1) if "  # " in line}
    assert told == wanted, checked.stdout + checked.stderr


# tests

CONTRACT = sorted((ROOT / "tests" / "contract").rglob("*.py"))
PUBLIC = {"xq.cli", "xq.metrics", "xq.otel", "xq.serve", "xq.spark", "xq.testing", "xq.tubes", "xq.adapters.django"}


def test_the_contract_is_tested_by_public_names():
    inside = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in CONTRACT
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported(node)
        if name.split(".")[0] == "xq"
        and name != "xq"
        and name not in PUBLIC
        and name.removeprefix("xq.") not in xq.__all__
    ]
    assert CONTRACT
    assert inside == []


def imported(node: ast.AST) -> list[str]:
    """Return what an import statement imports: modules, and names of the package itself."""
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom) and node.module == "xq":
        return [f"xq.{name.name}" for name in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
