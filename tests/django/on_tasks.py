"""What the tests of django.tasks do: settings for a backend, the table of xq's, code that runs in an event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.test import modify_settings, override_settings

from tests.django import names
from tests.django.apps import Project
from tests.django.conftest import DjangoDatabase
from tests.django.shop import jobs
from tests.steps import STUCK
from tests.timing import in_sequence
from xq.adapters.django import upgrade
from xq.adapters.django.tasks.models import Task, definition
from xq.adapters.django.tasks.worker import backoff, perform, set_up

BACKEND = "xq.adapters.django.tasks.XQBackend"
APPS = (*names.APPS, "xq.adapters.django", "xq.adapters.django.tasks")


@contextmanager
def backend(path: str = BACKEND, app: str = "xq.adapters.django.tasks", **params: Any) -> Iterator[None]:
    """The backend of the alias "default", and the app that it needs."""
    tasks = {"default": {"BACKEND": path, "QUEUES": [], **params}}
    jobs.seen.clear()
    with override_settings(TASKS=tasks), modify_settings(INSTALLED_APPS={"append": [*names.APPS, app]}):
        yield


def upgrade_for_this_database() -> None:
    """A process of an application has queues for one kind of database; that of the tests for one after the other."""
    if "xq" in vars(Task):
        del Task.xq
    set_up(upgrade(Task, **definition()).worker(perform, backoff=backoff))


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


@contextmanager
def worker_process(database: DjangoDatabase, *words: str, **params: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    tasks = {"default": {"BACKEND": BACKEND, "QUEUES": [], **params}}
    with TemporaryDirectory() as folder:
        project = Project(Path(folder), database.settings, *APPS, TASKS=tasks)
        process = subprocess.Popen([sys.executable, "-m", "django", "xq_worker", *words], env=project.environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait(STUCK)
