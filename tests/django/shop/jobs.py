"""Tasks of the shop, for whatever backend."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction

import xq
from tests.django.names import TaskContext, task, task_backends
from xq.adapters.django import options
from xq.workers.attempts import Attempts

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
def crawl(n: int) -> None:
    """Add members to the group that it is in."""
    for found in (2 * n, 2 * n + 1):
        if found < 8:
            task_backends["default"].group("site").enqueue(crawl, found)


@task
def leave(code: int) -> None:
    sys.exit(code)


@task
async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


met: list[int] = []


@task
async def meet(n: int) -> int:
    """Wait until so many are here, and say on which loop."""
    met.append(n)
    while len(met) < n:
        await asyncio.sleep(0)
    return id(asyncio.get_running_loop())


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


@options(timeout=1, max_attempts=2, backoff=[0])
@task
def hang(told: str) -> None:
    """Say that it runs, and never end."""
    with Path(told).open("a") as out:
        out.write("begun\n")
    while True:
        time.sleep(1)


@options(timeout=600, max_attempts=2, backoff=[0])
@task
def die(told: str) -> None:
    with Path(told).open("a") as out:
        out.write("begun\n")
    os.kill(os.getpid(), signal.SIGKILL)


@options(max_attempts=50, backoff=[0])
@task
def double(n: int, told: str = "") -> int:
    """Return a value. The process is killed before that is committed, if this is not `told` yet."""
    if told and not Path(told).exists():
        Path(told).touch()
        Attempts.ack_and_take = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign,assignment]
    return 2 * n


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


def did(what: Any) -> Any:
    seen.append(what)
    return what


@task
def ship(key: str) -> list[Any]:
    """Charge, sleep for a day, wait for an approval, and ship: each once."""
    charged = xq.step("charge", did, f"charged {key}")
    xq.sleep("cool off", 86_400)
    told = xq.wait_for("approved", timeout=86_400)
    return [charged, told, xq.step("ship", did, "shipped")]


@task
async def aship(key: str) -> list[Any]:
    charged = await xq.step("charge", did, f"charged {key}")
    await xq.sleep("cool off", 86_400)
    told = await xq.wait_for("approved", timeout=86_400)
    return [charged, told, await xq.step("ship", did, "shipped")]
