"""Programs of workers whose server is away, in one of three ways."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.proxy import Proxy
from tests.servers import Server
from tests.steps import eventually
from xq.adapters.peewee.plain import queue_of

KINDS = ("thread", "process", "asyncio")
APP = """
import asyncio, time, peewee as pw, xq
from xq.adapters.peewee import urls

db = {db}

class Job(xq.Task):
    class Meta:
        database, table_name = db, "job_{kind}"

xq.upgrade(Job, features={{"keep": True}})

async def waits(job):
    print("begun", flush=True)
    await asyncio.sleep({seconds})

def works(job):
    print("begun", flush=True)
    time.sleep({seconds})

work = Job.xq.worker(waits if "{kind}" == "asyncio" else works, kind="{kind}", workers=2)
"""


class Program:
    """`xq worker` for one kind, with a table of its own. `db` is the source of its database."""

    def __init__(self, folder: Path, kind: str, server: Server, db: str, seconds: float) -> None:
        self._folder, self._name, self.kind, self.log = folder, f"app_{kind}", kind, folder / f"{kind}.log"
        (folder / f"{self._name}.py").write_text(APP.format(db=db, kind=kind, seconds=seconds))
        self._run("-c", f"from {self._name} import *; db.create_tables([Job])").wait(60)
        self.queue: Any = queue_of(server.url("app"), f"job_{kind}")

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=self._folder, env=environment, stdout=log, stderr=log
            )

    def start(self) -> None:
        self._process = self._run("-m", "xq", "worker", f"{self._name}:work")

    def told(self, text: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if text in line]

    def end(self) -> int:
        """Send a signal, and return the exit status."""
        self.signal()
        return self._process.wait(30)

    def signal(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def programs(folder: Path, server: Server, db: str, seconds: float, n: int) -> Iterator[list[Program]]:
    """A program of each kind, with so many tasks, at work."""
    made = [Program(folder, kind, server, db, seconds) for kind in KINDS]
    try:
        for each in made:
            each.queue.put_many([{}] * n)
            each.start()
        eventually(lambda: all(each.told("begun") for each in made))
        yield made
    finally:
        for each in made:
            each.kill()


def unlimited(server: Server, proxy: Proxy) -> str:
    """The source of a database of the application's, whose connections have no limits."""
    kind = {"postgresql": "PostgresqlDatabase", "mysql": "MySQLDatabase"}[server.SCHEME]
    more = "prefer_psycopg3=True" if server.SCHEME == "postgresql" else "ssl_disabled=True"
    return f"pw.{kind}('app', host={proxy.host!r}, port={proxy.port}, user={server.USER!r}, {more})"


@contextmanager
def away(server: Server, proxy: Proxy, how: str) -> Iterator[None]:
    """For the block the server is down, vanished behind the proxy, or frozen."""
    if how == "frozen":
        with server.frozen():
            yield
        return
    if how == "down":
        server.stop("immediate")
    else:
        proxy.vanish()
    try:
        yield
    finally:
        server.start() if how == "down" else proxy.appear()
