"""What the tests of django.tasks do: settings for a backend, the table of xq's, code that runs in an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.test import modify_settings, override_settings

from tests.django.conftest import ROOT, DjangoDatabase
from tests.django.shop import jobs
from tests.steps import STUCK
from tests.timing import in_sequence
from xq.adapters.django import upgrade
from xq.adapters.django.tasks.models import QUEUE, Task
from xq.adapters.django.tasks.worker import perform

BACKEND = "xq.adapters.django.tasks.XQBackend"


@contextmanager
def backend(path: str = BACKEND, app: str = "xq.adapters.django.tasks", **params: Any) -> Iterator[None]:
    """The backend of the alias "default", and the app that it needs."""
    tasks = {"default": {"BACKEND": path, "QUEUES": [], **params}}
    jobs.seen.clear()
    with override_settings(TASKS=tasks), modify_settings(INSTALLED_APPS={"append": ["django_tasks", app]}):
        yield


def upgrade_for_this_database() -> None:
    """A process of an application has queues for one kind of database; that of the tests for one after the other."""
    if "xq" in vars(Task):
        del Task.xq
    upgrade(Task, **QUEUE).worker(perform, finishes=True)


def install(database: DjangoDatabase) -> None:
    """Make the table, as its migration does."""
    upgrade_for_this_database()
    database.create(Task)
    Task.xq.install()


@in_sequence
def asynchronously(call: Callable[[], Awaitable[Any]]) -> Any:
    """What it returns in an event loop, whose synchronous parts have a thread of their own, as long as it runs."""

    async def main() -> Any:
        async with ThreadSensitiveContext():
            try:
                return await call()
            finally:
                await sync_to_async(connections.close_all)()

    return asyncio.run(main())


WORKER = """
import pymysql
pymysql.install_as_MySQLdb()
import django
from django.conf import settings
settings.configure(
    USE_TZ=True, DATABASES={{"default": {database!r}}}, TASKS={tasks!r},
    INSTALLED_APPS=["django_tasks", "xq.adapters.django", "xq.adapters.django.tasks"],
)
django.setup()
from xq.adapters.django.tasks.worker import run
run(queues=["default"])
"""


@contextmanager
def worker_process(database: DjangoDatabase) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    tasks = {"default": {"BACKEND": BACKEND, "QUEUES": []}}
    program = WORKER.format(database=database.settings, tasks=tasks)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # where another Django may be
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": path})
    try:
        yield process
    finally:
        process.kill()
        process.wait(STUCK)
