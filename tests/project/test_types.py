"""What mypy and pyright say of the first programs of the documents, and of mistakes in them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import xq
from tests.project.test_docs import program
from tests.timing import in_sequence
from xq.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# the queue, the block that makes it, and what it imports
DOCUMENTS = {
    "docs/start/peewee.md": ("Page", 0, "from xq import upgrade\n"),
    "docs/django.md": ("Letter", 2, "from django.db import models\nfrom xq.adapters.django import queue, upgrade\n"),
}
GOOD = """
one = {queue}.take(timeout=5)
if one is not None:
    print(one.id, one.ack(update={{}}), {queue}.xq.count("ready"))
"""
WRONG = (
    GOOD
    + """
{queue}.put({{}}, dealy=5)  # wrong
{queue}.take().ack()  # wrong: take returns None if there is no task
async def kill() -> None:
    print((await {queue}.xq.aio.kill(7)).nothing)  # wrong: a {queue} has no such attribute
upgrade({queue}, features={{"dealyed": True}})  # wrong
"""
)


@in_sequence
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_type_checker_accepts_the_first_lines_of_the_documents_and_finds_mistakes(tmp_path, document):
    if importlib.util.find_spec("pyright") is None and not os.environ.get("XQ_REQUIRE_ALL"):
        pytest.skip("needs pyright: pip install -e '.[test]'")
    queue, block, imports = DOCUMENTS[document]
    program = imports + BLOCK.findall((ROOT / document).read_text())[block]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    (tmp_path / "right.py").write_text(program + GOOD.format(queue=queue))
    (tmp_path / "wrong.py").write_text(program + WRONG.format(queue=queue))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "right.py", "wrong.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    found = {(name, int(n)) for name, n in re.findall(r"(\w+)\.py:(\d+):.*error", checked.stdout)}
    lines = (tmp_path / "wrong.py").read_text().splitlines()
    assert found == {("wrong", n) for n, line in enumerate(lines, 1) if "# wrong" in line}, checked.stdout


@in_sequence
@pytest.mark.parametrize("document", ["README.md", "docs/index.md"])
def test_mypy_accepts_the_programs_of_the_first_pages(tmp_path, document):
    (tmp_path / "first.py").write_text(program((ROOT / document).read_text()))
    options = ["--config-file", "pyproject.toml", "--follow-imports", "silent"]  # strict
    command = [sys.executable, "-m", "mypy", *options, tmp_path / "first.py"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_feature_has_its_type():
    assert list(get_type_hints(xq.Features)) == list(FEATURES)
