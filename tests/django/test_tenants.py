"""Tenants with a schema each: django-tenants, in projects of their own on PostgreSQL."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import database_on
from tests.django.apps import Project
from tests.project.test_docs import ROOT, check_walk, shell
from tests.servers import Postgres
from tests.timing import in_sequence

CUSTOMERS = """
from django_tenants.models import DomainMixin, TenantMixin
class Customer(TenantMixin):
    pass
class Domain(DomainMixin):
    pass
"""
QUEUE = """
from django.db import models
from xq.adapters.django import TaskFields, queue
@queue(features={{"keep": True, "buried": True, "delayed": True}})
class {name}(TaskFields, models.Model):
    note = models.TextField()
"""
BEGIN = """
import asyncio, json, threading
import django
django.setup()
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.apps import apps
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django_tenants.utils import schema_context
import xq
Mail, Letter = (apps.is_installed(app) and apps.get_model(app, name) for app, name in
    (("mail", "Mail"), ("letters", "Letter")))
def notes(table):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT note FROM {table} ORDER BY id")
        return [note for note, in cursor.fetchall()]
def refusal(call):
    try:
        call()
    except xq.Error as error:
        return [type(error).__name__, str(error)]
def tell(*found):
    print(json.dumps(found))
"""


@in_sequence
def run(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, text=True)


def manage(project: Project, *words: str) -> str:
    """Run a command of Django, and return what it prints."""
    ran = run(project, "-m", "django", *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


class Tenants(Project):
    """A project with the tenants acme and bolt: `mail` is an app with a queue in SHARED_APPS, `letters` in TENANT_APPS.

    `then` is not installed before the tenants are there.
    """

    def __init__(self, folder: Path, name: str, server: Any, *apps: str, then: str = "") -> None:
        database = {"ENGINE": "django_tenants.postgresql_backend", "NAME": name, "USER": server.USER}
        database |= {"HOST": server.host, "PORT": str(server.port)}
        self.settings(folder, database, *apps)
        self.write("customers/models.py", CUSTOMERS)
        for app, model in {"mail": "Mail", "letters": "Letter"}.items():
            self.write(f"{app}/models.py", QUEUE.format(name=model))
        for app in ("customers", "mail", "letters"):
            self.write(f"{app}/__init__.py", "")
        manage(self, "makemigrations", "customers", *apps)
        manage(self, "migrate_schemas", "--shared")
        self.told("""
from customers.models import Customer
for name in ("acme", "bolt"):
    Customer(schema_name=name).save(verbosity=0)
""")
        if then:
            self.settings(folder, database, *apps, then)
            manage(self, "makemigrations", then)

    def settings(self, folder: Path, database: dict[str, str], *apps: str) -> None:
        shared = ["django_tenants", "customers", "xq.adapters.django", *({"mail"} & {*apps})]
        own = ["django.contrib.contenttypes", *({"letters"} & {*apps})]
        super().__init__(
            folder,
            database,
            *shared,
            *own,
            SHARED_APPS=shared,
            TENANT_APPS=own,
            TENANT_MODEL="customers.Customer",
            TENANT_DOMAIN_MODEL="customers.Domain",
            DATABASE_ROUTERS=["django_tenants.routers.TenantSyncRouter"],
        )

    def told(self, program: str) -> Any:
        """Run a program, and return what it has told."""
        ran = run(self, "-c", BEGIN + program)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout or "null")


@contextmanager
def project(folder: Path, *apps: str, then: str = "") -> Iterator[Tenants]:
    with database_on(Postgres) as (server, name):
        yield Tenants(folder, name, server, *apps, then=then)


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A project with a queue in each schema."""
    with project(tmp_path_factory.mktemp("each"), "letters") as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A project with a queue in the shared schema."""
    with project(tmp_path_factory.mktemp("shared"), "mail") as made:
        yield made


def test_a_put_goes_into_the_schema_that_django_would_write_to_in_any_thread_and_coroutine(each):
    found = each.told("""
def put(name, *notes):
    with schema_context(name):  # and nothing else that asks for a cursor
        for note in notes:
            Letter.put({"note": note})

def work(name):
    put(name, *["in a thread"] * 30)
    connections.close_all()

put("acme", "first")
put("bolt", "second")
put("acme", "third")
try:
    with transaction.atomic():
        put("bolt", "rolled back")
        raise KeyError
except KeyError:
    put("acme", "fourth")
async def awaited(name):
    async with ThreadSensitiveContext():  # as a request has one
        await sync_to_async(lambda: connection.set_schema(name))()
        await Letter.xq.aio.put({"note": "awaited"})
        await sync_to_async(connections.close_all)()

async def all_at_once():
    await asyncio.gather(*(awaited(name) for name in ("acme", "bolt") * 5))

asyncio.run(all_at_once())
threads = [threading.Thread(target=work, args=[name]) for name in ("acme", "bolt") * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
counts = []
for name in ("acme", "bolt"):
    with schema_context(name):
        Letter.kill(Letter.objects.filter(note="awaited")[0])
        counts.append([Letter.stats().counts["R"], Letter.xq.check()])
tell(notes("acme.letters_letter"), notes("bolt.letters_letter"), *counts)
""")
    others = [*["awaited"] * 4, *["in a thread"] * 60]
    assert found == [["first", "third", "fourth", *others], ["second", *others], [67, []], [65, []]]


def test_what_needs_connections_of_the_process_is_refused_by_name_in_a_tenants_schema(each):
    found = each.told("""
with schema_context("acme"):
    letter = Letter.put({"note": "x"})
    calls = [Letter.take, lambda: Letter.xq.wait(letter.pk, timeout=1), Letter.xq.session, letter.kill]
    found = [refusal(call) for call in calls]
found += [refusal(Letter.take), refusal(lambda: Letter.put({}))]
Letter.xq.worker(print, max_attempts=1)
with schema_context("acme"):
    found.append(refusal(lambda: Letter.xq.run(until_empty=True)))
tell(*found)
""")
    *apart, killed, taken, put, worked = found
    assert [name for name, _ in apart] == ["ConfigurationError"] * 3
    assert all("in the schema acme a queue has no takes, waits and workers" in text for _, text in apart)
    assert killed is None
    assert [name for name, _ in (taken, put, worked)] == ["NotInstalled"] * 3
    assert all("in the schema public. Where each tenant's schema has one: " in text for _, text in (taken, put, worked))


def test_a_definition_is_checked_in_each_schema(each):
    found = each.told("""
with schema_context("bolt"):
    Letter.xq.uninstall()
found = []
for name in ("acme", "bolt", "acme"):
    with schema_context(name):
        found.append(refusal(lambda: Letter.put({"note": "x"})))
with schema_context("bolt"):
    Letter.xq.install()
    found.append(refusal(lambda: Letter.put({"note": "x"})))
tell(*found)
""")
    acme, (refused, _), again, bolt = found
    assert (acme, refused, again, bolt) == (None, "NotInstalled", None, None)


def test_a_call_asks_the_backend_for_a_cursor_once_and_its_observers_see_each_statement(shared):
    found = shared.told("""
from xq.core import time as clocks

def seen(call):
    with CaptureQueriesContext(connection) as queries:
        call()
    return [query["sql"].split()[0] for query in queries.captured_queries]

def observe(execute, sql, values, many, context):
    observed.append(sql.split()[0])
    return execute(sql, values, many, context)

observed = []
clocks.monotonic = lambda now=clocks.monotonic(): now  # once a second calls look at the installation and for due tasks
with schema_context("acme"):
    Mail.put({"note": "the first call checks the installation"})
    Mail.take()
    found = [seen(lambda: Mail.put({"note": "x"})), seen(Mail.take)]
    with connection.execute_wrapper(observe):
        Mail.put({"note": "y"})
tell(*found, observed)
""")
    assert found == [["SET", "INSERT"], ["SET", "UPDATE"], ["SET", "INSERT"]]


def test_a_shared_queue_is_one_for_all_tenants_with_its_workers(shared):
    found = shared.told("""
for name in ("acme", "bolt"):
    with schema_context(name), transaction.atomic():
        Mail.put({"note": name})
done = []
@Mail.xq.worker(max_attempts=1)
def work(mail):
    connection.set_schema("bolt")  # and it does not come back
    done.append(mail.note)
with schema_context("acme"):
    Mail.xq.run(until_empty=True)
tell(sorted(done)[:1], Mail.stats().counts["R"], Mail.xq.check(), len(vars(connections)["_xq_databases"]))
""")
    assert found == [["acme"], 0, [], 1]


@pytest.mark.parametrize("apps", [("mail", "letters"), ("letters", "mail")])
def test_queues_in_the_shared_schema_and_in_those_of_tenants_are_refused_by_migrate(tmp_path, apps):
    with project(tmp_path, apps[0], then=apps[1]) as made:
        ran = run(made, "-m", "django", "migrate_schemas")
        assert ran.returncode == 1
        assert "the apps of all queues belong into one schema" in ran.stderr.splitlines()[-1]
        found = made.told("""
found = []
for name in ("acme", "bolt"):
    with schema_context(name):
        found += [refusal(lambda: Mail.put({"note": "x"})), refusal(lambda: Letter.put({"note": "x"}))]
tell(*found)
""")
        mail, letter = found[::2], found[1::2]
        (refused, allowed) = (mail, letter) if apps[0] == "letters" else (letter, mail)
        assert all("belong into one schema" in error[1] for error in refused[:1])
        assert set(map(str, allowed)) == {"None"}


@pytest.mark.parametrize("apps", [("pgtrigger", "xq.adapters.django"), ("xq.adapters.django", "pgtrigger")])
def test_makemigrations_finds_a_queue_beside_the_triggers_of_django_pgtrigger(tmp_path, apps):
    with database_on(Postgres) as (server, name):
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": name, "USER": server.USER}
        made = Project(tmp_path, {**database, "HOST": server.host, "PORT": str(server.port)}, *apps, "mail")
        meta = "class Meta:\n        triggers = [pgtrigger.Protect(name='kept', operation=pgtrigger.Delete)]\n"
        made.write("mail/models.py", "import pgtrigger\n" + QUEUE.format(name="Mail") + f"    {meta}")
        made.write("mail/__init__.py", "")
        manage(made, "makemigrations", "mail")
        manage(made, "migrate")
        said = manage(made, "makemigrations", "--check") + manage(made, "check", "--database", "default")
        assert "No changes detected" in said
        assert "no issues" in said
        text = "".join(path.read_text() for path in (tmp_path / "mail/migrations").glob("0*.py"))
        assert ("AddTrigger" in text, "InstallQueue" in text) == (True, True)


def test_the_page_on_tenants_runs_with_two_of_them_and_prints_what_it_shows(tmp_path):
    text = re.sub("<!-- not run: .* -->\n", "", (ROOT / "docs/howto/tenants.md").read_text())
    with database_on(Postgres) as (server, name), database_on(Postgres) as (_, another):
        shell("django-admin startproject mysite .", tmp_path)
        for app in ("customers", "mail", "shop", "letters"):
            (tmp_path / app).mkdir()
            (tmp_path / app / "__init__.py").touch()
        where = f'"HOST": "{server.host}", "PORT": "{server.port}", "USER": "{server.USER}"'
        text = text.replace('"NAME": "app"', f'"NAME": "{name}", {where}').replace('"each"', f'"{another}"')
        check_walk(text, tmp_path)
