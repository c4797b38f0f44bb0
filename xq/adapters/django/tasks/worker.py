"""Run the tasks of django.tasks."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from django.utils import timezone

from xq.adapters.databases.mariadb.mariadb_dialect import LONGEST_STATEMENT
from xq.adapters.django.tasks import interface
from xq.adapters.django.tasks.backend import XQBackend
from xq.adapters.django.tasks.models import Task
from xq.core.errors import ConfigurationError, Error, shown
from xq.runtime.lease import current
from xq.workers.failed import storable
from xq.workers.outcomes import Bury, Discard, Next, Retry

Finish = Callable[..., Any]

LONGEST_TRACEBACK: Final = 100_000  # characters; the middle of a longer one is left out
# Characters that every server accepts. The rest of the statement, beside a return value, is shorter.
SMALL: Final = 100_000

log = logging.getLogger("xq.Task")


class WorkerDied(Error):
    """Marks a task as failed because too many of its workers died while running it."""


def run(
    *,
    queues: Sequence[str] | None = None,
    workers: int = 1,
    until_empty: bool = False,
    max_tasks: int | None = None,
    excluded: Sequence[str] | None = None,
    worker_id: str = "",
) -> None:
    """Run the tasks in these queues (None: all), with so many threads for each, until SIGTERM or SIGINT.

    With `until_empty`, until there is no ready task; with `max_tasks`, until so many are taken. `excluded` names queues
    to leave out. `worker_id` stands in the results in place of the session's uuid. Raises ConfigurationError for a
    queue that the setting TASKS does not name.
    """
    _check_names([*(queues or ()), *(excluded or ())])
    if excluded:
        if not (names := queues or known_names()):
            raise ConfigurationError("to leave queues out, name all queues in QUEUES of each backend in TASKS")
        if not (queues := [name for name in names if name not in excluded]):
            raise ConfigurationError("no queue is left to work on: all that are named are left out, too")
    Task.worker_id = worker_id
    Task.xq.run(until_empty=until_empty, workers=workers, tubes=queues, max_tasks=max_tasks)


def known_names() -> list[str]:
    """Return the queue names in the setting TASKS; none if a backend accepts any name."""
    known = [backend.queues for backend in interface.task_backends.all() if isinstance(backend, XQBackend)]
    return sorted({name for names in known for name in names}) if all(known) else []


def _check_names(queues: Sequence[str]) -> None:
    names = known_names()
    for name in queues if names else ():
        if name not in names:
            raise ConfigurationError(
                f"no backend of TASKS has a queue {shown(name)}: there are {', '.join(names) or 'none'}"
            )


def backoff(row: Task, error: BaseException) -> float:
    """Return the pause before the next attempt at a task, in seconds."""
    backend: Any = interface.task_backends[row.backend]
    return float(backend.backoff.pause(row, row.attempts, error, log))


@Task.xq.worker(backoff=backoff)
def perform(row: Task) -> None:
    """Run one task and record its result. Raise what the worker is to retry or to discard."""
    if not row.begin():
        return
    finish, backend = current().finish, None
    try:
        result = row.result()
        backend = result.task.get_backend()
        limit, before = backend.option("max_attempts"), row.attempts - 1
        if limit and before >= limit:
            raise WorkerDied(f"it was taken {before} times: a process that worked on it died, or was killed, each time")
        interface.task_started.send_robust(type(backend), task_result=result)
        text = json.dumps(interface.normalize_json(_call(result)))
        _check_size(text)
        value = json.loads(text)
    except BaseException as error:  # SystemExit of a task is a failure of the task, too
        if _goes_on(row, backend, error):
            raise
        _fail(finish, backend, error)
    else:
        try:
            _finish(finish, "ack", backend, "keep", {"return_value": value})
        except Exception as error:
            # A worker that is stopping does not wait for the database.
            if Task.xq.parts.store.may_pass(error) or _goes_on(row, backend, error):
                raise
            _fail(finish, backend, error)


perform.is_endless = False  # the backend limits the attempts


def _goes_on(row: Task, backend: Any, error: BaseException) -> bool:
    """Return whether the worker retries, moves or discards the task, so that it has not failed for good."""
    if backend is None or not isinstance(error, Exception) or isinstance(error, Bury):
        return False
    limit = backend.option("max_attempts")
    may_retry = (not limit or row.attempts < limit) and (backend.retries or isinstance(error, Retry))
    return may_retry or isinstance(error, (Discard, Next))


def _call(result: Any) -> Any:
    context = [interface.TaskContext(task_result=result)] if result.task.takes_context else []
    with Task.xq.parts.store.at_work():  # a transaction that the task left open would roll its result back
        return result.task.call(*context, *result.args, **result.kwargs)


def _check_size(text: str) -> None:
    """Raise ValueError for a return value so large, as JSON, that MariaDB would close the connection."""
    store = Task.xq.parts.store
    if len(text) <= SMALL or store.engine != "mariadb":
        return
    ((most,),) = store.execute(LONGEST_STATEMENT)
    sent = len(text) + sum(map(text.count, "\"'\\"))  # escaped characters count twice
    if sent > most - SMALL:
        raise ValueError(f"the return value has {sent} bytes as JSON, and max_allowed_packet of the database is {most}")


def _fail(finish: Finish, backend: Any, error: BaseException) -> None:
    ended = {
        "exception_class_path": f"{type(error).__module__}.{type(error).__qualname__}",
        "traceback": storable("".join(traceback.format_exception(error)), LONGEST_TRACEBACK),
    }
    try:
        _finish(finish, "bury", backend, "keep_failed", ended)
    except Exception as refused:  # for example a character that the database's character set lacks
        if Task.xq.parts.store.may_pass(refused):
            raise
        log.warning("the traceback of a task cannot be kept: %s", refused)
        _finish(finish, "bury", backend, "keep_failed", {**ended, "traceback": ""})


def _finish(finish: Finish, event: str, backend: Any, keep: str, ended: dict[str, Any]) -> None:
    """Record a task's end and send the signal.

    Runs within the handler of its error, so that receivers can log it.
    """
    seconds = backend.option(keep) if backend else None
    options = {} if seconds is None else {"delay": seconds}
    row = finish(event, update={**ended, "finished_at": timezone.now()}, **options)
    if row is None:
        return
    if backend is None:
        log.exception("the task %s of %s cannot be run", row.pk, row.task_path)
    else:
        interface.task_finished.send_robust(type(backend), task_result=row.result())
