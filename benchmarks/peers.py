"""make bench-peers: xq and other queues on the same database, each used as its documentation says.

All have the same durability: a commit does not wait for the disk. Where a peer has no option for that, its own
connection is told.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.bench import CALLS, FLOOR
from benchmarks.contestants import PAYLOAD, Contestant, Existing, Place, floor
from benchmarks.databases import HOMES, PATIENCE, Home, Postgres
from benchmarks.durable import durable
from benchmarks.measure import Opens, race, single_calls
from benchmarks.peer_workers import workers
from benchmarks.report import Effort, Section, Table, rate, run

NORMAL = "PRAGMA synchronous = NORMAL"


class Huey(Contestant):
    """Its worker takes a task out of the table before it runs it: there is nothing to ack, and a crash loses it."""

    def __init__(self, place: Place) -> None:
        import huey

        super().__init__(place)
        logging.getLogger("huey").setLevel(logging.ERROR)
        self.huey = huey.SqliteHuey(place.table, filename=place.database.where, timeout=PATIENCE)
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
        self.queue = litequeue.LiteQueue(place.database.where, queue_name=place.table, timeout=PATIENCE)

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
        folder, file = str(Path(place.database.where).parent), Path(place.database.where).name
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
                    "NAME": place.database.where,
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


class Asynchronous(Contestant):
    """A queue for asyncio programs. An event loop runs for the time of each call."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        assert isinstance(place.database, Postgres)
        self.options = place.database.options
        self.loop = asyncio.new_event_loop()
        self.do(self.open())

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def shut(self) -> None: ...

    def close(self) -> None:
        self.do(self.shut())
        self.loop.close()


class Procrastinate(Asynchronous):
    """What its worker does around the task itself."""

    async def open(self) -> None:
        import procrastinate
        from procrastinate.jobs import Status

        one = {"min_size": 1, "max_size": 1}  # connection of its pool: it has one caller
        connector = procrastinate.PsycopgConnector(
            conninfo=self.place.database.where, kwargs={"options": self.options}, **one
        )
        self.app = procrastinate.App(connector=connector)
        self.work = self.app.task(name="work")(work)
        self.done = Status.SUCCEEDED
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()
        self.worker = await self.app.job_manager.register_worker()

    def put(self, payload: str = PAYLOAD) -> object:
        return self.do(self.work.defer_async(payload=payload))

    def take(self) -> Any:
        return self.do(self.app.job_manager.fetch_job(queues=None, worker_id=self.worker))

    def ack(self, task: Any) -> None:
        self.do(self.app.job_manager.finish_job(task, self.done, delete_job=False))

    def tidy(self) -> None:
        self.do(self.app.job_manager.delete_old_jobs(nb_hours=0))

    async def shut(self) -> None:
        await self.app.close_async()


class PgQueuer(Asynchronous):
    """What its QueueManager does around the task itself, one at a time."""

    async def open(self) -> None:
        import psycopg
        from pgqueuer import Queries
        from pgqueuer.ports.repository import EntrypointExecutionParameter

        self.connection = await psycopg.AsyncConnection.connect(
            self.place.database.where, autocommit=True, options=self.options
        )
        self.queries = Queries.from_psycopg_connection(self.connection)
        self.entrypoints = {"work": EntrypointExecutionParameter(concurrency_limit=0)}
        self.manager = uuid4()
        await self.queries.install()

    def put(self, payload: str = PAYLOAD) -> object:
        return self.do(self.queries.enqueue("work", payload.encode()))

    def take(self) -> Any:
        (task,) = self.do(self.queries.dequeue(1, self.entrypoints, self.manager, None, timedelta(seconds=30)))
        return task

    def ack(self, task: Any) -> None:
        self.do(self.queries.log_jobs([(task, "successful", None)]))

    def tidy(self) -> None:
        self.do(self.queries.clear_queue_log())

    async def shut(self) -> None:
        await self.connection.close()


def work(payload: str) -> None:
    """The task of huey and procrastinate."""


XQ = "xq"
DISTRIBUTIONS = {XQ: "xq-tables"}  # those of the others have their names
OURS: Mapping[str, Opens[Contestant]] = {
    FLOOR: floor,
    XQ: partial(Existing, features={"ttr": 60}),
}
PEERS: Mapping[str, Mapping[str, Opens[Contestant]]] = {
    "sqlite": {"huey": Huey, "litequeue": LiteQueue, "persist-queue": PersistQueue, "django-tasks-db": DjangoTasks},
    "postgres": {"procrastinate": Procrastinate, "pgqueuer": PgQueuer},
}
REMARKS = {
    XQ: "an existing table; statistics and ttr on",
    "huey": "its connection sets NORMAL; a take deletes the task",
    "litequeue": "its own setting",
    "persist-queue": "its connection sets NORMAL; for one process",
    "django-tasks-db": "OPTIONS of Django",
    "procrastinate": "options of its connection; keeps finished tasks, writes events",
    "pgqueuer": "options of its connection; moves finished tasks to its log",
}


def peers(effort: Effort, home: Home) -> Table:
    with ExitStack() as stack:
        queues = {}
        for name, opens in {**OURS, **PEERS[home.engine]}.items():
            queues[name] = opens(Place(home.new(name)))
            stack.callback(queues[name].close)
        results = race(queues, lambda n: single_calls(queues[n], effort.calls, effort.waiting), effort.repetitions)
    rows = []
    for name, of in results.items():
        told = name if name == FLOOR else f"{name} {version(DISTRIBUTIONS.get(name, name))}"
        times = results[XQ].times(of, "cycle", 1)
        rows.append([told, *(rate(of.median(call)) for call in CALLS), times, REMARKS.get(name, "")])
    return Table(["", *CALLS, "xq's cycles to its", "durability, remarks"], rows)


SECTIONS = [
    Section(
        "peers",
        "Other queues",
        "One process with one thread makes one call after the other. Each queue has its own database, and no "
        "commit waits for the disk. Each is used as its documentation says: its put, its take, its ack. For huey "
        "that is running an empty task; for django-tasks-db, procrastinate and pgqueuer it is what their workers "
        "do for a task, without signals, logging and sleeping. Queues that keep finished tasks are pruned between "
        "the repetitions. The sixth column has xq's cycles as a multiple of theirs; the aim is 5.",
        peers,
        tuple(PEERS),
    ),
    Section(
        "peer-workers",
        "Workers of other queues",
        "Tasks are put; then one worker works them off, by a function that does nothing. Each worker is started as "
        "its documentation says, with its defaults, in a new process with a new database; no commit waits for the "
        "disk. The cluster of django-q2 has one worker, queue_limit=500, save_limit=0, and no recycling within the "
        "run. The time is that from the first call of the function to the last one, so the start is not counted; "
        "for django-q2 it ends when all results are written. Nothing is logged. The third column has the rate as a "
        "multiple of that of xq's worker with its defaults (the best / the median of the repetitions).",
        partial(workers, False),
        tuple(HOMES),
    ),
    Section(
        "peer-workers-full",
        "Workers of other queues, and every commit on the disk",
        "As above, but each commit waits for the disk.",
        partial(workers, True),
        ("postgres",),
    ),
    Section(
        "durable",
        "Durable steps beside DBOS",
        "Workflows of five steps that do nothing, one after the other in one thread; no commit waits for the disk. "
        "Those of xq are tasks of a worker, which are put, taken and acked; those of DBOS are called, without a queue.",
        durable,
        ("postgres",),
    ),
]

if __name__ == "__main__":
    run(SECTIONS, "make bench-peers")
