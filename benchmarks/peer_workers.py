"""The workers of make bench-peers: xq's and those of other queues, each in a process of its own that works off tasks.

Each is started by the code that its documentation names, and with its defaults where nothing else is said.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote, urlencode

from benchmarks.contestants import PAYLOAD, Existing, Place
from benchmarks.databases import PATIENCE, Home, Postgres
from benchmarks.measure import Numbers, race, spawn
from benchmarks.report import Effort, Table, rate

NORMAL = "PRAGMA synchronous = NORMAL"
TRIED = 10  # tasks, by which is seen whether a worker runs here


class Calls:
    """The handler of each worker: it does nothing but count, and remembers when it was called first and last."""

    def __init__(self) -> None:
        memory = multiprocessing.get_context("fork").RawArray("d", 3)  # shared with processes that a worker forks
        self._memory, self.n, self.at_last = memory, 0, lambda: None

    def expect(self, n: int, at_last: Callable[[], object] = lambda: None) -> None:
        """So many calls; with the last one `at_last` is called."""
        self.n, self.at_last = n, at_last  # type: ignore[assignment]

    def __call__(self, *args: object) -> None:
        self._memory[0] += 1
        if self._memory[0] == 1:
            self._memory[1] = time.perf_counter()
        if self._memory[0] == self.n:
            self._memory[2] = time.perf_counter()
            self.at_last()

    def seconds(self, until: float | None = None) -> float:
        """From the first call to the last, or until a later moment."""
        if self._memory[0] != self.n:
            raise RuntimeError(f"the function was called {self._memory[0]:.0f} times, for {self.n} tasks")
        return (until or self._memory[2]) - self._memory[1]


calls = Calls()
Work = Callable[[Place, int], float]  # puts so many tasks, works them off, returns how many seconds that took


def xq(place: Place, n: int, function: Callable[..., Any] = calls, **options: Any) -> float:
    queue = Existing(place, features={"ttr": 60}).queue
    queue.put_many([{"payload": PAYLOAD}] * n)
    queue.worker(function, **options)
    calls.expect(n)
    queue.run(until_empty=True)
    return calls.seconds()


async def coroutine(task: object) -> None:
    calls(task)


def huey(place: Place, n: int) -> float:
    """Its consumer has no end: SIGINT lets it finish."""
    import huey

    app = huey.SqliteHuey(place.table, filename=place.database.where, timeout=PATIENCE)
    app.storage.conn.execute(NORMAL)  # its threads share one connection; its option fsync= knows FULL and OFF only
    function = app.task(name="work")(lambda payload: calls(payload))
    for _ in range(n):
        function(PAYLOAD)
    calls.expect(n, lambda: os.kill(os.getpid(), signal.SIGINT))
    app.create_consumer().run()
    return calls.seconds()


def django_set_up(place: Place, *apps: str, **settings: Any) -> None:
    import django
    from django.conf import settings as configured

    databases = {"default": place.database.django() | {"CONN_MAX_AGE": None}}
    configured.configure(
        DATABASES=databases,
        INSTALLED_APPS=apps,
        USE_TZ=True,
        SECRET_KEY="of benchmarks",
        LOGGING_CONFIG=None,
        **settings,
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def django_tasks_db(place: Place, n: int) -> float:
    backend = {"BACKEND": "django_tasks_db.DatabaseBackend"}
    django_set_up(place, "django_tasks", "django_tasks_db", TASKS={"default": backend})
    from django.core.management import call_command

    from benchmarks.django_work import counted

    for _ in range(n):
        counted.enqueue(PAYLOAD)
    calls.expect(n)
    call_command("db_worker", batch=True, startup_delay=False, verbosity=0)
    return calls.seconds()


def django_q2(place: Place, n: int) -> float:
    """A cluster of one worker, which has processes that take the tasks and write the results: until all are written."""
    # Retry: it knows no worker's death but by that. Results are kept, as others keep them. Its worker is not replaced
    # within the run, as it is after 500 tasks. The queue before it is as long as in the example of its documentation.
    cluster = {"name": "default", "orm": "default", "workers": 1, "retry": 600, "timeout": 60, "save_limit": 0}
    django_set_up(place, "django_q", Q_CLUSTER={**cluster, "queue_limit": 500, "recycle": n + 1})
    from django.db import connections
    from django_q.cluster import Cluster
    from django_q.models import Success
    from django_q.tasks import async_task

    for _ in range(n):
        async_task("benchmarks.peer_workers.calls", PAYLOAD)
    calls.expect(n)
    connections.close_all()  # what is forked must not share one
    started = Cluster()
    started.start()
    deadline = time.monotonic() + PATIENCE
    while Success.objects.count() < n and time.monotonic() < deadline:
        time.sleep(0.01)
    end = time.perf_counter()
    started.stop()
    return calls.seconds(end)


def procrastinate(place: Place, n: int) -> float:
    import procrastinate

    assert isinstance(place.database, Postgres)
    options = {"options": place.database.options}
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=place.database.where, kwargs=options))

    @app.task(name="work")  # type: ignore[untyped-decorator]
    async def work(payload: str) -> None:
        calls(payload)

    async def main() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            await work.batch_defer_async(*[{"payload": PAYLOAD}] * n)
            calls.expect(n)
            await app.run_worker_async(wait=False)

    asyncio.run(main())
    return calls.seconds()


def pgqueuer(place: Place, n: int) -> float:
    """As its command `pgq run` does, which has uvloop."""
    import asyncpg
    import uvloop
    from pgqueuer import AsyncpgDriver, PgQueuer
    from pgqueuer.types import QueueExecutionMode

    assert isinstance(place.database, Postgres)
    settings = {"synchronous_commit": place.database.synchronous_commit}

    async def main() -> None:
        connection = await asyncpg.connect(place.database.where, server_settings=settings)
        app = PgQueuer(AsyncpgDriver(connection))

        @app.entrypoint("work")  # type: ignore[untyped-decorator]
        async def work(job: object) -> None:
            calls(job)

        await app.qm.queries.install()
        await app.qm.queries.enqueue(["work"] * n, [PAYLOAD.encode()] * n, [0] * n)
        calls.expect(n)
        await app.run(mode=QueueExecutionMode.drain)

    uvloop.run(main())
    return calls.seconds()


@dataclass
class Nothing:
    """A job of awa."""

    payload: str


def awa(place: Place, n: int) -> float:
    """Its worker is in Rust, and calls the coroutine, 32 side by side as xq does beside it."""
    from awa import AsyncClient

    assert isinstance(place.database, Postgres)
    url = f"{place.database.where}?{urlencode({'options': place.database.options}, quote_via=quote)}"

    async def main() -> None:
        client = AsyncClient(url)
        await client.migrate()
        await client.install_queue_storage()
        ended = asyncio.Event()

        @client.task(Nothing, queue="work")  # type: ignore[untyped-decorator]
        async def work(job: object) -> None:
            calls(job)

        await client.enqueue_many_copy([Nothing(PAYLOAD)] * n, queue="work")
        calls.expect(n, ended.set)
        await client.start([("work", 32)])
        await ended.wait()
        await client.shutdown()

    asyncio.run(main())
    return calls.seconds()


DEFAULT = "xq"
OURS: Mapping[str, Work] = {
    DEFAULT: xq,
    "xq, workers=4": partial(xq, workers=4),
    "xq, prefetch=10": partial(xq, prefetch=10),
    "xq, asyncio": partial(xq, function=coroutine, workers=32),
}
PEERS: Mapping[str, Mapping[str, Work]] = {
    "sqlite": {"huey": huey, "django-tasks-db": django_tasks_db, "django-q2": django_q2},
    "postgres": {"procrastinate": procrastinate, "pgqueuer": pgqueuer, "awa": awa},
    "mariadb": {},
    "mysql": {},
}
DISTRIBUTIONS = {"xq": "xq-tables", "awa": "awa-pg"}  # those of the others have their names
REMARKS = {
    DEFAULT: "one thread; a task at a time; statistics and ttr on",
    "xq, workers=4": "four threads; the same",
    "xq, prefetch=10": "one thread; ten tasks at a time; the same",
    "xq, asyncio": "32 coroutines; the same",
    "huey": "one thread; a take deletes the task",
    "django-tasks-db": "`db_worker --batch`; keeps finished tasks",
    "django-q2": "one worker, with processes that take tasks and write results; keeps finished tasks",
    "procrastinate": "one coroutine; a task at a time; keeps finished tasks, writes events",
    "pgqueuer": "takes ten tasks at a time, awaits them side by side; asyncpg, uvloop; moves finished tasks to a log",
    "awa": "32 coroutines, called by a worker in Rust; keeps finished tasks",
}


def in_a_process(work: Work, place: Place, n: int) -> float:
    """The seconds that the work took in a new process. Raises RuntimeError with what went wrong there."""
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_work, args=(theirs, work, place, n))
    process.start()
    theirs.close()
    try:
        if not ours.poll(2 * PATIENCE):
            raise RuntimeError(f"did not end within {2 * PATIENCE} s")
        seconds, error = ours.recv()
    except EOFError:
        seconds, error = 0.0, "the process ended"
    finally:
        process.join(5)
        process.kill()
        process.join()
    if error:
        raise RuntimeError(error)
    return float(seconds)


def _work(pipe: Any, work: Work, place: Place, n: int) -> None:
    logging.disable(logging.WARNING)  # some log each task
    try:
        pipe.send((work(place, n), None))
    except BaseException:
        pipe.send((0.0, traceback.format_exc()))


def workers(durable: bool, effort: Effort, home: Home) -> Table:
    n = 4 * effort.calls
    works = {**OURS, **PEERS[home.engine]}
    told: dict[str, str] = {}
    for name in list(works):
        package, comma, how = name.partition(",")
        try:
            told[name] = f"{package} {version(DISTRIBUTIONS.get(package, package))}{comma}{how}"
            in_a_process(works[name], Place(home.new("tried", durable)), TRIED)
        except (PackageNotFoundError, RuntimeError) as error:
            told[name] = f"{name}: not measured, {str(error).splitlines()[-1]}"
            del works[name]

    def measured(name: str) -> Numbers:
        return {"work": n / in_a_process(works[name], Place(home.new("work", durable)), n)}

    results = race(works, measured, effort.repetitions)
    rows = []
    for name, said in told.items():
        if name in works:
            times = results[name].times(results[DEFAULT], "work")
            rows.append([said, rate(results[name].median("work")), times, REMARKS[name]])
        else:
            rows.append([said, "", "", ""])
    return Table(["", f"{n:,} tasks", "its rate to xq's default", "remarks"], rows)
