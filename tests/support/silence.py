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
"""
OF_KIND = """
class {kind}_job(xq.Task):
    class Meta:
        database = db

xq.upgrade({kind}_job, features={{"keep": True, "history": True}})

@{kind}_job.xq.worker(kind="{kind}", workers=2)
{define} {kind}_work(job):
    print("begun", flush=True)
    {sleep}({seconds})
"""


class Program:
    """`xq worker app:...` for one kind, with a table of its own."""

    def __init__(self, folder: Path, server: Server, kind: str) -> None:
        self._folder, self._name, self.log = folder, f"app:{kind}_work", folder / f"{kind}.log"
        self.queue: Any = queue_of(server.url("app"), f"{kind}_job")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = run(self._folder, "-m", "xq", "worker", self._name, stdout=log, stderr=log)

    def told(self, text: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if text in line]

    def signal(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Return the exit status."""
        return self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def run(folder: Path, *arguments: str, **how: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, **how)


def write(folder: Path, db: str, seconds: float = 0) -> None:
    """Write the programs, and make their tables. `db` is the source of their database."""
    text = APP.format(db=db)
    for kind in KINDS:
        define, sleep = ("async def", "await asyncio.sleep") if kind == "asyncio" else ("def", "time.sleep")
        text += OF_KIND.format(kind=kind, define=define, sleep=sleep, seconds=seconds)
    (folder / "app.py").write_text(text)
    tables = ", ".join(f"{kind}_job" for kind in KINDS)
    assert run(folder, "-c", f"from app import *; db.create_tables([{tables}])").wait(60) == 0


@contextmanager
def programs(folder: Path, server: Server, db: str, seconds: float, n: int) -> Iterator[list[Program]]:
    """A program of each kind, with so many tasks, at work."""
    write(folder, db, seconds)
    made = [Program(folder, server, kind) for kind in KINDS]
    try:
        for each in made:
            each.queue.put_many([{}] * n)
            each.start()
        eventually(lambda: all(each.told("begun") for each in made))
        yield made
    finally:
        for each in made:
            each.kill()


def ended(programs: list[Program]) -> list[int]:
    """Send a signal to programs, and return their exit statuses."""
    for each in programs:
        each.signal()
    return [each.wait() for each in programs]


def unlimited(server: Server, place: Server | Proxy) -> str:
    """The source of a database of the application's, whose connections have no limits."""
    kind = {"postgresql": "PostgresqlDatabase", "mysql": "MySQLDatabase"}[server.SCHEME]
    more = "prefer_psycopg3=True" if server.SCHEME == "postgresql" else "ssl_disabled=True"
    return f"pw.{kind}('app', host={place.host!r}, port={place.port}, user={server.USER!r}, {more})"


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
