"""manage.py xq_makemigration shop.Order"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.writer import MigrationWriter

from xq.adapters.django.lookup import queue_of
from xq.adapters.django.migrations import InstallQueue, QueueOperation, UninstallQueue, installed_by


class Command(BaseCommand):
    help = "Write the migration that installs a queue, or uninstalls that of a model that is no queue any more."
    requires_system_checks: list[str] = []  # the checks ask for this command

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="as shop.Order")
        parser.add_argument("-n", "--name", help="the name of the migration, without its number")
        parser.add_argument("--dry-run", action="store_true", help="print it, and write no file")
        parser.add_argument("--online", action="store_true", help="install beside writers, outside of a transaction")
        parser.add_argument(
            "--check", action="store_true", help="write nothing, and exit with 1 if a migration is missing"
        )

    def handle(
        self, *args: Any, model: str, name: str | None, dry_run: bool, check: bool, online: bool, **options: Any
    ) -> None:
        label, _, model_name = model.partition(".")
        try:
            found = apps.get_model(label, model_name)
        except (LookupError, ValueError) as error:
            raise CommandError(
                f"there is no model {model!r}: name it as APP.MODEL, for example shop.Order ({error})"
            ) from error
        loader = MigrationLoader(None, ignore_no_migrations=True)
        operation = self._operation(loader, label, found, online)
        if operation is None:
            self.stdout.write(f"No changes: each migrate installs {found._meta.label} as it is defined then")
            return
        (last,) = loader.graph.leaf_nodes(label)
        numbers = [int(each[:4]) for app, each in loader.disk_migrations if app == label and each[:4].isdecimal()]
        migration = Migration(f"{max(numbers, default=0) + 1:04}_{name or operation.migration_name_fragment}", label)
        migration.operations, migration.dependencies = [operation], [last]
        writer = MigrationWriter(migration)
        text = writer.as_string()
        if operation.online:  # which Django's writer leaves out
            text = text.replace("(migrations.Migration):\n", "(migrations.Migration):\n    atomic = False\n", 1)
        if dry_run or check:
            self.stdout.write(text)
        if check:
            sys.exit(1)
        if not dry_run:
            Path(writer.path).write_text(text, encoding="utf-8")
            self.stdout.write(f"{os.path.relpath(writer.path)}\n  {operation.describe()}")

    def _operation(self, loader: MigrationLoader, label: str, model: Any, online: bool) -> QueueOperation | None:
        """Return the operation that the app's migrations lack, if any."""
        name, queue = model._meta.model_name, queue_of(model)
        if label not in loader.migrated_apps or not loader.graph.leaf_nodes(label):
            raise CommandError(f"{label} has no migrations yet: manage.py makemigrations {label}")
        if conflicts := loader.detect_conflicts().get(label):
            raise CommandError(f"{label} has several last migrations ({', '.join(conflicts)}): makemigrations --merge")
        there = loader.project_state(loader.graph.leaf_nodes(label)).models.get((label, name))
        missing = {field for field in (queue.roles.values() if queue else ()) if there and field not in there.fields}
        if there is None or missing:
            what = f"its fields {', '.join(sorted(missing))} are" if missing else "it is"
            raise CommandError(f"{model._meta.label}: {what} in no migration yet: manage.py makemigrations {label}")
        installed = name in installed_by(loader, label)
        if queue is not None:
            return None if installed else InstallQueue(model._meta.object_name, online=online)
        if not installed:
            raise CommandError(
                f"{model._meta.label} is not a queue: @queue or upgrade() of xq.adapters.django makes it one"
            )
        if online:
            raise CommandError(f"--online installs a queue, and {model._meta.label} is none any more: leave it out")
        return UninstallQueue(model._meta.object_name)
