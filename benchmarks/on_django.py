"""make bench-django: Django's seam beside Peewee's, and the workers of Django beside each other."""

from __future__ import annotations

import logging
import multiprocessing
import queue as plain
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from typing import Any

from benchmarks.bench import CALLS, EVERYTHING, opened
from benchmarks.contestants import PAYLOAD, OfXq, Place, UnattendedMoves, Xq, model
from benchmarks.databases import Home
from benchmarks.measure import Numbers, Opens, Series, behind, race, single_calls, spawn, timed
from benchmarks.report import Effort, Section, Table, rate, run

BATCH = 100
_numbers = count(1)


def set_up(databases: Mapping[str, Any], **options: Any) -> None:
    """Configure Django, once for the process. Connections stay open: else some of these open one for each task."""
    from django.conf import settings

    if not settings.configured:
        import django

        stays = {"CONN_MAX_AGE": None}
        entries = {alias: {**entry, **stays} for alias, entry in databases.items()}
        settings.configure(DATABASES=entries, USE_TZ=True, TIME_ZONE="UTC", SECRET_KEY="of benchmarks", **options)
        django.setup()


def made(place: Place) -> Any:
    """A model of Django, on an alias that its app is called like, and its table."""
    set_up({})
    from django.apps.registry import Apps
    from django.db import connections, models

    alias = f"bench{next(_numbers)}"
    entry = place.database.django() | {"CONN_MAX_AGE": None}
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: entry})[alias]

    class Task(models.Model):
        payload = models.TextField()
        status = models.CharField(max_length=255, default="R")
        priority = models.IntegerField(default=0)
        owner = models.TextField(null=True)
        runat = models.FloatField(null=True)
        attempts = models.IntegerField(default=0)
        tube = models.TextField(null=True)
        utube = models.CharField(max_length=255, null=True)

        class Meta:
            app_label, apps, db_table = alias, Apps(), place.table

    with connections[alias].schema_editor() as editor:
        editor.create_model(Task)
    return Task


def forget(model: Any) -> None:
    """Close the connection, and let go of the registry, which is kept alive by a cache, with the models' threads."""
    from django.db import connections

    connections[model._meta.app_label].close()
    del connections[model._meta.app_label]
    model._meta.apps.clear_cache()


class OnPeewee(Xq):
    """As Xq, on a table that Django has made, with what that has more: SQLite's AUTOINCREMENT, say."""

    def __init__(self, place: Place, **options: Any) -> None:
        forget(made(place))
        super().__init__(place, **options)


class OnDjango(OfXq):
    """As Xq, on a model of Django."""

    def __init__(self, place: Place, roles: Sequence[str] = (), features: Mapping[str, Any] | None = None) -> None:
        super().__init__(place)
        from xq.adapters.django import upgrade

        table = made(place)
        mapped = {role: role for role in ("status", "priority", *roles)}
        self.queue = upgrade(table, mapped, features or {}, using=table._meta.app_label)
        self.queue.install()
        self.queue.stats()  # the first call looks whether all is installed

    def close(self) -> None:
        forget(self.queue.model)


class OnSqlalchemy(OfXq):
    """As Xq, on a mapped class of SQLAlchemy: each call asks the engine's pool for a connection."""

    def __init__(self, place: Place, roles: Sequence[str] = (), features: Mapping[str, Any] | None = None) -> None:
        super().__init__(place)
        from sqlalchemy import create_engine

        from tests.sqlalchemy.maker import engine_of, mapped
        from xq.adapters.sqlalchemy import upgrade

        self.db = place.database.peewee()
        table = model(self.db, place.table)
        self.db.create_tables([table])
        if (where := place.database.where).startswith("postgresql"):  # Peewee has the URL as it is
            given = {"options": f"-c synchronous_commit={'on' if place.database.durable else 'off'}"}
            self.engine = create_engine(where.replace("://", "+psycopg://", 1), connect_args=given)
        else:
            self.engine = engine_of(self.db)
        fields = {role: role for role in ("status", "priority", *roles)}
        self.queue = upgrade(mapped(table), fields, features or {}, engine=self.engine)
        self.queue.install()
        self.queue.stats()

    def close(self) -> None:
        self.db.close()
        self.engine.dispose()


# the seam

BARE: Mapping[str, Any] = {"roles": ("owner", "runat"), "features": {"ttr": 60}}
PAIRS: Mapping[str, Mapping[str, Any]] = {"": BARE, ", everything on": EVERYTHING}
SEAMS: Mapping[str, type[UnattendedMoves]] = {"Peewee": OnPeewee, "Django": OnDjango}
ORMS: Mapping[str, type[UnattendedMoves]] = {**SEAMS, "SQLAlchemy": OnSqlalchemy}


def seam(effort: Effort, home: Home) -> Table:
    def measured(queue: UnattendedMoves) -> Numbers:
        found = dict(single_calls(queue, effort.calls, effort.waiting))
        rounds = max(3, effort.calls // BATCH)
        with behind(queue, effort.waiting):
            found["put many"] = rounds * BATCH / sum(timed(lambda: queue.put_many(BATCH)) for _ in range(rounds))
            start = time.perf_counter()
            taken = [queue.take_many(BATCH) for _ in range(rounds)]
            found["take many"] = rounds * BATCH / (time.perf_counter() - start)
            start = time.perf_counter()
            for tasks in taken:
                queue.ack_many(tasks)
            found["ack many"] = rounds * BATCH / (time.perf_counter() - start)
        return found

    kinds: dict[str, Opens[UnattendedMoves]] = {
        f"{orm}{which}": partial(opens, **options) for which, options in PAIRS.items() for orm, opens in ORMS.items()
    }
    with ExitStack() as stack:
        queues = opened(stack, kinds, home)
        results = race(queues, lambda name: measured(queues[name]), effort.repetitions)
    columns = [*CALLS, "put many", "take many", "ack many"]
    rows = [[name, *(cell(results, name, what) for what in columns)] for name in results]
    return Table(["", *columns], rows)


def cell(results: Mapping[str, Series], name: str, what: str) -> str:
    """A rate; for another ORM how many times as long it took as Peewee, by the best and by the median."""
    of, to = results[name], results[name.replace(name.split(",")[0], "Peewee")]
    times = f"{to.times(of, what)} · " if of is not to else ""
    return f"{times}{rate(of.median(what))}"


# the workers


class Worked(ABC):
    """Something that runs functions for Django, by one worker."""

    @abstractmethod
    def __init__(self, place: Place) -> None:
        """In this database, to which Django is set up already."""

    @abstractmethod
    def enqueue(self) -> object: ...

    @abstractmethod
    def work(self) -> None:
        """Until nothing is left."""


class Rows(Worked):
    """A queue of an app's own rows, which are acked when they are done."""

    def __init__(self, place: Place) -> None:
        self.queue = OnDjango(place, **BARE).queue
        self.queue.worker(lambda task: None)

    def enqueue(self) -> object:
        return self.queue.put({"payload": PAYLOAD})

    def work(self) -> None:
        self.queue.run(until_empty=True)


class Tasks(Worked):
    """django.tasks, by the backend of xq."""

    def __init__(self, place: Place) -> None:
        from benchmarks.django_work import work
        from xq.adapters.django.tasks.worker import run as run_tasks

        self.task = work
        self.run = run_tasks

    def enqueue(self) -> object:
        return self.task.enqueue(PAYLOAD)

    def work(self) -> None:
        self.run(queues=None, workers=1, until_empty=True)


class TheirTasks(Worked):
    """django.tasks, by the backend of django-tasks-db."""

    backend = "django-tasks-db"

    def __init__(self, place: Place) -> None:
        from benchmarks.django_work import work

        self.task = work.using(backend=self.backend)

    def enqueue(self) -> object:
        return self.task.enqueue(PAYLOAD)

    def work(self) -> None:
        from django_tasks_db.management.commands.db_worker import Worker

        Worker(
            queue_names=["default"],
            excluded_queue_names=[],
            interval=0,
            batch=True,
            backend_name="django-tasks-db",
            startup_delay=False,
            max_tasks=None,
            worker_id="worker",
        ).run()


class Ox(TheirTasks):
    """django.tasks, by the backend of django-ox, which needs Python 3.12."""

    backend = "django-ox"

    def work(self) -> None:
        from django_ox.worker import Worker

        Worker(backend_alias=self.backend, batch=True).run()


class DjangoQ(Worked):
    """What its processes do, one after the other, without the queues between them and the sleep that ends them."""

    def __init__(self, place: Place) -> None:
        from django_q.brokers import get_broker

        self.broker = get_broker()
        self.left = 0

    def enqueue(self) -> object:
        from django_q.tasks import async_task

        self.left += 1
        return async_task("benchmarks.django_work.nothing", PAYLOAD, broker=self.broker)

    def work(self) -> None:
        from django_q.monitor import monitor
        from django_q.signing import SignedPackage
        from django_q.worker import worker

        tasks: plain.Queue[Any] = plain.Queue()
        results: plain.Queue[Any] = plain.Queue()
        while self.left:
            for key, packed in self.broker.dequeue():
                self.left -= 1
                tasks.put(SignedPackage.loads(packed) | {"cluster": "default", "ack_id": key})
        tasks.put("STOP")
        worker(tasks, results, multiprocessing.Value("f", -1))
        results.put("STOP")
        monitor(results, self.broker)


OURS = "xq, a model's own rows"
WORKERS: Mapping[str, type[Worked]] = {
    OURS: Rows,
    "default": Tasks,  # the names are those of their databases, and of their backends
    "django-tasks-db": TheirTasks,
    "django-q2": DjangoQ,
}
NAMES = {OURS: OURS, "default": "xq, django.tasks"}
DATABASES = {"django_tasks_database": "django-tasks-db", "django_q": "django-q2"}  # by the label of the app
APPS: tuple[str, ...] = (
    "xq.adapters.django",
    "xq.adapters.django.tasks",
    "django_tasks",
    "django_tasks_db",
    "django_q",
)
BACKENDS = {"default": "xq.adapters.django.tasks.XQBackend", "django-tasks-db": "django_tasks_db.DatabaseBackend"}
if find_spec("django_ox"):
    WORKERS, DATABASES = {**WORKERS, "django-ox": Ox}, {**DATABASES, "django_ox": "django-ox"}
    APPS, BACKENDS = (*APPS, "django_ox"), {**BACKENDS, "django-ox": "django_ox.backend.OxBackend"}


class Router:
    """Each of the apps has a database of its own."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return DATABASES.get(model._meta.app_label)

    db_for_read = db_for_write

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == DATABASES.get(app_label, "default")


def worked(effort: Effort, places: Mapping[str, Place]) -> dict[str, Series]:
    """What a process of its own measures: Django knows its databases from the beginning."""
    set_up(
        {name: place.database.django() for name, place in places.items() if name != OURS},
        INSTALLED_APPS=APPS,
        DATABASE_ROUTERS=[Router()],
        TASKS={name: {"BACKEND": path} for name, path in BACKENDS.items()},
        # Retry: it knows no worker's death but by that. Results are kept, as the others keep them.
        Q_CLUSTER={"name": "default", "orm": "django-q2", "retry": 600, "timeout": 60, "save_limit": 0},
        LOGGING_CONFIG=None,
    )
    from django.core.management import call_command

    for name in ("django-q", "django_ox", "django_tasks", "django_tasks_db", "xq"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in places:
        if name != OURS:
            call_command("migrate", database=name, verbosity=0)
    all_of_them = {name: kind(places[name]) for name, kind in WORKERS.items()}

    def measured(name: str) -> Numbers:
        places[name].database.settle()
        here = all_of_them[name]
        enqueued = timed(lambda: [here.enqueue() for _ in range(effort.calls)])
        done = timed(here.work)
        n = effort.calls
        return {"enqueue": n / enqueued, "work": n / done, "both": n / (enqueued + done)}

    return race(all_of_them, measured, effort.repetitions)


def workers(effort: Effort, home: Home) -> Table:
    places = {name: Place(home.new(f"queue-{i}")) for i, name in enumerate(WORKERS)}
    with spawn.Pool(1) as pool:
        results = pool.apply(worked, (effort, places))
    rows = []
    for name, of in results.items():
        told = NAMES.get(name) or f"{name} {version(name)}"
        times = results["default"].times(of, "both", 1)
        rows.append([told, *(rate(of.median(what)) for what in ("enqueue", "work", "both")), times])
    return Table(["", "enqueue", "work", "both", "xq's django.tasks to it"], rows)


SECTIONS = [
    Section(
        "orms",
        "Models of Django",
        "The same queue on a Peewee model and on a Django model, each on a table that Django has created, and on a "
        f"mapped class of SQLAlchemy, in the same run: single calls, and batches of {BATCH}. Beside the others' rates "
        "stands their time as a multiple of Peewee's; the aims are 1.3, and 1.4 for SQLAlchemy.",
        seam,
    ),
]
PEERS = Section(
    "django-peers",
    "Workers of Django",
    "One process puts tasks that do nothing, and then runs one worker until none is left. Each queue has its own "
    "database, with connections that stay open (CONN_MAX_AGE=None). Results are kept, but the model's own rows are "
    "deleted. For django-q2 (ORM broker) the work of its processes runs one after the other, without the queues "
    "between them; for the others their whole worker runs. The last column has the rate of xq's django.tasks as a "
    "multiple of theirs.",
    workers,
    ("sqlite", "postgres"),
)

if __name__ == "__main__":
    run([*SECTIONS, PEERS], "make bench-django")
