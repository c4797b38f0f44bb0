"""The documents: what is generated is current, links lead somewhere, and the Python of some of them runs.

The blocks of each document in PROGRAMS run in their order, as one program in a folder of its own: a later block may use
what an earlier one defined. Each stands at its own line of that program, so a traceback names the line of the document.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.golden.regenerate import DATABASES, QUEUES, entries

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
PROGRAMS = ["README.md", "docs/guide.md", "docs/workers.md", "docs/schedules.md", "docs/asyncio.md", "docs/tubes.md"]
GENERATE = ROOT / "docs" / "generate.py"

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w-]*)")
LINK = re.compile(
    r"!?\[[^\]]*\]\(<?(?P<target>[^)>\s]+)>?[^)]*\)|^ *\[[^\]]+\]: *<?(?P<reference>[^>\s]+)", re.MULTILINE
)


# generated


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=300)


def test_what_is_generated_is_current():
    checked = run(GENERATE, "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_stale_document_is_named(tmp_path):
    for path in [*GENERATE.parent.glob("*.py"), GENERATE.parent / "sql.md"]:
        (tmp_path / path.name).write_text(path.read_text())
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


def program(text: str) -> str:
    """The Python blocks of a document, each on its own lines, as one program."""
    lines, closing, indent, python = [], "", 0, False
    for line in text.splitlines():
        fence = FENCE.match(line)
        if not closing and fence:
            closing, indent, python = fence["fence"], len(fence["indent"]), fence["language"] in ("python", "py")
            lines.append("")
        elif closing and line.strip() == closing:
            closing = ""
            lines.append("")
        else:
            lines.append(line[indent:] if closing and python else "")
    assert not closing, "a block is not closed"
    return "\n".join(lines) + "\n"


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


@pytest.mark.parametrize("document", PROGRAMS)
def test_every_python_block_of_a_document_runs(document, tmp_path):
    text = program((ROOT / document).read_text())
    assert "import xq" in text
    (tmp_path / "document.py").write_text(text)
    ran = run("-W", "error", "document.py", cwd=tmp_path)
    if re.search("xq.spark needs|Spark needs Java", ran.stderr):
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr


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


def test_a_block_that_raises_fails_at_its_line_of_the_document(tmp_path):
    (tmp_path / "README.py").write_text(program(BLOCKS.format(last="one / 0")))
    ran = run("README.py", cwd=tmp_path)
    assert ran.returncode != 0
    assert "line 17" in ran.stderr
    assert "ZeroDivisionError" in ran.stderr


def test_blocks_see_what_those_before_them_defined(tmp_path):
    (tmp_path / "README.py").write_text(program(BLOCKS.format(last="print(one)")))
    assert run("README.py", cwd=tmp_path).stdout == "1\n"


def test_a_block_that_is_not_closed_is_an_error():
    with pytest.raises(AssertionError, match="not closed"):
        program("```python\none = 1\n")
