"""A cluster of Spark on this machine: a master and two workers in processes of their own, from the package PySpark.

`make spark-cluster` starts one to play with. The workers of one for tests run a Python that has what xq needs there,
and not xq itself. Nothing outlives the process that started the cluster, however that ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import xq
from tests.short_spark import JAVA
from xq.adapters.spark.spark_session import _java_home

HOST = "127.0.0.1"
WORKERS = 2
PATIENCE = 120  # seconds in which a process must have started
TICK = 0.02  # seconds between two looks
AGAIN = 3  # seconds after which executors are killed again, where no task was lost
# The Python of the workers. That of an executor waits as long as there is a file `held`; that of a driver does not.
HELD = """\
#!/bin/sh
case "$PWD" in {folder}/work/*) while [ -e {folder}/held ]; do sleep 0.05; done ;; esac
exec {python} "$@"
"""
PLAY = """\
A master and two workers run until Ctrl-C. The queue is on PostgreSQL or MariaDB:

    PYSPARK_PYTHON={python} {bin}/spark-submit --master {url} examples/spark.py postgresql://user@host/database

    xq.spark.session(master="{url}")
"""

DAEMONS = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_LOCAL_IP": HOST}
SESSION = {
    "driver_host": HOST,
    "driver_bindAddress": HOST,
    "driver_memory": "512m",
    "executor_memory": "512m",
    "executor_extraJavaOptions": JAVA,
    "sql_shuffle_partitions": 2,
}

# What the Python of the workers has, with what these need in turn. Neither xq nor Peewee is among it.
NEEDED = ("pyarrow", "pydantic", "psycopg", "psycopg-binary", "pymysql")

# It reads the groups of processes that it ends when the process that started it has ended.
KEEPER = """
import contextlib, os, shutil, signal, sys, time
for group in [int(line) for line in sys.stdin]:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
for _ in range(100):  # the Python of an executor ends after it, by itself
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster, of which a driver in another process may be told."""

    url: str  # the master of its sessions
    python: str  # of its workers
    folder: str
    groups: tuple[int, ...]  # of processes

    def session(self, **conf: object) -> SparkSession:
        """Start a session in this process. Its Java starts where no folder and no PYTHONPATH leads Python to xq."""
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("PYTHONPATH", raising=False)
            patch.chdir(self.folder)
            spark = xq.spark.session(**{**SESSION, "master": self.url, "pyspark_python": self.python, **conf})
        spark.sparkContext.setLogLevel("ERROR")
        return spark

    def kill_executors(self) -> None:
        """kill -9 the processes that run the tasks of applications."""
        # What a worker starts is in its group. Not by its arguments: ps cuts them where COLUMNS is set.
        listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid="], capture_output=True, text=True, check=True)
        for pid, group in (map(int, line.split()) for line in listed.stdout.splitlines()):
            if group in self.groups and pid != group:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @contextmanager
    def losing_executors(self, spark: SparkSession) -> Iterator[None]:
        """kill -9 all executors within the block while they run tasks of it. These wait for their Python until then."""
        tracker, over, lost = spark.sparkContext.statusTracker(), threading.Event(), list[int]()
        held = Path(self.folder, "held")

        def watch() -> None:
            killed = 0.0
            while not lost and not over.wait(TICK):
                active = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
                lost.extend(info.stageId for info in active if info.numFailedTasks)
                if any(info.numActiveTasks for info in active) and time.monotonic() - killed > AGAIN:
                    self.kill_executors()
                    killed = time.monotonic()
            held.unlink()

        held.touch()
        self.kill_executors()  # and with them each Python that has started
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
        assert lost, "no stage has lost a task"


class _Processes:
    """The processes of a cluster, which end with the one that started them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._all = folder, list[subprocess.Popen[bytes]]()
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        given = {n: value for n, value in os.environ.items() if not n.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        home = {"JAVA_HOME": found} if (found := _java_home()) else {}
        self._environment = {**given, **home, **DAEMONS, "SPARK_LOCAL_DIRS": str(folder / "local")}

    def start(self, name: str, kind: str, *arguments: str) -> None:
        program = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
        command = [f"{Path(pyspark.__file__).parent}/bin/spark-class", program, "--host", HOST, "--webui-port", "0"]
        with self._log(name).open("w") as to:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self.folder,
                env=self._environment,
                stdout=to,
                stderr=to,
                start_new_session=True,
            )
        self._all.append(process)
        assert self._keeper.stdin
        self._keeper.stdin.write(f"{process.pid}\n".encode())
        self._keeper.stdin.flush()

    def said(self, name: str, pattern: str) -> str:
        """Return what a process says once it is ready."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self._log(name).read_text(errors="replace"))):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the {name} does not start:\n{self._log(name).read_text()[-3000:]}")
            time.sleep(TICK)
        return found[1]

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._all)

    def end(self) -> None:
        self._keeper.communicate()
        for process in self._all:
            process.wait()


@contextmanager
def cluster(python: str | None = None) -> Iterator[Cluster]:
    """Start a cluster, whose workers run this Python; None: one without xq."""
    folder = Path(tempfile.mkdtemp(prefix="xq-cluster-"))
    processes = _Processes(folder)
    try:
        processes.start("master", "master", "--port", "0")
        waiting = folder / "waiting-python"
        waiting.write_text(HELD.format(folder=folder, python=python or without_xq(folder / "python")))
        waiting.chmod(0o700)
        url = processes.said("master", r"Starting Spark master at (spark://\S+)")
        names = [f"worker-{number}" for number in range(WORKERS)]
        for name in names:
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
            processes.start(name, "worker", *size, url)
        for name in names:
            processes.said(name, "Successfully registered with (master)")
        yield Cluster(url, str(waiting), str(folder), processes.groups)
    finally:
        processes.end()


def without_xq(folder: Path, *more: str) -> str:
    """Make a virtual environment with links to the packages NEEDED, and `more`. Returns its Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for found in _with_theirs([*NEEDED, *more]):
        for name in {file.parts[0] for file in distribution(found).files or ()} - {"..", "__pycache__"}:
            (packages / name).symlink_to(Path(str(distribution(found).locate_file(name))).resolve())
    return str(folder / "bin" / "python")


def _with_theirs(names: Iterable[str]) -> set[str]:
    """Return the names of packages, and of all that they need without extras."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            needed = (text for text in distribution(name).requires or () if ";" not in text)
            left += [match[0] for match in (re.match(r"[\w.-]+", text) for text in needed) if match]
    return found


def main() -> None:
    with cluster(sys.executable) as found, suppress(KeyboardInterrupt):
        print(PLAY.format(url=found.url, bin=Path(sys.executable).parent, python=sys.executable), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
