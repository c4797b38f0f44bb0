"""Releases of the package django-tasks whose names differ."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import django_tasks

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django_tasks", "xq.adapters.django", "xq.adapters.django.tasks"],
    TASKS={"default": {"BACKEND": "xq.adapters.django.tasks.XQBackend", "OPTIONS": {"kept": 1}}},
)
django.setup()
from django.core.exceptions import ImproperlyConfigured
from django_tasks import default_task_backend
try:
    default_task_backend.queues
except ImproperlyConfigured as error:
    print(error)
"""


def test_the_backend_is_found_and_checked_whatever_a_release_calls_its_exceptions(tmp_path):
    package = Path(django_tasks.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in tmp_path.rglob("*.py"):
        text = path.read_text()
        path.write_text(text.replace("InvalidTaskBackendError", "InvalidTaskBackend"))
    given = [str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # where another Django may be
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(given)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "'kept'" in done.stdout, done.stderr
