"""What `migrate` and `flush` do at their end: install the queues, and set counters to zero."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import apps as registry  # signals have a parameter `apps`
from django.db import connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from xq.adapters.django.connections import database_of, makes_cursors
from xq.adapters.django.lookup import alias_of, queues_of
from xq.adapters.django.migrations import TOLD, install, installed_in, queue_on, refused
from xq.upgrading.build import changes, written


def after_migrate(
    app_config: Any,
    using: str,
    apps: Any = registry,
    plan: Any = None,
    verbosity: int = 1,
    stdout: Any = None,
    **signal: Any,
) -> None:
    """Install each queue of an app, if the table and its columns are there, and say so, and which rows are tasks now.

    The definition is that of the applied migrations, or of the model where they have none. This completes what a
    migration has removed. It leaves a queue alone while its InstallQueue is not applied, or is undone. After a flush,
    which sends no `plan`, it sets the counters to zero. Raises CommandError if the rows do not fit the definition.
    """
    if _is_of_a_test(connections[using]):
        _leave_first(connections[using])
    label, flushed, own = app_config.label, plan is None, queues_of(app_config)
    planned = [backwards for step, backwards in plan or () if step.app_label == label]
    applied, last = _states(label, using) if own and not flushed else (ProjectState(), ProjectState())
    for each in own:
        if makes_cursors(connections[using]) and alias_of(each) == using:
            with refused():  # in this schema, of which the app may have no table
                each.parts.store.ready()
        name = each.model._meta.model_name
        there, awaited = (installed_in(state, label, name) for state in (applied, last))
        defined = there.definition if there else None
        if defined is None and awaited not in (None, there):
            continue
        other = defined if defined and changes(defined, written(each.parts.definition)) else None  # not yet migrated
        queue = queue_on(apps, label, name, using, other)
        if queue is None or (here := queue.parts.executor.installation).missing_columns():
            continue
        if any(planned):  # the program goes back
            here.forget_schedules()
        if (missing := here.missing()) and verbosity:
            (stdout or sys.stdout).write(f"  Installing the queue {queue.model._meta.label} ({missing[0]})\n")
        may_go_back = _is_of_a_test(connections[using]) or any(planned)  # another branch's may be there
        # an old host has no migration to apply
        install(queue, using, False, may_go_back or bool(planned and defined is None))
        if flushed:
            queue.recount()
            queue.reset()
    for key in [key for key in TOLD if key[0] == using and key[1].startswith(f"{label}.")]:
        told = TOLD.pop(key)
        if verbosity:
            (stdout or sys.stdout).write(f"  {told}\n")


def _states(label: str, using: str) -> tuple[ProjectState, ProjectState]:
    """Return the states of an app behind its applied migrations, and behind all of them."""
    loader = MigrationLoader(connections[using], ignore_no_migrations=True)
    nodes = [key for key in loader.graph.nodes if key[0] == label]
    done = [key for key in nodes if key in loader.applied_migrations]
    return loader.project_state(done), loader.project_state(loader.graph.leaf_nodes(label))


def _is_of_a_test(connection: Any) -> bool:
    """Return whether a database has a name that Django gives to temporary test databases."""
    name, test = connection.settings_dict["NAME"], connection.settings_dict["TEST"]["NAME"]
    return name == test or str(name).startswith((TEST_DATABASE_PREFIX, "file:memorydb_"))


def _leave_first(connection: Any) -> None:
    """Disconnect this process from a database before it is dropped: PostgreSQL refuses to drop one in use."""
    creation = connection.creation
    if "destroy_test_db" in vars(creation):
        return
    destroy = creation.destroy_test_db

    def destroy_test_db(*args: Any, **options: Any) -> None:
        database_of(connection).close()
        destroy(*args, **options)

    creation.destroy_test_db = destroy_test_db
