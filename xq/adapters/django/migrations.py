"""The migration operations that install and uninstall a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final

from django.apps import apps
from django.apps.registry import Apps
from django.core.management import CommandError
from django.db import connections, models, router
from django.db.migrations.operations import base

from xq.adapters.django.connections import ENGINES
from xq.adapters.django.lookup import queue_of
from xq.adapters.django.store import DjangoStore
from xq.api import Queue
from xq.core.errors import ConfigurationError, Error
from xq.core.words import NAMES
from xq.sql.migrated import beside_writers
from xq.upgrading.build import arguments_of, build, changes, written

CATEGORIES: Any = getattr(base, "OperationCategory", None)  # Django 5.1 and later
KEY: Final = "_xq"  # among a model's options in a project's state; a Meta ignores names that begin so
MERGED: Final = (
    "; or, if a migration of another branch has added what this definition lacks, add that to the `definition` in the "
    "migration that is refused"
)
TOLD: Final[dict[tuple[str, str], str]] = {}  # which rows have become tasks, by database and model, until it is said


def detached_queue(model: Any, using: str, definition: Mapping[str, Any]) -> Queue[Any]:
    """Return a queue that is not attached to the model. `definition` has the arguments of `upgrade`."""
    store: DjangoStore[Any] = DjangoStore(model, using)
    store.merged = MERGED
    return build(store, **definition, detached=True)


@contextmanager
def refused() -> Iterator[None]:
    """Raise a refusal as a CommandError, of which `migrate` prints the message alone."""
    try:
        yield
    except ConfigurationError as error:
        raise CommandError(str(error)) from error


def queue_on(then: Apps, label: str, name: str, using: str, definition: Any = None) -> Queue[Any] | None:
    """Return a queue with a definition, as `written`, on the model as it was then; None: with today's definition.

    None if its table belongs to another database, or if the model then lacked some of its fields; for today's also if
    the model is no queue today. Raises ConfigurationError if a definition does not fit the model.
    """
    if definition is not None:
        model = then.get_model(label, name)
        if not is_in(using, model) or not _has(model, definition["roles"]):
            return None
        today = queue_of(apps.all_models[label].get(name.lower(), models.Model))
        features = today.parts.definition.features if today else {}  # the program's own ones are those of today
        return detached_queue(model, using, arguments_of(definition, of=features))
    try:
        today, model = queue_of(apps.get_model(label, name)), then.get_model(label, name)
        if today is None or not is_in(using, model) or not _has(model, today.roles):
            return None
        return detached_queue(model, using, today.parts.definition.arguments)
    except (LookupError, Error):  # the model had another name, or its fields other types
        return None


def _has(model: Any, roles: Mapping[str, str]) -> bool:
    """Return whether a model has the fields of a queue."""
    return {field.name for field in model._meta.concrete_fields}.issuperset(roles.values())


def installed_in(state: Any, label: str, name: str) -> InstallQueue | None:
    """Return the operation that has installed the queue on a model in a project's state, if any."""
    model = state.models.get((label, name.lower()))
    return model.options.get(KEY) if model else None


def next_operation(there: InstallQueue | None, name: str, queue: Queue[Any] | None) -> QueueOperation | None:
    """Return the operation that leads from what an app's migrations install on a model to its queue of today.

    One without a definition takes that of the day, and needs none.
    """
    if queue is None:
        return UninstallQueue(name) if there else None
    definition = written(queue.parts.definition)
    if there is None:
        return InstallQueue(name, definition=definition)
    changed = "" if there.definition is None else changes(there.definition, definition)
    return InstallQueue(name, online=there.online, definition=definition, changes=changed) if changed else None


def is_in(using: str, model: Any) -> bool:
    """Return whether migrations make a model's table in a database that xq supports."""
    known = connections[using].vendor in ENGINES
    return known and model._meta.can_migrate(using) and bool(router.allow_migrate_model(using, model))


class QueueOperation(base.Operation):
    """Installs or uninstalls the queue on a model.

    `definition` is that of the queue, as `written`; None: that of the model as the migration runs. `changes` are its
    differences to the one before, in words. The other arguments are of migrations from version 0.2.0, and ignored.
    """

    reversible = True
    reduces_to_sql = True
    elidable = False
    serialization_expand_args = ("definition",)
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
        definition: Mapping[str, Any] | None = None,
        changes: str = "",
    ) -> None:
        self.model_name, self.online, self.definition, self.changes = model_name, online, definition, changes

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        given = {name: value for name in ("online", "definition", "changes") if (value := getattr(self, name))}
        return type(self).__name__, [], {"model_name": self.model_name, **given}

    def describe(self) -> str:
        text = "Change the queue on {}" if self.changes else self.text
        return text.format(self.model_name) + f": {self.changes}" * bool(self.changes)

    @property
    def migration_name_fragment(self) -> str:
        return ("change_{}_queue" if self.changes else self.fragment).format(self.model_name.lower())

    def references_model(self, name: str, app_label: str) -> bool:
        return name.lower() == self.model_name.lower()

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Keep in the model's state which operation has installed its queue."""
        if model := state.models.get((app_label, self.model_name.lower())):
            model.options = {**model.options, KEY: self if isinstance(self, InstallQueue) else None}

    @refused()
    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Make the queue what it is in a state, from what it was in the one before, in either direction."""
        editor, before, after = schema_editor, from_state, to_state
        old, new = (installed_in(state, app_label, self.model_name) for state in (before, after))
        if new is None:
            self._uninstall(app_label, editor, before)
            return
        using, name = editor.connection.alias, self.model_name
        if (queue := queue_on(after.apps, app_label, name, using, new.definition)) is None:
            return  # `migrate` installs it at its end
        here = queue.parts.executor.installation
        if editor.collect_sql:
            was = old and old.definition and queue_on(before.apps, app_label, name, using, old.definition)
            stale = was.parts.executor.installation.ddl_to_replace(here) if was else []
            with suppress(ConfigurationError):  # which `migrate` raises; or another migration has followed this one
                stale = stale if was else here.refuse_if_reached()
            sql = here.ddl(stale)
            editor.collected_sql += [f"{beside(queue, each) if self.online else each};" for each in sql]
            return
        beside_others = self.online and not here.dialect.is_local
        if beside_others and editor.atomic_migration:
            if here.has_rows():
                raise ConfigurationError(
                    f"InstallQueue({self.model_name!r}, online=True) installs beside writers, step by step, and a "
                    "transaction would keep all locks: write atomic = False into the class Migration"
                )
            beside_others = False  # an empty table, as one that a squashed migration makes, has no writers to wait
        install(queue, using, beside_others, new.definition is not None)  # the order of migrations is that of age

    @refused()
    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if isinstance(self, InstallQueue) and self.definition is None:  # nor is it known what was before
            self._uninstall(app_label, schema_editor, from_state)
        else:
            self.database_forwards(app_label, schema_editor, from_state, to_state)

    def _uninstall(self, app_label: str, editor: Any, state: Any) -> None:
        """Remove all that is installed on the table, whatever its definition was."""
        using, model = editor.connection.alias, state.apps.get_model(app_label, self.model_name)
        table = model._meta.db_table
        if not is_in(using, model):
            return
        if editor.collect_sql:
            there = installed_in(state, app_label, self.model_name)
            was = there and queue_on(state.apps, app_label, self.model_name, using, there.definition)
            sql = was.parts.executor.installation.ddl_to_uninstall(columns=False) if was else []
            editor.collected_sql += [f"-- drops what of {table}_xq_... is there", *(f"{each};" for each in sql)]
            return
        meta = type("Meta", (), {"app_label": app_label, "apps": Apps(), "db_table": table})
        body = {"__module__": __name__, "Meta": meta, "status": models.CharField(max_length=1)}
        fields = {"fields": {"status": "status"}}
        detached_queue(type(model.__name__, (models.Model,), body), using, fields).uninstall()


class InstallQueue(QueueOperation):
    """Install the queue on a model, or a definition in place of another. `manage.py makemigrations` writes this.

    Without a definition it does nothing while the model lacks the queue's fields: `migrate` installs it at its end.
    Undoing it installs the definition before, or restores the plain table. `online` installs as
    `Queue.install(online=True)` does, in a migration with `atomic = False`.
    """

    category = CATEGORIES and CATEGORIES.ADDITION
    text, fragment = "Install the queue on {}", "{}_queue"


class UninstallQueue(QueueOperation):
    """Uninstall the queue on a model and leave the plain table: the reverse of InstallQueue.

    Place it before operations that rename the model's table or delete the model, as `makemigrations` does.
    """

    category = CATEGORIES and CATEGORIES.REMOVAL
    text, fragment = "Take the queue away from {}", "remove_{}_queue"


@refused()
def install(queue: Queue[Any], using: str, online: bool, downgrade: bool) -> None:
    """Install a queue, and keep for the end of `migrate` which rows are tasks now. Raises CommandError.

    `online`, another definition is replaced at once, after PostgreSQL has built its indexes beside writers.
    """
    here, meta = queue.parts.executor.installation, queue.model._meta
    before = here.installed_words()
    is_changed = bool(online and before and here.missing())
    with here.change_online(downgrade) if is_changed else nullcontext():
        queue.install(online=online and not is_changed, downgrade=downgrade, forward=True)
    words = {state: word for state, word in here.dialect.words.items() if word not in before.values()}
    counts = {state: n for state, n in queue.stats().counts.items() if n and state in words}
    if counts:
        words = {state: word if isinstance(word, str) else f"of status {word}" for state, word in words.items()}
        said = [f"{n:,} {words[state]} ({NAMES[state]})" for state, n in counts.items()]
        TOLD[using, meta.label] = f"{sum(counts.values()):,} rows of {meta.label} become tasks: {', '.join(said)}"


def beside(queue: Queue[Any], sql: str) -> str:
    """Return SQL that builds an index on the queue's table beside writers, where it does."""
    return (queue.parts.store.engine == "postgres" and beside_writers(sql, queue.model._meta.db_table)) or sql
