"""The documents: links lead somewhere, and their programs run and print what they show.

The blocks of Python are one program; or, where a line such as "`app.py`:" stands before one, files, between which the
blocks of `sh` are run. What is printed is compared with the block `text` directly after, in which `...` stands for
anything. Blocks in comments are run too; those after `<!-- not run: REASON -->` are not. The pages in docs/start and
docs/howto also run on each server: its line in the tabs of docs/start/peewee.md replaces that of SQLite.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import SERVERS, database_on
from tests.servers import Server
from tests.timing import in_sequence

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
TABS = ROOT / "docs" / "start" / "peewee.md"
ON_SERVERS = ("docs/start/", "docs/howto/")
ON_SPARK = ("docs/spark.md", "docs/start/spark.md", "docs/howto/erase.md")  # a minute

SIGNATURES = "docs/reference.md"  # is generated, and has no programs

NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w-]*)")
# 100 orders of the page, by its worker in 8 threads, and 101 by its 20 coroutines
BOOKINGS = """
from app import Account, Base, book, engine, make_session, orders

Base.metadata.create_all(engine)
orders.install()
with make_session.begin() as session:
    session.add(Account(id=1))
many = [{"account_id": 1, "cents": 1} for _ in range(100)]
orders.put_many(many)
orders.handlers.clear()
orders.worker(session=make_session, workers=8)(book.function)
orders.run(until_empty=True)
orders.put_many(many)
import later

with make_session() as session:
    print("balance", session.get_one(Account, 1).balance)
"""
BLOCK = re.compile(r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence)$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(?P<path>[\w./-]+\.py)`:$", re.MULTILINE)
TAB = re.compile(r"^:::+\{tab-item\} *(?P<name>[\w, ]+)\n+```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"!?\[[^\]]*\]\(<?(?P<target>[^)>\s]+)>?[^)]*\)|^ *\[[^\]]+\]: *<?(?P<reference>[^>\s]+)", re.MULTILINE
)


# generated


@in_sequence
def run(*command: str | Path, cwd: Path = ROOT, err: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-u", *command)
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=err, text=True, timeout=600)


def test_the_queue_of_the_first_steps_is_the_one_in_docs_start():
    (features,) = re.findall(
        r"^`(features=.*)`\n", (ROOT / "docs" / "machine.md").read_text().split("## The queue of")[1], re.M
    )
    assert f"{features})" in TABS.read_text()


# blocks and links


class Block(NamedTuple):
    """A block of a document: the number of its first line, what stands in the line before it, and its text."""

    line: int
    before: str
    language: str
    text: str
    follows: bool  # directly after the block before it

    @property
    def path(self) -> str | None:
        found = FILE.search(self.before)
        return found["path"] if found else None


def blocks(text: str) -> list[Block]:
    """The blocks of a document, but for those in tabs, and those that are not run."""
    found: list[Block] = []
    closing, indent, language, begun, before, follows, in_tabs = "", 0, "", 0, "", False, False
    lines = text.splitlines()
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if not closing and fence:
            closing, indent, language, begun = fence["fence"], len(fence["indent"]), fence["language"], number + 1
        elif closing and line.strip() == closing:
            code = "".join(f"{each[indent:]}\n" for each in lines[begun:number])
            if not in_tabs and not NOT_RUN.fullmatch(before):
                found.append(Block(begun, before, language, code, follows))
            closing, before, follows = "", "", True
        elif not closing:
            if line.strip():
                before, follows = line.strip(), False
            if line.startswith(":::"):
                in_tabs = not re.fullmatch("::::+", line)
    assert not closing, "a block is not closed"
    return found


def program(text: str) -> str:
    """The Python blocks of a document, each on its own lines, as one program."""
    lines = [""] * len(text.splitlines())
    for block in blocks(text):
        if block.language in ("python", "py"):
            code = block.text.splitlines()
            lines[block.line : block.line + len(code)] = code
    return "\n".join(lines) + "\n"


def is_walk(text: str) -> bool:
    return any(block.path for block in blocks(text))


def shown(text: str, *languages: str) -> list[tuple[Block, str]]:
    """The blocks of these languages that a block `text` directly follows, and that text."""
    found = blocks(text)
    return [
        (block, after.text)
        for block, after in pairwise(found)
        if block.language in languages and after.language == "text" and after.follows
    ]


def pattern(expected: str) -> str:
    """An expression that matches what is shown, where `...` is anything, and spaces at the ends of lines are none."""
    lines = (line.rstrip() for line in expected.strip().splitlines())
    return r"\s*\n".join(re.escape(line).replace(r"\.\.\.", r"(?:.|\n)*?") for line in lines)


NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
PROGRAMS = [name for name in NAMES if name != SIGNATURES and program((ROOT / name).read_text()).strip()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_that_are_there(path):
    prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", path.read_text()))
    links = [link["target"] or link["reference"] for link in LINK.finditer(prose)]
    files = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert [file for file in files if not (path.parent / file).exists()] == []


def test_each_test_that_a_document_names_is_there():
    tests = "".join(f"{path.name}\n{path.read_text()}" for path in (ROOT / "tests").rglob("*.py"))
    for path in DOCUMENTS:
        prose = FILE.sub("", BLOCK.sub("", path.read_text()))
        for name, story in re.findall(r"\b(test_\w+)(?:\.py)?(?:\[([^]]+)\])?", prose):
            assert re.search(rf"\b(?:def {name}\(|{name}\.py$)", tests, re.M), f"{path.name} names {name}"
            assert not story or f'"{story}"' in tests, f"{path.name} names the story {story!r}"


# programs and walks


def by_server(text: str, server: Server, name: str) -> str:
    """The text of a program on a database of a server: its line that connects, replaced with that of the tab."""
    tabs = {tab["name"]: tab["code"] for tab in TAB.finditer(TABS.read_text())}
    line = next(code for name, code in tabs.items() if type(server).__name__ in name)
    where = f'"{name}", host="{server.host}", port={server.port}, user="{server.USER}"'
    line = line.replace('"app"', where)
    assert where in line
    return text.replace(tabs["SQLite"], line)


def skipped(output: str) -> None:
    if re.search("xq.spark needs|Spark needs Java|ClassNotFoundException: org.sqlite", output):
        pytest.skip(output.splitlines()[-1])


@in_sequence
def check_program(text: str, folder: Path) -> None:
    """Run the blocks of a document as one program, and compare what it prints, and what it logs."""
    (folder / "document.py").write_text(program(text))
    place, outputs = 0, shown(text, "python")
    logged = any(" INFO " in expected for _, expected in outputs)
    ran = run("-W", "error", "document.py", cwd=folder, err=subprocess.STDOUT if logged else subprocess.PIPE)
    skipped(ran.stderr or "")
    assert ran.returncode == 0, ran.stderr or ran.stdout
    for _, expected in outputs:
        found = re.compile(pattern(expected)).search(ran.stdout, place)
        assert found, f"not printed, or not in its place:\n{expected}\nbut:\n{ran.stdout}"
        place = found.end()


def check_walk(text: str, folder: Path) -> None:
    """Write the files of a document, run its shell blocks, and compare what they print."""
    expected = {block.line: output for block, output in shown(text, "sh")}
    for block in blocks(text):
        if block.path:
            file = folder / block.path
            file.parent.mkdir(parents=True, exist_ok=True)
            old = file.read_text() if "the end of" in block.before else ""
            file.write_text(old + block.text)
        elif block.language == "sh":
            printed = shell(block.text, folder)
            if block.line in expected:
                same = re.fullmatch(pattern(expected[block.line]), printed.strip())
                assert same, f"line {block.line}:\n{block.text}printed:\n{printed}"
        else:
            assert block.language != "python", f"line {block.line}: which file is this?"


@in_sequence
def shell(commands: str, folder: Path) -> str:
    """Run commands as a reader types them, and return what they print."""
    lines = "".join(f"{line}\n" for line in commands.splitlines() if not line.startswith("pip install"))
    ran = subprocess.run(
        ["sh", "-e", "-c", lines],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    skipped(ran.stdout)
    assert ran.returncode == 0, f"{lines}\n{ran.stdout}"
    return ran.stdout


def check(text: str, folder: Path) -> None:
    (check_walk if is_walk(text) else check_program)(text, folder)


@pytest.mark.parametrize("document", [document for document in PROGRAMS if document not in ON_SPARK])
def test_the_program_of_a_document_runs_and_prints_what_it_shows(document, tmp_path):
    check((ROOT / document).read_text(), tmp_path)


@pytest.mark.parametrize("document", ON_SPARK)
def test_the_program_of_a_document_on_spark_runs_and_prints_what_it_shows(document, tmp_path, takes_its_time):
    check((ROOT / document).read_text(), tmp_path)


def on_servers() -> Iterator[tuple[str, str]]:
    """The documents whose programs connect by the line of the tabs, and the servers."""
    (sqlite,) = (tab["code"] for tab in TAB.finditer(TABS.read_text()) if tab["name"] == "SQLite")
    for document, kind in product(PROGRAMS, SERVERS):
        code = "".join(block.text for block in blocks((ROOT / document).read_text()))
        if document.startswith(ON_SERVERS) and document not in ON_SPARK and sqlite in code:
            yield document, kind


@pytest.mark.parametrize(("document", "kind"), list(on_servers()))
def test_the_program_of_a_page_runs_on_a_server(document, kind, tmp_path):
    with database_on(SERVERS[kind]) as (server, name):
        check(by_server((ROOT / document).read_text(), server, name), tmp_path)


def test_workers_at_once_lose_no_booking_on_the_page_of_sqlalchemy(tmp_path):
    for block in blocks((ROOT / "docs/start/sqlalchemy.md").read_text()):
        if block.path in ("app.py", "later.py"):
            (tmp_path / block.path).write_text(block.text)
    (tmp_path / "bookings.py").write_text(BOOKINGS)
    ran = run("bookings.py", cwd=tmp_path)
    assert ran.stdout.endswith("balance 225\n"), ran.stdout[-500:] + ran.stderr[-2000:]
