"""What `migrate` and `flush` do at their end: install the queues, and set counters to zero."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.core.management import CommandError
from django.db import connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.migrations.loader import MigrationLoader

from xq.adapters.django.connections import database_of
from xq.adapters.django.lookup import queues_of
from xq.adapters.django.migrations import InstallQueue, detached_queue, is_in, operations_of, queue_on
from xq.core.errors import ConfigurationError


def after_migrate(
    app_config: Any,
    using: str,
    apps: Any = registry,
    plan: Any = None,
    verbosity: int = 1,
    stdout: Any = None,
    **signal: Any,
) -> None:
    """Install each queue of an app as its model defines it, if the table and its columns are there, and say so.

    This completes what a migration has removed: SQLite alters a table by making a new one, without triggers. It leaves
    a queue alone while its InstallQueue is not applied, or is undone. After a flush, which sends no `plan`, it sets the
    counters to zero. Raises CommandError if the rows do not fit the definition.
    """
    if _is_of_a_test(connections[using]):
        _leave_first(connections[using])
    label, flushed = app_config.label, plan is None
    names = [queue.model._meta.model_name for queue in queues_of(app_config)]
    queues = {name: queue for name in names if (queue := queue_on(apps, label, name, using))}
    if any(step.app_label == label for step, _ in plan or ()):  # not an old host: it has a migration to apply or undo
        for each in queues_of(app_config):
            if is_in(using, each.model):
                theirs = detached_queue(each.model, using, each.parts.definition.arguments)
                theirs.parts.executor.installation.forget_generations()
    for name in _not_applied(label, using) if queues and not flushed else ():
        queues.pop(name, None)
    for queue in queues.values():
        installation = queue.parts.executor.installation
        if installation.missing_columns():
            continue
        if (missing := installation.missing()) and verbosity:
            (stdout or sys.stdout).write(f"  Installing the queue {queue.model._meta.label} ({missing[0]})\n")
        try:
            queue.install(downgrade=_is_of_a_test(connections[using]))  # another branch's may be there
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if flushed:
            queue.recount()
            queue.reset()


def _not_applied(label: str, using: str) -> set[str]:
    """Return the names of the models for which an app's migrations will install a queue."""
    loader = MigrationLoader(connections[using], ignore_no_migrations=True)
    return {
        operation.model_name.lower()
        for migration, operation in operations_of(loader, label)
        if isinstance(operation, InstallQueue) and migration not in loader.applied_migrations
    }


def _is_of_a_test(connection: Any) -> bool:
    """Return whether a database has a name that Django gives to temporary test databases."""
    name, test = connection.settings_dict["NAME"], connection.settings_dict["TEST"]["NAME"]
    return name == test or str(name).startswith((TEST_DATABASE_PREFIX, "file:memorydb_"))


def _leave_first(connection: Any) -> None:
    """Disconnect this process from a database before it is dropped: PostgreSQL refuses to drop one in use."""
    creation = connection.creation
    if "destroy_test_db" in vars(creation):
        return
    destroy = creation.destroy_test_db

    def destroy_test_db(*args: Any, **options: Any) -> None:
        database_of(connection).close()
        destroy(*args, **options)

    creation.destroy_test_db = destroy_test_db
