"""The fixtures that xq brings to pytest, in a project of an application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

APP = """
import peewee as pw
import xq

db = pw.SqliteDatabase("app.db")

class Page(xq.Task):
    url = pw.TextField()

    class Meta:
        database = db

xq.upgrade(Page, features={"delayed": True, "buried": True, "keep": True})

@Page.xq.worker(max_attempts=2, backoff=[60])
def fetch(page):
    if "broken" in page.url:
        raise ValueError(page.url)"""

TESTS = """
from datetime import datetime

import pytest
from app import Page, fetch
from freezegun import freeze_time

@pytest.fixture(autouse=True)
def clock(xq_memory):
    return xq_memory(Page)

def test_a_page_that_is_put_is_fetched(assert_put, run_pending):
    Page.put({"url": "https://example.com"})
    (page,) = assert_put(Page, {"url": "https://example.com"})
    assert page.status == "R"
    assert run_pending(fetch) == 1
    assert Page.xq.stats().counts["D"] == 1

def test_a_broken_page_is_tried_twice(run_pending, clock):
    Page.put({"url": "broken"})
    run_pending(Page)
    clock.tick(60)
    run_pending(Page)
    assert Page.xq.stats().counts["B"] == 1

def test_a_queue_on_its_own_database_has_a_clock(xq_clock, tmp_path):
    assert xq_clock(Page).now == Page.xq.clock.now

def test_the_clock_begins_now_and_in_frozen_time_at_that_time_and_waits_end(xq_clock):
    assert xq_clock(Page).now >= datetime.now().timestamp()
    with freeze_time("2027-01-01"):
        assert xq_clock(Page).now == datetime.now().timestamp() == 1_798_761_600
        assert Page.take(timeout=0.1) is None
"""


def test_an_application_tests_its_queues_in_memory_by_a_clock_with_its_own_workers(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_app.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-pno:django", "-W", "error"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
    assert not (tmp_path / "app.db").exists()


def test_the_plugin_and_the_package_import_nothing_of_xq_before_it_is_used():
    code = (
        "import sys, xq, xq.pytest_plugin; print(*[name for name in sys.modules if name.startswith(('xq.', 'peewee'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == ["xq.pytest_plugin"]
