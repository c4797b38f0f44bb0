"""What the migrations of an app say of its queues, and what today's models do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.db import connections, router
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.migrations import AlterField, RenameField, RenameModel, RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from xq.adapters.django.lookup import queue_of
from xq.adapters.django.migrations import Definition, InstallQueue, UninstallQueue, queue_apart
from xq.adapters.django.store import Place
from xq.core.errors import Error
from xq.queue import Queue
from xq.runtime.maintenance import leave

Position = tuple[tuple[str, str], int]  # of an operation: its migration, and its index there


@dataclass(frozen=True)
class Installed:
    """What the last operation on a queue installs."""

    definition: Definition | None  # None: that of today's model, whatever it is
    table: str
    columns: Mapping[str, str]  # role -> column, where the definition names the roles

    def differences(self, queue: Queue[Any]) -> list[str]:
        """How today's definition differs, in words: what a database would notice."""
        if self.definition is None:
            return []
        try:
            fingerprint = queue_apart(queue.model, None, self.definition).installation.fingerprint
        except Error as error:
            return [f"its definition there does not fit the model any more ({error})"]
        return queue.installation.differences({**json.loads(fingerprint), "roles": dict(self.columns)})


def replay(
    loader: MigrationLoader,
    label: str,
    applied: Collection[tuple[str, str]] | None = None,
    planned: Mapping[tuple[str, str], Sequence[Any]] | None = None,
) -> Iterator[tuple[Position | None, ProjectState, dict[str, Installed]]]:
    """What an app and its queues are before each operation of its migrations, and at last, at no position.

    With `applied`, of those migrations only. The queues are found by the model's name in lower case. `planned` has the
    operations of migrations into which somebody has put more.
    """
    state = ProjectState()
    found: dict[str, Installed] = {}
    plan = dict.fromkeys(key for leaf in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(leaf))
    for key in plan:
        if key[0] != label or (applied is not None and key not in applied):
            continue
        for index, operation in enumerate((planned or {}).get(key, loader.graph.nodes[key].operations)):
            yield (key, index), state, found
            operation.state_forwards(label, state)
            _follow(found, label, state, operation)
    yield None, state, found


def _follow(found: dict[str, Installed], label: str, state: ProjectState, operation: Any) -> None:
    """What is made of the queues that were found by an operation, behind which the app is in this state."""
    for each in in_database(operation):
        name = getattr(each, "model_name", "").lower()
        if isinstance(each, InstallQueue):
            columns = _columns(state, label, name, each.definition)
            found[name] = Installed(each.definition, _table(state, label, name), columns)
        elif isinstance(each, UninstallQueue):
            found.pop(name, None)
    for each in in_state(operation):
        name = getattr(each, "model_name", "").lower()
        if isinstance(each, RenameModel) and each.old_name_lower in found:
            found[each.new_name_lower] = found.pop(each.old_name_lower)
        elif isinstance(each, (RenameField, AlterField)) and (of := found.get(name)) and of.definition:
            definition = renamed(of.definition, each)
            found[name] = replace(of, definition=definition, columns=_columns(state, label, name, definition))


def in_migrations(
    loader: MigrationLoader, label: str, applied: Collection[tuple[str, str]] | None = None
) -> dict[str, Installed]:
    """What the migrations of an app install, or those of them that are `applied`; by the model's name in lower case.

    A queue whose table has another name since is none: what belongs to it is called by that.
    """
    *_, (_, state, found) = replay(loader, label, applied)
    return {
        name: installed
        for name, installed in found.items()
        if (label, name) in state.models and installed.table == _table(state, label, name)
    }


def installs(loader: MigrationLoader, label: str) -> bool:
    """Whether a migration of an app installs a queue at all, which costs less to tell than what is left of it."""
    operations = (one for (app, _), each in loader.disk_migrations.items() if app == label for one in each.operations)
    return any(isinstance(part, InstallQueue) for operation in operations for part in in_database(operation))


def in_database(operation: Any) -> list[Any]:
    """The operations that one has in a database, of which it may be made up."""
    if not isinstance(operation, SeparateDatabaseAndState):
        return [operation]
    return [part for each in operation.database_operations for part in in_database(each)]


def in_state(operation: Any) -> list[Any]:
    """The operations that one has in what Django knows of models; of plain SQL those that say what it does."""
    if not isinstance(operation, (SeparateDatabaseAndState, RunSQL)):
        return [operation]
    return [part for each in operation.state_operations for part in in_state(each)]


def _table(state: ProjectState, label: str, name: str) -> str:
    return str(state.models[label, name].options.get("db_table") or f"{label}_{name}")


def _columns(state: ProjectState, label: str, name: str, definition: Definition | None) -> dict[str, str]:
    """The columns of the roles, as they are in this state, where not all of its fields need be there still or yet."""
    fields, roles = state.models[label, name].fields, (definition or {"fields": {}})["fields"]
    return {role: column(fields[field], field) for role, field in roles.items() if field in fields}


def column(field: Any, name: str) -> str:
    """The column of a field that has no model."""
    bound = field.clone()
    bound.set_attributes_from_name(name)
    return str(bound.column)


def renamed(definition: Definition, operation: Any) -> Definition:
    """A definition after an operation that may give one of its fields another name."""
    if not isinstance(operation, RenameField):
        return definition
    fields = {
        role: name if name != operation.old_name else operation.new_name for role, name in definition["fields"].items()
    }
    return {**definition, "fields": fields}


def of_today(label: str) -> dict[str, Queue[Any]]:
    """The queues among the models of an app, by the model's name in lower case."""
    found = {model._meta.model_name: queue_of(model) for model in registry.get_app_config(label).get_models()}
    return {str(name): queue for name, queue in found.items() if queue is not None}


def after_migrate(app_config: Any, using: str, apps: Any = registry, plan: Any = None, **signal: Any) -> None:
    """Install what migrations could not, and what they took away: SQLite's tables are altered by making them anew.

    So is the queue of an app that has no migrations, or whose migrations are switched off. A flush, which tells of no
    `plan`, leaves nothing that was counted, whatever it did to the counters.
    """
    label, connection, flushed = app_config.label, connections[using], plan is None
    if _is_of_a_test(connection):
        _leave_first(connection)
    today = {name: queue.definition for name, queue in of_today(label).items()}
    wanted: dict[str, Definition | None] = {**today}
    expected: Collection[str] = () if flushed else wanted
    if wanted and not flushed:
        loader = MigrationLoader(connection, ignore_no_migrations=True)
        if label in loader.migrated_apps:
            expected = in_migrations(loader, label, loader.applied_migrations)
            wanted |= {name: each.definition for name, each in expected.items() if each.definition}
    for name, definition in wanted.items():
        queue = fitting(apps, label, name, using, definition)
        if queue is not None and queue.installation.on_record() is False:  # but perhaps as today, by hand
            queue = fitting(apps, label, name, using, today.get(name)) or queue
        if queue is not None and _install(queue, name in expected) and flushed:
            queue.recount()
            queue.reset()


def _install(queue: Queue[Any], expected: bool) -> bool:
    """Install what is missing of a queue that is there, or is expected to be; whether it is."""
    if queue.installation.missing_columns():
        return False
    recorded = queue.installation.on_record()
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
