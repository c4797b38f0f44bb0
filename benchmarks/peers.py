"""make bench-peers: xq and other queues on SQLite, each used as its documentation says, with the same durability.

A commit goes to the log of a file in WAL mode with synchronous=NORMAL, whoever makes it. Where a peer has no option
for that, its own connection is told.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.bench import CALLS, FLOOR
from benchmarks.contestants import PATIENCE, PAYLOAD, Contestant, Floor, Place, Xq
from benchmarks.measure import Opens, race, single_calls
from benchmarks.report import Effort, Section, Table, rate, run

NORMAL = "PRAGMA synchronous = NORMAL"


class Huey(Contestant):
    """Its worker takes a task out of the table before it runs it: there is nothing to ack, and a crash loses it."""

    def __init__(self, place: Place) -> None:
        import huey

        super().__init__(place)
        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = huey.SqliteHuey(place.table, filename=str(place.path), timeout=PATIENCE)
        self.huey.storage.conn.execute(NORMAL)  # its option fsync= knows FULL and OFF only
        self.work = self.huey.task()(work)

    def put(self, payload: str = PAYLOAD) -> object:
        return self.work(payload)

    def take(self) -> Any:
        return self.huey.dequeue()

    def ack(self, task: Any) -> None:
        self.huey.execute(task)

    def close(self) -> None:
        self.huey.storage.close()


class LiteQueue(Contestant):
    def __init__(self, place: Place) -> None:
        import litequeue

        super().__init__(place)
        # It sets WAL and NORMAL itself.
        self.queue = litequeue.LiteQueue(place.path, queue_name=place.table, timeout=PATIENCE)

    def put(self, payload: str = PAYLOAD) -> object:
        return self.queue.put(payload)

    def take(self) -> Any:
        return self.queue.pop()

    def ack(self, task: Any) -> None:
        self.queue.done(task.message_id)

    def tidy(self) -> None:
        self.queue.prune()

    def close(self) -> None:
        self.queue.conn.close()


class PersistQueue(Contestant):
    def __init__(self, place: Place) -> None:
        import persistqueue

        super().__init__(place)
        folder, file = str(place.path.parent), place.path.name
        self.queue = persistqueue.SQLiteAckQueue(folder, name=place.table, db_file_name=file, timeout=PATIENCE)
        self.queue._putter.execute(NORMAL)  # no option for it; SQLite's own default is FULL

    def put(self, payload: str = PAYLOAD) -> object:
        return self.queue.put(payload)

    def take(self) -> Any:
        return self.queue.get(block=False, raw=True)

    def ack(self, task: Any) -> None:
        self.queue.ack(task)

    def tidy(self) -> None:
        self.queue.clear_acked_data(max_delete=1_000_000, keep_latest=0)

    def close(self) -> None:
        self.queue.close()


class DjangoTasks(Contestant):
    """What its worker does around the task itself, without its signals, its logging and its sleeping."""

    def __init__(self, place: Place) -> None:
        import django
        from django.conf import settings

        super().__init__(place)
        settings.configure(
            INSTALLED_APPS=["django_tasks", "django_tasks_db"],
            TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.sqlite3",
                    "NAME": str(place.path),
                    "OPTIONS": {
                        "timeout": PATIENCE,
                        "transaction_mode": "IMMEDIATE",
                        "init_command": f"PRAGMA journal_mode = WAL; {NORMAL}",
                    },
                }
            },
            USE_TZ=True,
        )
        django.setup()
        from django.core.management import call_command
        from django_tasks_db.models import DBTaskResult
        from django_tasks_db.utils import exclusive_transaction

        from benchmarks.django_work import work

        call_command("migrate", verbosity=0)
        self.work = work
        self.results = DBTaskResult.objects
        self.exclusive = exclusive_transaction

    def put(self, payload: str = PAYLOAD) -> object:
        return self.work.enqueue(payload)

    def take(self) -> Any:
        ready = self.results.ready().filter(backend_name="default").filter(queue_name__in=["default"])
        with self.exclusive(ready.db):
            found = ready.get_locked()
            if found is not None:
                found.claim("a worker")
        return found

    def ack(self, task: Any) -> None:
        task.set_successful(None)

    def tidy(self) -> None:
        self.results.finished().delete()  # as its command prune_db_task_results does

    def close(self) -> None:
        from django.db import connection

        connection.close()


def work(payload: str) -> None:
    """The task of huey."""


XQ = "xq"
DISTRIBUTIONS = {XQ: "xq-tables"}  # those of the others have their names
CONTESTANTS: Mapping[str, Opens[Contestant]] = {
    FLOOR: Floor,
    XQ: partial(Xq, roles=("owner", "runat"), features={"ttr": 60}),
    "huey": Huey,
    "litequeue": LiteQueue,
    "persist-queue": PersistQueue,
    "django-tasks-db": DjangoTasks,
}
REMARKS = {
    XQ: "statistics and ttr on",
    "huey": "NORMAL told to its connection; a taken task is gone",
    "litequeue": "its own setting",
    "persist-queue": "NORMAL told to its connection; for one process",
    "django-tasks-db": "OPTIONS of Django",
}


def peers(effort: Effort, folder: Path) -> Table:
    with ExitStack() as stack:
        queues = {}
        for i, (name, opens) in enumerate(CONTESTANTS.items()):
            queues[name] = opens(Place(folder / "peers.db", f"task_{i}"))
            stack.callback(queues[name].close)
        results = race(queues, lambda n: single_calls(queues[n], effort.calls, effort.waiting), effort.repetitions)
    rows = []
    for name, of in results.items():
        told = name if name == FLOOR else f"{name} {version(DISTRIBUTIONS.get(name, name))}"
        ours = results[XQ]
        times = f"{ours.best('cycle') / of.best('cycle'):.1f} / {ours.median('cycle') / of.median('cycle'):.1f}"
        rows.append([told, *(rate(of.median(call)) for call in CALLS), times, REMARKS.get(name, "")])
    return Table(["", *CALLS, "xq's cycles to its", "durability, remarks"], rows)


SECTIONS = [
    Section(
        "peers",
        "Other queues on SQLite",
        "One process, one thread, one call after the other, in one file in WAL mode with `synchronous=NORMAL` for all; "
        "each used as its documentation says, its put, its take, its ack (huey: running an empty task; "
        "django-tasks-db: what its worker does around one, without signals, logging and sleeping). What is done is "
        "pruned between the repetitions by those that keep it. The sixth column says how many times as many cycles "
        "xq makes; the aim is 5.",
        peers,
    )
]

if __name__ == "__main__":
    run(SECTIONS, "make bench-peers")
