"""System checks of the queues of a project."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import connections, router
from django.db.migrations import AlterField, AlterModelTable, DeleteModel, RemoveField, RenameField, RenameModel
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from xq.adapters.django.connections import ADVICE, ENGINES
from xq.adapters.django.frozen import Installed, column, in_migrations, in_state, installs, of_today, replay
from xq.adapters.django.lookup import alias_of
from xq.adapters.django.migrations import detached_queue
from xq.adapters.django.settings import problems_of_xq
from xq.core.errors import Error
from xq.handle import Queue

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}  # vendor -> the driver that xq supports


def register() -> None:
    checks.register(check_queues, "xq")
    checks.register(check_databases, checks.Tags.database)


def check_queues(app_configs: Sequence[Any] | None, **given: Any) -> list[checks.CheckMessage]:
    """Check the settings, that each queue fits the database of its model, and that migrations install it as defined."""
    settings = [checks.Error(problem, id="xq.E004") for problem in problems_of_xq()]
    loader = MigrationLoader(None, ignore_no_migrations=True)
    return [*settings, *(message for config in _apps(app_configs) for message in _of_app(config.label, loader))]


def check_databases(
    app_configs: Sequence[Any] | None, databases: Sequence[str] | None = None, **given: Any
) -> list[checks.CheckMessage]:
    """Check that each queue is installed in the databases that have its table."""
    queues = [queue for config in _apps(app_configs) for queue in of_today(config.label).values()]
    return [message for queue in queues for alias in databases or () for message in _missing(queue, alias)]


def _apps(app_configs: Sequence[Any] | None) -> list[Any]:
    return list(apps.get_app_configs() if app_configs is None else app_configs)


def _of_app(label: str, loader: MigrationLoader) -> Iterator[checks.CheckMessage]:
    queues = of_today(label)
    spoken = {}
    for name, queue in queues.items():
        if not queue.model._meta.managed:
            continue
        wrong = _driver(connections[alias_of(queue)]) or _unfit(queue)
        if wrong:
            yield checks.Error(wrong[0], hint=wrong[1], obj=queue.model, id="xq.E005")
        else:
            spoken[name] = queue
            yield from _not_chosen(queue)
    if label not in loader.migrated_apps or loader.detect_conflicts() or not (spoken or installs(loader, label)):
        return
    yield from _altered(label, loader)
    installed = in_migrations(loader, label)
    yield from _no_more(label, {*installed} - {*queues})
    found = list(_of_migrations(label, spoken, installed))
    # If migrations lack changes of the model, makemigrations must run first, so no error may prevent it.
    if found and not _changes(loader, label):
        yield from found


def _of_migrations(
    label: str, queues: Mapping[str, Queue[Any]], installed: Mapping[str, Installed]
) -> Iterator[checks.CheckMessage]:
    for name, queue in queues.items():
        hint = f"manage.py xq_makemigration {queue.model._meta.label}"
        if name not in installed:
            said = f"{queue.model._meta.label} is a queue, and no migration of {label} installs it"
            yield checks.Error(said, hint=f"Run {hint}, and migrate", obj=queue.model, id="xq.E001")
        elif differences := installed[name].differences(queue):
            said = f"{queue.model._meta.label} is another queue than migrations install: {'; '.join(differences)}"
            yield checks.Error(said, hint=f"Run {hint}, and migrate", obj=queue.model, id="xq.E002")


def _no_more(label: str, names: Collection[str]) -> Iterator[checks.CheckMessage]:
    for name in sorted(names):
        model = apps.all_models[label].get(name)
        if model is not None and model._meta.managed:
            yield checks.Warning(
                f"{model._meta.label} is not a queue, and migrations of {label} install one: triggers and counters",
                hint=f"Upgrade it; or run manage.py xq_makemigration {model._meta.label} before makemigrations removes "
                "the fields that xq brought, and migrate",
                obj=model,
                id="xq.W006",
            )


def _altered(label: str, loader: MigrationLoader) -> Iterator[checks.CheckMessage]:
    for position, state, found in replay(loader, label):
        if position is None:
            return
        operation = loader.graph.nodes[position[0]].operations[position[1]]
        for part in in_state(operation):
            name = str(
                getattr(part, "model_name", None) or getattr(part, "old_name", None) or getattr(part, "name", "")
            )
            installed = found.get(name.lower())
            if installed is not None and _alters(part, state.models.get((label, name.lower())), installed):
                yield checks.Warning(
                    f"the migration {position[0][1]} of {label} alters the queue on {name} ({part.describe()})",
                    hint=f"Write UninstallQueue({name!r}, ...) before this operation, and InstallQueue after it",
                    id="xq.W008",
                )


def _alters(operation: Any, model: Any, installed: Installed) -> bool:
    """Return whether an operation alters the name of a queue's table, or a column of its roles or its key."""
    if not isinstance(operation, (AlterField, RemoveField, RenameField)):
        return isinstance(operation, (AlterModelTable, DeleteModel, RenameModel))
    name = operation.old_name if isinstance(operation, RenameField) else operation.name
    key = {each for field in model.fields.values() for each in getattr(field, "field_names", ())}  # a composite one
    before = _column(name, model.fields[name])
    if not (model.fields[name].primary_key or name in key or before[0] in installed.columns.values()):
        return False
    return not isinstance(operation, AlterField) or _column(name, operation.field) != before


def _column(name: str, field: Any) -> tuple[Any, ...]:
    return column(field, name), field.get_internal_type(), field.max_length


def _changes(loader: MigrationLoader, label: str) -> bool:
    """Return whether makemigrations would find changes in an app."""
    found = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps)).changes(graph=loader.graph)
    return label in found


def _driver(connection: Any) -> tuple[str, str] | None:
    """Return what is wrong with Django's driver of a database, and the remedy."""
    vendor, driver = connection.vendor, connection.Database.__name__
    wanted = DRIVERS.get(vendor, driver)
    if driver == wanted:
        return None
    return f"Django reaches {vendor} by {driver}, and xq speaks through {wanted}", ADVICE[ENGINES[vendor]]


def _unfit(queue: Queue[Any]) -> tuple[str, str] | None:
    try:
        queue.adapter.installation.fingerprint  # noqa: B018
    except Error as error:
        return str(error), ""
    return None


def _not_chosen(queue: Queue[Any]) -> Iterator[checks.CheckMessage]:
    """Yield a warning if the field of the status has choices, and some statuses of the queue are not among them."""
    here, field = queue.adapter.installation, queue.model._meta.get_field(queue.roles["status"])
    chosen = [value for value, _ in getattr(field, "flatchoices", ())]
    words = [word for word in here.dialect.words.values() if chosen and word not in chosen]
    if words:
        said = f"{field} has choices, and the queue writes other values: {', '.join(map(repr, words))}"
        yield checks.Warning(said, hint=f"Add them to the choices. {here.remedy}", obj=queue.model, id="xq.W009")


def _missing(queue: Queue[Any], alias: str) -> Iterator[checks.CheckMessage]:
    connection = connections[alias]
    if connection.vendor not in ENGINES or _driver(connection) or not router.allow_migrate_model(alias, queue.model):
        return
    there = detached_queue(queue.model, alias, queue.adapter.definition)
    if _unfit(there):
        return  # xq.E005
    here = there.adapter.installation
    if not queue.model._meta.managed or here.missing_columns():
        return  # Django reports unapplied migrations itself
    for refused in here.refused_words():
        yield checks.Warning(refused, hint=here.remedy, obj=queue.model, id="xq.W009")
    if missing := here.missing():
        # A warning: an error would prevent migrate from fixing it.
        yield checks.Warning(
            f"{queue.model._meta.label} is not installed in the database {alias!r} as it is defined: "
            f"{'; '.join(missing)}",
            hint="Run manage.py migrate",
            obj=queue.model,
            id="xq.W003",
        )
