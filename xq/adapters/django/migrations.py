"""The migration operations that install and uninstall a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps
from django.apps.registry import Apps
from django.db import connections, models, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import base

from xq.adapters.django.connections import ENGINES
from xq.adapters.django.lookup import queue_of
from xq.adapters.django.store import DjangoStore
from xq.api import Queue
from xq.core.errors import ConfigurationError, Error
from xq.upgrading.build import build

CATEGORIES: Any = getattr(base, "OperationCategory", None)  # Django 5.1 and later


def detached_queue(model: Any, using: str, definition: Mapping[str, Any]) -> Queue[Any]:
    """Return a queue that is not attached to the model. `definition` has the arguments of `upgrade`."""
    return build(DjangoStore(model, using), **definition, detached=True)


def queue_on(then: Apps, label: str, name: str, using: str) -> Queue[Any] | None:
    """Return a queue with today's definition on the model as it was then.

    None if the model is no queue today, if its table belongs to another database, or if it then had other fields.
    """
    try:
        today, model = queue_of(apps.get_model(label, name)), then.get_model(label, name)
        present = {field.name for field in model._meta.concrete_fields}
        if today is None or not is_in(using, model) or not present.issuperset(today.roles.values()):
            return None
        return detached_queue(model, using, today.parts.definition.arguments)
    except (LookupError, Error):  # the model had another name, or its fields other types
        return None


def is_in(using: str, model: Any) -> bool:
    """Return whether migrations make a model's table in a database that xq supports."""
    known = connections[using].vendor in ENGINES
    return known and model._meta.can_migrate(using) and bool(router.allow_migrate_model(using, model))


def operations_of(loader: MigrationLoader, label: str) -> Iterator[tuple[tuple[str, str], QueueOperation]]:
    """Yield the queue operations in an app's migrations, in their order, each with its migration."""
    leaves = loader.graph.leaf_nodes(label)
    for key in dict.fromkeys(key for leaf in leaves for key in loader.graph.forwards_plan(leaf)):
        if key[0] == label:
            yield from ((key, each) for each in loader.graph.nodes[key].operations if isinstance(each, QueueOperation))


def installed_by(loader: MigrationLoader, label: str) -> set[str]:
    """Return the names, in lower case, of an app's models that are queues after all its migrations."""
    last = {operation.model_name.lower(): operation for _, operation in operations_of(loader, label)}
    return {name for name, operation in last.items() if isinstance(operation, InstallQueue)}


class QueueOperation(base.Operation):
    """Installs or uninstalls the queue on a model.

    It uses the model's definition as the migration runs. Migrations from version 0.2.0 name one, which is ignored.
    """

    reversible = True
    reduces_to_sql = True
    elidable = False
    text: str  # what it does to {}, the model
    fragment: str  # for a migration's name

    def __init__(
        self,
        model_name: str,
        fields: Any = None,
        features: Any = None,
        statuses: Any = None,
        tube_stats: Any = None,
        previous: Any = None,
        online: bool = False,
    ) -> None:
        self.model_name = model_name
        self.online = online

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [], {"model_name": self.model_name, **({"online": True} if self.online else {})}

    def describe(self) -> str:
        return self.text.format(self.model_name)

    @property
    def migration_name_fragment(self) -> str:
        return self.fragment.format(self.model_name.lower())

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Do nothing: a queue is not part of a model's state in Django."""

    def references_model(self, name: str, app_label: str) -> bool:
        return name.lower() == self.model_name.lower()

    def _install(self, app_label: str, editor: Any, state: Any) -> None:
        """Install the queue if the model has all its fields by now; else `migrate` does it at its end."""
        queue = queue_on(state.apps, app_label, self.model_name, editor.connection.alias)
        if queue is None:
            return
        if editor.collect_sql:
            editor.collected_sql.append(queue.ddl())
        elif self.online and editor.atomic_migration:
            raise ConfigurationError(
                f"InstallQueue({self.model_name!r}, online=True) installs beside writers, step by step, and a "
                "transaction would keep all locks: write atomic = False into the class Migration"
            )
        else:
            queue.install(online=self.online)

    def _uninstall(self, app_label: str, editor: Any, state: Any) -> None:
        """Remove all that is installed on the table, whatever its definition was."""
        using, model = editor.connection.alias, state.apps.get_model(app_label, self.model_name)
        table = model._meta.db_table
        if not is_in(using, model):
            return
        if editor.collect_sql:
            editor.collected_sql.append(f"-- drops what of {table}_xq_... is there, as uninstall() does")
            return
        meta = type("Meta", (), {"app_label": app_label, "apps": Apps(), "db_table": table})
        body = {"__module__": __name__, "Meta": meta, "status": models.CharField(max_length=1)}
        fields = {"fields": {"status": "status"}}
        detached_queue(type(model.__name__, (models.Model,), body), using, fields).uninstall()


class InstallQueue(QueueOperation):
    """Install the queue on a model as it is defined when the migration runs. `manage.py xq_makemigration` writes this.

    It does nothing while the model lacks the queue's fields: `migrate` installs it at its end. Undoing it restores the
    plain table. `online` installs as `Queue.install(online=True)` does, in a migration with `atomic = False`.
    """

    category = CATEGORIES and CATEGORIES.ADDITION
    text, fragment = "Install the queue on {}", "{}_queue"

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._install(app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._uninstall(app_label, schema_editor, from_state)


class UninstallQueue(QueueOperation):
    """Uninstall the queue on a model and leave the plain table: the reverse of InstallQueue.

    Place it before operations that rename the model's table or delete the model.
    """

    category = CATEGORIES and CATEGORIES.REMOVAL
    text, fragment = "Take the queue away from {}", "remove_{}_queue"

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._uninstall(app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._install(app_label, schema_editor, to_state)
