"""The backend of django.tasks: enqueues tasks and finds their results. Workers run them (`worker.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from xq.adapters.django.lookup import alias_of
from xq.adapters.django.tasks import interface
from xq.adapters.django.tasks.options import KEYS, OPTIONS, XQTask, asked, keys_of, problems, unknown_errors, unmatched
from xq.core.errors import BadType, BadValue, ConfigurationError, NotFound, shown
from xq.runtime.group import Group

APP: Final = "xq.adapters.django.tasks"


class XQBackend(interface.BaseTaskBackend):
    """Stores tasks as rows of the queue `xq.adapters.django.tasks.models.Task`; `manage.py xq_worker` runs them.

    OPTIONS:

    - "keep", "keep_failed": for how many seconds the results of successful and failed tasks stay. None, the default:
    forever.
    - max_attempts, backoff, retry_on, discard_on, timeout, unique, group: for all tasks that have none of their own.
    With max_attempts, backoff or retry_on a task that raises is tried again. Without max_attempts 5 is the limit for
    tasks whose workers died and for `xq.Retry`; None: no limit for them.
    - "TASKS": these options by the paths of tasks, as {"wagtail.tasks.*": {"max_attempts": 3}}. They come before the
    task's own, and the longest path that matches decides.
    - "groups": whether tasks may have a group.
    - "then": whether `group` may enqueue tasks that another one follows.
    - "steps": whether tasks may call `xq.step`, `xq.sleep` and `xq.wait_for`.
    - "ALIASES": where functions are that have moved: {old path: new path}.
    - "SCHEDULES": schedules by name: (spec, path of a task) or (spec, path, options). Options are args, kwargs, tz,
    queue_name and priority, as in `every`.
    """

    task_class = XQTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if wrong := problems(self.options, f"TASKS[{alias!r}]['OPTIONS']"):
            raise interface.InvalidTaskBackend("; ".join(wrong))
        # Whether its calls have keys, by the options of all tasks.
        each = [self.options, *self.option("TASKS").values()]
        self._has_keys = any(own.get(name) for own in each for name in KEYS)

    def option(self, name: str) -> Any:
        """Return one of OPTIONS, or its default."""
        return self.options.get(name, OPTIONS[name].default)

    def row(self, task: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        """Return the fields of one call's row. Raises what django.tasks raises for a task or arguments."""
        if not isinstance(task, interface.Task):
            raise BadType(f"a task is what @task makes, not {shown(task)}")
        self.validate_task(task)
        has_keys = self._has_keys or any(getattr(task, name, None) is not None for name in KEYS)
        return {
            "rank": -task.priority,
            "queue_name": task.queue_name,
            "backend": self.alias,
            "task_path": task.module_path,
            "args": interface.normalize_json(args),
            "kwargs": interface.normalize_json(kwargs),
            "run_after": _in_zone_of_settings(task.run_after),
            **(keys_of(task, self, args, kwargs) if has_keys else {}),
        }

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Put a task into the queue, in the application's transaction if one is open on its database."""
        from xq.adapters.django.tasks.models import Task

        row = self.row(task, args, kwargs)
        if row.get("unique_key"):
            return self._enqueued_once(task, [row], Task.xq)[0]
        return self._enqueued(task, Task.xq.put(row, **_at(task.run_after)))

    def enqueue_many(self, task: Any, calls: Iterable[tuple[Any, Any]], group: Any = None) -> list[Any]:
        """Do as the function `enqueue_many`, into a `group` if given: put all or none, 200 by a statement."""
        from xq.adapters.django.tasks.models import Task

        rows, to = [self.row(task, args, kwargs) for args, kwargs in _calls(calls)], group or Task.xq
        if any(row.get("unique_key") for row in rows):
            return self._enqueued_once(task, rows, to)
        return [self._enqueued(task, put) for put in to.put_many(rows, **_at(task.run_after))]

    def group(self, name: str, then: Any = None, *, failed: Literal["run"] | None = None) -> TaskGroup:
        """Return a group, as `Queue.group`: a block enqueues its tasks, without one it is a handle to an open group.

        `then` is a task, or a tuple of a task, its args and its kwargs, which is enqueued when all have ended. It sends
        no signal task_enqueued. Raises BadType, BadValue, and ConfigurationError without "then" in OPTIONS.
        """
        from xq.adapters.django.tasks.models import Task

        if not asked("then"):
            raise ConfigurationError('group() needs "then": True in OPTIONS of a backend in TASKS, and a migrate then')
        return TaskGroup(self, Task.xq.parts, name, then, failed)

    def _enqueued_once(self, task: Any, rows: list[dict[str, Any]], to: Any) -> list[Any]:
        """Put the rows whose unique key no unfinished task has. Return the results of all, in this order."""
        now = timezone.now()
        rows = [{**row, "enqueued_at": now} for row in rows]
        put = to.put_many(rows, on_conflict="skip", **_at(task.run_after))
        once = {each.pk: each for each in put}
        results = {key: self._enqueued(task, each, each.enqueued_at == now) for key, each in once.items()}
        return [results[each.pk] for each in put]

    def _enqueued(self, task: Any, put: Any, is_new: bool = True) -> Any:
        result = put.result(task)
        if is_new:
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
        elif (alias := _alias()) != DEFAULT_DB_ALIAS:
            yield checks.Warning(
                f"A router keeps the tasks of TASKS[{self.alias!r}] in the database {alias!r}: a task that is enqueued "
                f"within atomic() of {DEFAULT_DB_ALIAS!r} stays after its rollback, and may run before its commit.",
                hint="Enqueue it by transaction.on_commit, or within atomic(using=...) of its own database.",
                id="xq.W015",
            )
        for wrong in unknown_errors(self.options):
            said = f"TASKS[{self.alias!r}]['OPTIONS'] names an exception that is not there: {wrong}"
            yield checks.Error(said, hint="Write the path of its class, as shop.errors.Busy.", id="xq.E011")
        for wrong in unmatched(self.options):
            said = f"TASKS[{self.alias!r}]['OPTIONS']['TASKS'] has a path that no task has: {wrong}"
            yield checks.Warning(said, hint="Write the path of its function, as shop.tasks.send", id="xq.W016")


def _alias() -> str:
    from xq.adapters.django.tasks.models import Task

    return alias_of(Task.xq)


class TaskGroup(Group[Any]):
    """A group of tasks of django.tasks."""

    def __init__(self, backend: XQBackend, *given: Any) -> None:
        self._backend, self._parts = backend, given[0]
        super().__init__(*given)

    def _target(self, then: Any) -> tuple[Any, object, str | None]:
        is_pair = isinstance(then, tuple) and len(then) == 2 and isinstance(then[1], str)
        if is_pair and not isinstance(then[0], interface.Task):  # a signal
            is_result = isinstance(then[0], interface.TaskResult)
            return (self._parts, then[0].id, then[1]) if is_result else super()._target(then)
        given: list[Any] = list(then) if isinstance(then, tuple) else [then]
        task, args, kwargs, *more = given + [None, (), {}][len(given) :]
        if more or not isinstance(task, interface.Task) or not _is_call(args, kwargs):
            found = f"a task with {shown(given[1:])}" if isinstance(task, interface.Task) else shown(then)
            raise BadType(f"then is a task, or (task, args, kwargs) with a list and a dictionary, not {found}")
        if task.run_after is not None:
            raise BadValue("the group says when its then runs: leave run_after out")
        return self._parts, self._backend.row(task, args, kwargs), None

    def enqueue(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a task as a member, in the block or into an open group, and return its result."""
        return self._backend.enqueue_many(task, [(args, kwargs)], self)[0]

    def enqueue_many(self, task: Any, calls: Iterable[tuple[Any, Any]]) -> list[Any]:
        """Enqueue a task as a member once for each (args, kwargs), and return the results in this order."""
        return self._backend.enqueue_many(task, calls, self)


def _is_call(args: Any, kwargs: Any) -> bool:
    return isinstance(args, (list, tuple)) and isinstance(kwargs, Mapping)


def _calls(given: Iterable[Any]) -> list[tuple[Any, Any]]:
    calls = list(given)
    for call in calls:
        if not (isinstance(call, (list, tuple)) and len(call) == 2 and _is_call(*call)):
            raise BadType(f"enqueue_many takes calls as (args, kwargs), a list and a dictionary, not {shown(call)}")
    return calls


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


def enqueue_many(task: Any, calls: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Enqueue a task once for each (args, kwargs), and return the results in this order.

    xq's backend puts all of them or none, 200 by a statement; another backend enqueues one after the other.
    """
    backend = task.get_backend()
    if isinstance(backend, XQBackend):
        return backend.enqueue_many(task, calls)
    return [backend.enqueue(task, args, kwargs) for args, kwargs in _calls(calls)]


def group(name: str, then: Any = None, *, failed: Literal["run"] | None = None, backend: str = "default") -> TaskGroup:
    """Return a group of this backend in TASKS, as `XQBackend.group`. Raises ConfigurationError if it is not xq's."""
    found = interface.task_backends[backend]
    if not isinstance(found, XQBackend):
        raise ConfigurationError(f"TASKS[{backend!r}] is {type(found).__name__}, which has no groups: XQBackend has")
    return found.group(name, then, failed=failed)


async def aenqueue_many(task: Any, calls: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Do as `enqueue_many`, in a coroutine."""
    return await sync_to_async(enqueue_many, thread_sensitive=True)(task, calls)
