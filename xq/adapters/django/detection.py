"""Detect changes of queues for `makemigrations` and `migrate`; keep the triggers of altered tables."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

from django.apps import apps
from django.core.management.commands import makemigrations, squashmigrations
from django.db import DatabaseError, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.sqlite3.schema import DatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.writer import MigrationWriter

from xq.adapters.django.lookup import queue_of
from xq.adapters.django.migrations import KEY, InstallQueue, QueueOperation, UninstallQueue, next_operation
from xq.core.kinds import beside
from xq.sql.migrated import OF_TABLE, TRIGGERS_OF
from xq.upgrading.build import written

detect = MigrationAutodetector._detect_changes
alter, remake = BaseDatabaseSchemaEditor._alter_field, DatabaseSchemaEditor._remake_table
asked: dict[str, bool] = {}  # the options of xq_makemigration, while it runs


def patch() -> None:
    """Have Django's commands detect changes of queues, and its schema editor keep their triggers."""
    # In the class itself: other packages name it, extend it, and replace it in the modules of commands.
    MigrationAutodetector._detect_changes = _detect_changes
    makemigrations.MigrationWriter = squashmigrations.MigrationWriter = Writer
    BaseDatabaseSchemaEditor._alter_field, DatabaseSchemaEditor._remake_table = _alter_field, _remake_table


def _detect_changes(self: Any, *args: Any, **options: Any) -> dict[str, list[Any]]:
    """Also compare the queues, and add migrations of their own for those."""
    found: dict[str, list[Any]] = detect(self, *args, **options)
    steps: dict[str, tuple[list[QueueOperation], list[QueueOperation]]] = {}
    for key in sorted((self.old_model_keys | self.new_model_keys) - self.new_unmanaged_keys):
        label, name = key
        model: Any = apps.all_models[label].get(name) if key in self.new_model_keys else None
        if model is None and key in self.new_model_keys:
            continue  # a state that another program has made up
        before = self.from_state.models.get((label, self.renamed_models.get(key, name)))
        there = before.options.get(KEY) if before else None
        queue, (first, last) = model and queue_of(model), steps.setdefault(label, ([], []))
        named = model._meta.object_name if model else before.name
        is_undefined = there and there.definition is None and not asked.get("definition")
        if queue and there and _table_before(self, label, before.name) != model._meta.db_table:
            first.append(UninstallQueue(before.name))  # its triggers would stay beside the new ones
            definition = None if is_undefined else written(queue.parts.definition)
            operation: Any = InstallQueue(named, online=there.online, definition=definition)
            there = None
        else:
            if model and there and there.definition is None and not is_undefined:
                there = None
            operation = next_operation(there, named, queue)
        if operation is not None:
            operation.online |= asked.get("online", False)
            is_first = _is_first(operation, there, before, self.to_state.models.get(key))
            (first if is_first else last).append(operation)
    for label, (first, last) in steps.items():
        if not (first or last):
            continue
        migrations = [*_own(label, "xq_first", first), *found.get(label, ()), *_own(label, "xq_last", last)]
        for one, following in pairwise(migrations):
            following.dependencies = list({*following.dependencies, (label, one.name)})
        found[label] = migrations
    return found


def _table_before(self: Any, label: str, name: str) -> str:
    return str(self.from_state.apps.get_model(label, name)._meta.db_table)


def _is_first(operation: Any, there: Any, before: Any, after: Any) -> bool:
    """Return whether an operation comes before those on fields: it lets go of a field that they remove."""
    if isinstance(operation, UninstallQueue):
        return True
    if there is None or before.name != after.name:
        return False
    needed, used = (set(each.definition["roles"].values()) for each in (operation, there))
    return bool(used - after.fields.keys()) and needed <= before.fields.keys()


def _own(label: str, name: str, operations: list[QueueOperation]) -> list[Migration]:
    migration = Migration(name, label)
    migration.operations = list(operations)
    return [migration] if operations else []


class Writer(MigrationWriter):
    """Writes `atomic = False` into a migration that installs beside writers."""

    def as_string(self) -> str:
        text: str = super().as_string()
        online = any(getattr(each, "online", False) for each in self.migration.operations)
        head = "(migrations.Migration):\n"
        return text.replace(head, f"{head}    atomic = False\n", 1) if online else text


def _remake_table(self: Any, model: Any, *args: Any, **options: Any) -> None:
    """Make a table of SQLite anew, with the indexes and triggers of its queue."""
    table = model._meta.db_table
    with self.connection.cursor() as cursor:
        cursor.execute(OF_TABLE.replace("?", "%s"), [table])
        made = [sql for name, sql in cursor.fetchall() if name.startswith(beside(table, ""))]
    remake(self, model, *args, **options)
    for sql in made:
        with suppress(DatabaseError):  # a column has another name: the queue is installed anew later
            self.execute(sql, params=None)


def _alter_field(self: Any, model: Any, old: Any, new: Any, *args: Any, **options: Any) -> None:
    """Alter a column. PostgreSQL refuses another type where a trigger uses it: drop those of xq meanwhile."""
    params = [each.db_parameters(connection=self.connection) for each in (old, new)]
    was, then = ((each["type"], each.get("collation")) for each in params)
    if self.connection.vendor != "postgresql" or was == then or old.column != new.column:
        alter(self, model, old, new, *args, **options)
        return
    with transaction.atomic(self.connection.alias), self.connection.cursor() as cursor:
        cursor.execute(TRIGGERS_OF, [self.quote_name(model._meta.db_table)])
        made = [each for each in cursor.fetchall() if each[1].startswith(beside(each[0], "", 63))]
        for *_, drop, _ in made:
            self.execute(drop, params=None)
        alter(self, model, old, new, *args, **options)
        for *_, sql in made:
            self.execute(sql, params=None)
