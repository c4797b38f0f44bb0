"""Queues in the tests of an application: Django's test cases, and pytest-django."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.conftest import SERVERS

ROOT = Path(__file__).resolve().parent.parent.parent

SETTINGS = """
import pymysql
pymysql.install_as_MySQLdb()
SECRET_KEY = "of tests"
DATABASES = {"default": DATABASE}
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "xq.adapters.django", "xq.adapters.django.tasks", "shop",
]
TASKS = {"default": {"BACKEND": "xq.adapters.django.tasks.XQBackend"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""

MODELS = """
from django.db import models
from xq.adapters.django import queue

@queue({"status": "status", "runat": "runat"}, {"delayed": True, "buried": True, "keep": True, "history": True})
class Order(models.Model):
    name = models.CharField(max_length=50)
    status = models.CharField(max_length=10, default="R")
    runat = models.FloatField(null=True)
"""

MIGRATION = """
from django.db import migrations, models
from xq.adapters.django.migrations import InstallQueue

class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField(primary_key=True)),
            ("name", models.CharField(max_length=50)),
            ("status", models.CharField(max_length=10, default="R")),
            ("runat", models.FloatField(null=True)),
        ]),
        InstallQueue("Order"),
    ]
"""

CASES = """
import threading
from contextlib import suppress

from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, TransactionTestCase
from django_tasks import task
from shop.models import Order
from xq.adapters.django.tasks.models import Task
from xq.testing import run_pending

@task
def order(name):
    with transaction.atomic():
        Order.put({"name": name})

def round():
    assert Order.stats().counts["D"] == Order.stats().transition.get("X-R", 0) == 0
    found = Order.xq.check()
    assert found == [] or connection.vendor == "sqlite" and "journal" in str(found), found
    Order.put({"name": "a"})
    with transaction.atomic():
        Order.put({"name": "b"})
    assert [Order.ack(Order.take()).name for _ in range(2)] == ["a", "b"]
    assert Order.stats().transition["X-R"] == 2
    assert Order.take() is None

class InATransaction(TestCase):
    @classmethod
    def setUpTestData(cls):
        Order.put({"name": "data"}, delay=1000)

    def test_one(self):
        Order.xq.kill(Order.objects.get())
        Order.xq.reset()
        round()

    test_another = test_one

    def test_tasks_of_django_run_in_its_transaction(self):
        result = order.enqueue("by a task")
        assert run_pending(Task, raises=True) == 1
        result.refresh()
        assert result.is_finished and result.attempts == 1, result.errors
        assert Order.objects.filter(name="by a task").exists()
        assert Order.objects.filter(name="data").exists()

    def test_a_function_that_breaks_the_transaction_ends_run_pending(self):
        def breaks(order):
            with suppress(IntegrityError):
                Order.objects.create(pk=order.pk)

        Order.xq.worker(breaks)
        Order.put({"name": "a"})
        with self.assertRaises(TransactionManagementError):
            run_pending(Order)

    def test_a_worker_with_threads_is_refused_and_told_what_works_here(self):
        with self.assertRaisesRegex(CommandError, "xq.testing.run_pending .* TransactionTestCase"):
            call_command("xq_worker", until_empty=True)

class WithCommits(TransactionTestCase):
    def test_one(self):
        round()

    test_another = test_one

    def test_a_worker(self):
        done = []
        Order.xq.worker(lambda order: done.append(order.name))
        Order.xq.put_many([{"name": "a"}, {"name": "b"}])
        Order.xq.run(until_empty=True)
        assert sorted(done) == ["a", "b"]

    def test_a_put_wakes_who_waits(self):
        found = []
        def wait():
            found.append(Order.take(60).name)
            connection.close()
        waiting = threading.Thread(target=wait)
        waiting.start()
        Order.put({"name": "late"})
        waiting.join()
        assert found == ["late"]
"""

WITH_PYTEST = """
import pytest
from shop.cases import round

@pytest.mark.django_db
def test_one():
    round()

@pytest.mark.django_db
def test_another():
    round()

@pytest.mark.django_db(transaction=True)
def test_with_commits():
    round()

@pytest.mark.django_db(transaction=True)
def test_with_commits_again():
    round()

@pytest.mark.django_db
def test_orders_are_worked_on_in_the_transaction_of_the_test(xq_clock, run_pending, assert_put):
    from shop.models import Order

    clock, seen = xq_clock(Order), []
    Order.xq.worker(lambda order: seen.append(order.name))
    Order.put({"name": "late"}, delay=60)
    assert assert_put(Order, name="late")[0].status == "W"
    assert run_pending(Order) == 0
    clock.tick(60)
    assert run_pending(Order) == 1
    assert seen == ["late"]
"""


PLUGINS = [f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "factoryboy")]  # which take their time


@pytest.fixture
def project(django_db, tmp_path):
    """Runs a program in a project on the server of this database, whose tests have a database of their own there."""
    more: dict[str, Any]
    if django_db.kind == "sqlite":
        more = {"TEST": {"NAME": str(tmp_path / "test.db")}}
    else:
        more = {
            "USER": SERVERS[django_db.kind].ADMINISTRATOR[0],
            "TEST": {"NAME": f"{django_db.settings['NAME']}_tests"},
        }
    settings = django_db.settings | more
    files = {
        "settings.py": f"DATABASE = {settings!r}\n{SETTINGS}",
        "manage.py": "from django.core.management import execute_from_command_line as e\nimport sys\ne(sys.argv)\n",
        "pytest.ini": "[pytest]\npython_files = in_pytest.py\nfilterwarnings = error\n",
        "in_pytest.py": WITH_PYTEST,
        "shop/__init__.py": "",
        "shop/models.py": MODELS,
        "shop/cases.py": CASES,
        "shop/migrations/__init__.py": "",
        "shop/migrations/0001_initial.py": MIGRATION,
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    def run(*command: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "settings"}
        ran = subprocess.run(
            [sys.executable, *command], cwd=tmp_path / "project", env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


def test_queues_work_in_the_test_cases_of_django(project):
    assert "Ran 9 tests" in project("-W", "error", "manage.py", "test", "--pattern", "cases.py")


# Each run costs seconds: these are what may differ, each on the database where it is most likely to.
RUNS: dict[str, list[list[str]]] = {
    "sqlite": [["--nomigrations"]],
    "postgres": [["--reuse-db"], ["--reuse-db"]],
    "mariadb": [[]],
}


def test_queues_work_in_pytest_with_its_databases_made_anew_kept_or_made_without_migrations(project, django_db):
    for options in RUNS[django_db.kind]:
        assert "5 passed" in project("-m", "pytest", "-q", *PLUGINS, *options), options
