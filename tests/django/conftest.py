"""Django, set up once for the process, and databases for its alias "default"."""
# ruff: noqa: E402 (nothing of Django's can be imported before it is set up)

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

pymysql.install_as_MySQLdb()

import django
from django.conf import settings

_apps = itertools.count(1)

if not settings.configured:  # not a module of settings: that would set the time zone of the process
    settings.configure(
        SECRET_KEY="of tests",
        DEBUG=False,
        ALLOWED_HOSTS=["*"],
        USE_TZ=True,
        TIME_ZONE="UTC",
        LOGGING_CONFIG=None,
        ROOT_URLCONF="tests.django.shop.urls",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.messages",
            "django.contrib.staticfiles",
            "xq.adapters.django",
            "tests.django.shop",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        STATIC_URL="/static/",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )
    django.setup()

from django.apps.registry import Apps, apps
from django.core.management import call_command
from django.db import connections, models
from django.test.utils import modify_settings

from tests import conftest, timing
from tests.browser import browser, window  # noqa: F401 (fixtures)
from tests.conftest import SERVERS, database_on
from tests.django.apps import App, installed
from tests.django.sites import manage  # noqa: F401
from tests.servers import Server
from xq.adapters.django import upgrade
from xq.adapters.django.store import DjangoStore
from xq.database.database import _databases
from xq.runtime.queue_maintenance import QueueMaintenance
from xq.testing import Clock

ENGINES = {"sqlite": "sqlite3", "postgres": "postgresql", "mariadb": "mysql", "mysql": "mysql"}


class DjangoDatabase:
    """A fresh database, which the alias "default" is as long as the test runs. It has no tables."""

    def __init__(self, kind: str, settings: Mapping[str, Any], server: Server | None = None) -> None:
        self.kind = kind
        self.server = server
        self.settings = dict(settings)  # an entry of DATABASES

    def migrate(self, *args: str, **options: Any) -> None:
        """Run `manage.py migrate` there."""
        call_command("migrate", *args, verbosity=0, interactive=False, **options)

    def model(self, name: str = "Task", meta: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """A model in a registry of its own, with a field for every role and two of its own, and its table."""
        attributes = {
            "name": models.TextField(null=True),
            "size": models.IntegerField(default=0),
            "status": models.CharField(max_length=10, default="R"),
            "runat": models.FloatField(null=True),
            "deadline": models.FloatField(null=True),
            "priority": models.IntegerField(default=0, null=True),
            "tube": models.CharField(max_length=50, null=True),
            "owner": models.CharField(max_length=64, null=True),
            "attempts": models.IntegerField(default=0),
            "ttl": models.FloatField(null=True),
            "ttr": models.FloatField(null=True),
            "job": models.CharField(max_length=100, null=True),
            "utube": models.CharField(max_length=100, null=True),
            "error": models.TextField(null=True),
            **fields,
        }
        options = {"app_label": f"app{next(_apps)}", "apps": Apps(), "db_table": name.lower(), **(meta or {})}
        body = {key: value for key, value in attributes.items() if value is not None}
        return type(name, (models.Model,), {"__module__": __name__, **body, "Meta": type("Meta", (), options)})

    def create(self, *made: Any) -> None:
        """Make the tables of models."""
        with connections["default"].schema_editor() as editor:
            for model in made:
                editor.create_model(model)


def forget_connections() -> None:
    """Close the connection of this thread, and have what the settings say now count from the next one on."""
    connection = connections["default"]
    connection.in_atomic_block = False
    connection.close()
    del connections["default"]


@contextmanager
def fresh(kind: str, folder: Path) -> Iterator[DjangoDatabase]:
    """A fresh database of a kind, as the alias "default"."""
    where: dict[str, Any] = {"ENGINE": f"django.db.backends.{ENGINES[kind]}"}
    if kind == "sqlite":
        where |= {"NAME": str(folder / "app.db"), "OPTIONS": {"timeout": 20}}
        with _as_default(DjangoDatabase(kind, where)) as db:
            yield db
        return
    with database_on(SERVERS[kind]) as (server, name):
        where |= {"NAME": name, "USER": server.USER, "HOST": server.host, "PORT": str(server.port)}
        options = {"ssl_disabled": True} if ENGINES[kind] == "mysql" else {}
        with _as_default(DjangoDatabase(kind, {**where, "OPTIONS": options}, server)) as db:
            yield db


@contextmanager
def _as_default(database: DjangoDatabase) -> Iterator[DjangoDatabase]:
    # In its place, as Django's own runner names a test's database: all threads look there, at any moment.
    there = connections.settings["default"]
    before = dict(there)
    forget_connections()
    there.update(connections.configure_settings({"default": dict(database.settings)})["default"])
    try:
        yield database
    finally:
        members = [member for database in list(_databases) for member in database.members]
        for queue in members:  # of queues of the database, which no other test knows
            if isinstance(queue, QueueMaintenance) and isinstance(queue.executor.store, DjangoStore):
                queue.stop_maintenance()
        forget_connections()
        there.update(before)
        apps.clear_cache()  # which keeps every registry alive, with its models and the threads that look after them


@contextmanager
def one_more(alias: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """One more alias, with these settings."""
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: dict(settings)})[alias]
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections.settings[alias], connections[alias]


@pytest.fixture(params=ENGINES)
def django_db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DjangoDatabase]:
    """A fresh database of each kind in turn, as the alias "default"."""
    with fresh(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    """The alias of one more database, on SQLite."""
    with one_more("other", {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "other.db")}) as alias:
        yield alias


class Maker(conftest.Maker):
    """Makes queues on the database: `Task = make({"ttl": 10})`."""

    upgrade = staticmethod(upgrade)

    def __init__(self, database: DjangoDatabase, clock: Clock | None) -> None:
        self.database = database
        self.clock = clock

    def model(self, key: Any = None, **attributes: Any) -> Any:
        return self.database.model(**attributes)

    def create(self, model: Any) -> None:
        self.database.create(model)
        model.xq.install()


@pytest.fixture
def make(django_db: DjangoDatabase) -> Maker:
    """Makes queues whose clock is in the test's hand: `Task.xq.clock.tick(5)`."""
    return Maker(django_db, Clock())


@pytest.fixture
@timing.is_for_timing
def make_live(django_db: DjangoDatabase) -> Maker:
    """Makes queues by the database's own clock, for timing tests."""
    return Maker(django_db, None)


@pytest.fixture
def app(django_db: DjangoDatabase, tmp_path: Path) -> Iterator[App]:
    """An app of this test's own, on each database."""
    with installed(tmp_path / "apps") as found:
        yield found


@pytest.fixture
def office(django_db: Any) -> Iterator[Any]:
    """The models of the tests' office, made anew for the database, whose queues are installed."""
    with modify_settings(INSTALLED_APPS={"append": "tests.django.office"}):
        from tests.django.office import models as there

        django_db.create(*(model for model in apps.get_app_config("office").get_models() if not model._meta.proxy))
        for model in (there.Order, there.Parcel, there.Page):
            model.xq.install()
        yield there
        del sys.modules["tests.django.office.models"], apps.all_models["office"]
