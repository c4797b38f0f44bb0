"""Queues in the tests of an application: Django's test cases, and pytest-django."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import SERVERS
from tests.django.apps import Project
from tests.django.names import NAME
from tests.django.on_tasks import APPS, BACKEND

MODELS = """
from django.db import models
from xq.adapters.django import queue

@queue({"status": "status", "runat": "runat"}, {"delayed": True, "buried": True, "keep": True, "history": True})
class Order(models.Model):
    name = models.CharField(max_length=50)
    status = models.CharField(max_length=10, default="R")
    runat = models.FloatField(null=True)

@queue({"tube": "tube"}, {"steps": True, "delayed": True, "buried": True, "keep": True})
class Parcel(models.Model):
    name = models.CharField(max_length=50)
    tube = models.CharField(max_length=50, null=True)

@queue(features={"groups": True, "after": True, "delayed": True, "keep": True})
class Letter(models.Model):
    name = models.CharField(max_length=50)
"""

CASES = """
import threading
from contextlib import suppress

import pytest
import xq
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, TransactionTestCase
from {NAME} import task
from shop.models import Letter, Order, Parcel
from xq.adapters.django.tasks.models import Task
from xq.testing import clock, run_pending

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
        assert sorted(each.name for each in Order.objects.all()) == ["by a task", "data"]

    def test_groups_and_dependants_end_in_its_transaction(self):
        seen = []
        Letter.xq.handlers.clear()
        Letter.xq.worker(lambda letter: seen.append(letter.name))
        with Letter.xq.group("news", then={"name": "then"}) as news:
            members = news.put_many([{"name": "a"}, {"name": "b"}])
        Letter.put({"name": "c"}, after=members)
        assert run_pending(Letter, raises=True) == 4
        assert (sorted(seen), news.done) == (["a", "b", "c", "then"], True)

    def test_steps_are_recorded_in_its_transaction(self):
        seen = []
        @Parcel.xq.worker
        def send(parcel):
            xq.step("pack", seen.append, parcel.name)
            xq.sleep("cool off", 86_400)
            xq.step("send", seen.append, xq.wait_for("approved"))
        @Parcel.xq.worker(tube="async")
        async def asend(parcel):
            await xq.step("pack", seen.append, parcel.name)
            await xq.sleep("cool off", 86_400)
            await xq.step("send", seen.append, await xq.wait_for("approved"))
        for worker, tube in ((send, None), (asend, "async")):
            with clock(Parcel) as now:
                parcel = Parcel.put({"name": "a", "tube": tube})
                assert run_pending(worker, raises=True) == 1
                assert run_pending(worker) == 0
                now.tick(86_400)
                assert run_pending(worker) == 1
                Parcel.xq.signal(parcel.pk, "approved", 7)
                assert run_pending(worker) == 1
                assert Parcel.objects.get(pk=parcel.pk).xq_status == "D"
        assert seen == ["a", 7, "a", 7]

    def test_a_take_waits_but_within_a_transaction_of_the_test(self):
        Order.put({"name": "late"}, delay=0.05)
        assert Order.take(timeout=60).name == "late"
        with transaction.atomic(), self.assertRaises(xq.InTransaction):
            Order.take(timeout=1)

    def test_a_worker_with_threads_is_refused_and_told_what_works_here(self):
        with self.assertRaisesRegex(CommandError, "xq.testing.run_pending .* TransactionTestCase"):
            call_command("xq_worker", until_empty=True)

class WithCommits(TransactionTestCase):
    def test_one(self):
        round()

    test_another = test_one

    def test_a_worker(self):
        done = []
        Order.xq.handlers.clear()
        Order.xq.worker(lambda order: done.append(order.name))
        Order.xq.put_many([{"name": "a"}, {"name": "b"}])
        Order.xq.run(until_empty=True)
        assert sorted(done) == ["a", "b"]

    def test_a_put_wakes_who_waits_when_it_is_committed(self):
        found = []
        def wait():
            found.append(Order.take(60).name)
            connection.close()
        waiting = threading.Thread(target=wait)
        waiting.start()
        with transaction.atomic():
            Order.put({"name": "late"})
        waiting.join()
        assert found == ["late"]

@pytest.mark.django_db
def test_orders_are_worked_on_in_the_transaction_of_the_test(xq_clock, run_pending, assert_put):
    clock, seen = xq_clock(Order), []
    Order.xq.handlers.clear()
    Order.xq.worker(lambda order: seen.append(order.name))
    Order.put({"name": "late"}, delay=60)
    assert assert_put(Order, {"name": "late"})[0].status == "W"
    assert run_pending(Order) == 0
    clock.tick(60)
    assert run_pending(Order) == 1
    assert seen == ["late"]
"""

PLUGINS = [f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "factoryboy")]  # which take their time


@pytest.fixture
def project(django_db, tmp_path):
    """Runs a program in a project on the server of this database, whose tests have a database of their own there."""
    own: dict[str, Any] = {}  # on SQLite in memory
    if django_db.kind != "sqlite":
        own["TEST"] = {"NAME": f"{django_db.settings['NAME']}_tests"}
        own["USER"] = SERVERS[django_db.kind].ADMINISTRATOR[0]
    apps = ("django.contrib.contenttypes", *APPS, "shop")
    made = Project(tmp_path / "project", django_db.settings | own, *apps, TASKS={"default": {"BACKEND": BACKEND}})
    made.write("pytest.ini", "[pytest]\npython_files = cases.py\nfilterwarnings = error\n")
    made.write("shop/__init__.py", "")
    made.write("shop/models.py", MODELS)
    made.write("shop/cases.py", CASES.replace("{NAME}", NAME))

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        ran = subprocess.run(command, cwd=made.folder, env=made.environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


def test_queues_work_in_the_test_cases_of_django(project):
    assert "Ran 11 tests" in project("-W", "error", "-m", "django", "test", "--pattern", "cases.py")


def test_queues_work_in_pytest_with_databases_made_anew_and_kept(project):
    for _ in range(2):
        assert "12 passed" in project("-m", "pytest", "-q", *PLUGINS, "--reuse-db")
