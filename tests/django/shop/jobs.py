"""Tasks of the shop, for whatever backend."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django_tasks import TaskContext, task

import xq

seen: list[Any] = []  # what the tasks of this process did, in order


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(priority=7)
def note(what: Any) -> None:
    seen.append(what)


@task
async def later(a: int) -> int:
    await asyncio.sleep(0)
    return a * 2


@task(takes_context=True)
def tell(context: TaskContext, *args: Any) -> list[Any]:
    result = context.task_result
    seen.append(result)
    return [context.attempt, str(result.status), list(result.args), len(result.worker_ids)]


@task
def fail(why: str = "no such order") -> None:
    raise LookupError(why)


@task
def end(how: str) -> None:
    errors = {"Retry": xq.Retry(60), "Retry()": xq.Retry(), "Bury": xq.Bury("wrong"), "Discard": xq.Discard()}
    raise errors.get(how) or LookupError(how)


@task
def leave(code: int) -> None:
    sys.exit(code)


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task
def give(what: str) -> Any:
    """A value of this kind, none of which is JSON as it is."""
    kinds: dict[str, Any] = {
        "object": object(),
        "set": {1},
        "tuple": (1, (2, 3)),
        "zero": "a\0b",
        "nested": {"a": {1: [None, True]}},
    }
    return kinds[what]


@task
def wait_for(file: str, told: str) -> str:
    """Say in a file that it runs, and go on when another is there."""
    with Path(told).open("a") as out:
        out.write("begun\n")
    while not Path(file).exists():
        time.sleep(0.01)
    return "done"


def no_task() -> None: ...


@task
def misuse(how: str) -> None:
    """Leave the connection of this thread as nobody should."""
    uses: dict[str, Any] = {
        "close": connection.close,
        "open": lambda: (transaction.set_autocommit(False), connection.cursor().execute("SELECT 1")),
        "break": lambda: connection.connection.close(),
    }
    uses[how]()
