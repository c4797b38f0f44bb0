"""Drivers of Spark in processes of their own, to be killed: a fork would share the Java of this one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peewee as pw

HOME = Path(__file__).parent.parent.parent

# One that hangs says where and ends, before the limit of its test is over.
RUN = """
import faulthandler, importlib, pickle, sys

faulthandler.dump_traceback_later(400, exit=True)
kind, name, options, module, function, arguments = pickle.loads(bytes.fromhex(sys.stdin.readline()))
db = kind(name, **options)
getattr(importlib.import_module(module), function)(db, lambda text: print("told", text, flush=True), *arguments)
print("told", "the end", flush=True)
"""


class Driver:
    """A process that runs `script(db, tell, *arguments)`."""

    def __init__(self, db: pw.Database, script: Callable[..., None], *arguments: Any) -> None:
        options: dict[str, Any] = dict(db.connect_params)
        if isinstance(db, pw.SqliteDatabase):
            options["timeout"] = 20
        if isinstance(db, pw.PostgresqlDatabase):
            options["prefer_psycopg3"] = True
        call = (type(db), db.database, options, script.__module__, script.__name__, arguments)
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            cwd=HOME,
            env=os.environ | {"PYTHONPATH": str(HOME)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        self._in.write(pickle.dumps(call).hex() + "\n")
        self._in.flush()

    def told(self) -> str | None:
        """What it tells next; None when it has ended without telling more."""
        for line in self._out:
            if line.startswith("told "):
                return line.removeprefix("told ").rstrip("\n")
        return None

    def kill(self) -> None:
        """kill -9, and it is gone when this returns."""
        self.process.kill()
        self.process.wait()

    def join(self) -> int:
        """Wait until it is gone, by whatever."""
        while self.told() is not None:
            pass
        return self.process.wait()


@contextmanager
def driver(db: pw.Database, script: Callable[..., None], *arguments: Any) -> Iterator[Driver]:
    """A process that runs a function of a module of tests, and is gone afterwards."""
    process = Driver(db, script, *arguments)
    with process.process:
        try:
            yield process
        finally:
            process.kill()
