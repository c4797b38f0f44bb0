"""Keep queues during migrations: around each operation that may alter their tables, and after the last one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from functools import partial, reduce
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.db import connections, router
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.migrations import AlterModelTable, DeleteModel, RenameModel
from django.db.migrations.loader import MigrationLoader

from xq.adapters.django.connections import Place
from xq.adapters.django.frozen import Installed, in_database, in_migrations, in_state, of_today, renamed, replay
from xq.adapters.django.migrations import Definition, InstallQueue, UninstallQueue, queue_apart
from xq.core.errors import ConfigurationError, Error
from xq.handle import Queue
from xq.runtime.threads import leave

OTHERS = (InstallQueue, UninstallQueue, RenameModel, AlterModelTable, DeleteModel)  # a queue never survives these

# By the name of the model: the possible queue before an operation, and the same queue after it.
Changes = Mapping[str, list[tuple[Definition, Definition]]]


def before_migrate(app_config: Any, using: str, plan: Any = (), **signal: Any) -> None:
    """Replace each operation that may alter the tables of an app's queues by a copy that keeps the queues."""
    label = app_config.label
    planned = {(each.app_label, each.name): each for each, backwards in plan if each.app_label == label}
    today = {name: queue.adapter.definition for name, queue in of_today(label).items()}
    if not planned or not today:
        return
    loader = MigrationLoader(connections[using], ignore_no_migrations=True)
    loader.graph.nodes.update(planned)  # in which other apps may have inserted operations
    for position, _, found in replay(loader, label):
        if position is not None and position[0] in planned:
            key, index = position
            operations = planned[key].operations
            operations[index] = _keeping(operations[index], _changes(operations[index], found, today))


def _changes(operation: Any, found: Mapping[str, Installed], today: Mapping[str, Definition]) -> Changes:
    """Return the queues that survive an operation, as the migrations define them, or as reconfigured by hand."""
    database, described = in_database(operation), in_state(operation)
    parts = [*database, *described]
    if not database or not any(map(_model_of, parts)):
        return {}
    ended = {_model_of(part) for part in parts if isinstance(part, OTHERS)}
    changes: dict[str, list[tuple[Definition, Definition]]] = {}
    for name in found.keys() - ended:
        own = [part for part in described if _model_of(part) == name]
        known = [each for each in (found[name].definition, today.get(name)) if each is not None]
        changes[name] = [(each, reduce(renamed, own, each)) for each in known]
    return changes


def _model_of(operation: Any) -> str:
    """Return the name of an operation's model in lower case; "" if it has none."""
    names = ("old_name",) if isinstance(operation, RenameModel) else ("model_name", "name")
    return next((str(getattr(operation, name)).lower() for name in names if hasattr(operation, name)), "")


def _keeping(operation: Any, changes: Changes) -> Any:
    """Return a copy of an operation that keeps these queues.

    A copy, since other apps check the classes of operations.
    """
    if not changes:
        return operation
    undone = {name: [(after, before) for before, after in each] for name, each in changes.items()}
    keeping = copy(operation)
    keeping.database_forwards = partial(_around, operation.database_forwards, changes)
    keeping.database_backwards = partial(_around, operation.database_backwards, undone)
    return keeping


def _around(run: Callable[..., None], changes: Changes, label: str, editor: Any, before: Any, after: Any) -> None:
    """Alter tables: first uninstall the queues whose columns change, and afterwards install what is missing of any."""
    using, kept = editor.connection.alias, []
    for name, definitions in changes.items():
        for definition, becomes in definitions:
            queue = fitting(before.apps, label, name, using, definition)
            if queue is not None and queue.adapter.installation.on_record():
                kept.append((queue, fitting(after.apps, label, name, using, becomes)))
                break
    for old, new in kept:
        if new is None or _columns(old) != _columns(new):
            _check_key(old, new)
            # In the same order as other transactions lock: their puts and moves wait for the first lock.
            with old.adapter.installation.dialect.installing(old.adapter.store):
                old.adapter.installation.take_down()
    run(label, editor, before, after)
    for _, new in kept:
        if new is not None:
            new.install()


def _columns(queue: Queue[Any]) -> list[tuple[str, str]]:
    """Return the columns of a queue's fields and key, with their types."""
    names = {*queue.roles.values(), *queue.adapter.store.key}
    return [(field.column, field.type) for field in queue.adapter.store.fields if field.name in names]


def _check_key(old: Queue[Any], new: Queue[Any] | None) -> None:
    """Refuse another type of the key, since the side tables of the queue have it as well. SQLite accepts any type."""
    if new is None or old.adapter.store.engine == "sqlite":
        return
    before, after = (
        [each for each in queue.adapter.store.fields if each.name in queue.adapter.store.key] for queue in (old, new)
    )
    if changed := [was.name for was, becomes in zip(before, after, strict=False) if was.type != becomes.type]:
        raise ConfigurationError(
            f"{old.adapter.store.name} is a queue, whose tables hold its key as it is: write "
            f"UninstallQueue({old.adapter.store.name!r}, ...) before the operation that alters {changed[0]!r}, and "
            f"InstallQueue({old.adapter.store.name!r}, ...) after it"
        )


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
        return None if definition is None else queue_apart(model, using, definition)
    except (LookupError, Error):  # today's queue on an earlier model
        return None
