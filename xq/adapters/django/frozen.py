"""The queues of an app as its migrations define them, and those of today's models."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.db.migrations import RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from xq.adapters.django.lookup import queue_of
from xq.adapters.django.migrations import Definition, InstallQueue, UninstallQueue, detached_queue
from xq.core.errors import Error
from xq.handle import Queue

Position = tuple[tuple[str, str], int]  # of an operation: its migration, and its index there


@dataclass(frozen=True)
class Installed:
    """The queue that the last operation of the migrations installs."""

    definition: Definition | None  # None: that of today's model
    table: str
    columns: Mapping[str, str]  # role -> column, if the definition names the roles

    def differences(self, queue: Queue[Any]) -> list[str]:
        """Return in words how today's definition differs from this one, as far as the database is concerned."""
        if self.definition is None:
            return []
        try:
            there = json.loads(detached_queue(queue.model, None, self.definition).adapter.installation.fingerprint)
        except Error as error:
            return [f"its definition there does not fit the model any more ({error})"]
        return queue.adapter.installation.differences({**there, "roles": there["roles"] | self.columns})


def replay(
    loader: MigrationLoader, label: str, applied: Collection[tuple[str, str]] | None = None
) -> Iterator[tuple[Position | None, ProjectState, dict[str, Installed]]]:
    """Yield the state and the queues of an app before each operation of its migrations, and at the end.

    The last item has no position.

    With `applied`, only of those migrations. The queues are by the model's name in lower case.
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
    """Apply an operation to the queues that were found; the app is in this state after it."""
    for each in in_database(operation):
        name = getattr(each, "model_name", "").lower()
        if isinstance(each, InstallQueue):
            columns = _columns(state, label, name, each.definition)
            found[name] = Installed(each.definition, _table(state, label, name), columns)
        elif isinstance(each, UninstallQueue):
            found.pop(name, None)


def in_migrations(
    loader: MigrationLoader, label: str, applied: Collection[tuple[str, str]] | None = None
) -> dict[str, Installed]:
    """Return what the migrations of an app, or the `applied` ones, install, by the model's name in lower case.

    A queue whose table was renamed since is left out: its objects have the old name.
    """
    *_, (_, state, found) = replay(loader, label, applied)
    return {
        name: installed
        for name, installed in found.items()
        if (label, name) in state.models and installed.table == _table(state, label, name)
    }


def installs(loader: MigrationLoader, label: str) -> bool:
    """Return whether a migration of an app installs a queue. This is faster than `in_migrations`."""
    operations = (one for (app, _), each in loader.disk_migrations.items() if app == label for one in each.operations)
    return any(isinstance(part, InstallQueue) for operation in operations for part in in_database(operation))


def in_database(operation: Any) -> list[Any]:
    """Return the operations that run in the database for an operation that may contain others."""
    if not isinstance(operation, SeparateDatabaseAndState):
        return [operation]
    return [part for each in operation.database_operations for part in in_database(each)]


def in_state(operation: Any) -> list[Any]:
    """Return the operations that change Django's state of models; for plain SQL its state operations."""
    if not isinstance(operation, (SeparateDatabaseAndState, RunSQL)):
        return [operation]
    return [part for each in operation.state_operations for part in in_state(each)]


def _table(state: ProjectState, label: str, name: str) -> str:
    return str(state.models[label, name].options.get("db_table") or f"{label}_{name}")


def _columns(state: ProjectState, label: str, name: str, definition: Definition | None) -> dict[str, str]:
    """Return the columns of the roles in this state, which may lack some of the fields."""
    fields, roles = state.models[label, name].fields, (definition or {"fields": {}})["fields"]
    return {role: column(fields[field], field) for role, field in roles.items() if field in fields}


def column(field: Any, name: str) -> str:
    """Return the column of a field that has no model."""
    bound = field.clone()
    bound.set_attributes_from_name(name)
    return str(bound.column)


def of_today(label: str) -> dict[str, Queue[Any]]:
    """Return the queues among the models of an app, by the model's name in lower case."""
    found = {model._meta.model_name: queue_of(model) for model in registry.get_app_config(label).get_models()}
    return {str(name): queue for name, queue in found.items() if queue is not None}
