"""Migrations that alter the table of a queue, which databases do not allow, or do by making another table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connections
from django.db.migrations import (
    AddField,
    AlterField,
    AlterModelTable,
    DeleteModel,
    RemoveField,
    RenameField,
    RenameModel,
)
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import base
from django.db.migrations.utils import field_references

from xq.adapters.databases.mysql import LONG
from xq.adapters.django.frozen import Installed, column, fitting, in_database, in_state, of_today, renamed, replay
from xq.adapters.django.migrations import Definition, InstallQueue, UninstallQueue
from xq.core.errors import ConfigurationError
from xq.queue import Queue

OTHERS = (InstallQueue, UninstallQueue, RenameModel, AlterModelTable, DeleteModel)  # which are not made around


ALTER_OTHERS = (AlterField, RenameField, RenameModel)  # on SQLite: tables that refer to this one are made anew, too


class Known(NamedTuple):
    """What a queue may be, and whether a database refuses the operation for the triggers and indexes of that."""

    definition: Definition
    takes_down: bool


class Edge(base.Operation):
    """What is done before an operation that alters the table of a queue, or after it; when it is undone, the reverse.

    Before it triggers and indexes are taken down, where they are in its way; after it what is missing is installed, in
    the same transaction where the database has such. Of what the queue may be it is what is on record there.
    """

    reduces_to_sql = False

    def __init__(self, model_name: str, known: Sequence[Known], before: bool, kept: dict[str, int]) -> None:
        self.model_name = model_name
        self.known = known
        self.before = before
        # Shared by both edges of an operation: the aliases where the queue is to be there after it, as which of these.
        self.kept = kept

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Nothing that Django knows of."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._do(self.before, app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._do(not self.before, app_label, schema_editor, to_state)

    def describe(self) -> str:
        return f"Keep the queue on {self.model_name}"

    def _do(self, before: bool, app_label: str, editor: Any, state: Any) -> None:
        using = editor.connection.alias
        for index, (definition, takes_down) in enumerate(self.known):
            if not before and self.kept.get(using) != index:
                continue
            queue = fitting(state.apps, app_label, self.model_name, using, definition)
            if queue is None:
                continue
            if not before:
                queue.install()
            elif queue.installation.on_record():
                self.kept[using] = index
                if takes_down:
                    # In the order in which others lock: what they put and move waits for that first.
                    with queue.installation.dialect.installing(queue.store):
                        queue.installation.take_down()
                return


def before_migrate(app_config: Any, using: str, plan: Any = (), **signal: Any) -> None:
    """Put an Edge before and after each operation of the plan that needs it.

    Django itself adds to plans so, for what hangs on the names of models, and may have done it by now.
    """
    label, connection = app_config.label, connections[using]
    migrations = {(each.app_label, each.name): each for each, backwards in plan if each.app_label == label}
    today = of_today(label)
    if not migrations or not today:
        return
    operations = {key: migration.operations for key, migration in migrations.items()}
    loader = MigrationLoader(connection, ignore_no_migrations=True)
    edged: dict[tuple[str, str], list[Any]] = {}
    for position, state, found in replay(loader, label, planned=operations):
        if position is None or position[0] not in migrations:
            continue
        key, index = position
        operation = operations[key][index]
        edges = _edges(connection, label, operation, state, _definitions(found, today))
        before, after = [each[0] for each in edges], [each[1] for each in edges]
        edged.setdefault(key, []).extend([*before, operation, *after])
    for key, found_operations in edged.items():
        migrations[key].operations = found_operations


def _definitions(found: Mapping[str, Installed], today: Mapping[str, Queue[Any]]) -> dict[str, Sequence[Definition]]:
    """What the queues that were found may be, by the model's name: as the migrations say, or reconfigured by hand."""
    now = {name: queue.definition for name, queue in today.items()}
    known = {name: [each.definition, now.get(name)] for name, each in found.items()}
    return {
        name: [each for i, each in enumerate(definitions) if each is not None and each not in definitions[:i]]
        for name, definitions in known.items()
    }


def _edges(
    connection: Any, label: str, operation: Any, state: Any, definitions: Mapping[str, Sequence[Definition]]
) -> list[tuple[Edge, Edge]]:
    """What is done before an operation and after it, for each queue whose table it alters."""
    database, told = in_database(operation), in_state(operation)
    if not database:
        return []
    parts = [*database, *told]
    about = {_model_of(part) for part in parts} - {_model_of(part) for part in parts if isinstance(part, OTHERS)}
    on_sqlite = connection.vendor == "sqlite"
    if on_sqlite:
        about |= {
            name for part in database if isinstance(part, ALTER_OTHERS) for name in _referring(label, state, part)
        }
    found = []
    for name in sorted(definitions.keys() & about):
        before = [
            Known(each, any(_takes_down_among(connection, label, name, some, state, each) for some in (database, told)))
            for each in definitions[name]
        ]
        if on_sqlite or any(each.takes_down for each in before):
            after = before
            for part in told:
                if _model_of(part) == name:
                    after = [each._replace(definition=renamed(each.definition, part)) for each in after]
            kept: dict[str, int] = {}
            found.append((Edge(name, before, True, kept), Edge(name, after, False, kept)))
    return found


def _referring(label: str, state: Any, operation: Any) -> Iterator[str]:
    """The models of an app that refer to the one that an operation is about."""
    to = (label, operation.old_name_lower if isinstance(operation, RenameModel) else _model_of(operation))
    for (app, name), model in state.models.items():
        if app == label and any(field_references((app, name), field, to) for field in model.fields.values()):
            yield name


def _takes_down_among(
    connection: Any, label: str, name: str, parts: Sequence[Any], state: Any, definition: Definition
) -> bool:
    """Whether a database refuses one of the operations on a model, of which each sees what those before it leave."""
    state = state.clone()
    for part in parts:
        if _model_of(part) == name:
            if _takes_down(connection, part, state.models[label, name], definition):
                return True
            definition = renamed(definition, part)
        part.state_forwards(label, state)
    return False


def _model_of(operation: Any) -> str:
    """The model that an operation is about, in lower case, if it is about one."""
    return str(getattr(operation, "model_name", getattr(operation, "name", ""))).lower()


def _takes_down(connection: Any, operation: Any, model: Any, definition: Definition) -> bool:
    """Whether a database refuses an operation for the triggers and indexes of a queue. Refuses what nobody can mend."""
    if isinstance(operation, (AddField, RemoveField)):  # one is what undoes the other
        return connection.vendor != "postgresql" and operation.name in definition["fields"].values()
    if not isinstance(operation, (AlterField, RenameField)):
        return False
    old = operation.old_name if isinstance(operation, RenameField) else operation.name
    field = model.fields[old]
    keys = {name for name, each in model.fields.items() if each.primary_key}
    keys |= {part for key in keys for part in getattr(model.fields[key], "field_names", ())}
    if old not in {*keys, *definition["fields"].values()} or field.is_relation:
        return False
    if isinstance(operation, RenameField) or column(field, old) != column(operation.field, old):
        return True
    changes = field.db_type(connection) != operation.field.db_type(connection)
    if changes and operation.name in keys and connection.vendor != "sqlite":
        raise ConfigurationError(
            f"{model.name} is a queue, whose tables hold its key as it is: write UninstallQueue({model.name!r}, ...) "
            f"before the operation that alters {operation.name!r}, and InstallQueue({model.name!r}, ...) after it"
        )
    if connection.vendor == "mysql":  # whose indexes hold a long text in part, and another type whole
        return _as_indexed(field.db_type(connection)) != _as_indexed(operation.field.db_type(connection))
    return changes and connection.vendor == "postgresql"


def _as_indexed(declared: str | None) -> tuple[str, bool]:
    """What an index knows of a type of MariaDB's: not its length, but whether it is long."""
    name, _, length = str(declared).partition("(")
    return name, length.rstrip(")").isdecimal() and int(length.rstrip(")")) > LONG
