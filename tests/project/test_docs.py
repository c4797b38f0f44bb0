"""The documents: what is generated is current, links lead somewhere, and their programs run and print what they show.

A document with blocks of Python runs in one of two ways, in a folder of its own.

*A program*: its Python blocks run in their order, as one program: a later block may use what an earlier one defined.
Each stands at its own line of that program, so a traceback names the line of the document.

*A walk*: a document that names files. A Python block after a line that ends with "`shop/models.py`:" is that file, or
is added to it if the line contains "the end of". The blocks run in their order: a file is written, and a block of `sh`
is run by the shell, but for its lines with `pip install`. A block `bash` is for the reader alone.

In both, a block `text` that directly follows such a block is what it prints, where `...` stands for anything. A block
in a comment of HTML, which a reader does not see, is run as well. A block after the line `<!-- not run: REASON -->` is
not run.

The pages in docs/start and docs/howto run on each database. The tabs of docs/start/peewee.md have the line that
connects; on a server it replaces that of SQLite.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import pytest

import xq
from tests.conftest import SERVERS, database_on
from tests.golden.regenerate import DATABASES, QUEUES, entries
from tests.servers import Server
from tests.timing import in_sequence
from xq.registry import compose

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
GENERATE = ROOT / "docs" / "generate.py"
TABS = ROOT / "docs" / "start" / "peewee.md"
ON_SERVERS = ("docs/start/", "docs/howto/")
ON_SPARK = ("docs/spark.md", "docs/start/spark.md")  # a minute

SIGNATURES = "docs/reference.md"  # is generated, and has no programs

NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w-]*)")
FILE = re.compile(r"`(?P<path>[\w./-]+\.py)`:$")
TAB = re.compile(r"^:::+\{tab-item\} *(?P<name>\w+)\n+```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"!?\[[^\]]*\]\(<?(?P<target>[^)>\s]+)>?[^)]*\)|^ *\[[^\]]+\]: *<?(?P<reference>[^>\s]+)", re.MULTILINE
)


# generated


@in_sequence
def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=600)


def test_what_is_generated_is_current():
    checked = run(GENERATE, "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_stale_document_is_named(tmp_path):
    shutil.copytree(GENERATE.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "machine.md").write_text("old")
    checked = run(tmp_path / "generate.py", "--check")
    assert (checked.returncode, checked.stdout) == (1, "docs/machine.md is stale: make docs writes it anew\n")
    assert (tmp_path / "machine.md").read_text() == "old"
    assert run(tmp_path / "generate.py").returncode == 0
    assert (tmp_path / "machine.md").read_text() == (ROOT / "docs" / "machine.md").read_text()
    assert run(tmp_path / "generate.py", "--check").returncode == 0


def test_the_layout_of_sql_changes_white_space_only():
    laid_out = runpy.run_path(str(ROOT / "docs" / "layout.py"))["laid_out"]
    for name, database in product(QUEUES, DATABASES):
        for entry in entries(QUEUES[name](DATABASES[database]())):
            for sql in entry.texts:
                assert "".join(laid_out(sql).split()) == "".join(sql.split())


def test_a_note_quotes_only_what_stands_in_the_sql(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    checked = runpy.run_path(str(ROOT / "docs" / "sql.py"))["_checked"]
    assert checked("It has `A  B`.", "SQLite, put", ["SELECT A\n  B;"]) == "It has `A B`."
    with pytest.raises(SystemExit, match="the note of SQLite, put quotes 'LIMIT'"):
        checked("It has `LIMIT`.", "SQLite, put", ["SELECT A;"])


def test_the_queue_of_the_readme_is_the_one_in_the_readme():
    (features,) = re.findall(
        r"^`(features=.*)`\n", (ROOT / "docs" / "machine.md").read_text().split("## The queue of")[1], re.M
    )
    assert f"{features}," in (ROOT / "README.md").read_text()


def test_every_public_name_has_a_heading_or_an_error_of_its_own():
    api = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in xq.__all__ if f"[{name}](" not in api] == ["__version__"]


def test_every_event_of_the_machine_is_in_the_picture():
    picture = (ROOT / "docs" / "images" / "life.svg").read_text()
    words = set(re.findall(r"\w+", " ".join(re.findall("<text.*?>(.*?)</text>", picture))))
    events = {row.event for features in ({"keep": True}, {"zombie": True}) for row in rows(features)}
    assert {"put", "take", "ack", "ttr", "kill"} <= events <= words


def rows(ends: dict[str, bool]) -> tuple[xq.Transition, ...]:
    return xq.Machine(compose({"delayed": True, "buried": True, "ttr": 60, **ends}), ("status", "runat")).rows


def test_what_breaks_programs_of_the_last_release_must_be_in_the_changelog(tmp_path):
    for name in ("xq", "features", "adapters", "docs"):
        shutil.copytree(
            ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "images")
        )
    changelog, handle = tmp_path / "CHANGELOG.md", tmp_path / "xq" / "handle.py"
    changelog.write_text("## Unreleased\n\n### Added\n\n- `peek`\n\n## 0.0.1\n\n### Removed\n\n- `peek`\n")

    def git(*arguments: str) -> None:
        named = ["-c", "user.name=xq", "-c", "user.email=xq@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    def compared() -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "docs/breaks.py"]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        return ran.returncode, ran.stdout + ran.stderr

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a release")
    assert compared() == (0, "no release yet: nothing to compare the public names with\n")
    git("tag", "v0.0.1")
    handle.write_text(handle.read_text().replace("def peek(self, key: object)", "def peek(self, number: object)"))
    code, told = compared()
    assert (code, "Queue.peek(key): Parameter was removed" in told) == (1, True), told
    assert "This breaks programs written for v0.0.1" in told
    changelog.write_text(changelog.read_text().replace("Added", "Changed"))
    assert compared() == (0, "")


# blocks and links


def without_blocks(text: str) -> str:
    """The prose: blocks and code within a line are no places for links."""
    lines, closing = [], ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if not closing:
            closing = fence["fence"] if fence else ""
            lines.append("" if fence else re.sub(r"`[^`]*`", "", line))
        elif line.strip() == closing:
            closing = ""
    return "\n".join(lines)


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


def test_dots_in_what_is_shown_stand_for_anything():
    assert re.fullmatch(pattern("1 ... 2\n...\n3\n"), "1 or 2  \nand\nmore\n3")
    assert not re.fullmatch(pattern("1.2"), "1x2")


NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
PROGRAMS = [name for name in NAMES if name != SIGNATURES and program((ROOT / name).read_text()).strip()]


def missing(path: Path) -> list[str]:
    """The links of a document that lead to no file."""
    links = [link["target"] or link["reference"] for link in LINK.finditer(without_blocks(path.read_text()))]
    files = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    return [file for file in files if not (path.parent / file).exists()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_that_are_there(path):
    assert missing(path) == []


def test_a_link_to_nothing_is_found(tmp_path):
    (tmp_path / "there.md").touch()
    document = tmp_path / "document.md"
    document.write_text(
        "[a](there.md) [b](there.md#part) ![c](gone.png) [d](https://example.org) [e](#part) [f](gone/x.md 'title')\n"
        "`[g](code.md)`\n```text\n[h](block.md)\n```\n[i]\n\n[i]: gone.txt\n"
    )
    assert missing(document) == ["gone.png", "gone/x.md", "gone.txt"]


# programs and walks


def test_a_block_that_is_not_run_has_its_reason_before_it():
    lines = [line.strip() for path in DOCUMENTS for line in path.read_text().splitlines()]
    marks = [(line, after) for line, after in pairwise(lines) if line.startswith("<!-- not run")]
    assert marks
    assert [mark for mark in marks if not (NOT_RUN.fullmatch(mark[0]) and FENCE.match(mark[1]))] == []


def by_server(text: str, server: Server, name: str) -> str:
    """The text of a program on a database of a server: its line that connects, replaced with that of the tab."""
    tabs = {tab["name"]: tab["code"] for tab in TAB.finditer(TABS.read_text())}
    line = tabs[type(server).__name__.replace("Postgres", "PostgreSQL")]
    where = f'"{name}", host="{server.host}", port={server.port}, user="{server.USER}"'
    line = line.replace('"app"', where)
    assert where in line
    return text.replace(tabs["SQLite"], line)


def skipped(output: str) -> None:
    if re.search("xq.spark needs|Spark needs Java|ClassNotFoundException: org.sqlite", output):
        pytest.skip(output.splitlines()[-1])


@in_sequence
def check_program(text: str, folder: Path) -> None:
    """Run the blocks of a document as one program, and compare what it prints."""
    (folder / "document.py").write_text(program(text))
    ran = run("-W", "error", "document.py", cwd=folder)
    skipped(ran.stderr)
    assert ran.returncode == 0, ran.stderr
    place = 0
    for _, expected in shown(text, "python"):
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


BLOCKS = """\
# A document

```python
one = 1
```

Prose, and a block of another language:

```sh
exit 1
```

- in a list

  ```python
  assert one == 1
  {last}
  ```
"""


def test_a_block_sees_those_before_it_and_fails_at_its_line_of_the_document(tmp_path):
    for last, code, told in (("print(one)", 0, "1\n"), ("one / 0", 1, "line 17")):
        (tmp_path / "README.py").write_text(program(BLOCKS.format(last=last)))
        ran = run("README.py", cwd=tmp_path)
        assert (ran.returncode, told in ran.stdout + ran.stderr) == (code, True), ran


WALK = """\
`app/one.py`:

```python
print(1)
```

Add at the end of `app/one.py`:

```python
print({second})
```

```sh
pip install nothing
python app/one.py
```

```text
1
2
```
"""


def test_what_a_walk_or_a_program_prints_is_compared(tmp_path):
    assert is_walk(WALK)
    check_walk(WALK.format(second=2), tmp_path)
    with pytest.raises(AssertionError, match=r"printed:\s+1\s+3"):
        check_walk(WALK.format(second=3), tmp_path)
    check_program("```python\nprint(1)\n```\n\n```text\n1\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="not printed"):
        check_program("```python\nprint(1)\n```\n\n```text\n2\n```\n", tmp_path)


def test_which_blocks_are_of_a_program():
    marked = "<!--\n```python\none = 1\n```\n-->\n\n<!-- not run: no such server -->\n```python\none = 2\n```\n"
    assert [block.text for block in blocks(marked)] == ["one = 1\n"], "a hidden one is, one that is marked is not"
    tabs = "::::{tab-set}\n:::{tab-item} SQLite\n```python\none = 1\n```\n:::\n::::\n\n```python\none = 2\n```\n"
    assert [block.text for block in blocks(tabs)] == ["one = 2\n"], "those in tabs are not"
    assert [tab["code"] for tab in TAB.finditer(tabs)] == ["one = 1\n"]
    with pytest.raises(AssertionError, match="not closed"):
        program("```python\none = 1\n")
