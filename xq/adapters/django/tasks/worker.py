"""Run the tasks of django.tasks."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.utils import timezone

from xq.adapters.django.tasks import interface
from xq.adapters.django.tasks.backend import XQBackend
from xq.adapters.django.tasks.models import Task
from xq.adapters.django.tasks.options import TIMED, begin, errors_of, option_of, retries
from xq.core.errors import ConfigurationError, Error, shown
from xq.core.words import taken_too_often
from xq.runtime.lease import current
from xq.sql.innodb.innodb_dialect import LONGEST_STATEMENT
from xq.workers.attempt import line_of, text_of
from xq.workers.failed import LONGEST_ERROR, storable, traceback_of
from xq.workers.options import Options
from xq.workers.outcomes import Backoff, Bury, Discard, Next, Outcome, ProcessDied, Retry, Suspended
from xq.workers.pool import Assignment
from xq.workers.program import KINDS, assignment_of, assignments_of, run_assignments, worker_of
from xq.workers.worker import returned

Finish = Callable[..., Any]

LONGEST_TRACEBACK: Final = 20_000  # characters; the middle of a longer one is left out
ERRORS: Final = 20  # which a task keeps, the newest
# Characters that every server accepts. The rest of the statement, beside a return value, is shorter.
SMALL: Final = 100_000

# Seconds since its enqueueing, or run_after, for which a task waits for a worker that has its function, and the pause.
LONGEST_DEPLOY: Final = 3600.0
SHORTEST_PAUSE: Final = 10.0
CANNOT_END: Final = (
    "{} has a timeout, and Python cannot stop a thread: start the worker with --kind process, or make it an async def"
)

log = logging.getLogger("xq.Task")
_unknown: set[str] = set()  # the paths that this process has not found, and has logged


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
    kind: str = "thread",
    coroutines: int | None = None,
) -> None:
    """Run the tasks in these queues (None: all), with so many threads for each, until SIGTERM or SIGINT.

    With `kind="process"` in so many processes for each; with `coroutines` on one event loop, so many for each.

    With `until_empty`, until there is no ready task; with `max_tasks`, until so many are taken. `excluded` names queues
    to leave out. `worker_id` stands in the results in place of the session's uuid. Raises ConfigurationError for a
    queue that the setting TASKS does not name.
    """
    try:
        made = assignments(queues, workers, excluded, worker_id, kind, coroutines)
        run_assignments(made, until_empty, max_tasks)
    finally:
        Task.worked_on_by = ""


def assignments(
    queues: Sequence[str] | None,
    workers: int,
    excluded: Sequence[str] | None,
    worker_id: str,
    kind: str = "thread",
    coroutines: int | None = None,
) -> list[Assignment]:
    """Return what `run` works on, for a program that works on other queues as well. Raises as `run`."""
    _check_names([*(queues or ()), *(excluded or ())])
    if excluded:
        if not (names := queues or known_names()):
            raise ConfigurationError("to leave queues out, name all queues in QUEUES of each backend in TASKS")
        if not (queues := [name for name in names if name not in excluded]):
            raise ConfigurationError("no queue is left to work on: all that are named are left out, too")
    if coroutines and kind != "thread":
        raise ConfigurationError("coroutines run on one event loop: for more processes run the program again")
    kind = "asyncio" if coroutines else kind
    begin(worker_id, kind, perform)
    _check_timeouts(queues)
    if coroutines:
        options = Options(kind=kind, workers=coroutines, backoff=backoff)
        return [assignment_of(set_up(worker_of(Task.xq, aperform, options)), None, queues)]
    made = assignments_of(Task.xq, workers, queues)
    if kind != "process":
        return made
    for each in made:
        each.worker.in_child.append(partial(begin, worker_id, kind))
    return [replace(each, options=replace(each.options, kind=kind), kind=KINDS[kind]) for each in made]


def _check_timeouts(queues: Sequence[str] | None) -> None:
    """Raise ConfigurationError for a task that this process cannot end in time, as far as it has imported them."""
    for path, task in TIMED.items():
        is_ours = isinstance(task.get_backend(), XQBackend) and (not queues or task.queue_name in queues)
        if is_ours and _cannot_end(task):
            raise ConfigurationError(CANNOT_END.format(path))


def _cannot_end(task: Any) -> bool:
    in_thread = Task.worked_on_by in ("thread", "asyncio")
    return in_thread and not iscoroutinefunction(task.func) and bool(option_of(task, task.get_backend(), "timeout"))


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
    return Backoff(row.option("backoff")).pause(row, row.attempts, error, log)


@Task.xq.worker(backoff=backoff)
def perform(row: Task) -> None:
    """Run one task and record its result. Raise what the worker is to retry or to discard."""
    if (result := _begun(row)) is None:
        return
    finish = current().finish
    try:
        value = _call(result)
        returned()
    except Suspended as suspended:
        _leave(row, suspended)
        raise
    except BaseException as error:  # SystemExit of a task is a failure of the task, too
        _renumber(row)
        _discard(row, error)
        if not _ended(row, error, finish):
            raise
    else:
        _returned(row, value, finish)


async def aperform(row: Task) -> None:
    """Do as `perform`: a task that is an async def runs on this event loop, what else there is in threads."""
    if (result := await _in_thread(_begun, row)) is None:
        return
    finish = current().finish
    try:
        awaits = iscoroutinefunction(result.task.func)
        value = await (_acall(result) if awaits else _in_thread(_call, result))
        returned()
    except Suspended as suspended:
        _leave(row, suspended)
        raise
    except BaseException as error:
        me = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and me and me.cancelling():
            raise  # the program ends, or the task is lost
        _renumber(row)
        _discard(row, error)
        if not await _in_thread(_ended_as_raised, row, error, finish):
            raise
    else:
        await _in_thread(_returned, row, value, finish)


async def _in_thread(call: Callable[..., Any], *args: Any) -> Any:
    def called() -> Any:
        with Task.xq.parts.store.at_work():
            return call(*args)

    return await asyncio.to_thread(called)


def _begun(row: Task) -> Any:
    """Return the result of a task whose attempt begins; None if its function is not to be called."""
    finish = current().finish
    try:
        result = row.result()
        backend = result.task.get_backend()
        limit, before = option_of(result.task, backend, "max_attempts"), row.attempts - 1
        if limit and before >= limit and not row.was_dug():
            raise WorkerDied(taken_too_often(before))
        if _cannot_end(result.task):
            raise ConfigurationError(CANNOT_END.format(row.task_path))
        if not row.goes_on:
            interface.task_started.send_robust(type(backend), task_result=result)
        return result
    except ImportError as error:
        if not _waits(row, error, finish):
            _fail(row, finish, None, error)
    except Exception as error:
        if not _ended(row, error, finish):
            raise
    return None


def _waits(row: Task, error: ImportError, finish: Finish) -> bool:
    """Release a task whose function this worker lacks, as in a rolling deploy: that is no attempt. False: it is old."""
    age = (timezone.now() - (row.run_after or row.enqueued_at)).total_seconds()
    if age >= LONGEST_DEPLOY:
        return False
    told = f"{error}: this worker has no {row.task_path}; it waits for one that has, or for ALIASES in OPTIONS"
    if row.task_path not in _unknown:
        _unknown.add(row.task_path)
        log.warning("a task is released: %s", told)
    update = {"attempts": row.attempts - 1, "worker_ids": row.worker_ids[:-1], "error": told[:LONGEST_ERROR]}
    finish("release", update=update, sets=("attempts", "error"), delay=max(SHORTEST_PAUSE, age / 4))
    return True


def _leave(row: Task, suspended: Suspended) -> None:
    """Note in the row, with the move by which its attempt ends for now, that the next take is of the same attempt."""
    suspended.update = {"worker_ids": [*row.xq_workers(), ""]}


def _renumber(row: Task) -> None:
    """Note that a step has been recorded since the take: with it the attempts begin anew."""
    row.attempts = current().taken[0].number


def _discard(row: Task, error: BaseException) -> None:
    """Raise Discard if its function has raised what a task is discarded on."""
    if isinstance(error, errors_of(row.option("discard_on"))) and not isinstance(error, Outcome):
        log.info("task %s (%s) is discarded: %s", row.pk, row.task_path, line_of(error))
        raise Discard from error


def _ended(row: Task, error: BaseException, finish: Finish) -> bool:
    """Fail a task that has raised. Return False if it has not failed for good: it is retried, moved or discarded."""
    try:
        backend: Any = interface.task_backends[row.backend]
        goes_on = _goes_on(row, backend, error)
    except Exception:  # the function is gone, or the backend
        backend, goes_on = None, False
    if not goes_on:
        _fail(row, finish, backend, error)
    return not goes_on


def _ended_as_raised(row: Task, raised: BaseException, finish: Finish) -> bool:
    """Do as `_ended`, within a handler of the error."""
    trace = raised.__traceback__
    try:
        raise raised
    except BaseException as error:
        return _ended(row, error.with_traceback(trace), finish)


def _returned(row: Task, value: Any, finish: Finish) -> None:
    """Record what the function of a task has returned."""
    backend = interface.task_backends[row.backend]
    try:
        text = json.dumps(interface.normalize_json(value))
        _check_size(text)
    except Exception as error:
        told = f"the function returned {shown(value)}, which is no JSON to keep ({error}); it ran, and is not repeated"
        problem = (TypeError if isinstance(error, TypeError) else ValueError)(told)
        problem.__cause__ = error
        _fail(row, finish, backend, problem)
        return
    without = {} if row.error is None else {"error": None, "exception_class_path": ""}
    update = {"return_value": json.loads(text), "finished_at": timezone.now(), **without}
    current().ack_with(update, partial(_tell, backend, task=row.task), ("error",), **_kept(backend, "keep"))


def _goes_on(row: Task, backend: Any, error: BaseException) -> bool:
    if not isinstance(error, Exception) or isinstance(error, (Bury, ConfigurationError)):
        return False
    limit, asks = row.option("max_attempts"), isinstance(error, (Retry, ProcessDied))
    may_retry = (not limit or row.attempts < limit) and (asks or retries(row.task, backend, error))
    return may_retry or isinstance(error, (Discard, Next))


def _call(result: Any) -> Any:
    if iscoroutinefunction(result.task.func):
        return async_to_sync(_acall)(result)
    lease = current()
    lease.thread, lease.coroutine = threading.get_ident(), None
    with Task.xq.parts.store.at_work():  # a transaction that the task left open would roll its result back
        return result.task.func(*_arguments(result), **result.kwargs)


async def _acall(result: Any) -> Any:
    lease = current()
    lease.thread, lease.coroutine = threading.get_ident(), asyncio.current_task()
    timeout = option_of(result.task, result.task.get_backend(), "timeout")
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await result.task.func(*_arguments(result), **result.kwargs)
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"the function runs for longer than {timeout:g} s") from error
        raise


def _arguments(result: Any) -> list[Any]:
    context = [interface.TaskContext(task_result=result)] if result.task.takes_context else []
    return [*context, *result.args]


def _check_size(text: str) -> None:
    """Raise ValueError for a return value so large, as JSON, that MariaDB would close the connection."""
    store = Task.xq.parts.store
    if len(text) <= SMALL or store.engine != "innodb":
        return
    ((most,),) = store.execute(LONGEST_STATEMENT)
    sent = len(text) + sum(map(text.count, "\"'\\"))  # escaped characters count twice
    if sent > most - SMALL:
        raise ValueError(f"the return value has {sent} bytes as JSON, and max_allowed_packet of the database is {most}")


def noted(row: Task, error: BaseException, encoding: str = "ascii") -> dict[str, Any]:
    """Return the fields to write as an attempt has failed. Any database accepts ASCII."""
    told, trace = f"{type(error).__name__}: {text_of(error)}", traceback_of(error)
    kept = {"exception_class_path": _path(error), "traceback": storable(trace, LONGEST_TRACEBACK)}
    return {
        "error": storable(f"{told}\n{trace}".removesuffix(f"\n{told}"), LONGEST_ERROR, encoding),
        "errors": [*(row.errors or ()), kept][-ERRORS:],
    }


def _path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _fail(row: Task, finish: Finish, backend: Any, error: BaseException) -> None:
    options = {"sets": ("error",), "error": error, **_kept(backend, "keep_failed")}
    ended = {"exception_class_path": _path(error), "finished_at": timezone.now(), "return_value": None}
    try:
        moved = finish("bury", update=ended | noted(row, error, "utf-8"), **options)
    except Exception as refused:  # for example a character that the database's character set lacks
        if Task.xq.parts.store.may_pass(refused):
            raise
        log.warning("the error of a task is kept as ASCII: %s", refused)
        ended["exception_class_path"] = storable(_path(error), LONGEST_ERROR, "ascii")
        moved = finish("bury", update=ended | noted(row, error), **options)
    if moved is not None:
        _tell(backend, moved)


def _kept(backend: Any, option: str) -> dict[str, Any]:
    seconds = backend.option(option) if backend else None
    return {} if seconds is None else {"delay": seconds}


def _tell(backend: Any, row: Task, task: Any = None) -> None:
    """Send the signal that a task has ended. Runs within the handler of its error, so that receivers can log it."""
    if backend is None:
        log.exception("the task %s of %s cannot be run", row.pk, row.task_path)
    else:
        interface.task_finished.send_robust(type(backend), task_result=row.result(task))


def set_up(worker: Any) -> Any:
    """Let a worker of the queue know what becomes of a task whose attempt has failed, and return it."""
    worker.is_endless = False  # the options limit the attempts
    worker.level_of_ends = logging.INFO  # django.tasks logs each failure as an ERROR, with its traceback
    worker.noted, worker.ended = noted, _ended_as_raised
    return worker


set_up(perform)
