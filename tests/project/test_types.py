"""What mypy and pyright say of the first programs of the documents, and of mistakes in them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.test_docs import program
from tests.timing import in_sequence

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


ON_SQLALCHEMY = """
from typing import assert_type
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from xq import Batch
make_async = async_sessionmaker[AsyncSession]()

def calls(session: Session, engine: AsyncEngine) -> None:
    assert_type(orders.take(), Order | None)
    assert_type(orders.put(Order(), on=session, delay=60), Order)
    orders.bind(engine)
    orders.bind("sqlite://")  # wrong
    orders.put({}, no=session)  # wrong

async def asynchronous_calls(session: AsyncSession) -> None:
    assert_type(await orders.aio.put(Order(), on=session), Order)
    assert_type(await orders.aio.take(timeout=5), Order | None)

@orders.worker(session=make_session, max_attempts=5)
def with_a_session(order: Order, session: Session) -> None: ...

@orders.worker(session=make_async, timeout=60)
async def with_an_asynchronous_session(order: Order, session: AsyncSession) -> None: ...

@orders.worker(session=make_session, batch=10)
def with_a_batch(found: Batch[Order], session: Session) -> None: ...

@orders.worker
def without(order: Order) -> None: ...

@orders.worker(session=make_async)  # wrong
async def with_another_session(order: Order, session: Session) -> None: ...

@orders.worker(session=make_session)  # wrong
def without_the_session(order: Order) -> None: ...

@orders.worker(session=make_session)  # wrong
def with_another_task(order: Account, session: Session) -> None: ...
"""


def check(folder: Path, checker: str, right: str, wrong: str) -> None:
    """Check that a type checker finds the mistakes in the lines of `wrong` that say so, and no other."""
    if importlib.util.find_spec(checker) is None and not os.environ.get("XQ_REQUIRE_ALL"):
        pytest.skip(f"needs {checker}: pip install -e '.[test]'")
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    (folder / "right.py").write_text(right)
    (folder / "wrong.py").write_text(wrong)
    files = [str(folder / "right.py"), str(folder / "wrong.py")]
    if checker == "mypy":  # strict
        command, place = ["--config-file", "pyproject.toml", "--follow-imports", "silent", *files], ROOT
    else:
        command, place = ["--pythonpath", sys.executable, *files], folder
    ran = [sys.executable, "-m", checker, *command]
    checked = subprocess.run(ran, cwd=place, capture_output=True, text=True, timeout=300)
    found = {(name, int(n)) for name, n in re.findall(r"(\w+)\.py:(\d+):.*error", checked.stdout)}
    lines = wrong.splitlines()
    assert found == {("wrong", n) for n, line in enumerate(lines, 1) if "# wrong" in line}, checked.stdout


@in_sequence
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_type_checker_accepts_the_first_lines_of_the_documents_and_finds_mistakes(tmp_path, document):
    queue, block, imports = DOCUMENTS[document]
    program = imports + BLOCK.findall((ROOT / document).read_text())[block]
    check(tmp_path, "pyright", program + GOOD.format(queue=queue), program + WRONG.format(queue=queue))


@in_sequence
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_knows_the_tasks_and_the_sessions_of_sqlalchemy(tmp_path, checker):
    program = BLOCK.findall((ROOT / "docs/start/sqlalchemy.md").read_text())[0]
    check(tmp_path, checker, program, program + ON_SQLALCHEMY)


@in_sequence
@pytest.mark.parametrize("document", ["README.md", "docs/index.md"])
def test_mypy_accepts_the_programs_of_the_first_pages(tmp_path, document):
    check(tmp_path, "mypy", program((ROOT / document).read_text()), "")
