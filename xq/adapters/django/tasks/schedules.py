"""Schedules of django.tasks: what the tasks modules of the apps and OPTIONS declare, and workers store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from django.utils.module_loading import autodiscover_modules, import_string

from xq.adapters.django.tasks import interface
from xq.adapters.django.tasks.options import XQTask
from xq.core.errors import BadType, BadValue, ConfigurationError, shown
from xq.runtime.schedules import checked

Declared = tuple[object, dict[str, Any] | None, dict[str, Any]]  # spec; row, None if another backend runs it; options
_declared: dict[str, Declared] = {}  # by `every`, by name


def every(
    spec: object,
    task: Any,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    tz: str | tzinfo | None = None,
    **using: Any,
) -> None:
    """Declare that a task is enqueued whenever `spec` fires: `every("0 3 * * *", nightly, tz="Europe/Berlin")`.

    Call it in a module `tasks` of an installed app. When workers start they store the declared schedules, and delete
    those that are no longer declared. `spec` and `tz` are as in `Queue.every`, `args` and `kwargs` are the task's,
    `using` are queue_name, priority and backend of `task.using`. Without a `name` it is named by the task's path.
    Raises BadType, BadValue, what `using` and `enqueue` raise, and ConfigurationError if another schedule has the name.
    """
    made = _made(spec, task, args, kwargs, tz, **using)
    _add(_declared, task.module_path if name is None else name, made)


def _made(spec: object, task: Any, args: Any = (), kwargs: Any = None, tz: Any = None, **using: Any) -> Declared:
    checked(spec, tz)
    if not isinstance(task, interface.Task):
        raise BadType(f"a schedule is of a task, which @task makes, not of {shown(task)}")
    task = task.using(**using)
    if task.run_after is not None:
        raise BadValue("the schedule says when its task runs: leave run_after out")
    backend = task.get_backend()
    row = backend.row(task, args, kwargs or {}) if issubclass(backend.task_class, XQTask) else None
    unique = {"on_conflict": "skip"} if row and row.get("unique_key") else {}
    return spec, row, {"tz": tz, **unique}


def _add(found: dict[str, Declared], name: str, made: Declared) -> None:
    if found.setdefault(name, made) != made:
        raise ConfigurationError(f"two schedules are named {shown(name)}: give one of them another name")


def declared() -> dict[str, Declared]:
    """Return what the program declares, as `schedules=` of a model. Raises ConfigurationError, or as a tasks module."""
    autodiscover_modules("tasks")
    found = dict(_declared)
    for backend in interface.task_backends.all():
        for name, value in backend.option("SCHEDULES").items() if issubclass(backend.task_class, XQTask) else ():
            try:
                spec, path, *more = value
                _add(found, name, _made(spec, import_string(path), **dict(*more), backend=backend.alias))
            except Exception as error:
                raise ConfigurationError(
                    f"TASKS[{backend.alias!r}]['OPTIONS']['SCHEDULES'][{name!r}] is (spec, path of a task), or has "
                    f"a third item: a dictionary with args, kwargs, tz, queue_name or priority. {error}"
                ) from error
    if others := [name for name, (_, row, _) in found.items() if row is None]:
        raise ConfigurationError(f"these schedules are of tasks that have a backend which is not xq's: {others}")
    return found
