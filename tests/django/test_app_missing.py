"""A model that is a queue, in a project whose INSTALLED_APPS lack xq.adapters.django."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.test.utils import modify_settings

import xq

ROOT = Path(__file__).resolve().parent.parent.parent

SETTINGS = """
SECRET_KEY = "of tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["tests.django.office"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
"""


def test_check_says_what_to_add(tmp_path):
    (tmp_path / "settings_without.py").write_text(SETTINGS)
    path = [str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "DJANGO_SETTINGS_MODULE": "settings_without"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Add 'xq.adapters.django' to INSTALLED_APPS" in done.stderr
    assert "office.Order, office.Parcel, office.Page" in done.stderr
    assert done.returncode == 0  # a project may install its queues by hand


def test_a_call_on_a_queue_that_is_not_installed_says_what_to_add(make):
    Task = make(install=False)
    Other = make.database.model("Other")
    make.database.create(Task, Other)
    with pytest.raises(xq.NotInstalled) as raised:
        Task.put({})
    assert "INSTALLED_APPS" not in str(raised.value)
    with modify_settings(INSTALLED_APPS={"remove": "xq.adapters.django"}):
        make(install=False, model=Other)
    with pytest.raises(xq.NotInstalled, match="add 'xq.adapters.django' to INSTALLED_APPS"):
        Other.put({})


def test_queues_on_models_of_no_installed_app_are_left_in_peace(make):
    Task = make()
    with modify_settings(INSTALLED_APPS={"remove": "xq.adapters.django"}):
        Task.put({})
        assert [message for message in run_checks(tags=["xq"]) if message.id == "xq.W007"] == []
