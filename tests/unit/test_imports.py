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
    assert own == {"time.py", "testing.py", "mariadb.py", "report.py", "archive.py"}, "the others do not wait"


# where SQL stands

SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE|FROM|RETURNING|PRAGMA|ORDER BY|VALUES|LIMIT|COALESCE|ON CONFLICT)\b"
    r"|\b(CREATE|DROP|ALTER) +(TABLE|INDEX|UNIQUE|TRIGGER|VIEW)\b"
)


def sql_in(path: Path) -> list[str]:
    """The SQL among the texts of a file, but for its docstrings and the windows of Spark."""
    tree = ast.parse(path.read_text())
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    found = [node for node in texts if isinstance(node.value, str) and SQL.search(node.value)]
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

# The roles, the tables of all queues and the columns that indexes bring have names.
LISTS = {"core/schema.py", "operators/terms.py", "sql/shared.py", "sql/mariadb/mariadb_objects.py"}
# Of these the slice has what triggers write alone: the rest of xq asks for their settings, roles and side tables.
EFFECTS_ALONE = {"guard", "history"}
MEANS_MORE = {"after"}  # a word that the rest of xq has for moments and ids, too


def test_no_other_file_of_a_queue_names_a_feature_that_has_a_slice():
    of_a_queue = [f"xq/{folder}" for folder in ("core", "database", "engine", "operators", "runtime", "sql", "workers")]
    found, with_slices = [], {path.parent.name for path in (ROOT / "xq" / "features").glob("*/slice.py")}
    for name in with_slices - EFFECTS_ALONE - MEANS_MORE:
        named = {name, f"xq_{name}"}
        for path in SOURCES:
            place = path.relative_to(ROOT).as_posix()
            if place.startswith((*of_a_queue,)) and place.removeprefix("xq/") not in LISTS:
                texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
                found += [f"{place}: {text}" for text in texts if text in named]
    assert found == []


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
