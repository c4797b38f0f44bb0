"""Keep queues whole behind the migrations of their tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.db import connections, router
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.migrations.loader import MigrationLoader

from xq.adapters.django.connections import Place
from xq.adapters.django.frozen import in_migrations, of_today
from xq.adapters.django.migrations import Definition, detached_queue
from xq.core.errors import Error
from xq.handle import Queue
from xq.runtime.maintenance import leave


def after_migrate(app_config: Any, using: str, apps: Any = registry, plan: Any = None, **signal: Any) -> None:
    """Install what migrations could not install, or have removed: SQLite alters a table by making a new one.

    Also installs the queues of apps without migrations, or with disabled ones. After a flush, which sends no `plan`,
    the counters are set to zero.
    """
    label, connection, flushed = app_config.label, connections[using], plan is None
    if _is_of_a_test(connection):
        _leave_first(connection)
    today = {name: queue.adapter.definition for name, queue in of_today(label).items()}
    wanted: dict[str, Definition | None] = {**today}
    expected: Collection[str] = () if flushed else wanted
    if wanted and not flushed:
        loader = MigrationLoader(connection, ignore_no_migrations=True)
        if label in loader.migrated_apps:
            expected = in_migrations(loader, label, loader.applied_migrations)
            wanted |= {name: each.definition for name, each in expected.items() if each.definition}
    for name, definition in wanted.items():
        queue = fitting(apps, label, name, using, definition)
        # today's definition may have been installed by hand
        if queue is not None and queue.adapter.installation.on_record() is False:
            queue = fitting(apps, label, name, using, today.get(name)) or queue
        if queue is not None and _install(queue, name in expected) and flushed:
            queue.recount()
            queue.reset()


def _install(queue: Queue[Any], expected: bool) -> bool:
    """Install what is missing of a queue that exists, or is expected to. Returns whether it exists."""
    if queue.adapter.installation.missing_columns():
        return False
    recorded = queue.adapter.installation.on_record()
    if not (recorded or (recorded is None and expected)):
        return False
    queue.install()
    return True


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
        leave(Place.of(connection))
        destroy(*args, **options)

    creation.destroy_test_db = destroy_test_db


def fitting(apps: Any, label: str, name: str, using: str, definition: Definition | None) -> Queue[Any] | None:
    """Return the queue on a model as it is in these `apps`; None if it does not fit, or if the routers exclude it."""
    try:
        model = apps.get_model(label, name)
        if not (model._meta.can_migrate(connections[using]) and router.allow_migrate_model(using, model)):
            return None
        return None if definition is None else detached_queue(model, using, definition)
    except (LookupError, Error):  # today's queue on an earlier model
        return None
