"""A rolling deploy, as docs/django.md has its steps: a process of the old program goes on beside the new ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import django
import pytest

from tests.django.apps import Project
from tests.steps import STUCK
from xq.adapters.django.lookup import APP

OLD = f"""
from django.db import models

WORDS = ["draft", "paid", "shipped"]

class Order(models.Model):
    customer = models.CharField(max_length=20)
    note = models.TextField(default="")
    state = models.CharField(max_length=10, default="draft", choices=[(word, word.title()) for word in WORDS])

    class Meta:
        constraints = [models.CheckConstraint(
            {"condition" if django.VERSION >= (5, 1) else "check"}=models.Q(state__in=WORDS), name="known_state"
        )]
"""
DEFINITION = """
@queue(
    fields={"status": "state", "attempts": True},
    features={"delayed": True, "keep": True, "ttr": 60, "guard": True},
    statuses={"R": "paid", "T": "packing", "W": "later", "D": "shipped"},
)
class Order("""
NEW = OLD.replace('["draft", ', '["packing", "later", "draft", ').replace("\nclass Order(", DEFINITION)
NEW = f"from xq.adapters.django import queue\n{NEW}"
NEWER = NEW.replace('"guard": True', '"guard": True, "events": True, "max_takes": {"n": 3, "to": "X"}')
JOBS = """
from pathlib import Path
from shop.models import Order

@Order.xq.worker()
def ship(order):
    with Path("shipped").open("a") as out:
        out.write(f"{order.customer}\\n")
"""
PROCESS = """
import contextlib, importlib, sys
import django
django.setup()
from django.core.management import call_command
from shop.models import Order
for line in sys.stdin:
    said = "done"
    importlib.invalidate_caches()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            exec(line)
        except Exception as error:
            said = type(error).__name__
    print(said, flush=True)
"""


class Version:
    """One version of the shop, with its own folder, and a process that does what it is told."""

    def __init__(self, folder: Path, database, models: str, *apps: str) -> None:
        folder.mkdir()
        self.project = Project(folder, database.settings, "shop", *apps)
        self.migrations = folder / "shop" / "migrations"
        for name, text in {"__init__": "", "models": models, "jobs": JOBS, "migrations/__init__": ""}.items():
            self.project.write(f"shop/{name}.py", text)

    def start(self, *args: str, **options: Any) -> Any:
        options |= {"cwd": self.project.folder, "env": self.project.environment, "text": True}
        return subprocess.Popen([sys.executable, *args], **options)

    def serve(self) -> None:
        self.process = self.start("-c", PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def do(self, line: str) -> str:
        """What becomes of a line of Python: "done", or the name of an error."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return str(self.process.stdout.readline().strip())


@pytest.fixture
def versions(django_db, tmp_path):
    texts = {"old": (OLD,), "new": (NEW, APP), "newer": (NEWER, APP)}
    found = [Version(tmp_path / name, django_db, *given) for name, given in texts.items()]
    for version in found:
        version.serve()
    yield found
    for version in found:
        with version.process as process:
            process.kill()


def test_a_rolling_deploy_ships_each_order_once_beside_an_old_process_that_goes_on(versions):
    old, new, _ = versions

    def order(version):
        customer = f"customer {len(customers)}"
        assert version.do(f"Order.objects.create(customer={customer!r}, state='paid')") == "done"
        customers.append(customer)

    def work():
        command = ("xq_worker", "shop.Order", "--call", "shop.jobs.ship", "--until-empty")
        assert new.start("-m", "django", *command).wait(STUCK) == 0

    customers: list[str] = []
    assert old.do("call_command('makemigrations', 'shop'); call_command('migrate')") == "done"
    order(old)

    # 1. words and columns
    shutil.copytree(old.migrations, new.migrations, dirs_exist_ok=True)
    assert new.do("call_command('xq_makemigration', 'shop', online=True)") == "done"
    assert new.do("call_command('migrate', 'shop', '0002')") == "done"
    order(old)
    # 2. the new program, without workers
    order(new)
    assert new.do("Order.put({'customer': 'early'})") == "NotInstalled"
    # 3. the queue, beside writers
    with new.start("-m", "django", "migrate", stdout=subprocess.PIPE) as migrating:
        assert any("Running migrations" in line for line in migrating.stdout)
        while migrating.poll() is None:
            order(old)
    assert migrating.returncode == 0
    order(new)
    assert new.do("Order.put({'customer': 'put'})") == "done"
    assert old.do("stale = Order.objects.get(customer='customer 0')") == "done"
    # 4. workers
    work()
    assert old.do("stale.note = 'by hand'; stale.save()") == "IntegrityError"
    assert old.do("stale.refresh_from_db(); stale.note = 'by hand'; stale.save()") == "done"
    order(old)
    work()
    shipped = (new.project.folder / "shipped").read_text().splitlines()
    assert sorted(shipped) == sorted([*customers, "put"])
    assert new.do("assert {*Order.objects.values_list('state', flat=True)} == {'shipped'}") == "done"
    assert new.do("assert Order.objects.get(note='by hand').customer == 'customer 0'") == "done"


A_SECOND_PASSES = "from xq.core import time as clocks; clocks.monotonic = lambda now=clocks.monotonic: now() + 2"


def test_processes_of_each_release_go_on_to_put_while_one_is_deployed_taken_back_and_deployed_again(versions):
    _, new, newer = versions
    assert new.do("call_command('makemigrations', 'shop'); call_command('migrate')") == "done"
    shutil.copytree(new.migrations, newer.migrations, dirs_exist_ok=True)
    assert newer.do("call_command('makemigrations', 'shop')") == "done"
    for each in (new, newer):
        each.do("Order.put({'customer': 'a'})")
    back = ("xq", "install", "shop.Order", "--downgrade")
    for version, command in ((newer, ["migrate"]), (new, back), (newer, ["xq", "install", "shop.Order"]), (new, back)):
        assert version.start("-m", "django", *command).wait(STUCK) == 0
        other = new if version is newer else newer
        for each, took, installed in ((version, "done", "done"), (other, "NotInstalled", "ConfigurationError")):
            assert each.do(A_SECOND_PASSES) == "done"
            assert each.do("Order.put({'customer': 'b'})") == "done"
            assert each.do("Order.take().ack()") == took
            assert each.do("Order.xq.install()") == installed
    assert new.start("-m", "django", "migrate").wait(STUCK) == 0
    assert newer.start("-m", "django", "migrate").wait(STUCK) == 0
    assert newer.do("assert Order.xq.check() == []") == "done"
