"""Keep queues through migrations: around each operation that may alter their tables, and when all are done."""

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

from xq.adapters.django.frozen import Installed, in_database, in_migrations, in_state, of_today, renamed, replay
from xq.adapters.django.migrations import Definition, InstallQueue, UninstallQueue, queue_apart
from xq.adapters.django.store import Place
from xq.core.errors import ConfigurationError, Error
from xq.queue import Queue
from xq.runtime.maintenance import leave

OTHERS = (InstallQueue, UninstallQueue, RenameModel, AlterModelTable, DeleteModel)  # which no queue of theirs outlives

# By the model's name: what a queue may be before an operation, and what the same is after it.
Changes = Mapping[str, list[tuple[Definition, Definition]]]


def before_migrate(app_config: Any, using: str, plan: Any = (), **signal: Any) -> None:
    """Put a copy that keeps the queues of an app in the place of each operation that may alter their tables."""
    label = app_config.label
    planned = {(each.app_label, each.name): each for each, backwards in plan if each.app_label == label}
    today = {name: queue.adapter.definition for name, queue in of_today(label).items()}
    if not planned or not today:
        return
    loader = MigrationLoader(connections[using], ignore_no_migrations=True)
    loader.graph.nodes.update(planned)  # into which other apps may have put operations by now
    for position, _, found in replay(loader, label):
        if position is not None and position[0] in planned:
            key, index = position
            operations = planned[key].operations
            operations[index] = _keeping(operations[index], _changes(operations[index], found, today))


def _changes(operation: Any, found: Mapping[str, Installed], today: Mapping[str, Definition]) -> Changes:
    """The queues that are to outlive an operation, as the migrations define them, or as reconfigured by hand."""
    database, told = in_database(operation), in_state(operation)
    parts = [*database, *told]
    if not database or not any(map(_model_of, parts)):
        return {}
    ended = {_model_of(part) for part in parts if isinstance(part, OTHERS)}
    changes: dict[str, list[tuple[Definition, Definition]]] = {}
    for name in found.keys() - ended:
        mine = [part for part in told if _model_of(part) == name]
        known = [each for each in (found[name].definition, today.get(name)) if each is not None]
        changes[name] = [(each, reduce(renamed, mine, each)) for each in known]
    return changes


def _model_of(operation: Any) -> str:
    """The model that an operation is about, in lower case; "" where it is about none."""
    names = ("old_name",) if isinstance(operation, RenameModel) else ("model_name", "name")
    return next((str(getattr(operation, name)).lower() for name in names if hasattr(operation, name)), "")


def _keeping(operation: Any, changes: Changes) -> Any:
    """A copy of an operation that keeps these queues; a copy, for other apps look of which class operations are."""
    if not changes:
        return operation
    undone = {name: [(after, before) for before, after in each] for name, each in changes.items()}
    keeping = copy(operation)
    keeping.database_forwards = partial(_around, operation.database_forwards, changes)
    keeping.database_backwards = partial(_around, operation.database_backwards, undone)
    return keeping


def _around(run: Callable[..., None], changes: Changes, label: str, editor: Any, before: Any, after: Any) -> None:
    """Alter tables, with the queues taken down whose columns change, and install afterwards what is missing of any."""
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
            # In the order in which others lock: what they put and move waits for that first.
            with old.adapter.installation.dialect.installing(old.adapter.store):
                old.adapter.installation.take_down()
    run(label, editor, before, after)
    for _, new in kept:
        if new is not None:
            new.install()


def _columns(queue: Queue[Any]) -> list[tuple[str, str]]:
    """The columns of a queue's own fields, and of its key, with their types."""
    names = {*queue.roles.values(), *queue.adapter.store.key}
    return [(field.column, field.type) for field in queue.adapter.store.fields if field.name in names]


def _check_key(old: Queue[Any], new: Queue[Any] | None) -> None:
    """Refuse another type of the key, which the tables beside the queue's hold as well. On SQLite any type fits."""
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
    """Install what migrations could not, and what they took away: SQLite's tables are altered by making them anew.

    So is the queue of an app that has no migrations, or whose migrations are switched off. A flush, which tells of no
    `plan`, leaves nothing that was counted, whatever it did to the counters.
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
        if queue is not None and queue.adapter.installation.on_record() is False:  # but perhaps as today, by hand
            queue = fitting(apps, label, name, using, today.get(name)) or queue
        if queue is not None and _install(queue, name in expected) and flushed:
            queue.recount()
            queue.reset()


def _install(queue: Queue[Any], expected: bool) -> bool:
    """Install what is missing of a queue that is there, or is expected to be; whether it is."""
    if queue.adapter.installation.missing_columns():
        return False
    recorded = queue.adapter.installation.on_record()
    if not (recorded or (recorded is None and expected)):
        return False
    queue.install()
    return True


def _is_of_a_test(connection: Any) -> bool:
    """Whether a database has such a name as Django gives those that it makes for tests, and drops."""
    name, test = connection.settings_dict["NAME"], connection.settings_dict["TEST"]["NAME"]
    return name == test or str(name).startswith((TEST_DATABASE_PREFIX, "file:memorydb_"))


def _leave_first(connection: Any) -> None:
    """Have this process leave a database before it is dropped, which PostgreSQL refuses otherwise."""
    creation = connection.creation
    if "destroy_test_db" in vars(creation):
        return
    destroy = creation.destroy_test_db

    def destroy_test_db(*args: Any, **options: Any) -> None:
        leave(Place.of(connection))
        destroy(*args, **options)

    creation.destroy_test_db = destroy_test_db


def fitting(apps: Any, label: str, name: str, using: str, definition: Definition | None) -> Queue[Any] | None:
    """The queue on a model as it is in these `apps`; None where it cannot be, or the routers do not want it there."""
    try:
        model = apps.get_model(label, name)
        if not (model._meta.can_migrate(connections[using]) and router.allow_migrate_model(using, model)):
            return None
        return None if definition is None else queue_apart(model, using, definition)
    except (LookupError, Error):  # of today, on a model of an earlier day
        return None
