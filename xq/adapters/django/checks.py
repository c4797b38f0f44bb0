"""System checks for a project's queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import ref

from django.apps import apps
from django.core import checks
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.models.signals import post_save, pre_save

from xq.adapters.django.connections import ADVICE, ENGINES
from xq.adapters.django.lookup import alias_of, queue_of, queues_of
from xq.adapters.django.migrations import installed_in, queue_on
from xq.adapters.django.signals import moved
from xq.api import Queue
from xq.core.errors import Error

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}  # vendor -> the driver that xq supports
CHANGED = "Run manage.py makemigrations, if the definition has changed, and manage.py migrate"
SAVES = {"pre_save": pre_save, "post_save": post_save}


def register() -> None:
    checks.register(check_queues, "xq")
    checks.register(check_databases, checks.Tags.database)


def check_queues(app_configs: Sequence[Any] | None, **given: Any) -> Iterator[checks.CheckMessage]:
    """Check that each queue fits its database and its model's status field."""
    migrated = MigrationLoader(None, ignore_no_migrations=True).project_state()
    for config in _apps(app_configs):
        for queue in queues_of(config):
            if queue.model._meta.managed:
                yield from _unfit(queue, alias_of(queue)) or _not_chosen(queue)
                yield from _of_a_package(queue.model, config, MigrationLoader.migrations_module(config.label)[0])
            yield from (*_filtered(queue.model), *_passed_by(queue.model))
        yield from _no_more(config, migrated)


def check_databases(
    app_configs: Sequence[Any] | None, databases: Sequence[str] | None = None, **given: Any
) -> list[checks.CheckMessage]:
    """Check that each queue is installed in each database with its table."""
    queues = [queue for config in _apps(app_configs) for queue in queues_of(config)]
    return [message for queue in queues for alias in databases or () for message in _missing(queue, alias)]


def _apps(app_configs: Sequence[Any] | None) -> list[Any]:
    return list(apps.get_app_configs() if app_configs is None else app_configs)


def _unfit(queue: Queue[Any], alias: str) -> list[checks.CheckMessage]:
    """Return an error if xq does not support Django's driver for a database, or if the queue cannot be there."""
    vendor, driver = connections[alias].vendor, connections[alias].Database.__name__
    wanted = DRIVERS.get(vendor, driver)
    if driver != wanted:
        said = f"Django reaches {vendor} by {driver}, and xq speaks through {wanted}"
        return [checks.Error(said, hint=ADVICE[ENGINES[vendor]], obj=queue.model, id="xq.E005")]
    try:
        queue.parts.executor.installation.fingerprint  # noqa: B018
    except Error as error:
        return [checks.Error(str(error), hint="", obj=queue.model, id="xq.E005")]
    return []


def _not_chosen(queue: Queue[Any]) -> Iterator[checks.CheckMessage]:
    """Yield a warning if the status field has choices, and some statuses that the queue writes are not among them."""
    here, field = queue.parts.executor.installation, queue.model._meta.get_field(queue.roles["status"])
    chosen = [value for value, _ in getattr(field, "flatchoices", ())]
    words = [word for word in here.dialect.words.values() if chosen and word not in chosen]
    if words:
        said = f"{field} has choices, and the queue writes other values: {', '.join(map(repr, words))}"
        yield checks.Warning(said, hint=f"Add them to the choices. {here.remedy}", obj=queue.model, id="xq.W009")


def _of_a_package(model: Any, config: Any, migrations: str | None) -> Iterator[checks.CheckMessage]:
    """Yield a warning if the migrations of a model are written into an installed package."""
    is_installed = {"site-packages", "dist-packages"} & {*Path(config.path).parts}
    if is_installed and migrations == f"{config.name}.migrations" and not config.name.startswith("xq."):
        said = f"{model._meta.label} is of an installed package: makemigrations writes the queue's into {config.path}"
        hint = "Upgrade a model of your own on its table, with managed = False; or name a folder in MIGRATION_MODULES"
        yield checks.Warning(said, hint=hint, obj=model, id="xq.W014")


def _filtered(model: Any) -> Iterator[checks.CheckMessage]:
    """Yield a warning if the default manager hides rows: a queue uses no manager, and finds them."""
    manager, hides = model._default_manager, True
    with suppress(Exception):  # one that needs a request, say
        hides = bool(manager.get_queryset().query.where)
    if hides:
        said = f"{manager} hides rows, and a queue uses no manager: workers take these, too"
        hint = (
            "Let what hides a row take it out of the queue, too: write a status that is none of the queue's, or call "
            f'{model.__name__}.xq.cancel(row, to="B")'
        )
        yield checks.Warning(said, hint=hint, obj=model, id="xq.W011")


def _passed_by(model: Any) -> Iterator[checks.CheckMessage]:
    """Yield a warning if receivers wait for save signals of a model, and none for `moved`."""
    sent = [(name, *each[:2]) for name, signal in SAVES.items() for each in signal.receivers]
    found = [(name, held() if isinstance(held, ref) else held) for name, key, held in sent if key[1] == id(model)]
    names = [f"{each.__module__}.{getattr(each, '__qualname__', each)} ({name})" for name, each in found if each]
    if names and not moved.has_listeners(model):
        said = f"moves of tasks call no save() and send no signals of it, for which there are: {', '.join(names)}"
        hint = "Connect them to xq.adapters.django.moved as well, if they are to know of moves"
        yield checks.Warning(said, hint=hint, obj=model, id="xq.W012")


def _no_more(config: Any, migrated: Any) -> Iterator[checks.CheckMessage]:
    """Yield a warning for each model that is no queue any more: until it is uninstalled, writes go on to be counted."""
    for model in config.get_models():
        there = installed_in(migrated, config.label, model._meta.model_name)
        if there and model._meta.managed and queue_of(model) is None:
            yield checks.Warning(
                f"{model._meta.label} is not a queue, and migrations of {config.label} install one: triggers and "
                "counters",
                hint=f"Upgrade it; or run manage.py makemigrations {config.label}, and migrate",
                obj=model,
                id="xq.W006",
            )


def _missing(queue: Queue[Any], alias: str) -> Iterator[checks.CheckMessage]:
    meta = queue.model._meta
    there = queue_on(apps, meta.app_label, meta.model_name, alias)
    if there is None or _unfit(there, alias):
        return  # xq.E005
    here = there.parts.executor.installation
    if not here.installer.table_columns(here.store):
        return  # a migration makes it
    for refused in here.refused_words():
        yield checks.Warning(refused, hint=here.remedy, obj=queue.model, id="xq.W009")
    if missing := here.missing_objects():  # a column of the application's is Django's to report
        replaced = here.replaced()
        # A warning: an error would prevent migrate from fixing it.
        yield checks.Warning(
            f"{meta.label} is not installed in the database {alias!r} as it is defined: {'; '.join(missing)}",
            hint=f"This program is {replaced.why}: {here.instead(replaced)}" if replaced else CHANGED,
            obj=queue.model,
            id="xq.W003",
        )
