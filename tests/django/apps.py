"""An installed app of a test's own, with its models and its migrations in files; a project in other processes."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from textwrap import dedent
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.db import connection

from xq.adapters.django.connections import database_of

ROOT = Path(__file__).resolve().parent.parent.parent
_numbers = itertools.count(1)

HEAD = """
from django.db import models
from xq.adapters.django import queue
import xq
"""
MIGRATION = """
from django.db import migrations, models
from xq.adapters.django.migrations import InstallQueue, UninstallQueue

class Migration(migrations.Migration):
    dependencies = [{last}]
    operations = [{operations}]
"""


def drop_bytecode(folder: Path) -> None:
    """Have Python compile the files of a folder: one that is written anew within the second would pass for the same."""
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)


class App:
    """An app whose label is `label`. Before it `others` are installed: only xq."""

    def __init__(self, folder: Path) -> None:
        self.label = f"shop{next(_numbers)}"
        self.others = ["xq.adapters.django"]
        self.folder = folder / self.label
        self.migrations = self.folder / "migrations"
        self.migrations.mkdir(parents=True)
        (self.folder / "__init__.py").touch()
        (self.migrations / "__init__.py").touch()

    def models(self, text: str) -> None:
        """From here on the app has these models."""
        (self.folder / "models.py").write_text(HEAD + dedent(text))
        drop_bytecode(self.folder)
        self._forget()
        apps.set_installed_apps([*self.others, self.label])

    def _forget(self) -> None:
        if apps.stored_app_configs:
            apps.unset_installed_apps()
        apps.all_models.pop(self.label, None)
        for name in [name for name in sys.modules if name.partition(".")[0] == self.label]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def __getattr__(self, name: str) -> Any:
        """A model of the app."""
        return apps.get_model(self.label, name)

    @property
    def written(self) -> list[str]:
        """The names of its migrations."""
        return sorted(path.stem for path in self.migrations.glob("0*.py"))

    def migration(self, name: str, *operations: str) -> None:
        """Write a migration by hand, after the last one."""
        last = "".join(f"({self.label!r}, {each!r})" for each in self.written[-1:])
        text = MIGRATION.format(last=last, operations=", ".join(operations))
        (self.migrations / f"{name}.py").write_text(text)

    def run(self, command: str, *args: str, **options: Any) -> str:
        """What a command prints."""
        importlib.invalidate_caches()
        out = StringIO()
        call_command(command, *args, stdout=out, stderr=out, no_color=True, **options)
        return out.getvalue()

    def make_queue_migration(self, **options: Any) -> str:
        """xq_makemigration for the model Order."""
        return self.run("xq_makemigration", f"{self.label}.Order", **options)

    def migrate(self, name: str = "", **options: Any) -> str:
        """Migrate the app to the migration of that name, or to the last one; no thread of xq is in the way."""
        for model in apps.get_app_config(self.label).get_models():
            if "xq" in vars(model):
                model.xq.parts.maintenance.stop_maintenance()
        return self.run("migrate", self.label, *([name] if name else []), interactive=False, **options)


@contextmanager
def installed(folder: Path) -> Iterator[App]:
    """An app, installed when it has models."""
    app = App(folder)
    sys.path.insert(0, str(folder))
    try:
        yield app
    finally:
        database_of(connection).close()  # the thread that looks after its queues
        app._forget()
        sys.path.remove(str(folder))


class Project:
    """A project in a folder, for processes of their own, on the database of these settings."""

    def __init__(self, folder: Path, database: Mapping[str, Any], *apps: str, **settings: Any) -> None:
        self.folder = folder
        settings |= {"DATABASES": {"default": database}, "INSTALLED_APPS": apps, "USE_TZ": True, "SECRET_KEY": "test"}
        settings["DEFAULT_AUTO_FIELD"] = "django.db.models.BigAutoField"
        lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
        self.write("settings.py", "".join(["import pymysql\npymysql.install_as_MySQLdb()\n", *lines]))
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DJANGO_SETTINGS_MODULE": "settings",
        }

    def write(self, name: str, text: str) -> None:
        """Write or replace a file, whole at once."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name("new")
        new.write_text(text)
        new.replace(path)
