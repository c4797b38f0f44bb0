"""What tasks occupy in the database, and a process in memory: sections of make bench without timings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from functools import partial

from benchmarks.contestants import PAYLOAD, Place, UnattendedMoves, Xq, floor
from benchmarks.databases import Home
from benchmarks.measure import Opens
from benchmarks.report import Effort, Section, Table

AT_ONCE = 1_000  # tasks of a call

KEPT = {"keep": True}
WHOLE = {"ttr": 60, "ttl": 3600, "delayed": True, "buried": True, "keep": True}
CONTESTANTS: Mapping[str, Opens[UnattendedMoves]] = {
    "the floor": floor,
    "xq, the owner in a column": partial(Xq, roles=("owner",), features=KEPT),
    "the same with history": partial(Xq, roles=("owner",), features=KEPT | {"history": True}),
    "everything on, with history": partial(
        Xq, roles=("owner", "runat", "attempts", "tube"), features=WHOLE | {"history": True}
    ),
}
PROCESSES = {
    "Peewee, connected": "",
    "that puts": "task.xq.put({'payload': 'x'})",
    "that takes": "task.xq.put({'payload': 'x'}); task.xq.take()",
}
PROCESS = """
import json, os, subprocess, sys
import peewee as pw
kind, name, options = json.loads(sys.argv[1])
db = getattr(pw, kind)(name, **options)
db.connect()
meta = type("Meta", (), {"database": db})
task = type("Task", (pw.Model,), {"payload": pw.TextField(), "status": pw.CharField(default="R"), "Meta": meta})
db.create_tables([task])
if sys.argv[2]:
    import xq
    xq.upgrade(task, {"status": "status"}, {})
    task.xq.install()
    exec(sys.argv[2])
print(int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())])) / 2**10)
"""


def size(effort: Effort, home: Home) -> Table:
    rows = []
    for i, (name, opens) in enumerate(CONTESTANTS.items()):
        place = Place(home.new(f"size-{i}"))
        with closing(opens(place)) as queue:
            sizes = [place.database.size()]
            for first in range(0, effort.burst, AT_ONCE):
                queue.put_many(min(AT_ONCE, effort.burst - first))
            sizes.append(place.database.size())
            while tasks := queue.take_many(AT_ONCE):
                queue.ack_many(tasks)
            sizes.append(place.database.size())
        rows.append([name, *(f"{(each - sizes[0]) / effort.burst:,.0f}" for each in sizes[1:])])
    return Table(["bytes a task", "ready", "done"], rows)


def memory(effort: Effort, home: Home) -> Table:
    rows = []
    for name, work in PROCESSES.items():
        db = home.new("memory").peewee()
        where = json.dumps([type(db).__name__, db.database, db.connect_params])
        command = [sys.executable, "-c", PROCESS, where, work]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append([name, f"{float(told):.0f}"])
    return Table(["a process", "MiB"], rows)


SECTIONS = [
    Section(
        "size",
        "What a task occupies",
        f"The growth of the database by tasks with a payload of {len(PAYLOAD)} bytes, which were put, taken and acked "
        f"in batches of {AT_ONCE:,}: of SQLite's file, by `pg_database_size`, and of MariaDB's tables and indexes. xq "
        "keeps the done tasks, the floor deletes them. A history has three rows of each. Free space counts.",
        size,
    ),
    Section(
        "memory",
        "What a process occupies",
        "The memory of a process of Python (`ps -o rss`): connected by Peewee alone, after a put by xq, and "
        "after a take.",
        memory,
    ),
]
