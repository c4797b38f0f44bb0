"""What the migrations of an app say of its queues, and what today's models do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.db.migrations import AlterField, RenameField, RenameModel, RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from xq.adapters.django.lookup import queue_of
from xq.adapters.django.migrations import Definition, InstallQueue, UninstallQueue, queue_apart
from xq.core.errors import Error
from xq.queue import Queue

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
            fingerprint = queue_apart(queue.model, None, self.definition).adapter.installation.fingerprint
        except Error as error:
            return [f"its definition there does not fit the model any more ({error})"]
        return queue.adapter.installation.differences({**json.loads(fingerprint), "roles": dict(self.columns)})


def replay(
    loader: MigrationLoader, label: str, applied: Collection[tuple[str, str]] | None = None
) -> Iterator[tuple[Position | None, ProjectState, dict[str, Installed]]]:
    """What an app and its queues are before each operation of its migrations, and at last, at no position.

    With `applied`, of those migrations only. The queues are found by the model's name in lower case.
    """
    state = ProjectState()
    found: dict[str, Installed] = {}
    plan = dict.fromkeys(key for leaf in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(leaf))
    for key in plan:
        if key[0] != label or (applied is not None and key not in applied):
            continue
        for index, operation in enumerate(loader.graph.nodes[key].operations):
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
