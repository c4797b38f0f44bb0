"""The operations of migrations that install and uninstall a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.db.migrations.operations import base

from xq.adapters.django.lookup import queue_of
from xq.adapters.django.store import DjangoStore
from xq.build import build
from xq.core.errors import ConfigurationError
from xq.handle import Queue

# The arguments of `upgrade` that define a queue, named as in `Queue.definition`. A migration leaves out empty ones.
Definition = Mapping[str, Any]

CATEGORIES: Any = getattr(base, "OperationCategory", None)  # Django 5.1 and later


def detached_queue(model: Any, using: str | None, definition: Definition) -> Queue[Any]:
    """Return a queue of this definition that is not attached to the model."""
    return build(DjangoStore(model, using), **definition, detached=True)


class _Operation(base.Operation):
    reversible = True
    reduces_to_sql = True
    elidable = False
    serialization_expand_args = ["fields", "features", "previous"]
    online = False

    def __init__(
        self,
        model_name: str,
        fields: Mapping[str, str] | None = None,
        features: Mapping[str, Any] | None = None,
        statuses: Mapping[str, str | int] | None = None,
        tube_stats: Sequence[str] | None = None,
    ) -> None:
        given = {"fields": fields, "features": features, "statuses": statuses, "tube_stats": tube_stats}
        self.model_name = model_name
        self.definition: Definition | None = {name: value for name, value in given.items() if value is not None}
        if fields is None:
            if self.definition:
                raise ConfigurationError(
                    f"{type(self).__name__}({model_name!r}) has {', '.join(self.definition)} without fields=: write "
                    "all of the definition, or nothing of it, for the one that the model has today"
                )
            self.definition = None

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [], {"model_name": self.model_name, **(self.definition or {})}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Do nothing: a queue is not part of Django's state of a model."""

    def references_model(self, name: str, app_label: str) -> bool:
        return name.lower() == self.model_name.lower()

    def _queue(self, app_label: str, editor: Any, state: Any, definition: Definition | None) -> Queue[Any] | None:
        """Return the queue on the model of that time; None if the routers exclude it from this database.

        Also None if today's definition needs fields that the model did not have: after_migrate installs it then.
        """
        using = editor.connection.alias
        model = state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(using, model):
            return None
        if definition is not None:
            return detached_queue(model, using, definition)
        today = queue_of(apps.get_model(app_label, self.model_name))
        if today is None:
            raise ConfigurationError(
                f"{type(self).__name__}({self.model_name!r}) without fields= means today's definition of "
                f"{app_label}.{model.__name__}, which is not a queue: write fields= and features= as they were"
            )
        present = {field.name for field in model._meta.concrete_fields}
        fits = present.issuperset(today.roles.values())
        return detached_queue(model, using, today.adapter.definition) if fits else None

    def _install(
        self, app_label: str, editor: Any, state: Any, definition: Definition | None, replaced: Definition | None = None
    ) -> None:
        queue = self._queue(app_label, editor, state, definition)
        if queue is not None and editor.collect_sql:
            editor.collected_sql.append(queue.ddl())
        elif queue is not None and self.online:
            if editor.atomic_migration:
                raise ConfigurationError(
                    f"InstallQueue({self.model_name!r}, online=True) installs beside writers, step by step, and a "
                    "transaction would keep all locks: write atomic = False into the class Migration"
                )
            queue.install(online=True)
        elif queue is not None:
            queue.install(drop_history=replaced is not None and bool(replaced["features"].get("history")))

    def _uninstall(self, app_label: str, editor: Any, state: Any) -> None:
        queue = self._queue(app_label, editor, state, self.definition)
        if queue is not None and editor.collect_sql:
            editor.collected_sql.append(
                f"-- drops what of {queue.adapter.store.table}_xq_... is there, as uninstall() does"
            )
        elif queue is not None:
            queue.uninstall()


class InstallQueue(_Operation):
    """Install a queue on a model. `manage.py xq_makemigration` writes this operation with the current definition.

    Without `fields` (written by hand) it installs the definition that the model has when the migration runs. `previous`
    is the definition that was installed before, as a mapping of the other arguments; undoing the migration restores it.
    Without `previous`, undoing restores the plain table. `online` installs as `Queue.install(online=True)` does, in a
    migration with `atomic = False`.
    """

    category = CATEGORIES and CATEGORIES.ADDITION

    def __init__(
        self,
        model_name: str,
        fields: Mapping[str, str] | None = None,
        features: Mapping[str, Any] | None = None,
        statuses: Mapping[str, str | int] | None = None,
        tube_stats: Sequence[str] | None = None,
        previous: Definition | None = None,
        online: bool = False,
    ) -> None:
        super().__init__(model_name, fields, features, statuses, tube_stats)
        self.previous, self.online = previous, online

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        name, arguments, options = super().deconstruct()
        more = {"previous": self.previous, "online": self.online or None}
        return name, arguments, options | {name: value for name, value in more.items() if value is not None}

    def describe(self) -> str:
        return f"Install the queue on {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        return f"{self.model_name.lower()}_queue"

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._install(app_label, schema_editor, to_state, self.definition, self.previous)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self.previous is not None and self._fits(app_label, to_state, self.previous):
            self._install(app_label, schema_editor, to_state, self.previous, self.definition)
        else:
            self._uninstall(app_label, schema_editor, from_state)

    def _fits(self, app_label: str, state: Any, definition: Definition) -> bool:
        """Return whether the model then has the fields of a definition. They may be missing or have other names."""
        present = state.models[app_label, self.model_name.lower()].fields
        return present.keys() >= set(definition["fields"].values())


class UninstallQueue(_Operation):
    """Uninstall a queue of this definition and leave the plain table: the reverse of InstallQueue.

    Place it before operations that rename the model's table or delete the model.
    """

    category = CATEGORIES and CATEGORIES.REMOVAL

    def describe(self) -> str:
        return f"Take the queue away from {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        return f"remove_{self.model_name.lower()}_queue"

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._uninstall(app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._install(app_label, schema_editor, to_state, self.definition)
