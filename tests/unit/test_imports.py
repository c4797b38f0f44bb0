"""What is imported, what is public, where SQL stands, and what a type checker sees."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import xq
from tests.timing import in_sequence
from xq.adapters.databases import DIALECTS
from xq.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted({p.resolve() for folder in ("xq", "features", "adapters") for p in (ROOT / folder).rglob("*.py")})


@in_sequence
def python(folder: Path, code: str) -> str:
    """What a program prints that runs elsewhere, with nothing of the checkout in its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


# packaging


def test_importing_xq_leaves_no_name_but_its_own(tmp_path):
    code = "import sys, xq, xq.features.ttl; print([n for n in ('features', 'adapters', 'tests') if n in sys.modules])"
    assert python(tmp_path, code) == "[]"


@pytest.mark.parametrize("name", ["features", "adapters"])
def test_a_folder_of_xq_is_no_package_by_itself(tmp_path, name):
    code = (
        f"import importlib.util; print(importlib.util.find_spec({name!r}), importlib.util.find_spec('xq.{name}').name)"
    )
    assert python(tmp_path, code) == f"None xq.{name}"


def test_each_module_is_there_once(tmp_path):
    code = (
        "import xq, sys, collections; files = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'xq'];"
        "import os; print(len(files) - len(set(map(os.path.realpath, files))))"
    )
    assert python(tmp_path, code) == "0"


def test_importing_xq_opens_no_database_and_starts_no_thread(tmp_path):
    code = "import threading, os, xq; print(threading.active_count(), os.listdir('.'))"
    assert python(tmp_path, code) == "1 []"


def test_every_package_is_named_for_the_build():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in SOURCES}
    names = {".".join(folder.parts) for folder in folders}
    assert {name if name == "xq" or name.startswith("xq.") else f"xq.{name}" for name in names} == set(packages)


def test_every_feature_has_a_file_of_its_name():
    files = {path.stem for path in (ROOT / "features").glob("*.py")} - {"__init__"}
    assert set(FEATURES) == files
    for name, feature in FEATURES.items():
        assert feature.__module__ == f"xq.features.{name}"
        assert feature.__doc__
        assert feature().name == name


def test_a_process_without_peewee_writes_decimals_and_dates_to_sqlite(tmp_path):
    code = """
import datetime, decimal, sqlite3, sys
import xq.adapters.plain
values = [decimal.Decimal("1.50"), datetime.date(2024, 2, 29), datetime.time(1, 2)]
print(*sqlite3.connect(":memory:").execute("SELECT ?, ?, ?", values).fetchone(), "peewee" in sys.modules)
"""
    assert python(tmp_path, code) == "1.50 2024-02-29 01:02:00 False"


# public names


@pytest.mark.parametrize("name", xq.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name):
    found = getattr(xq, name)
    assert name == "__version__" or (inspect.getdoc(found) or "").strip().endswith((".", ")", ":", "`"))


def test_what_is_public_is_named_as_public():
    names = [n for n in dir(xq) if not n.startswith("_") and n != "spark"]  # a module, which needs PySpark
    public = {n for n in names if not inspect.ismodule(getattr(xq, n))}
    assert public == set(xq.__all__) - {"__version__"}
    errors = {n for n, value in vars(xq.core.errors).items() if isinstance(value, type) and issubclass(value, xq.Error)}
    assert errors <= set(xq.__all__)


def test_every_error_is_one_of_xq():
    for name in vars(xq.core.errors):
        error = getattr(xq.core.errors, name)
        if isinstance(error, type) and error.__module__ == "xq.core.errors":
            assert issubclass(error, xq.Error)
    assert issubclass(xq.BadValue, ValueError)
    assert issubclass(xq.BadType, TypeError)
    assert issubclass(xq.Conflict, xq.ConfigurationError)


METHODS = {
    name: value.fget if isinstance(value, property) else value
    for name, value in inspect.getmembers(xq.Queue)
    if not name.startswith("_")
}
TASKS = ("T", "list[T]", "T | None")
SAYS = re.compile(r"\b[Rr]eturns?\b|Raises|the list of|^(The|Who|What|How many|Another|Counts)\b|^dig,")


def test_the_queue_says_what_its_methods_return_and_raise():
    told = inspect.getdoc(xq.Queue) or ""
    assert "returns the task as it is after the call" in " ".join(told.split())
    raised = ("FeatureOff", "BadValue", "BadType", "NotFound", "WrongState", "NotOwner", "NotInstalled")
    assert [error for error in raised if error not in told] == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_does_and_what_it_returns_or_raises_beyond_that(name):
    method: Any = METHODS[name]
    told = inspect.getdoc(method) or ""
    assert told.strip()
    assert told.split("\n\n")[0].rstrip().endswith((".", ":", "}")), "a sentence first"
    returned = inspect.signature(method).return_annotation
    if returned not in (*TASKS, "None"):
        assert SAYS.search(told), f"{name} returns {returned}, and does not say what that is"
    if returned == "T | None":
        assert "None when" in told


@pytest.mark.parametrize("name", METHODS)
def test_a_method_tells_a_type_checker_what_it_takes_and_returns(name):
    method: Any = METHODS[name]
    signature = inspect.signature(method)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    assert signature.return_annotation is not inspect.Signature.empty
    assert [p.name for p in parameters if p.annotation is inspect.Parameter.empty] == []


# where SQL stands

SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE|FROM|RETURNING|PRAGMA|ORDER BY|GROUP BY|VALUES|LIMIT|COALESCE|ON CONFLICT)\b"
    r"|\b(CREATE|DROP|ALTER) +(TABLE|INDEX|UNIQUE|TRIGGER|VIEW)\b"
    r"|(?i:\bselect\b.+\bfrom\b|\binsert +into\b|\bdelete +from\b|\bupdate\b.+\bset +\w+ *=|\bpragma +\w+ *=)"
)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a file, but for its docstrings."""
    tree = ast.parse(path.read_text())
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def sql_in(path: Path) -> list[str]:
    spark = "spark" in path.parts  # its windows are text, too, which no database executes
    found = [f"{path.name}:{line}: {text}" for line, text in texts(path) if SQL.search(text)]
    return [each for each in found if not (spark and "PARTITION BY" in each)]


def test_all_sql_stands_in_adapters_databases():
    databases = ROOT / "adapters" / "databases"
    elsewhere = [path for path in SOURCES if databases not in path.parents]
    assert len(elsewhere) > 20
    assert [found for path in elsewhere for found in sql_in(path)] == []
    assert all(sql_in(databases / name) for name in ("dialect.py", "sqlite/dialect.py"))


def test_sql_is_found_where_it_stands(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Runs SELECT."""\n'
        "a = 'SELECT 1'\n"
        "b = f'DELETE FROM {a} WHERE 1'\n"
        "c = 'update page set status = 1'\n"
        "d = 'update sets the fields: update= is a mapping'\n"
        "e = 'drop table page'.upper()\n"
    )
    assert sorted(found.split(":")[1] for found in sql_in(path)) == ["2", "3", "3", "4"]


def test_the_mechanism_names_no_feature_and_no_database():
    # Roles and options have names that features have too: ttl, ttr, unique.
    names = ({*FEATURES} - {"ttl", "ttr", "unique"}) | {*DIALECTS, "postgres", "mysql", "peewee"}
    for module in ("core/machine", "core/compile", "handle"):
        mine = {text for _, text in texts(ROOT / "xq" / f"{module}.py")}
        assert mine & names == set(), module


# types

TYPED = """\
import peewee as pw
import xq


class Page(pw.Model):
    url = pw.TextField()
    status = pw.TextField()


pages = xq.upgrade(Page, fields={"status": "status"}, features={"keep": True, "ttr": 60})
reveal_type(pages)  # xq.handle.Queue[Page]
reveal_type(pages.put({"url": "a"}))  # Page
reveal_type(pages.put_many([{"url": "a"}]))  # list[Page]
reveal_type(pages.take())  # Page | None
reveal_type(pages.take_many(3))  # list[Page]
reveal_type(pages.ack(7, update={"url": "b"}))  # Page
reveal_type(pages.peek(7))  # Page
reveal_type(pages.by_state("R"))  # list[Page]
reveal_type(pages.stats().counts)  # dict[str, int]
reveal_type(pages.count("R"))  # int


@xq.queue(fields={"status": "status"})
class Job(pw.Model):
    status = pw.TextField()


reveal_type(Job())  # Job


class Mail(xq.Task):
    to = pw.TextField()


mails = xq.upgrade(Mail, features={"keep": True})
reveal_type(mails)  # xq.handle.Queue[Mail]
reveal_type(mails.put({"to": "a"}).to)  # str
reveal_type(Mail().priority)  # int
reveal_type(Mail().error)  # str | None
reveal_type(Mail().runat)  # float | None
reveal_type(Mail.xq.count("R"))  # int
reveal_type(Mail.take(timeout=5))  # Any
Mail().priority = "first"  # error: assignment


@xq.queue()
class Sms(xq.Task):
    to = pw.TextField()


reveal_type(Sms().to)  # str

pages.take().url  # error: union-attr
pages.take(tube=5)  # error: arg-type
pages.take_many("3")  # error: arg-type
pages.ack()  # error: call-arg
pages.touch(7, "5")  # error: arg-type
pages.fetch()  # error: attr-defined
number: int = pages.put({})  # error: assignment
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
