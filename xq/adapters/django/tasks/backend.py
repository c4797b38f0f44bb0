"""The backend of django.tasks: enqueues tasks and finds their results. Workers run them (`worker.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.utils import timezone

from xq.adapters.django.tasks import interface
from xq.core.errors import BadType, BadValue, ConfigurationError, NotFound, shown
from xq.core.machine import LONGEST
from xq.workers.options import HIGHEST
from xq.workers.outcomes import Backoff

APP: Final = "xq.adapters.django.tasks"


class Option(NamedTuple):
    """The valid values for one of OPTIONS."""

    default: Any
    wanted: str
    fits: Callable[[Any], bool]


def _is_seconds(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= LONGEST)


def _is_number(value: Any) -> bool:
    return value is None or (type(value) is int and 0 < value <= HIGHEST)


def _is_backoff(value: Any) -> bool:
    try:
        return bool(Backoff(value))
    except ConfigurationError:
        return False


OPTIONS: Final[Mapping[str, Option]] = {
    "keep": Option(None, "seconds, or None (forever)", _is_seconds),
    "keep_failed": Option(None, "seconds, or None (forever)", _is_seconds),
    "max_attempts": Option(5, f"a number from 1 to {HIGHEST:,}, or None", _is_number),
    "backoff": Option(None, "a list of seconds, or a function of a task and its exception", _is_backoff),
}


def _problems(given: object, name: str) -> list[str]:
    """Return in words what is wrong with the options in the setting `name`; an empty list if nothing is."""
    if not isinstance(given, Mapping):
        return [f"{name} is a dictionary, not {shown(given)}"]
    unknown = [f"{name} has no {shown(key)}: it has {', '.join(OPTIONS)}" for key in given if key not in OPTIONS]
    return unknown + [
        f"{name}[{key!r}] is {option.wanted}, not {shown(given[key])}"
        for key, option in OPTIONS.items()
        if key in given and not option.fits(given[key])
    ]


class XQBackend(interface.BaseTaskBackend):
    """Stores tasks as rows of the queue `xq.adapters.django.tasks.models.Task`; `manage.py xq_worker` runs them.

    OPTIONS:

    - "keep", "keep_failed": for how many seconds the results of successful and failed tasks stay. None, the default:
    forever.
    - "max_attempts": a task that raises is tried again, and has failed after this many attempts. Workers that died
    while running it and `xq.Retry` count. Without it a task that raises has failed, and 5 is the limit for the others;
    None: no limit for them.
    - "backoff": the pauses between the attempts, as in `Queue.worker`. It also makes a task that raises be tried again.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if wrong := _problems(self.options, f"TASKS[{alias!r}]['OPTIONS']"):
            raise interface.InvalidTaskBackend("; ".join(wrong))
        self.backoff = Backoff(self.option("backoff"))
        # Whether a task that raises is tried again; xq.Retry always asks for it.
        self.retries = any(self.options.get(name) is not None for name in ("max_attempts", "backoff"))

    def option(self, name: str) -> Any:
        """Return one of OPTIONS, or its default."""
        return self.options.get(name, OPTIONS[name].default)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Put a task into the queue, in the application's transaction if one is open on its database."""
        from xq.adapters.django.tasks.models import Task

        self.validate_task(task)
        row = {
            "rank": -task.priority,
            "queue_name": task.queue_name,
            "backend": self.alias,
            "task_path": task.module_path,
            "args": interface.normalize_json(args),
            "kwargs": interface.normalize_json(kwargs),
            "run_after": _in_zone_of_settings(task.run_after),
        }
        put = Task.xq.put(row, **_at(task.run_after))
        result = put.result(task)
        interface.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result with this id. Raises TaskResultDoesNotExist, and ImportError if the function is gone."""
        from xq.adapters.django.tasks.models import Task

        try:
            row = Task.xq.peek(result_id)
        except (NotFound, BadType, BadValue) as error:
            raise interface.TaskResultDoesNotExist(result_id) from error
        return row.result()

    def check(self, **options: Any) -> Iterable[checks.CheckMessage]:
        yield from super().check(**options)
        if not apps.is_installed(APP):
            yield checks.Error(
                f"TASKS[{self.alias!r}] keeps its tasks in a table of {APP!r}, which is not installed.",
                hint=f"Add {APP!r} to INSTALLED_APPS, and run manage.py migrate.",
                id="xq.E010",
            )


def _in_zone_of_settings(moment: datetime | None) -> datetime | None:
    """Return a moment in the form that the project's fields use."""
    if moment is None or timezone.is_aware(moment) == settings.USE_TZ:
        return moment
    return timezone.make_naive(moment) if timezone.is_aware(moment) else timezone.make_aware(moment)


def _at(run_after: datetime | None) -> dict[str, Any]:
    if run_after is None:
        return {}
    at = run_after if timezone.is_aware(run_after) else timezone.make_aware(run_after)
    return {"at": at} if at > datetime.now(UTC) else {}
